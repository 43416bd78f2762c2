"""Runs: opened, dispatched, withdrawn, ended. Every function changes rows of the unit of work and adds effects."""

from dataclasses import replace
from typing import Final

from tocsin.log.partitioner import partition_for
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import (
    Attempt,
    AttemptOutcome,
    Cause,
    Control,
    DeadLetter,
    DueRun,
    RunEvent,
    Withdrawal,
)
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow
from tocsin.schemas.topics import DAY_MS, START_LATEST_MS
from tocsin.streams.families import RING_SIZES
from tocsin.streams.lifecycle import FINAL, Event, step
from tocsin.streams.policies import may_try_again, retry_delay_ms
from tocsin.streams.work import Work

ATTEMPTS_SHOWN_MAX: Final = 20
"""Attempts kept in a run's row and events: enough to see a pattern, and a row stays under 16 KiB."""
EARLIER_RESPONSE_MAX: Final = 256
"""Characters kept of the responses of all attempts but the newest."""
OPEN_RUNS_MAX: Final = 1_000
"""Open runs of one job. The job's row lists them, so its size and each write of it are bounded by this."""
DISPATCH_REMEMBERED_MS: Final = 9 * DAY_MS
"""Longer than control records live (8 d): a trigger id that is used again must not restart the dispatch counter."""
DEAD_LETTER_KEPT_MS: Final = 90 * DAY_MS
DELETE_AFTER_MS: Final = 7 * DAY_MS
"""A finished job goes this long after its last run; a deleted job's row and tombstone after the same time."""


def move(run: RunRow, event: Event) -> None:
    """Apply an event that the lifecycle allows."""
    after = step(run.status, event)
    assert after is not None, f"{run.run_id}: {event} does not apply to a run that is {run.status}"
    run.status = after


def open_run(
    work: Work,
    key: JobKey,
    row: JobRow,
    *,
    run_id: str,
    cause: Cause,
    nominal_ms: int,
    due_ms: int,
    body: bytes | None = None,
) -> RunRow:
    """A new run of the revision in force, not dispatched yet."""
    row.seq = max(row.seq + 1, work.now_ms if work.rules.seq_goes_on else 0)
    run = RunRow(
        run_id=run_id,
        job_key=key,
        seq=row.seq,
        revision=row.revision,
        cause=cause,
        nominal_ms=nominal_ms,
        due_ms=due_ms,
        status="undecided",
        opened_ms=work.now_ms,
        age_from_ms=due_ms,
        body=body,
    )
    work.add_run(key, row, run)
    row.skip_reason = ""
    return run


def dispatch(
    work: Work, row: JobRow, run: RunRow, definition: DefinitionRow, *, due_ms: int, retry: bool
) -> None:
    """Write the run's next due record, for an attempt that should start at `due_ms`.

    A re-dispatch of an attempt that never began keeps its attempt number.
    """
    job = definition.job
    move(run, "dispatch")
    # A redriven run may have waited before its first new attempt.
    if retry or run.attempt == run.attempts_before:
        run.attempt += 1
    run.dispatch += 1
    run.outstanding = True
    run.withdrawal = "none"
    run.contested = False
    run.parked = False
    run.held = ""
    run.claimed_execution = ""
    run.claimed_epoch = 0
    run.lease_until_ms = 0
    run.attempt_due_ms = due_ms
    # What is decided late (after an outage, or out of the buffer) has its full time from now on.
    from_ms = max(due_ms, work.now_ms)
    if run.attempt == 1 and not run.attempts:
        run.age_from_ms = max(run.age_from_ms, from_ms)
    run.start_deadline_ms = min(run.age_from_ms + job.retry.max_age_ms, from_ms + START_LATEST_MS)
    run.queue = job.queue
    attempt = Attempt(attempt=run.attempt, dispatch=run.dispatch, due_ms=due_ms, dispatched_ms=work.now_ms)
    _add_attempt(run, attempt)
    http, function = job.http, job.function
    if run.body is not None:
        http = None if http is None else replace(http, body=run.body)
        function = None if function is None else replace(function, arguments=run.body)
    run.due_partition = work.emit_due(
        job.queue,
        DueRun(
            run_id=run.run_id,
            namespace=job.namespace,
            job_id=job.id,
            seq=run.seq,
            floor=_floor(work, row, run),
            dispatch=run.dispatch,
            attempt=run.attempt,
            revision=definition.revision,
            cause=run.cause,
            nominal_ms=run.nominal_ms,
            due_ms=due_ms,
            start_deadline_ms=run.start_deadline_ms,
            emitted_ms=work.now_ms,
            lease_ms=job.lease_ms,
            priority=job.priority,
            http=http,
            function=function,
        ),
    )
    record_run(work, run)


