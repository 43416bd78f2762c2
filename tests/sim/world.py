"""A whole Tocsin in one thread: an in-memory log, streams processes, workers, clients, and everything that can go wrong.

Nothing here happens by itself. Who steps, when time passes and what fails is decided by the caller: a trace's script, or
a scenario that draws from Random(seed). So the same seed gives the same trace.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Literal, Self

from tests.sim.endpoint import Endpoint, Script
from tests.sim.processes import Disk, Process, StreamsProcess, WorkerProcess
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import LogError, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.job import Job
from tocsin.schemas.records import Command, JobDefinition, Journal, Queue
from tocsin.schemas.topics import TopicNames, queue_topics
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.clocks import ClockMode
from tocsin.streams.core import TIMERS_PER_PASS_MAX
from tocsin.streams.rules import StreamRules
from tocsin.worker.offsets import WINDOW_MAX
from tocsin.worker.rules import WorkerRules

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

FaultKind = Literal[
    "crash", "freeze", "thaw", "cut", "heal", "expired", "assigned", "revoked", "lost", "left"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What befell a process: the excuses that the protocol allows are made of these."""

    kind: FaultKind
    process: str
    at_ms: int
    step: int
    partitions: tuple[int, ...] = ()


class World:
    """See the module. Use as a context manager: it removes its directory."""

    def __init__(
        self,
        seed: int = 0,
        *,
        partitions: int = 1,
        queue_partitions: int = 1,
        streams: tuple[str, ...] = ("s0",),
        workers: tuple[str, ...] = ("w0",),
        stream_rules: StreamRules | None = None,
        worker_rules: WorkerRules | None = None,
        standby: tuple[str, ...] = (),
        clock_mode: ClockMode = "guarded",
        log_has_clock: bool = True,
        timers_per_pass_max: int = TIMERS_PER_PASS_MAX,
        window_max: int = WINDOW_MAX,
        hold_bytes_max: int = 1 << 20,
        drain_s: float = 30.0,
        worker_capacity: int = 8,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.stream_rules = stream_rules or StreamRules()
        self.worker_rules = worker_rules or WorkerRules()
        self.standby = standby
        """Which of the streams processes follow what the others own."""
        self.clock_mode: ClockMode = clock_mode
        self.log_has_clock = log_has_clock
        """Whether the processes hold their clocks against the log's."""
        self.timers_per_pass_max = timers_per_pass_max
        self.window_max = window_max
        self.hold_bytes_max = hold_bytes_max
        self.drain_s = drain_s
        self.names = TopicNames()
        self.partitions = partitions
        self.queue_partitions = queue_partitions
        self.clock = FakeClock(START_MS)
        self.log = MemoryLog(self.clock)
        self.steps = 0
        self.trace: list[str] = []
        self.trace_steps: list[int] = []
        """The step of each line of the trace."""
        self.happenings: list[Happening] = []
        self.hurried_ms = 1 << 60
        """From when on steps are long, so that nothing can be on time."""
        self.gave_ups: list[str] = []
        """Processes that ended by themselves, since the log could not be reached: a supervisor starts them again."""
        self.appended: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Per partition: (end offset, step) after each step in which it grew."""
        memory = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(prefix="tocsin-sim-", dir=memory if memory.is_dir() else None))
        self.endpoint = Endpoint(
            now_ms=self.now_ms, log_ms=self.clock.now_ms, step=lambda: self.steps, note=self.note
        )
        bootstrap(self.log, self.names, partitions=partitions, queue_partitions=queue_partitions)
        self._client = self.log.producer()
        self.streams = {name: StreamsProcess(self, name) for name in streams}
        self.workers = {name: WorkerProcess(self, name, capacity=worker_capacity) for name in workers}
        self._members: set[str] = set()
        self._leaving: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if error is not None and kind is not None and issubclass(kind, Exception):
            error.add_note(self.story())
        for process in self.processes.values():
            process.crash()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def processes(self) -> dict[str, StreamsProcess | WorkerProcess]:
        return {**self.streams, **self.workers}

    # --- time and steps

    def now_ms(self) -> int:
        """Milliseconds since the start, on the clock that never steps."""
        return round(self.clock.monotonic_s() * 1000)

    @property
    def wall_ms(self) -> int:
        """What the log's clock says."""
        return self.clock.now_ms()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms():>7} {text}")
        self.trace_steps.append(self.steps)

    def story(self, last: int = 150) -> str:
        """The end of the trace, for a failure's message."""
        return f"seed {self.seed}: the last steps were\n" + "\n".join(self.trace[-last:])

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.endpoint.settle()

    def step(self, *names: str) -> None:
        """Let each of these processes do one pass, in this order."""
        for name in names:
            self.steps += 1
            self.processes[name].step()
            self._look()

    def round(self, ms: int = 20, *, but: tuple[str, ...] = ()) -> None:
        """Time passes, then every process does one pass, but those named."""
        self.advance(ms)
        self.step(*(name for name in self.processes if name not in but))

    def run(self, ms: int, *, every_ms: int = 20, but: tuple[str, ...] = ()) -> None:
        """Rounds until `ms` milliseconds have passed."""
        until = self.now_ms() + ms
        while self.now_ms() < until:
            self.round(min(every_ms, until - self.now_ms()), but=but)

    def run_until(
        self,
        condition: Callable[[], bool],
        *,
        within_ms: int = 30_000,
        every_ms: int = 20,
        but: tuple[str, ...] = (),
    ) -> None:
        """Rounds until the condition holds. It not coming true is a failure of the script or of the code."""
        until = self.now_ms() + within_ms
        while not condition():
            assert self.now_ms() < until, f"it did not come true within {within_ms} ms"
            self.round(every_ms, but=but)

    def start(self, *names: str, disk: Disk = "kept") -> None:
        """Start these (without names: all) that are not alive. A streams process finds its disk as said."""
        for name in names or self.processes:
            process = self.processes[name]
            if process.alive:
                continue
            self.steps += 1
            if isinstance(process, StreamsProcess):
                process.start(disk)
            else:
                process.start()
            self._look()

    def crash(self, *names: str) -> None:
        for name in names:
            self.steps += 1
            self.processes[name].crash()
            self._look()

    def stop(self, *names: str) -> None:
        """A streams process stops here and now, a worker begins its drain."""
        for name in names:
            self.steps += 1
            self.processes[name].stop()
            self._look()

    # --- what befalls processes

    def moved(self, process: Process, what: str, partitions: list[int]) -> None:
        kinds: dict[str, FaultKind] = {"assigned": "assigned", "revoked": "revoked", "lost": "lost"}
        self.note(f"{process.name} {what} {partitions}")
        self._happen(kinds[what], process.name, tuple(partitions))

    def died(self, process: Process) -> None:
        self._happen("crash", process.name)
        process.cut = False
        self.log.faults.crash(process.name)

    def leaves(self, process: Process) -> None:
        """It is about to leave its group in order, in this step."""
        self._leaving.add(process.name)

    def gave_up(self, process: Process, error: LogError) -> None:
        self.note(f"{process.name} gives up: {type(error).__name__}: {error}")
        self.gave_ups.append(f"{process.name}: {type(error).__name__}: {error}")

    def freeze(self, name: str) -> None:
        self.note(f"{name} freezes")
        self.processes[name].frozen = True
        self._happen("freeze", name)

    def thaw(self, name: str) -> None:
        self.note(f"{name} thaws")
        self.processes[name].frozen = False
        self._happen("thaw", name)

    def cut(self, name: str) -> None:
        self.note(f"{name} is cut off")
        self.processes[name].cut = True
        self.log.faults.cut(name)
        self._happen("cut", name)

    def heal(self, name: str) -> None:
        self.note(f"{name} is healed")
        self.processes[name].cut = False
        self.log.faults.heal(name)
        self._happen("heal", name)

    def _happen(self, kind: FaultKind, name: str, partitions: tuple[int, ...] = ()) -> None:
        self.happenings.append(
            Happening(kind=kind, process=name, at_ms=self.now_ms(), step=self.steps, partitions=partitions)
        )

    def _look(self) -> None:
        """Note what has changed in this step: whose session has ended, and how far each partition reaches."""
        broker = self.log.broker
        members = {m for g in broker.coordinator.groups.values() for m in g.members}
        for gone in sorted(self._members - members):
            name = gone.rpartition("-")[0]
            left = name in self._leaving
            self.note(f"{gone} has left its group" if left else f"{gone} is no longer in its group")
            self._happen("left" if left else "expired", name)
        self._members = members
        self._leaving.clear()
        for where, partition in broker.partitions.items():
            ends = self.appended.setdefault(where, [])
            if partition.end > (ends[-1][0] if ends else 0):
                ends.append((partition.end, self.steps))

    def forget_planned_faults(self) -> None:
        """What the log was to do wrong next, it does right."""
        faults = self.log.faults
        faults._duplicates.clear()
        faults._unacknowledged.clear()
        faults._commits.clear()
        for name in self.processes:
            faults.release_sends(name)

    # --- standing still

    def is_quiet(self) -> bool:
        """Everybody is at work, no run is open, nothing will come by itself, and every due record is finished."""
        return not self.what_is_open()

    def what_is_open(self) -> list[str]:
        owners = [
            each.topology for each in self.streams.values() if each.running and each.topology is not None
        ]
        ready = {number: each for owner in owners for number, each in owner.partitions.items() if each.ready}
        if len(ready) < self.partitions:
            return [f"partitions {sorted(ready)} are ready"]
        found = []
        for each in ready.values():
            reader = each.store.reader()
            found += [f"{run.run_id} is {run.status}" for run in reader.all_runs()]
            found += [
                f"{key} is armed for {row.armed_nominal_ms}"
                for key, row in reader.jobs_from()
                if row.armed != "none"
            ]
            found += [f"a command of {key} is parked" for key, _, _ in reader.all_pending("parked")]
            assert each.core is not None
            found += self._unread(each.number, each.core.journal)
            found += ["effects are not committed"] * bool(each.core.effects.emissions)
        return found or self._unfinished()

    def _unread(self, number: int, journal: Journal) -> list[str]:
        names = self.names
        reached = {
            names.outcomes: journal.outcomes_offset,
            names.commands: journal.commands_offset,
            names.jobs: journal.jobs_offset,
        }
        found = []
        for topic, offset in reached.items():
            newest = next(
                (
                    e.record.offset
                    for e in reversed(self.log.records(topic, number))
                    if e.state == "committed"
                ),
                -1,
            )
            if newest >= offset:
                found.append(f"{topic}[{number}] is folded up to {offset}, and {newest} is there")
        return found

    def _unfinished(self) -> list[str]:
        """Due records that the workers have not finished: of a quiet world there are none."""
        found = []
        for queue in {each.queue for each in self.workers.values()}:
            group = self.log.broker.coordinator.group(self.names.worker_group(queue))
            for topic in (self.names.due(queue), self.names.due_now(queue)):
                for number in range(self.queue_partitions):
                    where = TopicPartition(topic, number)
                    end = self.log.broker.partition(where).end
                    commit = group.committed.get(where)
                    if end and (commit is None or commit.offset < end):
                        found.append(f"{topic}[{number}] is finished up to {commit} of {end}")
        return found

    # --- clients

    def define(self, job: Job, *, actor: str = "client") -> int:
        """Write a definition; returns its offset."""
        record = JobDefinition(namespace=job.namespace, id=job.id, job=job, actor=actor)
        return self._append(self.names.jobs, job.key, codec.encode(record), f"define {job.key}")

    def delete(self, key: str) -> int:
        namespace, _, job_id = key.partition("/")
        record = JobDefinition(namespace=namespace, id=job_id, deleted=True, actor="client")
        return self._append(self.names.jobs, key, codec.encode(record), f"delete {key}")

    def command(self, command: Command) -> int:
        key = f"{command.namespace}/{command.id}"
        return self._append(self.names.commands, key, codec.encode(command), f"{command}")

    def poison(self, topic: str, key: str) -> None:
        """A record that nobody can decode."""
        self._append(topic, key, b"\xff\xff", f"poison for {topic}")

    def add_queue(self, name: str) -> None:
        """Another queue of http targets, with the same number of partitions."""
        self.log.create_topics(queue_topics(self.names, name, self.queue_partitions))
        queue = Queue(name=name, kind="http", partitions=self.queue_partitions)
        self._client.produce(
            self.names.config, key=f"queue/{name}".encode(), value=codec.encode(queue), partition=0
        )
        self._client.poll()

    def add_worker(self, name: str, queue: str) -> None:
        self.workers[name] = WorkerProcess(self, name, queue=queue)

    def script(self, scripts: Callable[[object], Script] | Script) -> None:
        """What executions do from now on."""
        if isinstance(scripts, Script):
            fixed = scripts
            self.endpoint.scripts = lambda _run: fixed
        else:
            self.endpoint.scripts = scripts

    def _append(self, topic: str, key: str, value: bytes, what: str) -> int:
        offsets: list[int] = []
        self._client.produce(
            topic, key=key.encode(), value=value, on_delivery=lambda done: offsets.append(done.offset)
        )
        self._client.poll()
        self.note(f"client: {what} (at {offsets[0]})")
        self._look()
        return offsets[0]
