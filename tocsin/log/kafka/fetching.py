"""Reads partitions through one consumer of librdkafka: where each stands, what was read ahead, who is out of range.

Two things are done otherwise than an application of librdkafka would do them:

* The position is kept here. librdkafka's own counts the records that it has delivered; ours also steps over the markers
  and aborted records at the end of a partition, which only PARTITION_EOF tells.
* Seek, pause and resume are an incremental unassign and assign, put off until the next read. So they never fail for the
  state that a partition is in (seek() right after assign() does), several of them cost one, and what librdkafka has
  fetched ahead of a paused partition is given back. The first records come after 15-60 ms, as with seek() (measured).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.errors import error_of, is_out_of_range, to_log_error
from tocsin.log.port import Headers, LogError, OffsetOutOfRange, Record, TopicPartition

if TYPE_CHECKING:
    Message = ck.Message[bytes, bytes]

SLICE_S: Final = 0.005
"""How long one look for records blocks. Between two of them wake-ups, other consumers and rebalances are looked for:
that is the latency that it adds; 200 slices a second cost under 1 % of a core (measured)."""

POLL_SLICE_S: Final = 0.1
"""The same where nothing else is waited for. Ctrl+C is served in between."""

UNRESOLVED: Final = -1
"""The position of a partition whose offset has yet to be looked up."""

_EOF: Final = codes.PARTITION_EOF

_HARMLESS: Final = frozenset(
    {
        codes.MAX_POLL_EXCEEDED,  # the loss of the partitions follows
        codes.TRANSPORT,
        codes.ALL_BROKERS_DOWN,
        codes.TIMED_OUT,
        codes.RESOLVE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""What librdkafka tells and mends by itself; a request that cannot wait for it has its own limit."""


class Standing:
    """Where one partition stands."""

    __slots__ = ("failed", "live", "paused", "position", "sought", "where")

    def __init__(self, where: TopicPartition, position: int) -> None:
        self.where = where
        self.position = position
        self.paused = False
        self.live = False
        """Whether librdkafka reads on from `position`."""
        self.sought = position != UNRESOLVED
        """Whether somebody asked for this very offset (else it was looked up)."""
        self.failed: LogError | None = None


