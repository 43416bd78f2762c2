"""New time-zone data: every armed instant is computed again, and what moved is recorded.

This is the one piece of work of a tick that grows with the number of jobs (some 15 us each): time-zone data changes a few
times a year, with an upgrade of the process, and firing by instants that the law has moved would be worse than waiting.
"""

from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.instants import format_instant
from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import JobRow
from tocsin.streams.occurrences import arm, disarm, settle_finished
from tocsin.streams.work import Work


def recompute(work: Work, before: str) -> None:
    """Arm every cron job again, under the data that is in force now; `before` is the version that was."""
    for key in work.view.job_keys():
        row = work.job(key)
        assert row is not None
        if row.armed != "none":
            _recompute_one(work, key, row, before)
        work.flush()


def _recompute_one(work: Work, key: JobKey, row: JobRow, before: str) -> None:
    definition = work.current(key, row)
    schedule = definition.job.schedule
    if schedule.kind != "cron" or schedule.timezone == "UTC":
        return
    armed, nominal_ms = row.armed, row.armed_nominal_ms
    now = work.config.cluster.tzdata
    try:
        arm(work, key, row, definition, row.decided_ms)
    except ScheduleError as error:
        row.broken = "timezone_unknown"
        disarm(row)
        work.emit_job_event(key, row, "broken", effective_ms=work.now_ms, reason=error.message)
        return
    settle_finished(work, key, row)
    if row.armed_nominal_ms == nominal_ms and row.armed != "none":
        row.armed = armed  # nothing moved: it waits as it did
        return
    after = "none" if row.armed == "none" else format_instant(row.armed_nominal_ms)
    work.emit_job_event(
        key,
        row,
        "tzdata_changed",
        effective_ms=work.now_ms,
        reason=f"time-zone data {before} -> {now}: next {format_instant(nominal_ms)} -> {after}",
    )
