"""HTTP targets against real servers: what is sent, how answers are judged, and what breaks."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from aiohttp import web

from tests.unit.worker.endpoints import LIMIT_S, RUN, call, caller, endpoint, execution, stream
from tocsin.schemas.job import BodyKind, HttpTarget
from tocsin.worker.execution import RESPONSE_BYTES_MAX
from tocsin.worker.http import Address, retry_after_ms, traceparent

pytestmark = pytest.mark.asyncio

NOW_MS = 1_773_043_200_000  # 2026-03-09T08:00:00Z


# --- what is sent -------------------------------------------------------------------------------------------------------


async def test_a_request_carries_who_the_run_is() -> None:
    async with endpoint() as sink, caller() as http:
        target = HttpTarget(
            url=f"{sink.url}/hook?x=1", headers=(("X-Team", "billing"),), body=b'{"day":1}', body_kind="json"
        )
        outcome = await call(http, target)
    got = sink.only
    assert ("succeeded", 200, "done", "") == (
        outcome.kind,
        outcome.http_status,
        outcome.response,
        outcome.error,
    )
    assert ("POST", "/hook?x=1", b'{"day":1}') == (got.method, got.path, got.body)
    expected = {
        "webhook-id": RUN.run_id,
        "webhook-timestamp": str(outcome.started_ms // 1000),
        "tocsin-attempt": "2",
        "tocsin-dispatch": "4",
        "tocsin-nominal": "2026-03-09T08:00:00.000Z",
        "tocsin-due": "2026-03-09T08:03:12.000Z",
        "tocsin-job": "billing/send",
        "traceparent": traceparent(RUN.run_id, 2),
        "x-team": "billing",
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    assert expected.items() <= got.headers.items()


async def test_k43_each_attempt_sends_the_same_bytes_under_the_same_id() -> None:
    async with endpoint() as sink, caller() as http:
        target = HttpTarget(
            url=f"{sink.url}/${{date}}", body=b'{"n":"${nominal}","r":"${run_id}"}', body_kind="json"
        )
        for attempt in (1, 2):
            await call(
                http, target, replace(RUN, attempt=attempt, dispatch=attempt, due_ms=RUN.due_ms + attempt)
            )
    first, second = sink.received
    assert (first.path, first.body) == (second.path, second.body)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["traceparent"][:35] == second.headers["traceparent"][:35]
    assert ("1", "2") == (first.headers["tocsin-attempt"], second.headers["tocsin-attempt"])


async def test_k43_a_job_cannot_pass_for_another_by_its_headers() -> None:
    forged = [
        "webhook-id", "Webhook-Signature", "TOCSIN-ATTEMPT", "tocsin-callback", "traceparent", "Content-Length",
        "Transfer-Encoding", "Connection",
    ]  # fmt: skip
    async with endpoint() as sink, caller() as http:
        headers = tuple((name, "forged") for name in forged)
        await call(http, HttpTarget(url=sink.url, headers=headers, body=b"x", body_kind="text"))
    assert "forged" not in sink.only.headers.values()
    assert RUN.run_id == sink.only.headers["webhook-id"]


async def test_placeholders_are_filled_in_everywhere() -> None:
    async with endpoint() as sink, caller() as http:
        await call(
            http,
            HttpTarget(
                url=f"{sink.url}/d/${{date}}?run=${{run_id}}&job=${{job}}",
                headers=(("X-At", "${nominal}"),),
                body=b"${job} ${date} ${unknown}",
                body_kind="text",
            ),
        )
    assert (
        "/d/2026-03-09?run=billing%2Fsend%4020260309T080000.000Z&job=billing%2Fsend"
        == sink.only.path.replace("@", "%40").replace("billing/send", "billing%2Fsend")
    )
    assert "2026-03-09T08:00:00.000Z" == sink.only.headers["x-at"]
    assert b"billing/send 2026-03-09 ${unknown}" == sink.only.body


async def test_a_value_in_the_path_stays_one_part_of_it() -> None:
    async with endpoint() as sink, caller() as http:
        await call(http, HttpTarget(url=f"{sink.url}/jobs/${{job}}/done"))
    assert "/jobs/billing%2Fsend/done" == sink.only.path


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("json", "application/json"),
        ("text", "text/plain; charset=utf-8"),
        ("base64", "application/octet-stream"),
        ("none", None),
    ],
)
async def test_the_content_type_follows_the_kind_of_body(kind: BodyKind, content_type: str | None) -> None:
    async with endpoint() as sink, caller() as http:
        body = b"" if kind == "none" else b"${job}"
        await call(http, HttpTarget(url=sink.url, body=body, body_kind=kind))
    assert content_type == sink.only.headers.get("content-type")
    assert {"base64": b"${job}", "none": b""}.get(kind, b"billing/send") == sink.only.body


async def test_a_content_type_of_ones_own_is_kept() -> None:
    async with endpoint() as sink, caller() as http:
        target = HttpTarget(
            url=sink.url, headers=(("content-type", "application/xml"),), body=b"<x/>", body_kind="text"
        )
        await call(http, target)
    assert "application/xml" == sink.only.headers["content-type"]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
async def test_other_methods(method: str) -> None:
    async with endpoint() as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url, method=method))
    assert (method, "succeeded") == (sink.only.method, outcome.kind)


async def test_connections_are_kept_and_cookies_are_not() -> None:
    async def set_cookie(_: web.Request) -> web.StreamResponse:
        response = web.Response(text="x" * 100_000)
        response.set_cookie("session", "of somebody else")
        return response

    async with endpoint(set_cookie) as sink, caller() as http:
        for _ in range(3):
            await call(http, HttpTarget(url=sink.url))
    assert 1 == len({id(received.connection) for received in sink.received})
    assert all("cookie" not in received.headers for received in sink.received)


# --- how answers are judged ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (200, "succeeded", False),
        (204, "succeeded", False),
        (299, "succeeded", False),
        (302, "failed", False),
        (400, "failed", False),
        (404, "failed", False),
        (408, "failed", True),
        (410, "failed", False),
        (425, "failed", True),
        (429, "failed", True),
        (500, "failed", True),
        (503, "failed", True),
        (599, "failed", True),
    ],
)
async def test_statuses(status: int, kind: str, retryable: bool) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async with endpoint(answer) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert (kind, status, retryable) == (outcome.kind, outcome.http_status, outcome.retryable)
    assert (str(status) in outcome.error) == (kind == "failed")
    assert 1 == len(sink.received)  # a redirect is not followed


async def test_success_is_what_the_job_says() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=int(request.path[1:]))

    async with endpoint(answer) as sink, caller() as http:
        kinds = [
            (await call(http, HttpTarget(url=f"{sink.url}/{status}", success=((201, 201), (404, 410))))).kind
            for status in (200, 201, 404, 409, 411, 500)
        ]
    assert ["failed", "succeeded", "succeeded", "succeeded", "failed", "failed"] == kinds


@pytest.mark.parametrize(("status", "expected"), [(503, 120_000), (429, 120_000), (404, -1)])
async def test_retry_after_counts_where_another_attempt_may_help(status: int, expected: int) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Retry-After": "120"})

    async with endpoint(answer) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert expected == outcome.retry_after_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, -1),
        ("0", 0),
        ("120", 120_000),
        (" 5 ", 5_000),
        ("Mon, 09 Mar 2026 08:02:00 GMT", 120_000),
        ("Mon, 09 Mar 2026 07:00:00 GMT", 0),
        ("Mon, 09 Mar 2026 10:02:00 +0200", 120_000),
        ("Monday, 09-Mar-26 08:02:00 GMT", 120_000),
        ("Mon Mar  9 08:02:00 2026", 120_000),
        ("-5", -1),
        ("1.5", -1),
        ("soon", -1),
        ("", -1),
        ("9" * 400, -1),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", -1),
        ("Mon, 99999999999999999999 Jan 2024 00:00:00 GMT", -1),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", -1),
        ("Mon, 01 Jan 9999 23:59:59 -2359", 7 * 86_400_000),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0),
        ("999999999", 7 * 86_400_000),
    ],
)
async def test_both_forms_of_retry_after(value: str | None, expected: int) -> None:
    assert expected == retry_after_ms(value, NOW_MS)


HEADERS = (
    b"Retry-After",
    b"Location",
    b"Content-Type",
    b"Content-Length",
    b"Content-Encoding",
    b"Set-Cookie",
)
VALUES = (
    b"Mon, 01 Jan 2024 00:00:00 +99999999999999",
    b"\xed\xa0\x80",
    b"9" * 5_000,
    b"text/plain; charset=punycode",
    b"text/plain; charset=\xff",
    b"a=b; expires=Mon, 99999999999999999999 Jan 99999 00:00:00",
    b"\x01",
)


async def test_no_header_of_an_endpoint_breaks_the_call_or_its_report() -> None:
    answers: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop())

    async with stream(serve) as sink, caller() as http:
        for status, header, value in product((b"503", b"302", b"200"), HEADERS, VALUES):
            answers.append(b"HTTP/1.1 %b \xff\r\n%b: %b\r\n\r\n\xff\xfe" % (status, header, value))
            outcome = await call(http, HttpTarget(url=sink.url))
            assert outcome.kind in ("succeeded", "failed"), (header, value)
            assert outcome.retry_after_ms <= 7 * 86_400_000
            f"{outcome.error}{outcome.response}".encode()


async def test_a_long_answer_is_cut_and_not_read_for_ever() -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"y" * 65_536)
        except ConnectionError:
            gone.set()
            raise

    async with endpoint(endless) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
        await asyncio.wait_for(gone.wait(), LIMIT_S)
    assert ("succeeded", "y" * RESPONSE_BYTES_MAX) == (outcome.kind, outcome.response)


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=latin-1", "grün"),
        ("grün".encode(), "text/plain; charset=no-such-thing", "grün"),
        (b"a\0b", "text/plain", "a\N{REPLACEMENT CHARACTER}b"),
        (b"\xff\xfe", "application/octet-stream", "\N{REPLACEMENT CHARACTER}" * 2),
        (b"abc", "text/plain; charset=rot13", "abc"),
    ],
)
async def test_an_answer_becomes_text_whatever_it_is(body: bytes, content_type: str, expected: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": content_type})

    async with endpoint(answer) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("succeeded", expected) == (outcome.kind, outcome.response)


async def test_an_answer_of_nonsense_stays_within_its_bytes() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xff" * 10_000)

    async with endpoint(answer) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert len(outcome.response.encode()) <= RESPONSE_BYTES_MAX


# --- what breaks --------------------------------------------------------------------------------------------------------


async def test_no_answer_within_the_timeout_may_be_tried_again() -> None:
    release = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    async with endpoint(slow) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url, timeout_ms=50))
        release.set()
    assert ("failed", True, 0) == (outcome.kind, outcome.retryable, outcome.http_status)
    assert "no complete answer within 0.05 s" == outcome.error


async def test_a_body_that_does_not_end_within_the_timeout_is_no_success() -> None:
    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await reader.read()

    async with stream(stuck) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url, timeout_ms=50))
    assert ("failed", True) == (outcome.kind, outcome.retryable)


async def test_a_body_that_breaks_off_is_no_success() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    async with stream(break_off) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "incomplete" in outcome.error


async def test_a_connection_closed_without_an_answer_may_be_tried_again() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with stream(hang_up) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "without an answer" in outcome.error


async def test_an_answer_that_is_no_http_may_be_tried_again() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-hello\r\n\r\n")

    async with stream(babble) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "no HTTP" in outcome.error


async def test_nobody_listening_may_be_tried_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with caller() as http:
            outcome = await call(http, HttpTarget(url=f"http://127.0.0.1:{unused.getsockname()[1]}/"))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert outcome.error.startswith("no connection: ")


async def test_plain_http_behind_an_https_url_may_be_tried_again() -> None:
    async with endpoint() as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url.replace("http:", "https:")))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "no secure connection" in outcome.error


async def test_a_name_that_cannot_be_resolved_may_be_tried_again() -> None:
    async def nowhere(host: str, port: int) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with caller(lookup=nowhere) as http:
        outcome = await call(http, HttpTarget(url="http://no-such-host.invalid/"))
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "cannot be resolved" in outcome.error


@pytest.mark.parametrize(
    "target",
    [
        HttpTarget(url="ftp://127.0.0.1/"),
        HttpTarget(url="http:///path"),
        HttpTarget(url="not a url"),
        HttpTarget(url="http://127.0.0.1:99999/"),
        HttpTarget(url="http://127.0.0.1/", headers=(("X", "a\r\nwebhook-id: forged"),)),
        HttpTarget(url="http://127.0.0.1/", headers=(("X", "a\0b"),)),
        HttpTarget(url="http://127.0.0.1/", headers=(("bad name", "x"),)),
        HttpTarget(url="http://127.0.0.1/", headers=(("", "x"),)),
        HttpTarget(url="http://127.0.0.1/", method="BAD METHOD"),
    ],
)
async def test_a_request_that_cannot_be_made_fails_for_good(target: HttpTarget) -> None:
    async with caller() as http:
        outcome = await call(http, target)
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert outcome.error


async def test_an_aborted_request_closes_its_connection() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        gone.set()

    async with stream(wait_for_end) as sink, caller() as http:
        target = HttpTarget(url=sink.url)
        task = asyncio.create_task(http.call(execution(target), target))
        await asyncio.wait_for(arrived.wait(), LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), LIMIT_S)
