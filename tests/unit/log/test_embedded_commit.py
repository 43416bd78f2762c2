"""Group commit, and the newest records in memory."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.clock import FakeClock, SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.embedded.partition import RECORD_OVERHEAD_BYTES, Partition
from tocsin.log.embedded.store import Batch, Store
from tocsin.log.port import (
    Delivery,
    LogUnavailable,
    OutcomeUnknown,
    ProducerFenced,
    Record,
    TopicPartition,
    TopicSpec,
)

HERE = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with EmbeddedLog.open(tmp_path / "log", FakeClock(), maintenance_interval_s=None) as opened:
        opened.create_topics([TopicSpec(name="t", partitions=1)])
        yield opened


def _values(log: EmbeddedLog) -> list[bytes | None]:
    reader = log.reader()
    reader.assign({HERE: log.begin_offset(HERE)})
    records: list[Record] = []
    while page := reader.poll(100, 0):
        records += page
    return [record.value for record in records]


class Gate:
    """Holds the first write until it is opened, and counts them."""

    def __init__(self, log: EmbeddedLog, patched: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.writes = 0
        write = Store.write

        def guarded(store: Store, fill: Callable[[Batch], None], *, sync: bool) -> None:
            self.writes += 1
            self.entered.set()
            assert self.open.wait(60)
            write(store, fill, sync=sync)

        patched.setattr(Store, "write", guarded)


def _transaction(log: EmbeddedLog, name: str) -> Callable[[], None]:
    producer = log.transactional_producer(name)
    producer.init()

    def run() -> None:
        producer.begin()
        producer.produce("t", partition=0, key=b"k", value=name.encode())
        producer.commit()

    return run


def test_what_is_committed_while_a_write_goes_on_shares_the_next_one(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = [_transaction(log, f"writer-{number}") for number in range(6)]
    gate = Gate(log, monkeypatch)
    threads = [threading.Thread(target=run) for run in transactions]
    threads[0].start()
    assert gate.entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 60
    while len(log.committer._queue) < 5:
        assert clock.monotonic_s() < deadline_s
    gate.open.set()
    for thread in threads:
        thread.join()
    assert gate.writes == 2
    assert {b"writer-%d" % number for number in range(6)} == set(_values(log))


def test_nothing_is_visible_before_it_is_durable(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _transaction(log, "writer")
    gate = Gate(log, monkeypatch)
    thread = threading.Thread(target=run)
    thread.start()
    assert gate.entered.wait(60)
    assert log.end_offset(HERE, "uncommitted") == 0
    assert _values(log) == []
    gate.open.set()
    thread.join()
    assert _values(log) == [b"writer"]


def test_init_waits_for_a_commit_that_is_on_its_way(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _transaction(log, "x")
    gate = Gate(log, monkeypatch)
    committing = threading.Thread(target=run)
    committing.start()
    assert gate.entered.wait(60)
    ends: list[int] = []

    def take_over() -> None:
        log.transactional_producer("x").init()
        ends.append(log.end_offset(HERE, "uncommitted"))

    fencing = threading.Thread(target=take_over)
    fencing.start()
    gate.open.set()
    committing.join()
    fencing.join()
    assert ends == [1]  # whoever takes over sees all that its predecessor will ever have written
    with pytest.raises(ProducerFenced):
        run()


def test_one_refused_request_does_not_harm_those_beside_it(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, fenced, last = (_transaction(log, name) for name in ("first", "fenced", "last"))
    log.transactional_producer("fenced").init()
    errors: list[BaseException] = []

    def expect_fenced() -> None:
        try:
            fenced()
        except ProducerFenced as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for run in (first, expect_fenced, last)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    assert {b"first", b"last"} == set(_values(log))


def test_what_is_no_record_is_refused_before_it_can_harm_others(log: EmbeddedLog) -> None:
    producer = log.producer()
    for key, value in ((b"k", "text"), ("text", b"v"), (b"k", bytearray(b"v"))):
        with pytest.raises(TypeError, match="bytes"):
            producer.produce("t", key=key, value=value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes"):
        producer.produce("t", key=b"k", value=b"v", headers=(("name", "text"),))  # type: ignore[arg-type]
    producer.produce("t", key=b"k", value=b"v")
    assert producer.flush(30) == 0
    assert _values(log) == [b"v"]


def test_after_a_bug_in_the_middle_of_a_write_the_log_reads_what_is_true_and_goes_on(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _transaction(log, "x")

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", broken)
        with pytest.raises(ZeroDivisionError):
            run()
    _transaction(log, "y")()
    assert _values(log) == [b"x", b"y"]


def test_a_bug_while_leading_for_others_is_told_to_them(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    deliveries: list[Delivery] = []
    producer = log.producer()
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 60
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", broken)
        producer.produce("t", key=b"k", value=b"v", on_delivery=deliveries.append)
        while not deliveries or "an error of its own" not in caplog.text:
            assert clock.monotonic_s() < deadline_s
            producer.poll()
    assert isinstance(deliveries[0].error, LogUnavailable)
    producer.produce("t", key=b"k", value=b"w")
    assert producer.flush(30) == 0
    assert _values(log) == [b"v", b"w"]


def test_an_interrupted_wait_for_a_commit_leaves_an_unknown_outcome(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _transaction(log, "x")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run()
    with pytest.raises((ProducerFenced, OutcomeUnknown, RuntimeError)):
        run()
    _transaction(log, "y")()
    assert _values(log) == [b"y"]


# --- the newest records in memory -----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 7))
def test_a_reader_sees_everything_whatever_part_of_it_is_still_in_memory(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], page: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    with EmbeddedLog.open(directory, FakeClock(), maintenance_interval_s=None) as log:
        log.create_topics([TopicSpec(name="t", partitions=1)])
        log._tail_bytes_max = 20 * (RECORD_OVERHEAD_BYTES + 4)
        written: list[bytes] = []
        producer = log.producer()
        for count in batches:
            for _ in range(count):
                written.append(b"%03d" % len(written))
                producer.produce("t", key=b"k", value=written[-1])
            assert producer.flush(30) == 0
        for start in {0, len(written) // 2, len(written) - 1}:
            reader = log.reader()
            reader.assign({HERE: start})
            found: list[bytes | None] = []
            while records := reader.poll(page, 0):
                assert len(records) <= page
                found += [record.value for record in records]
            assert written[start:] == found


def test_the_memory_for_the_newest_records_is_bounded() -> None:
    partition = Partition(TopicSpec(name="t", partitions=1), 1, 0)
    bytes_max = 100 * (RECORD_OVERHEAD_BYTES + 10)
    for number in range(5_000):
        partition.append([Record("t", 0, number, 0, b"k", b"123456789")], bytes_max)
        assert len(partition.tail) <= 100
        assert partition.end - len(partition.tail) == partition.tail_start
    assert len(partition.tail) >= 50


def test_the_logs_time_never_runs_backwards(tmp_path: Path) -> None:
    clock = FakeClock()
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=None) as log:
        log.create_topics([TopicSpec(name="t", partitions=1)])
        times: list[int] = []
        producer = log.producer()
        for step in (0, 1_000, -3_600_000, 10):
            clock.step_wall(step)
            producer.produce("t", key=b"k", value=b"v", on_delivery=lambda d: times.append(d.timestamp_ms))
            assert producer.flush(30) == 0
    assert times == sorted(times)
    with EmbeddedLog.open(tmp_path / "log", clock, maintenance_interval_s=None) as log:
        producer = log.producer()
        producer.produce("t", key=b"k", value=b"v", on_delivery=lambda d: times.append(d.timestamp_ms))
        assert producer.flush(30) == 0
    assert [times[1]] * 4 == times[1:]
