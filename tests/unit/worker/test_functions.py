"""Registering functions, and running them as targets."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.worker.endpoints import LIMIT_S, RUN, execution
from tocsin.client.functions import (
    DoNotRetry,
    DuplicateFunction,
    FunctionContext,
    FunctionRegistry,
    RetryAfter,
    function,
    registry,
)
from tocsin.clock import SystemClock
from tocsin.schemas.job import FunctionTarget
from tocsin.worker.execution import RESPONSE_BYTES_MAX, Outcome
from tocsin.worker.functions import FunctionCaller


@pytest.fixture
def functions() -> FunctionRegistry:
    return FunctionRegistry()


@pytest.fixture
def caller(functions: FunctionRegistry) -> Iterator[FunctionCaller]:
    made = FunctionCaller(clock=SystemClock(), registry=functions)
    yield made
    made.close()


async def call(caller: FunctionCaller, name: str, arguments: Any = None) -> Outcome:
    target = FunctionTarget(
        name=name, arguments=b"{}" if arguments is None else json.dumps(arguments).encode()
    )
    return await asyncio.wait_for(caller.call(execution(target), target), LIMIT_S)


# --- registering --------------------------------------------------------------------------------------------------------


def test_a_decorated_function_is_registered_and_still_a_function() -> None:
    @function
    def registered_by_its_own_name(x: int) -> int:
        return x + 1

    @function("tests.another-name")
    def registered_by_another_name() -> None: ...

    assert 3 == registered_by_its_own_name(2)
    assert {"registered_by_its_own_name", "tests.another-name"} <= set(registry)


def test_two_functions_of_one_name_are_refused(functions: FunctionRegistry) -> None:
    def send() -> None: ...

    functions.register(send)
    functions.register(send)  # a module that is imported twice
    with pytest.raises(DuplicateFunction, match="give one of them another name"):
        functions.register(lambda: None, "send")


@pytest.mark.parametrize("name", ["", "a b", "1st", "a/b", "x" * 200])
def test_a_name_has_a_grammar(functions: FunctionRegistry, name: str) -> None:
    with pytest.raises(ValueError, match="must match"):
        functions.register(lambda: None, name)


def test_a_lambda_needs_a_name(functions: FunctionRegistry) -> None:
    with pytest.raises(ValueError, match="must match"):
        functions.register(lambda: None)


def test_registering_brings_nothing_heavy_along() -> None:
    script = (
        "import sys; from tocsin.client import function; "
        "heavy = {'aiohttp', 'confluent_kafka', 'fastavro', 'httpx', 'pydantic', 'uvloop', 'asyncio'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


# --- running ------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_arguments_become_keyword_arguments(
    functions: FunctionRegistry, caller: FunctionCaller
) -> None:
    functions.register(lambda day, *, times=1: f"{day} x{times}", "send")
    outcome = await call(caller, "send", {"day": "${date}", "times": 3})
    assert ("succeeded", "'2026-03-09 x3'") == (outcome.kind, outcome.response)


@pytest.mark.asyncio
async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop(
    functions: FunctionRegistry, caller: FunctionCaller
) -> None:
    async def on_loop() -> int:
        return threading.get_ident()

    functions.register(threading.get_ident, "in_thread")
    functions.register(on_loop)
    here = repr(threading.get_ident())
    assert here != (await call(caller, "in_thread")).response
    assert here == (await call(caller, "on_loop")).response


@pytest.mark.asyncio
async def test_the_context_says_which_run_it_is(functions: FunctionRegistry, caller: FunctionCaller) -> None:
    seen: list[FunctionContext] = []

    def remember(context: FunctionContext) -> None:
        seen.append(context)

    functions.register(remember)
    outcome = await call(caller, "remember")
    assert ("succeeded", "") == (outcome.kind, outcome.response)
    (context,) = seen
    assert (RUN.run_id, "billing/send", 2, 4) == (
        context.run_id,
        context.job,
        context.attempt,
        context.dispatch,
    )
    assert datetime(2026, 3, 9, 8, tzinfo=UTC) == context.nominal
    assert not context.is_cancelled


class Unspeakable(Exception):
    def __str__(self) -> str:
        return str(1 // 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("raised", "error", "retryable", "retry_after_ms"),
    [
        (ValueError("no such day"), "ValueError: no such day", True, -1),
        (DoNotRetry("gone for good"), "DoNotRetry: gone for good", False, -1),
        (RetryAfter(90), "RetryAfter: asked to be tried again in 90 s", True, 90_000),
        (SystemExit(3), "SystemExit: 3", True, -1),
        (KeyboardInterrupt(), "KeyboardInterrupt: ", True, -1),
        (StopIteration("x"), "StopIteration: x", True, -1),
        (RetryAfter(-5, "now"), "RetryAfter: now", True, 0),
        (RetryAfter(1e300, "never"), "RetryAfter: never", True, 7 * 86_400_000),
        (RetryAfter(float("inf"), "never"), "RetryAfter: never", True, 7 * 86_400_000),
        (RetryAfter(float("nan"), "who knows"), "RetryAfter: who knows", True, -1),
        (Unspeakable(), "Unspeakable: an error that cannot be shown (ZeroDivisionError)", True, -1),
    ],
)
async def test_what_a_function_raises_is_its_outcome(
    functions: FunctionRegistry,
    caller: FunctionCaller,
    raised: BaseException,
    error: str,
    retryable: bool,
    retry_after_ms: int,
) -> None:
    def fail() -> None:
        raise raised

    functions.register(fail)
    outcome = await call(caller, "fail")
    assert ("failed", error, retryable, retry_after_ms) == (
        outcome.kind,
        outcome.error,
        outcome.retryable,
        outcome.retry_after_ms,
    )


@pytest.mark.asyncio
async def test_a_function_that_this_worker_lacks_may_be_there_on_the_next(caller: FunctionCaller) -> None:
    outcome = await call(caller, "send_invoices")
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert outcome.error.startswith("unknown_function: no function 'send_invoices'")


@pytest.mark.asyncio
@pytest.mark.parametrize("arguments", [{"days": 1}, {}, {"day": 1, "more": 2}])
async def test_arguments_that_do_not_fit_fail_for_good(
    functions: FunctionRegistry, caller: FunctionCaller, arguments: dict[str, int]
) -> None:
    functions.register(lambda day: day, "send")
    outcome = await call(caller, "send", arguments)
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert "do not fit 'send'" in outcome.error


@pytest.mark.asyncio
@pytest.mark.parametrize("arguments", [b"[1]", b"3", b"{", b"\xff"])
async def test_arguments_that_are_no_object_fail_for_good(
    functions: FunctionRegistry, caller: FunctionCaller, arguments: bytes
) -> None:
    functions.register(lambda: None, "send")
    target = FunctionTarget(name="send", arguments=arguments)
    outcome = await caller.call(execution(target), target)
    assert ("failed", False) == (outcome.kind, outcome.retryable)


@pytest.mark.asyncio
async def test_the_result_is_kept_as_an_excerpt(functions: FunctionRegistry, caller: FunctionCaller) -> None:
    class Awkward:
        def __repr__(self) -> str:
            raise RuntimeError

    functions.register(lambda: "ü" * 10_000, "long")
    functions.register(Awkward, "awkward")
    assert len((await call(caller, "long")).response.encode()) <= RESPONSE_BYTES_MAX
    outcome = await call(caller, "awkward")
    assert ("succeeded", "<Awkward whose repr raised RuntimeError>") == (outcome.kind, outcome.response)


@pytest.mark.asyncio
async def test_a_cancelled_thread_that_looks_is_cancelled_when_it_returns(
    functions: FunctionRegistry, caller: FunctionCaller
) -> None:
    begun = threading.Event()

    def patient(context: FunctionContext) -> str:
        begun.set()
        context.wait_cancelled(LIMIT_S)
        return "gave up"

    functions.register(patient)
    task = asyncio.create_task(call(caller, "patient"))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_a_cancelled_thread_that_does_not_look_counts_as_what_it_returned(
    functions: FunctionRegistry, caller: FunctionCaller
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def deaf() -> str:
        begun.set()
        go_on.wait(LIMIT_S)
        return "done"

    functions.register(deaf)
    target = FunctionTarget(name="deaf")
    task = asyncio.create_task(caller.call(execution(target), target))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    outcome = await asyncio.wait_for(task, LIMIT_S)
    assert ("succeeded", "'done'") == (outcome.kind, outcome.response)


@pytest.mark.asyncio
async def test_threads_are_used_again(functions: FunctionRegistry, caller: FunctionCaller) -> None:
    functions.register(threading.get_ident, "who")
    first = (await call(caller, "who")).response
    # The thread counts as idle a moment after its answer; as soon as it does, it is the one that is used.
    for _ in range(1_000):
        if first == (await call(caller, "who")).response:
            return
    pytest.fail("a thread is started for every call")


@pytest.mark.asyncio
async def test_calls_run_beside_each_other(functions: FunctionRegistry, caller: FunctionCaller) -> None:
    barrier = threading.Barrier(20)

    def meet() -> int:
        return barrier.wait(LIMIT_S)

    functions.register(meet)
    outcomes = await asyncio.gather(*(call(caller, "meet") for _ in range(20)))
    assert {"succeeded"} == {outcome.kind for outcome in outcomes}


def test_a_context_is_equal_for_each_attempt_but_for_its_number() -> None:
    context = FunctionContext(run_id="a/b@1", job="a/b", attempt=1, dispatch=1, nominal_ms=0, due_ms=0)
    other = FunctionContext(run_id="a/b@1", job="a/b", attempt=1, dispatch=1, nominal_ms=0, due_ms=0)
    other.cancel()
    assert context == other
    assert 2 == replace(context, attempt=2).attempt
