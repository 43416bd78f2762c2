"""Commands are folded here: trigger, cancel, pause, resume, skip next, redrive."""

from typing import Final, assert_never

from tocsin.log.port import Record
from tocsin.schemas import codec
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import Backfill, CancelRun, Command, Pause, Redrive, Resume, SkipNext, Trigger
from tocsin.schemas.rows import JobRow, PendingRow, RunRow
from tocsin.schemas.topics import DAY_MS
from tocsin.streams.contested import (
    after_run_ended,
    decide_up_to,
    effective_instant,
    pause_job,
    resume_job,
    withdraw_ahead,
)
from tocsin.streams.ids import trigger_run_id
from tocsin.streams.occurrences import place
from tocsin.streams.runs import (
    DISPATCH_REMEMBERED_MS,
    OPEN_RUNS_MAX,
    dispatch,
    open_run,
    record_run,
    request_cancel,
)
from tocsin.streams.work import Work

PARKED_MAX_MS: Final = 30_000
"""How long a command waits for the definition that it says it comes after."""
TRIGGER_REMEMBERED_MS: Final = DAY_MS


def fold_command(work: Work, record: Record, command: Command) -> None:
    """Fold one record of `commands`, or set it aside until the definition that it comes after is applied."""
    work.effects.counts.commands += 1
    key = JobKey(f"{command.namespace}/{command.id}")
    after = getattr(command, "after_jobs_offset", -1)
    if after >= work.jobs_offset:
        parked = PendingRow(
            kind="parked",
            until_ms=work.now_ms + PARKED_MAX_MS,
            after_jobs_offset=after,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            command=codec.encode(command),
        )
        work.view.put_pending(key, str(record.offset), parked)
        work.parked[(key, record.offset)] = after
        return
    apply_command(work, key, command, record.timestamp_ms, (record.topic, record.offset))


def release_parked(work: Work) -> None:
    """Fold the commands whose definition has been applied by now, in the order of their offsets."""
    ready = sorted((offset, key) for (key, offset), after in work.parked.items() if after < work.jobs_offset)
    for offset, key in ready:
        unpark(work, key, offset)


def unpark(work: Work, key: JobKey, offset: int) -> None:
    """Fold a parked command now: its definition is there, or it has waited long enough."""
    work.parked.pop((key, offset), None)
    row = work.view.pending("parked", key, str(offset))
    if row is None:
        return
    work.view.delete_pending("parked", key, str(offset))
    command = codec.decode(row.command)
    assert isinstance(command, Command)
    apply_command(work, key, command, row.timestamp_ms, (work.names.commands, offset))
    work.flush()


def apply_command(
    work: Work, key: JobKey, command: Command, timestamp_ms: int, source: tuple[str, int]
) -> None:
    row = work.job(key)
    # A deletion lets what has begun run on: that can be cancelled as before.
    runs_on = row is not None and bool(row.open) and isinstance(command, CancelRun)
    if row is None or (row.deleted_ms and not runs_on):
        _refuse(work, key, None if row is None else row, command, timestamp_ms, source, "unknown_job")
        return
    why = ""
    match command:
        case Trigger():
            why = _trigger(work, key, row, command, timestamp_ms)
        case CancelRun():
            why = _cancel(work, key, row, command)
        case Pause():
            why = _pause(work, key, row, command, timestamp_ms, source)
        case Resume():
            why = _resume(work, key, row, command, timestamp_ms, source)
        case SkipNext():
            _skip_next(work, key, row, command, timestamp_ms, source)
        case Redrive():
            why = _redrive(work, key, row, command, timestamp_ms)
        case Backfill():
            why = "not_available"
        case _:
            assert_never(command)
    if why:
        _refuse(work, key, row, command, timestamp_ms, source, why)


def _refuse(
    work: Work,
    key: JobKey,
    row: JobRow | None,
    command: Command,
    timestamp_ms: int,
    source: tuple[str, int],
    why: str,
) -> None:
    name = type(command).__name__
    work.emit_job_event(
        key,
        row,
        "command_rejected",
        effective_ms=effective_instant(work, key, timestamp_ms),
        actor=command.actor,
        reason=why,
        source=source,
        errors=(f"{name}: {why}",),
    )


def _trigger(work: Work, key: JobKey, row: JobRow, command: Trigger, timestamp_ms: int) -> str:
    """A run at once; while another run is open, and overlaps are not allowed, it waits for that one to end."""
    if row.broken:
        return row.broken
    if len(row.open) >= OPEN_RUNS_MAX:
        return "open_runs_limit"
    used = work.view.pending("trigger", key, command.trigger_id)
    if used is not None and used.refuse_until_ms > work.now_ms:
        return ""  # the same trigger again
    decide_up_to(work, key, row, effective_instant(work, key, timestamp_ms))
    run_id = trigger_run_id(key, command.trigger_id)
    if any(run.run_id == run_id for run in work.open_runs(key, row)):
        return ""
    definition = work.current(key, row)
    due_ms = work.now_ms
    run = open_run(
        work,
        key,
        row,
        run_id=run_id,
        cause="trigger",
        nominal_ms=command.nominal_ms or timestamp_ms,
        due_ms=due_ms,
        body=command.body,
    )
    run.dispatch = 0 if used is None else used.dispatch
    mode = definition.job.overlap.mode
    free = mode == "allow" or row.open == [run.seq]
    place(work, row, run, definition, "run" if free else "buffer", due_ms)
    remembered = PendingRow(
        kind="trigger",
        until_ms=work.now_ms + TRIGGER_REMEMBERED_MS,
        refuse_until_ms=work.now_ms + TRIGGER_REMEMBERED_MS,
        dispatch=0 if used is None else used.dispatch,
        run_id=run_id,
    )
    work.view.put_pending(key, command.trigger_id, remembered)
    return ""


