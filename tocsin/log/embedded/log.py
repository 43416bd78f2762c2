"""The embedded EventLog: one process, one directory, durable with each commit."""

import struct
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocksdict import Cache, WriteBufferManager

from tocsin.clock import Clock
from tocsin.log.embedded.committer import Committer
from tocsin.log.embedded.consumers import EmbeddedGroupConsumer, EmbeddedReader
from tocsin.log.embedded.directory import Directory
from tocsin.log.embedded.framing import (
    FLOOR_ROWS,
    GROUP_ROWS,
    TOPIC_ROWS,
    decode,
    offset_of,
    read_floor_row,
    read_group_row,
    read_topic_row,
    record_key,
    timestamp_of,
    topic_row,
)
from tocsin.log.embedded.groups import Groups
from tocsin.log.embedded.maintenance import Maintenance
from tocsin.log.embedded.partition import TAIL_BYTES_PARTITION_MIN, TAIL_BYTES_TOTAL, Partition
from tocsin.log.embedded.producers import EmbeddedProducer, EmbeddedTransactionalProducer
from tocsin.log.embedded.signals import Signals
from tocsin.log.embedded.store import Batch, Store
from tocsin.log.limits import OFFSET_MAX
from tocsin.log.port import (
    GroupConsumer,
    Isolation,
    LogCorrupt,
    Member,
    OffsetCommit,
    OffsetOutOfRange,
    Reader,
    Record,
    TopicMismatch,
    TopicPartition,
    TopicSpec,
    UnknownTopic,
)

GROUP_NAME_BYTES_MAX: Final = 255

MALFORMED: Final = (LogCorrupt, ValueError, LookupError, TypeError, struct.error)
"""What reading a row raises that is not as it was written. Checksums keep such rows away; this says so if they do not."""


