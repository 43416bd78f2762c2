"""One tick's unit of work: what the decisions of a tick read and change.

Rows are copied on first use and put back by flush(), once per record or timer handled, so that all functions that
work on one job in between share one copy of its rows. Effects are collected in order. Nothing here does I/O.
"""

from dataclasses import dataclass, field, replace

from tocsin.log.partitioner import partition_for
from tocsin.schemas import codec
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import (
    Attempt,
    Control,
    DeadLetter,
    DueRun,
    JobDefinition,
    JobEvent,
    JobEventKind,
    Lane,
    Quarantined,
    RunEvent,
)
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow
from tocsin.schemas.topics import TopicNames
from tocsin.streams.config import Configuration
from tocsin.streams.effects import Effects
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import View

URGENT_WITHIN_MS = 1_000
"""A due record for an instant closer than this goes through the lane that is read first, and is committed soon."""
QUARANTINED_KEY_BYTES_MAX = 64 * 1024
QUARANTINED_VALUE_BYTES_MAX = 512 * 1024
QUARANTINED_REASON_MAX = 2_000
"""A record as large as the log takes would not fit into one that says why it was refused; its own topic still has it."""


@dataclass(slots=True)
class Undecided:
    """Occurrences that the watermark must not pass: (job, seq of the run or 0) -> due. A cache of what the rows say."""

    dues: dict[tuple[JobKey, int], int] = field(default_factory=dict)

    def note(self, at: tuple[JobKey, int], due_ms: int | None) -> None:
        if due_ms is not None:
            self.dues[at] = due_ms
        elif self.dues:
            self.dues.pop(at, None)


