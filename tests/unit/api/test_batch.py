"""Many definitions in one request."""

import json
from typing import Any

import httpx
import pytest

from tests.unit.api.fakes import HELLO, NAMES, FakeNode, fake_node


def send(node: FakeNode, *lines: Any, **params: str) -> httpx.Response:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return node.ask("POST", "/v1/jobs:batch", content=text.encode(), params=params)


def results(answer: httpx.Response) -> list[tuple[str, str]]:
    assert "application/x-ndjson" == answer.headers["content-type"]
    return [(line["key"], line["result"]) for line in map(json.loads, answer.text.splitlines())]


def rules(answer: httpx.Response) -> list[list[str]]:
    return [[e["rule"] for e in line["errors"]] for line in map(json.loads, answer.text.splitlines())]


def test_each_line_has_its_result_in_order_and_a_wrong_one_stops_no_other(node: FakeNode) -> None:
    answer = send(node, {"id": "b", **HELLO}, {"id": "c"}, "{", {"namespace": "x", "id": "a", **HELLO})
    assert 200 == answer.status_code
    assert [
        ("default/b", "acknowledged"),
        ("default/c", "invalid"),
        ("", "invalid"),
        ("x/a", "acknowledged"),
    ] == results(answer)
    assert {"b", "a"} == {record.id for record in node.records(NAMES.jobs)}


def test_with_wait_each_line_says_what_became_of_it(node: FakeNode) -> None:
    node.put("default/a")
    node.put("default/b")
    answer = send(
        node,
        {"id": "a", **HELLO},
        {"id": "b", **HELLO, "schedule": {"every": "9s"}},
        {"id": "c", **HELLO},
        wait="applied",
    )
    assert [("default/a", "unchanged"), ("default/b", "changed"), ("default/c", "created")] == results(answer)


def test_without_partial_one_wrong_line_keeps_all_from_being_written(node: FakeNode) -> None:
    answer = send(node, {"id": "a", **HELLO}, {"id": "b", **HELLO, "queue": "nowhere"}, partial="false")
    assert 422 == answer.status_code
    assert [("default/a", "skipped"), ("default/b", "invalid")] == results(answer)
    assert [[], ["unknown-queue"]] == rules(answer)
    assert [] == node.records(NAMES.jobs)


def test_a_dry_run_foresees_the_results_and_writes_nothing(node: FakeNode) -> None:
    node.put("default/a")
    written = len(node.records(NAMES.jobs))
    answer = send(
        node,
        {"id": "a", **HELLO},
        {"id": "b", **HELLO},
        {"id": "a", "target": HELLO["target"]},
        dry_run="true",
    )
    assert [("default/a", "unchanged"), ("default/b", "created"), ("default/a", "invalid")] == results(answer)
    assert written == len(node.records(NAMES.jobs))


def test_a_key_that_occurs_twice_is_refused_the_second_time(node: FakeNode) -> None:
    answer = send(node, {"id": "a", **HELLO}, {"namespace": "default", "id": "a", **HELLO})
    assert [[], ["duplicate"]] == rules(answer)
    assert "line 1" in answer.text


def test_a_newline_at_the_end_is_no_line_and_an_empty_line_is_a_wrong_one(node: FakeNode) -> None:
    assert 1 == len(results(send(node, {"id": "a", **HELLO}, "")))
    assert [[], ["json"], []] == rules(send(node, {"id": "b", **HELLO}, "", {"id": "c", **HELLO}))


def test_ten_thousand_lines_are_taken_and_one_more_is_not(node: FakeNode) -> None:
    line = json.dumps({"id": "x"})
    assert 10_000 == len(results(send(node, *[line] * 10_000)))
    answer = send(node, *[line] * 10_001)
    assert (413, "urn:tocsin:problem:too-large") == (answer.status_code, answer.json()["type"])
    assert "10000" in answer.json()["detail"]


def test_a_large_document_is_refused_by_itself_and_a_large_batch_as_a_whole(node: FakeNode) -> None:
    large = {"id": "a", "description": "x" * 256 * 1024}
    assert [["too-large"], []] == rules(send(node, large, {"id": "b", **HELLO}))
    answer = send(node, "x" * (32 * 1024 * 1024 + 1))
    assert 413 == answer.status_code


def test_an_empty_batch_is_a_problem(node: FakeNode) -> None:
    assert 400 == send(node, "").status_code


def test_a_batch_of_wrong_lines_alone_is_answered_line_by_line(node: FakeNode) -> None:
    assert [("default/", "invalid"), ("", "invalid"), ("default/7", "invalid")] == results(
        send(node, {}, "[]", {"id": 7, **HELLO}, wait="applied")
    )


def test_lines_that_were_not_applied_in_time_stay_acknowledged() -> None:
    with fake_node(within_s=0.5) as node:
        node.state.stuck = True
        assert [("default/a", "acknowledged")] == results(send(node, {"id": "a", **HELLO}, wait="applied"))


def test_a_log_that_takes_nothing_is_a_problem_and_no_list_of_results(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.log.faults.lose_acknowledgement_of_next(NAMES.jobs, 2)
    answer = send(node, {"id": "a", **HELLO}, {"id": "b", **HELLO})
    assert (503, "urn:tocsin:problem:log-unavailable") == (answer.status_code, answer.json()["type"])
    assert "1" == answer.headers["retry-after"]


def test_a_line_that_the_log_did_not_take_is_the_only_one_that_failed(node: FakeNode) -> None:
    node.log.faults.lose_acknowledgement_of_next(NAMES.jobs, 1)
    answer = send(node, {"id": "a", **HELLO}, {"id": "b", **HELLO})
    assert [("default/a", "failed"), ("default/b", "acknowledged")] == results(answer)
