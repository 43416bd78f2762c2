"""Edits, pauses, deletions and cancels of what was dispatched ahead: asked back, answered, decided again."""

from dataclasses import replace

import pytest

from tests.unit.streams.driver import T0, Driver, job
from tocsin.schemas.job import HttpTarget, Overlap, Retry, Schedule
from tocsin.schemas.records import CancelRun, DueRun, Pause, Redrive, Resume, SkipNext

EVERY_5S = Schedule(every_ms=5_000)
ELSEWHERE = HttpTarget(url="http://127.0.0.1:2/")
CANCEL = CancelRun(namespace="default", id="a")
PAUSE = Pause(namespace="default", id="a")
RESUME = Resume(namespace="default", id="a")


def dispatched_ahead(drive: Driver) -> DueRun:
    """An occurrence at 5 s, dispatched; it is 1 s."""
    drive.define(job(EVERY_5S))
    drive.advance(1_000)
    return drive.due()


def test_an_edit_asks_back_what_was_dispatched_ahead_and_dispatches_the_new_revision(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(EVERY_5S, http=ELSEWHERE))
    (control,) = drive.controls()
    assert (control.run_id, control.withdrawn_upto, control.withdrawn_how) == (due.run_id, 1, "withdraw")
    assert drive.dues() == []
    drive.report(due, "dropped")
    again = drive.due()
    assert (again.run_id, again.dispatch, again.attempt, again.revision) == (due.run_id, 2, 1, 2)
    assert again.http == ELSEWHERE
    drive.report(again, "succeeded")
    assert drive.ends() == [(5, "succeeded", "")]


def test_an_edit_that_no_longer_names_the_occurrence_skips_it_at_its_instant(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(Schedule(every_ms=3_600_000)))
    drive.report(due, "dropped")
    assert drive.ends() == []
    drive.advance(5_000)
    assert drive.ends() == [(5, "skipped", "edited")]


def test_a_withdrawal_of_what_has_begun_is_void(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(EVERY_5S, http=ELSEWHERE))
    drive.advance(5_000)
    drive.report(due, "started")
    drive.report(due, "succeeded")
    assert drive.ends() == [(5, "succeeded", "")]
    assert drive.due().revision == 2