def _floor(work: Work, row: JobRow, run: RunRow) -> int:
    """No due record of the job below this is alive, and none will be (W7).

    Undecided runs do not hold it down: what they had was answered, and they are renumbered before they have another.
    Else a run that succeeded between the two would not be below it, and could start again beside the next one.
    """
    for seq in row.open:
        other = work.run(JobKey(run.job_key), seq)
        assert other is not None, f"{run.job_key}: run {seq} is listed as open and not stored"
        if other.outstanding or other.status != "undecided":
            return seq
    return run.seq


def _add_attempt(run: RunRow, attempt: Attempt) -> None:
    if run.attempts:
        earlier = run.attempts[-1]
        if earlier.outcome == "pending" and earlier.attempt == attempt.attempt:
            run.attempts.pop()  # withdrawn before it began: the same attempt again
        elif len(earlier.response) > EARLIER_RESPONSE_MAX:
            run.attempts[-1] = replace(earlier, response=earlier.response[:EARLIER_RESPONSE_MAX])
    run.attempts.append(attempt)
    del run.attempts[:-ATTEMPTS_SHOWN_MAX]


def withdraw(work: Work, run: RunRow, how: Withdrawal) -> None:
    """Ask the workers to drop the outstanding dispatch (`cancel`: to abort it, too). P2: it only grows stronger."""
    assert run.outstanding, f"{run.run_id}: nothing to withdraw"
    if run.withdrawal in ("cancel", how):
        return
    run.withdrawal = how
    if work.rules.p2_cumulative_control:
        run.withdrawn_upto = run.dispatch
    else:
        run.withdrawn_upto = 0 if run.withdrawn_upto else run.dispatch
    run.withdrawn_how = how
    work.emit_control(run)
    record_run(work, run)


def request_cancel(work: Work, key: JobKey, row: JobRow, run: RunRow, reason: str) -> None:
    """Cancel a run: at once if no worker can have its dispatch, else through a withdrawal and its answer (P7)."""
    if run.outstanding and (
        work.rules.p7_outstanding_needs_answer or run.status == "running" or run.attempt == 1
    ):
        if not run.cancel_requested:
            run.cancel_requested = True
            run.cancel_reason = reason
        withdraw(work, run, "cancel")
    else:
        close(work, key, row, run, "cancel", reason)


def settle(work: Work, run: RunRow) -> None:
    """The outstanding dispatch is over, otherwise than by success (P8)."""
    run.outstanding = False
    run.withdrawal = "none"
    run.lease_until_ms = 0
    if work.rules.p8_settle:
        run.settled_upto = run.dispatch
        work.emit_control(run)


def settle_moved(work: Work, key: JobKey, row: JobRow, queue: str) -> None:
    """The job moves on from `queue`: nothing that comes will tell the workers there that its last success is settled.

    Where a job stays, the floor of its next due record does (W7). Its success may not be committed yet, so without this
    whoever gets the partition could start it again beside the next run (X11). What is still open when the job moves is
    looked at when it closes.
    """
    there = work.config.queues.get(queue)
    if row.last_status != "succeeded" or there is None or not work.rules.p8_settle:
        return
    partition = partition_for(key.encode(), there.partitions)
    control = Control(run_id=row.last_run_id, settled_upto=row.last_dispatch)
    work.emit_control_of(queue, partition, control)
    _remember_dispatch(work, key, row.last_run_id, row.last_dispatch, has_control=True)


def end_attempt(run: RunRow, outcome: AttemptOutcome, **shown: object) -> None:
    """Write how the newest attempt ended into the run's list."""
    run.attempts[-1] = replace(run.attempts[-1], outcome=outcome, **shown)  # type: ignore[arg-type]


def fail(
    work: Work,
    key: JobKey,
    row: JobRow,
    run: RunRow,
    *,
    at_ms: int,
    retryable: bool,
    reason: str,
    retry_after_ms: int = -1,
) -> None:
    """An attempt failed, or was lost: plan the next one, or end the run. The dispatch is settled already."""
    if run.cancel_requested and work.rules.p6_cancel_wins_over_failure:
        close(work, key, row, run, "cancel", run.cancel_reason)
        return
    if row.deleted_ms and work.rules.p6_cancel_wins_over_failure:
        close(work, key, row, run, "fail", "deleted")
        return
    definition = work.definition(key, run.revision)
    assert definition is not None, f"{run.run_id}: its revision {run.revision} is gone"
    policy = definition.job.retry
    failures = run.attempt - run.attempts_before
    seed = f"{run.run_id}#{run.attempt}"
    due_ms = at_ms + retry_delay_ms(policy, failures, seed, retry_after_ms)
    why_not = may_try_again(policy, run, due_ms) if retryable else reason
    if why_not:
        close(work, key, row, run, "fail", why_not)
        return
    move(run, "retry")
    run.attempt_due_ms = due_ms
    run.attempts[-1] = replace(run.attempts[-1], next_attempt_ms=due_ms)
    record_run(work, run)


