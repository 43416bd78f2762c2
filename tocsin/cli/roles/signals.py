"""SIGINT and SIGTERM: the first one stops a process in order, the second one at once."""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

from tocsin.clock import Clock

ECHO_S: Final = 0.3
"""What stops a process may signal its group as well (`timeout`, systemd): a second signal so soon is the first one."""


class StopSignals:
    """Handlers for both. Nothing here takes a lock: the thread that is interrupted may hold it."""

    def __init__(
        self,
        clock: Clock,
        ask_to_stop: Callable[[], object],
        *,
        at_once: Callable[[], None] = lambda: None,
        supervised: bool = False,
    ) -> None:
        """`at_once`: what is still to be done at the second signal. `supervised`: there is a parent to decide that; Ctrl-C
        is for it, and so is to have the patience."""
        self._clock = clock
        self._ask_to_stop = ask_to_stop
        self._at_once = at_once
        self._supervised = supervised
        self._asked_s: float | None = None
        self.interrupted = False
        """Whether it was SIGINT: the exit code says so."""

    def install(self) -> None:
        """On the main thread."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._supervised else self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        now_s = self._clock.monotonic_s()
        if self._asked_s is None:
            self._asked_s = now_s
            self.interrupted = number == signal.SIGINT
            self._ask_to_stop()
        elif not self._supervised and now_s - self._asked_s >= ECHO_S:
            try:
                self._at_once()
                # Not print(): what was interrupted may have been printing, too.
                os.write(1, b"stopped at once: what was in flight is executed again at the next start\n")
            finally:
                os._exit(128 + number)
