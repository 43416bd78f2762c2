"""The records on the log, as typed values; one .avsc beside this file for each (tests hold the two together).

Integers named `..._ms` are instants (epoch, UTC) or durations in milliseconds; 0 means "not set" where the text says so.
Job keys are `namespace/id`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from tocsin.schemas.job import FunctionTarget, HttpTarget, Job, Priority

Cause = Literal["schedule", "trigger", "backfill", "redrive", "after", "callback", "catchup"]
RunStatus = Literal[
    "scheduled",  # a due record is on the log (or about to be), not known to have begun
    "running",  # a worker has claimed it
    "retrying",  # an attempt failed; the next one is not dispatched yet
    "buffered",  # waits for the job's open runs to end
    "waiting",  # waits for the run that it replaces to end
    "undecided",  # withdrawn and dropped, or held back: decided again when its time comes
    "succeeded",
    "failed",
    "cancelled",
    "superseded",
    "skipped",
]
Lane = Literal["due", "due-now"]
Withdrawal = Literal["none", "withdraw", "cancel"]
ReportKind = Literal["started", "heartbeat", "succeeded", "failed", "cancelled", "dropped", "expired"]
AttemptOutcome = Literal[
    "pending", "running", "succeeded", "failed", "cancelled", "dropped", "expired", "lost"
]
JobEventKind = Literal[
    "revision_applied",
    "rejected",
    "paused",
    "resumed",
    "auto_paused",
    "skip_next",
    "deleted",
    "broken",
    "tzdata_changed",
    "finished",
    "command_rejected",
]


# --- config ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What all processes must agree on (key `cluster/main`)."""

    partitions: int
    schema_level: int
    tzdata: str
    horizon_ms: int = 10_000
    history_size: int = 20
    secret: str = ""
    """What the processes of the cluster show each other with a query; made at the first start. Whoever can read this
    topic can read every payload, too, so that it adds nothing to what they may do."""
    id: str = ""
    """Which log this is, made at the first start: state that was made from another one is not mixed with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue of workers (key `queue/<name>`). It holds one kind of target."""

    name: str
    kind: Literal["http", "function", "topic"]
    partitions: int
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Pause of everything (`switch/all`), a namespace (`switch/namespace/<ns>`) or a queue (`switch/queue/<q>`)."""

    scope: str
    paused: bool
    actor: str
    reason: str


# --- jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """A definition (job set) or a deletion (deleted, job None) of `namespace/id`, and who asked for it."""

    namespace: str
    id: str
    deleted: bool = False
    job: Job | None = None
    actor: str = ""
    reason: str = ""
    source: str = ""


# --- commands (each keyed by the job key) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    namespace: str
    id: str
    trigger_id: str
    body: bytes | None = None
    """Replaces the target's body (http) or arguments (function)."""
    nominal_ms: int = 0
    after_jobs_offset: int = -1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    """Cancel one run, or with an empty run_id all open runs of the job."""

    namespace: str
    id: str
    run_id: str = ""
    after_jobs_offset: int = -1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    namespace: str
    id: str
    until_ms: int = 0
    after_jobs_offset: int = -1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    namespace: str
    id: str
    after_jobs_offset: int = -1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipNext:
    """The next `count` occurrences are skipped (count 0 takes an earlier request back)."""

    namespace: str
    id: str
    count: int
    after_jobs_offset: int = -1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Not available yet."""

    namespace: str
    id: str
    backfill_id: str
    from_ms: int
    to_ms: int
    parallelism: int = 1
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Run a dead letter again: the same run id, attempts go on counting. `seq`: of the dead letter's run."""

    namespace: str
    id: str
    run_id: str
    seq: int
    actor: str = ""
    reason: str = ""


Command = Trigger | CancelRun | Pause | Resume | SkipNext | Backfill | Redrive


CALLBACK_EPOCH: Final = -1
"""Of reports by the endpoint of a long run: it holds the dispatch, whichever execution handed it over."""


