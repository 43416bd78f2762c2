"""One partition's fold: a tick applies inputs, then advances timers, all at one now_ms.

A tick is deterministic: it applies outcomes, then commands, then definitions, each in offset order, then the timers,
in the order of their keys. What it reads besides is in its journal row. It does no I/O but reads of the partition's own
state, and reads no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from tocsin.log.partitioner import partition_for
from tocsin.log.port import Record
from tocsin.schemas import codec
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import (
    Backfill,
    CancelRun,
    Command,
    JobDefinition,
    Journal,
    Pause,
    Quarantined,
    Redrive,
    Resume,
    RunReport,
    SkipNext,
    Trigger,
)
from tocsin.schemas.rows import JobRow, RunRow
from tocsin.schemas.topics import TopicNames
from tocsin.streams.bounds import beyond_bounds
from tocsin.streams.commands import fold_command, forget_trigger, release_parked, unpark
from tocsin.streams.config import Configuration
from tocsin.streams.contested import after_run_ended, decide_again, end_pause, pause_after_failures
from tocsin.streams.definitions import delete_when_due, fold_definition, fold_tombstone
from tocsin.streams.effects import Effects
from tocsin.streams.occurrences import decide, decide_ahead
from tocsin.streams.reports import close_not_started, fold_report
from tocsin.streams.rules import StreamRules
from tocsin.streams.runs import dispatch, end_attempt, fail, settle
from tocsin.streams.store import View
from tocsin.streams.timers import AHEAD, EXACT, Kind, Timer
from tocsin.streams.work import Undecided, Work
from tocsin.streams.zone_changes import recompute

TIMERS_PER_PASS_MAX: Final = 4_000
"""Timers handled by one tick: some 0.5 s of work at the worst, so that a backlog cannot starve the inputs."""
LOOKS_PER_PASS_MAX: Final = 400_000
"""Open runs looked at by the timers of one tick: some 0.4 s (a timer of a job with a thousand of them takes 1 ms)."""
BYTES_PER_PASS_MAX: Final = 8 << 20
"""Bytes of records that one tick may add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a tick applies: records of one partition, and the positions of their readers after them."""

    outcomes: Sequence[Record] = ()
    commands: Sequence[Record] = ()
    jobs: Sequence[Record] = ()
    outcomes_offset: int
    commands_offset: int
    jobs_offset: int

    @property
    def empty(self) -> bool:
        return not (self.outcomes or self.commands or self.jobs)


@dataclass(slots=True, kw_only=True)
class PartitionCore:
    """The fold of one partition. `journal` is the newest journal row; the next tick goes on from it."""

    partition: int
    names: TopicNames
    view: View
    transactional_id: str
    journal: Journal
    rules: StreamRules = field(default_factory=StreamRules)
    timers_per_pass_max: int = TIMERS_PER_PASS_MAX
    effects: Effects = field(default_factory=Effects)
    """Of all ticks since the last commit."""
    undecided: Undecided = field(default_factory=Undecided)
    parked: dict[tuple[JobKey, int], int] = field(default_factory=dict)

    def tick(
        self,
        inputs: Inputs,
        *,
        wall_ms: int,
        reports_through_ms: int,
        config: Configuration,
        fire: bool = True,
        heartbeat: bool = True,
    ) -> bool:
        """Apply one tick. Returns whether more timers are due than the bound of a pass let through.

        Effects are added to `effects`, the journal row among them; the view holds the changed rows. `heartbeat`: journal
        it even if nothing happened; else a tick without any work is none.
        """
        now_ms = max(self.journal.now_ms, wall_ms)
        digest_before, emitted_before = self.effects.digest, len(self.effects.emissions)
        self.effects.digest = 0
        work = Work(
            partition=self.partition,
            names=self.names,
            view=self.view,
            config=config,
            rules=self.rules,
            now_ms=now_ms,
            previous_ms=self.journal.now_ms,
            reports_through_ms=reports_through_ms,
            jobs_offset=self.journal.jobs_offset,
            effects=self.effects,
            undecided=self.undecided,
            parked=self.parked,
        )
        self._follow_time_zones(work)
        self._apply(work, inputs)
        handled, full = self._advance(work) if fire else (0, False)
        idle = inputs.empty and not handled and len(self.effects.emissions) == emitted_before
        same_zones = self.journal.tzdata == config.cluster.tzdata
        if idle and same_zones and not heartbeat:
            self.effects.digest = digest_before
            return False
        self._write_journal(work, inputs, fire=fire, emitted=len(self.effects.emissions) - emitted_before)
        return full

    def claim(self) -> None:
        """Journal that this process has the partition, without any work: the newest row names who may write."""
        self.journal = replace(
            self.journal,
            tick=self.journal.tick + 1,
            transactional_id=self.transactional_id,
            digest=0,
            effects=0,
        )
        self.effects.emit(self.names.journal, self.partition, None, codec.encode(self.journal))

    def _write_journal(self, work: Work, inputs: Inputs, *, fire: bool, emitted: int) -> None:
        watermark_ms = self._watermark(work) if fire else self.journal.watermark_ms
        self.journal = Journal(
            tick=self.journal.tick + 1,
            now_ms=work.now_ms,
            transactional_id=self.transactional_id,
            fired=fire,
            outcomes_offset=inputs.outcomes_offset,
            commands_offset=inputs.commands_offset,
            jobs_offset=inputs.jobs_offset,
            reports_through_ms=work.reports_through_ms,
            config_offset=work.config.offset,
            watermark_ms=max(self.journal.watermark_ms, watermark_ms),
            tzdata=work.config.cluster.tzdata,
            digest=self.effects.digest,
            effects=emitted,
        )
        self.effects.emit(self.names.journal, self.partition, None, codec.encode(self.journal))

    def _watermark(self, work: Work) -> int:
        """Every occurrence due up to here has its disposition (P12: also those under withdrawal)."""
        waiting = [due for due in (self.view.next_due(EXACT), self.view.next_due(AHEAD)) if due is not None]
        waiting.extend(self.undecided.dues.values())
        return min([work.now_ms, *(due - 1 for due in waiting)])

    def _follow_time_zones(self, work: Work) -> None:
        """Before anything else of the tick: armed instants are those of the time-zone data in force."""
        if self.journal.tzdata not in ("", work.config.cluster.tzdata):
            recompute(work, self.journal.tzdata)

    # --- inputs

    def _apply(self, work: Work, inputs: Inputs) -> None:
        for record in inputs.outcomes:
            report = self._decoded(work, record, _REPORT)
            if isinstance(report, RunReport):
                fold_report(work, report, record.timestamp_ms)
                work.flush()
        for record in inputs.commands:
            command = self._decoded(work, record, _COMMANDS)
            if isinstance(command, _COMMANDS):
                fold_command(work, record, command)
                work.flush()
        for record in inputs.jobs:
            if record.value is None:
                fold_tombstone(work, record)
                work.flush()
                continue
            definition = self._decoded(work, record, _DEFINITION)
            if isinstance(definition, JobDefinition):
                fold_definition(work, record, definition)
                work.flush()
        work.jobs_offset = inputs.jobs_offset
        if self.parked:
            release_parked(work)
        for key in work.failing:
            row = work.job(key)
            if row is not None and not row.deleted_ms:
                pause_after_failures(work, key, row)
                work.flush()

    def _decoded(self, work: Work, record: Record, wanted: tuple[type, ...]) -> object:
        """The typed record, or None after what cannot be used was put into quarantine. Nothing stops the partition."""
        try:
            value = codec.decode(record.value or b"")
        except codec.CodecError as error:
            self._quarantine(work, record, str(error))
            return None
        if not isinstance(value, wanted) or not isinstance(value, _KEYED):
            self._quarantine(work, record, f"a {type(value).__name__} does not belong on {record.topic}")
            return None
        key = _key_of(value)
        if record.key != key:
            self._quarantine(work, record, f"its key {record.key!r} is not the job's, {key!r}")
            return None
        beyond = beyond_bounds(value, key, len(record.value or b""))
        if beyond:
            self._quarantine(work, record, beyond)
            return None
        if partition_for(key, work.config.cluster.partitions) != self.partition:
            self._quarantine(
                work, record, "its key belongs to another partition: the writer does not partition by murmur2"
            )
            return None
        return value

    def _quarantine(self, work: Work, record: Record, reason: str) -> None:
        work.emit_quarantined(
            Quarantined(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                reason=reason,
                key=record.key,
                value=record.value,
            )
        )

    # --- timers

    def _advance(self, work: Work) -> tuple[int, bool]:
        """Fire what is due, within the bounds of a pass. Returns how many fired, and whether more are due."""
        work.deciding = True
        left = self.timers_per_pass_max
        bytes_max = self.effects.size + BYTES_PER_PASS_MAX
        handled = 0
        lanes = ((EXACT, work.now_ms), (AHEAD, work.now_ms + work.config.cluster.horizon_ms))
        while True:
            fired = 0
            for lane, bound_ms in lanes:
                for timer in self.view.due(lane, bound_ms, self.timers_per_pass_max):
                    if self._fire(work, timer):
                        fired += 1
                    work.flush()
                    if fired >= left or self.effects.size >= bytes_max or work.looks >= LOOKS_PER_PASS_MAX:
                        self.effects.counts.timers += handled + fired
                        return handled + fired, True
            handled += fired
            left -= fired
            if not fired:
                self.effects.counts.timers += handled
                return handled, False

    def _fire(self, work: Work, timer: Timer) -> bool:
        """Handle one timer. False: it has to wait for something else, and stays as it is."""
        key = timer.job_key
        match timer.kind:
            case Kind.PENDING:
                return self._fire_pending(work, timer)
            case Kind.DEAD:
                work.view.delete_dead(key, timer.seq)
                return True
            case Kind.OCCURRENCE | Kind.RESUME | Kind.DELETE:
                row = work.job(key)
                assert row is not None, f"{key}: a timer without a job"
                return self._fire_job(work, timer, key, row)
            case Kind.DECIDE | Kind.RETRY | Kind.LEASE | Kind.START_DEADLINE:
                row = work.job(key)
                run = work.run(key, timer.seq)
                assert row is not None, f"{key}: a timer without a job"
                assert run is not None, f"{key}: a timer without a run"
                return self._fire_run(work, timer, key, row, run)
            case _:
                assert_never(timer.kind)

    def _fire_job(self, work: Work, timer: Timer, key: JobKey, row: JobRow) -> bool:
        match timer.kind:
            case Kind.OCCURRENCE if timer.range == AHEAD:
                decide_ahead(work, key, row)
            case Kind.OCCURRENCE:
                return decide(work, key, row, work.now_ms)
            case Kind.RESUME:
                end_pause(work, key, row, timer.due_ms)
            case _:
                delete_when_due(work, key, row)
        return True

    def _fire_run(self, work: Work, timer: Timer, key: JobKey, row: JobRow, run: RunRow) -> bool:
        unread = timer.due_ms > work.reports_through_ms and work.rules.p9_reports_first
        match timer.kind:
            case Kind.RETRY:
                _fire_retry(work, key, row, run)
                return True
            case Kind.DECIDE:
                before = (run.status, run.dispatch)
                decide_again(work, key, row, run, in_turn=True)
                return (run.status, run.dispatch) != before or run.seq not in row.open
            case _ if unread:
                return False
            case Kind.LEASE:
                _lose(work, key, row, run, timer.due_ms)
                return True
            case _:
                if not work.rules.p13_start_deadline:
                    return False
                close_not_started(work, key, row, run)
                return True

    def _fire_pending(self, work: Work, timer: Timer) -> bool:
        kind, key, name = timer.pending
        if kind == "trigger":
            forget_trigger(work, key, name)
        else:
            unpark(work, key, int(name))
        return True


_REPORT: Final = (RunReport,)
_COMMANDS: Final = (Trigger, CancelRun, Pause, Resume, SkipNext, Backfill, Redrive)
_DEFINITION: Final = (JobDefinition,)


_KEYED: Final = (*_REPORT, *_COMMANDS, *_DEFINITION)


def _key_of(value: RunReport | Command | JobDefinition) -> bytes:
    name = value.job_id if isinstance(value, RunReport) else value.id
    return f"{value.namespace}/{name}".encode()


def _fire_retry(work: Work, key: JobKey, row: JobRow, run: RunRow) -> None:
    """The next attempt comes within the horizon: dispatch it, unless an earlier occurrence is to be decided (P11)."""
    definition = work.definition(key, run.revision)
    assert definition is not None, f"{run.run_id}: its revision {run.revision} is gone"
    # The occurrence is decided by what is in force, not by the revision that this run belongs to.
    overlaps = not row.deleted_ms and work.current(key, row).job.overlap.mode == "allow"
    if not overlaps and work.rules.p11_retry_after_occurrence:
        earlier = row.armed not in ("none", "continue") and row.armed_due_ms <= run.attempt_due_ms
        if earlier or any(
            (other.status == "undecided" or other.contested) and other.due_ms <= run.attempt_due_ms
            for other in work.open_runs(key, row)
        ):
            run.parked = True
            return
    dispatch(work, row, run, definition, due_ms=run.attempt_due_ms, retry=True)


def _lose(work: Work, key: JobKey, row: JobRow, run: RunRow, at_ms: int) -> None:
    """The lease expired: nobody knows what became of the attempt."""
    end_attempt(run, "lost", ended_ms=at_ms, error="nothing was heard of the attempt within its lease")
    settle(work, run)
    fail(work, key, row, run, at_ms=at_ms, retryable=True, reason="lost")
    after_run_ended(work, key, row)
