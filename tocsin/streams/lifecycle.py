"""The life of a run. Every transition lives here; this file knows no Kafka, no clock and no store.

docs/run-lifecycle.md is generated from TRANSITIONS (`make docs`), and a test fails if it is stale.
"""

from collections.abc import Mapping
from typing import Final, Literal

from tocsin.schemas.records import RunStatus

Event = Literal[
    "dispatch",  # a due record is written
    "buffer",  # waits for the job's open runs to end
    "wait",  # waits for the run that it replaces
    "claim",  # a worker said started, or sent a heartbeat
    "succeed",
    "retry",  # the attempt failed or was lost, and another is planned
    "fail",  # for good
    "cancel",
    "supersede",  # a later occurrence makes the wait for a retry or a release pointless
    "drop",  # a worker answered a withdrawal: it has not begun and will not
    "skip",  # dropped, and nothing runs it any more
]

FINAL: Final[frozenset[RunStatus]] = frozenset({"succeeded", "failed", "cancelled", "superseded", "skipped"})

TRANSITIONS: Final[Mapping[tuple[RunStatus, Event], RunStatus]] = {
    ("undecided", "dispatch"): "scheduled",
    ("undecided", "buffer"): "buffered",
    ("undecided", "wait"): "waiting",
    ("undecided", "cancel"): "cancelled",
    ("undecided", "skip"): "skipped",
    ("undecided", "supersede"): "superseded",
    ("buffered", "dispatch"): "scheduled",
    ("buffered", "cancel"): "cancelled",
    ("buffered", "supersede"): "superseded",
    ("waiting", "dispatch"): "scheduled",
    ("waiting", "cancel"): "cancelled",
    ("waiting", "supersede"): "superseded",
    ("scheduled", "claim"): "running",
    ("scheduled", "succeed"): "succeeded",
    ("scheduled", "retry"): "retrying",
    ("scheduled", "fail"): "failed",
    ("scheduled", "cancel"): "cancelled",
    ("scheduled", "drop"): "undecided",
    ("scheduled", "skip"): "skipped",
    ("running", "claim"): "running",
    ("running", "succeed"): "succeeded",
    ("running", "retry"): "retrying",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
    ("retrying", "dispatch"): "scheduled",
    ("retrying", "cancel"): "cancelled",
    ("retrying", "supersede"): "superseded",
}


def step(status: RunStatus, event: Event) -> RunStatus | None:
    """The status after `event`; None: the event does not apply to this status and changes nothing."""
    return TRANSITIONS.get((status, event))


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> undecided"]
    lines += [f"    {before} --> {after}: {event}" for (before, event), after in TRANSITIONS.items()]
    lines += [f"    {status} --> [*]" for status in sorted(FINAL)]
    return "\n".join(lines) + "\n"
