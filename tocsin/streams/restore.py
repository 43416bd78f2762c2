"""A partition's store is brought to the end of its changelog, step by step."""

from dataclasses import dataclass
from typing import Literal

from tocsin.clock import Clock
from tocsin.log.port import EventLog
from tocsin.streams.store import PartitionStore

Phase = Literal["changelog", "timers", "history", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a restore is. `done` and `total` count offsets (changelog, history) or rows (timers) of the phase."""

    phase: Phase
    done: int
    total: int
    per_second: float
    eta_s: float | None


class Restore:
    """Brings `store` to the end of the log. Firing may begin when `ready`; the history rings may take longer.

    for a takeover: step() until `ready`, make the view, and go on calling step() once per pass of the loop until `done`.
    for a standby: step() for ever (it follows the end); retarget() when the partition becomes ours.
    """

    def __init__(
        self,
        store: PartitionStore,
        log: EventLog,
        clock: Clock,
        *,
        partition: int,
        state_topic: str,
        runs_topic: str,
        delete_retention_ms: int,
        history_size: int = 20,
    ) -> None: ...

    @property
    def ready(self) -> bool:
        """Rows and timers stand as of the captured end."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """The history rings, too."""
        raise NotImplementedError

    def retarget(self) -> None:
        """Capture the log's true end again."""

    def step(self, max_records: int = 2_000, timeout_s: float = 0.1) -> Progress: ...

    def close(self) -> None: ...
