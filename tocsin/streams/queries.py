"""Questions about the committed state of the partitions that a process owns, for the API. Shapes only; no HTTP.

Safe to call from any thread. Nothing here sees uncommitted work: an answer is a state that the log already holds.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items and where to go on ("": that was all). A page may be short, even empty, and still have a cursor."""

    items: Sequence[T]
    next_cursor: str = ""


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


class Queries(Protocol):
    def get_job(self, key: JobKey) -> JobView | None:
        """A job that is defined now (deleted ones: None)."""
        ...

    def list_jobs(self, where: JobFilter, *, cursor: str, limit: int) -> Page[JobView]:
        """In key order over all partitions. Scans for at most 50 ms, so a page may be partial (with a cursor)."""
        ...

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        """Open runs and the history ring, newest first."""
        ...

    def recent_runs(self, *, namespace: str, status: str, limit: int) -> Sequence[RunEvent]:
        """The newest runs of all jobs, from a bounded memory of what was committed lately; newest first."""
        ...

    def get_run(self, run_id: str) -> RunEvent | None: ...

    def dead_letters(self, *, namespace: str, cursor: str, limit: int) -> Page[DeadLetter]: ...

    def health(self) -> Sequence[PartitionHealth]: ...

    def broken(self) -> str:
        """Why this process fires nothing at the moment (clock held, restoring ...); "" if it does."""
        ...

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        """Done when the record at `offset` of `jobs` or `commands` was applied and the commit stands."""
        ...
