"""What the core works on: the committed rows, and over them what was changed since the last commit.

The order of a commit: changes() go to the log, the log commits, commit() writes the store. So the store never holds
anything that the log does not; what it lacks after a crash in between, it gets from the changelog.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar, cast

from rocksdict import WriteBatch

from tocsin.schemas.codec import encode
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
    Family,
    PendingKind,
    Ring,
    Row,
    definition_key,
    history_key,
    pending_key,
    ring_value,
    run_key,
    state_key,
)
from tocsin.streams.meta import Position
from tocsin.streams.rocks import StoreClosed
from tocsin.streams.row_cache import RowBudget, RowCache
from tocsin.streams.row_table import RowTable
from tocsin.streams.timer_index import Delta, DuePass, TimerIndex
from tocsin.streams.timers import TimerRange

if TYPE_CHECKING:
    from tocsin.streams.store import PartitionStore

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Row)


class View:
    """The one writer of a partition's state, used by one thread.

    A row that was handed out must not be changed: copy() it, change the copy, put it. A row that was put belongs to the
    view. With `check` each commit and rollback proves that, and that no stored timer lies below a low-water.
    """

    def __init__(self, store: "PartitionStore", *, check: bool = False) -> None:
        """Raises StoreClosed, or AssertionError if the store is not restored yet."""
        assert store.restored, (
            f"{store.path}: rows and timers are not complete yet; step its Restore until ready"
        )
        self._store: PartitionStore | None = store
        self._check = check
        environment = store.database.environment
        budget = self._budget = RowBudget(lambda: environment.row_cache_share)

        def table(family: Family, row_class: type[R], key_of: Callable[[K], bytes]) -> RowTable[K, R]:
            read = store.database.getter(family.name)
            cache: RowCache[K, R] = budget.cache()
            return RowTable(family, row_class, read, key_of, cache, check)

        self._jobs = table(STATE, JobRow, state_key)
        self._definitions: RowTable[tuple[JobKey, int], DefinitionRow] = table(
            DEFINITIONS, DefinitionRow, lambda at: definition_key(*at)
        )
        self._runs: RowTable[tuple[JobKey, int], RunRow] = table(RUNS, RunRow, lambda at: run_key(*at))
        self._dead: RowTable[tuple[JobKey, int], DeadRow] = table(DEAD, DeadRow, lambda at: run_key(*at))
        self._pending: RowTable[tuple[PendingKind, JobKey, str], PendingRow] = table(
            PENDING, PendingRow, lambda at: pending_key(*at)
        )
        self._tables = cast(
            "tuple[RowTable[Hashable, JobRow], ...]",
            (self._definitions, self._jobs, self._runs, self._dead, self._pending),
        )
        self._history: dict[bytes, bytes] = {}
        self._index = TimerIndex(store.scan_timers, store.meta.lows)
        self._listed: int | None = None
        store.attach(self)

    # --- rows

    def job(self, key: JobKey) -> JobRow | None:
        return self._jobs.get(key)

    def job_keys(self) -> Iterator[JobKey]:
        """The key of every job's row, in order; rows that are put while this goes on may be missed."""
        assert self._store is not None
        changed = sorted(self._jobs.changed)
        stored = (key for key, _ in self._store.reader().jobs_from())
        for key, _ in groupby(merge(changed, stored)):
            if self._jobs.get(key) is not None:
                yield key

    def put_job(self, key: JobKey, row: JobRow) -> None:
        self._jobs.put(key, row)

    def delete_job(self, key: JobKey) -> None:
        self._jobs.put(key, None)

    def definition(self, key: JobKey, revision: int) -> DefinitionRow | None:
        return self._definitions.get((key, revision))

    def put_definition(self, key: JobKey, row: DefinitionRow) -> None:
        self._definitions.put((key, row.revision), row)

    def delete_definition(self, key: JobKey, revision: int) -> None:
        self._definitions.put((key, revision), None)

    def run(self, key: JobKey, seq: int) -> RunRow | None:
        return self._runs.get((key, seq))

    def put_run(self, row: RunRow) -> None:
        self._runs.put((JobKey(row.job_key), row.seq), row)

    def delete_run(self, key: JobKey, seq: int) -> None:
        self._runs.put((key, seq), None)

    def dead(self, key: JobKey, seq: int) -> DeadRow | None:
        return self._dead.get((key, seq))

    def put_dead(self, row: DeadRow) -> None:
        self._dead.put((JobKey(row.run.job_key), row.run.seq), row)

    def delete_dead(self, key: JobKey, seq: int) -> None:
        self._dead.put((key, seq), None)

    def pending(self, kind: PendingKind, key: JobKey, name: str) -> PendingRow | None:
        """`name` tells the pending rows of one kind and job apart: a trigger id, or the offset of a parked command."""
        return self._pending.get((kind, key, name))

    def put_pending(self, key: JobKey, name: str, row: PendingRow) -> None:
        self._pending.put((row.kind, key, name), row)

    def delete_pending(self, kind: PendingKind, key: JobKey, name: str) -> None:
        self._pending.put((kind, key, name), None)

    def history_put(
        self, ring: Ring, key: JobKey, slot: int, event: RunEvent, encoded: bytes | None = None
    ) -> None:
        """Put the event into its slot: its counter modulo the ring's size. Nothing is read.

        `encoded`: the event as it goes to `runs`, if it was encoded already.
        """
        counter = event.history_no if ring == "history" else event.failure_no
        self._history[history_key(ring, key, slot)] = ring_value(counter, encoded or encode(event))

    # --- timers

    def due(self, lane: TimerRange, bound_ms: int, limit: int) -> DuePass:
        """The timers of `lane` due at or before bound_ms, in the order of their keys, at most `limit`.

        What the caller changes while iterating counts: a timer that no longer exists is not yielded; one that came to be
        at or below the bound is yielded in this pass, also if it sorts before what was yielded already. A timer that
        still exists after it was yielded is passed over, stays, and is yielded by the next pass again (it counts for
        `limit`). At most one pass is open: another one, next_due(), a commit or a rollback ends it.
        """
        return self._index.due(lane, bound_ms, limit, self._settle)

    def next_due(self, lane: TimerRange, *, after_ms: int | None = None) -> int | None:
        """The earliest instant of `lane` (with after_ms: of those later than it); None: there is none.

        after_ms is for the loop's wait: what a pass left in place at or below its bound waits for something else.
        """
        self._settle()
        return self._index.next_due(lane, after_ms)

    # --- commit

    @property
    def changed(self) -> int:
        """How many rows and slots were touched since the last commit: commit before a batch grows beyond a few MB."""
        return sum(len(table.changed) for table in self._tables) + len(self._history)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Key and value (None: a tombstone) for `state`, of every row that differs from the committed one.

        By family, and within it in the order of the first change. Rows that came and went in between are not mentioned.
        """
        out: list[tuple[bytes, bytes | None]] = []
        for table in self._tables:
            table.changes(out)
        self._listed = self._version
        return out

    def commit(self, position: Position) -> None:
        """Write rows, timers, rings, `position` and the low-waters as one batch, after the log has committed them.

        Raises StoreError; then nothing was written, and the store has to be closed and opened again.
        """
        store = self._open()
        changed = self.changed > 0
        assert not changed or self._listed == self._version, "rows were changed after changes() listed them"
        self._settle()
        delta = self._index.prepare()
        batch = WriteBatch(raw_mode=True)
        handles = store.database.handles
        grown = {table.family.name: table.write(batch, handles[table.family.name]) for table in self._tables}
        history = handles[HISTORY]
        for key, value in self._history.items():
            batch.put(key, value, history)
        self._write_timers(batch, delta)
        store.commit(batch, position, grown, delta.lows)
        for table in self._tables:
            table.committed()
        self._history = {}
        self._budget.refresh()
        if self._check:
            problems = store.below_low_water()
            assert not problems, problems

    def rollback(self) -> None:
        """Drop everything since the last commit."""
        self._index.rollback()
        self._history = {}
        for table in self._tables:
            table.forget()

    def detach(self) -> None:
        """End the use of this view: its store is being closed. Whatever is asked of it afterwards raises StoreClosed."""
        self._store = None
        self._index.drop_pass()
        self._index = cast(TimerIndex, _Closed())
        for table in self._tables:
            table.close()

    def _write_timers(self, batch: WriteBatch, delta: Delta) -> None:
        handle = self._open().database.handles[TIMERS]
        for begin, end in delta.cover:
            batch.delete_range(begin, end, handle)
        for key in delta.deletes:
            batch.delete(key, handle)
        for key in delta.puts:
            batch.put(key, b"", handle)

    def _settle(self) -> None:
        for table in self._tables:
            if table.unsettled:
                table.settle(self._index)

    @property
    def _version(self) -> int:
        return sum(table.version for table in self._tables)

    def _open(self) -> "PartitionStore":
        if self._store is None:
            raise StoreClosed("this partition's store was closed")
        return self._store


class _Closed:
    """Stands in for the index of a closed view."""

    def __getattr__(self, name: str) -> object:
        raise StoreClosed("this partition's store was closed")
