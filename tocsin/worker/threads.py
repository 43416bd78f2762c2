"""Daemon threads for calls that block: functions of users, and look-ups of host names."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

IDLE_THREADS_MAX: Final = 32
"""Threads that are kept when they have nothing to do."""

_CLOSED: Final = -(1 << 30)

Call = Callable[[], Any]


class Returned(NamedTuple):
    """What a call returned, or raised."""

    value: Any
    error: BaseException | None


class Threads:
    """Runs each call in a thread of its own. One that hangs keeps neither the process nor the next call.

    (concurrent.futures waits at exit for its threads; uvloop and asyncio share a handful of them for all look-ups.)
    There is no bound here: whoever calls has a slot for it, the executor's capacity.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Call, Callable[[Returned], None]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        """Threads that wait, less calls that were queued for them."""
        self._started = 0

    def run(self, call: Call) -> asyncio.Future[Returned]:
        """Start `call` now. The future belongs to the running loop and never holds an exception: see Returned."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Returned] = loop.create_future()

        def deliver(returned: Returned) -> None:
            if not future.done():
                future.set_result(returned)

        def done(returned: Returned) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(deliver, returned)

        self._submit(call, done)
        return future

    def close(self) -> None:
        """Idle threads end now, busy ones after their call. Safe twice."""
        with self._lock:
            idle, self._idle = self._idle, _CLOSED
        for _ in range(max(idle, 0)):
            self._calls.put(None)

    def _submit(self, call: Call, done: Callable[[Returned], None]) -> None:
        self._calls.put((call, done))
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            entry = self._calls.get()
            if entry is None:
                return
            call, done = entry
            try:
                returned = Returned(call(), None)
            except BaseException as error:  # noqa: BLE001 - whatever a call raises is what it returned
                returned = Returned(None, error)
            done(returned)
            del call, done, entry, returned  # an idle thread keeps nothing alive
            with self._lock:
                if not 0 <= self._idle < IDLE_THREADS_MAX:
                    return
                self._idle += 1
