"""What every role serves beside its work: /livez, /readyz and /metrics, and on a streams process the query endpoints.

Plain ASGI, without a framework: a worker with functions of its own need not install one.
"""

import asyncio
import http
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fastapi import APIRouter

METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = b"application/json"
PROBLEM_TYPE: Final = b"application/problem+json"
TITLES: Final = {
    "not-found": "There is no such thing",
    "method-not-allowed": "This method is not allowed here",
    "not-ready": "This node is not ready",
}
"""As in tocsin.api.problems, which needs the framework."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


def create_ops_app(
    ready: Callable[[], str],
    status: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], bytes],
    routers: Sequence["APIRouter"] = (),
    *,
    starting: bool = False,
) -> AsgiApp:
    """The app. `ready`: why the role is not ready ("": it is); `status`: what /readyz tells beside that; `metrics`: the
    figures for Prometheus. They are called on threads, and may take a moment. `routers` answer every other path;
    while the role is `starting`, what will answer it is not there yet, and whoever asks may ask again."""
    rest = _routed(routers) if routers else None

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not served here")
        path = scope["path"]
        if path not in ("/livez", "/readyz", "/metrics"):
            if rest is not None:
                await rest(scope, receive, send)
            elif starting:
                reason = await asyncio.to_thread(ready)
                await _problem(send, 503, "not-ready", f"This process cannot answer yet: {reason}")
            else:
                await _problem(
                    send, 404, "not-found", "Nothing is served here but /livez, /readyz, /metrics."
                )
        elif scope["method"] not in ("GET", "HEAD"):
            await _problem(send, 405, "method-not-allowed", f"{path} can only be read: GET it.")
        elif path == "/livez":
            await _json(send, 200, {"status": "alive"})
        elif path == "/readyz":
            await _readyz(send, ready, status)
        else:
            try:
                figures = await asyncio.to_thread(metrics)
            except (
                ConnectionError
            ) as error:  # the log, or a partition that moves: figures come with the next scrape
                await _problem(send, 503, "not-ready", str(error))
            else:
                await _answer(send, 200, METRICS_TYPE, figures)

    return app


async def _readyz(send: Send, ready: Callable[[], str], status: Callable[[], Mapping[str, Any]]) -> None:
    try:
        reason, more = await asyncio.to_thread(lambda: (ready(), status()))
    except ConnectionError as error:
        reason, more = str(error), {}
    body = {"status": "not-ready" if reason else "ready", "reason": reason or None, **more}
    await _json(send, 503 if reason else 200, body)


def _routed(routers: Sequence["APIRouter"]) -> AsgiApp:
    from fastapi import FastAPI

    from tocsin.api import problems

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    problems.install(app)
    for router in routers:
        app.include_router(router)
    return app


async def _json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    await _answer(send, status, JSON_TYPE, json.dumps(body, ensure_ascii=False).encode())


async def _problem(send: Send, status: int, slug: str, detail: str) -> None:
    """As RFC 9457 has it, with the types of the API."""
    body = {"type": f"urn:tocsin:problem:{slug}", "title": TITLES[slug], "status": status, "detail": detail}
    more = [(b"retry-after", b"1")] if status == http.HTTPStatus.SERVICE_UNAVAILABLE else []
    await _answer(send, status, PROBLEM_TYPE, json.dumps(body, ensure_ascii=False).encode(), more)


async def _answer(
    send: Send, status: int, content_type: bytes, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
