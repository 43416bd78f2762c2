"""Queues, health, figures, the way in, errors in general."""

import json
import re
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.api.fakes import HELLO, NAMES, FakeNode, fake_node
from tocsin.api.services import WorkerSnapshot
from tocsin.log.partitioner import partition_for
from tocsin.log.port import LogFull, LogUnavailable, TopicSpec
from tocsin.schemas.records import Queue

PARTITION_OF_A = partition_for(b"default/a", 4)


def restore(node: FakeNode, *partitions: int) -> None:
    """They are being restored from now on."""
    for number in partitions:
        node.state.partitions[number] = replace(
            node.state.partitions[number], ready=False, restore_done=12, restore_total=50, restore_eta_s=6.3
        )


# --- queues -----------------------------------------------------------------------------------------------------------


def test_a_new_queue_has_its_topics_and_takes_jobs_at_once(node: FakeNode) -> None:
    answer = node.ask("PUT", "/v1/queues/reports", json={"kind": "http"})
    assert (201, "reports", "http", 4) == (
        answer.status_code,
        answer.json()["name"],
        answer.json()["kind"],
        answer.json()["partitions"],
    )
    assert {
        "tocsin.due.reports",
        "tocsin.due-now.reports",
        "tocsin.control.reports",
    } <= node.log.topics().keys()
    assert [Queue(name="reports", kind="http", partitions=4)] == node.records(NAMES.config)
    assert 201 == node.put("default/a", {**HELLO, "queue": "reports"}).status_code


def test_the_same_queue_again_changes_nothing_and_another_kind_is_refused(node: FakeNode) -> None:
    node.ask("PUT", "/v1/queues/reports", json={"kind": "http"})
    assert 200 == node.ask("PUT", "/v1/queues/reports", json={"kind": "http"}).status_code
    for body in ({"kind": "function"}, {"kind": "http", "partitions": 9}):
        answer = node.ask("PUT", "/v1/queues/reports", json=body)
        assert (409, "urn:tocsin:problem:queue-exists") == (answer.status_code, answer.json()["type"])
    assert 1 == len(node.records(NAMES.config))


def test_topics_that_are_in_the_way_of_a_queue_are_named(node: FakeNode) -> None:
    node.log.create_topics([TopicSpec(name=NAMES.due("reports"), partitions=7)])
    answer = node.ask("PUT", "/v1/queues/reports", json={"kind": "http"})
    assert 409 == answer.status_code
    assert [] == node.records(NAMES.config)


@pytest.mark.parametrize(
    "path, body, field",
    [
        ("a b", {"kind": "http"}, "name"),
        ("reports", {"kind": "mail"}, "kind"),
        ("reports", {"kind": "http", "partitions": 0}, "partitions"),
        ("reports", {"kind": "http", "partitions": True}, "partitions"),
        ("reports", {"sort": "http"}, "sort"),
    ],
)
def test_a_wrong_queue_is_refused(node: FakeNode, path: str, body: dict[str, Any], field: str) -> None:
    answer = node.ask("PUT", f"/v1/queues/{path}", json=body)
    assert (422, [field]) == (answer.status_code, [e["field"] for e in answer.json()["errors"]])


def test_queues_are_listed_with_the_workers_that_read_them() -> None:
    for fires, served_by in ((True, "node"), (False, "workers")):
        with fake_node(workers=[WorkerSnapshot(queue="default", live=2)], fires=fires) as node:
            items = node.ask("GET", "/v1/queues").json()["items"]
        assert [("default", "http", 2, served_by), ("functions", "function", 0, served_by)] == [
            (q["name"], q["kind"], q["live_workers"], q["served_by"]) for q in items
        ]


# --- health and figures -----------------------------------------------------------------------------------------------


def test_a_node_that_works_is_alive_and_ready(node: FakeNode) -> None:
    assert {"status": "alive"} == node.ask("GET", "/livez").json()
    ready = node.ask("GET", "/readyz")
    assert (200, "ready", None) == (ready.status_code, ready.json()["status"], ready.json()["reason"])
    assert "2025-12-31T23:59:59.750Z" == ready.json()["partitions"][0]["watermark"]


def test_a_node_that_fires_nothing_says_why_and_is_alive_all_the_same(node: FakeNode) -> None:
    node.state.why_broken = "the wall clock is 7.2 s ahead of the log's"
    ready = node.ask("GET", "/readyz")
    assert (503, "the wall clock is 7.2 s ahead of the log's") == (ready.status_code, ready.json()["reason"])
    assert 200 == node.ask("GET", "/livez").status_code