class Fetching:
    """The partitions of one consumer. Used by one thread."""

    def __init__(
        self,
        consumer: ck.Consumer,
        clock: Clock,
        troubles: Troubles,
        *,
        serve: Callable[[], bool] = lambda: False,
        out_of_range: Callable[[Standing], bool] = lambda _: False,
        slice_s: float = POLL_SLICE_S,
    ) -> None:
        """`slice_s`: how long a poll may sleep at a stretch. `serve` is called after every look, for what callbacks have
        left; True: something happened. `out_of_range` may find another offset for a partition; True: it did.
        """
        self._consumer = consumer
        self._clock = clock
        self._troubles = troubles
        self._serve = serve
        self._out_of_range = out_of_range
        self._slice_s = slice_s
        self.held = False
        """While a rebalance waits for us: librdkafka would take any assign or unassign for our answer."""
        self._standings: dict[tuple[str, int], Standing] = {}
        self._assigned: set[TopicPartition] = set()
        """What librdkafka has."""
        self._ahead: deque[Message] = deque()
        self._failures: deque[Standing] = deque()
        self._failure_first = False
        self._trouble: LogError | None = None
        self._dirty = False
        self._renewed: set[TopicPartition] = set()
        """Partitions that were added, removed or sought since the current poll took its records."""

    # --- partitions ---------------------------------------------------------------------------------------------------

    def standings(self) -> Iterable[Standing]:
        return self._standings.values()

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(standing.where for standing in self._standings.values())

    def standing(self, where: TopicPartition) -> Standing:
        try:
            return self._standings[where]
        except KeyError:
            raise LookupError(f"{where.topic}[{where.partition}] is not assigned to this consumer") from None

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where in [standing.where for standing in self._standings.values()]:
            self.remove(where)
        for where, offset in offsets.items():
            self.add(where, offset)

    def add(self, where: TopicPartition, offset: int) -> None:
        self.remove(where)
        self._standings[where] = Standing(where, offset)
        self._renewed.add(where)
        self._dirty = True

    def remove(self, where: TopicPartition) -> None:
        standing = self._standings.pop(where, None)
        if standing is not None:
            self._forget(standing)
            self._renewed.add(where)

    def seek(self, where: TopicPartition, offset: int) -> None:
        standing = self.standing(where)
        self._forget(standing)
        self._renewed.add(where)
        standing.position, standing.sought = offset, True

    def resolve(self, standing: Standing, offset: int) -> None:
        """Nobody sought it: this is where it begins."""
        self._forget(standing)
        standing.position, standing.sought = offset, False

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            standing = self._standings.get(where)
            if standing is not None and not standing.paused:
                self._forget(standing)
                standing.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            standing = self._standings.get(where)
            if standing is not None and standing.paused:
                standing.paused = False
                self._dirty = True

    def release(self, partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
        """Forget these partitions; returns those that librdkafka still has, for its own unassign."""
        held = []
        for where in partitions:
            self.remove(where)
            if where in self._assigned:
                self._assigned.discard(where)
                held.append(ck.TopicPartition(*where))
        return held

    def apply(self) -> None:
        """Bring librdkafka to where the partitions stand. Raises LogError; called again, it goes on."""
        if not self._dirty or self.held:
            return
        stop = [
            where
            for where in self._assigned
            if (standing := self._standings.get(where)) is None or not standing.live
        ]
        start = [
            standing
            for standing in self._standings.values()
            if not (standing.live or standing.paused or standing.failed or standing.position == UNRESOLVED)
        ]
        try:
            if stop:
                self._consumer.incremental_unassign([ck.TopicPartition(*where) for where in stop])
                self._assigned.difference_update(stop)
            if start:
                self._consumer.incremental_assign(
                    [ck.TopicPartition(*standing.where, standing.position) for standing in start]
                )
                self._assigned.update(standing.where for standing in start)
        except KafkaException as exception:
            raise to_log_error(error_of(exception), "read on", self._troubles.explain) from None
        if self._ahead and start:
            # Read while callbacks ran, from where these partitions stood before.
            stale = {standing.where for standing in start}
            self._ahead = deque(m for m in self._ahead if (m.topic(), m.partition()) not in stale)
        for standing in start:
            standing.live = True
        self._dirty = False

    def _forget(self, standing: Standing) -> None:
        """Nothing that was fetched of this partition up to now counts any more."""
        if standing.failed is not None:
            standing.failed = None
            self._failures = deque(each for each in self._failures if each is not standing)
        if standing.live:
            standing.live = False
            if self._ahead:
                where = standing.where
                self._ahead = deque(m for m in self._ahead if (m.topic(), m.partition()) != where)
        self._dirty = True

    # --- reading --------------------------------------------------------------------------------------------------------

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """See Reader.poll. Returns early, without records, when a position has moved past what is not shown."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            happened = self._serve()
            self.apply()
            if self._failure_first:
                self._raise_failure()
            self._renewed.clear()
            records, moved = self._take(max_records)
            happened |= self._serve()
            if records and self._renewed:  # by callbacks: what was read before is not of this assignment
                records = [
                    record for record in records if (record.topic, record.partition) not in self._renewed
                ]
            if records:
                self._failure_first = bool(self._failures)
                return records
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble
            if self._failures:
                self._raise_failure()
            left_s = deadline_s - self._clock.monotonic_s()
            if moved or left_s <= 0:
                return records
            if not happened:
                self.look(min(left_s, self._slice_s))

    def look(self, timeout_s: float) -> None:
        """Wait for something, and keep what comes for the next poll."""
        self._ahead.extend(self._consume(1, timeout_s))

    def is_ready(self, timeout_s: float) -> bool:
        """Whether a poll would do something now, or within the time-out."""
        if self._serve():
            return True
        self.apply()
        if not self._ahead:
            self.look(timeout_s)
        if self._serve():
            return True
        while self._ahead:
            if self._matters(self._ahead[0]):
                return True
            self._ahead.popleft()
        return bool(self._failures) or self._trouble is not None

    def _matters(self, message: "Message") -> bool:
        standing = self._standings.get((message.topic() or "", message.partition() or 0))
        error = message.error()
        if error is not None and error.code() in _HARMLESS:
            return False
        if standing is None or not standing.live:
            return error is not None and error.code() != _EOF
        if error is not None and error.code() != _EOF:
            return True
        offset = message.offset() or 0
        return offset > standing.position or (error is None and offset == standing.position)

    def _consume(self, count: int, timeout_s: float) -> "list[Message]":
        try:
            return self._consumer.consume(count, timeout_s)
        except KafkaException as exception:
            raise to_log_error(error_of(exception), "read", self._troubles.explain) from None

    def _take(self, max_records: int) -> tuple[list[Record], bool]:
        """What is there now, and whether a position moved without a record."""
        ahead = self._ahead
        messages: list[Message]
        if ahead:
            messages = [ahead.popleft() for _ in range(min(len(ahead), max_records))]
            if len(messages) < max_records:
                messages += self._consume(max_records - len(messages), 0.0)
        else:
            messages = self._consume(max_records, 0.0)
        records: list[Record] = []
        moved = False
        standings = self._standings
        for message in messages:
            topic, partition = message.topic(), message.partition()
            standing = standings.get((topic, partition))  # type: ignore[arg-type]
            error = message.error()
            if standing is None or not standing.live:
                if error is not None and topic is None:
                    self._note(None, error)
                continue
            offset: int = message.offset()  # type: ignore[assignment]
            if error is not None:
                if error.code() != _EOF:
                    self._note(standing, error)
                elif offset > standing.position:
                    standing.position = offset
                    moved = True
                continue
            if offset < standing.position:
                continue
            standing.position = offset + 1
            headers = message.headers()
            where = standing.where
            records.append(
                Record(
                    where.topic,
                    where.partition,
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    _headers(headers) if headers else (),
                )
            )
        return records, moved

    def _note(self, standing: Standing | None, error: KafkaError) -> None:
        code = error.code()
        if code in _HARMLESS:
            return
        where = (
            f" {standing.where.topic}[{standing.where.partition}] at {standing.position}" if standing else ""
        )
        problem = to_log_error(error, f"read{where}", self._troubles.explain)
        if standing is None or not is_out_of_range(code):
            self._trouble = problem
            return
        self._forget(standing)
        if self._out_of_range(standing):
            return
        standing.failed = OffsetOutOfRange(
            f"{standing.where.topic}[{standing.where.partition}] has no offset {standing.position} (any more, or yet): "
            f"ask for its begin and end, and seek"
        )
        self._failures.append(standing)

    def _raise_failure(self) -> None:
        """The next of the partitions that cannot be read on; they take turns with each other and with records."""
        self._failure_first = False
        if self._failures:
            standing = self._failures[0]
            self._failures.rotate(-1)
            assert standing.failed is not None
            raise standing.failed


def _headers(found: object) -> Headers:
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, content if content is not None else b"") for name, content in pairs)  # type: ignore[attr-defined]