@dataclass(slots=True, kw_only=True)
class Work:
    """See the module. `previous_ms`: now_ms of the partition's tick before this one."""

    partition: int
    names: TopicNames
    view: View
    config: Configuration
    rules: StreamRules
    now_ms: int
    previous_ms: int
    reports_through_ms: int
    jobs_offset: int
    """The next offset of `jobs` that is not applied: what after_jobs_offset is held against."""
    effects: Effects
    undecided: Undecided
    parked: dict[tuple[JobKey, int], int]
    """Parked commands: (job, offset of the command) -> the offset of `jobs` that it waits for. A cache of the rows."""
    effective: dict[JobKey, int] = field(default_factory=dict)
    """From when the newest change of this tick counts, for each job that was changed."""
    deciding: bool = False
    """Whether all inputs of the tick are applied."""
    looks: int = 0
    """How many open runs were looked at, which is what a timer of a job with many of them costs."""
    failing: dict[JobKey, None] = field(default_factory=dict)
    """Jobs with runs that ended while inputs were applied: whether they are to be paused is looked at afterwards."""
    _jobs: dict[JobKey, JobRow] = field(default_factory=dict)
    _runs: dict[tuple[JobKey, int], RunRow | None] = field(default_factory=dict)

    # --- rows

    def job(self, key: JobKey) -> JobRow | None:
        """The job's row, to be changed in place; None if there never was such a job, or it is long gone."""
        row = self._jobs.get(key)
        if row is None:
            stored = self.view.job(key)
            if stored is None:
                return None
            row = self._jobs[key] = stored.copy()
        return row

    def new_job(self, key: JobKey) -> JobRow:
        row = self._jobs[key] = JobRow()
        return row

    def forget_job(self, key: JobKey) -> None:
        """Remove the row; the counters of a later job of this key start again."""
        self._jobs.pop(key, None)
        self.view.delete_job(key)

    def definition(self, key: JobKey, revision: int) -> DefinitionRow | None:
        return self.view.definition(key, revision)

    def current(self, key: JobKey, row: JobRow) -> DefinitionRow:
        """The definition in force; the job must have one."""
        definition = self.view.definition(key, row.revision)
        assert definition is not None, f"{key}: revision {row.revision} is in force and not stored"
        return definition

    def run(self, key: JobKey, seq: int) -> RunRow | None:
        """An open run, to be changed in place."""
        at = (key, seq)
        if at in self._runs:
            return self._runs[at]
        stored = self.view.run(key, seq)
        run = self._runs[at] = None if stored is None else stored.copy()
        return run

    def look(self, key: JobKey, seq: int) -> RunRow | None:
        """An open run as it stands, not to be changed: of a thousand open runs hardly one has to be, and copies cost."""
        self.looks += 1
        at = (key, seq)
        return self._runs[at] if at in self._runs else self.view.run(key, seq)

    def looked_at(self, key: JobKey, row: JobRow) -> list[RunRow]:
        """All open runs of a job, oldest first, not to be changed."""
        return [run for seq in row.open if (run := self.look(key, seq)) is not None]

    def open_runs(self, key: JobKey, row: JobRow) -> list[RunRow]:
        """All open runs of a job, oldest first, to be changed in place."""
        runs = []
        for seq in row.open:
            run = self.run(key, seq)
            assert run is not None, f"{key}: run {seq} is listed as open and not stored"
            runs.append(run)
        return runs

    def add_run(self, key: JobKey, row: JobRow, run: RunRow) -> None:
        assert not row.open or row.open[-1] < run.seq
        row.open.append(run.seq)
        self._runs[(key, run.seq)] = run

    def renumber_run(self, key: JobKey, row: JobRow, run: RunRow) -> None:
        """Give an open run the number of a new one. Reports that name the old number are stale."""
        self.drop_run(key, row, run)
        row.seq = run.seq = max(row.seq + 1, self.now_ms)
        self.add_run(key, row, run)

    def drop_run(self, key: JobKey, row: JobRow, run: RunRow) -> None:
        row.open.remove(run.seq)
        self._runs[(key, run.seq)] = None

    def flush(self) -> None:
        """Put back every row that was handed out, and forget the copies."""
        note = self.undecided.note
        for (key, seq), run in self._runs.items():
            if run is None:
                self.view.delete_run(key, seq)
                note((key, seq), None)
            else:
                self.view.put_run(run)
                note((key, seq), run.due_ms if run.contested else None)
        for key, row in self._jobs.items():
            self.view.put_job(key, row)
            note((key, 0), row.armed_due_ms if row.armed == "blocked" else None)
        self._runs.clear()
        self._jobs.clear()

    # --- effects

    def emit_due(self, queue: str, due: DueRun) -> int:
        """Write a due record; returns its partition."""
        partition = partition_for(
            (due.concurrency_key or f"{due.namespace}/{due.job_id}").encode(),
            self.config.queues[queue].partitions,
        )
        soon = due.due_ms - self.now_ms <= URGENT_WITHIN_MS
        lane: Lane = "due-now" if soon or due.priority == "high" else "due"
        topic = self.names.due_now(queue) if lane == "due-now" else self.names.due(queue)
        key = (due.concurrency_key or f"{due.namespace}/{due.job_id}").encode()
        self.effects.emit(topic, partition, key, codec.encode(due))
        self.effects.urgent |= soon
        self.effects.counts.dispatched += 1
        return partition

    def emit_control(self, run: RunRow) -> None:
        """Write what holds of the run's dispatches, where its due record lies."""
        assert run.due_partition >= 0, f"{run.run_id}: no due record was ever written"
        record = Control(
            run_id=run.run_id,
            withdrawn_upto=run.withdrawn_upto,
            withdrawn_how=run.withdrawn_how,
            settled_upto=run.settled_upto,
            claimed_dispatch=run.dispatch if run.claimed_execution else 0,
            claimed_execution=run.claimed_execution,
            claimed_epoch=run.claimed_epoch,
        )
        self.emit_control_of(run.queue, run.due_partition, record)

    def emit_control_of(self, queue: str, partition: int, record: Control) -> None:
        self.effects.emit(self.names.control(queue), partition, record.run_id.encode(), codec.encode(record))
        self.effects.urgent = True

    def emit_run(self, event: RunEvent) -> bytes:
        """Append the run as it stands; returns the record's bytes, for the history."""
        encoded = codec.encode(event)
        self.effects.emit(self.names.runs, self.partition, event.run_id.encode(), encoded)
        self.effects.run_events.append(event)
        return encoded

    def emit_job_event(
        self,
        key: JobKey,
        row: JobRow | None,
        kind: JobEventKind,
        *,
        effective_ms: int,
        actor: str = "",
        reason: str = "",
        source: tuple[str, int] = ("", -1),
        errors: tuple[str, ...] = (),
    ) -> None:
        """Record that something happened to the job. A job that has no row numbers its events by the tick."""
        number = self.now_ms
        if row is not None:
            row.event_seq += 1
            number = row.event_seq
        namespace, _, job_id = key.partition("/")
        event = JobEvent(
            namespace=namespace,
            job_id=job_id,
            event_seq=number,
            kind=kind,
            revision=0 if row is None else row.revision,
            effective_ms=effective_ms,
            actor=actor,
            reason=reason,
            source_topic=source[0],
            source_offset=source[1],
            errors=errors,
        )
        self.effects.emit(self.names.runs, self.partition, f"{key}#{number}".encode(), codec.encode(event))

    def emit_dead_letter(self, letter: DeadLetter) -> None:
        self.effects.emit(
            self.names.dead_letters, self.partition, letter.run.run_id.encode(), codec.encode(letter)
        )

    def emit_definition(self, key: JobKey, definition: JobDefinition | None, if_offset: int) -> None:
        """Write a deletion, a tombstone (None) or the definition in force again to `jobs`."""
        value = None if definition is None else codec.encode(definition)
        headers = () if if_offset < 0 else (("if-offset", b"%d" % if_offset),)
        self.effects.emit(self.names.jobs, self.partition, key.encode(), value, headers)

    def emit_quarantined(self, record: Quarantined) -> None:
        """Write what cannot be used with where it stands and why; of what is large, the beginning."""
        key, value = record.key, record.value
        kept = replace(
            record,
            key=None if key is None else key[:QUARANTINED_KEY_BYTES_MAX],
            value=None if value is None else value[:QUARANTINED_VALUE_BYTES_MAX],
            reason=record.reason[:QUARANTINED_REASON_MAX],
        )
        self.effects.emit(self.names.quarantine, self.partition, kept.key, codec.encode(kept))
        self.effects.counts.quarantined += 1


def last_attempt(run: RunRow) -> Attempt:
    """The attempt that the run's newest dispatch belongs to."""
    return run.attempts[-1]
