"""The composition root of `tocsin worker`: the log, a worker for each queue, and its health."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tocsin.api import metrics
from tocsin.api.ops import create_ops_app
from tocsin.cli.failures import EXIT_INPUT, Failure, called
from tocsin.cli.roles.cluster import Following, OpenLog, Pulse
from tocsin.cli.roles.process import Process
from tocsin.cli.roles.serving import Front
from tocsin.cli.roles.snapshots import snapshots
from tocsin.clock import Clock
from tocsin.log.port import EventLog
from tocsin.schemas.callbacks import Callbacks
from tocsin.schemas.records import Queue
from tocsin.schemas.topics import TopicNames
from tocsin.worker.config import WorkerConfig
from tocsin.worker.egress import EgressPolicy
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.service import Worker

TELL_EVERY_S: Final = 5.0
"""How often a drain says what it still waits for."""
JOIN_S: Final = 0.1

QueueKind = Literal["http", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRoleConfig:
    """What `tocsin worker` is started with."""

    worker: str
    names: TopicNames
    open_log: OpenLog
    queues: tuple[str, ...] = ("default",)
    every_queue_of: frozenset[QueueKind] = frozenset()
    """Instead of `queues`: every queue of these kinds, those that are created later too."""
    functions: bool = False
    """Whether @function callables were registered."""
    concurrency: int = 256
    drain_s: float = 30.0
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    clock_offset_max_ms: int | None = 500
    secrets: Path | None = None
    callback_url: str = ""
    """Where endpoints of long runs reach the API; "": a run may not outlast its request."""
    secret: str = ""
    """What callback URLs are signed with, given from outside; "": the cluster's own."""


class WorkerRole:
    """Implements process.Role."""

    name = "worker"

    def __init__(self, config: WorkerRoleConfig, process: Process, front: Front, clock: Clock) -> None:
        self.drain_s = config.drain_s
        self._config = config
        self._process = process
        self._front = front
        self._clock = clock
        self._log: EventLog | None = None
        self._pulse: Pulse | None = None
        self._following: Following | None = None
        self._workers: dict[str, tuple[Worker, threading.Thread]] = {}

    def start(self) -> None:
        config = self._config
        log = self._log = config.open_log()
        self._process.begin("it reads the configuration")
        self._following = Following(log, config.names)
        self._pulse = Pulse(log, config.names, self._clock)
        wanted = self._wanted()
        self._front.app = create_ops_app(
            lambda: self._process.reason,
            self._status,
            lambda: metrics.render(metrics.worker_figures(self._snapshots())),
        )
        for queue in wanted:
            self._serve(queue)

    def look(self) -> str:
        assert self._pulse is not None
        trouble = self._pulse.trouble()
        if trouble:
            return trouble
        if self._config.every_queue_of:
            self._look_for_queues()
        reasons = (self._obstacle(queue, counted) for queue, counted in self._metrics().items())
        return next(filter(None, reasons), "")

    def stop(self) -> None:
        workers = list(self._workers.values())
        for worker, _ in workers:
            worker.stop()
        self._await([thread for _, thread in workers])
        self._workers.clear()
        if self._following is not None:
            self._following.close()
            self._following = None
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- queues

    def _wanted(self) -> list[str]:
        """The queues to begin with. A Failure for one that cannot be served: it would look healthy and do nothing."""
        assert self._following is not None
        known = {name: queue for name, queue in self._following.current.queues.items() if not queue.deleted}
        if self._config.every_queue_of:
            return [name for name, queue in known.items() if queue.kind in self._config.every_queue_of]
        problems = [problem for name in self._config.queues if (problem := self._problem(name, known))]
        if problems:
            raise Failure("; ".join(problems), exit_code=EXIT_INPUT)
        return list(self._config.queues)

    def _problem(self, name: str, known: Mapping[str, Queue]) -> str:
        queue = known.get(name)
        if queue is None:
            there = ", ".join(sorted(known)[:20]) or "none"
            return (
                f"there is no queue {name!r} (there are: {there}); create it first with "
                f"`{called()} queues create {name} --kind http` (or function)"
            )
        if queue.kind == "function" and not self._config.functions:
            return f"queue {name!r} holds functions: name the modules that have them with --functions"
        return ""

    def _look_for_queues(self) -> None:
        assert self._following is not None
        self._following.poll(self._clock.monotonic_s())
        for queue in self._wanted():
            if queue not in self._workers and not self._process.stopping.is_set():
                self._serve(queue)

    def _serve(self, queue: str) -> None:
        assert self._log is not None
        config = self._config
        worker = Worker(
            WorkerConfig(
                worker=config.worker,
                queues=(queue,),
                concurrency=config.concurrency,
                topics=config.names,
                drain_s=config.drain_s,
                clock_offset_max_ms=config.clock_offset_max_ms,
                egress=config.egress,
                secrets=config.secrets,
                callbacks=self._callbacks(),
            ),
            self._clock,
            self._log,
        )
        self._workers[queue] = (worker, self._process.thread(f"tocsin-worker-{queue}", worker.run))

    def _callbacks(self) -> Callbacks | None:
        assert self._following is not None
        config = self._config
        secret = config.secret or self._following.current.cluster.secret
        return Callbacks(config.callback_url, secret) if config.callback_url and secret else None

    # --- the end

    def _await(self, threads: list[threading.Thread]) -> None:
        """Until all have drained, saying from time to time what they wait for."""
        begun_s = told_s = self._clock.monotonic_s()
        told = False
        while any(thread.is_alive() for thread in threads):
            in_flight = sum(counted.in_flight for counted in self._metrics().values())
            now_s = self._clock.monotonic_s()
            if in_flight and not told:
                told = True
                limit = f"waiting up to {self.drain_s:.0f} s for {in_flight} runs in flight"
                self._process.tell(f"Tocsin worker is stopping: {limit}")
            elif in_flight and now_s - told_s >= TELL_EVERY_S:
                told_s = now_s
                left_s = max(0.0, begun_s + self.drain_s - now_s)
                self._process.tell(
                    f"Tocsin worker is stopping: {in_flight} runs in flight, {left_s:.0f} s left"
                )
            next(thread for thread in threads if thread.is_alive() or thread is threads[-1]).join(JOIN_S)

    # --- what is told

    def _metrics(self) -> dict[str, WorkerMetrics]:
        found: dict[str, WorkerMetrics] = {}
        for worker, _ in list(self._workers.values()):
            found.update(worker.metrics)
        return found

    def _snapshots(self) -> Iterator[Any]:
        return snapshots(self._metrics(), self._clock.now_ms())

    def _obstacle(self, queue: str, counted: WorkerMetrics) -> str:
        """Why nothing of this queue can start here."""
        if counted.clock_off:
            return (
                f"this machine's clock is {counted.clock_offset_ms / 1000:+.1f} s off the log's, and nothing starts "
                "until it is within half a second: set it right (NTP)"
            )
        if not counted.joined:
            return f"queue {queue}: it is joining the group of its workers"
        if counted.partitions and not counted.partitions_open:
            return f"queue {queue}: none of the {counted.partitions} partitions held may start runs yet"
        return ""

    def _status(self) -> Mapping[str, Any]:
        queues = [
            {
                "queue": queue,
                "joined": counted.joined,
                "partitions": counted.partitions,
                "partitions_open": counted.partitions_open,
                "in_flight": counted.in_flight,
                "held": counted.held,
                "held_overdue": counted.held_overdue,
                "clock_offset_ms": counted.clock_offset_ms,
            }
            for queue, counted in self._metrics().items()
        ]
        return {"role": self.name, "worker": self._config.worker, "queues": queues}
