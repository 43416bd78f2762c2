"""Occurrences: armed one at a time, decided once, each with a disposition.

A job's row names its next undecided occurrence (`armed_*`). It is decided ahead of its instant when nothing can change
the decision any more, that is when the job has no open run or allows overlaps; else at its due instant, or as soon
as the open run ends. decide() is that decision, arm() finds the occurrence after it.
"""

from typing import Final

from tocsin.schedules.timetable import Continuation, Timetable
from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow
from tocsin.streams.ids import occurrence_run_id
from tocsin.streams.policies import is_missed, sort_open_runs
from tocsin.streams.releases import release
from tocsin.streams.runs import (
    DELETE_AFTER_MS,
    OPEN_RUNS_MAX,
    close,
    dispatch,
    open_run,
    record_run,
    request_cancel,
)
from tocsin.streams.runs import move as move_run
from tocsin.streams.skips import mark_decided, skip
from tocsin.streams.timetables import timetable_of
from tocsin.streams.work import Work

COUNT_MAX: Final = 10_000
"""A longer series of skips is recorded with count_at_least."""


# --- arming ---------------------------------------------------------------------------------------------------


def arm(work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, after_ms: int) -> None:
    """The job waits for its first undecided occurrence after `after_ms`; or it is finished."""
    unpark_retries(work, key, row)
    table = timetable_of(definition, row)
    offset = table.spread_offset(key)
    while True:
        if is_used_up(row, definition):
            _finish(work, row)
            return
        found = table.next_nominal(after_ms)
        match found:
            case None:
                _finish(work, row)
                if definition.job.schedule.kind == "manual":
                    row.finished_ms = 0  # it waits for triggers, for ever
                return
            case Continuation():
                _set_armed(row, "continue", found.resume_from_ms, found.resume_from_ms + offset)
                return
            case nominal_ms:
                if nominal_ms in row.decided_ahead:
                    after_ms = nominal_ms
                    continue
                _set_armed(row, "ahead", nominal_ms, nominal_ms + offset)
                return


def is_used_up(row: JobRow, definition: DefinitionRow) -> bool:
    """Whether all the runs that the schedule allows were made."""
    maximum = definition.job.schedule.max_runs
    return maximum is not None and row.runs_made >= maximum


def disarm(row: JobRow) -> None:
    _set_armed(row, "none", 0, 0)


def _set_armed(row: JobRow, armed: str, nominal_ms: int, due_ms: int) -> None:
    row.armed = armed  # type: ignore[assignment]
    row.armed_nominal_ms = nominal_ms
    row.armed_due_ms = due_ms
    row.finished_ms = 0
    if not row.deleted_ms:
        row.delete_at_ms = 0


def _finish(work: Work, row: JobRow) -> None:
    """Nothing is left to do but for the open runs."""
    disarm(row)
    row.finished_ms = work.now_ms


def settle_finished(work: Work, key: JobKey, row: JobRow) -> None:
    """A job that has finished, and whose last run has ended, goes in a week (`when_finished: delete`)."""
    if not row.finished_ms or row.deleted_ms or row.open or row.delete_at_ms:
        return
    definition = work.current(key, row)
    if definition.job.when_finished == "delete" and definition.job.schedule.kind != "manual":
        row.delete_at_ms = max(row.finished_ms, row.last_ended_ms) + DELETE_AFTER_MS


def unpark_retries(work: Work, key: JobKey, row: JobRow) -> None:
    """Retries that waited for a decision are looked at again by their timer."""
    for seen in work.looked_at(key, row):
        if seen.parked:
            run = work.run(key, seen.seq)
            assert run is not None
            run.parked = False


# --- deciding -------------------------------------------------------------------------------------------------


def decide_ahead(work: Work, key: JobKey, row: JobRow) -> None:
    """The armed occurrence has come within the horizon: decide it now if that is the decision of its instant."""
    definition = work.current(key, row)
    if row.armed == "continue":
        arm(work, key, row, definition, row.armed_nominal_ms)
        settle_finished(work, key, row)
        return
    held_back = row.paused or row.skip_next > 0
    alone = definition.job.overlap.mode == "allow" or not any(
        run.status != "undecided" or run.due_ms <= row.armed_due_ms for run in work.open_runs(key, row)
    )
    if held_back or not alone:
        row.armed = "exact"
    else:
        decide(work, key, row, work.now_ms)


