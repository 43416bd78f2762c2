"""The executor: an event loop in a thread of its own, beside the core's.

The core hands executions over in batches (one wake-up of the loop for all that a pass starts) and gets outcomes back
through a thread-safe queue that its next pass folds. Neither thread ever waits for the other.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tocsin.clock import Clock
from tocsin.worker.execution import Execution, Outcome
from tocsin.worker.functions import FunctionCaller
from tocsin.worker.http import HttpCaller

logger = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 5.0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: a tenth less time for each request (docs/decisions/005)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopExecutor:
    """Executor. open() before the first start; close() after the last end."""

    def __init__(
        self,
        *,
        clock: Clock,
        concurrency: int,
        http: HttpCaller | None = None,
        functions: FunctionCaller | None = None,
        name: str = "tocsin-executor",
    ) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._http = http
        self._functions = functions
        self._ended: Callable[[str, Outcome], None] | None = None
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._running = threading.Event()
        self._handed: deque[Execution | str] = deque()
        """Executions to start and ids to abort, in the order of the calls."""
        self._is_woken = False
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        # Each is written by one thread only, so their difference needs no lock.
        self._started_count = 0
        self._ended_count = 0

    def open(self, ended: Callable[[str, Outcome], None]) -> None:
        """Start the loop. `ended` is called on its thread for each execution that has ended."""
        self._ended = ended
        self._thread.start()
        if not self._running.wait(START_TIMEOUT_S):
            raise RuntimeError(f"the executor's event loop did not start within {START_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Cancel what still executes and stop the loop. Safe twice, and before open()."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin_close)
            self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive() and not self._loop.is_closed():
            self._loop.close()
        if self._functions is not None:
            self._functions.close()

    # --- Executor -----------------------------------------------------------------------------------------------------

    def start(self, execution: Execution) -> None:
        self._started_count += 1
        self._hand_over(execution)

    def abort(self, execution_id: str) -> None:
        self._hand_over(execution_id)

    def capacity(self) -> int:
        return self._concurrency - (self._started_count - self._ended_count)

    def _hand_over(self, what: Execution | str) -> None:
        self._handed.append(what)
        if not self._is_woken:
            # Set before the call, and cleared by the loop before it takes: so nothing handed over is overlooked.
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_handed)

    # --- on the loop --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._loop.call_soon(self._running.set)
        self._loop.run_forever()

    async def _open(self) -> None:
        if self._http is not None:
            await self._http.open()

    def _take_handed(self) -> None:
        self._is_woken = False
        handed = self._handed
        while handed:
            match handed.popleft():
                case Execution() as execution:
                    task = self._loop.create_task(self._execute(execution))
                    self._tasks[execution.id] = task
                    # Not at the end of the coroutine: one that is aborted before its first step never gets there.
                    task.add_done_callback(partial(self._done, execution.id))
                case str(execution_id):
                    aborted = self._tasks.get(execution_id)
                    if aborted is not None:
                        aborted.cancel()

    async def _execute(self, execution: Execution) -> Outcome:
        try:
            return await self._begin(execution)
        except Exception as error:
            # Our mistake, not the job's: another attempt, on another worker perhaps, may get further.
            logger.exception(
                "execution %s of %s failed inside the worker", execution.id, execution.run.run_id
            )
            now_ms = self._clock.now_ms()
            return Outcome(
                kind="failed",
                started_ms=now_ms,
                ended_ms=now_ms,
                error=f"an error inside the worker: {type(error).__name__}: {error}",
                retryable=True,
            )

    async def _begin(self, execution: Execution) -> Outcome:
        run = execution.run
        if self._clock.monotonic_s() >= execution.start_by_s:
            now_ms = self._clock.now_ms()
            return Outcome(kind="not_begun", started_ms=now_ms, ended_ms=now_ms)
        if run.http is not None and self._http is not None:
            return await self._http.call(execution, run.http)
        if run.function is not None and self._functions is not None:
            return await self._functions.call(execution, run.function)
        now_ms = self._clock.now_ms()
        kind = "http" if run.http is not None else "function" if run.function is not None else "unknown"
        return Outcome(
            kind="failed",
            started_ms=now_ms,
            ended_ms=now_ms,
            error=f"this worker does not execute {kind} targets: the job's queue is served by the wrong workers",
            retryable=True,
        )

    def _done(self, execution_id: str, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled():
            now_ms = self._clock.now_ms()
            outcome = Outcome(kind="aborted", started_ms=now_ms, ended_ms=now_ms)
        else:
            outcome = task.result()
        del self._tasks[execution_id]
        self._ended_count += 1
        assert self._ended is not None
        self._ended(execution_id, outcome)

    def _begin_close(self) -> None:
        self._closing = self._loop.create_task(self._close())

    async def _close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            # A thread that does not return is left to the end of the process.
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S / 2)
        if self._http is not None:
            await self._http.close()
        await self._loop.shutdown_asyncgens()
        self._loop.stop()
