"""Real servers on free ports of the loopback interface, and a caller that may reach them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web

from tocsin.clock import SystemClock
from tocsin.schemas.callbacks import Callbacks
from tocsin.schemas.job import FunctionTarget, HttpTarget
from tocsin.schemas.records import DueRun
from tocsin.worker.egress import EgressGuard, EgressPolicy
from tocsin.worker.execution import Execution, Outcome
from tocsin.worker.http import Address, HttpCaller, Lookup
from tocsin.worker.secrets import SecretFiles

LIMIT_S = 30
"""Against what hangs; no test waits for it to pass."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Stream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    """A request as the endpoint got it."""

    method: str
    path: str
    headers: dict[str, str]
    """Lower-case names."""
    body: bytes
    connection: object


@dataclass
class Endpoint:
    port: int
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def only(self) -> Received:
        (received,) = self.received
        return received


async def ok(_: web.Request) -> web.StreamResponse:
    return web.Response(text="done")


@asynccontextmanager
async def endpoint(handler: Handler = ok) -> AsyncIterator[Endpoint]:
    """An HTTP server that remembers what it received."""

    async def remember(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        serving.received.append(Received(request.method, request.raw_path, headers, body, request.transport))
        assert isinstance(request, web.Request)
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", remember)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    serving = Endpoint(port=runner.addresses[0][1])
    try:
        yield serving
    finally:
        await runner.cleanup()


@asynccontextmanager
async def stream(serve: Stream) -> AsyncIterator[Endpoint]:
    """A server that speaks as it likes."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield Endpoint(port=server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def no_lookup(host: str, port: int) -> Sequence[Address]:
    raise AssertionError(f"{host}:{port} was looked up")


@asynccontextmanager
async def caller(
    policy: EgressPolicy = EgressPolicy(allow_loopback=True),  # noqa: B008 - frozen
    lookup: Lookup = no_lookup,
    connect_timeout_s: float = 5.0,
    secrets: SecretFiles | None = None,
    callbacks: Callbacks | None = None,
) -> AsyncIterator[HttpCaller]:
    http = HttpCaller(
        clock=SystemClock(),
        guard=EgressGuard(policy),
        lookup=lookup,
        connect_timeout_s=connect_timeout_s,
        secrets=secrets,
        callbacks=callbacks,
    )
    await http.open()
    try:
        yield http
    finally:
        await http.close()


RUN = DueRun(
    run_id="billing/send@20260309T080000.000Z",
    namespace="billing",
    job_id="send",
    seq=1,
    floor=0,
    dispatch=4,
    attempt=2,
    revision=1,
    cause="schedule",
    nominal_ms=1_773_043_200_000,
    due_ms=1_773_043_392_000,
    start_deadline_ms=1_773_143_392_000,
    emitted_ms=1_773_043_190_000,
    lease_ms=60_000,
)


def execution(target: HttpTarget | FunctionTarget, run: DueRun = RUN, execution_id: str = "e1") -> Execution:
    if isinstance(target, HttpTarget):
        run = replace(run, http=target)
    else:
        run = replace(run, function=target)
    return Execution(id=execution_id, run=run, start_by_s=float("inf"))


async def call(http: HttpCaller, target: HttpTarget, run: DueRun = RUN) -> Outcome:
    return await asyncio.wait_for(http.call(execution(target, run), target), LIMIT_S)
