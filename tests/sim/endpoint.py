"""What the workers execute: requests that take a scripted time and end as scripted, recorded with their true instants.

The endpoint is outside of every process: a frozen worker's request goes on, a crashed worker's ends with its connection.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tocsin.clock import Clock
from tocsin.schemas.records import DueRun
from tocsin.worker.execution import Execution, Outcome, OutcomeKind

Ending = Literal["succeeded", "failed", "refused"]
"""refused: failed for good (not retryable)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How one execution goes if nobody interferes."""

    duration_ms: int = 40
    ending: Ending = "succeeded"
    begin_after_ms: int = 0
    """How long the worker's executor takes to begin what the core has started."""
    stops: bool = True
    """Whether an abort stops it (a Python function in a thread goes on until it returns)."""
    retry_after_ms: int = -1


@dataclass(slots=True, kw_only=True)
class Executed:
    """One execution as it really was. `..._ms` without `wall` are on the clock that never steps."""

    id: str
    worker: str
    life: int
    """Which process of that name."""
    run: DueRun
    script: Script
    start_by_s: float
    handed_ms: int
    handed_wall_ms: int
    begun_step: int = -1
    begun_ms: int = -1
    begun_wall_ms: int = -1
    """By the worker's clock."""
    begun_log_ms: int = -1
    """By the log's clock."""
    due_to_end_ms: int = -1
    ended_step: int = -1
    ended_ms: int = -1
    ending: str = ""
    """"": it has not ended. Else succeeded, failed, refused, aborted, not_begun, or crashed (with its worker)."""
    abort_asked_ms: int = -1

    @property
    def begun(self) -> bool:
        return self.begun_step >= 0

    @property
    def job(self) -> str:
        return f"{self.run.namespace}/{self.run.job_id}"

    def __str__(self) -> str:
        return f"{self.id} of {self.run.run_id} d{self.run.dispatch} a{self.run.attempt}"


Scripts = Callable[[DueRun], Script]


class FakeExecutor:
    """The Executor of one worker process. pump() is its own loop: it runs only while the process does."""

    def __init__(self, endpoint: "Endpoint", worker: str, life: int, clock: Clock, capacity: int) -> None:
        self._endpoint = endpoint
        self._worker = worker
        self._life = life
        self._clock = clock
        self._capacity = capacity
        self._mine: dict[str, Executed] = {}
        self.ended: Callable[[str, Outcome], None] = lambda _id, _outcome: None

    def start(self, execution: Execution) -> None:
        run = execution.run
        made = Executed(
            id=execution.id,
            worker=self._worker,
            life=self._life,
            run=run,
            script=self._endpoint.scripts(run),
            start_by_s=execution.start_by_s,
            handed_ms=self._endpoint.now_ms(),
            handed_wall_ms=self._clock.now_ms(),
        )
        self._mine[made.id] = made
        self._endpoint.all.append(made)
        if made.script.begin_after_ms == 0:
            self._begin(made)

    def abort(self, execution_id: str) -> None:
        made = self._mine.get(execution_id)
        if made is None or made.ending:
            return
        made.abort_asked_ms = self._endpoint.now_ms()
        if not made.begun:
            self._endpoint.end(made, "not_begun", self._endpoint.now_ms())
        elif made.script.stops:
            self._endpoint.end(made, "aborted", self._endpoint.now_ms())

    def capacity(self) -> int:
        return self._capacity - sum(1 for made in self._mine.values() if not made.ending)

    def pump(self) -> None:
        """Begin what has waited for it, and tell the core what has ended."""
        now_ms = self._endpoint.now_ms()
        for made in list(self._mine.values()):
            if not made.begun and not made.ending and now_ms >= made.handed_ms + made.script.begin_after_ms:
                self._begin(made)
        for made in list(self._mine.values()):
            if made.ending:
                del self._mine[made.id]
                self.ended(made.id, self._outcome(made))

    def die(self) -> None:
        """The process has crashed, and its connections with it."""
        for made in self._mine.values():
            if not made.ending:
                self._endpoint.end(made, "crashed", self._endpoint.now_ms())
        self._mine.clear()

    def _begin(self, made: Executed) -> None:
        if self._clock.monotonic_s() > made.start_by_s:
            self._endpoint.end(made, "not_begun", self._endpoint.now_ms())
            return
        made.begun_wall_ms = self._clock.now_ms()
        self._endpoint.begin(made)

    def _outcome(self, made: Executed) -> Outcome:
        kinds: dict[str, OutcomeKind] = {
            "succeeded": "succeeded",
            "failed": "failed",
            "refused": "failed",
            "aborted": "aborted",
            "not_begun": "not_begun",
        }
        started_ms = made.begun_wall_ms if made.begun else self._clock.now_ms()
        took_ms = made.ended_ms - made.begun_ms if made.begun else 0
        return Outcome(
            kind=kinds[made.ending],
            started_ms=started_ms,
            ended_ms=started_ms + took_ms,
            http_status={"succeeded": 200, "failed": 503, "refused": 404}.get(made.ending, 0),
            error="" if made.ending == "succeeded" else made.ending,
            retryable=made.ending == "failed",
            retry_after_ms=made.script.retry_after_ms if made.ending == "failed" else -1,
        )


@dataclass(slots=True)
class Endpoint:
    """Everything that was ever executed, and what executes now."""

    now_ms: Callable[[], int]
    log_ms: Callable[[], int]
    step: Callable[[], int]
    note: Callable[[str], None]
    scripts: Scripts = field(default=lambda run: Script())
    all: list[Executed] = field(default_factory=list)
    executing: dict[str, Executed] = field(default_factory=dict)

    def begin(self, made: Executed) -> None:
        made.begun_ms = self.now_ms()
        made.begun_log_ms = self.log_ms()
        made.begun_step = self.step()
        made.due_to_end_ms = made.begun_ms + made.script.duration_ms
        self.executing[made.id] = made
        self.note(f"{made.worker} begins {made}")

    def end(self, made: Executed, ending: str, at_ms: int) -> None:
        made.ended_ms = at_ms
        made.ended_step = self.step()
        made.ending = ending
        self.executing.pop(made.id, None)
        self.note(f"{made.worker} {ending} {made}")

    def settle(self) -> None:
        """End what is over by now."""
        now_ms = self.now_ms()
        for made in [each for each in self.executing.values() if each.due_to_end_ms <= now_ms]:
            self.end(made, made.script.ending, made.due_to_end_ms)

    def next_end_ms(self) -> int | None:
        return min((made.due_to_end_ms for made in self.executing.values()), default=None)
