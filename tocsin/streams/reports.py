"""Reports of the workers are folded here: claims, ends, and answers to withdrawals."""

from typing import assert_never

from tocsin.schemas.job import JobKey
from tocsin.schemas.records import CALLBACK_EPOCH, AttemptOutcome, RunReport
from tocsin.schemas.rows import JobRow, RunRow
from tocsin.streams.contested import after_run_ended, decide_again
from tocsin.streams.lifecycle import step
from tocsin.streams.occurrences import unpark_retries
from tocsin.streams.runs import close, end_attempt, fail, move, record_run, settle
from tocsin.streams.work import Work


def fold_report(work: Work, report: RunReport, timestamp_ms: int) -> None:
    """Fold one report, that the log took at `timestamp_ms`. One that the run's state does not allow changes nothing."""
    key = JobKey(f"{report.namespace}/{report.job_id}")
    row = work.job(key)
    run = None if row is None else work.run(key, report.seq)
    if row is None or run is None or not _counts(work, run, report):
        work.effects.counts.stale += 1
        return
    work.effects.counts.reports += 1
    match report.kind:
        case "started" | "heartbeat":
            _fold_claim(work, key, row, run, report, timestamp_ms)
        case "succeeded":
            _show_end(run, report, "succeeded")
            close(work, key, row, run, "succeed", "")
            after_run_ended(work, key, row)
        case "failed":
            _fold_failed(work, key, row, run, report, timestamp_ms)
        case "cancelled":
            _fold_cancelled(work, key, row, run, report, timestamp_ms)
        case "dropped":
            _fold_dropped(work, key, row, run, report, timestamp_ms)
        case "expired":
            _fold_expired(work, key, row, run, report)
        case _:
            assert_never(report.kind)


def _counts(work: Work, run: RunRow, report: RunReport) -> bool:
    """P1, and the lease: the report names the outstanding dispatch, and no higher epoch has claimed it."""
    if run.run_id != report.run_id or not run.outstanding:
        return False
    if report.dispatch != run.dispatch and work.rules.p1_stale_dispatch:
        return False
    if report.kind in ("dropped", "expired"):
        return True
    return report.epoch >= run.claimed_epoch or report.epoch == CALLBACK_EPOCH


def _fold_claim(
    work: Work, key: JobKey, row: JobRow, run: RunRow, report: RunReport, timestamp_ms: int
) -> None:
    """The lease is set, under a withdrawal too (P3); a mere withdrawal is void, since the attempt has begun."""
    leased_always = work.rules.p3_leases_under_withdrawal
    definition = work.definition(key, run.revision)
    assert definition is not None, f"{run.run_id}: its revision {run.revision} is gone"
    if run.withdrawal == "none" or leased_always:
        lease_ms = report.lease_ms or definition.job.lease_ms
        run.lease_until_ms = max(run.lease_until_ms, timestamp_ms + lease_ms)
    if report.epoch == CALLBACK_EPOCH:
        if run.status == "running":
            return  # whoever handed it to the endpoint has said so
    elif run.claimed_execution == report.execution and run.claimed_epoch == report.epoch:
        return
    else:
        run.claimed_execution = report.execution
        run.claimed_epoch = report.epoch
    move(run, "claim")
    if run.withdrawal == "withdraw" and leased_always:
        run.withdrawal = "none"
    _has_begun(work, key, row, run)
    end_attempt(
        run,
        "running",
        started_ms=report.started_ms,
        lateness_ms=report.lateness_ms,
        worker=report.worker,
    )
    work.emit_control(run)
    record_run(work, run)
    if row.armed == "blocked":
        row.armed = "exact"


def _has_begun(work: Work, key: JobKey, row: JobRow, run: RunRow) -> None:
    """A worker says so: it may have been asked back, and its occurrence is decided all the same."""
    if run.contested:
        run.contested = False
        unpark_retries(work, key, row)