# --- due, control, outcomes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """One dispatch: everything that a worker needs to execute one attempt at its time."""

    run_id: str
    namespace: str
    job_id: str
    seq: int
    """Per job, growing; see floor."""
    floor: int
    """No due record of the job with seq < floor is alive, nor will one be."""
    dispatch: int
    attempt: int
    revision: int
    cause: Cause
    nominal_ms: int
    due_ms: int
    start_deadline_ms: int
    emitted_ms: int
    lease_ms: int
    priority: Priority = "normal"
    concurrency_key: str = ""
    http: HttpTarget | None = None
    function: FunctionTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What holds of one run's dispatches, cumulative (key: run id; on the partition of the due record it names)."""

    run_id: str
    withdrawn_upto: int = 0
    """Dispatches <= this are withdrawn (0: none)."""
    withdrawn_how: Withdrawal = "none"
    """withdraw: drop it unless it has begun. cancel: drop it, or abort it."""
    settled_upto: int = 0
    """Dispatches <= this are settled: finish them without a report."""
    claimed_dispatch: int = 0
    claimed_execution: str = ""
    """The execution whose claim of claimed_dispatch was folded."""
    claimed_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a worker says about one dispatch. started and heartbeat claim the lease; the others end the dispatch."""

    kind: ReportKind
    run_id: str
    namespace: str
    job_id: str
    seq: int
    """As in the due record: with the job key it finds the run without a search."""
    dispatch: int
    attempt: int
    execution: str = ""
    """Unique id of the start; empty if it never started (dropped, expired), or if the endpoint itself reports."""
    epoch: int = 0
    """Of the assignment of the due partition under which it was started; CALLBACK_EPOCH: the endpoint itself reports."""
    worker: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    lateness_ms: int = 0
    """started_ms - due_ms."""
    http_status: int = 0
    error: str = ""
    retryable: bool = False
    """Of kind failed: whether another attempt may help."""
    retry_after_ms: int = -1
    """The endpoint's Retry-After as a delay; -1: none given."""
    response: str = ""
    """At most 4 KiB of what the endpoint answered."""
    clock_offset_ms: int = 0
    """The worker's estimate of its wall clock minus the log's."""
    lease_ms: int = 0
    """Of started and heartbeat: how long the attempt may stay silent from now on; 0: as long as the job says."""


# --- runs, dead letters -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One planned execution of a run, as history shows it."""

    attempt: int
    dispatch: int
    due_ms: int
    dispatched_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    lateness_ms: int = 0
    outcome: AttemptOutcome = "pending"
    http_status: int = 0
    error: str = ""
    response: str = ""
    worker: str = ""
    next_attempt_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """The whole of a run as it stands (cumulative, so the newest suffices), or a series of skipped occurrences.

    status skipped: `reason` says why; nominals from nominal_ms to last_nominal_ms, `count` of them
    (count_at_least: counting stopped there).
    """

    run_id: str
    namespace: str
    job_id: str
    seq: int
    revision: int
    cause: Cause
    nominal_ms: int
    due_ms: int
    status: RunStatus
    reason: str = ""
    event_ms: int
    """The tick's now_ms."""
    history_no: int = -1
    """The slot counter of the job's history ring; -1: not in the history."""
    failure_no: int = -1
    """The same for the ring of failures."""
    dispatch: int = 0
    attempts: tuple[Attempt, ...] = ()
    """The last 20."""
    last_nominal_ms: int = 0
    count: int = 1
    count_at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something happened to a job itself (key `namespace/id#event_seq`)."""

    namespace: str
    job_id: str
    event_seq: int
    kind: JobEventKind
    revision: int
    effective_ms: int
    actor: str = ""
    reason: str = ""
    source_topic: str = ""
    source_offset: int = -1
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A run whose attempts are exhausted or that failed for good, with what would be needed to run it again."""

    run: RunEvent
    body: bytes | None = None
    """The payload override, if the run had one."""
    died_ms: int = 0


# --- journal, quarantine ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One tick of one partition: everything that a replay needs besides the inputs themselves.

    Offsets are the next to read: the tick applied [previous row's, this row's).
    """

    tick: int
    now_ms: int
    transactional_id: str
    released: bool = False
    fired: bool = True
    """False: timers were held (the clock was in doubt); only inputs were applied."""
    outcomes_offset: int = 0
    commands_offset: int = 0
    jobs_offset: int = 0
    reports_through_ms: int = 0
    config_offset: int = 0
    watermark_ms: int = 0
    tzdata: str = ""
    """The time-zone data that the armed instants were computed with."""
    digest: int = 0
    """CRC-32 over the effects of the tick, in order."""
    effects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A record that could not be decoded or belongs elsewhere, with where it came from and why."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    reason: str
    key: bytes | None = None
    value: bytes | None = field(default=None)
