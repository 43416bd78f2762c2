"""Questions about the committed state of the partitions that a process owns, for the API. Shapes only; no HTTP.

Safe to call from any thread. Nothing here sees uncommitted work: an answer is a state that the log already holds.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from tocsin.log.port import LogUnavailable
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.schemas.rows import JobRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it stands: its definition in force (None: none was ever valid, or deleted), its runtime."""

    key: JobKey
    job: Job | None
    row: JobRow
    definition_offset: int
    defined_ms: int
    actor: str


MissingReason = Literal[
    "no-owner",  # no streams process owns it at the moment: none runs, or it is being handed over
    "restoring",  # its owner brings its state up to the log
    "moving",  # its owner gave it up, or opens it again, while it was asked
    "unreachable",  # its owner does not answer
    "incompatible",  # its owner speaks another version of these questions
    "refused",  # its owner has another cluster secret
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPartition:
    """A partition that an answer says nothing about, and why."""

    partition: int
    reason: MissingReason
    detail: str = ""
    """A sentence about it, for people."""
    restore_done: int = 0
    restore_total: int = 0
    restore_eta_s: float | None = None


class PartitionsMissing(LogUnavailable):
    """What was asked about lies in partitions that cannot be asked at the moment. Ask again."""

    def __init__(self, missing: Sequence[MissingPartition]) -> None:
        assert missing
        self.missing = tuple(missing)
        super().__init__("; ".join(map(sentence, self.missing)))


def sentence(missing: MissingPartition) -> str:
    """`partition 3 is being restored: 1,200 of 50,000, about 4 s left`."""
    what = {
        "no-owner": "has no streams process at the moment",
        "restoring": "is being restored",
        "moving": "is just being opened again, or moves",
        "unreachable": "cannot be asked: its streams process does not answer",
        "incompatible": "cannot be asked: its streams process is of another release",
        "refused": "cannot be asked: its streams process has another cluster secret",
    }[missing.reason]
    progress = ""
    if missing.restore_total:
        progress = f": {missing.restore_done:,} of {missing.restore_total:,}"
        if missing.restore_eta_s is not None:
            progress += f", about {missing.restore_eta_s:.0f} s left"
    detail = f" ({missing.detail})" if missing.detail else ""
    return f"partition {missing.partition} {what}{progress}{detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items and where to go on ("": that was all). A page may be short, even empty, and still have a cursor."""

    items: Sequence[T]
    next_cursor: str = ""
    missing: Sequence[MissingPartition] = ()
    """What the page says nothing about, or not all: never silently partial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    namespace: str = ""
    id_prefix: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    """active | paused | broken | finished; "" all."""
    failing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One partition, as of its last commit."""

    partition: int
    ready: bool
    watermark_ms: int
    tick_ms: int
    jobs: int
    open_runs: int
    dead_letters: int
    overdue: int
    """Timers of occurrences and retries whose instant has passed by more than a second (bounded count)."""
    pending: Mapping[str, int]
    """Timers ahead by due bucket: "1s", "1m", "1h", "1d", "later" (a bounded scan; "later" may be cut off at 10,000)."""
    restore_done: int = 0
    restore_total: int = 0
    restore_eta_s: float | None = None
    reason: MissingReason | Literal[""] = ""
    """Why it is not ready."""
    detail: str = ""
    owner: str = ""
    """The address of the streams process that owns it; "" where there is but one process."""


def not_ready(missing: MissingPartition) -> PartitionHealth:
    """The health of a partition that could not be asked."""
    return PartitionHealth(
        partition=missing.partition,
        ready=False,
        watermark_ms=0,
        tick_ms=0,
        jobs=0,
        open_runs=0,
        dead_letters=0,
        overdue=0,
        pending={},
        restore_done=missing.restore_done,
        restore_total=missing.restore_total,
        restore_eta_s=missing.restore_eta_s,
        reason=missing.reason,
        detail=missing.detail,
    )


class Queries(Protocol):
    """A question about one key raises PartitionsMissing while its partition cannot be asked; a list says so in `missing`.

    `partitions`: only these are asked; None: all.
    """

    def get_job(self, key: JobKey) -> JobView | None:
        """A job that is defined now (deleted ones: None)."""
        ...

    def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        """Those of the keys that are defined now. Raises PartitionsMissing if one cannot be asked about."""
        ...

    def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        """In key order over all partitions. Scans for at most 50 ms, so a page may be partial (with a cursor)."""
        ...

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        """Open runs and the history ring, newest first."""
        ...

    def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        """The newest runs of all jobs, from a bounded memory of what was committed lately; newest first, one page."""
        ...

    def get_run(self, run_id: str) -> RunEvent | None: ...

    def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        """In the order of job and seq over all partitions."""
        ...

    def health(self, *, figures: bool = True) -> Sequence[PartitionHealth]:
        """Without `figures`, what has to be counted (overdue, pending) is left out: 10 ms for each partition, which is
        much for a question that is asked every second by many."""
        ...

    def broken(self) -> str:
        """Why this process fires nothing at the moment (clock held, restoring ...); "" if it does."""
        ...

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        """Done when the record at `offset` of `jobs` or `commands` was applied and the commit stands. May be cancelled."""
        ...
