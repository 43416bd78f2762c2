"""Runs and dead letters through the HTTP API."""

import pytest

from tests.unit.api.fakes import NAMES, FakeNode
from tocsin.schemas.records import CancelRun, Redrive

RUN = "billing/a@20260101T000000.000Z"
WAIT = {"wait": "applied"}


@pytest.fixture
def job(node: FakeNode) -> FakeNode:
    node.put("billing/a")
    return node


def test_a_run_looks_as_documented(job: FakeNode) -> None:
    job.state.put_run(RUN, "succeeded")
    assert {
        "run_id": RUN,
        "job": "billing/a",
        "revision": 1,
        "cause": "schedule",
        "nominal": "2026-01-01T00:00:00.000Z",
        "due": "2026-01-01T00:00:00.000Z",
        "status": "succeeded",
        "reason": None,
        "updated_at": "2026-01-01T00:00:00.100Z",
        "attempts": [
            {
                "attempt": 1,
                "dispatch": 1,
                "due": "2026-01-01T00:00:00.000Z",
                "dispatched_at": "2025-12-31T23:59:51.000Z",
                "started_at": "2026-01-01T00:00:00.004Z",
                "ended_at": "2026-01-01T00:00:00.090Z",
                "lateness_ms": 4,
                "outcome": "succeeded",
                "http_status": 200,
                "error": None,
                "response": None,
                "worker": "worker-1",
                "next_attempt_at": None,
            }
        ],
    } == job.ask("GET", f"/v1/runs/{RUN}").json()


@pytest.mark.parametrize(
    "run", ["billing/a!t.order-17", "billing/a!b.fix.20260101T000000.000Z", "billing/a@20260101T000000.000Z"]
)
def test_every_kind_of_run_id_is_an_address(job: FakeNode, run: str) -> None:
    job.state.put_run(run, "running")
    assert run == job.ask("GET", f"/v1/runs/{run}").json()["run_id"]
    quoted = run.replace("@", "%40").replace("!", "%21").replace(":", "%3A")
    assert run == job.ask("GET", f"/v1/runs/{quoted}").json()["run_id"]
    assert 202 == job.ask("POST", f"/v1/runs/{run}/cancel").status_code


@pytest.mark.parametrize("run", [RUN, "billing/a", "billing/a@", "billing/x/y@z"])
def test_a_run_that_is_not_known_is_404(job: FakeNode, run: str) -> None:
    for method, path in [("GET", run), ("POST", f"{run}/cancel")]:
        answer = job.ask(method, f"/v1/runs/{path}")
        assert (404, "urn:tocsin:problem:unknown-run") == (answer.status_code, answer.json()["type"])


def test_a_status_that_there_is_none_of_is_answered_with_those_that_there_are(job: FakeNode) -> None:
    [error] = job.ask("GET", "/v1/runs", params={"status": "faild"}).json()["errors"]
    assert error["message"].startswith("write one of scheduled, running, retrying")
    assert error["message"].endswith("superseded, skipped")


def test_the_runs_of_a_job_come_newest_first_with_a_cursor(job: FakeNode) -> None:
    for second in range(5):
        job.state.put_run(f"billing/a@20260101T00000{second}.000Z", "succeeded")
    page = job.ask("GET", "/v1/jobs/billing/a/runs", params={"limit": 3}).json()
    assert ["4", "3", "2"] == [run["run_id"][-6] for run in page["items"]]
    rest = job.ask(
        "GET", "/v1/jobs/billing/a/runs", params={"limit": 3, "cursor": page["next_cursor"]}
    ).json()
    assert ["1", "0"] == [run["run_id"][-6] for run in rest["items"]]
    assert rest["next_cursor"] is None
    assert 422 == job.ask("GET", "/v1/jobs/billing/a/runs", params={"cursor": "x"}).status_code


def test_recent_runs_are_narrowed_by_namespace_and_status(job: FakeNode) -> None:
    job.state.put_run(RUN, "succeeded")
    job.state.put_run("other/b@20260101T000000.000Z", "failed")
    assert [RUN] == [r["run_id"] for r in job.ask("GET", "/v1/runs?namespace=billing").json()["items"]]
    assert ["other/b@20260101T000000.000Z"] == [
        r["run_id"] for r in job.ask("GET", "/v1/runs?status=failed").json()["items"]
    ]
    assert 422 == job.ask("GET", "/v1/runs?status=done").status_code


