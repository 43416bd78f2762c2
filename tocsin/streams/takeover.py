"""Taking partitions over: who may still hold a transaction open there is fenced, then the state is restored.

The newest journal row of a partition names the transactional id of whoever wrote to it last, also if that row belongs to a
transaction that is still open. What it left open would hold back every reader of the partition until the log ends it.
"""

import logging
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import EventLog, LogError, LogUnavailable, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import Journal
from tocsin.schemas.topics import TopicNames

logger = logging.getLogger(__name__)

JOURNAL_LOOK_BACK: Final = 64
"""Records read at the end of a journal partition to find its newest row; multiplied by eight until there is one."""

FENCE_AGAIN_S: Final = 1.0
EMPTY_POLLS_MAX: Final = 100
"""Polls of 0.1 s without anything, while there should be something: the log does not answer."""


def newest_journals(log: EventLog, names: TopicNames, partitions: Iterable[int]) -> dict[int, Journal | None]:
    """The newest row of each partition's journal, that of an open transaction included; None: there is none.

    All of them with one reader: on a remote log a reader is connections. Raises LogUnavailable.
    """
    ends = log.end_offsets([TopicPartition(names.journal, number) for number in partitions], "uncommitted")
    found: dict[int, Journal | None] = {where.partition: None for where in ends}
    begins = {where: log.begin_offset(where) for where, end in ends.items() if end > 0}
    look_back = JOURNAL_LOOK_BACK
    missing = {where: ends[where] for where, begin in begins.items() if begin < ends[where]}
    while missing:
        starts = {where: max(begins[where], ends[where] - look_back) for where in missing}
        found |= _newest_in(log, starts, missing)
        missing = {
            where: starts[where]
            for where in missing
            if found[where.partition] is None and starts[where] > begins[where]
        }
        look_back *= 8
    return found


def _newest_in(
    log: EventLog, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[int, Journal | None]:
    found: dict[int, Journal | None] = {}
    reader = log.reader("uncommitted")
    empty = 0
    try:
        reader.assign(starts)
        while any(reader.position(where) < end for where, end in ends.items()):
            if empty == EMPTY_POLLS_MAX:
                raise LogUnavailable(
                    f"the ends of {', '.join(sorted({where.topic for where in ends}))} cannot be read"
                )
            records = reader.poll(1_000, 0.1)
            empty = 0 if records else empty + 1
            for record in records:
                try:
                    row = codec.decode(record.value or b"")
                except codec.CodecError:
                    continue  # none of ours: it names nobody
                if isinstance(row, Journal):
                    found[record.partition] = row
    finally:
        reader.close()
    return found


class Fences:
    """Fences transactional ids, each once at a time. On threads: it takes a second (measured on a broker), and the loop has
    other partitions to look after."""

    def __init__(self, log: EventLog, *, threads: bool) -> None:
        self._log = log
        self._threads = threads
        self._running: set[str] = set()
        self._ended: dict[str, LogError | None] = {}

    def begin(self, transactional_id: str) -> None:
        if transactional_id in self._running:
            return
        self._running.add(transactional_id)
        self._ended.pop(transactional_id, None)
        if self._threads:
            Thread(target=self._fence, args=(transactional_id,), name="tocsin-fence", daemon=True).start()
        else:
            self._fence(transactional_id)

    def _fence(self, transactional_id: str) -> None:
        error: LogError | None = None
        try:
            producer = self._log.transactional_producer(transactional_id)
            try:
                producer.init()
            finally:
                producer.close()
        except LogError as failed:
            error = failed
        self._ended[transactional_id] = error
        self._running.discard(transactional_id)
        self._log.wake()

    def done(self, transactional_id: str) -> bool:
        """Whether it is fenced. Raises LogUnavailable if it could not be: begin() again."""
        if transactional_id in self._running or transactional_id not in self._ended:
            return False
        error = self._ended[transactional_id]
        if error is not None:
            raise LogUnavailable(f"{transactional_id} could not be fenced: {error}") from error
        return True


class Handovers:
    """Partitions that were assigned, and whose former owner is not known to be fenced yet."""

    def __init__(self, log: EventLog, clock: Clock, names: TopicNames, own_id: str, *, threads: bool) -> None:
        self._log = log
        self._clock = clock
        self._names = names
        self._own_id = own_id
        self._fences = Fences(log, threads=threads)
        self._unknown: set[int] = set()
        self._waiting: dict[int, str] = {}
        """By partition: the transactional id that is being fenced; "" where nobody has to be."""
        self._fence_again_at_s = clock.monotonic_s()
        self.trouble = ""
        """Why somebody could not be fenced at the last attempt."""

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._unknown) | frozenset(self._waiting)

    def add(self, partitions: Iterable[int], *, again: bool = False) -> None:
        """`again`: they were ours all the time, so nobody else can have written."""
        for number in partitions:
            if again:
                self._waiting[number] = ""
            else:
                self._unknown.add(number)

    def drop(self, number: int) -> None:
        self._unknown.discard(number)
        self._waiting.pop(number, None)

    def take(self) -> list[int]:
        """The partitions that may be restored now; they are no longer waiting. Raises LogUnavailable: call it again.

        What cannot be fenced is tried again each second, and holds up nothing else: it may be that only its coordinator
        is away.
        """
        if self._unknown:
            newest = newest_journals(self._log, self._names, sorted(self._unknown))
            for number, row in newest.items():
                nobody = row is None or row.released or row.transactional_id == self._own_id
                self._waiting[number] = "" if nobody or row is None else row.transactional_id
            self._unknown.clear()
            for transactional_id in sorted(set(self._waiting.values()) - {""}):
                logger.info("fencing %s, which wrote last to what is ours now", transactional_id)
                self._fences.begin(transactional_id)
        free = [
            number
            for number, transactional_id in sorted(self._waiting.items())
            if not transactional_id or self._is_fenced(transactional_id)
        ]
        for number in free:
            del self._waiting[number]
        if not self._waiting:
            self.trouble = ""
        return free

    def _is_fenced(self, transactional_id: str) -> bool:
        try:
            return self._fences.done(transactional_id)
        except LogUnavailable as error:
            self.trouble = str(error)
            now_s = self._clock.monotonic_s()
            if now_s >= self._fence_again_at_s:
                self._fence_again_at_s = now_s + FENCE_AGAIN_S
                logger.warning("%s", error)
                self._fences.begin(transactional_id)
            return False

    def look_again(self, partitions: Iterable[int]) -> None:
        """Something holds these back while they are restored: a former owner that had not said who it is when we looked."""
        for row in newest_journals(self._log, self._names, partitions).values():
            if row is not None and not row.released and row.transactional_id != self._own_id:
                logger.info(
                    "fencing %s, which still holds something open of what is ours now", row.transactional_id
                )
                self._fences.begin(row.transactional_id)
