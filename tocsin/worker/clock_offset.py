"""How far this machine's wall clock is from the log's (a worker starts nothing beyond half a second).

Kept as a relation between the log's clock and the monotonic one: a step of the wall clock shows at once, without a
further answer of the log, and so does its repair.
"""

from typing import Final

from tocsin.clock import Clock

BETTER_AFTER_S: Final = 10.0
"""A less exact sample replaces one that is older than this: the clocks drift apart by up to 0.5 ms each second."""

STALE_AFTER_S: Final = 60.0
"""A worker that is held back writes no reports and gets no samples: after this time the records that it reads may
show that the clocks agree again."""


ASK_AFTER_S: Final = 5.0
"""A worker that starts nothing because of an estimate older than this asks the log anew, by a record that says nothing:
else, with nothing to report and nothing new to read, it would believe in a step that was long repaired."""


class ClockOffset:
    """Wall clock minus the log's clock, estimated from delivery reports and bounded by the records that are read."""

    __slots__ = (
        "_asked_s",
        "_clock",
        "_error_ms",
        "_limit_ms",
        "_log_minus_monotonic_ms",
        "_newest_read",
        "_read_s",
        "_sampled_s",
    )

    def __init__(self, clock: Clock, limit_ms: int | None) -> None:
        """limit_ms None: the log takes its time from this machine's wall clock, so there is nothing to compare."""
        self._clock = clock
        self._limit_ms = limit_ms
        self._log_minus_monotonic_ms: float | None = None
        self._error_ms = 0.0
        self._sampled_s = float("-inf")
        self._newest_read: float | None = None
        self._read_s = 0.0
        self._asked_s = float("-inf")

    def delivered(self, sent_s: float, timestamp_ms: int) -> None:
        """The log has stamped a record `timestamp_ms` somewhen between `sent_s` (monotonic) and now."""
        now_s = self._clock.monotonic_s()
        error_ms = (now_s - sent_s) * 500
        known = self._log_minus_monotonic_ms is not None
        if known and error_ms > self._error_ms * 1.5 and now_s - self._sampled_s < BETTER_AFTER_S:
            return
        self._log_minus_monotonic_ms = timestamp_ms - (sent_s + now_s) * 500
        self._error_ms = error_ms
        self._sampled_s = now_s

    def read(self, timestamp_ms: int) -> None:
        """A record with this timestamp was read: the log's clock is at least there."""
        now_s = self._clock.monotonic_s()
        self._newest_read = timestamp_ms - now_s * 1000
        self._read_s = now_s
        if self._limit_ms is not None and now_s - self._sampled_s > STALE_AFTER_S:
            ahead_ms = self._clock.now_ms() - timestamp_ms
            if -self._limit_ms <= ahead_ms <= self._limit_ms:
                self._log_minus_monotonic_ms = None

    def is_old(self) -> bool:
        """Whether the estimate should be made anew, if nothing else does it."""
        return self._clock.monotonic_s() - max(self._sampled_s, self._asked_s) > ASK_AFTER_S

    def asked(self) -> None:
        """A record is on its way whose delivery will be a sample."""
        self._asked_s = self._clock.monotonic_s()

    def is_unknown(self) -> bool:
        """Whether the log has never said what time it is."""
        return self._limit_ms is not None and self._sampled_s == float("-inf")

    def offset_ms(self) -> int:
        """0 while nothing is known."""
        if self._limit_ms is None or self._log_minus_monotonic_ms is None:
            return 0
        log_ms = self._clock.monotonic_s() * 1000 + self._log_minus_monotonic_ms
        return round(self._clock.now_ms() - log_ms)

    def is_off(self) -> bool:
        """Whether the wall clock is certainly further from the log's than is allowed."""
        if self._limit_ms is None:
            return False
        if abs(self.offset_ms()) - self._error_ms > self._limit_ms:
            return True
        if self._newest_read is None or self._clock.monotonic_s() - self._read_s > STALE_AFTER_S:
            return False
        if self._log_minus_monotonic_ms is not None and self._sampled_s > self._read_s:
            return False  # the newer answer says more: the log's own clock may have been stepped back
        log_at_least_ms = self._clock.monotonic_s() * 1000 + self._newest_read
        return self._clock.now_ms() - log_at_least_ms < -self._limit_ms
