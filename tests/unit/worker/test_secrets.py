"""Secrets: files of the worker, sent where the definition names them, kept nowhere else."""

from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.endpoints import RUN, call, caller, endpoint
from tocsin.clock import FakeClock, SystemClock
from tocsin.schemas.job import HttpTarget
from tocsin.signing import format_secret, verify
from tocsin.worker.execution import RESPONSE_BYTES_MAX
from tocsin.worker.secrets import Redaction, SecretFiles, SecretUnavailable

OLD = format_secret(bytes(range(32)))
NEW = format_secret(bytes(range(32, 64)))


def put(directory: Path, name: str, text: str, namespace: str = "billing") -> None:
    (directory / namespace).mkdir(exist_ok=True)
    (directory / namespace / name).write_text(text)


# --- files --------------------------------------------------------------------------------------------------------------


def test_a_secret_is_the_text_of_its_file_without_the_last_line_break(tmp_path: Path) -> None:
    files = SecretFiles(tmp_path, FakeClock())
    for name, text in (("a", "Bearer x"), ("b", "Bearer x\n"), ("c", "Bearer x\r\n")):
        put(tmp_path, name, text)
        assert "Bearer x" == files.text("billing", name)
    put(tmp_path, "d", "x\n\n")
    assert "x\n" == files.text("billing", "d")


def test_a_changed_secret_is_in_force_after_five_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    files = SecretFiles(tmp_path, clock)
    put(tmp_path, "token", "one")
    assert "one" == files.text("billing", "token")
    put(tmp_path, "token", "two")
    clock.advance(4_999)
    assert "one" == files.text("billing", "token")
    clock.advance(1)
    assert "two" == files.text("billing", "token")


def test_a_secret_that_comes_later_is_found_at_once(tmp_path: Path) -> None:
    files = SecretFiles(tmp_path, FakeClock())
    with pytest.raises(SecretUnavailable, match=r"put it into the file .*/billing/token"):
        files.text("billing", "token")
    put(tmp_path, "token", "one")
    assert "one" == files.text("billing", "token")


def test_namespaces_do_not_share_secrets(tmp_path: Path) -> None:
    put(tmp_path, "token", "theirs", namespace="sales")
    with pytest.raises(SecretUnavailable):
        SecretFiles(tmp_path, FakeClock()).text("billing", "token")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff", "no UTF-8"),
        (b"x" * 8_193, "longer than 8,192 bytes"),
    ],
)
def test_a_file_that_cannot_be_a_secret_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "token").write_bytes(content)
    with pytest.raises(SecretUnavailable, match=why):
        SecretFiles(tmp_path, FakeClock()).text("billing", "token")


def test_a_folder_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "billing" / "token").mkdir(parents=True)
    with pytest.raises(SecretUnavailable, match="cannot be read"):
        SecretFiles(tmp_path, FakeClock()).text("billing", "token")


def test_a_worker_without_a_directory_says_how_to_give_it_one() -> None:
    with pytest.raises(SecretUnavailable, match="--secrets DIR"):
        SecretFiles(None, FakeClock()).text("billing", "token")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hunter2hunter2", "begin with whsec_"),
        (f"{OLD}\n{NEW}\n{OLD}\n", "has 3 lines"),
        (" \n", "has 0 lines"),
    ],
)
def test_what_is_no_signing_secret_says_why_and_not_what_it_is(tmp_path: Path, text: str, why: str) -> None:
    put(tmp_path, "hook", text)
    with pytest.raises(SecretUnavailable, match=why) as refused:
        SecretFiles(tmp_path, FakeClock()).signing_keys("billing", "hook")
    assert "hunter2" not in str(refused.value)
    assert OLD not in str(refused.value)


# --- requests -----------------------------------------------------------------------------------------------------------


async def echo(request: web.Request) -> web.StreamResponse:
    shown = {name: value for name, value in request.headers.items() if name.lower() != "host"}
    return web.Response(text=f"{request.query_string}{shown}", status=int(request.query.get("status", "200")))


@pytest.mark.asyncio
async def test_a_secret_header_is_sent_and_what_comes_back_does_not_hold_it(tmp_path: Path) -> None:
    put(tmp_path, "token", "Bearer correct-horse\n")
    async with (
        endpoint(echo) as sink,
        caller(secrets=SecretFiles(tmp_path, SystemClock())) as http,
    ):
        target = HttpTarget(url=f"{sink.url}/", secret_headers=(("Authorization", "token"),))
        outcome = await call(http, target)
    assert "succeeded" == outcome.kind
    assert "Bearer correct-horse" == sink.only.headers["authorization"]
    assert "correct-horse" not in outcome.response
    assert "[redacted]" in outcome.response


