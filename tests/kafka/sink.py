"""The endpoint that all runs are sent to, and the judge's witness: it notes when each request came, by its own clock.

`/ok` answers 200; `/fail` 503, `/fail/N` 503 while the attempt is N or less; `/slow/MS` 200 after MS milliseconds; `/held/NAME`
200 once release(NAME) was called.
"""

import asyncio
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from aiohttp import web

from tocsin.clock import SystemClock

BODY_BYTES_MAX: Final = 4 << 20
STARTED_WITHIN_S: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Request:
    """One start of an execution, as the endpoint saw it."""

    number: int
    received_ms: int
    run_id: str
    job: str
    attempt: int
    dispatch: int
    nominal_ms: int
    due_ms: int
    path: str
    status: int = 0
    """What was answered; 0: nothing yet."""
    answered_ms: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def late_ms(self) -> int:
        return self.received_ms - self.due_ms

    def __str__(self) -> str:
        return f"request {self.number} ({self.run_id}, attempt {self.attempt}, dispatch {self.dispatch})"


class Sink:
    """start() it, read `requests` at any time, stop() it. It runs in a thread of its own."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._held: dict[str, asyncio.Event] = {}
        self._released: set[str] = set()
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        assert self._listening.wait(STARTED_WITHIN_S), "the sink does not listen"

    def stop(self) -> None:
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(STARTED_WITHIN_S)

    def release(self, name: str) -> None:
        """Everything at `/held/NAME` is answered now, and at once from now on."""
        assert self._loop is not None
        self._released.add(name)
        self._loop.call_soon_threadsafe(self._release, name)

    def _release(self, name: str) -> None:
        if found := self._held.get(name):
            found.set()

    @property
    def requests(self) -> list[Request]:
        """In the order of their coming."""
        with self._lock:
            return list(self._requests)

    def of(self, job: str) -> list[Request]:
        return [each for each in self.requests if each.job == job]

    def by_run(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = defaultdict(list)
        for each in self.requests:
            found[each.run_id].append(each)
        return found

    # --- on its own thread

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/fail", self._fail)
        app.router.add_post("/fail/{attempts:[0-9]+}", self._fail)
        app.router.add_post("/slow/{ms:[0-9]+}", self._slow)
        app.router.add_post("/held/{name}", self._hold)
        app.router.add_post("/{path:.*}", self._ok)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._listening.set()
        await self._ended.wait()
        for event in self._held.values():
            event.set()
        await runner.cleanup()

    async def _ok(self, request: web.Request) -> web.Response:
        return _answer(await self._note(request), 200, self._clock)

    async def _fail(self, request: web.Request) -> web.Response:
        noted = await self._note(request)
        attempts = request.match_info.get("attempts")
        failing = attempts is None or noted.attempt <= int(attempts)
        return _answer(noted, 503 if failing else 200, self._clock)

    async def _slow(self, request: web.Request) -> web.Response:
        noted = await self._note(request)
        await asyncio.sleep(int(request.match_info["ms"]) / 1000)
        return _answer(noted, 200, self._clock)

    async def _hold(self, request: web.Request) -> web.Response:
        noted = await self._note(request)
        name = request.match_info["name"]
        held = self._held.setdefault(name, asyncio.Event())
        if name in self._released:
            held.set()
        await held.wait()
        return _answer(noted, 200, self._clock)

    async def _note(self, request: web.Request) -> Request:
        received_ms = self._clock.now_ms()
        headers = {
            name.lower(): value
            for name, value in request.headers.items()
            if name.lower().startswith(("tocsin-", "webhook-"))
        }
        noted = Request(
            number=len(self._requests),
            received_ms=received_ms,
            run_id=headers.get("webhook-id", ""),
            job=headers.get("tocsin-job", ""),
            attempt=int(headers.get("tocsin-attempt", "0")),
            dispatch=int(headers.get("tocsin-dispatch", "0")),
            nominal_ms=_instant(headers.get("tocsin-nominal", "")),
            due_ms=_instant(headers.get("tocsin-due", "")),
            path=request.path,
            headers=headers,
        )
        with self._lock:
            self._requests.append(noted)
        noted.body = await request.read()
        return noted


def _answer(noted: Request, status: int, clock: SystemClock) -> web.Response:
    noted.answered_ms = clock.now_ms()
    noted.status = status
    return web.Response(status=status, text="ok\n" if status == 200 else "failing, as asked\n")


def _instant(text: str) -> int:
    """Read without the product's help."""
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
