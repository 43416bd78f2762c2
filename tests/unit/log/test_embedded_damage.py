"""Damage to what is stored: every read gives all that there is, or raises LogCorrupt. Never less in silence."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tocsin.clock import FakeClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.embedded.framing import record_key
from tocsin.log.port import (
    Delivery,
    LogCorrupt,
    OffsetCommit,
    Reader,
    Record,
    TopicPartition,
    TopicSpec,
    TransactionAborted,
)

SPECS = [
    TopicSpec(name="due", partitions=2),
    TopicSpec(name="jobs", partitions=2, cleanup="compact"),
]
RECORDS = 400
"""Per topic: some fifteen blocks of 16 KiB."""
INSIDE_DUE_1 = 0.43
"""As a share of the table of the records: far from where the partition due[1] begins and ends."""
AT = [share / 100 for share in range(1, 100, 4)]


def _open(directory: Path) -> EmbeddedLog:
    return EmbeddedLog.open(directory, FakeClock(), maintenance_interval_s=None)


def _value(number: int) -> bytes:
    """Content that does not compress, and the same in each run."""
    return b"".join((number * 7919 + at * at * 104729).to_bytes(4, "big") for at in range(100))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log after clean stops: all of it in one table per family, nothing in a write-ahead log."""
    directory = tmp_path_factory.mktemp("sound") / "log"
    with _open(directory) as log:
        log.create_topics(SPECS)
        producer = log.producer()
        for number in range(RECORDS):
            for topic in ("due", "jobs"):
                producer.produce(
                    topic, key=b"%d" % (number % 300), value=_value(number), partition=number % 2
                )
        assert producer.flush(30) == 0
        member = log.group_consumer("workers", client_id="w")
        member.subscribe("due", on_assign=_ignore, on_revoke=_ignore, on_lost=_ignore)
        member.poll(1, 0)
        member.commit_sync({TopicPartition("due", 0): OffsetCommit(17, "seventeen")}, 30)
        log.run_maintenance_once()
    with _open(directory) as log, log._store._use() as handles:
        for family in handles.families.values():
            family.compact_range(None, None)
    return directory


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(sound, tmp_path / "log")


def _ignore(_: object) -> None: ...