def test_a_resume_before_the_instant_dispatches_again(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(PAUSE)
    drive.report(due, "dropped")
    assert (drive.dues(), drive.ends()) == ([], [])
    drive.command(RESUME)
    assert drive.due().dispatch == 2


def test_a_pause_skips_at_the_instant_and_not_before(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(PAUSE)
    drive.report(due, "dropped")
    drive.advance(5_000)
    assert drive.ends() == [(5, "skipped", "paused")]


def test_what_was_in_force_at_the_instant_decides_and_not_what_came_later(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(EVERY_5S, http=ELSEWHERE))
    drive.advance(5_000)  # 6 s: the instant has passed, and nobody has answered
    drive.command(PAUSE)
    drive.report(due, "dropped")
    again = drive.due()
    assert (again.nominal_ms, again.revision) == (T0 + 5_000, 2)


def test_the_watermark_does_not_pass_an_occurrence_under_withdrawal(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(Schedule(every_ms=3_600_000)))
    drive.advance(20_000)
    assert drive.watermark == T0 + 4_999
    drive.report(due, "dropped")
    assert drive.watermark == drive.now_ms


def test_deletion_and_re_creation_before_the_instant_runs_it_under_the_next_number(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.delete()
    drive.report(due, "dropped")
    drive.define(job(Schedule(every_ms=5_000, anchor_ms=T0)))
    again = drive.due()
    assert (again.run_id, again.dispatch) == (due.run_id, 2)


def test_deletion_closes_what_waits_and_lets_what_runs_end(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.advance(4_000)
    drive.report(due, "started")
    drive.delete()
    drive.report(due, "failed", retryable=True)
    assert drive.ends() == [(5, "failed", "deleted")]
    assert drive.letters() == []
    drive.advance(7 * 86_400_000 + 10_000, step_ms=3_600_000)
    (tombstone,) = drive.take(tuple)
    assert tombstone[2] == b"default/a"


@pytest.mark.parametrize("answer", ["cancelled", "succeeded"])
def test_what_runs_on_after_a_deletion_can_be_cancelled(drive: Driver, answer: str) -> None:
    due = dispatched_ahead(drive)
    drive.advance(4_000)
    drive.report(due, "started")
    drive.delete()
    drive.command(CANCEL)
    assert "cancel" == drive.controls()[-1].withdrawn_how
    assert [] == drive.ends()
    drive.report(due, answer)
    assert [(5, answer)] == [end[:2] for end in drive.ends()]
    assert [] == drive.row.open


def test_a_cancel_of_what_a_deletion_has_ended_is_refused(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.delete()
    drive.report(due, "dropped")
    drive.advance(10_000)
    drive.job_events()
    drive.command(CANCEL)
    assert [] == drive.row.open
    assert ["command_rejected"] == drive.job_events()


def test_a_cancel_of_a_dispatched_run_waits_for_the_answer(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(CANCEL)
    assert drive.controls()[-1].withdrawn_how == "cancel"
    assert drive.ends() == []
    drive.report(due, "dropped")
    assert drive.ends() == [(5, "cancelled", "cancelled")]
    assert drive.controls()[-1].settled_upto == 1


def test_a_cancel_grows_out_of_a_withdrawal(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(EVERY_5S, http=ELSEWHERE))
    drive.command(CANCEL)
    assert [c.withdrawn_how for c in drive.controls()] == ["withdraw", "cancel"]
    drive.report(due, "dropped")
    assert drive.ends() == [(5, "cancelled", "cancelled")]


def test_a_cancel_of_a_run_that_waits_for_a_retry_is_done_at_once(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000)))
    drive.advance(3_600_000, step_ms=10_000)
    drive.report(drive.due(), "failed", retryable=True)
    drive.command(CANCEL)
    assert drive.ends() == [(3_600, "cancelled", "cancelled")]


def test_a_success_outruns_a_cancel(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(CANCEL)
    drive.report(due, "succeeded")
    assert drive.ends() == [(5, "succeeded", "")]
    drive.command(CancelRun(namespace="default", id="a", run_id=due.run_id))
    assert "command_rejected" in drive.job_events()


def test_a_failure_after_a_cancel_is_a_cancel(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(CANCEL)
    drive.report(due, "failed", retryable=True)
    assert drive.ends() == [(5, "cancelled", "cancelled")]


def test_a_second_copy_of_a_drop_means_nothing(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(EVERY_5S, http=ELSEWHERE))
    drive.report(due, "dropped")
    drive.report(due, "dropped")
    assert [each.dispatch for each in drive.dues()] == [2]


def test_a_drop_that_nobody_asked_for_is_a_lost_attempt(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000), retry=Retry(base_ms=1_000, jitter=0.0)))
    drive.advance(3_600_000, step_ms=10_000)
    due = drive.due()
    drive.report(due, "dropped")
    drive.advance(1_000)
    assert (drive.due().attempt, drive.row.open != []) == (2, True)


def test_a_lease_that_expires_loses_the_attempt(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000), lease_ms=10_000, retry=Retry(base_ms=1_000, jitter=0.0)))
    drive.advance(3_600_000, step_ms=10_000)
    due = drive.due()
    drive.report(due, "started")
    assert drive.controls()[-1].claimed_execution == "e1"
    drive.advance(9_000)
    drive.report(due, "heartbeat")
    drive.advance(9_000)
    assert drive.dues() == []
    drive.advance(3_000)
    again = drive.due()
    assert (again.attempt, again.dispatch) == (2, 2)
    drive.report(due, "succeeded")
    assert drive.ends() == []


def test_a_lease_does_not_expire_over_unread_reports(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000), lease_ms=10_000))
    drive.advance(3_600_000, step_ms=10_000)
    due = drive.due()
    drive.report(due, "started")
    drive.read_reports = False
    drive.advance(60_000)
    drive.report(due, "succeeded")
    assert drive.ends() == [(3_600, "succeeded", "")]


def test_a_report_of_a_lower_epoch_is_stale(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.report(due, "started", epoch=2, execution="e2")
    drive.report(due, "succeeded", epoch=1)
    assert drive.ends() == []
    drive.report(due, "succeeded", epoch=2)
    assert drive.ends() == [(5, "succeeded", "")]


def test_a_dispatch_that_nobody_begins_is_closed_after_its_start_deadline(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + 5_000), retry=Retry(max_age_ms=60_000)))
    drive.advance(5_000 + 60_000 + 59_000)
    assert drive.ends() == []
    drive.advance(2_000)
    assert drive.ends() == [(5, "failed", "not_started")]
    assert len(drive.letters()) == 1


