"""A node without its processors: a real log in memory, and a state that is folded from it by a few plain rules."""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from fastapi import FastAPI

from tocsin.api.app import create_app
from tocsin.api.appender import Appender
from tocsin.api.services import ApiServices, ConfigSnapshot, WorkerSnapshot
from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Record
from tocsin.schemas.codec import decode
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import (
    Attempt,
    CancelRun,
    DeadLetter,
    JobDefinition,
    Pause,
    Queue,
    Redrive,
    Resume,
    RunEvent,
    SkipNext,
    Trigger,
)
from tocsin.schemas.rows import JobRow
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics
from tocsin.streams import cursors
from tocsin.streams.queries import (
    JobFilter,
    JobView,
    MissingPartition,
    Page,
    PartitionHealth,
    PartitionsMissing,
)

PARTITIONS = 4
NAMES = TopicNames()
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HELLO: dict[str, Any] = {"schedule": {"every": "5s"}, "target": {"http": {"url": "http://127.0.0.1:8790/ok"}}}


class TickingClock:
    """The wall moves by a millisecond at each look; waiting is real."""

    def __init__(self) -> None:
        self._looks = itertools.count()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.ahead_ms + next(self._looks)

    def monotonic_s(self) -> float:
        return SystemClock().monotonic_s()


@dataclass
class Config:
    queues: dict[str, Queue] = field(
        default_factory=lambda: {
            "default": Queue(name="default", kind="http", partitions=PARTITIONS),
            "functions": Queue(name="functions", kind="function", partitions=PARTITIONS),
        }
    )

    def snapshot(self) -> ConfigSnapshot:
        return ConfigSnapshot(partitions=PARTITIONS, queues=dict(self.queues))


