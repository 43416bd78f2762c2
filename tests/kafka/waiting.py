"""Waiting on a signal, with a limit that is never a measure: a noisy machine may need minutes for what takes seconds."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import httpx

from tocsin.clock import SystemClock
from tocsin.log.port import LogUnavailable

T = TypeVar("T")

WITHIN_S: Final = 240.0
LOOK_EVERY_S: Final = 0.05


def until(
    ask: Callable[[], T],
    what: str | Callable[[], str],
    within_s: float = WITHIN_S,
    *,
    every_s: float = LOOK_EVERY_S,
) -> T:
    """The first answer that is true. Whoever does not answer at the moment is asked again."""
    pause, clock = threading.Event(), SystemClock()
    end_s = clock.monotonic_s() + within_s
    trouble = ""
    while clock.monotonic_s() < end_s:
        try:
            if answer := ask():
                return answer
            trouble = ""
        except (httpx.TransportError, LogUnavailable) as error:
            trouble = f" (last: {type(error).__name__}: {error})"
        pause.wait(every_s)
    said = what if isinstance(what, str) else what()
    raise AssertionError(f"not within {within_s:.0f} s: {said}{trouble}")


def pass_time(seconds: float) -> None:
    """Let load go on for a while: part of a scenario, never a way to wait for something."""
    threading.Event().wait(seconds)
