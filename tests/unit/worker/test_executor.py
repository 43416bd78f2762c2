"""The executor: an event loop in a thread, handed to and answering across threads."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

import pytest

from tests.unit.worker.endpoints import LIMIT_S, RUN, execution
from tocsin.client.functions import FunctionContext, FunctionRegistry
from tocsin.clock import SystemClock
from tocsin.schemas.job import FunctionTarget, HttpTarget
from tocsin.worker.execution import Execution, Outcome
from tocsin.worker.executor import LoopExecutor
from tocsin.worker.functions import FunctionCaller

Ended = SimpleQueue[tuple[str, Outcome]]


@pytest.fixture
def functions() -> FunctionRegistry:
    return FunctionRegistry()


@pytest.fixture
def ended() -> Ended:
    return SimpleQueue()


@pytest.fixture
def executor(functions: FunctionRegistry, ended: Ended) -> Iterator[LoopExecutor]:
    clock = SystemClock()
    made = LoopExecutor(clock=clock, concurrency=3, functions=FunctionCaller(clock=clock, registry=functions))
    made.open(lambda execution_id, outcome: ended.put((execution_id, outcome)))
    yield made
    made.close()
    made.close()


def of(name: str, execution_id: str) -> Execution:
    return execution(FunctionTarget(name=name), execution_id=execution_id)


def test_each_start_is_answered_once(
    executor: LoopExecutor, functions: FunctionRegistry, ended: Ended
) -> None:
    functions.register(lambda: "x", "quick")
    for n in range(3):
        executor.start(of("quick", f"e{n}"))
    answers = [ended.get(timeout=LIMIT_S) for _ in range(3)]
    assert {"e0", "e1", "e2"} == {execution_id for execution_id, _ in answers}
    assert {"succeeded"} == {outcome.kind for _, outcome in answers}


def test_capacity_is_what_is_left(executor: LoopExecutor, functions: FunctionRegistry, ended: Ended) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(LIMIT_S)

    functions.register(wait)
    assert 3 == executor.capacity()
    executor.start(of("wait", "e1"))
    assert 2 == executor.capacity()
    assert begun.wait(LIMIT_S)
    go_on.set()
    ended.get(timeout=LIMIT_S)
    assert 3 == executor.capacity()


def test_an_abort_stops_an_async_function(
    executor: LoopExecutor, functions: FunctionRegistry, ended: Ended
) -> None:
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    functions.register(for_ever)
    executor.start(of("for_ever", "e1"))
    assert begun.wait(LIMIT_S)
    executor.abort("unknown")
    executor.abort("e1")
    execution_id, outcome = ended.get(timeout=LIMIT_S)
    assert ("e1", "aborted") == (execution_id, outcome.kind)
    executor.abort("e1")


def test_an_abort_right_after_the_start_is_answered_too(
    executor: LoopExecutor, functions: FunctionRegistry, ended: Ended
) -> None:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    functions.register(for_ever)
    executor.start(of("for_ever", "e1"))
    executor.abort("e1")
    assert "e1" == ended.get(timeout=LIMIT_S)[0]
    assert 3 == executor.capacity()


def test_a_thread_is_told_and_answers_when_it_returns(
    executor: LoopExecutor, functions: FunctionRegistry, ended: Ended
) -> None:
    begun = threading.Event()

    def patient(context: FunctionContext) -> None:
        begun.set()
        context.wait_cancelled(LIMIT_S)

    functions.register(patient)
    executor.start(of("patient", "e1"))
    assert begun.wait(LIMIT_S)
    executor.abort("e1")
    assert "aborted" == ended.get(timeout=LIMIT_S)[1].kind


def test_what_comes_too_late_is_not_begun(
    executor: LoopExecutor, functions: FunctionRegistry, ended: Ended
) -> None:
    called = []
    functions.register(lambda: called.append(1), "quick")
    executor.start(replace(of("quick", "e1"), start_by_s=0.0))
    assert "not_begun" == ended.get(timeout=LIMIT_S)[1].kind
    assert [] == called


def test_a_target_that_this_worker_does_not_execute_may_be_executed_by_another(
    executor: LoopExecutor, ended: Ended
) -> None:
    executor.start(execution(HttpTarget(url="http://127.0.0.1/"), execution_id="e1"))
    executor.start(Execution(id="e2", run=RUN, start_by_s=float("inf")))
    outcomes = dict(ended.get(timeout=LIMIT_S) for _ in range(2))
    assert {("failed", True)} == {(outcome.kind, outcome.retryable) for outcome in outcomes.values()}
    assert "http" in outcomes["e1"].error


def test_closing_ends_what_executes(functions: FunctionRegistry, ended: Ended) -> None:
    clock = SystemClock()
    executor = LoopExecutor(
        clock=clock, concurrency=1, functions=FunctionCaller(clock=clock, registry=functions)
    )
    executor.open(lambda execution_id, outcome: ended.put((execution_id, outcome)))
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    functions.register(for_ever)
    executor.start(of("for_ever", "e1"))
    assert begun.wait(LIMIT_S)
    executor.close()
    assert "aborted" == ended.get(timeout=LIMIT_S)[1].kind


def test_an_executor_that_was_never_opened_can_be_closed() -> None:
    LoopExecutor(clock=SystemClock(), concurrency=1).close()
