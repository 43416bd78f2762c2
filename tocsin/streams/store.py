"""The state of one partition on disk, and the ways into it: the view (the one writer) and readers (anybody).

Its write-ahead log is on, because several families are atomic only with it, and is never synced: only the log syncs, and
a store that lost its last writes is caught up from the changelog. What is on disk was committed on the log before.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Condition
from typing import Final, Self
from weakref import WeakSet

from rocksdict import WriteBatch

from tocsin.schemas.codec import decode_row
from tocsin.streams.families import FAMILIES, META, TIMERS, Family, Row
from tocsin.streams.meta import META_KEY, Meta, Position, UnknownStoreLayout, counts_as_one
from tocsin.streams.reader import StoreReader
from tocsin.streams.rocks import (
    Database,
    Scan,
    StoreClosed,
    StoreCorrupt,
    StoreEnvironment,
    StoreError,
    StoreFull,
    StoreLocked,
    UnknownLayout,
    wipe,
)
from tocsin.streams.row_table import RowChangedInPlace
from tocsin.streams.timer_index import DuePass
from tocsin.streams.timers import RANGES, TIMED, Timer, TimerRange, end_of, first_of, timers_of
from tocsin.streams.view import View

__all__ = [
    "DuePass",
    "PartitionStore",
    "Position",
    "RowChangedInPlace",
    "StoreClosed",
    "StoreCorrupt",
    "StoreEnvironment",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReader",
    "UnknownLayout",
    "View",
]

READERS_GONE_S: Final = 5.0
"""How long close() waits for reads in other threads, each a chunk of a scan at most. One that still hangs is told that the
store was closed, as soon as it goes on."""


class PartitionStore:
    """One partition's store, owned by one thread; reader() may be used by all."""

    def __init__(self, database: Database, meta: Meta) -> None:
        self.path = database.path
        self.meta = meta
        """As of the last batch. Replaced as a whole, so that any thread may read it."""
        self.wiped = ""
        """Why it was emptied when it was opened, if it was."""
        self.rings_behind = False
        """Whether a Restore still fills the rings: until it has, its own progress is what meta.runs_offset says."""
        self.live_runs_offset = -1
        """The newest that a view's commit has reached."""
        self._database: Database | None = database
        self._views: WeakSet[View] = WeakSet()
        self._readers = 0
        self._readers_changed = Condition()

    @classmethod
    def open(cls, path: Path, environment: StoreEnvironment, *, wipe_corrupt: bool = False) -> Self:
        """Opens the directory, or creates it. Raises StoreLocked, StoreCorrupt, StoreFull or UnknownLayout.

        With wipe_corrupt, what cannot be read is removed, and the store is empty: `wiped` says why.
        """
        try:
            return cls._open(path, environment)
        except StoreCorrupt as error:
            if not wipe_corrupt:
                raise
            wipe(path)
            store = cls._open(path, environment)
            store.wiped = str(error)
            return store

    @classmethod
    def _open(cls, path: Path, environment: StoreEnvironment) -> Self:
        database = Database(path, environment)
        try:
            return cls(database, _meta_of(database))
        except BaseException:
            database.close()
            raise

    @staticmethod
    def wipe(path: Path) -> None:
        """Remove a store, also a damaged one; nothing happens if there is none. Raises StoreLocked if it is open."""
        wipe(path)

    # --- for the owner

    @property
    def database(self) -> Database:
        """Raises StoreClosed."""
        if self._database is None:
            raise StoreClosed(f"{self.path} was closed")
        return self._database

    @property
    def position(self) -> Position | None:
        """As of the last batch; None: nothing was ever restored or committed here."""
        return None if self.meta.changelog_offset < 0 else self.meta.position

    @property
    def restored(self) -> bool:
        """Whether rows and timers are complete, so that a View may be made. Rings may still be filling up."""
        return self.meta.phase == "ready"

    def view(self, *, check: bool = False) -> View:
        """The one writer. `check` proves at each commit that no row was changed in place, and that no timer is lost."""
        return View(self, check=check)

    def attach(self, view: View) -> None:
        assert not self._views, f"{self.path}: there is a view already, and one writer at a time"
        self._views.add(view)

    def release_view(self) -> None:
        """End the use of the view, if there is one, so that another can be made."""
        for view in list(self._views):
            view.detach()
        self._views.clear()

    @property
    def live(self) -> bool:
        """Whether there is a view: from then on its commits go on with the changelog, and nobody replays it any more."""
        return bool(self._views)

    def write(self, batch: WriteBatch, meta: Meta) -> None:
        """Write the batch and `meta` with it: the only way that anything changes here. Raises StoreError."""
        database = self.database
        batch.put(META_KEY, meta.encode(), database.handles[META])
        database.write(batch)
        self.meta = meta

    def commit(
        self,
        batch: WriteBatch,
        position: Position,
        grown: Mapping[str, int],
        lows: Mapping[TimerRange, bytes],
    ) -> None:
        """Write what the view has committed on the log. While rings are behind, their own progress is what counts."""
        self.live_runs_offset = max(self.live_runs_offset, position.runs_offset)
        known = self.meta.runs_offset
        runs_offset = known if self.rings_behind else max(known, position.runs_offset)
        self.write(batch, self.meta.after(position, grown, lows, runs_offset=runs_offset))

    def start_empty(self) -> None:
        """Declare an empty store complete: its changelog holds nothing. Restore does it; alone, it is for tests."""
        assert self.meta.changelog_offset < 0, f"{self.path} is not empty"
        self.write(WriteBatch(raw_mode=True), replace(self.meta, phase="ready", changelog_offset=0))

    def scan_timers(self, lower: bytes, upper: bytes) -> Scan:
        return self.database.scan(TIMERS, lower, upper)

    def reset(self) -> None:
        """Empty the store: the directory is removed and made anew."""
        environment = self.database.environment
        self.close()
        wipe(self.path)
        self._database = Database(self.path, environment)
        self.meta = Meta(phase="replaying")
        self.rings_behind = False
        self.live_runs_offset = -1

    def checkpoint(self, path: Path) -> None:
        """The committed state as a store of its own at `path` (which must not exist), by hard links."""
        self.database.checkpoint(path)

    def close(self) -> None:
        """Release the directory: end the view, wait for reads in other threads, drop all handles. Safe twice.

        Nothing is flushed: the write-ahead log has it.
        """
        self.release_view()
        with self._readers_changed:
            database, self._database = self._database, None
            self._readers_changed.wait_for(lambda: self._readers == 0, READERS_GONE_S)
        if database is not None:
            database.close()

    # --- for everybody

    def reader(self) -> StoreReader:
        return StoreReader(self)

    @contextmanager
    def reading(self) -> Iterator[Database]:
        """Keeps the store open meanwhile; so be short. Raises StoreClosed."""
        with self._readers_changed:
            database = self.database
            self._readers += 1
        try:
            yield database
        finally:
            del database
            with self._readers_changed:
                self._readers -= 1
                self._readers_changed.notify_all()

    # --- checks

    def below_low_water(self) -> list[str]:
        """Stored timers that no scan would find: there must be none. One seek for each range."""
        problems = []
        for lane in RANGES:
            key = self.scan_timers(first_of(lane), self.meta.lows[lane]).key()
            if key is not None:
                problems.append(f"{Timer.decode(key)} lies below the low-water {self.meta.lows[lane]!r}")
        return problems

    def verify(self) -> list[str]:
        """Compare everything derived with the rows, in full; empty if all is well. For tests and the simulation."""
        problems = self.below_low_water()
        expected: set[bytes] = set()
        for family in FAMILIES:
            counted = 0
            for key, row in self._rows(family):
                counted += counts_as_one(row)
                expected.update(timer.encode() for timer in timers_of(family, key, row))
            if family in TIMED and counted != self.meta.counts[family.name]:
                problems.append(f"{family.name}: {counted} rows, counted {self.meta.counts[family.name]}")
        stored = {key for lane in RANGES for key, _ in self.database.items(TIMERS, lane, end_of(lane))}
        problems += [f"{Timer.decode(key)} belongs to no row" for key in sorted(stored - expected)]
        problems += [f"{Timer.decode(key)} is missing" for key in sorted(expected - stored)]
        return problems

    def _rows(self, family: Family) -> Iterator[tuple[bytes, Row]]:
        for key, data in self.database.items(family.name):
            yield key, decode_row(family.row, data)


def _meta_of(database: Database) -> Meta:
    data = database.get(META, META_KEY)
    if data is None:
        return Meta(phase="replaying")
    try:
        return Meta.decode(data)
    except UnknownStoreLayout as error:
        raise UnknownLayout(
            f"{database.path}: {error}; a newer one wrote this store: start that one, or remove the directory "
            "(it is rebuilt from the changelog)"
        ) from error
    except ValueError as error:
        raise StoreCorrupt(
            f"{database.path}: {error}; remove the directory, and it is rebuilt from the changelog"
        ) from error
