"""Drives one partition's core by hand: send, advance, look at what came out. No log, no threads; time is a number."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.log.port import Record
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, JobKey, Schedule
from tocsin.schemas.records import (
    Cluster,
    Command,
    Control,
    DeadLetter,
    DueRun,
    JobDefinition,
    JobEvent,
    Journal,
    Queue,
    RunEvent,
    RunReport,
)
from tocsin.schemas.rows import JobRow
from tocsin.schemas.topics import TopicNames
from tocsin.streams.config import Configuration
from tocsin.streams.core import Inputs, PartitionCore
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View

T0 = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
KEY = JobKey("default/a")
NAMES = TopicNames()


def job(schedule: Schedule | None = None, **fields: object) -> Job:
    """A small job named default/a."""
    given: dict[str, object] = {"id": "a", "http": HttpTarget(url="http://127.0.0.1:1/"), **fields}
    return Job(schedule=schedule or Schedule(every_ms=60_000), **given)  # type: ignore[arg-type]


@dataclass
class Driver:
    view: View
    core: PartitionCore
    config: Configuration
    now_ms: int = T0
    offsets: dict[str, int] = field(default_factory=lambda: {"jobs": 0, "commands": 0, "outcomes": 0})
    read_reports: bool = True
    """Whether reports count as read through now (P9)."""
    out: list[object] = field(default_factory=list)
    """Everything that was emitted since the last take(), decoded, but for journal rows."""
    commits: int = 0
    changelog: dict[bytes, bytes | None] = field(default_factory=dict)

    # --- sending

    def define(self, definition: Job, *, at_ms: int | None = None) -> None:
        self._tick(
            jobs=JobDefinition(namespace=definition.namespace, id=definition.id, job=definition), at_ms=at_ms
        )

    def delete(self, key: JobKey = KEY) -> None:
        namespace, _, job_id = key.partition("/")
        self._tick(jobs=JobDefinition(namespace=namespace, id=job_id, deleted=True))

    def command(self, command: Command) -> None:
        self._tick(commands=command)

    def report(self, due: DueRun, kind: str, **fields: object) -> None:
        given: dict[str, object] = {
            "execution": f"e{due.dispatch}",
            "epoch": 1,
            "started_ms": due.due_ms,
            "ended_ms": self.now_ms,
            **fields,
        }
        self._tick(
            outcomes=RunReport(
                kind=kind,  # type: ignore[arg-type]
                run_id=due.run_id,
                namespace=due.namespace,
                job_id=due.job_id,
                seq=due.seq,
                dispatch=due.dispatch,
                attempt=due.attempt,
                **given,  # type: ignore[arg-type]
            )
        )

    def advance(self, ms: int, step_ms: int = 1_000) -> None:
        """Let time pass, in ticks."""
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms = min(self.now_ms + step_ms, end)
            self._tick()

    def jump(self, ms: int) -> None:
        """Let time pass while the processor is down: one tick at the end."""
        self.now_ms += ms
        self._tick()

    def _tick(self, *, at_ms: int | None = None, **given: object) -> None:
        records: dict[str, list[Record]] = {"jobs": [], "commands": [], "outcomes": []}
        for topic, value in given.items():
            name = getattr(value, "job_id", None) or getattr(value, "id", "")
            key = f"{value.namespace}/{name}".encode()  # type: ignore[attr-defined]
            offset = self.offsets[topic]
            self.offsets[topic] += 1
            records[topic].append(
                Record(NAMES.prefix + topic, 0, offset, at_ms or self.now_ms, key, codec.encode(value))  # type: ignore[arg-type]
            )
        inputs = Inputs(
            jobs=records["jobs"],
            commands=records["commands"],
            outcomes=records["outcomes"],
            jobs_offset=self.offsets["jobs"],
            commands_offset=self.offsets["commands"],
            outcomes_offset=self.offsets["outcomes"],
        )
        through = self.now_ms if self.read_reports else 0
        self.core.tick(inputs, wall_ms=self.now_ms, reports_through_ms=through, config=self.config)
        self._commit()

    def _commit(self) -> None:
        self.commits += 1
        for emission in self.core.effects.emissions:
            if emission.value is None:
                self.out.append(("tombstone", emission.topic, emission.key))
                continue
            value = codec.decode(emission.value)
            if not isinstance(value, Journal):
                self.out.append(value)
        self.core.effects.reset()
        self.changelog.update(self.view.changes())
        self.view.commit(
            Position(
                journal=codec.encode(self.core.journal),
                changelog_offset=self.commits,
                changelog_time_ms=self.now_ms,
                runs_offset=self.commits,
            )
        )

    # --- looking

    @property
    def row(self) -> JobRow:
        row = self.view.job(KEY)
        assert row is not None
        return row

    def take(self, kind: type) -> list:  # type: ignore[type-arg]
        """What came out of this kind since the last take of it."""
        found = [each for each in self.out if isinstance(each, kind)]
        self.out = [each for each in self.out if not isinstance(each, kind)]
        return found

    def dues(self) -> list[DueRun]:
        return self.take(DueRun)

    def due(self) -> DueRun:
        """The one dispatch that came out."""
        (due,) = self.dues()
        assert isinstance(due, DueRun)
        return due

    def runs(self) -> list[RunEvent]:
        return self.take(RunEvent)

    def ends(self) -> list[tuple[int, str, str]]:
        """(seconds of the nominal since T0, status, reason) of every run or skip that ended."""
        final = ("succeeded", "failed", "cancelled", "superseded", "skipped")
        return [((e.nominal_ms - T0) // 1000, e.status, e.reason) for e in self.runs() if e.status in final]

    def controls(self) -> list[Control]:
        return self.take(Control)

    def job_events(self) -> list[str]:
        return [event.kind for event in self.take(JobEvent)]

    def letters(self) -> list[DeadLetter]:
        return self.take(DeadLetter)

    @property
    def watermark(self) -> int:
        return self.core.journal.watermark_ms


@contextmanager
def driven(
    path: Path, environment: StoreEnvironment, rules: StreamRules | None = None, *, check: bool = True
) -> Iterator[Driver]:
    store = PartitionStore.open(path, environment)
    store.start_empty()
    view = store.view(check=check)
    core = PartitionCore(
        partition=0,
        names=NAMES,
        view=view,
        transactional_id="t",
        journal=Journal(tick=0, now_ms=T0, transactional_id="t"),
        rules=rules or StreamRules(),
    )
    config = Configuration(
        cluster=Cluster(partitions=1, schema_level=1, tzdata="2026a"),
        queues={
            "default": Queue(name="default", kind="http", partitions=1),
            "functions": Queue(name="functions", kind="function", partitions=1),
        },
    )
    try:
        yield Driver(view=view, core=core, config=config)
        assert store.verify() == []
    finally:
        store.close()
