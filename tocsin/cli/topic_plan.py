"""What a rate of runs writes to each topic, and the disk that takes: reckoned from records that the codec encodes.

How many records a run makes, and how often a process commits, was counted on a real broker
(docs/decisions/014-local-broker.md says how); what they weigh is asked of the codec each time.
"""

from dataclasses import dataclass, replace
from typing import Final

from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.records import Attempt, DueRun, JobDefinition, Journal, RunEvent, RunReport
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow
from tocsin.schemas.topics import DAY_MS, HOUR_MS, TopicNames, TopicSpec, base_topics, queue_topics

COMMITS_PER_S: Final = 4.0
"""A process commits every 250 ms, unless something is urgent: look-ahead makes most runs unurgent."""
IDLE_ROWS_PER_S: Final = 0.2
"""Journal rows of a partition to which nothing happens."""
RECORD_BYTES: Final = 12
"""What Kafka adds to a record within a batch: lengths, and offset and time as differences."""
BATCH_BYTES: Final = 61
MARKER_BYTES: Final = 78
"""The end of a transaction, on each partition that it wrote to."""
SEGMENT_BYTES: Final = 1 << 30
SMALL_SEGMENT_BYTES: Final = 64 << 20
UNCLEANED_HOURS: Final = 2
"""The state topic is cleaned at least once in an hour, and the segment that is being written is not."""
DIRTY: Final = 1.25
"""A compacted topic is cleaned when a fifth of it is dirty."""

