"""Time and chance: the one module that may ask the machine for either.

Everything else receives a :class:`Clock` (and ids made here), so that a test or a replay decides what time it is.
"""

import time
import uuid
from typing import NewType, Protocol

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since the epoch, UTC."""


class Clock(Protocol):
    """What the time is, by two clocks that must not be mixed."""

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch, UTC. It can step, in both directions."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary instant. Never steps back, and counts the time that the machine was suspended."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # CLOCK_MONOTONIC stops while a machine is suspended, CLOCK_BOOTTIME (Linux) does not. Where there is no
    # CLOCK_BOOTTIME (macOS), CLOCK_MONOTONIC itself counts suspension.
    def monotonic_s(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class FakeClock:
    """A clock that moves only when it is told to; the wall clock can also be stepped, back and forth."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:  # 2026-01-01T00:00:00Z
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError(f"time does not run backwards: advance({ms}); step_wall() sets the wall clock")
        self._wall_ms += ms
        self._monotonic_ms += ms

    def step_wall(self, ms: int) -> None:
        """Step the wall clock by `ms` (negative: back) without any time passing."""
        self._wall_ms += ms


def new_id() -> str:
    """A random id of 32 hexadecimal digits, unique among all that were ever made."""
    return uuid.uuid4().hex
