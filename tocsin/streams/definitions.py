"""Definitions and deletions are folded here: revisions, edits under way, tombstones."""

from typing import Final

from tocsin.log.port import Record
from tocsin.schemas import codec
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.problems import problems
from tocsin.schemas.records import JobDefinition, Quarantined
from tocsin.schemas.rows import DefinitionRow, JobRow
from tocsin.streams.contested import (
    after_run_ended,
    decide_up_to,
    effective_instant,
    hold_verdicts,
    withdraw_ahead,
)
from tocsin.streams.occurrences import arm, disarm, is_used_up, settle_finished
from tocsin.streams.runs import DELETE_AFTER_MS, close, forget_revision, settle_moved, withdraw
from tocsin.streams.skips import skip
from tocsin.streams.timetables import timetable_of
from tocsin.streams.work import Work

IF_OFFSET: Final = "if-offset"
"""Header of a deletion or tombstone that the processor wrote itself: the definition that it means."""
OFFSET_DIGITS_MAX: Final = 19


def fold_definition(work: Work, record: Record, definition: JobDefinition) -> None:
    """Fold one record of `jobs`."""
    work.effects.counts.definitions += 1
    key = JobKey(f"{definition.namespace}/{definition.id}")
    if definition.deleted or definition.job is None:
        _fold_deletion(work, key, record, definition)
        return
    job = definition.job
    row = work.job(key)
    errors = _errors(key, job)
    if errors:
        work.emit_job_event(
            key,
            row,
            "rejected",
            effective_ms=effective_instant(work, key, record.timestamp_ms),
            actor=definition.actor,
            source=(record.topic, record.offset),
            errors=errors,
        )
        return
    digest = codec.digest(job)
    broken = _why_broken(work, job)
    if row is not None and not row.deleted_ms and row.digest == digest and row.broken == broken:
        row.definition_offset = record.offset  # the same again: no revision, no effect
        return
    _apply(work, key, row, record, definition, job, digest, broken)


def _errors(key: JobKey, job: Job) -> tuple[str, ...]:
    try:
        found = tuple(f"{each.field}: {each.message} ({each.rule})" for each in problems(job))
    except (
        ArithmeticError,
        LookupError,
        ValueError,
    ) as error:  # one strange definition must not stop the partition
        found = (f"the definition cannot be checked: {type(error).__name__}: {error} (unreadable)",)
    if job.key != key:
        found += (f"id: the definition of {job.key} came as {key} (id-mismatch)",)
    return found


def _why_broken(work: Work, job: Job) -> str:
    """Why a well-formed definition cannot run here and now; "" if it can."""
    queue = work.config.queues.get(job.queue)
    if queue is None or queue.deleted:
        return "unknown_queue"
    kind = "http" if job.http is not None else "function"
    return "" if queue.kind == kind else "queue_kind"


def _apply(
    work: Work,
    key: JobKey,
    row: JobRow | None,
    record: Record,
    definition: JobDefinition,
    job: Job,
    digest: bytes,
    broken: str,
) -> None:
    """A new revision is in force from its effective instant on."""
    effective_ms = effective_instant(work, key, record.timestamp_ms)
    old: DefinitionRow | None = None
    if row is None:
        row = work.new_job(key)
    elif row.deleted_ms:
        hold_verdicts(work, key, row, effective_ms)
    else:
        decide_up_to(work, key, row, effective_ms)
        old = work.current(key, row)
        if old.job.queue != job.queue:
            settle_moved(work, key, row, old.job.queue)
    if old is None:
        row.created_ms = record.timestamp_ms
        row.paused = job.paused
        row.paused_by, row.paused_reason = (definition.actor, "defined as paused") if job.paused else ("", "")
        row.paused_until_ms = 0
        row.skip_next = 0
        row.runs_made = 0
        row.consecutive_failures = 0
    if old is None or old.job.schedule != job.schedule:
        row.schedule_since_ms = record.timestamp_ms
    new = DefinitionRow(
        revision=row.revision + 1,
        effective_ms=effective_ms,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        actor=definition.actor,
        source=definition.source,
        job=job,
    )
    work.view.put_definition(key, new)
    row.revision = new.revision
    row.digest = digest
    row.definition_offset = record.offset
    row.deleted_ms = 0
    row.delete_at_ms = 0
    row.broken = broken
    if old is not None:
        withdraw_ahead(work, row, key, effective_ms)
        forget_revision(work, key, row, old.revision)
    _arm_from(work, key, row, old, new, effective_ms)
    work.emit_job_event(
        key,
        row,
        "revision_applied",
        effective_ms=effective_ms,
        actor=definition.actor,
        reason=definition.reason,
        source=(record.topic, record.offset),
    )
    if broken:
        work.emit_job_event(key, row, "broken", effective_ms=effective_ms, reason=broken)
    after_run_ended(work, key, row)


