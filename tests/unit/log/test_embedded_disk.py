"""A disk that is full, and one that fails: what is known afterwards, and how it goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.clock import FakeClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.embedded.directory import Directory
from tocsin.log.port import (
    Delivery,
    LogFull,
    LogUnavailable,
    OffsetCommit,
    OutcomeUnknown,
    ProducerFenced,
    Record,
    TopicPartition,
    TopicSpec,
    TransactionAborted,
    TransactionalProducer,
)

HERE = TopicPartition("t", 0)


class Disk:
    """Says how much room is left."""

    def __init__(self) -> None:
        self.free_bytes = 1 << 40


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(Directory, "free_bytes", lambda _: disk.free_bytes)
    return disk


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "log"


def _open(directory: Path) -> EmbeddedLog:
    log = EmbeddedLog.open(directory, FakeClock(), maintenance_interval_s=None)
    log.create_topics([TopicSpec(name="t", partitions=1)])
    return log


def _produce(log: EmbeddedLog, value: bytes) -> Delivery:
    deliveries: list[Delivery] = []
    producer = log.producer()
    producer.produce("t", key=b"k", value=value, on_delivery=deliveries.append)
    assert producer.flush(30) == 0
    return deliveries[0]


def _begun(log: EmbeddedLog, value: bytes) -> TransactionalProducer:
    producer = log.transactional_producer("x")
    producer.init()
    producer.begin()
    producer.produce("t", partition=0, key=b"k", value=value)
    return producer


def _values(log: EmbeddedLog) -> list[bytes | None]:
    reader = log.reader()
    reader.assign({HERE: 0})
    records: list[Record] = []
    while page := reader.poll(1_000, 0):
        records += page
    return [record.value for record in records]


# --- full ---------------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_records_and_keeps_nothing_of_them(disk: Disk, directory: Path) -> None:
    with _open(directory) as log:
        assert _produce(log, b"before").error is None
        disk.free_bytes = 100 << 20
        refused = _produce(log, b"refused")
        assert isinstance(refused.error, LogFull)
        assert f"{directory} has 100 MiB left" in str(refused.error)
        assert (refused.offset, refused.timestamp_ms) == (-1, -1)
        assert _values(log) == [b"before"]
        disk.free_bytes = 1 << 40
        assert _produce(log, b"after").error is None
    with _open(directory) as log:
        assert _values(log) == [b"before", b"after"]


def test_a_full_disk_aborts_a_transaction_definitely(disk: Disk, directory: Path) -> None:
    with _open(directory) as log:
        producer = _begun(log, b"refused")
        disk.free_bytes = 0
        with pytest.raises(TransactionAborted, match="free some space") as refusal:
            producer.commit()
        assert isinstance(refusal.value.__cause__, LogFull)
        disk.free_bytes = 1 << 40
        producer.begin()
        producer.produce("t", partition=0, key=b"k", value=b"after")
        producer.commit()
        assert _values(log) == [b"after"]


def test_a_full_disk_refuses_offsets_and_topics(disk: Disk, directory: Path) -> None:
    def ignore(_: object) -> None: ...

    with _open(directory) as log:
        member = log.group_consumer("g", client_id="m")
        member.subscribe("t", on_assign=ignore, on_revoke=ignore, on_lost=ignore)
        member.poll(1, 0)
        disk.free_bytes = 0
        with pytest.raises(LogFull):
            member.commit_sync({HERE: OffsetCommit(0)}, 30)
        with pytest.raises(LogFull):
            log.create_topics([TopicSpec(name="u", partitions=1)])
        assert log.topics() == {"t": 1}
        assert {HERE: None} == member.committed([HERE], 30)


def test_a_full_disk_can_still_be_read_and_fenced(disk: Disk, directory: Path) -> None:
    with _open(directory) as log:
        assert _produce(log, b"before").error is None
        old = _begun(log, b"old")
        disk.free_bytes = 0
        log.transactional_producer("x").init()
        with pytest.raises(ProducerFenced):
            old.commit()
        assert _values(log) == [b"before"]


def test_a_batch_needs_twice_its_size(disk: Disk, directory: Path) -> None:
    with _open(directory) as log:
        disk.free_bytes = (128 << 20) + 1_000_000
        assert isinstance(_produce(log, b"x" * 600_000).error, LogFull)
        assert _produce(log, b"x" * 400_000).error is None


# --- failing ------------------------------------------------------------------------------------------------------------


def test_after_a_failed_write_the_outcome_is_unknown_and_the_next_write_reads_what_is_true(
    disk: Disk, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(directory) as log:
        assert _produce(log, b"before").error is None
        producer = _begun(log, b"perhaps")
        with monkeypatch.context() as patched:
            _let_syncs_fail(log, patched)
            with pytest.raises(OutcomeUnknown, match="may or may not stand"):
                producer.commit()
        assert _values(log) == [b"before"]
        with pytest.raises(ProducerFenced):
            producer.begin()
        assert _produce(log, b"after").error is None
        # It was written before the sync failed, so it stands.
        assert _values(log) == [b"before", b"perhaps", b"after"]
    with _open(directory) as log:
        assert _values(log) == [b"before", b"perhaps", b"after"]


def test_a_plain_record_of_a_failed_write_is_reported_as_perhaps_lost(
    disk: Disk, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(directory) as log:
        with monkeypatch.context() as patched:
            _let_syncs_fail(log, patched)
            refused = _produce(log, b"perhaps")
        assert isinstance(refused.error, LogUnavailable)
        assert not isinstance(refused.error, LogFull)
        assert "the disk fails" in str(refused.error)


def test_while_the_log_cannot_be_opened_again_nothing_is_written_and_that_is_definite(
    disk: Disk, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(directory) as log:
        assert _produce(log, b"before").error is None
        with monkeypatch.context() as patched:
            _let_syncs_fail(log, patched)
            assert _produce(log, b"perhaps").error is not None
        disk.free_bytes = 0
        producer = _begun(log, b"refused")
        with pytest.raises(TransactionAborted):
            producer.commit()
        disk.free_bytes = 1 << 40
        assert _produce(log, b"after").error is None
        assert _values(log) == [b"before", b"perhaps", b"after"]


def _let_syncs_fail(log: EmbeddedLog, patched: pytest.MonkeyPatch) -> None:
    """What was written reaches the file; that it is durable is never confirmed."""

    class Failing:
        def __init__(self, database: object) -> None:
            self.database = database

        def flush_wal(self, *, sync: bool) -> None:
            raise Exception("IO error: the disk fails")

        def __getattr__(self, name: str) -> object:
            return getattr(self.database, name)

    handles = log._store._handles
    assert handles is not None
    patched.setattr(handles, "database", Failing(handles.database))


# What a real failure does to RocksDB, without a file system of its own: no file of the child may grow beyond a limit.
CHILD = """
import resource, sys
from pathlib import Path
from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import LogError, OutcomeUnknown, TopicPartition, TopicSpec