def decide(work: Work, key: JobKey, row: JobRow, through_ms: int) -> bool:
    """Give the armed occurrence its disposition, and arm the next. False: it has to wait, nothing changed.

    The caller saw to it that the instant has come, or that the decision cannot change until then. Where several are
    decided together, those due up to `through_ms` are: up to which the definition and the pause in force count.
    """
    definition = work.current(key, row)
    nominal_ms, due_ms = row.armed_nominal_ms, row.armed_due_ms
    table = timetable_of(definition, row)
    if row.paused:
        until_ms = row.paused_until_ms or through_ms
        _skip_due_series(work, key, row, table, "paused", min(until_ms, through_ms))
        return True
    if row.skip_next > 0:
        row.skip_next -= 1
        skip(work, key, row, nominal_ms, nominal_ms, 1, False, "skip_next")
        _advance(work, key, row, definition, nominal_ms)
        return True
    recurring = (
        definition.job.schedule.kind in ("cron", "every") and not definition.job.schedule.after_completion
    )
    if recurring and is_missed(definition.job.catchup, work.now_ms, due_ms):
        _catch_up(work, key, row, definition, table, through_ms)
        return True
    return _decide_one(work, key, row, definition, nominal_ms, due_ms)


def _decide_one(
    work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, nominal_ms: int, due_ms: int
) -> bool:
    """Decide one occurrence by the overlap policy."""
    verdict = overlap_verdict(work, key, row, definition, due_ms)
    if verdict == "unread":
        return False
    if verdict == "unanswered":
        row.armed = "blocked"
        return True
    mark_decided(work, row, nominal_ms)
    if verdict.startswith("skip:"):
        skip(work, key, row, nominal_ms, nominal_ms, 1, False, verdict.removeprefix("skip:"))
    else:
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
        place(work, row, run, definition, verdict, due_ms)
    _advance(work, key, row, definition, nominal_ms)
    return True


def overlap_verdict(
    work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, due_ms: int, *, but: RunRow | None = None
) -> str:
    """What an occurrence due at `due_ms` does about the job's open runs (all `but` its own), and do to them what
    it does: close what it supersedes, cancel what it replaces.

    "run", "buffer", "wait" (for what it replaces), "skip:<reason>"; "unread": reports have to be read first (P9);
    "unanswered": a worker has to answer a withdrawal first (P10).
    """
    mode = definition.job.overlap.mode
    if len(row.open) >= OPEN_RUNS_MAX:
        return "skip:open_runs_limit"
    if mode == "allow" or not row.open or row.open == [but.seq if but else -1]:
        return "run"
    if due_ms > work.reports_through_ms and due_ms <= work.now_ms and work.rules.p9_reports_first:
        return "unread"
    others = [run for run in work.open_runs(key, row) if run is not but]
    runs = sort_open_runs((run, _until_next(work, key, run)) for run in others)
    if runs.unanswered and mode != "replace" and work.rules.p10_wait_for_answer:
        return "unanswered"
    if runs.supersedable:
        for run in runs.supersedable:
            close(work, key, row, run, "supersede", "next_occurrence")
        release(work, key, row)  # somebody may have waited for them, and comes before this occurrence
        others = [run for run in work.open_runs(key, row) if run is not but]
        runs = sort_open_runs((run, _until_next(work, key, run)) for run in others)
    active = runs.active + runs.unanswered
    if not active:
        return "run"
    match mode:
        case "skip":
            return "skip:overlap"
        case "buffer_one":
            return "skip:overlap" if runs.buffered else "buffer"
        case "buffer_all":
            return "skip:overlap_limit" if runs.buffered >= definition.job.overlap.limit else "buffer"
        case "replace":
            for run in active:
                if run.outstanding:
                    request_cancel(work, key, row, run, "replaced")
                else:
                    close(work, key, row, run, "supersede", "replaced")
            return "wait" if any(run.outstanding for run in others) else "run"


