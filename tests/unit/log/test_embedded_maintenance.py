"""Compaction and retention of the embedded log, held to the in-memory one, which does it in another way."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.clock import FakeClock, SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.embedded.framing import decode, offset_of, record_key
from tocsin.log.memory import MemoryLog
from tocsin.log.port import Cleanup, EventLog, LogUnavailable, Record, TopicPartition, TopicSpec

HERE = TopicPartition("t", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedLog]:
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=None) as opened:
        yield opened


def _stored(log: EmbeddedLog) -> list[Record]:
    """What is on the disk: readers may be shown more, from memory."""
    first, stop = record_key(1, 0, 0), record_key(1, 0, 2**63 - 1)
    rows = log._store.read("records", first, stop, 1_000_000)
    return [decode("t", 0, offset_of(key), value) for key, value in rows]


def _index_rows(log: EmbeddedLog) -> int:
    return len(log._store.read("index", b"\0", b"\xff", 1_000_000))


def _put(log: EventLog, *pairs: tuple[bytes, bytes | None]) -> None:
    producer = log.producer()
    for key, value in pairs:
        producer.produce("t", key=key, value=value, partition=0)
    assert producer.flush(30) == 0


PUT = st.tuples(st.just("put"), st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"v", None]))
AGE = st.tuples(st.just("age"), st.integers(1, 12))
STEPS = st.lists(PUT | AGE, min_size=1, max_size=40)


@settings(max_examples=60)
@given(STEPS, st.sampled_from(["delete", "compact", "compact,delete"]), st.integers(0, 9), st.integers(0, 9))
def test_it_leaves_what_the_in_memory_log_leaves(
    steps: list[tuple[str, bytes, bytes | None] | tuple[str, int]],
    cleanup: Cleanup,
    lag_ms: int,
    delete_retention_ms: int,
) -> None:
    spec = TopicSpec(
        name="t",
        partitions=1,
        cleanup=cleanup,
        retention_ms=20,
        min_compaction_lag_ms=lag_ms,
        delete_retention_ms=delete_retention_ms,
    )
    clock = FakeClock()
    memory = MemoryLog(clock)
    with (
        TemporaryDirectory() as directory,
        EmbeddedLog.open(Path(directory), clock, maintenance_interval_s=None) as log,
    ):
        for each in (memory, log):
            each.create_topics([spec])
        for step in steps:
            match step:
                case ("put", bytes() as key, value):
                    for each in (memory, log):
                        _put(each, (key, value if value is None else b"%d" % clock.now_ms()))
                case ("age", int() as ms):
                    clock.advance(ms)
                    assert memory.run_maintenance_once() == log.run_maintenance_once()
                    assert [stored.record for stored in memory.records("t", 0)] == _stored(log)
                case _:
                    raise AssertionError(step)
            assert memory.begin_offset(HERE) == log.begin_offset(HERE)
            assert memory.end_offset(HERE, "committed") == log.end_offset(HERE, "committed")


def test_compaction_takes_many_steps_for_many_records(log: EmbeddedLog) -> None:
    log.create_topics([TopicSpec(name="t", partitions=1, cleanup="compact")])
    _put(log, *((b"%d" % (number % 700), b"%d" % number) for number in range(5_000)))
    assert log.run_maintenance_once() == 4_300
    assert [b"%d" % number for number in range(4_300, 5_000)] == [record.value for record in _stored(log)]
    assert log.run_maintenance_once() == 0


def test_retention_of_a_compacted_topic_leaves_no_row_behind(log: EmbeddedLog, clock: FakeClock) -> None:
    log.create_topics([TopicSpec(name="t", partitions=1, cleanup="compact,delete", retention_ms=1_000)])
    _put(log, *((b"run-%d" % number, b"v") for number in range(1_200)))
    log.run_maintenance_once()
    assert _index_rows(log) == 1_200
    clock.advance(1_001)
    assert log.run_maintenance_once() == 1_200
    assert _index_rows(log) == 0
    assert _stored(log) == []


def test_a_deleted_key_leaves_no_row_behind(log: EmbeddedLog, clock: FakeClock) -> None:
    log.create_topics([TopicSpec(name="t", partitions=1, cleanup="compact", delete_retention_ms=1_000)])
    _put(log, (b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2"), (b"b", None))
    log.run_maintenance_once()
    clock.advance(1_000)
    log.run_maintenance_once()
    assert (_stored(log), _index_rows(log)) == ([], 0)


def test_a_pass_that_was_interrupted_is_gone_on_with(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=None) as log:
        log.create_topics([TopicSpec(name="t", partitions=1, cleanup="compact")])
        _put(log, *((b"%d" % (number % 10), b"%d" % number) for number in range(2_000)))
        steps = iter([log._store.write, log._store.write])
        with monkeypatch.context() as patched:
            patched.setattr(log._store, "write", lambda fill, sync: next(steps, _refuse)(fill, sync=sync))
            with pytest.raises(LogUnavailable):
                log.run_maintenance_once()
        assert len(_stored(log)) == 1_010
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=None) as log:
        assert log.run_maintenance_once() == 1_000
        assert [b"%d" % number for number in range(1_990, 2_000)] == [r.value for r in _stored(log)]


def _refuse(_: object, *, sync: bool) -> None:
    raise LogUnavailable(f"sync={sync}")


def test_it_runs_in_the_background(tmp_path: Path) -> None:
    clock = SystemClock()
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=0.001) as log:
        log.create_topics([TopicSpec(name="t", partitions=1, cleanup="compact")])
        _put(log, *((b"k", b"%d" % number) for number in range(1_000)))
        deadline_s = clock.monotonic_s() + 60
        while len(_stored(log)) > 1:
            assert clock.monotonic_s() < deadline_s


def test_a_large_expired_range_gives_its_space_back(tmp_path: Path, clock: FakeClock) -> None:
    directory = tmp_path / "log"
    with EmbeddedLog.open(directory, clock, maintenance_interval_s=None) as log:
        log.create_topics([TopicSpec(name="t", partitions=1, retention_ms=1_000)])
        chance_like = bytes(range(256))
        producer = log.producer()
        for number in range(100_000):
            producer.produce("t", key=b"k", value=chance_like[number % 200 :] + b"%d" % number, partition=0)
            if number % 10_000 == 9_999:
                assert producer.flush(60) == 0
        for family in log._store._handles.families.values() if log._store._handles else ():
            family.flush()
        full = _table_bytes(directory)
        assert full > 1_000_000
        clock.advance(1_001)
        assert log.run_maintenance_once() == 100_000
        assert _table_bytes(directory) < full / 10


def _table_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "rocksdb").glob("*.sst"))