def test_a_restore_shows_its_progress(node: FakeNode) -> None:
    node.state.partitions[2] = replace(
        node.state.partitions[2], ready=False, restore_done=12, restore_total=50
    )
    ready = node.ask("GET", "/readyz")
    assert 503 == ready.status_code
    assert "partition 2 is being restored: 12 of 50" == ready.json()["reason"]
    assert (12, 50) == tuple(
        ready.json()["partitions"][2][name] for name in ("restore_done", "restore_total")
    )


def test_what_is_being_restored_is_not_said_to_be_missing(node: FakeNode) -> None:
    restore(node, PARTITION_OF_A)
    for path in ("/v1/jobs/default/a", "/v1/jobs/default/a/runs", "/v1/runs/default/a!t.x"):
        answer = node.ask("GET", path)
        assert (503, "urn:tocsin:problem:partitions-missing", "7") == (
            answer.status_code,
            answer.json()["type"],
            answer.headers["retry-after"],
        ), path
        expected = f"partition {PARTITION_OF_A} is being restored: 12 of 50, about 6 s left"
        assert expected in answer.json()["detail"]
        assert [(PARTITION_OF_A, "restoring", 12, 50)] == [
            (each["partition"], each["reason"], each["restore_done"], each["restore_total"])
            for each in answer.json()["missing_partitions"]
        ]
    assert 404 == node.ask("GET", "/v1/jobs/default/b").status_code, "another partition answers"
    assert 202 == node.ask("PUT", "/v1/jobs/default/a", json=HELLO).status_code
    assert 202 == node.put("default/a").status_code, "the outcome cannot be asked for"


def test_what_is_being_restored_can_be_steered(node: FakeNode) -> None:
    """A job that does harm must not wait for it; what there is not, the processor refuses."""
    node.put("default/a")
    node.state.put_run("default/a@20260101T000000.000Z", "running")
    restore(node, PARTITION_OF_A)
    for method, path in [
        ("POST", "/v1/jobs/default/a/pause"),
        ("POST", "/v1/jobs/default/a/resume"),
        ("POST", "/v1/jobs/default/a/skip-next"),
        ("POST", "/v1/jobs/default/a/trigger"),
        ("POST", "/v1/runs/default/a@20260101T000000.000Z/cancel"),
        ("DELETE", "/v1/jobs/default/a"),
    ]:
        for wait in ("acknowledged", "applied"):
            answer = node.ask(method, path, params={"wait": wait})
            assert (202, "acknowledged") == (answer.status_code, answer.json()["result"]), path
    assert 10 == len(node.records(NAMES.commands))
    assert 503 == node.ask("POST", "/v1/dead-letters/default/a@20260101T000000.000Z/redrive").status_code
    assert 404 == node.ask("POST", "/v1/runs/default/a%20b@20260101T000000.000Z/cancel").status_code


def test_a_list_names_the_partitions_that_could_not_be_asked(node: FakeNode) -> None:
    node.put("default/a")
    node.put("default/b")
    restore(node, PARTITION_OF_A)
    for path in ("/v1/jobs", "/v1/runs", "/v1/dead-letters"):
        answer = node.ask("GET", path)
        assert (200, [PARTITION_OF_A]) == (
            answer.status_code,
            [each["partition"] for each in answer.json()["missing_partitions"]],
        ), path
    assert ["default/b"] == [job["key"] for job in node.ask("GET", "/v1/jobs").json()["items"]]


def test_a_list_of_which_nothing_can_be_asked_is_refused(node: FakeNode) -> None:
    restore(node, *range(4))
    for path in ("/v1/jobs", "/v1/runs", "/v1/dead-letters"):
        answer = node.ask("GET", path)
        assert (503, 4) == (answer.status_code, len(answer.json()["missing_partitions"])), path
        assert "; and 1 more" in answer.json()["detail"]


def test_nothing_is_run_again_by_filter_while_a_part_of_the_dead_letters_is_missing(node: FakeNode) -> None:
    node.put("default/b")
    node.state.put_dead("default/b@20260101T000000.000Z")
    restore(node, PARTITION_OF_A)
    assert 503 == node.ask("POST", "/v1/dead-letters:redrive", json={"limit": 10}).status_code
    assert [] == node.records(NAMES.commands)


def test_a_batch_waits_for_what_can_be_asked_and_leaves_the_rest_acknowledged(node: FakeNode) -> None:
    restore(node, PARTITION_OF_A)
    lines = "".join(json.dumps({"id": name, **HELLO}) + "\n" for name in "ab")
    answer = node.ask("POST", "/v1/jobs:batch", content=lines, params={"wait": "applied"})
    results = [json.loads(line) for line in answer.text.splitlines()]
    assert [("default/a", "acknowledged"), ("default/b", "created")] == [
        (result["key"], result["result"]) for result in results
    ]


