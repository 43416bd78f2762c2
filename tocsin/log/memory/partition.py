"""One partition of the in-memory log: records, markers, the last stable offset, compaction and retention."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tocsin.log.port import (
    Headers,
    Isolation,
    OffsetCommit,
    OffsetOutOfRange,
    Record,
    TopicPartition,
    TopicSpec,
)

RecordState = Literal["open", "committed", "aborted", "marker"]


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """One transaction as the log knows it. Its records stand in the partitions from the moment they were produced."""

    transactional_id: str
    client: str
    begun_s: float
    state: Literal["open", "committed", "aborted"] = "open"
    last: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Per partition touched: the last record's offset and timestamp."""
    offsets: dict[str, dict[TopicPartition, OffsetCommit]] = field(default_factory=dict)
    """Per group: the offsets to be committed with it."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One offset of a partition: a record or a transaction marker."""

    record: Record
    client: str
    transaction: Transaction | None = None
    marker: bool = False
    horizon_ms: int | None = None
    """When a tombstone may go: set by the first compaction that sees it."""

    @property
    def state(self) -> RecordState:
        if self.marker:
            return "marker"
        return "committed" if self.transaction is None else self.transaction.state


class StoredRecord(NamedTuple):
    """What stands at one offset, for the oracles of tests: also what no reader is shown."""

    record: Record
    state: RecordState
    transactional_id: str | None
    client: str


class Partition:
    """Not locked: the broker's lock guards it."""

    __slots__ = ("_offsets", "_open", "begin", "end", "entries", "spec", "where")

    def __init__(self, where: TopicPartition, spec: TopicSpec) -> None:
        self.where = where
        self.spec = spec
        self.begin = 0
        self.end = 0
        self.entries: list[Entry] = []
        self._offsets: list[int] = []
        self._open: dict[int, Transaction] = {}  # first offset -> transaction, in the order of the offsets

    def append(
        self,
        *,
        now_ms: int,
        client: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        transaction: Transaction | None = None,
    ) -> Record:
        # The timestamp is the broker's clock, as it is: Kafka's LogAppendTime steps back with it, too.
        record = Record(self.where.topic, self.where.partition, self.end, now_ms, key, value, headers)
        self._put(Entry(record=record, client=client, transaction=transaction))
        if transaction is not None:
            if self.where not in transaction.last:
                self._open[record.offset] = transaction
            transaction.last[self.where] = (record.offset, now_ms)
        return record

    def close_transaction(self, transaction: Transaction, now_ms: int) -> None:
        """Write the marker. It takes an offset, and is shown to nobody."""
        self._open = {first: t for first, t in self._open.items() if t is not transaction}
        marker = Record(self.where.topic, self.where.partition, self.end, now_ms, None, None)
        self._put(Entry(record=marker, client=transaction.client, transaction=transaction, marker=True))

    def last_stable_offset(self) -> int:
        return next(iter(self._open), self.end)

    def fetch(
        self, offset: int, max_records: int, isolation: Isolation, up_to: int | None = None
    ) -> tuple[list[Record], int]:
        if not self.begin <= offset <= self.end:
            raise OffsetOutOfRange(
                f"{self.where.topic}[{self.where.partition}] holds the offsets {self.begin} to {self.end}, "
                f"not {offset}: seek to one of them"
            )
        limit = self.last_stable_offset() if isolation == "committed" else self.end
        if up_to is not None:
            limit = min(limit, up_to)
        if offset >= limit:
            return [], offset
        records: list[Record] = []
        entries = self.entries
        for index in range(bisect_left(self._offsets, offset), len(entries)):
            entry = entries[index]
            at = entry.record.offset
            if at >= limit:
                break
            if len(records) == max_records:
                return records, at
            if entry.marker or (isolation == "committed" and entry.state == "aborted"):
                continue
            records.append(entry.record)
        return records, limit

    def offset_for_time(self, timestamp_ms: int) -> int:
        for entry in self.entries:
            if entry.record.timestamp_ms >= timestamp_ms:
                return entry.record.offset
        return self.end

    def maintain(self, now_ms: int) -> int:
        """Compact, then drop what is older than the retention. Returns how many offsets were emptied."""
        before = len(self.entries)
        if "compact" in self.spec.cleanup:
            self._compact(now_ms)
        if "delete" in self.spec.cleanup and self.spec.retention_ms is not None:
            self._expire(now_ms - self.spec.retention_ms)
        return before - len(self.entries)

    def _compact(self, now_ms: int) -> None:
        """Keep the last record of each key among those that are stable and past the lag.

        As Kafka's cleaner: the range ends at the first record that is too young or belongs to an open transaction, so
        a record that only a younger one replaces stays. A tombstone stays for delete_retention_ms after the pass
        that first met it.
        """
        bound = self.last_stable_offset()
        youngest_ms = now_ms - self.spec.min_compaction_lag_ms
        newest: dict[bytes, int] = {}
        for entry in self.entries:
            if entry.record.offset >= bound:
                break
            if entry.record.timestamp_ms > youngest_ms:
                bound = entry.record.offset
                break
            if entry.record.key is not None and entry.state == "committed":
                newest[entry.record.key] = entry.record.offset
        self._keep([e for e in self.entries if e.record.offset >= bound or self._survives(e, newest, now_ms)])

    def _survives(self, entry: Entry, newest: dict[bytes, int], now_ms: int) -> bool:
        record = entry.record
        match entry.state:
            case "aborted":
                return False
            case "marker":
                # The end of the log keeps its marker, so that the end never moves back.
                return record.offset == self.end - 1
            case "open" | "committed":
                pass
        if record.key is None or newest[record.key] != record.offset:
            return False
        if record.value is not None:
            return True
        if entry.horizon_ms is None:
            entry.horizon_ms = now_ms + self.spec.delete_retention_ms
        return now_ms < entry.horizon_ms

    def _expire(self, oldest_ms: int) -> None:
        stable = self.last_stable_offset()
        kept = 0
        for entry in self.entries:
            if entry.record.offset >= stable or entry.record.timestamp_ms >= oldest_ms:
                break
            kept += 1
        if kept:
            self.begin = self._offsets[kept] if kept < len(self.entries) else stable
            self._keep(self.entries[kept:])

    def _put(self, entry: Entry) -> None:
        assert entry.record.offset == self.end, "offsets are dense when they are given out"
        self.entries.append(entry)
        self._offsets.append(self.end)
        self.end += 1

    def _keep(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._offsets = [entry.record.offset for entry in entries]
