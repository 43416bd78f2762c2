"""The EventLog port: all that Tocsin asks of a log, cut so that Kafka fits it as it is.

Three adapters implement it: in-memory (tests and simulation), embedded (RocksDB, one process) and Kafka.
One contract suite, tests/contract, holds them to the docstrings here. Vocabulary and behaviour are Kafka's:
topics of partitions, offsets that may have holes (transaction markers, aborted records, compaction),
transactions across topics that can carry consumer offsets, groups with generations, read_committed readers.

Threads: an EventLog may be used by many threads; every consumer, reader and producer by one thread at a time.
Callbacks (assignment, commit, delivery) run inside a call of the object that they belong to, on the caller's thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from tocsin.schemas.topics import Cleanup as Cleanup
from tocsin.schemas.topics import TopicSpec as TopicSpec

RECORD_BYTES_MAX: Final = 768 * 1024
"""The largest record (key + value + headers) that Tocsin writes: below Kafka's default of 1 MiB with room for framing."""

OFFSET_METADATA_BYTES_MAX: Final = 4_000
"""The largest metadata string of an offset commit. Kafka refuses 4,096 (measured)."""

Isolation = Literal["committed", "uncommitted"]
Headers = tuple[tuple[str, bytes], ...]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One record as read. `value` None is a tombstone. `timestamp_ms` is the log's own clock at the append."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class OffsetCommit(NamedTuple):
    """The next offset to read, and a string kept with it."""

    offset: int
    metadata: str = ""


class Delivery(NamedTuple):
    """The log's answer for one produced record. With an error, offset and timestamp_ms are -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: "LogError | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """Who a consumer is in its group at this moment; carried into a transaction to fence members that have left."""

    group: str
    member: str
    generation: int
    opaque: object = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a consumer group, as the group's coordinator shows it."""

    client_id: str
    """What the member was made with: see EventLog.group_consumer."""
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReceipt:
    """What a committed transaction appended: per partition the last record's offset and its log timestamp."""

    last: Mapping[TopicPartition, tuple[int, int]]


class LogError(Exception):
    """Something about the log went wrong. Subclasses say what to do next."""


class LogUnavailable(LogError, ConnectionError):
    """The log cannot be reached, is full or answered too late; nothing was decided. The same call may be made again."""


class LogFull(LogUnavailable, OSError):
    """No space is left where the log lives. Nothing of the refused write was kept. Free space, then go on."""


class LogLocked(LogError, RuntimeError):
    """Another process has this data directory open. One node owns one directory."""


class LogCorrupt(LogError, ValueError):
    """What is stored cannot be read as this version's format. Nothing was changed."""


class UnknownTopic(LogError, LookupError):
    """The topic or partition does not exist."""


class TopicMismatch(LogError, ValueError):
    """The topic exists with another number of partitions or another configuration."""


class RecordTooLarge(LogError, ValueError):
    """Key + value + headers exceed RECORD_BYTES_MAX."""


class TransactionAborted(LogError):
    """The transaction is definitely aborted: nothing of it is or will become visible. Rewind and go on with this producer."""


class ProducerFenced(LogError):
    """Another producer took this transactional id; nothing more can be written with this one. Take over again or stop."""


class OutcomeUnknown(LogError, TimeoutError):
    """The commit was sent and not answered: it may or may not stand. Make a new producer, init() it, and read what is true."""


class NotAMember(LogError):
    """The consumer is not, or no longer, in the group's current generation. After the next poll it may be."""


class OffsetOutOfRange(LogError, LookupError):
    """The asked offset lies before the first one kept, or beyond the end."""


AssignCallback = Callable[[Sequence[TopicPartition]], None]
CommitCallback = Callable[["LogError | None"], None]
DeliveryCallback = Callable[[Delivery], None]


class Producer(Protocol):
    """Idempotent, without transactions: every record is acknowledged once it is durable, in order per partition."""

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Hand one record to the log. Partition None: murmur2 of the key, as the Java client does it.

        Returns at once; `on_delivery` is called from a later poll() or flush(). Raises UnknownTopic or RecordTooLarge
        before anything is sent; LogUnavailable when the local queue is full (poll, then call again). ValueError for a
        record without a key where the adapter knows that the topic is compacted; TypeError for what is not bytes.
        """
        ...

    def poll(self) -> int:
        """Call the delivery callbacks that are ready, and return how many."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait until all handed records are acknowledged, calling their callbacks. Returns how many are not yet."""
        ...

    def close(self) -> None: ...


