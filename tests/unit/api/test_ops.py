"""What a role without an API serves: whether it lives, whether it works, its figures."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from tocsin.api import problems
from tocsin.api.ops import TITLES, create_ops_app
from tocsin.log.port import LogUnavailable

pytestmark = pytest.mark.asyncio


def asked(
    path: str,
    *,
    method: str = "GET",
    ready: Callable[[], str] = str,
    status: Callable[[], Mapping[str, Any]] = dict,
    metrics: Callable[[], bytes] = bytes,
    routers: tuple[APIRouter, ...] = (),
) -> Any:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_ops_app(ready, status, metrics, routers))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path)

    return ask()


async def test_it_is_alive_whatever_the_role_does() -> None:
    answer = await asked("/livez", ready=lambda: "it waits for a broker")
    assert (200, {"status": "alive"}) == (answer.status_code, answer.json())


async def test_a_role_that_works_is_ready_and_tells_what_it_has() -> None:
    answer = await asked("/readyz", status=lambda: {"partitions": [{"partition": 3, "restore_eta_s": None}]})
    assert 200 == answer.status_code
    assert {
        "status": "ready",
        "reason": None,
        "partitions": [{"partition": 3, "restore_eta_s": None}],
    } == answer.json()
    assert "no-store" == answer.headers["cache-control"]


async def test_a_role_that_does_not_work_says_why() -> None:
    answer = await asked("/readyz", ready=lambda: "restoring 2 of 12 partitions")
    assert 503 == answer.status_code
    assert ("not-ready", "restoring 2 of 12 partitions") == (answer.json()["status"], answer.json()["reason"])


async def test_a_log_that_is_away_when_asked_is_the_reason() -> None:
    def away() -> Mapping[str, Any]:
        raise LogUnavailable("nobody is there")

    answer = await asked("/readyz", status=away)
    assert (503, "nobody is there") == (answer.status_code, answer.json()["reason"])


async def test_figures_are_in_the_format_of_prometheus() -> None:
    answer = await asked("/metrics", metrics=lambda: b"tocsin_firing 1.0\n")
    assert ("tocsin_firing 1.0\n", "text/plain; version=0.0.4; charset=utf-8") == (
        answer.text,
        answer.headers["content-type"],
    )


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/jobs", 404), ("POST", "/readyz", 405), ("GET", "/docs", 404)]
)
async def test_whatever_else_is_asked_is_a_problem(method: str, path: str, status: int) -> None:
    answer = await asked(path, method=method)
    assert (status, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    assert status == answer.json()["status"]


async def test_other_paths_are_answered_by_the_routers() -> None:
    router = APIRouter()

    @router.get("/owner/hello")
    async def hello() -> str:
        await asyncio.sleep(0)
        return "hello"

    @router.get("/owner/away")
    async def away() -> str:
        raise LogUnavailable("nobody is there")

    assert "hello" == (await asked("/owner/hello", routers=(router,))).json()
    refused = await asked("/owner/away", routers=(router,))
    assert (503, "urn:tocsin:problem:log-unavailable") == (refused.status_code, refused.json()["type"])
    assert 200 == (await asked("/livez", routers=(router,))).status_code
    assert 404 == (await asked("/docs", routers=(router,))).status_code


async def test_while_a_role_starts_whoever_asks_it_for_more_is_told_to_ask_again() -> None:
    app = create_ops_app(lambda: "no broker answers", dict, bytes, starting=True)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.put("/v1/jobs/default/a", json={})
    assert (503, "urn:tocsin:problem:not-ready", "1") == (
        answer.status_code,
        answer.json()["type"],
        answer.headers["retry-after"],
    )
    assert answer.json()["detail"].endswith("no broker answers")


async def test_the_problems_of_a_role_are_those_of_the_api() -> None:
    assert {slug: title for slug, (_, title) in problems.TITLES.items() if slug in TITLES} == dict(TITLES)
