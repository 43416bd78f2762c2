"""Reports by the endpoint of a long run: it holds the dispatch, whichever execution handed it over."""

import pytest

from tests.unit.streams.driver import Driver, job
from tocsin.schemas.job import Retry, Schedule
from tocsin.schemas.records import CALLBACK_EPOCH, CancelRun, DueRun, Trigger

MINUTE_MS = 60_000


def handed_over(drive: Driver, lease_ms: int = 600_000) -> DueRun:
    """A run that a worker has claimed for the endpoint, under a lease of ten minutes."""
    drive.define(job(Schedule(), lease_ms=30_000, retry=Retry(base_ms=1_000, jitter=0.0)))
    drive.command(Trigger(namespace="default", id="a", trigger_id="once"))
    due = drive.due()
    drive.report(due, "started", lease_ms=lease_ms)
    return due


def call_back(drive: Driver, due: DueRun, kind: str, **fields: object) -> None:
    drive.report(due, kind, execution="", epoch=CALLBACK_EPOCH, **fields)


def statuses(drive: Driver) -> list[str]:
    return [event.status for event in drive.runs()]


def test_the_lease_that_the_endpoint_asked_for_counts_and_not_the_jobs(drive: Driver) -> None:
    handed_over(drive)
    drive.advance(9 * MINUTE_MS, step_ms=10_000)
    assert [] == drive.dues()
    drive.advance(2 * MINUTE_MS, step_ms=1_000)
    assert 2 == drive.due().attempt


def test_heartbeats_carry_a_two_hour_run(drive: Driver) -> None:
    due = handed_over(drive)
    for _ in range(24):
        drive.advance(5 * MINUTE_MS, step_ms=MINUTE_MS)
        call_back(drive, due, "heartbeat", lease_ms=600_000)
    assert [] == drive.dues()
    call_back(drive, due, "succeeded")
    assert "succeeded" == statuses(drive)[-1]


def test_a_heartbeat_that_says_no_lease_has_the_jobs(drive: Driver) -> None:
    due = handed_over(drive, lease_ms=40_000)
    drive.advance(20_000)
    call_back(drive, due, "heartbeat")
    drive.advance(25_000)
    assert [] == drive.dues()
    drive.advance(10_000)
    assert 2 == drive.due().attempt


def test_a_completion_after_the_lease_is_stale(drive: Driver) -> None:
    due = handed_over(drive, lease_ms=10_000)
    drive.advance(15_000)
    again = drive.due()
    drive.runs()
    call_back(drive, due, "succeeded")
    call_back(drive, due, "failed", retryable=True)
    call_back(drive, due, "heartbeat", lease_ms=600_000)
    assert [] == statuses(drive)
    assert (2, 2) == (again.dispatch, again.attempt)


def test_a_completion_counts_although_the_record_was_handed_over_twice(drive: Driver) -> None:
    """The second worker has a higher epoch; the endpoint may have kept the first URL."""
    due = handed_over(drive)
    drive.report(due, "started", execution="e9", epoch=7, lease_ms=600_000)
    call_back(drive, due, "succeeded")
    assert "succeeded" == statuses(drive)[-1]


def test_an_endpoint_that_is_quicker_than_the_workers_claim_counts_too(drive: Driver) -> None:
    drive.define(job(Schedule()))
    drive.command(Trigger(namespace="default", id="a", trigger_id="once"))
    due = drive.due()
    drive.runs()
    call_back(drive, due, "heartbeat", lease_ms=600_000)
    assert ["running"] == statuses(drive)
    drive.controls()
    drive.report(due, "started", lease_ms=600_000)
    assert due.dispatch == drive.controls()[-1].claimed_dispatch  # so that the worker may let go
    call_back(drive, due, "succeeded")
    assert "succeeded" == statuses(drive)[-1]


def test_a_failure_is_retried_or_final_as_the_endpoint_says(drive: Driver) -> None:
    due = handed_over(drive)
    call_back(drive, due, "failed", retryable=True, error="no paper")
    drive.advance(2_000)
    again = drive.due()
    assert 2 == again.attempt
    call_back(drive, again, "failed", retryable=False)
    assert "failed" == statuses(drive)[-1]
    assert 1 == len(drive.letters())


@pytest.mark.parametrize(
    ("answer", "ends"), [("cancelled", "cancelled"), ("succeeded", "succeeded"), ("failed", "cancelled")]
)
def test_a_cancel_is_answered_by_the_endpoint(drive: Driver, answer: str, ends: str) -> None:
    due = handed_over(drive)
    drive.command(CancelRun(namespace="default", id="a", run_id=due.run_id))
    call_back(drive, due, "heartbeat", lease_ms=600_000)
    assert ends not in statuses(drive)
    call_back(drive, due, answer, retryable=True)
    assert ends == statuses(drive)[-1]
    assert [] == drive.dues()


def test_a_cancel_that_the_endpoint_does_not_answer_ends_with_its_lease(drive: Driver) -> None:
    due = handed_over(drive, lease_ms=20_000)
    drive.command(CancelRun(namespace="default", id="a", run_id=due.run_id))
    drive.advance(25_000)
    assert "cancelled" == statuses(drive)[-1]
    assert [] == drive.dues()
