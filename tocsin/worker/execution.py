"""What the core hands to an executor, and what it gets back. A fake executor needs nothing but this module."""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from tocsin.schemas.records import DueRun

OutcomeKind = Literal[
    "succeeded",
    "failed",
    "accepted",  # the endpoint works on it and will say how it ended; until then `lease_ms` guards it
    "aborted",  # as abort() asked; whatever it was doing has stopped
    "not_begun",  # handed back untouched: `start_by_s` had passed before it could begin
]

RESPONSE_BYTES_MAX: Final = 4_096
ERROR_CHARACTERS_MAX: Final = 1_000
RETRY_AFTER_MS_MAX: Final = 7 * 86_400_000
"""More is not taken from an endpoint or a function; `retry.max` of the job is the limit that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One real start of a dispatch, to be begun at once."""

    id: str
    """Unique among all executions of all workers."""
    run: DueRun
    start_by_s: float
    """On the clock's monotonic_s: after this instant the partition may be somebody else's (W8), so an executor that
    could not begin before it hands the execution back as `not_begun`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an execution ended. `started_ms` and `ended_ms` are of the wall clock; lateness is measured from the first."""

    kind: OutcomeKind
    started_ms: int
    ended_ms: int
    http_status: int = 0
    error: str = ""
    """One sentence for people: what happened, and for a mistake of the definition what to change."""
    retryable: bool = False
    """Of `failed`: whether another attempt may help."""
    retry_after_ms: int = -1
    """What the endpoint asked for; -1: nothing."""
    lease_ms: int = 0
    """Of `accepted`: how long the endpoint may stay silent."""
    response: str = ""
    """At most RESPONSE_BYTES_MAX of what came back, as text."""


class Executor(Protocol):
    """Executes. Each start is answered by exactly one `core.ended(execution.id, outcome)`, from any thread.

    The core calls all methods from its own thread. None of them blocks.
    """

    def start(self, execution: Execution) -> None:
        """Begin at once. The core starts at most `capacity()` of them."""
        ...

    def abort(self, execution_id: str) -> None:
        """Stop it as soon as possible; unknown and ended ids are ignored. The outcome still comes, once the work has
        really stopped: as `aborted`, or as what it was if it ended first. What cannot be stopped answers when it
        returns."""
        ...

    def capacity(self) -> int:
        """How many more may be started now."""
        ...
