"""What a role says to whoever started it: what it waits for, when that changes, and when it is over."""

from typing import Final

from tocsin.clock import Clock

AGAIN_S: Final = 5.0
"""A reason that goes on changing (a restore's progress) is told this often."""
PATIENCE_S: Final = 2.0
"""A role that was ready is given this long to recover in silence: a rebalance takes a moment and is no news."""


class Narrator:
    """Makes lines out of the answers to one question, asked again and again: why is it not ready ("": it is)?"""

    def __init__(self, role: str, clock: Clock) -> None:
        self._role = role
        self._clock = clock
        self._was_ready = False
        self._told = ""
        self._told_s = 0.0
        self._told_degraded = False
        """Whether what was told last was that it is degraded: ready all the while, for whoever asks /readyz."""
        self._since_s: float | None = None
        """Since when it is not ready."""

    def line(self, reason: str, *, degraded: bool = False) -> str:
        """What to say now; "" for nothing. `degraded`: it does its own part, and others do not do theirs."""
        now_s = self._clock.monotonic_s()
        if not reason:
            return self._ready()
        if self._since_s is None:
            self._since_s = now_s
        patience_s = PATIENCE_S if self._was_ready else 0.0
        if reason == self._told or now_s - self._since_s < patience_s:
            return ""
        if self._told and now_s - self._told_s < AGAIN_S:
            return ""
        self._told, self._told_s, self._told_degraded = reason, now_s, degraded
        return f"Tocsin {self._role} is {'degraded' if degraded else 'not ready'}: {reason}"

    def _ready(self) -> str:
        told, was_ready = self._told, self._was_ready
        self._told, self._since_s, self._was_ready = "", None, True
        if not was_ready:
            return f"Tocsin {self._role} is ready"
        if not told:
            return ""
        return f"Tocsin {self._role} is {'whole' if self._told_degraded else 'ready'} again"