_KEY: Final = "billing/send-invoices-000123"
_RUN: Final = f"{_KEY}@20260308T070000.000Z"
_NOW: Final = 1_772_953_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    topic: str
    records_per_s: float
    bytes_per_s: float
    kept: str
    disk_bytes: float
    """Of one copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topics: tuple[TopicPlan, ...]
    basis: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """What is written to one topic: records a second, and bytes a second without and with what surrounds them."""

    records_per_s: float
    bytes_per_s: float


def plan_topics(*, rate: float, jobs: int, target_bytes: int, partitions: int) -> Plan:
    """At `rate` runs a second of http jobs, each run succeeding at its first attempt within a second."""
    sizes = record_sizes(target_bytes)
    commits = min(COMMITS_PER_S, 2 * rate)
    # In each commit a partition has a tick that sends runs, and one that folds reports, if it has any of either.
    busy = min(2 * rate, partitions * COMMITS_PER_S)
    journal_rows = max(busy, partitions * IDLE_ROWS_PER_S)
    of_processes = _Flows(partitions=partitions, commits=commits, transactional=True)
    of_others = _Flows(partitions=partitions, commits=rate, transactional=False)
    journal = of_processes.flow((journal_rows, sizes["journal"]))
    due = of_processes.flow((rate, sizes["due"]))
    runs = of_processes.flow((rate, sizes["scheduled"]), (rate, sizes["succeeded"]))
    state = of_processes.flow(
        (rate, sizes["job row"]),
        (rate, sizes["run row"]),
        (rate, sizes["tombstone"]),
        (journal_rows, sizes["journal"]),
    )
    outcomes = of_others.flow((rate, sizes["report"]))
    nothing = _Flow(records_per_s=0, bytes_per_s=0)
    definitions = jobs * (sizes["definition"] + RECORD_BYTES)
    names = TopicNames()
    plans = []
    for spec in (*base_topics(names, partitions), *queue_topics(names, "default", partitions)):
        if spec.name == names.jobs:
            plans.append(_plan(spec, nothing, held=definitions))
        elif spec.name == names.state:
            rows = jobs * (sizes["job row"] + sizes["definition row"] + 2 * RECORD_BYTES)
            plans.append(_plan(spec, state, held=rows * DIRTY))
        elif spec.name == names.runs:
            # For a week each run's two events, then the last of them.
            last = rate * (sizes["succeeded"] + RECORD_BYTES)
            plans.append(_plan(spec, runs, later=last))
        else:
            flows = {names.outcomes: outcomes, names.journal: journal, names.due("default"): due}
            plans.append(_plan(spec, flows.get(spec.name, nothing)))
    return Plan(
        topics=tuple(plans), basis=_basis(rate=rate, jobs=jobs, target_bytes=target_bytes, sizes=sizes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flows:
    partitions: int
    commits: float
    transactional: bool

    def flow(self, *parts: tuple[float, int]) -> _Flow:
        """(records a second, bytes of one) of each kind; a batch holds what one partition gets in one commit."""
        records = sum(count for count, _ in parts)
        batches = min(records, self.partitions * self.commits)
        around = BATCH_BYTES + (MARKER_BYTES if self.transactional else 0)
        content = sum(count * (size + RECORD_BYTES) for count, size in parts)
        return _Flow(records_per_s=records, bytes_per_s=content + batches * around)


def _plan(spec: TopicSpec, flow: _Flow, *, held: float = 0, later: float | None = None) -> TopicPlan:
    """`held`: what compaction leaves for ever; `later`: what it leaves of each second after the least lag."""
    seconds = (spec.retention_ms or 0) / 1000
    lag_s = spec.min_compaction_lag_ms / 1000
    if spec.cleanup == "compact":
        disk = held + flow.bytes_per_s * UNCLEANED_HOURS * HOUR_MS / 1000
        kept = "the newest of each key"
    elif later is not None:
        disk = flow.bytes_per_s * lag_s + later * (seconds - lag_s)
        kept = f"{seconds / 86_400:.0f} d, the newest of each key"
    else:
        disk = flow.bytes_per_s * seconds
        kept = f"{seconds / 86_400:.0f} d"
    return TopicPlan(
        topic=spec.name,
        records_per_s=flow.records_per_s,
        bytes_per_s=flow.bytes_per_s,
        kept=kept,
        disk_bytes=disk + _open_segments(spec, flow),
    )


def _open_segments(spec: TopicSpec, flow: _Flow) -> float:
    """Retention takes whole segments, so each partition holds up to one more: what fills it, or what comes until it is
    closed for its age."""
    small = spec.cleanup == "compact" or spec.retention_ms == 8 * DAY_MS
    size = SMALL_SEGMENT_BYTES if small else SEGMENT_BYTES
    age_s = (spec.segment_ms or 7 * DAY_MS) / 1000
    return min(spec.partitions * size, flow.bytes_per_s * age_s)


def record_sizes(target_bytes: int) -> dict[str, int]:
    """Bytes of key and value of each kind of record, of a job whose URL, headers and body have `target_bytes`."""
    namespace, _, job_id = _KEY.partition("/")
    url = "https://api.example.com/"[:target_bytes]
    target = HttpTarget(url=url, body=b"x" * (target_bytes - len(url)), body_kind="text")
    job = Job(
        namespace=namespace,
        id=job_id,
        schedule=Schedule(cron=("0 9 * * MON-FRI",), timezone="Europe/Berlin"),
        http=target,
    )
    attempt = Attempt(
        attempt=1, dispatch=1, due_ms=_NOW, dispatched_ms=_NOW, started_ms=_NOW, ended_ms=_NOW, lateness_ms=12,
        outcome="succeeded", http_status=200, response="ok", worker="worker-1",
    )  # fmt: skip
    due = DueRun(
        run_id=_RUN, namespace=namespace, job_id=job_id, seq=_NOW, floor=_NOW, dispatch=1, attempt=1, revision=3,
        cause="schedule", nominal_ms=_NOW, due_ms=_NOW, start_deadline_ms=_NOW, emitted_ms=_NOW, lease_ms=60_000,
        http=target,
    )  # fmt: skip
    report = RunReport(
        kind="succeeded", run_id=_RUN, namespace=namespace, job_id=job_id, seq=_NOW, dispatch=1, attempt=1,
        execution="0" * 32, epoch=3, worker="worker-1", started_ms=_NOW, ended_ms=_NOW, lateness_ms=12,
        http_status=200, response="ok",
    )  # fmt: skip
    scheduled = RunEvent(
        run_id=_RUN, namespace=namespace, job_id=job_id, seq=_NOW, revision=3, cause="schedule", nominal_ms=_NOW,
        due_ms=_NOW, status="scheduled", event_ms=_NOW, dispatch=1, attempts=(attempt,),
    )  # fmt: skip
    succeeded = replace(scheduled, status="succeeded", history_no=9)
    journal = Journal(
        tick=_NOW, now_ms=_NOW, transactional_id="tocsin.streams." + "0" * 32, outcomes_offset=1 << 30,
        commands_offset=1 << 30, jobs_offset=1 << 30, reports_through_ms=_NOW, config_offset=9, watermark_ms=_NOW,
        tzdata="2026.1", digest=1 << 62, effects=4,
    )  # fmt: skip
    job_row = JobRow(
        revision=3, digest=b"x" * 32, created_ms=_NOW, schedule_since_ms=_NOW, definition_offset=1 << 30, armed="ahead",
        armed_nominal_ms=_NOW, armed_due_ms=_NOW, decided_ms=_NOW, highest_ms=_NOW, runs_made=1_000, seq=_NOW,
        event_seq=_NOW, last_run_id=_RUN, last_status="succeeded", last_ended_ms=_NOW, last_lateness_ms=12,
    )  # fmt: skip
    run_row = RunRow(
        run_id=_RUN, job_key=_KEY, seq=_NOW, revision=3, cause="schedule", nominal_ms=_NOW, due_ms=_NOW,
        status="scheduled", opened_ms=_NOW, attempt=1, attempt_due_ms=_NOW, dispatch=1, outstanding=True,
        queue="default", due_partition=3, start_deadline_ms=_NOW, age_from_ms=_NOW, attempts=[attempt],
    )  # fmt: skip
    definition_row = DefinitionRow(
        revision=3, effective_ms=_NOW, offset=1 << 30, timestamp_ms=_NOW, actor="anna", source="", job=job
    )
    definition = JobDefinition(namespace=namespace, id=job_id, job=job, actor="anna")
    key, numbered = len(_KEY), len(_KEY) + 10
    return {
        "definition": key + len(codec.encode(definition)),
        "due": key + len(codec.encode(due)),
        "report": key + len(codec.encode(report)),
        "scheduled": len(_RUN) + len(codec.encode(scheduled)),
        "succeeded": len(_RUN) + len(codec.encode(succeeded)),
        "journal": 1 + len(codec.encode(journal)),
        "job row": key + 1 + len(codec.encode_row(job_row)),
        "run row": numbered + len(codec.encode_row(run_row)),
        "definition row": numbered + len(codec.encode_row(definition_row)),
        "tombstone": numbered,
    }


def _basis(*, rate: float, jobs: int, target_bytes: int, sizes: dict[str, int]) -> tuple[str, ...]:
    load = (
        f"{rate:g} runs a second of {jobs:,} http jobs whose URL, headers and body have {target_bytes} bytes"
    )
    events = f"{sizes['scheduled']} and {sizes['succeeded']} for a run's two events"
    rows = f"{sizes['job row']} and {sizes['run row']} for its rows"
    return (
        f"Basis: {load}; each run succeeds at its first attempt, within a second.",
        f"The codec makes of it {sizes['due']} bytes for a due run, {sizes['report']} for a report, {events}, {rows}.",
        "Not counted: compression (where jobs resemble each other, a fifth is left), so these are upper bounds;",
        "retries (each as one more run); runs of over a second (a report, an event and a row more, then a report every 20 s).",
        "Disk is that of full retention, with an open segment for each partition. Leave a quarter of it free beyond.",
    )