def test_an_api_beside_its_processors_is_ready_as_long_as_it_can_write() -> None:
    trouble = [""]
    with fake_node(fires=False, writable=lambda: trouble[0]) as node:
        assert (200, "ready") == readiness(node)
        restore(node, 1)
        assert (200, "degraded") == readiness(node)
        ready = node.ask("GET", "/readyz").json()
        assert "partition 1 is being restored: 12 of 50, about 6 s left" == ready["reason"]
        assert [True, False, True, True] == [each["ready"] for each in ready["partitions"]]
        assert (503, "degraded") == readiness(node, all="true")
        trouble[0] = "no broker answers"
        assert (503, "not-ready") == readiness(node)
        assert "no broker answers" in node.ask("GET", "/readyz").json()["reason"]


def readiness(node: FakeNode, **params: str) -> tuple[int, str]:
    answer = node.ask("GET", "/readyz", params=params)
    return answer.status_code, answer.json()["status"]


def test_a_clock_that_is_held_does_not_hide_what_is_known(node: FakeNode) -> None:
    node.state.why_broken = "the wall clock stepped by 7 s"
    assert 200 == node.ask("GET", "/v1/jobs").status_code
    assert 404 == node.ask("GET", "/v1/jobs/default/a").status_code


def test_a_processor_that_ends_while_somebody_waits_leaves_the_write_acknowledged(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(topic: str, partition: int, offset: int) -> "Future[None]":
        future: Future[None] = Future()
        future.set_exception(RuntimeError("fenced"))
        return future

    monkeypatch.setattr(node.state, "applied", failed)
    answer = node.put("default/a")
    assert (202, "acknowledged") == (answer.status_code, answer.json()["result"])


def test_a_node_that_cannot_write_any_more_is_not_ready(node: FakeNode) -> None:
    node.services.appender.stop()
    assert 503 == node.ask("GET", "/readyz").status_code
    assert 503 == node.ask("PUT", "/v1/jobs/default/a", json=HELLO).status_code


def figures(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_figures_tell_lateness_overdue_pending_idle_queues_and_clocks() -> None:
    worker = WorkerSnapshot(
        queue="default",
        in_flight=3,
        held=9,
        held_overdue=2,
        held_overdue_ms=61_500,
        started_total=10,
        lateness_sum_ms=123,
        lateness_buckets={5: 8, 50: 9},
        clock_offset_ms=-12,
    )
    with fake_node(workers=[worker]) as node:
        node.state.put_run("default/a@20260101T000000.000Z", "succeeded")
        node.state.partitions[1] = replace(node.state.partitions[1], overdue=3, dead_letters=2)
        answer = node.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = figures(answer.text)
    expected = {
        "tocsin_firing": 1,
        'tocsin_overdue{partition="1"}': 3,
        'tocsin_dead_letters{partition="1"}': 2,
        'tocsin_pending{due="1h",partition="0"}': 3,
        'tocsin_recent_lateness_seconds{quantile="0.99"}': 0.004,
        'tocsin_queue_without_worker{queue="default"}': 0,
        'tocsin_queue_without_worker{queue="functions"}': 1,
        'tocsin_worker_in_flight{queue="default"}': 3,
        'tocsin_worker_held{queue="default"}': 9,
        'tocsin_worker_held_overdue{queue="default"}': 2,
        'tocsin_worker_held_overdue_seconds{queue="default"}': 61.5,
        'tocsin_worker_started_total{queue="default"}': 10,
        'tocsin_worker_clock_offset_seconds{queue="default"}': -0.012,
        'tocsin_lateness_seconds_bucket{le="0.05",queue="default"}': 9,
        'tocsin_lateness_seconds_bucket{le="+Inf",queue="default"}': 10,
        'tocsin_lateness_seconds_sum{queue="default"}': 0.123,
        "tocsin_clock_offset_seconds": 0,
    }
    assert expected == {name: found.get(name) for name in expected}
    assert 0.25 <= found['tocsin_watermark_age_seconds{partition="0"}'] < 1


def test_every_figure_is_named_after_us_and_labelled_with_bounded_sets(node: FakeNode) -> None:
    node.put("billing/some-job")
    node.state.put_run("billing/some-job@20260101T000000.000Z", "failed", error="boom")
    text = node.ask("GET", "/metrics").text
    assert {"tocsin"} == {name.partition("_")[0] for name in figures(text)}
    assert {"partition", "due", "quantile", "queue"} >= set(re.findall(r'[{,](\w+)="', text))
    assert "some-job" not in text


# --- the way in -------------------------------------------------------------------------------------------------------


def test_with_a_key_every_request_below_v1_needs_it() -> None:
    with fake_node(api_key="s3cret") as node:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
            answer = node.ask("GET", "/v1/jobs", headers=headers)
            assert (401, "urn:tocsin:problem:unauthorized") == (answer.status_code, answer.json()["type"])
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert 401 == node.ask("GET", "/v1/nothing").status_code
        assert 401 == node.ask("POST", "/v1/jobs:batch").status_code
        assert 200 == node.ask("GET", "/v1/jobs", headers={"authorization": "Bearer s3cret"}).status_code
        assert (
            200
            == node.ask(
                "GET", "/v1/jobs", headers={"authorization": "bearer s3cret", "host": "tocsin.example"}
            ).status_code
        )
        for path in ("/livez", "/readyz", "/metrics", "/docs"):
            assert 200 == node.ask("GET", path).status_code


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost:8787", "[::1]:8787", "tocsin.localhost"])
def test_without_a_key_a_loopback_name_is_enough(node: FakeNode, host: str) -> None:
    assert 200 == node.ask("GET", "/v1/jobs", headers={"host": host}).status_code
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert 404 == node.ask("POST", "/v1/jobs/a/b/trigger", headers=own).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8787"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=["rebound name", "lookalike", "foreign page", "opaque page", "foreign fetch"],
)
def test_without_a_key_a_web_page_of_another_site_gets_nothing(
    node: FakeNode, headers: dict[str, str]
) -> None:
    node.put("default/a")
    answer = node.ask("POST", "/v1/jobs/default/a/trigger", headers=headers)
    assert (403, "urn:tocsin:problem:foreign-origin") == (answer.status_code, answer.json()["type"])
    assert [] == node.records(NAMES.commands)


# --- errors in general ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, path, status, slug",
    [
        ("GET", "/v2/jobs", 404, "not-found"),
        ("GET", "/v1/jobs/", 404, "not-found"),
        ("PATCH", "/v1/jobs/a/b", 405, "method-not-allowed"),
        ("POST", "/livez", 405, "method-not-allowed"),
    ],
)
def test_what_is_not_served_is_a_problem_as_well(
    node: FakeNode, method: str, path: str, status: int, slug: str
) -> None:
    answer = node.ask(method, path)
    assert (status, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    assert f"urn:tocsin:problem:{slug}" == answer.json()["type"]
    assert status == answer.json()["status"]


def test_a_defect_is_a_problem_without_details_and_is_logged(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(key: str) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(node.state, "get_job", broken)
    answer = node.ask("GET", "/v1/jobs/default/a")
    assert (500, "urn:tocsin:problem:internal") == (answer.status_code, answer.json()["type"])
    assert "secret" not in answer.text
    assert "a secret detail" in caplog.text


@pytest.mark.parametrize(
    "error, status, slug, retry_after",
    [
        (LogUnavailable("the local queue is full"), 503, "log-unavailable", "1"),
        (LogFull("no space left"), 503, "log-full", "30"),
    ],
)
def test_a_log_that_refuses_says_when_to_come_back(
    node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    slug: str,
    retry_after: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(node.services.appender._producer, "produce", refuse)
    answer = node.ask("PUT", "/v1/jobs/default/a", json=HELLO)
    assert (status, f"urn:tocsin:problem:{slug}", retry_after) == (
        answer.status_code,
        answer.json()["type"],
        answer.headers["retry-after"],
    )


def test_more_than_may_wait_for_the_log_is_answered_with_429(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.api.appender.QUEUED_RECORDS_MAX", 0)
    monkeypatch.setattr(node.services.appender, "_queued_records", 1)
    answer = node.ask("PUT", "/v1/jobs/default/a", json=HELLO)
    assert (429, "urn:tocsin:problem:overloaded", "1") == (
        answer.status_code,
        answer.json()["type"],
        answer.headers["retry-after"],
    )


def test_a_log_that_does_not_answer_in_time_is_said_to_be_undecided() -> None:
    with fake_node(within_s=0.5) as node:
        node.log.faults.hold_sends("main")
        answer = node.ask("PUT", "/v1/jobs/default/a", json=HELLO)
        node.log.faults.release_sends("main")
    assert 503 == answer.status_code
    assert "may yet stand" in answer.json()["detail"]
