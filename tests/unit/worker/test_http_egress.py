"""K44: the egress guard in front of real connections."""

import socket
from collections.abc import Sequence

import pytest
from aiohttp import web

from tests.unit.worker.endpoints import call, caller, endpoint
from tocsin.schemas.job import HttpTarget
from tocsin.worker.egress import EgressPolicy
from tocsin.worker.http import Address, SystemLookup

pytestmark = pytest.mark.asyncio


async def resolve_to(*addresses: str) -> Sequence[Address]:
    return [(socket.AF_INET6 if ":" in a else socket.AF_INET, a) for a in addresses]


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "127.1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "10.0.0.1",
        "0.0.0.0",
        "１２７.0.0.1",
        "①②⑦.0.0.1",
    ],
)
async def test_k44_an_inside_address_is_blocked_without_a_connection(host: str) -> None:
    async def as_the_system_does(host: str, port: int) -> Sequence[Address]:
        return await resolve_to(socket.inet_ntoa(socket.inet_aton(host)))

    async with endpoint() as sink, caller(EgressPolicy(), as_the_system_does) as http:
        outcome = await call(http, HttpTarget(url=f"http://{host}:{sink.port}/"))
    assert ("failed", False, 0) == (outcome.kind, outcome.retryable, outcome.http_status)
    assert outcome.error.startswith("blocked: ")
    assert "allow" in outcome.error
    assert [] == sink.received


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST"])
async def test_k44_localhost_is_blocked(host: str) -> None:
    async with endpoint() as sink, caller(EgressPolicy()) as http:
        outcome = await call(http, HttpTarget(url=f"http://{host}:{sink.port}/"))
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert "is a loopback address" in outcome.error
    assert [] == sink.received


async def test_a_name_is_looked_up_as_this_machine_does_it() -> None:
    lookup = SystemLookup()
    async with endpoint() as sink, caller(lookup=lookup) as http:
        for _ in range(3):
            outcome = await call(http, HttpTarget(url=f"http://localhost:{sink.port}/"))
            assert "succeeded" == outcome.kind
    lookup.close()


async def test_k44_a_redirect_to_an_inside_address_is_not_followed() -> None:
    async def redirect(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})

    async with endpoint(redirect) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("failed", False, 302) == (outcome.kind, outcome.retryable, outcome.http_status)
    assert "redirects are not followed" in outcome.error
    assert 1 == len(sink.received)


async def test_k44_the_address_that_was_checked_is_the_one_connected_to() -> None:
    looked_up: list[str] = []

    async def first_allowed_then_not(host: str, port: int) -> Sequence[Address]:
        looked_up.append(host)
        return await resolve_to("127.0.0.1" if len(looked_up) == 1 else "169.254.169.254")

    async with endpoint() as sink, caller(lookup=first_allowed_then_not) as http:
        outcome = await call(http, HttpTarget(url=f"http://rebinding.example:{sink.port}/"))
    assert ("succeeded", ["rebinding.example"]) == (outcome.kind, looked_up)
    assert f"rebinding.example:{sink.port}" == sink.only.headers["host"]


async def test_k44_a_name_with_one_inside_address_is_blocked() -> None:
    async def mixed(host: str, port: int) -> Sequence[Address]:
        return await resolve_to("127.0.0.1", "10.0.0.8")

    async with endpoint() as sink, caller(lookup=mixed) as http:
        outcome = await call(http, HttpTarget(url=f"http://mixed.example:{sink.port}/"))
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert "mixed.example (10.0.0.8) is a private address" in outcome.error
    assert [] == sink.received


async def test_an_allowed_host_is_reached_wherever_it_is() -> None:
    async def inside(host: str, port: int) -> Sequence[Address]:
        return await resolve_to("127.0.0.1")

    policy = EgressPolicy(allow=("*.svc.internal",))
    async with endpoint() as sink, caller(policy, inside) as http:
        outcome = await call(http, HttpTarget(url=f"http://hooks.svc.internal:{sink.port}/"))
        blocked = await call(http, HttpTarget(url=f"http://127.0.0.1:{sink.port}/"))
    assert ("succeeded", "failed") == (outcome.kind, blocked.kind)
