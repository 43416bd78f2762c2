"""Requests per second of one core: the worker's HTTP caller, aiohttp alone, and httpx, in the same run.

    python benchmarks/bench_http.py [--requests 4000] [--concurrency 64]

The endpoint is a process of its own on the loopback interface that answers with two bytes. What is measured is the
processor time of this process for each request, so a machine that is busy with other things changes little; one core
makes 1 s / (time for each request). Each client sends the same request with the same headers, and keeps connections.
docs/decisions/005 has the figures that decided.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import aiohttp
import httpx

from tocsin.clock import SystemClock
from tocsin.schemas.job import HttpTarget
from tocsin.schemas.records import DueRun
from tocsin.worker.egress import EgressGuard, EgressPolicy
from tocsin.worker.execution import Execution
from tocsin.worker.http import HttpCaller, SystemLookup, request_headers
from tocsin.worker.placeholders import Placeholders

BODY = b'{"day":"2026-03-09T08:00:00.000Z"}'
Send = Callable[[], Awaitable[None]]


class Endpoint(asyncio.Protocol):
    """Answers every request with `ok`, as cheaply as it can be done here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            head, found, rest = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            length = next(
                (
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            if len(rest) < length:
                return
            self._received = rest[length:]
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def serve(port: Connection) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def a_run(url: str) -> DueRun:
    now_ms = SystemClock().now_ms()
    return DueRun(
        run_id="billing/send-invoices@20260309T080000.000Z",
        namespace="billing",
        job_id="send-invoices",
        seq=1,
        floor=0,
        dispatch=1,
        attempt=1,
        revision=1,
        cause="schedule",
        nominal_ms=now_ms,
        due_ms=now_ms,
        start_deadline_ms=now_ms + 86_400_000,
        emitted_ms=now_ms,
        lease_ms=60_000,
        http=HttpTarget(url=url, headers=(("X-Team", "billing"),), body=BODY, body_kind="json"),
    )


async def measure(send: Send, requests: int, concurrency: int) -> float:
    """Processor seconds for each request."""

    async def client(count: int) -> None:
        for _ in range(count):
            await send()

    async def all_clients(each: int) -> None:
        await asyncio.gather(*(client(each) for _ in range(concurrency)))

    await all_clients(2)  # connections are open, caches filled
    each = max(1, requests // concurrency)
    before_s = time.process_time()
    await all_clients(each)
    return (time.process_time() - before_s) / (each * concurrency)


async def with_caller(run: DueRun, requests: int, concurrency: int) -> float:
    caller = HttpCaller(
        clock=SystemClock(), guard=EgressGuard(EgressPolicy(allow_loopback=True)), lookup=SystemLookup()
    )
    await caller.open()
    assert run.http is not None
    target, execution = run.http, Execution(id="e", run=run, start_by_s=float("inf"))

    async def send() -> None:
        outcome = await caller.call(execution, target)
        assert outcome.kind == "succeeded", outcome

    try:
        return await measure(send, requests, concurrency)
    finally:
        await caller.close()


async def with_aiohttp(run: DueRun, requests: int, concurrency: int) -> float:
    assert run.http is not None
    url, headers = run.http.url, request_headers(run, run.http, Placeholders(run), run.due_ms)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send() -> None:
            async with session.post(url, data=BODY, headers=headers) as response:
                assert b"ok" == await response.read()

        return await measure(send, requests, concurrency)


async def with_httpx(run: DueRun, requests: int, concurrency: int) -> float:
    assert run.http is not None
    url, headers = run.http.url, request_headers(run, run.http, Placeholders(run), run.due_ms)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as client:

        async def send() -> None:
            response = await client.post(url, content=BODY, headers=headers)
            assert b"ok" == response.content

        return await measure(send, requests, concurrency)


# With how many of the requests each is measured: httpx would take a minute for all of them.
CLIENTS = {
    "the worker's caller": (with_caller, 1.0),
    "aiohttp alone": (with_aiohttp, 1.0),
    "httpx": (with_httpx, 0.15),
}


def loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        return found
    return {"uvloop": uvloop.new_event_loop, **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()

    here, there = multiprocessing.Pipe()
    endpoint = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    endpoint.start()
    run = a_run(f"http://127.0.0.1:{here.recv()}/hook")
    print(f"{options.requests} requests, {options.concurrency} at once")
    for loop_name, new_loop in loops().items():
        for client_name, (bench, share) in CLIENTS.items():
            with asyncio.Runner(loop_factory=new_loop) as runner:
                each_s = runner.run(bench(run, round(options.requests * share), options.concurrency))
            print(
                f"{client_name:20} on {loop_name:8} {each_s * 1e6:7.0f} us  {1 / each_s:8,.0f} requests/s per core"
            )
    endpoint.terminate()


if __name__ == "__main__":
    main()