def close(work: Work, key: JobKey, row: JobRow, run: RunRow, event: Event, reason: str) -> None:
    """The run is over: history, dead letter, the job's summary. The caller looks at what waited for it.

    See occurrences.after_run_ended, which every caller invokes when its own changes are done.
    """
    move(run, event)
    run.outstanding = False
    run.reason = reason
    run.contested = False
    row.history_no += 1
    failure_no = -1
    if run.status == "failed":
        row.failure_no += 1
        failure_no = row.failure_no
    shown = event_of(run, work.now_ms, history_no=row.history_no, failure_no=failure_no)
    keep_history(work, key, shown, work.emit_run(shown))
    if run.status == "failed" and not row.deleted_ms:
        _bury(work, run, shown)
    if run.status != "skipped":
        _summarise(row, run, work.now_ms)
    row.skip_reason = ""
    if run.status == "succeeded" and _has_moved(work, key, row, run):
        settle(work, run)
    has_control = bool(run.settled_upto or run.withdrawn_upto)
    _remember_dispatch(work, key, run.run_id, run.dispatch, has_control=has_control)
    work.drop_run(key, row, run)
    work.effects.counts.ended += 1
    if run.revision != row.revision or row.deleted_ms:
        forget_revision(work, key, row, run.revision)


def _has_moved(work: Work, key: JobKey, row: JobRow, run: RunRow) -> bool:
    """Whether the job's next due record, if there ever is one, may go to another queue than the run's; see settle_moved."""
    if run.revision == row.revision and not row.deleted_ms:
        return False
    return bool(row.deleted_ms) or run.queue != work.current(key, row).job.queue


def keep_history(work: Work, key: JobKey, event: RunEvent, encoded: bytes) -> None:
    """Put an ended run, or a series of skips, into the rings: each slot is its counter modulo the ring's size."""
    work.view.history_put("history", key, event.history_no % work.config.cluster.history_size, event, encoded)
    if event.failure_no >= 0:
        work.view.history_put("failures", key, event.failure_no % RING_SIZES["failures"], event, encoded)


def _remember_dispatch(work: Work, key: JobKey, run_id: str, dispatch: int, *, has_control: bool) -> None:
    """Control records of this run id live on: a later run of the same trigger id must count on from here (X12).

    Also if they are of a run before this one, and if the run's own trigger is long forgotten (it was redriven).
    """
    _, is_trigger, name = run_id.partition("!t.")
    if not is_trigger:
        return
    used = work.view.pending("trigger", key, name)
    if not (has_control or (used is not None and used.dispatch)):
        return
    if used is None:
        used = PendingRow(kind="trigger", until_ms=0, refuse_until_ms=work.now_ms, run_id=run_id)
    kept = used.copy()
    kept.dispatch = dispatch
    kept.until_ms = max(kept.until_ms, work.now_ms + DISPATCH_REMEMBERED_MS)
    work.view.put_pending(key, name, kept)


def _bury(work: Work, run: RunRow, shown: RunEvent) -> None:
    work.view.put_dead(
        DeadRow(run=run.copy(), died_ms=work.now_ms, until_ms=work.now_ms + DEAD_LETTER_KEPT_MS)
    )
    work.emit_dead_letter(DeadLetter(run=shown, body=run.body, died_ms=work.now_ms))


def _summarise(row: JobRow, run: RunRow, now_ms: int) -> None:
    row.last_run_id = run.run_id
    row.last_dispatch = run.dispatch
    row.last_status = run.status
    row.last_ended_ms = now_ms
    row.last_lateness_ms = run.attempts[-1].lateness_ms if run.attempts else 0
    if run.status == "failed":
        row.consecutive_failures += 1
        row.last_failure_ms = now_ms
        row.last_error = (run.attempts[-1].error if run.attempts else "") or run.reason
    elif run.status == "succeeded":
        row.consecutive_failures = 0


def forget_revision(work: Work, key: JobKey, row: JobRow, revision: int) -> None:
    """Drop a revision that is not in force, unless an open run still refers to it."""
    if revision == row.revision and not row.deleted_ms:
        return
    for run in work.looked_at(key, row):
        if revision in (run.revision, run.held_revision):
            return
    work.view.delete_definition(key, revision)


def record_run(work: Work, run: RunRow) -> None:
    """Append the run as it stands."""
    work.emit_run(event_of(run, work.now_ms))


def event_of(run: RunRow, event_ms: int, *, history_no: int = -1, failure_no: int = -1) -> RunEvent:
    """The whole of a run as it stands."""
    namespace, _, job_id = run.job_key.partition("/")
    asked = "cancel_requested" if run.cancel_requested and run.status not in FINAL else ""
    return RunEvent(
        run_id=run.run_id,
        namespace=namespace,
        job_id=job_id,
        seq=run.seq,
        revision=run.revision,
        cause=run.cause,
        nominal_ms=run.nominal_ms,
        due_ms=run.due_ms,
        status=run.status,
        reason=run.reason or asked,
        event_ms=event_ms,
        history_no=history_no,
        failure_no=failure_no,
        dispatch=run.dispatch,
        attempts=tuple(run.attempts),
        last_nominal_ms=run.nominal_ms,
    )