def _arm_from(
    work: Work, key: JobKey, row: JobRow, old: DefinitionRow | None, new: DefinitionRow, effective_ms: int
) -> None:
    """The new definition owns the nominals after the effective instant."""
    after_ms = effective_ms
    if old is not None and _waits_for_spread(row, effective_ms) and not _goes_on(row, old, new):
        after_ms = _keep_spread_out(work, key, row, old, new, row.armed_nominal_ms, effective_ms)
    row.decided_ahead = [n for n in row.decided_ahead if n > after_ms]
    row.decided_ms = max(row.decided_ms, effective_ms)
    if row.broken:
        disarm(row)
        return
    kind = new.job.schedule.kind
    if _goes_on(row, old, new):
        row.armed = "ahead"
    elif kind in ("at", "delay"):
        _arm_one_shot(work, key, row, new, effective_ms)
    elif kind == "every" and new.job.schedule.after_completion and row.open:
        disarm(row)
    else:
        arm(work, key, row, new, after_ms)
    settle_finished(work, key, row)


def _arm_one_shot(work: Work, key: JobKey, row: JobRow, new: DefinitionRow, effective_ms: int) -> None:
    """An instant that was decided before is never decided again; one that is past runs at once, if not too long ago.

    Of past instants, all up to the highest that was decided count as decided; of those ahead, each is known.
    """
    table = timetable_of(new, row)
    after_ms = min(row.highest_ms, effective_ms)
    nominal_ms = table.next_nominal(after_ms)
    arm(work, key, row, new, after_ms)
    if not isinstance(nominal_ms, int) or row.armed_nominal_ms != nominal_ms or row.armed == "none":
        return
    if new.job.schedule.kind == "at" and new.timestamp_ms - nominal_ms > new.job.catchup.window_ms:
        skip(work, key, row, nominal_ms, nominal_ms, 1, False, "outside_window")
        arm(work, key, row, new, nominal_ms)


def _goes_on(row: JobRow, old: DefinitionRow | None, new: DefinitionRow) -> bool:
    """Whether the armed occurrence of a fixed delay stands: nothing but the end of the last run names it."""
    unchanged = old is not None and old.job.schedule == new.job.schedule
    armed = row.armed in ("ahead", "exact") and not row.broken
    return unchanged and armed and new.job.schedule.after_completion


def _waits_for_spread(row: JobRow, effective_ms: int) -> bool:
    """Whether the armed occurrence belongs to the old definition: its nominal has passed, and its due has not."""
    return row.armed in ("ahead", "exact") and row.armed_nominal_ms <= effective_ms < row.armed_due_ms


def _keep_spread_out(
    work: Work,
    key: JobKey,
    row: JobRow,
    old: DefinitionRow,
    new: DefinitionRow,
    first_ms: int,
    effective_ms: int,
) -> int:
    """Occurrences up to the change that still wait for their spread: returns after which nominal to arm.

    They follow the new definition if it names the same ones, else they are skipped.
    """
    one_shot = old.job.schedule.kind in ("at", "delay")  # what a delay counts from has moved on already
    before = (first_ms,) if one_shot else _spread_out(row, old, first_ms, effective_ms)
    after: tuple[int, ...] = ()
    if not (row.broken or is_used_up(row, new) or new.job.schedule.after_completion):
        after = _spread_out(row, new, first_ms, effective_ms)
    if before == after and len(before) < _WAITING_COMPARED_MAX:
        return first_ms - 1
    skip(work, key, row, first_ms, before[-1], len(before), False, "edited")
    return effective_ms


def _spread_out(row: JobRow, definition: DefinitionRow, first_ms: int, effective_ms: int) -> tuple[int, ...]:
    """The occurrences from first_ms, which is one that waits for its spread, to the change."""
    if definition.job.schedule.after_completion:
        return (first_ms,)  # there is no series: each counts from the end of the run before
    named = timetable_of(definition, row).newest(first_ms - 1, effective_ms, _WAITING_COMPARED_MAX)
    return tuple([nominal_ms for nominal_ms in named if nominal_ms not in row.decided_ahead])