class EmbeddedLog:
    """EventLog. Open it with EmbeddedLog.open(); close it, or leave it to a crash: both keep what was acknowledged."""

    def __init__(self, directory: Directory, store: Store, clock: Clock) -> None:
        self.clock = clock
        self.signals = Signals()
        self.groups = Groups()
        self.epochs: dict[str, int] = {}
        """Per transactional id: the newest. In memory, because the directory's lock proves that a producer of an earlier
        process cannot write any more. Changed by the committer's leader alone."""
        self._directory = directory
        self._store = store
        self._state = threading.Lock()
        self._topics: dict[str, list[Partition]] = {}
        self._by_id: dict[int, list[Partition]] = {}
        self._tail_bytes_max = TAIL_BYTES_TOTAL
        self._load()
        store.is_open = True
        self.committer = Committer(store, clock, self.groups, self._publish, self._recover)
        self._maintenance = Maintenance(store, clock, self._state, self._all_partitions)

    @classmethod
    def open(
        cls,
        directory: Path,
        clock: Clock,
        *,
        cache: Cache | None = None,
        write_buffers: WriteBufferManager | None = None,
        maintenance_interval_s: float | None = 30.0,
    ) -> Self:
        """Open the log in `directory`, or create it there.

        `cache` and `write_buffers` may be shared with other RocksDB instances of the process; without them the log has
        64 MiB of each for itself. Without an interval nothing is compacted or expired but by run_maintenance_once().
        Raises LogLocked, LogCorrupt or LogUnavailable, which name the directory and say what to do.
        """
        held = Directory.acquire(directory)
        try:
            store = Store(held, cache=cache, write_buffers=write_buffers)
            try:
                log = cls(held, store, clock)
            except BaseException:
                store.close()
                raise
        except BaseException:
            held.release()
            raise
        if maintenance_interval_s is not None:
            log._maintenance.start(maintenance_interval_s)
        return log

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether a log was ever created there, whatever became of it. Opens nothing."""
        return Directory.holds_log(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- EventLog: topics -----------------------------------------------------------------------------------------------

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        with self._state:
            missing: dict[str, TopicSpec] = {}
            for spec in specs:
                have = missing.get(spec.name) or self._spec(spec.name)
                if have is not None and have != spec:
                    raise TopicMismatch(f"topic {spec.name} exists as {have}, not as {spec}")
                if not 1 <= spec.partitions <= 0xFFFF:
                    raise TopicMismatch(
                        f"topic {spec.name}: partitions must be 1 to 65535, not {spec.partitions}"
                    )
                if have is None:
                    missing[spec.name] = spec
            if missing:
                first_id = max(self._by_id, default=0) + 1
                numbered = dict(enumerate(missing.values(), start=first_id))
                self._store.write(lambda batch: _put_topics(batch, numbered), sync=True)
                for topic_id, spec in numbered.items():
                    self._add_topic(spec, topic_id)

    @property
    def damage(self) -> LogCorrupt | None:
        """What was found damaged, if anything was. Nothing is written any more, and whoever owns the log should stop."""
        return self._store.damage

    def topics(self) -> dict[str, int]:
        with self._state:
            return {name: len(partitions) for name, partitions in self._topics.items()}

    def partitions(self, topic: str) -> int:
        try:
            return len(self._topics[topic])
        except KeyError:
            raise UnknownTopic(f"topic {topic} does not exist: create it first") from None

    def begin_offset(self, partition: TopicPartition) -> int:
        return self.partition(partition).begin

    def end_offset(self, partition: TopicPartition, isolation: Isolation) -> int:  # noqa: ARG002 - they are the same
        return self.partition(partition).end

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        return {where: self.end_offset(where, isolation) for where in partitions}

    def members(self, group: str) -> tuple[Member, ...]:
        return tuple(
            Member(client_id=client_id, partitions=self._partitions_of(topic))
            for client_id, topic in self.groups.members(group)
        )

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        where = self.partition(partition)
        with self._state:
            begin, end = where.begin, where.end
        return self._maintenance.first_at_or_after(where, timestamp_ms, begin, end)

    # --- EventLog: clients ----------------------------------------------------------------------------------------------

    def producer(self) -> EmbeddedProducer:
        return EmbeddedProducer(self)

    def transactional_producer(self, transactional_id: str) -> EmbeddedTransactionalProducer:
        return EmbeddedTransactionalProducer(self, transactional_id)

    def reader(self, isolation: Isolation = "committed") -> EmbeddedReader:  # noqa: ARG002 - all is committed
        return EmbeddedReader(self)

    def group_consumer(self, group: str, *, client_id: str) -> EmbeddedGroupConsumer:
        if not 1 <= len(group.encode()) <= GROUP_NAME_BYTES_MAX:
            raise ValueError(
                f"a group's name has 1 to {GROUP_NAME_BYTES_MAX} bytes, not {len(group.encode())}"
            )
        return EmbeddedGroupConsumer(self, group, client_id)

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        if not self.signals.was_woken():
            self.sleep(consumers, self.clock.monotonic_s() + timeout_s)
        self.signals.was_woken()

    def wake(self) -> None:
        self.signals.wake()

    def close(self) -> None:
        """Write what was handed over, stop the threads, release the directory. Safe twice."""
        self._maintenance.stop()
        self.committer.close()
        self.signals.wake()
        self._store.close()
        self._directory.release()

    # --- more than the port ---------------------------------------------------------------------------------------------

    def run_maintenance_once(self) -> int:
        """Compact and expire all that the clock allows now. Returns how many records were deleted."""
        return self._maintenance.run_once()

    # --- for the objects of this log ------------------------------------------------------------------------------------

    def partition(self, where: TopicPartition) -> Partition:
        """Raises UnknownTopic."""
        count = self.partitions(where.topic)
        if not 0 <= where.partition < count:
            raise UnknownTopic(
                f"topic {where.topic} has the partitions 0 to {count - 1}, not {where.partition}"
            )
        return self._topics[where.topic][where.partition]

    def fetch(self, where: TopicPartition, offset: int, max_records: int) -> tuple[list[Record], int]:
        """See cursors.Fetch. From memory if the record is among the newest, else from RocksDB."""
        partition = self.partition(where)
        with self._state:
            end = partition.end
            self._check_range(partition, offset)
            first = offset - partition.tail_start
            if first >= 0:
                records = partition.tail[first : first + max_records]
                return records, offset + len(records)
        rows = self._store.read(
            "records",
            record_key(partition.topic_id, partition.number, offset),
            record_key(partition.topic_id, partition.number, end),
            max_records,
        )
        with self._state:
            self._check_range(partition, offset)  # retention may have passed by meanwhile
        topic, number = where
        try:
            records = [decode(topic, number, offset_of(key), value) for key, value in rows]
        except MALFORMED as error:
            raise self._store.met(error) from error
        # Nothing at all below the end: compaction has emptied the rest.
        after = records[-1].offset + 1 if records else end
        if partition.spec.cleanup == "delete" and after - offset != len(records):
            missing = after - offset - len(records)
            raise self._store.met(
                LookupError(
                    f"{missing} of the records {offset} to {after - 1} of {topic}[{number}] are missing"
                )
            )
        return records, after

    def sleep(self, consumers: Sequence[Reader | GroupConsumer], deadline_s: float) -> bool:
        """Return when one of the consumers may have something, or was woken; False when the time is up."""
        mine = [_own(consumer) for consumer in consumers]
        partitions = {where for consumer in mine for where in consumer.assigned()}
        with self.signals.waiting(partitions, mine) as waiter:
            if any(consumer.is_ready() for consumer in mine):
                return True
            left_s = deadline_s - self.clock.monotonic_s()
            return left_s > 0 and waiter.event.wait(left_s)

    def _check_range(self, partition: Partition, offset: int) -> None:
        if not partition.begin <= offset <= partition.end:
            raise OffsetOutOfRange(
                f"{partition.topic}[{partition.number}] holds the offsets {partition.begin} to {partition.end}, "
                f"not {offset}: seek to one of them"
            )

    def _partitions_of(self, topic: str | None) -> frozenset[TopicPartition]:
        return frozenset(partition.where for partition in self._topics.get(topic or "", ()))

    # --- what is in memory ----------------------------------------------------------------------------------------------

    def _spec(self, topic: str) -> TopicSpec | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions[0].spec

    def _all_partitions(self) -> list[Partition]:
        with self._state:
            return [partition for partitions in self._by_id.values() for partition in partitions]

    def _load(self) -> None:
        try:
            for _, value in self._store.prefix(TOPIC_ROWS):
                self._add_topic(*read_topic_row(value))
            self._load_partitions()
            self.groups.reload(self._stored_offsets)
        except MALFORMED as error:
            raise self._store.met(error) from error

    def _load_partitions(self) -> None:
        floors = {key: read_floor_row(value) for key, value in self._store.prefix(FLOOR_ROWS)}
        for partition in (p for partitions in self._by_id.values() for p in partitions):
            first = record_key(partition.topic_id, partition.number, 0)
            begin, end, last_ms = floors.get(FLOOR_ROWS + first[:4], (0, 0, 0))
            last = self._store.last(
                "records", first, record_key(partition.topic_id, partition.number, OFFSET_MAX)
            )
            if last is not None and offset_of(last[0]) >= end:
                end, last_ms = offset_of(last[0]) + 1, timestamp_of(last[1])
            partition.reset(begin, end, last_ms)

    def _stored_offsets(self) -> dict[tuple[str, Partition], OffsetCommit]:
        offsets: dict[tuple[str, Partition], OffsetCommit] = {}
        for key, value in self._store.prefix(GROUP_ROWS):
            group, topic_id, number, commit = read_group_row(key, value)
            offsets[group, self._by_id[topic_id][number]] = commit
        return offsets

    def _add_topic(self, spec: TopicSpec, topic_id: int) -> None:
        partitions = [Partition(spec, topic_id, number) for number in range(spec.partitions)]
        self._topics[spec.name] = self._by_id[topic_id] = partitions
        count = sum(map(len, self._by_id.values()))
        self._tail_bytes_max = max(TAIL_BYTES_TOTAL // count, TAIL_BYTES_PARTITION_MIN)

    def _publish(self, fresh: dict[Partition, list[Record]]) -> None:
        with self._state:
            for partition, records in fresh.items():
                partition.append(records, self._tail_bytes_max)
        self.signals.touched([partition.where for partition in fresh])

    def _recover(self) -> None:
        """After a failed write: read again what is true, which may or may not hold what that write carried."""
        self._store.reopen()
        with self._state:
            self._load_partitions()
        self.groups.reload(self._stored_offsets)
        self.signals.wake()


def _put_topics(batch: Batch, numbered: dict[int, TopicSpec]) -> None:
    for topic_id, spec in numbered.items():
        batch.put("default", *topic_row(spec, topic_id))


def _own(consumer: Reader | GroupConsumer) -> EmbeddedReader | EmbeddedGroupConsumer:
    if not isinstance(consumer, EmbeddedReader | EmbeddedGroupConsumer):
        raise TypeError(f"this log cannot wait for a {type(consumer).__name__}: pass its own consumers")
    return consumer