def _until_next(work: Work, key: JobKey, run: RunRow) -> bool:
    definition = work.definition(key, run.revision)
    assert definition is not None, f"{run.run_id}: its revision {run.revision} is gone"
    return definition.job.retry.until_next


def place(work: Work, row: JobRow, run: RunRow, definition: DefinitionRow, verdict: str, due_ms: int) -> None:
    """Start, buffer or hold back an undecided run, as the verdict says."""
    match verdict:
        case "run":
            dispatch(work, row, run, definition, due_ms=due_ms, retry=False)
        case "buffer":
            move_run(run, "buffer")
            record_run(work, run)
        case "wait":
            move_run(run, "wait")
            record_run(work, run)
        case _:
            raise AssertionError(f"{run.run_id}: no place for verdict {verdict}")


def _advance(work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, nominal_ms: int) -> None:
    """Arm what follows `nominal_ms`; a fixed delay is armed when the run ends."""
    unpark_retries(work, key, row)
    if definition.job.schedule.after_completion and row.open:
        disarm(row)
        return
    if definition.job.schedule.after_completion:
        arm_after_completion(work, key, row, definition)
    else:
        arm(work, key, row, definition, nominal_ms)
    settle_finished(work, key, row)


def arm_after_completion(work: Work, key: JobKey, row: JobRow, definition: DefinitionRow) -> None:
    """The next occurrence of a fixed delay, counted from now, the end of a run (or of a skip)."""
    if is_used_up(row, definition):
        _finish(work, row)
        return
    table = timetable_of(definition, row)
    end_ms = work.now_ms
    while (found := table.next_after_completion(end_ms)) in row.decided_ahead:
        end_ms += 1  # several ends at one now (the wall clock was stepped back): each occurrence has its own instant
    match found:
        case None:
            _finish(work, row)
        case Continuation(resume_from_ms=from_ms):
            _set_armed(row, "continue", from_ms, from_ms + table.spread_offset(key))
        case nominal_ms:
            _set_armed(row, "ahead", nominal_ms, nominal_ms + table.spread_offset(key))


# --- missed, paused: series -----------------------------------------------------------------------------------


def _catch_up(
    work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, table: Timetable, through_ms: int
) -> None:
    """Decide all missed occurrences up to `through_ms` at once, by the catch-up policy."""
    policy = definition.job.catchup
    first = row.armed_nominal_ms
    offset = row.armed_due_ms - row.armed_nominal_ms
    newest_due = min(through_ms, work.now_ms) - offset
    newest_missed = table.newest(first - 1, min(newest_due, work.now_ms - offset - policy.grace_ms - 1), 1)[
        -1
    ]
    window_from = work.now_ms - offset - policy.window_ms
    within = max(first, window_from)
    chosen: tuple[int, ...] = ()
    match policy.mode:
        case "none":
            pass
        case "latest":
            # An occurrence that is due and only late is newer than all missed ones: it stands for them.
            late = _newest_undecided(row, table, newest_missed, newest_due, 1)
            chosen = () if late else _newest_undecided(row, table, within - 1, newest_missed, 1)
        case "all":
            chosen = _newest_undecided(row, table, within - 1, newest_missed, policy.limit)
    _skip_missed(work, key, row, table, first, newest_missed, window_from, chosen)
    for nominal_ms in chosen:
        if is_used_up(row, definition):
            break  # the schedule has ended with the one before
        _run_missed(work, key, row, definition, nominal_ms, nominal_ms + offset)
    mark_decided(work, row, newest_missed)
    _advance(work, key, row, definition, newest_missed)


def _skip_missed(
    work: Work,
    key: JobKey,
    row: JobRow,
    table: Timetable,
    first: int,
    newest: int,
    window_from: int,
    chosen: tuple[int, ...],
) -> None:
    """Record why the missed occurrences from `first` to before the chosen ones (or to `newest`) did not run."""
    last = chosen[0] - 1 if chosen else newest
    match work.current(key, row).job.catchup.mode:
        case "none":
            _skip_range(work, key, row, table, first - 1, last, "missed")
            return
        case "latest":
            within = "coalesced"
        case _:
            within = "outside_limit"
    _skip_range(work, key, row, table, first - 1, min(last, window_from - 1), "outside_window")
    _skip_range(work, key, row, table, max(first, window_from) - 1, last, within)