def _tables(directory: Path) -> list[Path]:
    """The largest first: that of the records."""
    return sorted((directory / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size, reverse=True)


def _flip(file: Path, at: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 0x10
    file.write_bytes(content)


def _records(log: EmbeddedLog, where: TopicPartition) -> list[Record]:
    reader = log.reader()
    reader.assign({where: log.begin_offset(where)})
    end = log.end_offset(where, "committed")
    found: list[Record] = []
    while reader.position(where) < end:
        found += reader.poll(50, 0)
    return found


def _partitions(log: EmbeddedLog) -> Iterator[TopicPartition]:
    for topic, count in sorted(log.topics().items()):
        for number in range(count):
            yield TopicPartition(topic, number)


def _everything(directory: Path) -> dict[str, Any]:
    """All that the port tells of a log."""
    with _open(directory) as log:
        member = log.group_consumer("workers", client_id="w")
        return {
            "topics": log.topics(),
            "committed": member.committed([TopicPartition("due", 0)], 1),
            **{f"records of {where}": _records(log, where) for where in _partitions(log)},
            **{f"ends of {where}": log.end_offset(where, "committed") for where in _partitions(log)},
        }


def _everything_or_damage(directory: Path) -> dict[str, Any] | LogCorrupt:
    try:
        return _everything(directory)
    except LogCorrupt as error:
        told = error
    assert f"in {directory} is " in str(told)
    assert "from a backup" in str(told)
    return told


@pytest.fixture(scope="module")
def all_there_is(sound: Path) -> dict[str, Any]:
    found = _everything(sound)
    assert len(found["records of TopicPartition(topic='due', partition=0)"]) == RECORDS // 2
    return found


@pytest.mark.parametrize("table", [0, 1, 2])
def test_one_flipped_byte_anywhere_in_a_table_never_hides_a_record_a_topic_or_an_offset(
    sound: Path, all_there_is: dict[str, Any], tmp_path: Path, table: int
) -> None:
    assert len(_tables(sound)) == 3
    raised = 0
    for at in AT:
        directory = shutil.copytree(sound, tmp_path / f"{at}")
        file = _tables(directory)[table]
        _flip(file, at)
        found = _everything_or_damage(directory)
        if isinstance(found, LogCorrupt):
            raised += 1
        else:
            assert all_there_is == found, f"a flip at {at:.0%} of {file.name}"
        shutil.rmtree(directory)
    # The table of the records is all records; of the two small ones most is what nothing depends on (statistics).
    assert raised >= (len(AT) - 2 if table == 0 else 1)


def test_a_reader_that_meets_damage_says_which_file_and_stays_where_it_is(damaged: Path) -> None:
    file = _tables(damaged)[0]
    _flip(file, INSIDE_DUE_1)
    where = TopicPartition("due", 1)
    with _open(damaged) as log:
        reader = log.reader()
        reader.assign({where: 0})
        for _ in range(2):  # it is not forgotten with the first time
            with pytest.raises(LogCorrupt, match=rf"{damaged} is damaged.*{file.name}"):
                _drain(reader)
        assert reader.position(where) < log.end_offset(where, "committed")


def test_what_comes_before_the_damage_and_after_it_can_still_be_read(damaged: Path) -> None:
    _flip(_tables(damaged)[0], INSIDE_DUE_1)
    with _open(damaged) as log:
        with pytest.raises(LogCorrupt):
            _records(log, TopicPartition("due", 1))
        assert len(_records(log, TopicPartition("due", 0))) == RECORDS // 2
        assert log.damage is not None


def test_a_reader_of_many_partitions_loses_nothing_of_the_others_to_the_damage_of_one(damaged: Path) -> None:
    _flip(_tables(damaged)[0], INSIDE_DUE_1)
    with _open(damaged) as log:
        reader = log.reader()
        reader.assign(dict.fromkeys(_partitions(log), 0))
        found: list[Record] = []
        raised = 0
        for _ in range(60):
            try:
                found += reader.poll(70, 0)
            except LogCorrupt:
                raised += 1
        assert raised
        for where in set(_partitions(log)) - {TopicPartition("due", 1)}:
            assert _records(log, where) == [r for r in found if (r.topic, r.partition) == where]
        assert reader.position(TopicPartition("due", 1)) < 200


def test_a_hole_where_none_can_be_is_damage(damaged: Path) -> None:
    """Only compaction leaves holes. This one is as it would be if a table was lost and RocksDB did not know."""
    with _open(damaged) as log:
        log._store.write(lambda batch: batch.delete("records", record_key(1, 1, 77)), sync=True)
    with (
        _open(damaged) as log,
        pytest.raises(LogCorrupt, match=r"1 of the records .* of due\[1\] are missing"),
    ):
        _records(log, TopicPartition("due", 1))


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("records", record_key(1, 1, 77), b""),
        ("records", record_key(1, 1, 77), b"\xff" * 40),
        ("records", record_key(1, 1, 77), bytes([0x17]) + b"\xff" * 20),
        ("default", b"tdue", b"{}"),
        ("default", b"tdue", b"\xff"),
        ("default", b"f\0\1\0\0", b"short"),
        ("default", b"g\0\7workers\0\7\0\0", b"12345678"),
    ],
)
def test_a_row_that_is_not_as_it_was_written_is_damage(
    damaged: Path, family: str, key: bytes, value: bytes
) -> None:
    with _open(damaged) as log:
        log._store.write(lambda batch: batch.put(family, key, value), sync=True)
    assert isinstance(_everything_or_damage(damaged), LogCorrupt)


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("harm", [Path.unlink, _cut], ids=["removed", "cut"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT", "*.log"])
def test_a_file_that_is_gone_or_cut_is_damage(
    damaged: Path, pattern: str, harm: Callable[[Path], None], all_there_is: dict[str, Any]
) -> None:
    for file in (damaged / "rocksdb").glob(pattern):
        harm(file)
    found = _everything_or_damage(damaged)
    # After a clean stop the write-ahead log is empty: cut in half it is as it was.
    assert isinstance(found, LogCorrupt) or (pattern == "*.log" and harm is _cut and all_there_is == found)
    assert isinstance(_everything_or_damage(damaged), type(found)), "and it stays so with the next start"


def _drain(reader: Reader) -> None:
    while reader.poll(50, 0):
        pass


def _plain(log: EmbeddedLog) -> None:
    deliveries: list[Delivery] = []
    producer = log.producer()
    producer.produce("due", key=b"k", value=b"v", partition=0, on_delivery=deliveries.append)
    assert producer.flush(30) == 0
    if deliveries[0].error is not None:
        raise deliveries[0].error


def _transaction(log: EmbeddedLog) -> None:
    producer = log.transactional_producer("t")
    producer.init()
    producer.begin()
    producer.produce("due", partition=0, key=b"k", value=b"v")
    try:
        producer.commit()
    except TransactionAborted as error:
        raise error.__cause__ or error from None


@pytest.mark.parametrize(
    "write",
    [
        _plain,
        _transaction,
        lambda log: log.create_topics([TopicSpec(name="new", partitions=1)]),
        lambda log: log.run_maintenance_once(),
    ],
    ids=["plain", "transaction", "topic", "maintenance"],
)
def test_once_damage_was_met_nothing_is_written_any_more(
    damaged: Path, write: Callable[[EmbeddedLog], object]
) -> None:
    """What is acknowledged now would be lost with the backup that has to be restored."""
    _flip(_tables(damaged)[0], INSIDE_DUE_1)
    where = TopicPartition("due", 0)
    with _open(damaged) as log:
        _plain(log)
        with pytest.raises(LogCorrupt):
            _records(log, TopicPartition("due", 1))
        log.clock.advance(10**12)  # type: ignore[attr-defined]
        end, topics = log.end_offset(where, "committed"), log.topics()
        for _ in range(2):
            with pytest.raises(LogCorrupt, match="is damaged"):
                write(log)
        assert (end, topics) == (log.end_offset(where, "committed"), log.topics())
        assert 0 == log.begin_offset(where)
    with _open(damaged) as log:
        assert end == log.end_offset(where, "committed"), "what was acknowledged before is there"


def test_a_search_by_time_that_meets_damage_raises(sound: Path, tmp_path: Path) -> None:
    raised = 0
    for at in AT:
        directory = shutil.copytree(sound, tmp_path / f"{at}")
        _flip(_tables(directory)[0], at)
        try:
            with _open(directory) as log:
                for where in _partitions(log):
                    assert log.offset_for_time(where, 10**15) == log.end_offset(where, "committed")
                    assert 0 <= log.offset_for_time(where, 0) <= log.begin_offset(where) + 200
        except LogCorrupt:
            raised += 1
        shutil.rmtree(directory)
    assert raised


def test_maintenance_that_meets_damage_stops_and_changes_nothing(
    sound: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = 0
    for at in AT:
        directory = shutil.copytree(sound, tmp_path / f"{at}")
        _flip(_tables(directory)[1], at)  # the index: which record replaces which
        caplog.clear()
        try:
            log = _open(directory)
        except LogCorrupt:
            continue
        with log:
            producer = log.producer()
            for number in range(300):
                producer.produce("jobs", key=b"%d" % number, value=b"new", partition=number % 2)
            assert producer.flush(30) == 0
            deleted = -1
            with suppress(LogCorrupt):
                deleted = log.run_maintenance_once()
            if log.damage is None:
                assert deleted == 300, "each key had a record before"
            else:
                stopped += 1
                assert deleted == -1
                assert str(log.damage) in caplog.text
        shutil.rmtree(directory)
    assert stopped


def test_rocksdbs_own_compaction_does_not_drop_what_it_cannot_read(damaged: Path) -> None:
    """It stops all writes instead, and the log tells why."""
    _flip(_tables(damaged)[0], INSIDE_DUE_1)
    where = TopicPartition("due", 0)
    with _open(damaged) as log:
        _plain(log)
        with suppress(LogCorrupt):
            log._store.reclaim(b"\0" * 12, b"\xff" * 12)
        for _ in range(2):
            with pytest.raises(LogCorrupt, match=r"is damaged.*\.sst"):
                _plain(log)
        assert log.damage is not None
        assert log.end_offset(where, "committed") == RECORDS // 2 + 1
    for _ in range(2):
        with _open(damaged) as log:
            # Of the first write that was refused nobody knew whether it stands.
            assert len(_records(log, where)) in (RECORDS // 2 + 1, RECORDS // 2 + 2)
            with pytest.raises(LogCorrupt):
                _records(log, TopicPartition("due", 1))