@pytest.mark.asyncio
async def test_a_redirect_to_a_secret_does_not_show_it(tmp_path: Path) -> None:
    put(tmp_path, "token", "correct-horse")

    async def send_on(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "https://example.com/?t=correct-horse"})

    async with endpoint(send_on) as sink, caller(secrets=SecretFiles(tmp_path, SystemClock())) as http:
        outcome = await call(http, HttpTarget(url=f"{sink.url}/", secret_headers=(("X-Token", "token"),)))
    assert ("failed", 302) == (outcome.kind, outcome.http_status)
    assert "correct-horse" not in outcome.error
    assert "https://example.com/?t=[redacted]" in outcome.error


@pytest.mark.asyncio
@pytest.mark.parametrize("known", [OLD, NEW])
async def test_a_request_is_signed_with_both_secrets_while_one_is_rotated(tmp_path: Path, known: str) -> None:
    put(tmp_path, "hook", f"{NEW}\n{OLD}\n")
    async with endpoint() as sink, caller(secrets=SecretFiles(tmp_path, SystemClock())) as http:
        target = HttpTarget(
            url=f"{sink.url}/", signing_secret="hook", body=b'{"day":"${date}"}', body_kind="json"
        )
        outcome = await call(http, target)
    got = sink.only
    assert RUN.run_id == verify(got.headers, got.body, [known], now_s=outcome.started_ms / 1000)


@pytest.mark.asyncio
async def test_a_request_without_a_body_is_signed_too(tmp_path: Path) -> None:
    put(tmp_path, "hook", NEW)
    async with endpoint() as sink, caller(secrets=SecretFiles(tmp_path, SystemClock())) as http:
        outcome = await call(http, HttpTarget(url=f"{sink.url}/", method="GET", signing_secret="hook"))
    assert RUN.run_id == verify(sink.only.headers, b"", [NEW], now_s=outcome.started_ms / 1000)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "target",
    [
        HttpTarget(url="/", secret_headers=(("Authorization", "missing"),)),
        HttpTarget(url="/", signing_secret="missing"),
        HttpTarget(url="/", secret_headers=(("Authorization", "two-lines"),)),
    ],
)
async def test_a_run_whose_secret_cannot_be_used_sends_nothing_and_is_tried_again(
    tmp_path: Path, target: HttpTarget
) -> None:
    put(tmp_path, "two-lines", "one\nInjected: two")
    async with endpoint() as sink, caller(secrets=SecretFiles(tmp_path, SystemClock())) as http:
        outcome = await call(
            http,
            HttpTarget(
                url=f"{sink.url}/", secret_headers=target.secret_headers, signing_secret=target.signing_secret
            ),
        )
    assert ("failed", True) == (outcome.kind, outcome.retryable)
    assert "secret" in outcome.error
    assert "Injected" not in outcome.error
    assert [] == sink.received


# --- redaction ----------------------------------------------------------------------------------------------------------


@given(
    st.text(alphabet="ab", max_size=30).map(str.encode),
    st.lists(st.text(alphabet="ab", min_size=4, max_size=6), max_size=3),
    st.integers(0, 30),
)
def test_no_secret_is_left_in_an_excerpt_wherever_it_is_cut(
    content: bytes, secrets: list[str], limit: int
) -> None:
    redaction = Redaction(secrets)
    kept = redaction.excerpt(content[: limit + redaction.longest], limit)
    for secret in secrets:
        assert secret.encode() not in kept
    covered = {
        at + i
        for secret in secrets
        for at in range(len(content))
        if content.startswith(secret.encode(), at)
        for i in range(len(secret))
    }
    left = bytes(byte for at, byte in enumerate(content[:limit]) if at not in covered)
    assert left == kept.replace(b"[redacted]", b"")


def test_a_secret_that_the_excerpt_would_cut_in_two_is_not_kept_by_half() -> None:
    redaction = Redaction(["correct-horse"])
    content = b"x" * (RESPONSE_BYTES_MAX - 3) + b"correct-horse"
    kept = redaction.excerpt(content[: RESPONSE_BYTES_MAX + redaction.longest], RESPONSE_BYTES_MAX)
    assert b"cor" not in kept