def _newest_undecided(
    row: JobRow, table: Timetable, after_ms: int, through_ms: int, n: int
) -> tuple[int, ...]:
    """The newest n in (after, through], without those that an earlier definition had decided ahead."""
    decided = row.decided_ahead
    found = table.newest(after_ms, through_ms, n + len(decided))
    return tuple([nominal_ms for nominal_ms in found if nominal_ms not in decided][-n:])


def _skip_range(
    work: Work, key: JobKey, row: JobRow, table: Timetable, after_ms: int, through_ms: int, reason: str
) -> None:
    """Skip all occurrences in (after, through] that are not decided yet."""
    for decided_ms in sorted(n for n in row.decided_ahead if after_ms < n <= through_ms):
        _skip_series(work, key, row, table, after_ms, decided_ms - 1, reason)
        after_ms = decided_ms
    _skip_series(work, key, row, table, after_ms, through_ms, reason)


def _skip_series(
    work: Work, key: JobKey, row: JobRow, table: Timetable, after_ms: int, through_ms: int, reason: str
) -> None:
    """One record for all occurrences in (after, through], if there are any."""
    if through_ms <= after_ms:
        return
    last = table.newest(after_ms, through_ms, 1)
    if not last:
        return
    first = table.next_nominal(after_ms)
    assert isinstance(first, int)
    counted = table.count(after_ms, through_ms, COUNT_MAX)
    skip(work, key, row, first, last[-1], counted.n, counted.at_least, reason)


def _skip_due_series(
    work: Work, key: JobKey, row: JobRow, table: Timetable, reason: str, through_ms: int
) -> None:
    """Every occurrence that is due by `through_ms` is skipped, in one record."""
    offset = row.armed_due_ms - row.armed_nominal_ms
    through = max(row.armed_nominal_ms, through_ms - offset)
    definition = work.current(key, row)
    if definition.job.schedule.after_completion:
        skip(work, key, row, row.armed_nominal_ms, row.armed_nominal_ms, 1, False, reason)
        mark_decided(work, row, row.armed_nominal_ms)
        _advance(work, key, row, definition, row.armed_nominal_ms)
        return
    newest = table.newest(row.armed_nominal_ms - 1, through, 1)[-1]
    _skip_range(work, key, row, table, row.armed_nominal_ms - 1, newest, reason)
    mark_decided(work, row, newest)
    _advance(work, key, row, definition, newest)


def _run_missed(
    work: Work, key: JobKey, row: JobRow, definition: DefinitionRow, nominal_ms: int, due_ms: int
) -> None:
    """A missed occurrence runs after all. Several run one after the other, oldest first, unless overlaps are allowed."""
    mode = definition.job.overlap.mode
    mark_decided(work, row, nominal_ms)
    if len(row.open) >= OPEN_RUNS_MAX:
        skip(work, key, row, nominal_ms, nominal_ms, 1, False, "open_runs_limit")
        return
    verdict = "run" if mode == "allow" or not row.open else "buffer"
    if verdict == "buffer" and definition.job.catchup.mode == "latest":
        verdict = overlap_verdict(work, key, row, definition, due_ms)
        if verdict.startswith("skip:"):
            skip(work, key, row, nominal_ms, nominal_ms, 1, False, verdict.removeprefix("skip:"))
            return
    row.runs_made += 1
    run = open_run(
        work,
        key,
        row,
        run_id=occurrence_run_id(key, nominal_ms),
        cause="catchup",
        nominal_ms=nominal_ms,
        due_ms=due_ms,
    )
    run.age_from_ms = work.now_ms
    if verdict in ("unread", "unanswered"):
        hold(row, run)
    else:
        place(work, row, run, definition, verdict, due_ms)


def hold(row: JobRow, run: RunRow) -> None:
    """The run waits, undecided, for what has to be known first; the decision is by what is in force now."""
    run.held = "run"
    run.held_revision = row.revision
    run.contested = True
