"""Decoded rows that were committed, kept within a budget of bytes.

Two generations instead of a list in order of use: a row that is used moves to the young one; when that has filled half of
the budget, it becomes the old one, and what was old and unused is dropped. A hit costs one or two look-ups (an OrderedDict
that is reordered at each hit costs three times as much).
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

ROW_BYTES: Final = 1_500
"""What a decoded row takes beside its contents (measured: a JobRow of 230 encoded bytes takes 1.5 KB)."""

CONTENT_FACTOR: Final = 3
"""Decoded contents against encoded ones."""


class RowBudget:
    """The bytes that the caches of one view share. `limit` depends on who else is open: it is asked for now and then."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._young_bytes_max = limit() // 2
        self._caches: list[RowCache[Hashable, object]] = []
        self._young_bytes = 0

    def cache(self) -> "RowCache[K, R]":
        made: RowCache[K, R] = RowCache(self)
        self._caches.append(made)  # type: ignore[arg-type]  # only aged from here
        return made

    def refresh(self) -> None:
        self._young_bytes_max = self._limit() // 2

    def charge(self, size: int) -> None:
        self._young_bytes += size
        if self._young_bytes > self._young_bytes_max:
            self._young_bytes = 0
            self.refresh()
            for cache in self._caches:
                cache.age()


class RowCache(Generic[K, R]):
    """Of one family."""

    __slots__ = ("_budget", "_old", "_young")

    def __init__(self, budget: RowBudget) -> None:
        self._budget = budget
        self._young: dict[K, tuple[R, int]] = {}
        self._old: dict[K, tuple[R, int]] = {}

    def get(self, key: K) -> R | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is None:
                return None
            self._young[key] = found
            self._budget.charge(found[1])
        return found[0]

    def put(self, key: K, row: R, encoded_bytes: int) -> None:
        size = ROW_BYTES + CONTENT_FACTOR * encoded_bytes
        self._old.pop(key, None)
        self._young[key] = (row, size)
        self._budget.charge(size)

    def drop(self, key: K) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self._young = {}
        self._old = {}

    def age(self) -> None:
        self._old = self._young
        self._young = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
