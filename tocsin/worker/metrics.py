"""What a worker counts, as plain numbers that anybody may read while it runs."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

LATENESS_BOUNDS_MS: Final = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000, 3_600_000,
)  # fmt: skip


class Histogram:
    """Counts below each bound (inclusive), and above all of them."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENESS_BOUNDS_MS) + 1)
        self.sum_ms = 0

    def observe(self, ms: int) -> None:
        self.counts[bisect_left(LATENESS_BOUNDS_MS, ms)] += 1
        self.sum_ms += ms

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True, kw_only=True)
class WorkerMetrics:
    """Of one queue. Written by the core's thread alone."""

    lateness: Histogram = field(default_factory=Histogram)
    started: int = 0
    succeeded: int = 0
    accepted: int = 0
    """Left to endpoints that answered 202 with a lease."""
    failed: int = 0
    aborted: int = 0
    not_begun: int = 0
    """Handed back by the executor, because their partition could have been lost before they began (W8)."""
    claims: int = 0
    dropped: int = 0
    cancelled: int = 0
    expired: int = 0
    finished_silently: int = 0
    """Settled elsewhere (P8), or superseded by a later record (W7)."""
    lost: int = 0
    """Executions that were aborted because their partition was lost."""
    quarantined: int = 0
    commits: int = 0
    commits_failed: int = 0
    reports: int = 0
    reports_again: int = 0
    """Reports that the log did not take at first."""
    in_flight: int = 0
    held: int = 0
    held_bytes: int = 0
    held_overdue: int = 0
    """Held although their instant has passed: no slot is free, or none towards their host and port."""
    held_overdue_since_ms: int = 0
    """The due instant of the oldest of these; 0: there is none."""
    joined: bool = False
    """Whether the group has taken this worker in, be it that no partition is left for it."""
    partitions: int = 0
    partitions_open: int = 0
    """Whose gates are passed and whose membership is fresh, so that runs may start."""
    clock_offset_ms: int = 0
    clock_off: bool = False
