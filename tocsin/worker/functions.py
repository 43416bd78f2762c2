"""Function targets: runs registered callables, plain ones in threads, `async` ones on the executor's loop."""

import asyncio
import json
import math
from typing import Any

from tocsin.client.functions import (
    DoNotRetry,
    FunctionContext,
    FunctionRegistry,
    RegisteredFunction,
    RetryAfter,
)
from tocsin.clock import Clock
from tocsin.schemas.job import FunctionTarget
from tocsin.schemas.records import DueRun
from tocsin.worker.execution import RESPONSE_BYTES_MAX, RETRY_AFTER_MS_MAX, Execution, Outcome
from tocsin.worker.placeholders import Placeholders
from tocsin.worker.threads import Call, Returned, Threads


class FunctionCaller:
    """Calls functions for one executor."""

    def __init__(self, *, clock: Clock, registry: FunctionRegistry, name: str = "tocsin-function") -> None:
        self._clock = clock
        self._registry = registry
        self._threads = Threads(name)

    def close(self) -> None:
        self._threads.close()

    async def call(self, execution: Execution, target: FunctionTarget) -> Outcome:
        """Call the function and wait for its end. Never raises but for cancellation.

        Cancellation of a plain function is answered only when its thread has returned; with what it returned or raised,
        if it has not looked at `context.is_cancelled`.
        """
        started_ms = self._clock.now_ms()
        function = self._registry.get(target.name)
        if function is None:
            known = ", ".join(self._registry) or "none"
            message = (
                f"unknown_function: no function {target.name!r} is registered in this worker (known: {known})"
            )
            return self._failed(started_ms, message, retryable=True)
        context = _context(execution.run)
        try:
            arguments = _arguments(execution.run, target, function, context)
        except ValueError as error:
            return self._failed(started_ms, str(error), retryable=False)
        returned = await self._run(function, arguments, context)
        if returned.error is not None:
            return self._judge_error(started_ms, returned.error)
        return Outcome(
            kind="succeeded",
            started_ms=started_ms,
            ended_ms=self._clock.now_ms(),
            response="" if returned.value is None else _excerpt(returned.value),
        )

    async def _run(
        self, function: RegisteredFunction, arguments: dict[str, Any], context: FunctionContext
    ) -> Returned:
        if not function.is_async:
            return await self._run_in_thread(lambda: function.call(**arguments), context)
        try:
            return Returned(await function.call(**arguments), None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a function ends the run, not the worker
            return Returned(None, error)

    async def _run_in_thread(self, call: Call, context: FunctionContext) -> Returned:
        future = self._threads.run(call)
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                context.cancel()  # the thread goes on until it looks, or returns; so does the execution
        if context.has_seen_cancel:
            raise asyncio.CancelledError
        return future.result()

    def _judge_error(self, started_ms: int, error: BaseException) -> Outcome:
        return self._failed(
            started_ms,
            f"{type(error).__name__}: {_text_of(error)}",
            retryable=not isinstance(error, DoNotRetry),
            retry_after_ms=_delay_ms(error.delay_s) if isinstance(error, RetryAfter) else -1,
        )

    def _failed(self, started_ms: int, error: str, *, retryable: bool, retry_after_ms: int = -1) -> Outcome:
        return Outcome(
            kind="failed",
            started_ms=started_ms,
            ended_ms=self._clock.now_ms(),
            error=error,
            retryable=retryable,
            retry_after_ms=retry_after_ms,
        )


def _context(run: DueRun) -> FunctionContext:
    return FunctionContext(
        run_id=run.run_id,
        job=f"{run.namespace}/{run.job_id}",
        attempt=run.attempt,
        dispatch=run.dispatch,
        nominal_ms=run.nominal_ms,
        due_ms=run.due_ms,
    )


def _arguments(
    run: DueRun, target: FunctionTarget, function: RegisteredFunction, context: FunctionContext
) -> dict[str, Any]:
    """The keyword arguments of the call. Raises ValueError if they do not fit: another attempt would not, either."""
    try:
        arguments = json.loads(Placeholders(run).expand_body(target.arguments) or b"{}")
    except ValueError as error:
        raise ValueError(f"the arguments of {target.name!r} are no JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise ValueError(
            f"the arguments of {target.name!r} must be a JSON object, not {type(arguments).__name__}"
        )
    if function.wants_context:
        arguments["context"] = context
    try:
        if function.signature is not None:
            function.signature.bind(**arguments)
    except TypeError as error:
        raise ValueError(f"the arguments do not fit {target.name!r}: {error}") from error
    return arguments


def _delay_ms(delay_s: float) -> int:
    """-1 for a NaN; the bounds for what lies outside them, the infinities included."""
    if math.isnan(delay_s):
        return -1
    return round(min(max(delay_s * 1000, 0), RETRY_AFTER_MS_MAX))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - what the function raised is its outcome, readable or not
        return f"an error that cannot be shown ({type(another).__name__})"


def _excerpt(result: object) -> str:
    try:
        text = repr(result)
    except Exception as error:  # noqa: BLE001 - a repr that fails does not make the run fail
        text = f"<{type(result).__name__} whose repr raised {type(error).__name__}>"
    return text.encode("utf-8", errors="replace")[:RESPONSE_BYTES_MAX].decode("utf-8", errors="ignore")
