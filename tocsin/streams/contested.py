"""Occurrences that an edit, a pause or a deletion has overtaken: dispatched ahead, withdrawn, and decided again.

A withdrawn run stays open. What follows is decided when a worker's answer is folded (P4): the run is dispatched
again under the next number, or it waits, undecided, for its instant, and is then skipped or run by what was in
force at that instant.
"""

from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow
from tocsin.streams.ids import occurrence_run_id
from tocsin.streams.occurrences import (
    arm,
    arm_after_completion,
    decide,
    hold,
    overlap_verdict,
    place,
    settle_finished,
)
from tocsin.streams.releases import release
from tocsin.streams.runs import close, dispatch, open_run, withdraw
from tocsin.streams.skips import mark_decided
from tocsin.streams.timetables import timetable_of
from tocsin.streams.work import Work


def effective_instant(work: Work, key: JobKey, timestamp_ms: int) -> int:
    """From when a change counts: when the log took it, but never in a tick that is decided already, nor ahead.

    Nor before another change of the job that was applied already: commands are applied before definitions, and what
    they have decided (up to their own instant) stays decided.
    """
    earlier_ms = work.effective.get(key, work.previous_ms)
    effective_ms = work.effective[key] = min(max(timestamp_ms, work.previous_ms, earlier_ms), work.now_ms)
    return effective_ms


# --- before a change ------------------------------------------------------------------------------------------


def decide_up_to(work: Work, key: JobKey, row: JobRow, effective_ms: int) -> None:
    """Before a change is applied: what is due by then gets its disposition under what was in force.

    What cannot be decided yet (P9, P10) becomes an undecided run that remembers what was in force.
    """
    if row.paused and 0 < row.paused_until_ms <= effective_ms:
        end_pause(work, key, row, row.paused_until_ms)
    while row.armed != "none" and row.armed_due_ms <= effective_ms:
        definition = work.current(key, row)
        if row.armed == "continue":
            arm(work, key, row, definition, row.armed_nominal_ms)
        elif row.armed == "blocked" or not decide(work, key, row, effective_ms):
            _hold_armed(work, key, row, definition)
    hold_verdicts(work, key, row, effective_ms)


def hold_verdicts(work: Work, key: JobKey, row: JobRow, effective_ms: int) -> None:
    """Undecided runs that were due before a change remember what was in force (P4)."""
    if not work.rules.p4_decide_when_dropped:
        return
    for run in work.open_runs(key, row):
        if run.held or not (run.contested or run.status == "undecided"):
            continue
        verdict, definition = verdict_of(work, key, row, run)
        if definition is not None:
            run.due_ms = run.nominal_ms + timetable_of(definition, row).spread_offset(key)
        if run.due_ms <= effective_ms:
            run.held = verdict
            run.held_revision = 0 if definition is None else definition.revision


def _hold_armed(work: Work, key: JobKey, row: JobRow, definition: DefinitionRow) -> None:
    nominal_ms, due_ms = row.armed_nominal_ms, row.armed_due_ms
    mark_decided(work, row, nominal_ms)
    row.runs_made += 1
    run = open_run(
        work,
        key,
        row,
        run_id=occurrence_run_id(key, nominal_ms),
        cause="schedule",
        nominal_ms=nominal_ms,
        due_ms=due_ms,
    )
    hold(row, run)
    arm(work, key, row, definition, nominal_ms)


def withdraw_ahead(work: Work, row: JobRow, key: JobKey, effective_ms: int) -> None:
    """Ask back the occurrences that were dispatched ahead for instants after the change.

    What counts is the occurrence's own instant: a run that was released late is decided, and stays so.
    """
    for run in work.open_runs(key, row):
        if (
            run.status == "scheduled"
            and run.outstanding
            and run.attempt == 1
            and run.cause in ("schedule", "catchup")
            and run.due_ms > effective_ms
        ):
            run.contested = work.rules.p12_watermark_waits
            withdraw(work, run, "withdraw")


# --- after it -------------------------------------------------------------------------------------------------


def verdict_of(work: Work, key: JobKey, row: JobRow, run: RunRow) -> tuple[str, DefinitionRow | None]:
    """What holds for an undecided run: "run" with the definition to run, or the reason to skip it."""
    if row.deleted_ms or run.cause not in ("schedule", "catchup"):
        return "deleted", None  # of the others, only a deletion withdraws any
    if run.held:
        held = work.definition(key, run.held_revision) if run.held == "run" else None
        return run.held, held
    if row.broken:
        return "broken", None
    definition = work.current(key, row)
    if timetable_of(definition, row).next_nominal(run.nominal_ms - 1) != run.nominal_ms:
        return "edited", None
    if row.paused:
        return "paused", definition
    if row.skip_next > 0:
        return "skip_next", definition
    return "run", definition