class TransactionalProducer(Protocol):
    """One open transaction at a time, atomic over topics, partitions and consumer offsets."""

    @property
    def transactional_id(self) -> str: ...

    def init(self) -> None:
        """Fence every earlier producer with this transactional id and abort what it left open. Call once, first."""
        ...

    def begin(self) -> None: ...

    def produce(
        self, topic: str, *, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Add one record to the open transaction. Raises as Producer.produce, or ProducerFenced."""
        ...

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        """Make the group's committed offsets part of the transaction. Raises NotAMember (abortable) if `group` is stale."""
        ...

    def commit(self) -> CommitReceipt:
        """Make all of the transaction durable, and visible all together: on return, or moments later (Kafka answers once
        the commit is decided, and writes the markers that make it visible to the partitions after that).

        Raises TransactionAborted (definite, also when the log is full: the cause is LogFull), ProducerFenced, or
        OutcomeUnknown.
        """
        ...

    def abort(self) -> None:
        """Drop the open transaction, if any. Raises LogUnavailable if the log cannot be told.

        Whoever was fenced has nothing to drop, and learns of it from begin(), produce() or commit().
        """
        ...

    def close(self) -> None:
        """As abort(), if the log can be told; what it does not learn it ends itself after a time-out."""
        ...


class Reader(Protocol):
    """Reads partitions that were assigned by hand, each from an explicit offset. In no group."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from now on; one that was read already and is named again is sought."""
        ...

    def add(self, partition: TopicPartition, offset: int) -> None: ...

    def remove(self, partition: TopicPartition) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def assigned(self) -> frozenset[TopicPartition]: ...

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Up to max_records records; waits at most timeout_s for the first, and not at all for the rest. May return
        early, with none, when a position has moved past what is not shown.

        Order holds within a partition. No partition with records is starved for ever by another.
        Isolation "committed" never shows a record of an open or aborted transaction, nor any record behind the
        first open one (the last stable offset). Raises OffsetOutOfRange.
        """
        ...

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be read. It is >= an end captured earlier once everything below that end which this
        reader may see was returned by poll (markers and aborted records at the end are stepped over by polling)."""
        ...

    def close(self) -> None: ...


class GroupConsumer(Protocol):
    """A member of a consumer group, subscribed to one topic, balanced cooperatively."""

    def subscribe(
        self,
        topic: str,
        *,
        on_assign: AssignCallback,
        on_revoke: AssignCallback,
        on_lost: AssignCallback,
    ) -> None:
        """Join the group. The callbacks run inside poll(), close(), and EventLog.wait() with this consumer.

        on_assign: newly owned partitions (reading starts at the committed offset, else at the first one kept, unless
        on_assign seeks). on_revoke: about to be given up; commits still work inside it. on_lost: already owned
        by somebody else, perhaps; commits fail. Partitions kept through a rebalance are not mentioned.
        """
        ...

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """As Reader.poll (isolation "committed"), and keeps the member alive.

        OffsetOutOfRange is for offsets that were sought: where the committed one is not kept any more, reading starts
        at the first one kept.
        """
        ...

    def assigned(self) -> frozenset[TopicPartition]: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def position(self, partition: TopicPartition) -> int: ...

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetCommit | None]:
        """The group's committed offsets; partitions of topics that are not subscribed may be asked, too.

        Raises LogUnavailable if the answer does not come in time, or an open transaction carries one of them.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> None:
        """Send ONE offset-commit request for all of `offsets` and return; on_done is called from a later poll().

        on_done(None) only if every partition of the request was accepted. Partitions of other topics may be included
        (fenced by the member's generation all the same). An accepted commit restarts the member's session.
        Errors: NotAMember, LogUnavailable. Raises ValueError for metadata above OFFSET_METADATA_BYTES_MAX.
        """
        ...

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetCommit], timeout_s: float) -> None:
        """As commit, waiting for the answer. Raises the error."""
        ...

    def metadata(self) -> GroupMetadata:
        """Raises NotAMember before the first assignment."""
        ...

    def close(self) -> None:
        """Leave the group, calling on_revoke for what is held."""
        ...


class EventLog(Protocol):
    """A log of topics."""

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Every named topic exists afterwards, as specified. Raises TopicMismatch for one that exists otherwise."""
        ...

    def topics(self) -> dict[str, int]:
        """All topics with their numbers of partitions."""
        ...

    def partitions(self, topic: str) -> int:
        """Raises UnknownTopic."""
        ...

    def begin_offset(self, partition: TopicPartition) -> int:
        """The first offset that is still kept (where a reader may start)."""
        ...

    def end_offset(self, partition: TopicPartition, isolation: Isolation) -> int:
        """One past the last record. "uncommitted": the true end, records of open transactions and markers included;
        "committed": the last stable offset."""
        ...

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """end_offset() of many, for the price of one: captured together, by one request for each node of the log."""
        ...

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of a consumer group now; () for a group that has none, or does not exist.

        While the group is being balanced, members may be shown without partitions. Raises LogUnavailable.
        """
        ...

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """The first offset whose log timestamp is >= timestamp_ms, else the true end."""
        ...

    def producer(self) -> Producer: ...

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer: ...

    def reader(self, isolation: Isolation = "committed") -> Reader: ...

    def group_consumer(self, group: str, *, client_id: str) -> GroupConsumer: ...

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        """Return when one of the consumers may have something to poll, when wake() is called, or after timeout_s.

        The consumers must be this thread's. Assignment and commit callbacks of group consumers may run in here.

        A wake() since this thread's last wait() counts, so one that comes just before is not lost.
        """
        ...

    def wake(self) -> None:
        """End every wait() that is going on, from any thread."""
        ...

    def close(self) -> None: ...
