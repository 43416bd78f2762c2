"""`tocsin sink`: receives runs and prints them. For demonstrations and tests; it trusts what it is sent.

`/ok` (and any other path) answers 200, `/fail` 503, `/fail/N` 503 while Tocsin-Attempt <= N and then 200.
Lateness is measured here, by this machine's clock: when the request came in minus `Tocsin-Due`.
"""

import asyncio
import json
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tocsin.cli.failures import EXIT_INPUT, EXIT_INTERRUPTED, Failure
from tocsin.clock import SystemClock

if TYPE_CHECKING:
    from aiohttp import web

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
RUNS_COUNTED_MAX: Final = 1_000_000
STOP_WITHIN_S: Final = 1.0


def sink(
    *,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65_535, help="0: any free one; the first line says which."),
    ] = 8790,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    delay: Annotated[
        str,
        typer.Option("--delay", help="Wait so long before answering: 250ms, 2s; a number is milliseconds."),
    ] = "0",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each request.")] = False,
) -> None:
    """Receive runs and print a line for each: run id, attempt, lateness, answer.

    /ok answers 200, /fail 503, /fail/N fails while the attempt is N or less.
    """
    receiver = Receiver(delay_s=_delay_ms(delay) / 1000, as_json=as_json)
    try:
        ended_by = _run(receiver, host, port)
    except OSError as error:
        raise Failure(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Another sink may be running; --port takes "
            "another port."
        ) from None
    if ended_by == signal.SIGINT:
        raise typer.Exit(EXIT_INTERRUPTED)


def _delay_ms(text: str) -> int:
    from tocsin.schedules.durations import parse_duration
    from tocsin.schedules.errors import ScheduleError

    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return parse_duration(text)
    except ScheduleError as error:
        raise Failure(f"--delay: {error.message}", exit_code=EXIT_INPUT) from None


def _run(receiver: "Receiver", host: str, port: int) -> signal.Signals:
    try:
        import uvloop
    except ImportError:  # no such wheel on this platform
        return asyncio.run(_serve(receiver, host, port))
    return uvloop.run(_serve(receiver, host, port))


async def _serve(receiver: "Receiver", host: str, port: int) -> signal.Signals:
    """Serve until a signal ends it, and return the signal."""
    from aiohttp import web

    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_route("*", "/fail", receiver.fail)
    app.router.add_route("*", "/fail/{attempts:[0-9]{1,6}}", receiver.fail)
    app.router.add_route("*", "/{path:.*}", receiver.ok)
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[signal.Signals] = loop.create_future()

    def end(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_WITHIN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        receiver.listening(runner.addresses[0][1], host)
        ended_by = await stop
    finally:
        await runner.cleanup()
    receiver.summary()
    return ended_by


@dataclass(slots=True)
class Receiver:
    """Answers and counts."""

    delay_s: float
    as_json: bool
    clock: SystemClock = field(default_factory=SystemClock)
    requests: int = 0
    again: int = 0
    """Requests whose run and attempt had come before: the same execution, delivered twice."""
    lateness_ms: list[int] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    async def ok(self, request: "web.Request") -> "web.Response":
        return await self._answer(request, 0)

    async def fail(self, request: "web.Request") -> "web.Response":
        attempts = request.match_info.get("attempts")
        return await self._answer(request, sys.maxsize if attempts is None else int(attempts))

    async def _answer(self, request: "web.Request", fails_until: int) -> "web.Response":
        received_ms = self.clock.now_ms()
        from aiohttp import web

        await request.read()
        attempt = _number(request.headers.get("Tocsin-Attempt", ""))
        status = 503 if (attempt or 1) <= fails_until else 200
        self._record(request, received_ms, attempt, status)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        text = "ok" if status == 200 else "failing, as asked"
        return web.Response(status=status, text=f"{text}\n")

    def _record(self, request: "web.Request", received_ms: int, attempt: int | None, status: int) -> None:
        headers = request.headers
        run_id = headers.get("webhook-id", "")
        due_ms = _instant(headers.get("Tocsin-Due", ""))
        late_ms = None if due_ms is None else received_ms - due_ms
        self.requests += 1
        if run_id and len(self._seen) < RUNS_COUNTED_MAX:
            execution = (run_id, headers.get("Tocsin-Dispatch", str(attempt)))
            self.again += execution in self._seen
            self._seen.add(execution)
        if late_ms is not None and len(self.lateness_ms) < RUNS_COUNTED_MAX:
            self.lateness_ms.append(late_ms)
        if self.as_json:
            line: dict[str, Any] = {
                "run_id": run_id,
                "attempt": attempt,
                "due_ms": due_ms,
                "received_ms": received_ms,
                "lateness_ms": late_ms,
                "status": status,
                "path": request.path,
                "dispatch": _number(headers.get("Tocsin-Dispatch", "")),
            }
            self._print(json.dumps(line))
        else:
            who = run_id or f"{request.method} {request.path} (no webhook-id: not a run)"
            late = "" if late_ms is None else f"  {late_ms:+d} ms"
            tried = "" if attempt is None else f"  attempt {attempt}"
            self._print(f"{status}  {who}{tried}{late}")

    def listening(self, port: int, host: str) -> None:
        if self.as_json:
            print(f"sink on http://{host}:{port}", file=sys.stderr, flush=True)
        else:
            self._print(f"sink on http://{host}:{port}  (/ok  /fail  /fail/N; Ctrl-C ends it)")

    def summary(self) -> None:
        late = sorted(self.lateness_ms)
        text = f"{self.requests} requests, {self.again} of them again"
        if late:
            p50, p99 = late[len(late) // 2], late[min(len(late) - 1, len(late) * 99 // 100)]
            text += f"; lateness p50 {p50} ms, p99 {p99} ms, max {late[-1]} ms"
        print(text, file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        try:
            print(line, flush=True)
        except BrokenPipeError:
            signal.raise_signal(signal.SIGTERM)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _instant(text: str) -> int | None:
    """`Tocsin-Due` as ISO 8601, or as milliseconds since the epoch."""
    from tocsin.schedules.errors import ScheduleError
    from tocsin.schedules.instants import parse_instant

    number = _number(text)
    if number is not None:
        return number
    try:
        return parse_instant(text)
    except ScheduleError:
        return None
