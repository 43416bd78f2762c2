"""Occurrences that do not run: recorded with the reason, alike ones as a series; and the guard that none is decided twice."""

from tocsin.schemas.job import JobKey
from tocsin.schemas.records import RunEvent
from tocsin.schemas.rows import JobRow
from tocsin.streams.ids import occurrence_run_id
from tocsin.streams.runs import keep_history
from tocsin.streams.work import Work


def mark_decided(work: Work, row: JobRow, nominal_ms: int) -> None:
    """The emission guard: this nominal never fires again."""
    if row.decided_ahead:
        # An occurrence that waits for an answer may be decided long after later ones were, ahead.
        passed_ms = min(work.previous_ms, nominal_ms)
        row.decided_ahead = [n for n in row.decided_ahead if n > passed_ms]
    if nominal_ms > work.previous_ms:
        row.decided_ahead.append(nominal_ms)
    row.decided_ms = max(row.decided_ms, nominal_ms)
    row.highest_ms = max(row.highest_ms, nominal_ms)


def skip(
    work: Work,
    key: JobKey,
    row: JobRow,
    first_ms: int,
    last_ms: int,
    count: int,
    at_least: bool,
    reason: str,
) -> None:
    """Record that the occurrences from first to last do not run.

    Skips for one reason, with no run in between, are one series: its record is cumulative, so that the newest one
    suffices, and it keeps its history slot.
    """
    mark_decided(work, row, last_ms)
    if row.skip_reason != reason:
        row.history_no += 1
        row.skip_reason = reason
        row.skip_run_id = occurrence_run_id(key, first_ms)
        row.skip_from_ms = first_ms
        row.skip_count = 0
    row.skip_to_ms = last_ms
    row.skip_count += count
    namespace, _, job_id = key.partition("/")
    series = RunEvent(
        run_id=row.skip_run_id,
        namespace=namespace,
        job_id=job_id,
        seq=0,
        revision=row.revision,
        cause="schedule",
        nominal_ms=row.skip_from_ms,
        due_ms=row.skip_from_ms,
        status="skipped",
        reason=reason,
        event_ms=work.now_ms,
        history_no=row.history_no,
        last_nominal_ms=last_ms,
        count=row.skip_count,
        count_at_least=at_least,
    )
    keep_history(work, key, series, work.emit_run(series))
    work.effects.counts.skipped += 1