def _show_end(run: RunRow, report: RunReport, outcome: AttemptOutcome) -> None:
    end_attempt(
        run,
        outcome,
        started_ms=report.started_ms,
        ended_ms=report.ended_ms,
        lateness_ms=report.lateness_ms,
        http_status=report.http_status,
        error=report.error,
        response=report.response,
        worker=report.worker,
    )


def _fold_failed(
    work: Work, key: JobKey, row: JobRow, run: RunRow, report: RunReport, timestamp_ms: int
) -> None:
    _show_end(run, report, "failed")
    _has_begun(work, key, row, run)
    settle(work, run)
    fail(
        work,
        key,
        row,
        run,
        at_ms=timestamp_ms,
        retryable=report.retryable,
        reason="not_retryable",
        retry_after_ms=report.retry_after_ms,
    )
    after_run_ended(work, key, row)


def _fold_cancelled(
    work: Work, key: JobKey, row: JobRow, run: RunRow, report: RunReport, timestamp_ms: int
) -> None:
    _show_end(run, report, "cancelled")
    _has_begun(work, key, row, run)
    settle(work, run)
    if run.cancel_requested:
        close(work, key, row, run, "cancel", run.cancel_reason)
    else:
        # Nobody asked: the attempt came to nothing, and is made good like any other that did.
        fail(work, key, row, run, at_ms=timestamp_ms, retryable=True, reason="cancelled")
    after_run_ended(work, key, row)


def _fold_dropped(
    work: Work, key: JobKey, row: JobRow, run: RunRow, report: RunReport, timestamp_ms: int
) -> None:
    """P4 and P5: what a drop means depends on what was asked, and on whether the attempt is claimed."""
    claimed = run.status == "running" and not run.cancel_requested
    if claimed and work.rules.p5_drop_of_claimed:
        work.effects.counts.stale += 1  # its lease decides
        return
    withdrawn = run.withdrawal != "none" or claimed
    if claimed:
        run.status = "scheduled"  # without P5: taken for the answer that it would have been before the claim
    end_attempt(run, "pending" if withdrawn else "lost", ended_ms=report.ended_ms, worker=report.worker)
    if not withdrawn and not work.rules.p5_drop_of_claimed:
        work.effects.counts.stale += 1
        return
    settle(work, run)
    if run.cancel_requested:
        close(work, key, row, run, "cancel", run.cancel_reason)
    elif not withdrawn:
        fail(work, key, row, run, at_ms=timestamp_ms, retryable=True, reason="lost")
    else:
        undo_dispatch(work, key, row, run)
        return
    after_run_ended(work, key, row)


def undo_dispatch(work: Work, key: JobKey, row: JobRow, run: RunRow) -> None:
    """A withdrawn dispatch never began: decide what becomes of the run."""
    if run.attempt > 1:
        close(work, key, row, run, "cancel", "deleted" if row.deleted_ms else "withdrawn")
        after_run_ended(work, key, row)
        return
    if step(run.status, "drop") is None:
        return
    move(run, "drop")
    decide_again(work, key, row, run)
    after_run_ended(work, key, row)


def _fold_expired(work: Work, key: JobKey, row: JobRow, run: RunRow, report: RunReport) -> None:
    """P13: the start deadline passed before it began. A claim outweighs that: then the lease decides."""
    if run.status == "running" and work.rules.p13_start_deadline:
        work.effects.counts.stale += 1
        return
    end_attempt(run, "expired", ended_ms=report.ended_ms, worker=report.worker)
    close_not_started(work, key, row, run)


def close_not_started(work: Work, key: JobKey, row: JobRow, run: RunRow) -> None:
    """The dispatch was never begun, and no longer will be."""
    withdrawn = run.withdrawal == "withdraw"
    settle(work, run)
    if run.cancel_requested:
        close(work, key, row, run, "cancel", run.cancel_reason)
    elif withdrawn and run.attempt == 1:
        undo_dispatch(work, key, row, run)
        return
    else:
        close(work, key, row, run, "fail", "not_started")
    after_run_ended(work, key, row)
