"""What runs in the background of the embedded log: retention and compaction.

Compaction is incremental. Each record is looked at once, when it has passed its topic's lag: an index tells where the
record stands that it replaces, which is then deleted. So a pass costs as much as was written since the last one, not as
much as is stored, and its memory is one step's.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from tocsin.clock import Clock
from tocsin.log.embedded.framing import (
    clean_row_key,
    floor_row,
    horizon_key,
    key_and_liveness,
    newest_key,
    offset_of,
    read_horizon_key,
    read_u64,
    record_key,
    timestamp_of,
    u64,
)
from tocsin.log.embedded.partition import Partition
from tocsin.log.embedded.store import Batch, Rows, Store
from tocsin.log.port import LogCorrupt, LogError

STEP_RECORDS_MAX: Final = 500
"""One step holds the interpreter for about 10 ms, and one batch."""

RECLAIM_RECORDS_MIN: Final = 100_000
"""From so many expired records on, RocksDB is asked for the space at once; below, its own compaction finds them."""

logger = logging.getLogger(__name__)


class Maintenance:
    """run_once() by one thread at a time; `state` is the log's state lock."""

    def __init__(
        self, store: Store, clock: Clock, state: threading.Lock, partitions: Callable[[], list[Partition]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._partitions = partitions
        self._running = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval_s: float) -> None:
        """Run a pass every interval_s, each step followed by a pause as long as it took."""
        self._thread = threading.Thread(
            target=self._run, args=(interval_s,), name="tocsin-log-maintenance", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run_once(self) -> int:
        """Compact and expire all that the clock allows now. Returns how many records were deleted.

        Raises LogCorrupt where it meets damage, or if any was met before; the step that met it has changed nothing.
        """
        return self._pass(gently=False)

    def first_at_or_after(self, partition: Partition, timestamp_ms: int, begin: int, end: int) -> int:
        """The first offset in [begin, end) with that timestamp or a later one, else `end`: timestamps never fall."""
        low, high = begin, end
        while low < high:
            middle = (low + high) // 2
            row = self._first(partition, middle, end)
            if row is None or timestamp_of(row[1]) >= timestamp_ms:
                high = middle
            else:
                low = offset_of(row[0]) + 1
        row = self._first(partition, low, end)
        return end if row is None else offset_of(row[0])

    def _first(self, partition: Partition, offset: int, end: int) -> tuple[bytes, bytes] | None:
        if offset >= end:
            return None
        rows = self._rows(partition, offset, end, 1)
        return rows[0] if rows else None

    def _rows(self, partition: Partition, offset: int, end: int, rows_max: int) -> Rows:
        topic_id, number = partition.topic_id, partition.number
        return self._store.read(
            "records", record_key(topic_id, number, offset), record_key(topic_id, number, end), rows_max
        )

    # --- passes -----------------------------------------------------------------------------------------------------

    def _run(self, interval_s: float) -> None:
        while not self._stop.wait(interval_s):
            try:
                self._pass(gently=True)
            except LogCorrupt:
                return  # the store has told it, and takes no write any more
            except LogError as error:
                logger.warning("the log's maintenance goes on with its next pass: %s", error)
            except Exception:
                logger.exception(
                    "the log's maintenance met an error of its own; it goes on with its next pass"
                )

    def _pass(self, *, gently: bool) -> int:
        with self._running:
            self._store.check()
            deleted = 0
            for partition in self._partitions():
                for step in self._steps(partition):
                    begun_s = self._clock.monotonic_s()
                    while (done := step(partition)) is not None:
                        deleted += done
                        if gently and self._stop.wait(self._clock.monotonic_s() - begun_s):
                            return deleted
                        begun_s = self._clock.monotonic_s()
            return deleted

    def _steps(self, partition: Partition) -> list[Callable[[Partition], int | None]]:
        """What there is to do for this topic. Each step does a bounded part and returns what it deleted, at last None."""
        match partition.spec.cleanup:
            case "delete":
                return [self._expire]
            case "compact":
                return [self._compact, self._drop_tombstones]
            case "compact,delete":
                return [self._compact, self._drop_tombstones, self._expire_indexed]

    # --- compaction ---------------------------------------------------------------------------------------------------

    def _compact(self, partition: Partition) -> int | None:
        """Look at the next records past the lag, and delete those that they replace."""
        with self._state:
            begin, end, last_ms = partition.begin, partition.end, partition.last_ms
        topic_id, number = partition.topic_id, partition.number
        clean_key = clean_row_key(topic_id, number)
        clean = max(read_u64(self._store.get("default", clean_key) or b"\0"), begin)
        youngest_ms = self._clock.now_ms() - partition.spec.min_compaction_lag_ms
        horizon_ms = self._clock.now_ms() + partition.spec.delete_retention_ms
        newest: dict[bytes, int] = {}
        replaced: list[int] = []
        tombstones: list[tuple[int, bytes]] = []
        for row_key, data in self._rows(partition, clean, end, STEP_RECORDS_MAX):
            if timestamp_of(data) > youngest_ms:
                break
            offset = offset_of(row_key)
            key, alive = key_and_liveness(data)
            before = newest.get(key)
            if before is None:
                stored = self._store.get("index", newest_key(topic_id, number, key))
                before = None if stored is None else read_u64(stored)
            if before is not None and before >= begin:
                replaced.append(before)
            newest[key] = offset
            if not alive:
                tombstones.append((offset, key))
        if not newest:
            return None

        def fill(batch: Batch) -> None:
            for key, offset in newest.items():
                batch.put("index", newest_key(topic_id, number, key), u64(offset))
            for offset in replaced:
                batch.delete("records", record_key(topic_id, number, offset))
            for offset, key in tombstones:
                batch.put("index", horizon_key(topic_id, number, horizon_ms, offset), key)
            batch.put("default", clean_key, u64(max(newest.values()) + 1))
            batch.put("default", *floor_row(topic_id, number, begin, end, last_ms))

        # Not synced: a pass that a crash undoes is done again.
        self._store.write(fill, sync=False)
        return len(replaced)

    def _drop_tombstones(self, partition: Partition) -> int | None:
        """Delete the tombstones that have been readable for long enough."""
        topic_id, number = partition.topic_id, partition.number
        due = self._store.read(
            "index",
            horizon_key(topic_id, number, 0, 0),
            horizon_key(topic_id, number, self._clock.now_ms() + 1, 0),
            STEP_RECORDS_MAX,
        )
        if not due:
            return None
        with self._state:
            begin, end, last_ms = partition.begin, partition.end, partition.last_ms
        dropped = 0

        def fill(batch: Batch) -> None:
            nonlocal dropped
            for row_key, key in due:
                _, offset = read_horizon_key(row_key)
                batch.delete("index", row_key)
                index_key = newest_key(topic_id, number, key)
                if self._store.get("index", index_key) == u64(offset):  # else a later record has replaced it
                    batch.delete("index", index_key)
                    batch.delete("records", record_key(topic_id, number, offset))
                    dropped += 1
            batch.put("default", *floor_row(topic_id, number, begin, end, last_ms))

        self._store.write(fill, sync=False)
        return dropped

    # --- retention ----------------------------------------------------------------------------------------------------

    def _expire(self, partition: Partition) -> int | None:
        """Delete everything older than the retention."""
        begin, first_kept = self._expired(partition)
        if first_kept <= begin:
            return None
        self._delete_up_to(partition, begin, first_kept, [])
        return first_kept - begin  # only compaction leaves holes

    def _expire_indexed(self, partition: Partition) -> int | None:
        """As _expire, a step at a time, with the rows that compaction keeps for the records."""
        begin, first_kept = self._expired(partition)
        if first_kept <= begin:
            return None
        gone: list[bytes] = []
        rows = self._rows(partition, begin, first_kept, STEP_RECORDS_MAX)
        for row_key, data in rows:
            index_key = newest_key(partition.topic_id, partition.number, key_and_liveness(data)[0])
            if self._store.get("index", index_key) == u64(offset_of(row_key)):
                gone.append(index_key)
        reached = offset_of(rows[-1][0]) + 1 if rows else first_kept
        self._delete_up_to(partition, begin, reached, gone)
        return len(rows)

    def _expired(self, partition: Partition) -> tuple[int, int]:
        """The first offset there is, and the first that stays."""
        with self._state:
            begin, end = partition.begin, partition.end
        if partition.spec.retention_ms is None:
            return begin, begin
        oldest_ms = self._clock.now_ms() - partition.spec.retention_ms
        first = self._first(partition, begin, end)
        if first is not None and timestamp_of(first[1]) >= oldest_ms:
            return begin, begin  # what compaction has emptied in front of it stays in range
        return begin, self.first_at_or_after(partition, oldest_ms, begin, end)

    def _delete_up_to(
        self, partition: Partition, begin: int, first_kept: int, index_keys: list[bytes]
    ) -> None:
        topic_id, number = partition.topic_id, partition.number
        with self._state:
            # Before the records go: a reader that finds them missing must learn that it is out of range.
            partition.begin = first_kept
            end, last_ms = partition.end, partition.last_ms
        first, stop = record_key(topic_id, number, begin), record_key(topic_id, number, first_kept)

        def fill(batch: Batch) -> None:
            batch.delete_range("records", first, stop)
            for key in index_keys:
                batch.delete("index", key)
            batch.put("default", *floor_row(topic_id, number, first_kept, end, last_ms))

        self._store.write(fill, sync=False)
        if first_kept - begin >= RECLAIM_RECORDS_MIN:
            self._store.reclaim(first, stop)
