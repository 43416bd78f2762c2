"""What the HTTP API is given: the log to write to, the state to ask, and what the process knows about itself.

The composition root of a role fills in one ApiServices; nothing in tocsin.api looks for anything elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tocsin.api.appender import Appender
from tocsin.clock import Clock
from tocsin.schemas.records import Queue
from tocsin.schemas.topics import TopicNames, TopicSpec
from tocsin.streams.queries import Queries


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSnapshot:
    """What the `config` topic said when it was last read: partitions of the job topics, and the queues by name."""

    partitions: int
    queues: Mapping[str, Queue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """What the workers of this process that read one queue count together, as of now. Totals only ever grow."""

    queue: str
    live: int = 1
    """Workers that are joined and reading."""
    in_flight: int = 0
    """Executions that have begun and not ended."""
    held: int = 0
    """Dispatches that have not begun: they wait for their instant, or for a slot."""
    held_overdue: int = 0
    """Those of them whose instant has passed."""
    held_overdue_ms: int = 0
    """How long ago the instant of the oldest of these was."""
    started_total: int = 0
    lateness_sum_ms: int = 0
    lateness_buckets: Mapping[int, int] = field(default_factory=dict)
    """Upper bound in ms -> starts that were at most that late (cumulative)."""
    clock_offset_ms: int = 0
    """The wall clock minus the log's."""
    elsewhere: bool = False
    """They are other processes: the log says how many they are, and nothing else is known of them."""


def _no_workers() -> Iterable[WorkerSnapshot]:
    return ()


def _no_offset() -> int:
    return 0


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything the API needs. The callables are asked at each use and must be quick and safe from any thread."""

    appender: Appender
    queries: Queries
    clock: Clock
    config: Callable[[], ConfigSnapshot]
    create_topics: Callable[[Iterable[TopicSpec]], None]
    names: TopicNames = field(default_factory=TopicNames)
    queue_partitions: int = 4
    """Partitions of the topics of a queue that is created without saying how many."""
    api_key: str = ""
    """The one admin key; "" on a node that only loopback can reach."""
    secret: Callable[[], str] = _nothing
    """The cluster's, which callback URLs are signed with; "" until it is known."""
    fires: bool = True
    """Whether the processors are in this process. If not, it is ready as long as it can write: what they lack shows in
    /readyz, and is no reason to send nobody here."""
    writable: Callable[[], str] = _nothing
    """Why the log takes nothing at the moment, as far as is known; "" if nothing is in the way."""
    workers: Callable[[], Iterable[WorkerSnapshot]] = _no_workers
    clock_offset_ms: Callable[[], int] = _no_offset
    """The processors' wall clock minus the log's, by the newest delivery report."""
    acknowledged_within_s: float = 30.0
    """A write that the log has not answered by then is answered with 503: it may yet stand."""
    applied_within_s: float = 30.0
    """How long `?wait=applied` waits before it answers as if nobody had asked to wait."""
