"""The worker as a service: real threads, a real event loop, a real endpoint, an in-memory log."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from tests.unit.worker.endpoints import LIMIT_S, RUN, Endpoint, Handler, endpoint, no_lookup, ok
from tocsin.client.functions import FunctionContext, FunctionRegistry
from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import LogUnavailable, Record, TopicPartition, UnknownTopic
from tocsin.schemas.codec import decode, encode
from tocsin.schemas.job import FunctionTarget, HttpTarget
from tocsin.schemas.records import RunReport
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics
from tocsin.worker.config import WorkerConfig
from tocsin.worker.core import WorkerCore, WorkerPass
from tocsin.worker.egress import EgressPolicy
from tocsin.worker.service import Worker

pytestmark = pytest.mark.asyncio

NAMES = TopicNames()


@dataclass
class Node:
    """A worker that serves, and the log it serves from."""

    log: MemoryLog
    worker: Worker
    thread: threading.Thread

    def due(self, queue: str, run_id: str, **fields: object) -> None:
        now_ms = SystemClock().now_ms()
        run = replace(
            RUN, run_id=run_id, dispatch=1, attempt=1, due_ms=now_ms, start_deadline_ms=now_ms + 600_000
        )
        run = replace(run, **fields)  # type: ignore[arg-type]
        self.log.client("streams").producer().produce(
            NAMES.due(queue), key=b"k", value=encode(run), partition=0
        )

    async def reports(self, until: Callable[[list[RunReport]], bool]) -> list[RunReport]:
        """What is reported, once it satisfies the condition."""

        def follow() -> list[RunReport]:
            reader = self.log.reader()
            reader.assign({TopicPartition(NAMES.outcomes, 0): 0})
            found: list[RunReport] = []
            clock = SystemClock()
            deadline_s = clock.monotonic_s() + LIMIT_S
            while not until(found):
                assert clock.monotonic_s() < deadline_s, f"only {found}"
                reports = [_report(record) for record in reader.poll(100, 0.5)]
                found += [each for each in reports if each.run_id]  # the one without asks what time it is
            return found

        return await asyncio.to_thread(follow)

    async def stop(self) -> None:
        self.worker.stop()
        self.worker.stop()
        await asyncio.to_thread(self.thread.join, LIMIT_S)
        assert not self.thread.is_alive()


def _report(record: Record) -> RunReport:
    report = decode(record.value or b"")
    assert isinstance(report, RunReport)
    return report


@asynccontextmanager
async def node(
    functions: FunctionRegistry | None = None, queues: tuple[str, ...] = ("default",), drain_s: float = 30
) -> AsyncIterator[Node]:
    clock = SystemClock()
    log = MemoryLog(clock)
    topics = [*base_topics(NAMES, 1)]
    for queue in queues:
        topics += queue_topics(NAMES, queue, 1)
    log.create_topics(topics)
    worker = Worker(
        WorkerConfig(worker="w", queues=queues, drain_s=drain_s, egress=EgressPolicy(allow_loopback=True)),
        clock,
        log.client("w"),
        functions=functions or FunctionRegistry(),
        lookup=no_lookup,
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    running = Node(log, worker, thread)
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def node_and_sink(handler: Handler = ok) -> AsyncIterator[tuple[Node, Endpoint]]:
    async with endpoint(handler) as sink, node() as running:
        yield running, sink


async def test_a_log_that_stays_away_is_complained_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tocsin.worker.service.UNAVAILABLE_WAIT_S", 0.0)
    tried = threading.Event()
    passes = 0

    def unavailable(_: WorkerCore) -> WorkerPass:
        nonlocal passes
        passes += 1
        if passes == 20:
            tried.set()
        if passes <= 20:
            raise LogUnavailable("nobody is there")
        return WorkerPass()

    monkeypatch.setattr(WorkerCore, "run_once", unavailable)
    async with node():
        assert await asyncio.to_thread(tried.wait, LIMIT_S)
    complaints = [record for record in caplog.records if "nobody is there" in record.message]
    assert ["WARNING"] == [record.levelname for record in complaints]


async def test_a_due_run_reaches_its_endpoint_and_is_reported() -> None:
    async with node_and_sink() as (running, sink):
        running.due("default", "billing/send@1", http=HttpTarget(url=sink.url))
        (report,) = await running.reports(bool)
    assert ("succeeded", 200, "done", "w") == (
        report.kind,
        report.http_status,
        report.response,
        report.worker,
    )
    assert "billing/send@1" == sink.only.headers["webhook-id"]
    assert report.lateness_ms >= 0


async def test_nothing_starts_before_its_instant() -> None:
    async with node_and_sink() as (running, sink):
        clock = SystemClock()
        due_ms = clock.now_ms() + 300
        running.due("default", "billing/send@1", http=HttpTarget(url=sink.url), due_ms=due_ms)
        (report,) = await running.reports(bool)
    assert report.started_ms >= due_ms


async def test_a_worker_serves_several_queues_and_both_kinds_of_target() -> None:
    functions = FunctionRegistry()
    functions.register(lambda day: f"sent {day}", "send")
    async with endpoint() as sink, node(functions, ("default", "functions")) as running:
        running.due("default", "billing/a@1", http=HttpTarget(url=sink.url))
        target = FunctionTarget(name="send", arguments=b'{"day":"mon"}')
        running.due("functions", "billing/b@1", function=target)
        reports = await running.reports(lambda found: len(found) == 2)
        metrics = running.worker.metrics
    assert {("billing/a@1", "done"), ("billing/b@1", "'sent mon'")} == {
        (r.run_id, r.response) for r in reports
    }
    assert (1, 1) == (metrics["default"].succeeded, metrics["functions"].succeeded)


async def test_a_stop_lets_executions_end() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def slow(request: object) -> object:
        arrived.set()
        await release.wait()
        return await ok(request)  # type: ignore[arg-type]

    async with node_and_sink(slow) as (running, sink):  # type: ignore[arg-type]
        running.due("default", "billing/send@1", http=HttpTarget(url=sink.url))
        await asyncio.wait_for(arrived.wait(), LIMIT_S)
        running.worker.stop()
        running.due("default", "billing/next@1", http=HttpTarget(url=sink.url))
        release.set()
        reports = await running.reports(lambda found: any(r.kind == "succeeded" for r in found))
        await running.stop()
    assert {"billing/send@1"} == {r.run_id for r in reports}
    assert "succeeded" == reports[-1].kind
    assert 1 == len(sink.received)


async def test_a_stop_does_not_wait_longer_than_the_drain() -> None:
    begun = threading.Event()

    def patient(context: FunctionContext) -> None:
        begun.set()
        context.wait_cancelled(LIMIT_S)

    functions = FunctionRegistry()
    functions.register(patient)
    async with node(functions, drain_s=0) as running:
        running.due("default", "billing/send@1", function=FunctionTarget(name="patient"))
        assert await asyncio.to_thread(begun.wait, LIMIT_S)
        await running.stop()
        (report,) = await running.reports(bool)
    assert ("failed", True) == (report.kind, report.retryable)
    assert "worker_stopped" in report.error


async def test_a_queue_that_does_not_exist_is_named() -> None:
    log = MemoryLog(SystemClock())
    with pytest.raises(UnknownTopic, match="the queue missing does not exist"):
        Worker(WorkerConfig(worker="w", queues=("missing",)), SystemClock(), log)


async def test_what_a_queue_cannot_survive_stops_the_worker_and_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SystemClock()
    log = MemoryLog(clock)
    log.create_topics(
        [*base_topics(NAMES, 1), *queue_topics(NAMES, "default", 1), *queue_topics(NAMES, "other", 1)]
    )
    worker = Worker(WorkerConfig(worker="w", queues=("default", "other")), clock, log, lookup=no_lookup)

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(worker._served["other"].core, "run_once", broken)
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(worker.run)


async def test_a_worker_can_be_stopped_before_it_runs() -> None:
    clock = SystemClock()
    log = MemoryLog(clock)
    log.create_topics([*base_topics(NAMES, 1), *queue_topics(NAMES, "default", 1)])
    worker = Worker(WorkerConfig(worker="w"), clock, log, lookup=no_lookup)
    worker.stop()
    worker.stop()
    await asyncio.to_thread(worker.run)


async def test_a_log_that_does_not_answer_for_a_while_is_asked_again() -> None:
    async with node_and_sink() as (running, sink):
        running.due("default", "billing/a@1", http=HttpTarget(url=sink.url))
        await running.reports(lambda found: len(found) == 1)
        running.log.faults.cut("w")
        running.due("default", "billing/b@1", http=HttpTarget(url=sink.url))
        running.log.faults.heal("w")
        reports = await running.reports(lambda found: len(found) == 2)
    assert ["billing/a@1", "billing/b@1"] == [report.run_id for report in reports]