def test_expired_is_ignored_for_an_attempt_that_has_begun(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.report(due, "started")
    drive.report(due, "expired")
    assert drive.ends() == []


def test_attempts_that_are_exhausted_make_a_dead_letter_that_can_be_redriven(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + 5_000), retry=Retry(base_ms=1_000, max_attempts=2, jitter=0.0)))
    drive.advance(5_000)
    drive.report(drive.due(), "failed", retryable=True, http_status=503, error="the endpoint answered 503")
    drive.advance(1_000)
    drive.report(drive.due(), "failed", retryable=True, http_status=503)
    (letter,) = drive.letters()
    assert (letter.run.reason, [a.outcome for a in letter.run.attempts]) == (
        "max_attempts",
        ["failed", "failed"],
    )
    drive.command(Redrive(namespace="default", id="a", run_id=letter.run.run_id, seq=letter.run.seq))
    again = drive.due()
    assert (again.run_id, again.attempt, again.dispatch, again.cause) == (letter.run.run_id, 3, 3, "redrive")
    drive.report(again, "succeeded")
    assert ((5, "succeeded", "")) in drive.ends()


def test_a_failure_that_is_not_retryable_ends_the_run(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.report(due, "failed", retryable=False, http_status=404)
    assert drive.ends() == [(5, "failed", "not_retryable")]


def test_retry_after_wins_over_the_backoff_up_to_its_maximum(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000), retry=Retry(base_ms=1_000, max_ms=20_000)))
    drive.advance(3_600_000, step_ms=10_000)
    drive.report(drive.due(), "failed", retryable=True, retry_after_ms=60_000)
    drive.advance(11_000)
    assert drive.due().due_ms == T0 + 3_600_000 + 20_000


def test_skip_next_asks_back_what_was_dispatched_ahead(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.command(SkipNext(namespace="default", id="a", count=1))
    drive.report(due, "dropped")
    drive.advance(5_000)
    assert drive.ends() == [(5, "skipped", "skip_next")]
    assert drive.due().nominal_ms == T0 + 10_000


def test_an_earlier_occurrence_that_an_edit_brings_is_decided_first(drive: Driver) -> None:
    due = dispatched_ahead(drive)
    drive.define(job(Schedule(every_ms=1_000, anchor_ms=T0)))
    drive.report(due, "dropped")
    assert drive.due().nominal_ms == T0 + 2_000
    for _ in range(3):
        drive.advance(1_000)
    assert all(each.nominal_ms < T0 + 5_000 for each in drive.dues())


def test_max_runs_gets_back_what_was_withdrawn(drive: Driver) -> None:
    limited = Schedule(every_ms=5_000, max_runs=1)
    drive.define(job(limited))
    drive.advance(1_000)
    due = drive.due()
    drive.command(PAUSE)
    drive.report(due, "dropped")
    drive.advance(5_000)
    assert drive.ends() == [(5, "skipped", "paused")]
    drive.command(RESUME)
    drive.advance(1_000)
    assert drive.due().nominal_ms == T0 + 10_000


def test_runs_that_fail_in_a_row_pause_the_job(drive: Driver) -> None:
    drive.define(job(EVERY_5S, auto_pause_after=2, retry=Retry(max_attempts=1)))
    for _ in range(2):
        drive.advance(5_000)
        drive.report(drive.due(), "failed", retryable=True)
    assert drive.row.paused
    assert "auto_paused" in drive.job_events()
    drive.command(RESUME)
    assert not drive.row.paused


def test_a_revision_is_kept_while_an_open_run_refers_to_it(drive: Driver) -> None:
    definition = job(EVERY_5S, overlap=Overlap(mode="allow"), retry=Retry(base_ms=1_000, jitter=0.0))
    drive.define(definition)
    drive.advance(5_000)
    first = drive.dues()[0]
    drive.report(first, "started")
    drive.define(replace(definition, http=ELSEWHERE))
    assert drive.view.definition("default/a", 1) is not None  # type: ignore[arg-type]
    drive.report(first, "failed", retryable=True)
    drive.advance(1_000)
    retry = next(due for due in drive.dues() if due.attempt == 2)
    assert retry.revision == 1
    for each in [retry, *drive.dues()]:
        drive.report(each, "succeeded")


@pytest.mark.parametrize("kind", ["failed", "cancelled"])
def test_what_was_asked_back_and_failed_all_the_same_is_tried_again(drive: Driver, kind: str) -> None:
    """It had begun, and ended before anybody had claimed it: that is the answer, and the occurrence is decided."""
    retry = Retry(base_ms=2_000, jitter=0.0)
    drive.define(job(Schedule(delay_ms=12_000), retry=retry))
    drive.advance(3_000)
    due = drive.due()
    drive.define(job(Schedule(delay_ms=12_000), retry=retry, description="edited"))
    drive.advance(9_500)
    drive.report(due, kind, retryable=True)
    assert due.nominal_ms <= drive.watermark
    drive.advance(3_000)
    again = drive.due()
    assert (due.run_id, 2, 2) == (again.run_id, again.attempt, again.dispatch)
