"""The receiver of docs/security.md, run as it is printed there."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from tocsin.clock import SystemClock
from tocsin.signing import format_secret, parse_secret, sign

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    handler = names["Hook"]
    assert isinstance(handler, type)
    assert issubclass(handler, BaseHTTPRequestHandler)
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    with HTTPServer(("127.0.0.1", 0), quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def send(url: str, secret: str, body: bytes, sent: bytes) -> int:
    now_s = SystemClock().now_ms() // 1000
    signature = sign([parse_secret(secret)], message_id="a/b@x", timestamp_s=now_s, body=body)
    headers = {"webhook-id": "a/b@x", "webhook-timestamp": str(now_s), "webhook-signature": signature}
    return httpx.post(url, content=sent, headers=headers, trust_env=False).status_code


def test_it_takes_what_was_signed_and_refuses_what_was_not(receiver: str) -> None:
    secret = format_secret(bytes(range(32)))
    assert 200 == send(receiver, secret, b'{"day": 1}', b'{"day": 1}')
    assert 401 == send(receiver, secret, b'{"day": 1}', b'{"day": 2}')
    assert 401 == send(receiver, format_secret(bytes(32)), b'{"day": 1}', b'{"day": 1}')
    assert 401 == httpx.post(receiver, content=b"{}", trust_env=False).status_code
