"""The state of one partition on disk: a RocksDB with a column family for each family of rows.

Its write-ahead log is on, because several families are atomic only with it, and is never synced: only the log syncs, and
a store that lost its last writes is caught up from the changelog. Everything here holds committed state only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tocsin.schemas.job import JobKey
from tocsin.schemas.records import RunEvent
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow
from tocsin.streams.families import PendingKind, Ring
from tocsin.streams.timers import Timer, TimerRange


class StoreError(Exception):
    """The state store failed. The partition has to be closed; what to do next is said by the subclass."""


class StoreLocked(StoreError, RuntimeError):
    """Another process (or another store of this one) has the directory open. One owner at a time."""


class StoreCorrupt(StoreError, ValueError):
    """What is on disk cannot be read. Wipe it (PartitionStore.wipe) and restore from the changelog."""


class StoreFull(StoreError, OSError):
    """The disk is full. Nothing of the refused batch was kept. Free space, then open the store again."""


class StoreClosed(StoreError, RuntimeError):
    """The store was closed: the partition is no longer here."""


class UnknownLayout(StoreError, RuntimeError):
    """A newer version wrote this store. Start that version, or remove the directory: it is rebuilt from the changelog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a commit has reached on the log."""

    journal: bytes
    """The newest journal row, as it stands on the log."""
    changelog_offset: int
    """The next offset of the partition's `state` to read."""
    changelog_time_ms: int
    """The log timestamp of the last record below it."""
    runs_offset: int
    """The next offset of the partition's `runs`: every event below it is in the rings."""


class StoreEnvironment:
    """What all stores of a process share: one block cache, one limit for write buffers, one budget of decoded rows."""

    def __init__(
        self, *, cache_bytes: int = 256 << 20, write_buffer_bytes: int = 128 << 20, row_cache_bytes: int = 128 << 20
    ) -> None: ...


class PartitionStore:
    """One partition's store. Opened by one thread; see view() for the writer and reader() for everybody else."""

    @classmethod
    def open(cls, path: Path, environment: StoreEnvironment) -> Self:
        """Raises StoreLocked, StoreCorrupt, StoreFull or UnknownLayout."""
        raise NotImplementedError

    @staticmethod
    def wipe(path: Path) -> None:
        """Remove a store that is not open. Nothing happens if there is none."""
        raise NotImplementedError

    @property
    def position(self) -> Position | None:
        """As of the last commit; None: nothing was ever restored or committed here."""
        raise NotImplementedError

    @property
    def restored(self) -> bool:
        """Whether rows and timers are complete, so that a View may be made. Rings may still be filling up."""
        raise NotImplementedError

    def view(self, *, check: bool = False) -> "View":
        """The one writer. `check` proves at each commit that no row was changed in place, and that no timer is lost."""
        raise NotImplementedError

    def reader(self) -> "StoreReader": ...

    def verify(self) -> list[str]:
        """Compare everything derived with the rows, in full; empty if all is well. For tests and the simulation."""
        raise NotImplementedError

    def checkpoint(self, path: Path) -> None:
        """A copy of the committed state by hard links."""

    def close(self) -> None:
        """Release the directory. Nothing is flushed: the write-ahead log has it. Safe twice."""


class DuePass(Iterator[Timer]):
    """One pass over the due timers of a range; see View.due."""

    full: bool
    """Whether it ended at its limit, so that more may be due."""


class View:
    """What the core works on: the committed rows, and over them what was changed since the last commit.

    A row that was handed out must not be changed: copy() it, change the copy, put it. A row that was put belongs to the
    view. Used by one thread.
    """

    def job(self, key: JobKey) -> JobRow | None: ...
    def put_job(self, key: JobKey, row: JobRow) -> None: ...
    def delete_job(self, key: JobKey) -> None: ...

    def definition(self, key: JobKey, revision: int) -> DefinitionRow | None: ...
    def put_definition(self, key: JobKey, row: DefinitionRow) -> None: ...
    def delete_definition(self, key: JobKey, revision: int) -> None: ...

    def run(self, key: JobKey, seq: int) -> RunRow | None: ...
    def put_run(self, row: RunRow) -> None: ...
    def delete_run(self, key: JobKey, seq: int) -> None: ...

    def dead(self, key: JobKey, seq: int) -> DeadRow | None: ...
    def put_dead(self, row: DeadRow) -> None: ...
    def delete_dead(self, key: JobKey, seq: int) -> None: ...

    def pending(self, kind: PendingKind, key: JobKey, name: str) -> PendingRow | None: ...
    def put_pending(self, key: JobKey, name: str, row: PendingRow) -> None: ...
    def delete_pending(self, kind: PendingKind, key: JobKey, name: str) -> None: ...

    def history_put(self, ring: Ring, key: JobKey, slot: int, event: RunEvent) -> None:
        """Put the event into its slot (its counter modulo the ring's size). Nothing is read."""

    def due(self, lane: TimerRange, bound_ms: int, limit: int) -> DuePass:
        """The timers of `lane` due at or before bound_ms, in the order of their keys, at most `limit`.

        What the caller changes while iterating counts: a timer that no longer exists is not yielded; one that came to be
        at or below the bound is yielded in this pass, also if it sorts before what was yielded already. A timer that
        still exists after it was yielded is passed over, stays, and is yielded by the next pass again. At most one pass
        is open: another pass, a commit or a rollback ends it.
        """
        raise NotImplementedError

    def next_due(self, lane: TimerRange, *, after_ms: int | None = None) -> int | None:
        """The earliest instant of `lane` (with after_ms: of those later than it); None: there is none.

        after_ms is for the loop's wait: what a pass left in place at or below its bound waits for something else.
        """
        raise NotImplementedError

    @property
    def changed(self) -> int:
        """How many rows differ from the committed ones: commit before a batch grows beyond a few MB."""
        raise NotImplementedError

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value (None: a tombstone) for `state`, of every row changed since the last commit.

        The order is that of the first change. Rows that came and went in between are not mentioned.
        """
        raise NotImplementedError

    def commit(self, position: Position) -> None:
        """Write rows, timers, rings, `position` and the low-waters as one batch, after the log has committed.

        Raises StoreError; then nothing was written, and the store has to be closed and opened again.
        """

    def rollback(self) -> None:
        """Drop everything since the last commit."""


class StoreReader:
    """Questions to the committed state, from any thread."""

    def job(self, key: JobKey) -> tuple[JobRow, DefinitionRow | None] | None: ...
    def run(self, key: JobKey, seq: int) -> RunRow | None: ...
    def runs(self, key: JobKey) -> list[RunRow]: ...
    def dead(self, key: JobKey, seq: int) -> DeadRow | None: ...
    def history(self, ring: Ring, key: JobKey) -> list[RunEvent]: ...
    def jobs_from(self, cursor: str, prefix: str = "") -> Iterator[tuple[JobKey, JobRow]]: ...
    def dead_from(self, cursor: str, prefix: str = "") -> Iterator[tuple[str, DeadRow]]: ...
    def counts(self) -> Mapping[str, int]: ...
    def pending_buckets(self, now_ms: int, limit: int = 10_000) -> Mapping[str, int]: ...
    def overdue(self, now_ms: int, limit: int = 10_000) -> int: ...
