"""A queue on an in-memory log, workers whose executions end when the test says so, and what they report."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tocsin.clock import Clock, FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, Producer, TopicPartition
from tocsin.schemas.codec import decode, encode
from tocsin.schemas.job import HttpTarget
from tocsin.schemas.records import Control, DueRun, Lane, RunReport
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics
from tocsin.worker.config import CoreConfig
from tocsin.worker.core import WorkerCore
from tocsin.worker.execution import Execution, Outcome, OutcomeKind
from tocsin.worker.rules import ALL_RULES, WorkerRules

NAMES = TopicNames()
QUEUE = "default"
MINUTE_MS = 60_000


@dataclass
class FakeExecutor:
    """Executions end when the test says so; an abort ends them at once, unless they are stubborn."""

    clock: FakeClock
    slots: int = 100
    stubborn: bool = False
    started: list[Execution] = field(default_factory=list)
    executing: dict[str, Execution] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    ended: Callable[[str, Outcome], None] = lambda _, __: None

    def start(self, execution: Execution) -> None:
        self.started.append(execution)
        self.executing[execution.id] = execution

    def abort(self, execution_id: str) -> None:
        self.aborted.append(execution_id)
        if not self.stubborn:
            self.end(execution_id, "aborted")

    def capacity(self) -> int:
        return self.slots - len(self.executing)

    def end(self, execution_id: str, kind: OutcomeKind = "succeeded", **fields: Any) -> None:
        execution = self.executing.pop(execution_id, None)
        if execution is not None:
            now_ms = self.clock.now_ms()
            self.ended(execution_id, Outcome(kind=kind, started_ms=now_ms, ended_ms=now_ms, **fields))

    def only(self) -> str:
        """The id of the one execution that is going on."""
        (execution_id,) = self.executing
        return execution_id

    def runs(self) -> list[str]:
        return [execution.run.run_id for execution in self.started]


@dataclass
class Worker:
    core: WorkerCore
    executor: FakeExecutor
    log: EventLog


class World:
    """One queue with one partition, unless asked otherwise. Time passes only in `pass_time`."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog(self.clock)
        self.log.create_topics([*base_topics(NAMES, partitions), *queue_topics(NAMES, QUEUE, partitions)])
        self.producer: Producer = self.log.client("streams").producer()
        self.workers: dict[str, Worker] = {}
        self.ids = 0
        self.answer_claims = False
        self._answered = 0

    def worker(
        self, name: str = "w0", rules: WorkerRules = ALL_RULES, *, clock: Clock | None = None, **settings: Any
    ) -> Worker:
        log = self.log.client(name)
        executor = FakeExecutor(self.clock)
        core = WorkerCore(
            CoreConfig(queue=QUEUE, worker=name, **settings),
            clock or self.clock,
            log,
            executor,
            rules,
            new_id=self._new_id,
            while_waiting=self._while_waiting,
        )
        executor.ended = core.ended
        self.workers[name] = Worker(core, executor, log)
        return self.workers[name]

    def _new_id(self) -> str:
        self.ids += 1
        return f"e{self.ids}"

    def _while_waiting(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))
        self._processor()

    # --- the processor's side -----------------------------------------------------------------------------------------

    def due(self, run: DueRun, lane: Lane = "due", partition: int = 0) -> None:
        topic = NAMES.due(QUEUE) if lane == "due" else NAMES.due_now(QUEUE)
        self.producer.produce(
            topic, key=f"{run.namespace}/{run.job_id}".encode(), value=encode(run), partition=partition
        )

    def raw(self, topic: str, value: bytes, key: bytes = b"k", partition: int = 0) -> None:
        self.producer.produce(topic, key=key, value=value, partition=partition)

    def control(self, control: Control, partition: int = 0) -> None:
        self.producer.produce(
            NAMES.control(QUEUE), key=control.run_id.encode(), value=encode(control), partition=partition
        )

    def run(self, run_id: str = "ns/a@1", *, in_ms: int = 0, **fields: Any) -> DueRun:
        now_ms = self.clock.now_ms()
        namespace, _, rest = run_id.partition("/")
        run = DueRun(
            run_id=run_id,
            namespace=namespace,
            job_id=rest.partition("@")[0],
            seq=1,
            floor=0,
            dispatch=1,
            attempt=1,
            revision=1,
            cause="schedule",
            nominal_ms=now_ms + in_ms,
            due_ms=now_ms + in_ms,
            start_deadline_ms=now_ms + in_ms + 60 * MINUTE_MS,
            emitted_ms=now_ms,
            lease_ms=60_000,
            http=HttpTarget(url="http://sink.test/hook"),
        )
        return replace(run, **fields)

    def _processor(self) -> None:
        """Answers claims in control, as far as the test wants that."""
        if not self.answer_claims:
            return
        reports = self.reports()
        for report in reports[self._answered :]:
            if report.kind == "started":
                self.control(
                    Control(
                        run_id=report.run_id,
                        claimed_dispatch=report.dispatch,
                        claimed_execution=report.execution,
                        claimed_epoch=report.epoch,
                    )
                )
        self._answered = len(reports)

    # --- time -----------------------------------------------------------------------------------------------------------

    def pass_time(self, ms: int, *names: str, step_ms: int = 50) -> None:
        """Let time pass, with a pass of each named worker (all, if none is named) at each step."""
        workers = [self.workers[name] for name in names or self.workers]
        for worker in workers:
            worker.core.run_once()
        while ms > 0:
            self.clock.advance(min(step_ms, ms))
            ms -= step_ms
            for worker in workers:
                worker.core.run_once()
            self._processor()

    def crash(self, name: str) -> None:
        """kill -9 of the worker: its session lives on at the log for a while."""
        self.log.faults.crash(name)
        del self.workers[name]

    def executing(self, name: str = "w0", run_id: str = "ns/a@1", **fields: Any) -> Worker:
        """A worker that executes one run."""
        worker = self.workers.get(name) or self.worker(name)
        self.due(self.run(run_id, **fields))
        self.settle()
        self.pass_time(50)
        assert run_id in worker.executor.runs()
        return worker

    def settle(self, *names: str) -> None:
        """Enough passes for assignments, gates and commits, without time passing."""
        for _ in range(8):
            for name in names or self.workers:
                self.workers[name].core.run_once()
            self._processor()

    # --- what is on the log ---------------------------------------------------------------------------------------------

    def reports(self, *kinds: str) -> list[RunReport]:
        found = []
        for partition in range(self.log.partitions(NAMES.outcomes)):
            for stored in self.log.records(NAMES.outcomes, partition):
                if stored.record.value is not None:
                    report = decode(stored.record.value)
                    assert isinstance(report, RunReport)
                    if not kinds or report.kind in kinds:
                        found.append(report)
        return found

    def kinds(self) -> list[str]:
        return [report.kind for report in self.reports()]

    def committed(self, lane: Lane = "due", partition: int = 0) -> Any:
        topic = NAMES.due(QUEUE) if lane == "due" else NAMES.due_now(QUEUE)
        where = TopicPartition(topic, partition)
        return self.log.group_consumer(NAMES.worker_group(QUEUE), client_id="test").committed([where], 0)[
            where
        ]
