"""The job definition as a value: what a team asks for. Written once, here; everything else is checked against it.

Durations and instants are integers in milliseconds (`..._ms`); the document's names for them have no unit
(`base: 30s` is `base_ms=30_000`). Mappings are tuples of pairs, sorted by key, so that a Job is hashable and has one encoding.
"""

from dataclasses import dataclass, field
from typing import Literal, NewType

JobKey = NewType("JobKey", str)
"""`namespace/id`."""

Gap = Literal["at_end", "skip", "shift"]
Fold = Literal["first", "second", "both"]
Priority = Literal["normal", "high"]
Backoff = Literal["exponential", "linear", "fixed", "list"]
OverlapMode = Literal["skip", "allow", "buffer_one", "buffer_all", "replace"]
CatchUpMode = Literal["none", "latest", "all"]
WhenFinished = Literal["delete", "keep"]
BodyKind = Literal["none", "json", "text", "base64"]
ScheduleKind = Literal["cron", "every", "at", "delay", "manual"]
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Instants that are no occurrences: a cron expression (in the schedule's zone), or a range [from_ms, to_ms)."""

    cron: str = ""
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When. At most one of cron, every_ms, at_ms, delay_ms is set; none: the job runs only by trigger."""

    cron: tuple[str, ...] = ()
    every_ms: int | None = None
    at_ms: int | None = None
    delay_ms: int | None = None
    timezone: str = "UTC"
    gap: Gap = "at_end"
    fold: Fold = "first"
    anchor_ms: int | None = None
    after_completion: bool = False
    exclude: tuple[Exclusion, ...] = ()
    spread_ms: int = 0
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    max_runs: int | None = None

    @property
    def kind(self) -> ScheduleKind:
        if self.cron:
            return "cron"
        if self.every_ms is not None:
            return "every"
        if self.at_ms is not None:
            return "at"
        if self.delay_ms is not None:
            return "delay"
        return "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """An HTTP request; secrets by name, since their values never leave the workers. `success` holds inclusive status
    ranges; `body` the bytes to send, before placeholders."""

    url: str
    method: str = "POST"
    headers: Pairs = ()
    body: bytes = b""
    body_kind: BodyKind = "none"
    timeout_ms: int = 30_000
    success: tuple[tuple[int, int], ...] = ((200, 299),)
    secret_headers: Pairs = ()
    """Name of the header -> name of the secret that is its value."""
    signing_secret: str = ""
    """Name of the secret that requests are signed with; "": they are not signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Python callable that a worker registered under `name`; `arguments` is a JSON object, as bytes."""

    name: str
    arguments: bytes = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    max_attempts: int = 5
    backoff: Backoff = "exponential"
    base_ms: int = 30_000
    factor: float = 4.0
    max_ms: int = 3_600_000
    jitter: float = 0.2
    delays_ms: tuple[int, ...] = ()
    max_age_ms: int = 86_400_000
    until_next: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What an occurrence does while an earlier run is active. `limit` bounds the waiting runs of buffer_all."""

    mode: OverlapMode = "skip"
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """What becomes of occurrences that are later than `grace_ms`."""

    mode: CatchUpMode = "latest"
    window_ms: int = 86_400_000
    limit: int = 100
    grace_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job definition, complete with defaults. Exactly one of http and function is set."""

    namespace: str = "default"
    id: str
    description: str = ""
    labels: Pairs = ()
    paused: bool = False
    queue: str = "default"
    priority: Priority = "normal"
    schedule: Schedule = field(default_factory=Schedule)
    http: HttpTarget | None = None
    function: FunctionTarget | None = None
    retry: Retry = field(default_factory=Retry)
    lease_ms: int = 60_000
    overlap: Overlap = field(default_factory=Overlap)
    catchup: CatchUp = field(default_factory=CatchUp)
    auto_pause_after: int | None = None
    when_finished: WhenFinished = "delete"

    @property
    def key(self) -> JobKey:
        return JobKey(f"{self.namespace}/{self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a definition: where, which rule, what to do about it, and the value given."""

    field: str
    rule: str
    message: str
    value: str = ""
