"""Questions to one partition's committed state, from any thread.

Each read is short and sees one committed state; a scan is made of chunks, each of them of the state of its moment.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tocsin.schemas.codec import decode, decode_row
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import RunEvent
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow
from tocsin.streams.families import (
    DEAD,
    DEFINITIONS,
    HISTORY,
    PENDING,
    RUNS,
    STATE,
    TIMERS,
    PendingKind,
    Ring,
    definition_key,
    history_prefix,
    run_key,
    split_numbered,
    split_pending,
    split_ring_value,
    state_key,
)
from tocsin.streams.rocks import Database
from tocsin.streams.timers import AHEAD, EXACT, Kind, TimerRange, due_of, end_of, first_key, kind_of

if TYPE_CHECKING:
    from tocsin.streams.store import PartitionStore

CHUNK: Final = 256
"""Rows read at once in a scan: under a millisecond, in which the store cannot be closed."""

PENDING_KINDS: Final = frozenset({Kind.OCCURRENCE, Kind.DECIDE, Kind.RETRY})
"""Timers that stand for work to come."""

BUCKETS: Final = (("1s", 1_000), ("1m", 60_000), ("1h", 3_600_000), ("1d", 86_400_000))
OVERDUE_MS: Final = 1_000


class StoreReader:
    """Every method raises StoreClosed once the partition is no longer here, or another StoreError."""

    def __init__(self, store: "PartitionStore") -> None:
        self._store = store

    def job(self, key: JobKey) -> tuple[JobRow, DefinitionRow | None] | None:
        """The job's row and its definition in force (None: deleted, or none was ever valid)."""
        with self._store.reading() as database:
            while True:
                data = database.get(STATE.name, state_key(key))
                if data is None:
                    return None
                row = decode_row(JobRow, data)
                if row.revision == 0 or row.deleted_ms:
                    return row, None
                found = database.get(DEFINITIONS.name, definition_key(key, row.revision))
                if found is not None:
                    return row, decode_row(DefinitionRow, found)
                # A commit came in between and dropped the definition, so the row has changed with it; else it is lost.
                if database.get(STATE.name, state_key(key)) == data:
                    return row, None

    def definition(self, key: JobKey, revision: int) -> DefinitionRow | None:
        data = self._get(DEFINITIONS.name, definition_key(key, revision))
        return None if data is None else decode_row(DefinitionRow, data)

    def run(self, key: JobKey, seq: int) -> RunRow | None:
        """An open run."""
        data = self._get(RUNS.name, run_key(key, seq))
        return None if data is None else decode_row(RunRow, data)

    def open_runs(self, key: JobKey) -> list[RunRow]:
        """Oldest first."""
        with self._store.reading() as database:
            data = database.get(STATE.name, state_key(key))
            if data is None:
                return []
            seqs = decode_row(JobRow, data).open
            found = database.get_all(RUNS.name, [run_key(key, seq) for seq in seqs])
        return [decode_row(RunRow, data) for data in found if data is not None]

    def dead(self, key: JobKey, seq: int) -> DeadRow | None:
        data = self._get(DEAD.name, run_key(key, seq))
        return None if data is None else decode_row(DeadRow, data)

    def history(self, ring: Ring, key: JobKey) -> list[RunEvent]:
        """The ring's events, newest first."""
        prefix = history_prefix(ring, key)
        with self._store.reading() as database:
            values = [value for _, value in database.items(HISTORY, prefix, prefix + b"\xff" * 5)]
        events = []
        for _, data in sorted(map(split_ring_value, values), key=lambda slot: slot[0], reverse=True):
            event = decode(data)
            assert isinstance(event, RunEvent)
            events.append(event)
        return events

    def jobs_from(self, prefix: str = "", after: str = "") -> Iterator[tuple[JobKey, JobRow]]:
        """Rows of jobs (deleted ones, too) whose key begins with `prefix`, in key order, beginning behind `after`."""
        for key, data in self._rows_from(STATE.name, prefix, after.encode() + b"\0" if after else b""):
            yield JobKey(key.decode()), decode_row(JobRow, data)

    def dead_from(
        self, prefix: str = "", after: tuple[JobKey, int] | None = None
    ) -> Iterator[tuple[JobKey, int, DeadRow]]:
        """Dead letters of jobs whose key begins with `prefix`, in the order of job and seq, beginning behind `after`."""
        start = run_key(*after) + b"\0" if after else b""
        for key, data in self._rows_from(DEAD.name, prefix, start):
            yield *split_numbered(key), decode_row(DeadRow, data)

    def all_runs(self) -> Iterator[RunRow]:
        """Every open run of the partition: the core rebuilds its small caches from them when it starts."""
        for _, data in self._rows_from(RUNS.name, "", b""):
            yield decode_row(RunRow, data)

    def all_pending(self, kind: PendingKind) -> Iterator[tuple[JobKey, str, PendingRow]]:
        """Every pending row of one kind, with its job and its name."""
        for at, data in self._rows_from(PENDING.name, "", b""):
            found, key, name = split_pending(at)
            if found == kind:
                yield key, name, decode_row(PendingRow, data)

    def counts(self) -> Mapping[str, int]:
        """Defined jobs (`state`), open runs (`runs`), dead letters (`dead`) and pending rows (`pending`): exact."""
        return self._store.meta.counts

    def pending_buckets(self, now_ms: int, limit: int = 10_000) -> dict[str, int]:
        """Timers of work to come by how far ahead they are: at most 1s, 1m, 1h, 1d, or later. What is past is 1s.

        At most `limit` timers of each range are looked at, the earliest ones.
        """
        buckets = dict.fromkeys((*(name for name, _ in BUCKETS), "later"), 0)
        for due_ms in self._dues(limit, until_ms=None):
            ahead = due_ms - now_ms
            buckets[next((name for name, width in BUCKETS if ahead <= width), "later")] += 1
        return buckets

    def overdue(self, now_ms: int, limit: int = 10_000) -> int:
        """Timers of work to come whose instant passed more than a second ago; counting stops at `limit`."""
        return min(limit, sum(1 for _ in self._dues(limit, until_ms=now_ms - OVERDUE_MS)))

    def _dues(self, limit: int, *, until_ms: int | None) -> list[int]:
        lanes: tuple[TimerRange, ...] = (AHEAD, EXACT)
        dues = []
        with self._store.reading() as database:
            for lane in lanes:
                upper = end_of(lane) if until_ms is None else first_key(lane, until_ms)
                scan = database.scan(TIMERS, self._store.meta.lows[lane], upper)
                for _ in range(limit):
                    key = scan.key()
                    if key is None:
                        break
                    if kind_of(key) in PENDING_KINDS:
                        dues.append(due_of(key))
                    scan.next()
        return dues

    def _get(self, name: str, key: bytes) -> bytes | None:
        with self._store.reading() as database:
            return database.get(name, key)

    def _rows_from(self, name: str, prefix: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        lower = max(prefix.encode(), start)
        upper = prefix.encode() + b"\xff"
        while True:
            with self._store.reading() as database:
                chunk = _chunk(database, name, lower, upper)
            yield from chunk
            if len(chunk) < CHUNK:
                return
            lower = chunk[-1][0] + b"\0"


def _chunk(database: Database, name: str, lower: bytes, upper: bytes) -> list[tuple[bytes, bytes]]:
    scan = database.scan(name, lower, upper)
    chunk: list[tuple[bytes, bytes]] = []
    while len(chunk) < CHUNK and (key := scan.key()) is not None:
        chunk.append((key, scan.value()))
        scan.next()
    return chunk
