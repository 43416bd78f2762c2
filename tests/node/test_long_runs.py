"""A node with secrets, and an endpoint that takes its time: signed requests, 202 with a lease, heartbeats, completion."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.node.conftest import Node, until
from tocsin.clock import SystemClock
from tocsin.signing import format_secret, verify

SECRET = format_secret(bytes(range(32)))


class Endpoint:
    """Accepts every run for `lease` seconds; what it was asked, as it came."""

    def __init__(self, lease: str) -> None:
        self.asked: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                outer.asked.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(202)
                self.send_header("Tocsin-Lease", lease)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def callback(self, number: int = 0) -> str:
        return self.asked[number][0]["tocsin-callback"]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint("3")
    yield made
    made.stop()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    made = tmp_path / "secrets"
    (made / "default").mkdir(parents=True)
    (made / "default" / "hook").write_text(SECRET + "\n")
    (made / "default" / "token").write_text("Bearer correct-horse\n")
    return made


def define(node: Node, endpoint: Endpoint) -> str:
    return node.define(
        {
            "id": "long",
            "schedule": {"delay": "1s"},
            "target": {
                "http": {
                    "url": endpoint.url,
                    "headers": {"Authorization": {"secret": "token"}},
                    "signing_secret": {"secret": "hook"},
                    "body": {"day": "${date}"},
                }
            },
            "retry": {"base": "1s", "jitter": 0, "max_attempts": 2},
            "when_finished": "keep",
        }
    )


def status(node: Node, key: str) -> str:
    runs = node.runs(key)
    return str(runs[0]["status"]) if runs else ""


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(url, json=body, timeout=30.0, trust_env=False)


def test_a_long_run_lives_by_its_heartbeats_through_a_restart_and_ends_as_its_endpoint_says(
    node: Node, endpoint: Endpoint, secrets: Path
) -> None:
    node.start("--secrets", str(secrets))
    key = define(node, endpoint)
    until(lambda: status(node, key) == "running", "the run is with its endpoint")
    headers, body = endpoint.asked[0]
    assert "Bearer correct-horse" == headers["authorization"]
    assert headers["webhook-id"] == verify(headers, body, [SECRET], now_s=SystemClock().now_ms() / 1000)

    begun_s = SystemClock().monotonic_s()
    restarted = False
    while SystemClock().monotonic_s() < begun_s + 7:  # more than two leases of 3 s
        answer = post(f"{endpoint.callback()}/heartbeat", {"lease": "20s"})
        assert (200, False) == (answer.status_code, answer.json()["cancel_requested"])
        if not restarted:
            restarted = True
            node.stop()
            node.start("--secrets", str(secrets))
        threading.Event().wait(0.5)
    assert 1 == len(endpoint.asked)
    assert (
        200
        == post(f"{endpoint.callback()}/complete", {"status": "succeeded", "response": "page 7"}).status_code
    )
    until(lambda: status(node, key) == "succeeded", "the run has ended")
    [attempt] = node.runs(key)[0]["attempts"]
    assert ("succeeded", "page 7", "endpoint") == (attempt["outcome"], attempt["response"], attempt["worker"])
    assert 409 == post(f"{endpoint.callback()}/complete", {"status": "failed"}).status_code


def test_an_endpoint_that_falls_silent_is_asked_again_and_its_old_word_counts_no_more(
    node: Node, endpoint: Endpoint, secrets: Path
) -> None:
    node.start("--secrets", str(secrets))
    key = define(node, endpoint)
    until(lambda: len(endpoint.asked) == 2, "a second attempt is made")
    assert endpoint.asked[0][0]["webhook-id"] == endpoint.asked[1][0]["webhook-id"]
    assert endpoint.asked[0][1] == endpoint.asked[1][1]
    assert 409 == post(f"{endpoint.callback(0)}/complete", {"status": "succeeded"}).status_code
    assert 200 == post(f"{endpoint.callback(1)}/complete", {"status": "succeeded"}).status_code
    until(lambda: status(node, key) == "succeeded", "the second attempt has ended it")
    assert ["lost", "succeeded"] == [attempt["outcome"] for attempt in node.runs(key)[0]["attempts"]]


def test_a_cancelled_long_run_is_told_at_its_next_heartbeat(
    node: Node, endpoint: Endpoint, secrets: Path
) -> None:
    node.start("--secrets", str(secrets))
    key = define(node, endpoint)
    until(lambda: status(node, key) == "running", "the run is with its endpoint")
    run_id = node.runs(key)[0]["run_id"]
    assert post(f"{endpoint.callback()}/heartbeat", {"lease": "60s"}).is_success
    assert node.client.post(f"/v1/runs/{run_id}/cancel", json={}, params={"wait": "applied"}).is_success
    until(
        lambda: post(f"{endpoint.callback()}/heartbeat", {}).json()["cancel_requested"],
        "the endpoint learns of the cancel",
    )
    assert post(f"{endpoint.callback()}/complete", {"status": "cancelled"}).is_success
    until(lambda: status(node, key) == "cancelled", "the run is cancelled")
    assert 1 == len(endpoint.asked)


def test_nothing_that_is_kept_holds_a_secret(node: Node, endpoint: Endpoint, secrets: Path) -> None:
    node.start("--secrets", str(secrets))
    key = define(node, endpoint)
    until(lambda: status(node, key) == "running", "the run is with its endpoint")
    shown = json.dumps([node.get(f"/v1/jobs/{key}"), node.runs(key)])
    assert "hook" in shown
    node.stop()
    stored = b"".join(path.read_bytes() for path in node.data.rglob("*") if path.is_file())
    assert b"default/long" in stored  # so that a secret beside it would be found
    for secret in (SECRET.removeprefix("whsec_"), "correct-horse"):
        assert secret not in shown
        assert secret.encode() not in stored
