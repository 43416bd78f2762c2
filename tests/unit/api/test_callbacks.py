"""Callbacks of long runs: who has the URL may report on its dispatch, and on nothing else."""

from dataclasses import replace

import pytest

from tests.unit.api.fakes import NAMES, FakeNode
from tocsin.api.app import create_app
from tocsin.schemas.callbacks import CallbackToken, write_token
from tocsin.schemas.records import CALLBACK_EPOCH, RunReport

RUN = "billing/a@20260101T000000.000Z"
SECRET = "of-the-cluster"


@pytest.fixture
def job(node: FakeNode) -> FakeNode:
    node.put("billing/a")
    node.services = replace(node.services, secret=lambda: SECRET)
    node.app = create_app(node.services)
    node.state.put_run(RUN, "running")
    run = node.state.runs[RUN]
    node.state.runs[RUN] = replace(run, attempts=(replace(run.attempts[0], outcome="running", ended_ms=0),))
    return node


def url(secret: str = SECRET, dispatch: int = 1) -> str:
    token = CallbackToken(
        run_id=RUN, namespace="billing", job_id="a", seq=7, dispatch=dispatch, attempt=dispatch
    )
    return f"/v1/callbacks/{write_token(token, secret)}"


def reports(node: FakeNode) -> list[RunReport]:
    return node.records(NAMES.outcomes)


def test_a_heartbeat_renews_the_lease_for_as_long_as_it_says(job: FakeNode) -> None:
    answer = job.ask("POST", f"{url()}/heartbeat", json={"lease": "10m"})
    assert (200, {"run_id": RUN, "result": "acknowledged", "cancel_requested": False}) == (
        answer.status_code,
        answer.json(),
    )
    (report,) = reports(job)
    assert ("heartbeat", RUN, 7, 1, 600_000, CALLBACK_EPOCH) == (
        report.kind,
        report.run_id,
        report.seq,
        report.dispatch,
        report.lease_ms,
        report.epoch,
    )


def test_a_heartbeat_needs_no_body(job: FakeNode) -> None:
    assert 200 == job.ask("POST", f"{url()}/heartbeat").status_code
    assert [0] == [report.lease_ms for report in reports(job)]


def test_a_heartbeat_learns_that_the_run_is_to_stop(job: FakeNode) -> None:
    job.state.runs[RUN] = replace(job.state.runs[RUN], reason="cancel_requested")
    assert job.ask("POST", f"{url()}/heartbeat").json()["cancel_requested"] is True


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_a_completion_says_how_it_ended(job: FakeNode, status: str) -> None:
    body = {"status": status, "error": "no paper", "retryable": False, "response": "page 7"}
    assert 200 == job.ask("POST", f"{url()}/complete", json=body).status_code
    (report,) = reports(job)
    assert (status, "no paper" if status == "failed" else "", False, "page 7") == (
        report.kind,
        report.error,
        report.retryable,
        report.response,
    )
    assert report.started_ms == job.state.runs[RUN].attempts[0].started_ms
    assert report.ended_ms > 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("heartbeat", {"lease": "soon"}, "lease"),
        ("heartbeat", {"lease": "25h"}, "lease"),
        ("heartbeat", {"lease": "0s"}, "lease"),
        ("complete", {}, "status"),
        ("complete", {"status": "done"}, "status"),
        ("complete", {"status": "failed", "error": "x" * 1_001}, "error"),
        ("complete", {"status": "succeeded", "response": "é" * 2_049}, "response"),
    ],
)
def test_what_is_wrong_is_named_and_reported_to_nobody(
    job: FakeNode, path: str, body: dict[str, object], field: str
) -> None:
    answer = job.ask("POST", f"{url()}/{path}", json=body)
    assert (422, [field]) == (answer.status_code, [error["field"] for error in answer.json()["errors"]])
    assert [] == reports(job)


@pytest.mark.parametrize("path", ["heartbeat", "complete"])
def test_a_token_of_another_cluster_opens_nothing(job: FakeNode, path: str) -> None:
    for wrong in (url("another"), f"{url()}x", "/v1/callbacks/x", "/v1/callbacks/x.y"):
        answer = job.ask("POST", f"{wrong}/{path}", json={"status": "succeeded"})
        assert (404, "urn:tocsin:problem:unknown-callback") == (answer.status_code, answer.json()["type"])
    assert [] == reports(job)


@pytest.mark.parametrize("path", ["heartbeat", "complete"])
def test_what_comes_for_a_run_or_an_attempt_that_is_over_is_refused(job: FakeNode, path: str) -> None:
    body = {"status": "succeeded"} if path == "complete" else {}
    run = job.state.runs[RUN]
    over = [
        replace(run, status="succeeded"),
        replace(run, dispatch=2),
        replace(run, status="retrying", attempts=(replace(run.attempts[0], outcome="lost"),)),
    ]
    for stands in over:
        job.state.runs[RUN] = stands
        answer = job.ask("POST", f"{url()}/{path}", json=body)
        assert (409, "urn:tocsin:problem:run-ended") == (answer.status_code, answer.json()["type"])
    del job.state.runs[RUN]
    assert 409 == job.ask("POST", f"{url()}/{path}", json=body).status_code
    assert [] == reports(job)


def test_a_report_is_taken_while_the_partition_cannot_be_asked(job: FakeNode) -> None:
    job.state.partitions = [replace(each, ready=False) for each in job.state.partitions]
    assert 200 == job.ask("POST", f"{url()}/complete", json={"status": "succeeded"}).status_code
    assert ["succeeded"] == [report.kind for report in reports(job)]


def test_a_callback_needs_no_key_and_comes_from_anywhere(job: FakeNode) -> None:
    app = create_app(replace(job.services, api_key="the-key"))
    job.app = app
    assert 401 == job.ask("GET", "/v1/jobs").status_code
    answer = job.ask("POST", f"{url()}/heartbeat", headers={"host": "tocsin.example.com"})
    assert 200 == answer.status_code


def test_while_the_secret_is_not_known_no_token_is_taken(job: FakeNode) -> None:
    job.app = create_app(replace(job.services, secret=lambda: ""))
    assert 404 == job.ask("POST", f"{url('')}/heartbeat").status_code
