"""The figures of a node, or of one role, for Prometheus: computed when they are asked for, from a registry of their own.

Labels are bounded: partitions, queues (those in `config`), buckets of time, statuses. No job, run or URL is ever a label.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tocsin.api.asking import AskedFigures, Elsewhere
from tocsin.api.services import ApiServices, WorkerSnapshot
from tocsin.schemas.records import RunEvent
from tocsin.streams.queries import PartitionHealth, Queries

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
RECENT_RUNS: Final = 1_000
"""Runs that the quantiles of lateness look at."""
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)


def exposition(services: ApiServices) -> bytes:
    """All figures that the process of an API knows."""
    return render(_all_of(services))


def render(figures: Iterable[Metric]) -> bytes:
    """The figures as text, of the type CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(figures))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, figures: Iterable[Metric]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        """Nothing to check names against: the registry lives for one request."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._figures


def _all_of(services: ApiServices) -> Iterator[Metric]:
    queries = services.queries
    if services.fires:
        yield from processor_figures(queries, services.clock.now_ms(), services.clock_offset_ms())
    if isinstance(queries, Elsewhere):  # whom it asks has figures of its own
        yield from _asked(queries.health(), queries.figures())
    workers = list(services.workers())
    live = dict.fromkeys((name for name, q in services.config().queues.items() if not q.deleted), 0)
    for worker in workers:
        live[worker.queue] = live.get(worker.queue, 0) + worker.live
    yield from _queues(live)
    yield from worker_figures([worker for worker in workers if not worker.elsewhere])


def processor_figures(queries: Queries, now_ms: int, clock_offset_ms: int) -> Iterator[Metric]:
    """Of the partitions that `queries` answers for."""
    broken = queries.broken()
    yield _gauge("tocsin_firing", "1 if this node fires; 0: /readyz says why not", 0 if broken else 1)
    yield _gauge(
        "tocsin_clock_offset_seconds", "The processors' wall clock minus the log's", clock_offset_ms / 1000
    )
    yield from _partitions(queries.health(), now_ms)
    yield from _recent(queries.recent_runs(namespace="", status="", limit=RECENT_RUNS).items)


def _asked(health: Iterable[PartitionHealth], figures: AskedFigures) -> Iterator[Metric]:
    """Of an API process that asks processors elsewhere."""
    answers = GaugeMetricFamily(
        "tocsin_api_partition_answers", "1 if this API can ask about the partition", labels=["partition"]
    )
    for each in health:
        answers.add_metric([str(each.partition)], 1 if each.ready else 0)
    yield answers
    yield _gauge("tocsin_api_owners", "Streams processes that own partitions", figures.owners)
    yield _gauge(
        "tocsin_api_owners_unanswered", "Those of them that did not answer lately", figures.unanswered
    )
    yield _gauge("tocsin_api_waiting", "Callers that wait until something is applied", figures.waiting)
    for name, help_, value in (
        ("questions", "Questions to streams processes", figures.asked),
        ("questions_failed", "Questions that were not answered", figures.failed),
        ("question_seconds", "Time until they were answered, long polls apart", figures.seconds),
    ):
        yield CounterMetricFamily(f"tocsin_api_{name}", help_, value=value)


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _partitions(health: Iterable[PartitionHealth], now_ms: int) -> Iterator[Metric]:
    label = ["partition"]
    ready = GaugeMetricFamily(
        "tocsin_partition_ready", "1 if the partition is restored and worked on", labels=label
    )
    age = GaugeMetricFamily(
        "tocsin_watermark_age_seconds",
        "Now minus the instant up to which every occurrence has its disposition",
        labels=label,
    )
    jobs = GaugeMetricFamily("tocsin_jobs", "Jobs that are defined", labels=label)
    open_runs = GaugeMetricFamily("tocsin_open_runs", "Runs that have not ended", labels=label)
    dead = GaugeMetricFamily("tocsin_dead_letters", "Failed runs that nobody has run again", labels=label)
    overdue = GaugeMetricFamily(
        "tocsin_overdue",
        "Occurrences and retries whose instant passed more than a second ago and that were not dispatched (bounded count)",
        labels=label,
    )
    pending = GaugeMetricFamily(
        "tocsin_pending",
        "Occurrences and retries ahead, by when they are due (a bounded scan: `later` may be cut off)",
        labels=["partition", "due"],
    )
    done = GaugeMetricFamily(
        "tocsin_restore_rows_done", "Rows restored by the restore under way", labels=label
    )
    total = GaugeMetricFamily(
        "tocsin_restore_rows_total", "Rows that the restore under way has to read", labels=label
    )
    for each in health:
        name = [str(each.partition)]
        ready.add_metric(name, 1 if each.ready else 0)
        if each.watermark_ms > 0:
            age.add_metric(name, (now_ms - each.watermark_ms) / 1000)
        jobs.add_metric(name, each.jobs)
        open_runs.add_metric(name, each.open_runs)
        dead.add_metric(name, each.dead_letters)
        overdue.add_metric(name, each.overdue)
        for bucket, count in each.pending.items():
            pending.add_metric([*name, bucket], count)
        done.add_metric(name, each.restore_done)
        total.add_metric(name, each.restore_total)
    yield from (ready, age, jobs, open_runs, dead, overdue, pending, done, total)


def _recent(runs: Iterable[RunEvent]) -> Iterator[Metric]:
    """Lateness as the log has it, whichever worker it was: quantiles over the starts that were reported lately."""
    late = sorted(attempt.lateness_ms for run in runs for attempt in run.attempts[-1:] if attempt.started_ms)
    family = GaugeMetricFamily(
        "tocsin_recent_lateness_seconds",
        f"Start minus due, over the last start of the newest {RECENT_RUNS} runs",
        labels=["quantile"],
    )
    if late:
        for quantile in QUANTILES:
            index = min(len(late) - 1, int(quantile * len(late)))
            family.add_metric([str(quantile)], late[index] / 1000)
    yield family


def _queues(live: Mapping[str, int]) -> Iterator[Metric]:
    label = ["queue"]
    alive = GaugeMetricFamily(
        "tocsin_queue_workers",
        "Live workers that read the queue: of this node, or on Kafka all there are",
        labels=label,
    )
    idle = GaugeMetricFamily("tocsin_queue_without_worker", "1 if no worker reads the queue", labels=label)
    for name, count in sorted(live.items()):
        alive.add_metric([name], count)
        idle.add_metric([name], 0 if count else 1)
    yield from (alive, idle)


def worker_figures(workers: Iterable[WorkerSnapshot]) -> Iterator[Metric]:
    """Of the workers in this process."""
    label = ["queue"]
    in_flight = GaugeMetricFamily("tocsin_worker_in_flight", "Executions under way", labels=label)
    held = GaugeMetricFamily(
        "tocsin_worker_held",
        "Dispatches that have not begun: ahead of their instant, or overdue",
        labels=label,
    )
    overdue = GaugeMetricFamily(
        "tocsin_worker_held_overdue",
        "Dispatches whose instant has passed and that wait for a slot, of the worker or towards their host and port",
        labels=label,
    )
    overdue_s = GaugeMetricFamily(
        "tocsin_worker_held_overdue_seconds",
        "How long the oldest of tocsin_worker_held_overdue is past its instant",
        labels=label,
    )
    started = CounterMetricFamily("tocsin_worker_started", "Executions that have begun", labels=label)
    offset = GaugeMetricFamily(
        "tocsin_worker_clock_offset_seconds", "The worker's wall clock minus the log's", labels=label
    )
    lateness = HistogramMetricFamily(
        "tocsin_lateness_seconds", "Start of an attempt minus its due", labels=label
    )
    for worker in workers:
        queue = [worker.queue]
        in_flight.add_metric(queue, worker.in_flight)
        held.add_metric(queue, worker.held)
        overdue.add_metric(queue, worker.held_overdue)
        overdue_s.add_metric(queue, worker.held_overdue_ms / 1000)
        started.add_metric(queue, worker.started_total)
        offset.add_metric(queue, worker.clock_offset_ms / 1000)
        if worker.lateness_buckets:
            buckets = [(str(upper / 1000), float(n)) for upper, n in sorted(worker.lateness_buckets.items())]
            lateness.add_metric(
                queue,
                [*buckets, ("+Inf", float(worker.started_total))],
                sum_value=worker.lateness_sum_ms / 1000,
            )
    yield from (in_flight, held, overdue, overdue_s, started, offset, lateness)