_WAITING_COMPARED_MAX: Final = 1_000
"""Occurrences within one spread (24 h at most) that are compared one by one; a longer series is skipped."""


# --- deletions ------------------------------------------------------------------------------------------------


def _fold_deletion(work: Work, key: JobKey, record: Record, definition: JobDefinition) -> None:
    row = work.job(key)
    if row is None or row.deleted_ms:
        return
    meant = if_offset(record)
    if meant is not None and meant != row.definition_offset:
        # The processor wanted to delete a definition that a newer one has replaced meanwhile.
        _write_again(work, key, row)
        return
    effective_ms = effective_instant(work, key, record.timestamp_ms)
    decide_up_to(work, key, row, effective_ms)
    if _waits_for_spread(row, effective_ms):
        waiting = _spread_out(row, work.current(key, row), row.armed_nominal_ms, effective_ms)
        skip(work, key, row, waiting[0], waiting[-1], len(waiting), False, "deleted")
    disarm(row)
    row.finished_ms = 0
    row.deleted_ms = work.now_ms
    row.definition_offset = record.offset
    row.decided_ahead = [n for n in row.decided_ahead if n > effective_ms]
    row.decided_ms = max(row.decided_ms, effective_ms)
    row.delete_at_ms = work.now_ms + DELETE_AFTER_MS
    for run in work.open_runs(key, row):
        if not run.outstanding:
            if run.status != "undecided":
                close(work, key, row, run, "cancel", "deleted")
        elif run.status == "scheduled":
            ahead = run.cause in ("schedule", "catchup") and run.due_ms > effective_ms
            run.contested = ahead and work.rules.p12_watermark_waits
            run.held = "" if ahead else "deleted"  # also if the job is created again before the answer comes
            withdraw(work, run, "withdraw")
    forget_revision(work, key, row, row.revision)
    work.emit_job_event(
        key,
        row,
        "deleted",
        effective_ms=effective_ms,
        actor=definition.actor,
        reason=definition.reason,
        source=(record.topic, record.offset),
    )


def fold_tombstone(work: Work, record: Record) -> None:
    """A tombstone ends what is left of a deleted job. Only the processor writes them, each for one definition."""
    key = JobKey((record.key or b"").decode(errors="replace"))
    row = work.job(key)
    meant = if_offset(record)
    if meant is None:
        work.emit_quarantined(
            Quarantined(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                reason="a tombstone without if-offset: delete a job by a record with deleted=true",
                key=record.key,
            )
        )
    if row is None:
        return
    if meant == row.definition_offset and row.deleted_ms and not row.open:
        work.view.delete_definition(key, row.revision)
        work.forget_job(key)
    elif not row.deleted_ms:
        _write_again(work, key, row)


def if_offset(record: Record) -> int | None:
    """None: there is none, or what only somebody else can have written."""
    for name, value in record.headers:
        if name == IF_OFFSET:
            return int(value) if value.isdigit() and len(value) <= OFFSET_DIGITS_MAX else None
    return None


def _write_again(work: Work, key: JobKey, row: JobRow) -> None:
    """A deletion or tombstone that is void still hides the definition from compaction: write that once more."""
    current = work.current(key, row)
    namespace, _, job_id = key.partition("/")
    work.emit_definition(
        key,
        JobDefinition(
            namespace=namespace, id=job_id, job=current.job, actor=current.actor, source=current.source
        ),
        -1,
    )


def delete_when_due(work: Work, key: JobKey, row: JobRow) -> None:
    """The timer of a finished job (write its deletion), or of a deleted one (write its tombstone)."""
    row.delete_at_ms = 0
    if row.deleted_ms and row.open:
        row.delete_at_ms = work.now_ms + DELETE_AFTER_MS
    elif row.deleted_ms:
        work.emit_definition(key, None, row.definition_offset)
    elif row.finished_ms:
        namespace, _, job_id = key.partition("/")
        deletion = JobDefinition(
            namespace=namespace, id=job_id, deleted=True, actor="tocsin", reason="finished"
        )
        work.emit_definition(key, deletion, row.definition_offset)
