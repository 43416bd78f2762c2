"""`tocsin sink`, as a process of its own."""

import json
import signal
from typing import Any

import httpx
import pytest

from tests.unit.cli.conftest import LIMIT_S, RUN, line_of, sink, spawned, tocsin

HEADERS = {
    "webhook-id": RUN,
    "Tocsin-Attempt": "2",
    "Tocsin-Dispatch": "3",
    "Tocsin-Due": "2026-01-01T00:00:00.000Z",
}


def test_the_sink_fails_as_often_as_its_address_says() -> None:
    with sink() as (url, process):
        codes = [
            httpx.request(method, f"{url}{path}", headers={"Tocsin-Attempt": attempt}).status_code
            for method, path, attempt in [
                ("POST", "/ok", "1"),
                ("POST", "/fail", "9"),
                ("POST", "/fail/2", "1"),
                ("PUT", "/fail/2", "2"),
                ("POST", "/fail/2", "3"),
                ("GET", "/anything/else", "1"),
            ]
        ]
        assert [200, 503, 503, 503, 200, 200] == codes
        httpx.post(f"{url}/ok", headers=HEADERS)
        lines = [line_of(process) for _ in range(7)]
        assert lines[6].startswith(f"200  {RUN}  attempt 2  +")


def test_the_sink_prints_what_arrives_as_json_and_sums_up_when_it_ends() -> None:
    with sink("--json") as (url, process):
        httpx.post(f"{url}/fail/1", headers=HEADERS)
        httpx.post(f"{url}/fail/1", headers=HEADERS)
        seen: list[dict[str, Any]] = [json.loads(line_of(process)) for _ in range(2)]
        assert {(RUN, 2, 1_767_225_600_000, 3, 200)} == {
            (s["run_id"], s["attempt"], s["due_ms"], s["dispatch"], s["status"]) for s in seen
        }
        assert all(s["lateness_ms"] == s["received_ms"] - s["due_ms"] for s in seen)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
        assert 0 == process.returncode
        assert "2 requests, 1 of them again; lateness p50" in err


def test_the_sink_that_is_interrupted_says_so_by_its_exit_code() -> None:
    with sink() as (_, process):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
        assert 130 == process.returncode
        assert "0 requests" in err


def test_a_port_that_is_taken_is_explained(receiver: str) -> None:
    done = spawned("sink", "--port", receiver.rpartition(":")[2])
    assert 1 == done.code
    assert "--port" in done.err


@pytest.mark.parametrize(("port", "limit"), [("99999", "65535"), ("65536", "65535"), ("-1", "0")])
def test_a_port_that_is_none_is_refused_and_does_not_become_another(port: str, limit: str) -> None:
    done = tocsin("sink", f"--port={port}")
    assert 2 == done.code
    assert f"equal to {limit} " in done.err


def test_a_delay_needs_a_unit_that_is_one() -> None:
    done = tocsin("sink", "--delay", "soon")
    assert 2 == done.code
    assert done.err.startswith("--delay: ")
