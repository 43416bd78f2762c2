"""The wall clock, held against what can be trusted more: the log's clock, or else the clock that never steps.

Firing by a clock that is an hour off is worse than firing late. And a tick's time can never go back, so an hour that was
journaled once is an hour in which the partition stands still, whoever owns it next. So nothing fires by a wall clock that
is more than STEP_MS off, and no tick takes its time from one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from tocsin.clock import Clock

STEP_MS: Final = 5_000
"""Time services slew by far less between two looks; daylight saving does not touch the epoch."""
STEADY_S: Final = 60.0
JITTER_MS: Final = 500
MEASURED_WITHIN_MS: Final = 5_000
"""An answer that took longer may prove that a clock is off, but not that it is right."""

ClockMode = Literal["guarded", "wall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What time it is taken to be, and why nothing may fire at the moment ("": it may)."""

    now_ms: int
    held: str = ""


class Guard(Protocol):
    """Reads the clock for the loop, and learns from every commit."""

    @property
    def offset_ms(self) -> int:
        """How far the wall clock is off the log's, as far as that is proven (positive: ahead)."""
        ...

    def read(self) -> Reading: ...

    def measured(self, stamps_ms: Iterable[int], sent_s: float) -> None:
        """The log has just answered, and put these times (by its own clocks) on records sent at `sent_s`, steady clock."""
        ...


def guard_for(clock: Clock, mode: ClockMode, *, log_has_clock: bool) -> Guard:
    """`log_has_clock`: the log's timestamps come from another machine than this one, or may."""
    if mode == "wall":
        return WallClock(clock)
    return LogClockGuard(clock) if log_has_clock else ClockGuard(clock)


def offset_of(wall_ms: int, took_ms: int, stamps_ms: Iterable[int]) -> tuple[int, int]:
    """How far the wall clock is off the nearest of the stamps, and that stamp.

    A stamp was put on at some instant of the `took_ms` before `wall_ms`: one from within says nothing against the wall.
    Several machines put their stamps on; if one of them is wrong, those that agree with us count.
    """
    offsets = []
    for stamp_ms in stamps_ms:
        ahead_ms = wall_ms - took_ms - stamp_ms
        behind_ms = wall_ms - stamp_ms
        offsets.append((ahead_ms if ahead_ms > 0 else min(behind_ms, 0), stamp_ms))
    return min(offsets, key=lambda each: (abs(each[0]), each))


@dataclass(slots=True)
class WallClock:
    """Believes the wall clock always: `--clock wall`."""

    clock: Clock
    offset_ms: int = 0

    def read(self) -> Reading:
        return Reading(now_ms=self.clock.now_ms())

    def measured(self, stamps_ms: Iterable[int], sent_s: float) -> None:
        took_ms = round((self.clock.monotonic_s() - sent_s) * 1000)
        self.offset_ms, _ = offset_of(self.clock.now_ms(), took_ms, stamps_ms)


@dataclass(slots=True)
class LogClockGuard:
    """Believes the wall clock as long as the log's clock agrees, and it has not stepped since the last time that it did.

    While it does not, time is the log's as of the last answer, carried on by the steady clock: so what comes in can be
    applied, by a time that is never ahead.
    """

    clock: Clock
    offset_ms: int = 0
    _agreed_ms: int | None = None
    """Wall minus steady clock, as of the last answer that agreed with the wall. None: the last one did not."""
    _log_ms: int | None = None
    """The log's clock minus the steady clock, at the least. None: nothing was answered yet."""

    def read(self) -> Reading:
        wall_ms = self.clock.now_ms()
        steady_ms = round(self.clock.monotonic_s() * 1000)
        if self._log_ms is None:
            return Reading(now_ms=0, held="the wall clock was not compared with the log's yet")
        if self._agreed_ms is None:
            if abs(self.offset_ms) <= STEP_MS:
                held = "the log took too long to answer to compare the wall clock with its own"
            else:
                way = "ahead of" if self.offset_ms > 0 else "behind"
                held = (
                    f"the wall clock is {abs(self.offset_ms) / 1000:.1f} s {way} the log's: nothing fires until they agree "
                    f"within {STEP_MS // 1000} s. Set the clock of this machine (or that of the brokers); start with "
                    "--clock wall to believe this one"
                )
            return Reading(now_ms=steady_ms + self._log_ms, held=held)
        moved_ms = wall_ms - steady_ms - self._agreed_ms
        if abs(moved_ms) > STEP_MS:
            return Reading(
                now_ms=steady_ms + self._agreed_ms,
                held=f"the wall clock stepped by {moved_ms / 1000:.1f} s: nothing fires until it was compared with the "
                "log's clock again (start with --clock wall to believe it at once)",
            )
        return Reading(now_ms=wall_ms)

    def measured(self, stamps_ms: Iterable[int], sent_s: float) -> None:
        steady_s = self.clock.monotonic_s()
        wall_ms = self.clock.now_ms()
        took_ms = round((steady_s - sent_s) * 1000)
        self.offset_ms, stamp_ms = offset_of(wall_ms, took_ms, stamps_ms)
        self._log_ms = stamp_ms - round(steady_s * 1000)
        if abs(self.offset_ms) > STEP_MS:
            self._agreed_ms = None
        elif took_ms <= MEASURED_WITHIN_MS:
            self._agreed_ms = wall_ms - round(steady_s * 1000)


@dataclass(slots=True)
class ClockGuard:
    """For a log that takes its time from this very machine: a step of the wall clock by more than STEP_MS holds firing
    until the clock was steady for STEADY_S, or has come back."""

    clock: Clock
    offset_ms: int = 0
    _trusted_ms: int | None = None
    """Wall minus steady clock, as last believed."""
    _stepped_ms: int = 0
    _since_s: float = 0.0
    _held: bool = field(default=False)

    def measured(self, stamps_ms: Iterable[int], sent_s: float) -> None:
        """It is the same clock."""

    def read(self) -> Reading:
        wall_ms = self.clock.now_ms()
        steady_s = self.clock.monotonic_s()
        offset_ms = wall_ms - round(steady_s * 1000)
        if self._trusted_ms is None:
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
