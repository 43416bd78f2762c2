"""The rows of one family as the view sees them: what was changed, over what was committed."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rocksdict import ColumnFamily, WriteBatch

from tocsin.schemas.codec import decode_row, encode_row
from tocsin.streams.families import Family, Row
from tocsin.streams.meta import counts_as_one
from tocsin.streams.rocks import Getter, StoreClosed
from tocsin.streams.row_cache import RowCache
from tocsin.streams.timer_index import TimerIndex
from tocsin.streams.timers import TIMED, timer_keys

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Row)


class RowChangedInPlace(AssertionError):
    """A row that the view had handed out or taken over was changed without being put. Copy it, change the copy, put it."""


class _Change(Generic[R]):
    """One row that was put or deleted since the last commit."""

    __slots__ = ("base", "encoded", "key", "row", "timers", "unsettled")

    def __init__(self, key: bytes, base: R | None, timers: tuple[bytes, ...]) -> None:
        self.key = key
        self.base = base
        """As committed."""
        self.row: R | None = base
        self.timers = timers
        """Those that the index knows of."""
        self.unsettled = False
        self.encoded: bytes | None = None

    def settle(self, family: Family, index: TimerIndex) -> None:
        self.unsettled = False
        after = timer_keys(family, self.key, self.row)
        if after != self.timers:
            index.change(self.timers, after)
            self.timers = after


class RowTable(Generic[K, R]):
    """The rows of one family: changed ones, then cached ones, then stored ones."""

    def __init__(
        self,
        family: Family,
        row_class: type[R],
        read: Getter,
        key_of: Callable[[K], bytes],
        cache: RowCache[K, R],
        check: bool,
    ) -> None:
        self.family = family
        self.changed: dict[K, _Change[R]] = {}
        self.unsettled: list[_Change[R]] = []
        self.version = 0
        self.cache = cache
        self.read = read
        self._row_class = row_class
        self._key_of = key_of
        self._timed = family in TIMED
        self.lent: list[tuple[R, bytes]] | None = [] if check else None
        """With `check`: rows that are not the caller's to change, and how they looked."""

    def get(self, key: K) -> R | None:
        change = self.changed.get(key)
        if change is not None:
            return change.row
        row = self.cache.get(key)
        if row is None:
            row = self._stored(key, self._key_of(key))
        if self.lent is not None and row is not None:
            self.lent.append((row, encode_row(row)))
        return row

    def put(self, key: K, row: R | None) -> None:
        """None deletes."""
        change = self.changed.get(key)
        if change is None:
            stored = self._key_of(key)
            base = self.cache.get(key)
            if base is None:
                base = self._stored(key, stored)
            if base is row:
                if row is None:
                    return
                raise RowChangedInPlace(
                    f"{self.family.name} {key}: put a copy, not the row that get() returned"
                )
            timers = timer_keys(self.family, stored, base) if self._timed and base is not None else ()
            change = self.changed[key] = _Change(stored, base, timers)
        self.version += 1
        change.row = row
        change.encoded = None
        if self._timed and not change.unsettled:
            change.unsettled = True
            self.unsettled.append(change)
        if self.lent is not None and row is not None:
            self.lent.append((row, encode_row(row)))

    def settle(self, index: TimerIndex) -> None:
        for change in self.unsettled:
            change.settle(self.family, index)
        self.unsettled.clear()

    def changes(self, out: list[tuple[bytes, bytes | None]]) -> None:
        letter = self.family.letter
        for change in self.changed.values():
            row = change.row
            if row is None:
                if change.base is not None:
                    out.append((letter + change.key, None))
            elif row != change.base:
                change.encoded = encode_row(row)
                out.append((letter + change.key, change.encoded))

    def write(self, batch: WriteBatch, handle: ColumnFamily) -> int:
        """Put into the batch what changes() has listed; returns by how many the counted rows have grown."""
        grown = 0
        for change in self.changed.values():
            if change.encoded is not None:
                batch.put(change.key, change.encoded, handle)
            elif change.row is None and change.base is not None:
                batch.delete(change.key, handle)
            grown += counts_as_one(change.row) - counts_as_one(change.base)
        return grown

    def committed(self) -> None:
        cache = self.cache
        for key, change in self.changed.items():
            if change.row is None:
                cache.drop(key)
            elif change.encoded is not None:
                cache.put(key, change.row, len(change.encoded))
        self.forget()

    def forget(self) -> None:
        self.changed = {}
        self.unsettled = []
        if self.lent is not None:
            lent, self.lent = self.lent, []
            for row, looked in lent:
                if encode_row(row) != looked:
                    raise RowChangedInPlace(f"{self.family.name}: {row} was changed without being put")

    def close(self) -> None:
        self.read = _closed
        self.cache.clear()
        self.changed = {}
        self.unsettled = []

    def _stored(self, key: K, stored: bytes) -> R | None:
        data = self.read(stored)
        if data is None:
            return None
        row = decode_row(self._row_class, data)
        self.cache.put(key, row, len(data))
        return row


def _closed(_key: bytes) -> bytes | None:
    raise StoreClosed("this partition's store was closed")
