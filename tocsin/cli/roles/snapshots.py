"""What the workers of this process count, in the shape that the API and /metrics show it."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from tocsin.api.services import WorkerSnapshot
from tocsin.worker.metrics import LATENESS_BOUNDS_MS, WorkerMetrics


def snapshots(metrics: Mapping[str, WorkerMetrics], now_ms: int) -> Iterator[WorkerSnapshot]:
    """One for each queue."""
    for queue, counted in metrics.items():
        since_ms = counted.held_overdue_since_ms
        yield WorkerSnapshot(
            queue=queue,
            live=int(counted.partitions > 0),
            in_flight=counted.in_flight,
            held=counted.held,
            held_overdue=counted.held_overdue,
            held_overdue_ms=max(0, now_ms - since_ms) if since_ms else 0,
            started_total=counted.started,
            lateness_sum_ms=counted.lateness.sum_ms,
            lateness_buckets=dict(zip(LATENESS_BOUNDS_MS, accumulate(counted.lateness.counts), strict=False)),
            clock_offset_ms=counted.clock_offset_ms,
        )