class FakeState:
    """Queries. A record is applied when somebody waits for it, or at catch_up(); never while `stuck`."""

    def __init__(self, log: MemoryLog, config: Config) -> None:
        self._log = log
        self._config = config
        self._done: dict[tuple[str, int], int] = {}
        self.jobs: dict[str, JobView] = {}
        self.runs: dict[str, RunEvent] = {}
        self.dead: dict[str, DeadLetter] = {}
        self.revisions: dict[str, int] = {}
        self.stuck = False
        self.buffers = False
        """Whether runs that are triggered wait for others."""
        self.why_broken = ""
        self.partitions: list[PartitionHealth] = [
            PartitionHealth(
                partition=p,
                ready=True,
                watermark_ms=START_MS - 250,
                tick_ms=START_MS,
                jobs=0,
                open_runs=0,
                dead_letters=0,
                overdue=0,
                pending={"1s": 1, "1m": 2, "1h": 3, "1d": 4, "later": 5},
            )
            for p in range(PARTITIONS)
        ]

    # --- Queries ------------------------------------------------------------------------------------------------------

    def _require(self, key: str) -> None:
        health = self.partitions[partition_for(key.encode(), PARTITIONS)]
        if not health.ready:
            raise PartitionsMissing([_missing(health)])

    def _missing(self) -> list[MissingPartition]:
        return [_missing(each) for each in self.partitions if not each.ready]

    def _ready(self, key: str) -> bool:
        return self.partitions[partition_for(key.encode(), PARTITIONS)].ready

    def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        found = {key: self.get_job(key) for key in keys}
        return {key: view for key, view in found.items() if view is not None}

    def get_job(self, key: JobKey) -> JobView | None:
        self._require(key)
        view = self.jobs.get(key)
        return None if view is None else replace(view, row=view.row.copy())

    def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        after = cursors.job_key(cursor) if cursor else ""
        found = [
            view
            for key, view in sorted(self.jobs.items())
            if key > after and _matches(view, where) and self._ready(key)
        ]
        more = len(found) > limit
        page = found[:limit]
        return Page(items=page, next_cursor=page[-1].key if more else "", missing=self._missing())

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        runs = [run for run in reversed(self.runs.values()) if f"{run.namespace}/{run.job_id}" == key]
        start = cursors.place(cursor or "0")
        return Page(
            items=runs[start : start + limit], next_cursor=str(start + limit) if runs[start + limit :] else ""
        )

    def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        runs = reversed(self.runs.values())
        found = [r for r in runs if namespace in ("", r.namespace) and status in ("", r.status)]
        return Page(items=found[:limit], missing=self._missing())

    def get_run(self, run_id: str) -> RunEvent | None:
        self._require(run_id.replace("!", "@").partition("@")[0])
        return self.runs.get(run_id)

    def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        letters = [d for d in self.dead.values() if namespace in ("", d.run.namespace)]
        start = cursors.place(cursor or "0")
        more = letters[start + limit :]
        return Page(
            items=letters[start : start + limit],
            next_cursor=str(start + limit) if more else "",
            missing=self._missing(),
        )

    def health(self, *, figures: bool = True) -> Sequence[PartitionHealth]:
        return self.partitions

    def broken(self) -> str:
        return self.why_broken

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        future: Future[None] = Future()
        if not self.stuck:
            self._fold(topic, partition, offset)
            future.set_result(None)
        return future

    # --- the fold -----------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        for topic in (NAMES.jobs, NAMES.commands):
            for partition in range(PARTITIONS):
                self._fold(topic, partition, 1 << 60)

    def _fold(self, topic: str, partition: int, offset: int) -> None:
        start = self._done.get((topic, partition), 0)
        for stored in self._log.records(topic, partition)[start:]:
            record = stored.record
            if record.offset > offset:
                break
            self._done[topic, partition] = record.offset + 1
            self._apply(record)

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        assert partition_for(record.key, PARTITIONS) == record.partition
        value = decode(record.value)
        match value:
            case JobDefinition():
                key = f"{value.namespace}/{value.id}"
            case Trigger() | CancelRun() | Pause() | Resume() | SkipNext() | Redrive():
                key = f"{value.namespace}/{value.id}"
                if getattr(value, "after_jobs_offset", -1) >= 0:
                    self._fold(NAMES.jobs, record.partition, value.after_jobs_offset)  # type: ignore[union-attr]
            case _:
                raise AssertionError(value)
        assert key.encode() == record.key
        if isinstance(value, JobDefinition):
            self._define(key, value, record)
        elif key in self.jobs:
            self._command(key, value, record)

    def _define(self, key: str, definition: JobDefinition, record: Record) -> None:
        present = self.jobs.get(key)
        if definition.deleted:
            self.jobs.pop(key, None)
            return
        job = definition.job
        assert job is not None
        if job.queue not in self._config.queues:
            if present is None:
                row = JobRow(broken="unknown_queue")
                self.jobs[key] = self._view(key, None, row, record, definition.actor)
            return
        if present is not None and present.job is not None and _same(present.job, job):
            return
        revision = self.revisions[key] = self.revisions.get(key, 0) + 1
        old = None if present is None or present.row.broken else present.row
        row = JobRow() if old is None else old.copy()
        row.revision = revision
        row.definition_offset = record.offset
        if old is None:
            row.created_ms = record.timestamp_ms
            row.paused = job.paused
        row.armed, row.armed_nominal_ms, row.armed_due_ms = "ahead", START_MS + 5000, START_MS + 5100
        self.jobs[key] = self._view(key, job, row, record, definition.actor)

    def _view(self, key: str, job: Job | None, row: JobRow, record: Record, actor: str) -> JobView:
        return JobView(
            key=JobKey(key),
            job=job,
            row=row,
            definition_offset=record.offset,
            defined_ms=record.timestamp_ms,
            actor=actor,
        )

    def _command(self, key: str, command: Any, record: Record) -> None:
        row = self.jobs[key].row
        match command:
            case Trigger():
                run_id = f"{key}!t.{command.trigger_id}"
                if run_id not in self.runs:
                    self.put_run(run_id, "buffered" if self.buffers else "scheduled", cause="trigger")
            case CancelRun():
                if self.runs[command.run_id].status not in ("succeeded", "failed"):
                    self.runs[command.run_id] = replace(self.runs[command.run_id], status="cancelled")
            case Pause():
                row.paused, row.paused_until_ms = True, command.until_ms
                row.paused_by, row.paused_reason = command.actor, command.reason
                row.armed = "none"
            case Resume():
                row.paused, row.paused_until_ms, row.paused_by, row.paused_reason = False, 0, "", ""
            case SkipNext():
                row.skip_next = command.count
            case Redrive():
                letter = self.dead.pop(command.run_id, None)
                if letter is not None:
                    assert command.seq == letter.run.seq
                    run = self.runs[command.run_id]
                    self.runs[command.run_id] = replace(run, status="scheduled", dispatch=run.dispatch + 1)
            case _:
                raise AssertionError(command)

    # --- for tests ----------------------------------------------------------------------------------------------------

    def put_run(self, run_id: str, status: Any, *, cause: Any = "schedule", error: str = "") -> RunEvent:
        head = run_id.replace("!", "@").partition("@")[0]
        namespace, _, job_id = head.partition("/")
        attempts: tuple[Attempt, ...] = ()
        if status in ("succeeded", "failed", "running"):
            attempts = (
                Attempt(
                    attempt=1,
                    dispatch=1,
                    due_ms=START_MS,
                    dispatched_ms=START_MS - 9000,
                    started_ms=START_MS + 4,
                    ended_ms=START_MS + 90,
                    lateness_ms=4,
                    outcome=status,
                    http_status=503 if error else 200,
                    error=error,
                    worker="worker-1",
                ),
            )
        run = RunEvent(
            run_id=run_id,
            namespace=namespace,
            job_id=job_id,
            seq=len(self.runs) + 1,
            revision=1,
            cause=cause,
            nominal_ms=START_MS,
            due_ms=START_MS,
            status=status,
            event_ms=START_MS + 100,
            dispatch=1,
            attempts=attempts,
        )
        self.runs[run_id] = run
        return run

    def put_dead(self, run_id: str, error: str = "the endpoint answered 503") -> None:
        run = self.put_run(run_id, "failed", error=error)
        self.dead[run_id] = DeadLetter(run=run, died_ms=START_MS + 100)