def decide_again(work: Work, key: JobKey, row: JobRow, run: RunRow, *, in_turn: bool = False) -> None:
    """Give an undecided run its disposition, if the time for that has come; else it goes on waiting.

    What is in force at an instant that has passed is known in its turn among the timers: when all inputs of the tick
    are applied, and the end of a pause that came before it, too.
    """
    verdict, definition = verdict_of(work, key, row, run)
    if definition is not None and not run.held:
        run.due_ms = run.nominal_ms + timetable_of(definition, row).spread_offset(key)
    passed = run.due_ms <= work.now_ms
    if passed and not (run.held or in_turn):
        return
    if verdict == "paused" and not passed and not work.rules.p4_decide_when_dropped:
        verdict = "run"  # without P4: what was asked back is dispatched again, whatever has been said since
    if verdict != "run":
        if passed and not run.contested and work.rules.p12_watermark_waits:
            # Its instant had passed when the job was deleted. The watermark has, too, so it stays a run (P12).
            close(work, key, row, run, "cancel", "deleted")
            after_run_ended(work, key, row)
        elif passed or not work.rules.p4_decide_when_dropped:
            _skip_run(work, key, row, run, verdict)
        return
    assert definition is not None
    if run.status != "undecided" or not (passed or _may_go_ahead(work, key, row, run, definition)):
        return
    what = overlap_verdict(work, key, row, definition, run.due_ms, but=run)
    if what in ("unread", "unanswered"):
        return
    if what.startswith("skip:"):
        _skip_run(work, key, row, run, what.removeprefix("skip:"))
        return
    run.revision = definition.revision
    if run.seq < row.seq:
        work.renumber_run(key, row, run)  # later due records may have said that all below them are settled
    if what == "run":
        dispatch(work, row, run, definition, due_ms=run.due_ms, retry=False)
    else:
        run.contested = False
        place(work, row, run, definition, what, run.due_ms)


def _may_go_ahead(work: Work, key: JobKey, row: JobRow, run: RunRow, definition: DefinitionRow) -> bool:
    """Look-ahead changes no decision: no other run is open, and no earlier occurrence is undecided."""
    if run.due_ms > work.now_ms + work.config.cluster.horizon_ms:
        return False
    if definition.job.overlap.mode == "allow":
        return True
    if row.armed != "none" and row.armed_due_ms <= run.due_ms:
        return False
    return all(
        other is run or (other.status == "undecided" and other.due_ms > run.due_ms)
        for other in work.open_runs(key, row)
    )


def _skip_run(work: Work, key: JobKey, row: JobRow, run: RunRow, reason: str) -> None:
    """The occurrence that had become a run does not run after all; it does not count for max_runs."""
    if reason == "skip_next" and row.skip_next > 0:
        row.skip_next -= 1
    row.runs_made = max(0, row.runs_made - 1)
    close(work, key, row, run, "skip", reason)
    if row.finished_ms and not row.deleted_ms and not row.broken:
        definition = work.current(key, row)
        if definition.job.schedule.max_runs is not None:
            # The schedule goes on from here: while it had ended, there were no occurrences.
            arm(work, key, row, definition, max(row.decided_ms, work.now_ms))
    after_run_ended(work, key, row)


def after_run_ended(work: Work, key: JobKey, row: JobRow) -> None:
    """A run of the job has ended, or lost its due record: look at everything that may have waited for that."""
    if row.deleted_ms:
        return
    if work.deciding:
        pause_after_failures(work, key, row)
    else:
        work.failing[key] = None
    release(work, key, row)
    if row.armed == "blocked":
        row.armed = "exact"
    elif row.armed == "exact" and not row.paused and not row.skip_next:
        row.armed = "ahead"  # decided early if nothing hinders, else it comes back to "exact"
    for seq in tuple(row.open):
        seen = work.look(key, seq)
        if seen is None or not (seen.parked or seen.status == "undecided"):
            continue
        run = work.run(key, seq)
        assert run is not None
        run.parked = False
        if run.status == "undecided":
            decide_again(work, key, row, run)
    if row.armed == "none" and not row.open and not row.finished_ms and not row.broken:
        definition = work.current(key, row)
        if definition.job.schedule.after_completion:
            arm_after_completion(work, key, row, definition)
    settle_finished(work, key, row)


def pause_after_failures(work: Work, key: JobKey, row: JobRow) -> None:
    """The job is paused if as many of its runs in a row have failed as it allows, the last of them now."""
    if row.paused or not row.consecutive_failures or row.last_ended_ms != work.now_ms:
        return
    limit = work.current(key, row).job.auto_pause_after
    if limit is None or row.consecutive_failures < limit:
        return
    reason = f"{row.consecutive_failures} runs failed one after the other"
    effective_ms = effective_instant(work, key, work.now_ms)
    decide_up_to(work, key, row, effective_ms)
    pause_job(row, "tocsin", reason)
    withdraw_ahead(work, row, key, effective_ms)
    work.emit_job_event(key, row, "auto_paused", effective_ms=effective_ms, actor="tocsin", reason=reason)


def pause_job(row: JobRow, actor: str, reason: str, until_ms: int = 0) -> None:
    row.paused = True
    row.paused_until_ms = until_ms
    row.paused_by = actor
    row.paused_reason = reason


def end_pause(work: Work, key: JobKey, row: JobRow, at_ms: int) -> None:
    """A pause that had an end is over."""
    resume_job(work, key, row, at_ms)
    work.emit_job_event(key, row, "resumed", effective_ms=at_ms, reason="pause is over")


def resume_job(work: Work, key: JobKey, row: JobRow, effective_ms: int) -> None:
    """The job goes on with the occurrences after the resume; paused time is not missed time."""
    row.paused_until_ms = 0
    decide_up_to(work, key, row, effective_ms)
    row.paused = False
    row.paused_by = ""
    row.paused_reason = ""
    row.consecutive_failures = 0
    after_run_ended(work, key, row)