def test_a_cancel_says_whether_the_run_is_cancelled_and_is_on_the_log_with_its_reason(job: FakeNode) -> None:
    job.state.put_run(RUN, "running")
    answer = job.ask(
        "POST",
        f"/v1/runs/{RUN}/cancel",
        params=WAIT,
        json={"reason": "wrong day"},
        headers={"tocsin-actor": "anna"},
    )
    assert (200, "cancelled", "cancelled") == (
        answer.status_code,
        answer.json()["result"],
        answer.json()["run"]["status"],
    )
    assert [
        CancelRun(namespace="billing", id="a", run_id=RUN, actor="anna", reason="wrong day")
    ] == job.records(NAMES.commands)


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "superseded", "skipped"])
def test_a_run_that_has_ended_cannot_be_cancelled(job: FakeNode, status: str) -> None:
    job.state.put_run(RUN, status)
    answer = job.ask("POST", f"/v1/runs/{RUN}/cancel", params=WAIT)
    assert (409, "urn:tocsin:problem:run-ended") == (answer.status_code, answer.json()["type"])
    assert [] == job.records(NAMES.commands)


def test_a_run_is_found_right_after_its_trigger_was_acknowledged(job: FakeNode) -> None:
    run = job.ask("POST", "/v1/jobs/billing/a/trigger").json()["run_id"]
    assert 202 == job.ask("POST", f"/v1/runs/{run}/cancel").status_code


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_dead_letters_show_the_run_and_when_it_died(job: FakeNode) -> None:
    job.state.put_dead(RUN)
    [letter] = job.ask("GET", "/v1/dead-letters").json()["items"]
    assert (RUN, "failed", "2026-01-01T00:00:00.100Z") == (
        letter["run_id"],
        letter["status"],
        letter["died_at"],
    )
    assert "the endpoint answered 503" == letter["attempts"][-1]["error"]
    assert [] == job.ask("GET", "/v1/dead-letters?namespace=other").json()["items"]


def test_a_redrive_names_the_run_with_its_seq_and_runs_it_again(job: FakeNode) -> None:
    job.state.put_dead(RUN)
    answer = job.ask("POST", f"/v1/dead-letters/{RUN}/redrive", params=WAIT, json={"reason": "mended"})
    assert (200, "redriven", "scheduled") == (
        answer.status_code,
        answer.json()["result"],
        answer.json()["run"]["status"],
    )
    assert [
        Redrive(namespace="billing", id="a", run_id=RUN, seq=1, actor="api", reason="mended")
    ] == job.records(NAMES.commands)


def test_only_a_failed_run_can_be_redriven(job: FakeNode) -> None:
    job.state.put_run(RUN, "succeeded")
    answer = job.ask("POST", f"/v1/dead-letters/{RUN}/redrive")
    assert (404, "urn:tocsin:problem:unknown-dead-letter") == (answer.status_code, answer.json()["type"])


def test_a_redrive_that_the_processor_ignored_is_not_called_done(job: FakeNode) -> None:
    job.state.put_run(RUN, "failed")  # and its dead letter has expired
    answer = job.ask("POST", f"/v1/dead-letters/{RUN}/redrive", params=WAIT)
    assert (422, "urn:tocsin:problem:rejected") == (answer.status_code, answer.json()["type"])


def test_dead_letters_are_redriven_in_bulk_within_a_limit_and_shown_before(job: FakeNode) -> None:
    runs = [f"billing/a@20260101T00000{second}.000Z" for second in range(3)]
    for run in runs:
        job.state.put_dead(run)
    job.put("other/b")
    job.state.put_dead("other/b@20260101T000000.000Z")
    body = {"namespace": "billing", "limit": 2}
    foreseen = job.ask("POST", "/v1/dead-letters:redrive", json={**body, "dry_run": True}).json()
    assert (runs[:2], True) == (foreseen["run_ids"], foreseen["dry_run"])
    assert [] == job.records(NAMES.commands)
    done = job.ask("POST", "/v1/dead-letters:redrive", json=body).json()
    assert (runs[:2], 2) == (done["run_ids"], done["count"])
    assert done["next_cursor"] is not None
    assert runs[:2] == sorted(command.run_id for command in job.records(NAMES.commands))
    job.state.catch_up()
    assert {runs[2], "other/b@20260101T000000.000Z"} == set(job.state.dead)


@pytest.mark.parametrize(
    "body", [{"limit": 0}, {"limit": 1001}, {"limit": "9"}, {"dry_run": 1}, {"all": True}]
)
def test_a_wrong_bulk_redrive_redrives_nothing(job: FakeNode, body: dict[str, object]) -> None:
    job.state.put_dead(RUN)
    assert 422 == job.ask("POST", "/v1/dead-letters:redrive", json=body).status_code
    assert [] == job.records(NAMES.commands)
