"""When a commit is due."""

import math
from collections.abc import Iterable
from typing import Final

from tocsin.streams.partitions import OwnedPartition

COMMIT_URGENT_S: Final = 0.025
"""When something is due within a second, or somebody waits. A commit costs a few ms; fire visibility lags by this."""
COMMIT_S: Final = 0.25
"""Otherwise. An idle cadence of 25 ms costs a Kafka broker half a core (measured)."""
CHANGED_ROWS_MAX: Final = 20_000
EFFECT_BYTES_MAX: Final = 8 << 20
"""A commit is not put off beyond this: one write batch of the store stays at a few MB."""


class Pace:
    """After 25 ms if something is urgent, else after 250 ms; at once if much has gathered. Used by the loop's thread."""

    def __init__(self) -> None:
        self._dirty_since_s: float | None = None
        self._urgent = False

    def is_due(self, ready: Iterable[OwnedPartition], now_s: float, *, awaited: bool) -> bool:
        """Whether what these have gathered is to be committed now. `awaited`: somebody waits for it."""
        dirty, large = False, False
        for each in ready:
            assert each.core is not None
            assert each.view is not None
            effects = each.core.effects
            dirty |= bool(effects.emissions)
            self._urgent |= effects.urgent
            large |= effects.size >= EFFECT_BYTES_MAX or each.view.changed >= CHANGED_ROWS_MAX
        if not dirty:
            return False
        if self._dirty_since_s is None:
            self._dirty_since_s = now_s
        return large or self.left_s(now_s, awaited=awaited) <= 0

    def left_s(self, now_s: float, *, awaited: bool) -> float:
        """Until what has gathered is to be committed, if anything has."""
        if self._dirty_since_s is None:
            return math.inf
        pace_s = COMMIT_URGENT_S if self._urgent or awaited else COMMIT_S
        return pace_s - (now_s - self._dirty_since_s)

    def begin_anew(self) -> None:
        """It was committed, or dropped."""
        self._dirty_since_s = None
        self._urgent = False
