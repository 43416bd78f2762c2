"""The wall clock, held against the clock that never steps.

Firing by a clock that is an hour off is worse than firing late. So a step of the wall clock by more than STEP_MS
holds firing until the clock was steady for STEADY_S, or has come back.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from tocsin.clock import Clock

STEP_MS: Final = 5_000
"""Time services slew by far less between two looks; daylight saving does not touch the epoch."""
STEADY_S: Final = 60.0
JITTER_MS: Final = 500

ClockMode = Literal["guarded", "wall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What time it is taken to be, and why nothing may fire at the moment ("": it may)."""

    now_ms: int
    held: str = ""


@dataclass(slots=True)
class ClockGuard:
    """Reads the wall clock for the loop. Mode "wall" believes it always."""

    clock: Clock
    mode: ClockMode = "guarded"
    _trusted_ms: int | None = None
    """Wall minus steady clock, as last believed."""
    _stepped_ms: int = 0
    _since_s: float = 0.0
    _held: bool = field(default=False)

    def read(self) -> Reading:
        wall_ms = self.clock.now_ms()
        steady_s = self.clock.monotonic_s()
        offset_ms = wall_ms - round(steady_s * 1000)
        if self._trusted_ms is None or self.mode == "wall":
            self._trusted_ms = offset_ms
            return Reading(now_ms=wall_ms)
        moved_ms = offset_ms - self._trusted_ms
        if not self._held and abs(moved_ms) <= STEP_MS:
            self._trusted_ms = offset_ms
            return Reading(now_ms=wall_ms)
        if abs(moved_ms) <= JITTER_MS:
            self._held = False  # it has come back
            self._trusted_ms = offset_ms
            return Reading(now_ms=wall_ms)
        if not self._held or abs(offset_ms - self._stepped_ms) > JITTER_MS:
            self._held = True
            self._stepped_ms = offset_ms
            self._since_s = steady_s
        left_s = STEADY_S - (steady_s - self._since_s)
        if left_s <= 0:
            self._held = False
            self._trusted_ms = offset_ms
            return Reading(now_ms=wall_ms)
        return Reading(
            now_ms=round(steady_s * 1000) + self._trusted_ms,
            held=f"the wall clock stepped by {moved_ms / 1000:.1f} s: nothing fires until it was steady for {left_s:.0f} s "
            "more (start with --clock wall to believe it at once)",
        )
