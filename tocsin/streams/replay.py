"""How records of the changelog and of `runs` become rows, timers and rings: one batch of records at a time.

Two ways for rows. Into an empty store they are copied as they are, not even decoded, and when the end is reached each
row that is left is decoded once to derive its timers: a key that stands in the log ten times costs one decoding. Into a
complete store every record replaces the timers of the row that was there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from rocksdict import WriteBatch

from tocsin.log.port import Record
from tocsin.schemas.codec import CodecError, decode, decode_row
from tocsin.schemas.codec import UnknownLayout as UnknownRowLayout
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import RunEvent
from tocsin.streams.families import (
    HISTORY,
    JOURNAL_KEY,
    RING_SIZES,
    TIMERS,
    Family,
    Ring,
    Row,
    history_key,
    ring_value,
    split_changelog_key,
)
from tocsin.streams.meta import Meta, counts_as_one
from tocsin.streams.rocks import Scan, StoreCorrupt, UnknownLayout
from tocsin.streams.store import PartitionStore
from tocsin.streams.timer_index import FIRED_PER_RANGE_DELETE
from tocsin.streams.timers import RANGES, TIMED, TimerRange, end_of, first_of, range_of, timer_keys

BATCH_BYTES_MAX: Final = 4 << 20
"""Definitions may be large; a batch that grows beyond this is written at once, and its offsets are claimed by the last."""

_PAST_ALL: Final = b"\xff" * 8


class Replay:
    """Applies the changelog to one store."""

    def __init__(self, store: PartitionStore) -> None:
        self._store = store
        self._fired = 0

    def apply(self, records: Sequence[Record], next_offset: int, started_ms: int) -> None:
        """The store holds everything below next_offset afterwards.

        `started_ms` stands for the time of what was read while rows are still without timers: a tombstone that was on
        the log then stays readable for delete.retention from then on, however old the records before it are.
        """
        newest: dict[bytes, bytes | None] = {}
        for record in records:
            if record.key is not None:
                newest[record.key] = record.value
        meta = self._store.meta
        journal = newest.pop(JOURNAL_KEY, None)
        time_ms = records[-1].timestamp_ms if records else meta.changelog_time_ms
        if not self._store.restored:
            time_ms = meta.changelog_time_ms or started_ms
        meta = replace(
            meta,
            journal=meta.journal if journal is None else journal,
            changelog_offset=next_offset,
            changelog_time_ms=time_ms,
        )
        if self._store.restored:
            self._replace(newest, meta)
        else:
            self._copy(newest, meta)

    def _copy(self, newest: dict[bytes, bytes | None], meta: Meta) -> None:
        handles = self._store.database.handles
        batch = WriteBatch(raw_mode=True)
        size = 0
        for changelog_key, value in newest.items():
            family, key = split_changelog_key(changelog_key)
            if value is None:
                batch.delete(key, handles[family.name])
            else:
                size += len(value)
                batch.put(key, value, handles[family.name])
            if size > BATCH_BYTES_MAX:
                batch, size = self._spill(batch), 0
        self._store.write(batch, meta)

    def _replace(self, newest: dict[bytes, bytes | None], meta: Meta) -> None:
        database = self._store.database
        timers = database.handles[TIMERS]
        lows = dict(meta.lows)
        counts = dict(meta.counts)
        batch = WriteBatch(raw_mode=True)
        size = 0
        for changelog_key, value in newest.items():
            family, key = split_changelog_key(changelog_key)
            if family in TIMED:
                old = decoded(family, key, database.get(family.name, key))
                new = decoded(family, key, value)
                counts[family.name] += counts_as_one(new) - counts_as_one(old)
                before, after = timer_keys(family, key, old), timer_keys(family, key, new)
                for timer in before:
                    if timer not in after:
                        batch.delete(timer, timers)
                        self._fired += 1
                for timer in after:
                    if timer not in before:
                        batch.put(timer, b"", timers)
                        lane = range_of(timer)
                        lows[lane] = min(lows[lane], timer)
            if value is None:
                batch.delete(key, database.handles[family.name])
            else:
                size += len(value)
                batch.put(key, value, database.handles[family.name])
            if size > BATCH_BYTES_MAX:
                meta = replace(meta, lows=dict(lows), counts=dict(counts))
                batch, size = self._spill(batch, meta), 0
        self._store.write(batch, replace(meta, lows=lows, counts=counts))
        if self._fired >= FIRED_PER_RANGE_DELETE:
            self.raise_lows()

    def _spill(self, batch: WriteBatch, meta: Meta | None = None) -> WriteBatch:
        """Write what there is without claiming the offsets: they will be read again if this ends here."""
        stored = self._store.meta
        if meta is not None:
            stored = replace(stored, lows=meta.lows, counts=meta.counts)
        self._store.write(batch, stored)
        return WriteBatch(raw_mode=True)

    def raise_lows(self) -> None:
        """Move the low-waters up to the first timers there are, and cover what lies below with range tombstones."""
        self._fired = 0
        store = self._store
        timers = store.database.handles[TIMERS]
        lows: dict[TimerRange, bytes] = {}
        batch = WriteBatch(raw_mode=True)
        for lane in RANGES:
            found = store.scan_timers(store.meta.lows[lane], end_of(lane)).key()
            lows[lane] = end_of(lane) if found is None else found
            batch.delete_range(first_of(lane), lows[lane], timers)
        store.write(batch, replace(store.meta, lows=lows))


class TimerBuild:
    """Derives the timers of all rows of a store that was copied, some rows at a time. Begins anew after a crash."""

    def __init__(self, store: PartitionStore) -> None:
        self._store = store
        self._families = list(TIMED)
        self._family: Family | None = None
        self._scan: Scan | None = None
        self._lows: dict[TimerRange, bytes] = {lane: end_of(lane) for lane in RANGES}
        self._counts = {family.name: 0 for family in TIMED}
        self.rows = 0
        self.total = sum(store.database.number(family.name, "estimate-num-keys") for family in TIMED)
        """An estimate."""
        batch = WriteBatch(raw_mode=True)
        for lane in RANGES:
            batch.delete_range(first_of(lane), end_of(lane), store.database.handles[TIMERS])
        store.write(batch, store.meta)

    def step(self, max_rows: int) -> bool:
        """Go on; True when the store is complete."""
        batch = WriteBatch(raw_mode=True)
        timers = self._store.database.handles[TIMERS]
        taken = 0
        for family, key, data in self._rows():
            row = decoded(family, key, data)
            self._counts[family.name] += counts_as_one(row)
            for timer in timer_keys(family, key, row):
                batch.put(timer, b"", timers)
                lane = range_of(timer)
                self._lows[lane] = min(self._lows[lane], timer)
            taken += 1
            if taken == max_rows:
                break
        self.rows += taken
        meta = self._store.meta
        if taken == max_rows:
            self._store.write(batch, meta)
            return False
        self._store.write(batch, replace(meta, phase="ready", lows=self._lows, counts=self._counts))
        return True

    def close(self) -> None:
        self._scan = None

    def _rows(self) -> Iterator[tuple[Family, bytes, bytes]]:
        """The rows that are left: what was yielded is not yielded again by the next call."""
        while True:
            if self._scan is None:
                if not self._families:
                    return
                self._family = self._families.pop(0)
                self._scan = self._store.database.scan(self._family.name, b"", _PAST_ALL)
            assert self._family is not None
            scan = self._scan
            while (key := scan.key()) is not None:
                data = scan.value()
                scan.next()
                yield self._family, key, data
            self._scan = None


class RingReplay:
    """Applies `runs` to the history rings of one store."""

    def __init__(self, store: PartitionStore, sizes: dict[Ring, int] | None = None) -> None:
        self._store = store
        self._sizes = sizes or RING_SIZES
        self.unreadable = 0
        """Events that could not be decoded: history is poorer by them, nothing else."""

    def apply(self, records: Sequence[Record], next_offset: int) -> None:
        slots: dict[bytes, tuple[int, bytes]] = {}
        for record in records:
            event = self._event(record)
            if event is None:
                continue
            key = JobKey(f"{event.namespace}/{event.job_id}")
            value = record.value
            assert value is not None
            if event.history_no >= 0:
                self._offer(slots, "history", key, event.history_no, value)
            if event.failure_no >= 0:
                self._offer(slots, "failures", key, event.failure_no, value)
        database = self._store.database
        batch = WriteBatch(raw_mode=True)
        for slot, (counter, value) in slots.items():
            stored = database.get(HISTORY, slot)
            if stored is None or int.from_bytes(stored[:8]) <= counter:
                batch.put(slot, ring_value(counter, value), database.handles[HISTORY])
        self._store.write(batch, replace(self._store.meta, runs_offset=next_offset))

    def _event(self, record: Record) -> RunEvent | None:
        if record.value is None or record.key is None or b"#" in record.key:
            return None  # a tombstone, or a JobEvent (its key is `namespace/id#number`)
        try:
            event = decode(record.value)
        except CodecError:
            self.unreadable += 1
            return None
        return event if isinstance(event, RunEvent) else None

    def _offer(
        self, slots: dict[bytes, tuple[int, bytes]], ring: Ring, key: JobKey, counter: int, value: bytes
    ) -> None:
        slot = history_key(ring, key, counter % self._sizes[ring])
        known = slots.get(slot)
        if known is None or known[0] <= counter:
            slots[slot] = (counter, value)


def decoded(family: Family, key: bytes, data: bytes | None) -> Row | None:
    """Raises UnknownLayout or StoreCorrupt, naming the row."""
    if data is None:
        return None
    try:
        return decode_row(family.row, data)
    except UnknownRowLayout as error:
        raise UnknownLayout(
            f"{family.name} row {key!r}: {error}; a newer version wrote it: start that one"
        ) from error
    except CodecError as error:
        raise StoreCorrupt(f"{family.name} row {key!r}: {error}") from error
