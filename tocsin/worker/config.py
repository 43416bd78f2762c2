"""The settings of a worker, checked all at once."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.schemas.callbacks import Callbacks
from tocsin.schemas.topics import TopicNames
from tocsin.worker.egress import EgressPolicy, egress_problems
from tocsin.worker.offsets import WINDOW_MAX

_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class InvalidWorkerConfig(ValueError):
    """The worker's settings are not valid. `problems` names each wrong setting and what it may be."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("the worker cannot start: " + "; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Of the core of one queue. Durations that time the protocol are on the clock that counts suspension."""

    queue: str
    worker: str
    """The name that reports carry and that the group shows."""
    topics: TopicNames = field(default_factory=TopicNames)
    session_timeout_s: float = 6.0
    """Of the group member: as the log's adapter sets it."""
    commit_every_s: float = 0.5
    claim_after_s: float = 1.0
    """An execution that lasts longer is claimed with a lease."""
    claim_answer_s: float = 30.0
    """A claim that was not read back after this time ends its execution (P13 counts on it)."""
    revoke_s: float = 1.0
    """What a revoke may take (W6)."""
    drain_s: float = 30.0
    abort_s: float = 2.0
    """How long a stop waits for what it has aborted, and for the last acknowledgements."""
    window_max: int = WINDOW_MAX
    hold_bytes_max: int = 256 * 1024 * 1024
    """Of all held records; a quarter is for the lane `due-now`, so that a full hold does not delay what is urgent."""
    per_target_max: int = 100
    """Executions at once towards one host and port."""
    clock_offset_max_ms: int | None = 500
    """Beyond this nothing starts. None: the log takes its time from this machine's wall clock."""
    asks_the_time_first: bool = False
    """Nothing starts before the log has said once what time it is: a clock that is fast shows by nothing else."""
    expire_slack_ms: int = 1_000
    """`expired` is said only when the own clock is past the deadline by more than this (W4)."""
    report_delay_s: float = 0.010
    """How long an outcome may wait for the next pass: passes then carry several, and cost less for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Of a worker process. Raises InvalidWorkerConfig with every problem at once."""

    worker: str
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 256
    """Executions at once, for each queue."""
    topics: TopicNames = field(default_factory=TopicNames)
    drain_s: float = 30.0
    hold_bytes_max: int = 256 * 1024 * 1024
    per_target_max: int = 100
    connect_timeout_s: float = 5.0
    session_timeout_s: float = 6.0
    clock_offset_max_ms: int | None = 500
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    secrets: Path | None = None
    """Directory of the secrets: NAMESPACE/NAME. None: jobs with secrets fail here, and are tried again."""

    callbacks: Callbacks | None = None
    """Where endpoints of long runs report. None: a run may not outlast its request."""

    def __post_init__(self) -> None:
        problems = tuple(self._problems())
        if problems:
            raise InvalidWorkerConfig(problems)

    def core(self, queue: str) -> CoreConfig:
        return CoreConfig(
            queue=queue,
            worker=self.worker,
            topics=self.topics,
            session_timeout_s=self.session_timeout_s,
            drain_s=self.drain_s,
            hold_bytes_max=self.hold_bytes_max,
            per_target_max=self.per_target_max,
            clock_offset_max_ms=self.clock_offset_max_ms,
            asks_the_time_first=True,
        )

    def _problems(self) -> list[str]:
        limits: tuple[tuple[str, float, float, float], ...] = (
            ("concurrency", self.concurrency, 1, 10_000),
            ("drain_s", self.drain_s, 0, 3_600),
            ("hold_bytes_max", self.hold_bytes_max, 4 * 1024 * 1024, 64 * 1024**3),
            ("per_target_max", self.per_target_max, 1, 10_000),
            ("connect_timeout_s", self.connect_timeout_s, 0.1, 60),
            # Below 3 s a commit every half second leaves no room for one that is late (W8).
            ("session_timeout_s", self.session_timeout_s, 3, 300),
        )
        found = [
            f"{name} must be between {low:g} and {high:g}, not {value:g}"
            for name, value, low, high in limits
            if not low <= value <= high
        ]
        if not self.worker:
            found.append("worker must name this process, for example host-1")
        if not self.queues:
            found.append("queues must name at least one queue")
        found += [
            f"queues: {queue!r} must match {_QUEUE.pattern}"
            for queue in self.queues
            if not _QUEUE.fullmatch(queue)
        ]
        found += [
            f"queues: {queue!r} is there twice"
            for queue in sorted(set(self.queues))
            if self.queues.count(queue) > 1
        ]
        if self.clock_offset_max_ms is not None and self.clock_offset_max_ms < 1:
            found.append(f"clock_offset_max_ms must be at least 1, or None, not {self.clock_offset_max_ms}")
        if self.secrets is not None and not self.secrets.is_dir():
            found.append(
                f"secrets must be a directory with a folder for each namespace; {self.secrets} is none"
            )
        return found + egress_problems(self.egress)