def _missing(health: PartitionHealth) -> MissingPartition:
    return MissingPartition(
        partition=health.partition,
        reason=health.reason or "restoring",
        restore_done=health.restore_done,
        restore_total=health.restore_total,
        restore_eta_s=health.restore_eta_s,
    )


def _same(one: Job, other: Job) -> bool:
    return replace(one, paused=False) == replace(other, paused=False)


def _matches(view: JobView, where: JobFilter) -> bool:
    namespace, _, job_id = view.key.partition("/")
    labels = {} if view.job is None else dict(view.job.labels)
    state = "broken" if view.row.broken else "paused" if view.row.paused else "active"
    return (
        where.namespace in ("", namespace)
        and job_id.startswith(where.id_prefix)
        and all(labels.get(name) == value for name, value in where.labels.items())
        and where.state in ("", state)
        and (not where.failing or view.row.consecutive_failures > 0)
    )


@dataclass
class FakeNode:
    """An API over the fakes, and a client for it."""

    clock: TickingClock
    log: MemoryLog
    config: Config
    state: FakeState
    services: ApiServices
    app: FastAPI

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request, answered by the app itself."""
        return asyncio.run(self._ask(method, path, request))

    async def _ask(self, method: str, path: str, request: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            return await client.request(method, path, **request)

    def put(self, key: str, document: Mapping[str, Any] = HELLO, **params: str) -> httpx.Response:
        return self.ask("PUT", f"/v1/jobs/{key}", json=document, params={"wait": "applied", **params})

    def records(self, topic: str) -> list[Any]:
        """Every record of a topic, decoded."""
        found = [r for p in range(self.log.partitions(topic)) for r in self.log.records(topic, p)]
        return [decode(r.record.value) for r in found if r.record.value is not None]


def _create_queue_records(log: MemoryLog, config: Config) -> None:
    """Read the queues that stand on `config`, as a processor does."""
    for stored in log.records(NAMES.config, 0):
        if stored.record.value is not None:
            queue = decode(stored.record.value)
            assert isinstance(queue, Queue)
            config.queues[queue.name] = queue


@contextmanager
def fake_node(
    *,
    api_key: str = "",
    workers: Iterable[WorkerSnapshot] = (),
    within_s: float = 30.0,
    fires: bool = True,
    writable: Callable[[], str] = str,
) -> Iterator[FakeNode]:
    clock = TickingClock()
    log = MemoryLog(clock)
    config = Config()
    log.create_topics(base_topics(NAMES, PARTITIONS))
    for name in config.queues:
        log.create_topics(queue_topics(NAMES, name, PARTITIONS))
    state = FakeState(log, config)
    appender = Appender(log.producer(), clock=clock)
    appender.start()

    def snapshot() -> ConfigSnapshot:
        _create_queue_records(log, config)
        return config.snapshot()

    services = ApiServices(
        appender=appender,
        queries=state,
        clock=clock,
        config=snapshot,
        create_topics=log.create_topics,
        names=NAMES,
        queue_partitions=PARTITIONS,
        api_key=api_key,
        fires=fires,
        writable=writable,
        workers=lambda: workers,
        acknowledged_within_s=within_s,
        applied_within_s=within_s,
    )
    try:
        yield FakeNode(
            clock=clock, log=log, config=config, state=state, services=services, app=create_app(services)
        )
    finally:
        appender.stop()
