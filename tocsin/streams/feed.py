"""One reader for a topic of which several partitions are followed at once: each record goes to whoever follows its partition.

On a remote log a reader is connections and threads, and a dead owner may leave a dozen partitions.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from tocsin.log.port import EventLog, OffsetOutOfRange, Reader, Record, TopicPartition

BUFFERED_MAX: Final = 20_000
"""Records of a partition that wait to be taken; beyond this it is paused. Rarely reached: each step of a restore takes what
is there (a paused partition of a remote log loses what was fetched ahead)."""
FETCH_MAX: Final = 2_000


class Source(Protocol):
    """The committed records of one partition, from some offset on."""

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """As Reader.poll."""
        ...

    @property
    def position(self) -> int:
        """The next offset that poll() has not returned; see Reader.position."""
        ...

    def close(self) -> None: ...


OpenSource = Callable[[TopicPartition, int], Source]


class OwnReader:
    """Source, from a reader of its own."""

    def __init__(self, log: EventLog, where: TopicPartition, offset: int) -> None:
        self._where = where
        self._reader = log.reader("committed")
        self._reader.assign({where: offset})

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        return self._reader.poll(max_records, timeout_s)

    @property
    def position(self) -> int:
        return self._reader.position(self._where)

    def close(self) -> None:
        self._reader.close()


class Feed:
    """See the module. Used by one thread. The reader is made when it is needed, and closed when nobody follows."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._reader: Reader | None = None
        self._shares: dict[TopicPartition, FeedShare] = {}

    @property
    def readers(self) -> tuple[Reader, ...]:
        """To wait for."""
        return () if self._reader is None else (self._reader,)

    def follow(self, where: TopicPartition, offset: int) -> "FeedShare":
        """Raises UnknownTopic. One follower for each partition."""
        assert where not in self._shares, f"{where.topic}[{where.partition}] is followed already"
        if self._reader is None:
            self._reader = self._log.reader("committed")
        self._reader.add(where, offset)
        share = self._shares[where] = FeedShare(self, where)
        return share

    def fetch(self, timeout_s: float) -> None:
        """Hand out what has come."""
        assert self._reader is not None
        try:
            records = self._reader.poll(FETCH_MAX, timeout_s)
        except OffsetOutOfRange as error:
            self._tell(error)
            return
        for record in records:
            self._shares[TopicPartition(record.topic, record.partition)].records.append(record)
        full = [where for where, share in self._shares.items() if len(share.records) >= BUFFERED_MAX]
        if full:
            self._reader.pause(full)
            for where in full:
                self._shares[where].paused = True

    def resume(self, where: TopicPartition) -> None:
        assert self._reader is not None
        self._reader.resume([where])

    def position(self, where: TopicPartition) -> int:
        assert self._reader is not None
        return self._reader.position(where)

    def leave(self, where: TopicPartition) -> None:
        if self._shares.pop(where, None) is None or self._reader is None:
            return
        if self._shares:
            self._reader.remove(where)
        else:
            self.close()

    def close(self) -> None:
        self._shares.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _tell(self, error: OffsetOutOfRange) -> None:
        """Whose offset it is, the error does not say; the others read on. Raises it if it is nobody's."""
        assert self._reader is not None
        told = False
        for where, share in self._shares.items():
            if share.error is None:
                at = self._reader.position(where)
                if not self._log.begin_offset(where) <= at <= self._log.end_offset(where, "uncommitted"):
                    share.error, told = error, True
                    self._reader.pause([where])
        if not told:
            raise error


class FeedShare:
    """Source."""

    def __init__(self, feed: Feed, where: TopicPartition) -> None:
        self._feed = feed
        self._where = where
        self.records: deque[Record] = deque()
        self.paused = False
        self.error: OffsetOutOfRange | None = None

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        waiting = self.records
        if not waiting and self.error is None:
            self._feed.fetch(timeout_s)
        if not waiting and self.error is not None:
            raise self.error
        taken = [waiting.popleft() for _ in range(min(max_records, len(waiting)))]
        if self.paused and not waiting:
            self.paused = False
            self._feed.resume(self._where)
        return taken

    @property
    def position(self) -> int:
        return self.records[0].offset if self.records else self._feed.position(self._where)

    def close(self) -> None:
        self._feed.leave(self._where)