log = EmbeddedLog.open(Path(sys.argv[1]), SystemClock(), maintenance_interval_s=None)
log.create_topics([TopicSpec(name="t", partitions=1)])

def commit(number):
    producer = log.transactional_producer("x")
    producer.init()
    producer.begin()
    for half in (b"a", b"b"):
        producer.produce("t", partition=0, key=half, value=b"%d" % number + b" " * 3000)
    producer.commit()

def numbers():
    reader = log.reader()
    reader.assign({TopicPartition("t", 0): 0})
    found = []
    while page := reader.poll(1000, 0):
        found += [(record.key, int(record.value)) for record in page]
    return found

def both(numbers):
    return [(half, number) for number in numbers for half in (b"a", b"b")]

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
acknowledged = []
for number in range(100):
    try:
        commit(number)
        acknowledged.append(number)
    except OutcomeUnknown:
        break
assert 0 < len(acknowledged) < 100, acknowledged
failed = len(acknowledged)
assert numbers() == both(acknowledged), "it can be read"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
commit(1000)
assert numbers() in (both([*acknowledged, 1000]), both([*acknowledged, failed, 1000])), numbers()
log.close()
log = EmbeddedLog.open(Path(sys.argv[1]), SystemClock(), maintenance_interval_s=None)
assert numbers() in (both([*acknowledged, 1000]), both([*acknowledged, failed, 1000])), numbers()
log.close()
print("went on")
"""


def test_a_write_that_the_system_refuses_corrupts_nothing(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(directory)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "went on\n", done.stderr