def forget_trigger(work: Work, key: JobKey, name: str) -> None:
    """The timer of a used trigger id: it may be used again, but its dispatches go on counting for a while."""
    row = work.view.pending("trigger", key, name)
    if row is None:
        return
    if row.dispatch == 0 or row.refuse_until_ms + DISPATCH_REMEMBERED_MS <= work.now_ms:
        work.view.delete_pending("trigger", key, name)
        return
    kept = row.copy()
    kept.until_ms = row.refuse_until_ms + DISPATCH_REMEMBERED_MS
    work.view.put_pending(key, name, kept)


def _cancel(work: Work, key: JobKey, row: JobRow, command: CancelRun) -> str:
    reason = command.reason or "cancelled"
    runs = [run for run in work.open_runs(key, row) if command.run_id in ("", run.run_id)]
    if not runs and command.run_id:
        return "ended"
    for run in runs:
        if run.seq in row.open:
            request_cancel(work, key, row, run, reason)
    after_run_ended(work, key, row)
    return ""


def _pause(
    work: Work, key: JobKey, row: JobRow, command: Pause, timestamp_ms: int, source: tuple[str, int]
) -> str:
    effective_ms = effective_instant(work, key, timestamp_ms)
    if 0 < command.until_ms <= effective_ms:
        return "until_passed"
    decide_up_to(work, key, row, effective_ms)
    pause_job(row, command.actor, command.reason, command.until_ms)
    withdraw_ahead(work, row, key, effective_ms)
    work.emit_job_event(
        key,
        row,
        "paused",
        effective_ms=effective_ms,
        actor=command.actor,
        reason=command.reason,
        source=source,
    )
    return ""


def _resume(
    work: Work, key: JobKey, row: JobRow, command: Resume, timestamp_ms: int, source: tuple[str, int]
) -> str:
    effective_ms = effective_instant(work, key, timestamp_ms)
    decide_up_to(work, key, row, effective_ms)
    if not row.paused:
        return "not_paused"
    resume_job(work, key, row, effective_ms)
    work.emit_job_event(
        key,
        row,
        "resumed",
        effective_ms=effective_ms,
        actor=command.actor,
        reason=command.reason,
        source=source,
    )
    return ""


def _skip_next(
    work: Work, key: JobKey, row: JobRow, command: SkipNext, timestamp_ms: int, source: tuple[str, int]
) -> None:
    effective_ms = effective_instant(work, key, timestamp_ms)
    decide_up_to(work, key, row, effective_ms)
    row.skip_next = max(0, command.count)
    if row.skip_next:
        withdraw_ahead(work, row, key, effective_ms)
    else:
        after_run_ended(work, key, row)
    work.emit_job_event(
        key,
        row,
        "skip_next",
        effective_ms=effective_ms,
        actor=command.actor,
        reason=f"{command.count} {command.reason}".strip(),
        source=source,
    )


def _redrive(work: Work, key: JobKey, row: JobRow, command: Redrive, timestamp_ms: int) -> str:
    """A dead letter runs again, by the revision in force: the same run id, attempts and dispatches go on counting."""
    if row.broken:
        return row.broken
    if len(row.open) >= OPEN_RUNS_MAX:
        return "open_runs_limit"
    letter = work.view.dead(key, command.seq)
    if letter is None or letter.run.run_id != command.run_id:
        return "no_dead_letter"
    if any(run.run_id == command.run_id for run in work.open_runs(key, row)):
        return "run_open"  # its trigger id was used again, and one run counts its dispatches at a time
    work.view.delete_dead(key, command.seq)
    decide_up_to(work, key, row, effective_instant(work, key, timestamp_ms))
    definition = work.current(key, row)
    row.seq = max(row.seq + 1, work.now_ms)
    run: RunRow = letter.run.copy()
    run.seq = row.seq
    run.cause = "redrive"
    run.status = "undecided"
    run.reason = ""
    run.revision = row.revision
    run.age_from_ms = work.now_ms
    run.attempts_before = run.attempt
    used = work.view.pending("trigger", key, run.run_id.partition("!t.")[2])
    run.dispatch = max(run.dispatch, 0 if used is None else used.dispatch)
    run.cancel_requested = False
    run.opened_ms = work.now_ms
    work.add_run(key, row, run)
    row.skip_reason = ""
    if definition.job.overlap.mode == "allow" or row.open == [run.seq]:
        dispatch(work, row, run, definition, due_ms=work.now_ms, retry=True)
    else:
        run.due_ms = work.now_ms
        place(work, row, run, definition, "buffer", work.now_ms)
    record_run(work, run)
    return ""
