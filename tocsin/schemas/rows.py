"""The rows of a partition's state, as they stand in its store and on the `state` topic: one layout byte, then Avro.

Rows are changed in place by the core between two ticks' reads, through `copy()`; nothing outside tocsin.streams writes them.
"""

from dataclasses import dataclass, field, fields
from typing import Literal, Self

from tocsin.schemas.job import Job
from tocsin.schemas.records import Attempt, Cause, RunStatus, Withdrawal

Armed = Literal[
    "none",  # nothing ahead: manual, finished, deleted, broken, or waiting for a completion
    "ahead",  # a timer in the range that is scanned to now + horizon
    "exact",  # cannot be decided ahead: a timer at the due instant
    "blocked",  # due has passed, and the decision waits for a worker's acknowledgement: no timer
    "continue",  # an advance stopped at its bound: armed_nominal_ms is where to go on
]


class _Copies:
    __slots__ = ()

    def copy(self) -> Self:
        """A shallow copy; list fields are copied, too."""
        made = object.__new__(type(self))
        for name in _NAMES[type(self)]:
            value = getattr(self, name)
            setattr(made, name, value.copy() if value.__class__ is list else value)
        return made


@dataclass(slots=True, kw_only=True)
class JobRow(_Copies):
    """The runtime of one job. Key: the job key. Outlives the definition, so that counters never restart."""

    revision: int = 0
    digest: bytes = b""
    """Of the definition in force (without `paused`)."""
    created_ms: int = 0
    """Log timestamp of the first definition after creation or re-creation: the default anchor of `every`."""
    schedule_since_ms: int = 0
    """Log timestamp of the revision that last changed the schedule: what `delay` counts from."""
    definition_offset: int = -1
    deleted_ms: int = 0
    paused: bool = False
    paused_until_ms: int = 0
    paused_by: str = ""
    paused_reason: str = ""
    broken: str = ""
    skip_next: int = 0
    armed: Armed = "none"
    armed_nominal_ms: int = 0
    armed_due_ms: int = 0
    decided_ms: int = -1
    """Every nominal <= this is decided: the emission guard, with decided_ahead."""
    decided_ahead: list[int] = field(default_factory=list)
    """Decided nominals that lay ahead of the tick before last."""
    highest_ms: int = -1
    """The highest nominal that ever got a disposition."""
    runs_made: int = 0
    """Occurrences of the current definition that became runs, for max_runs."""
    seq: int = 0
    event_seq: int = 0
    history_no: int = 0
    failure_no: int = 0
    open: list[int] = field(default_factory=list)
    """The seq of every open run, ascending."""
    consecutive_failures: int = 0
    last_run_id: str = ""
    last_status: str = ""
    last_ended_ms: int = 0
    last_lateness_ms: int = 0
    last_failure_ms: int = 0
    last_error: str = ""
    skip_reason: str = ""
    """The series of skips that the newest history slot holds, if it is one."""
    skip_run_id: str = ""
    skip_from_ms: int = 0
    skip_to_ms: int = 0
    skip_count: int = 0
    finished_ms: int = 0
    """When a schedule that ends had nothing left to do; 0: it has."""
    delete_at_ms: int = 0
    """When the job deletes itself, or its row and tombstone go; 0: never."""
    last_dispatch: int = 0
    """The last dispatch of last_run_id."""


@dataclass(slots=True, kw_only=True)
class DefinitionRow(_Copies):
    """One revision of a job, kept while it is in force or an open run refers to it. Key: job key, 0, revision."""

    revision: int
    effective_ms: int
    offset: int
    timestamp_ms: int
    actor: str
    source: str
    job: Job


@dataclass(slots=True, kw_only=True)
class RunRow(_Copies):
    """One open run. Key: job key, 0, seq."""

    run_id: str
    job_key: str
    seq: int
    revision: int
    cause: Cause
    nominal_ms: int
    due_ms: int
    """Of the first attempt."""
    status: RunStatus
    reason: str = ""
    opened_ms: int = 0
    attempt: int = 0
    attempt_due_ms: int = 0
    dispatch: int = 0
    """Of the newest due record; never restarts."""
    outstanding: bool = False
    """Whether dispatch's due record is on the log and not settled."""
    queue: str = ""
    due_partition: int = -1
    withdrawal: Withdrawal = "none"
    cancel_requested: bool = False
    cancel_reason: str = ""
    contested: bool = False
    """Withdrawn by an edit, a pause or a deletion: the watermark must not pass it."""
    settled_upto: int = 0
    withdrawn_upto: int = 0
    withdrawn_how: Withdrawal = "none"
    """Of withdrawn_upto; it stays when the withdrawal has been answered."""
    claimed_execution: str = ""
    claimed_epoch: int = 0
    lease_until_ms: int = 0
    start_deadline_ms: int = 0
    age_from_ms: int = 0
    """What retry.max_age counts from: the first due, or the redrive."""
    attempts_before: int = 0
    """Attempts made before the last redrive: max_attempts counts from here."""
    parked: bool = False
    """A retry that waits for the job's next occurrence to be decided."""
    held: str = ""
    """The verdict that was in force at its due, if the job changed since: "run" (of held_revision), or a reason to skip."""
    held_revision: int = 0
    body: bytes | None = None
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PendingRow(_Copies):
    """A trigger id that was used (kind trigger), or a command that waits for a definition (kind parked)."""

    kind: Literal["trigger", "parked"]
    until_ms: int
    """When the row goes."""
    refuse_until_ms: int = 0
    """trigger: until then the same id is a repetition; afterwards only `dispatch` is remembered."""
    dispatch: int = 0
    """trigger: the run's last dispatch, if control records of it may live: a new run of this id counts on from here."""
    run_id: str = ""
    after_jobs_offset: int = -1
    offset: int = -1
    timestamp_ms: int = 0
    command: bytes = b""


@dataclass(slots=True, kw_only=True)
class DeadRow(_Copies):
    """A dead letter. Key: job key, 0, seq."""

    run: RunRow
    died_ms: int
    until_ms: int


_NAMES: dict[type[object], tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls)) for cls in (JobRow, DefinitionRow, RunRow, PendingRow, DeadRow)
}
