"""One streams process on a log in memory: written to, stepped, crashed and started again by hand."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.unit.streams.driver import NAMES, T0
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, GroupConsumer, Headers, Reader
from tocsin.schemas import codec
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import (
    Command,
    DueRun,
    JobDefinition,
    Journal,
    Quarantined,
    RunEvent,
    RunReport,
    Trigger,
)
from tocsin.schemas.rows import JobRow
from tocsin.streams.answers import Answers
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.clocks import ClockMode
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import Pass, StreamsConfig, Topology

T = TypeVar("T")


class Sleeper:
    """EventLog of the process; whoever waits lets the time of the FakeClock pass, so that run() can be watched.

    Everything else is the log's. `until_ms`: when the process is asked to stop.
    """

    def __init__(self, log: EventLog, process: "Process") -> None:
        self._log = log
        self._process = process

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        process = self._process
        process.waits.append(timeout_s)
        if not any(each.is_ready() for each in consumers):  # type: ignore[union-attr]
            process.clock.advance(max(1, round(timeout_s * 1000)))
        process.look_around()


class Process:
    """See the module."""

    def __init__(
        self,
        path: Path,
        environment: StoreEnvironment,
        *,
        partitions: int = 1,
        clock_mode: ClockMode = "guarded",
        log_has_clock: bool = True,
    ) -> None:
        self.path = path
        self.environment = environment
        self.clock_mode: ClockMode = clock_mode
        self.log_has_clock = log_has_clock
        self.partitions = partitions
        self.clock = FakeClock(T0)
        self.log = MemoryLog(self.clock)
        self.wrap: Callable[[EventLog], EventLog] = lambda log: log
        self.waits: list[float] = []
        self.look_around: Callable[[], None] = lambda: None
        bootstrap(self.log, NAMES, partitions=partitions, queue_partitions=partitions)
        self._client = self.log.producer()
        self._topology: Topology | None = None
        self.answers: Answers
        self.name = "s0"

    # --- life

    @property
    def topology(self) -> Topology:
        assert self._topology is not None
        return self._topology

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms() - T0

    def open(self, name: str = "s0") -> Topology:
        """Start it, and do nothing yet."""
        self.name = name
        config = StreamsConfig(
            data=self.path / name,
            client_id=name,
            clock_mode=self.clock_mode,
            log_has_clock=self.log_has_clock,
            check=True,
            threads=False,
        )
        log = self.wrap(self.log.client(name))
        self._topology = Topology(config, self.clock, log, self.environment)
        self.answers = Answers(self._topology, self.clock)
        return self._topology

    def start(self, name: str = "s0") -> None:
        """Start it, until it has restored what it owns and said so."""
        self.open(name)
        for number in range(400):  # the member of a life that crashed is in the group for six seconds more
            self.step(5 if number < 50 else 25)
            owned = self.topology.partitions.values()
            if len(owned) == self.partitions and all(each.ready for each in owned):
                break
        else:
            raise AssertionError("it does not become ready")
        self.run(300)

    def crash(self) -> None:
        """Nothing is closed; what is started next is another life."""
        self.log.faults.crash(self.name)
        self._release()

    def stop(self) -> None:
        self.topology.close()
        self._topology = None

    def give_up(self) -> None:
        """At the end of a test."""
        if self._topology is not None:
            self._release()

    def _release(self) -> None:
        self.topology.abandon()
        self._topology = None

    # --- time

    def step(self, ms: int = 0) -> Pass:
        self.clock.advance(ms)
        return self.topology.run_once()

    def run(self, ms: int, every_ms: int = 25) -> int:
        """Let time pass in steps; returns how many commits there were."""
        commits = 0
        for _ in range(-(-ms // every_ms)):
            commits += self.step(every_ms).committed
        return commits

    def run_until_committed(self, within_ms: int = 10_000) -> None:
        for _ in range(within_ms // 25):
            if self.step(25).committed:
                return
        raise AssertionError(f"no commit within {within_ms} ms")

    # --- writing

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Returns the offset."""
        offsets: list[int] = []
        self._client.produce(
            topic,
            key=key,
            value=value,
            partition=partition,
            headers=headers,
            on_delivery=lambda delivery: offsets.append(delivery.offset),
        )
        self._client.poll()
        return offsets[0]

    def define(self, job: Job) -> int:
        record = JobDefinition(namespace=job.namespace, id=job.id, job=job)
        return self.append(NAMES.jobs, job.key.encode(), codec.encode(record))

    def apply(self, job: Job) -> None:
        """Define the job, and see to it that it is applied: a command of the same pass would come first."""
        self.define(job)
        self.run(500)

    def delete(self, key: str) -> int:
        namespace, _, job_id = key.partition("/")
        record = JobDefinition(namespace=namespace, id=job_id, deleted=True)
        return self.append(NAMES.jobs, key.encode(), codec.encode(record))

    def command(self, command: Command) -> int:
        key = f"{command.namespace}/{command.id}"
        return self.append(NAMES.commands, key.encode(), codec.encode(command))

    def trigger(self, name: str, key: str = "a") -> int:
        return self.command(Trigger(namespace="default", id=key, trigger_id=name))

    def report(self, due: DueRun, kind: str, **fields: object) -> int:
        now_ms = self.clock.now_ms()
        record = RunReport(
            kind=kind,  # type: ignore[arg-type]
            run_id=due.run_id,
            namespace=due.namespace,
            job_id=due.job_id,
            seq=due.seq,
            dispatch=due.dispatch,
            attempt=due.attempt,
            **{"execution": "e", "epoch": 1, "started_ms": now_ms, "ended_ms": now_ms, **fields},  # type: ignore[arg-type]
        )
        key = f"{due.namespace}/{due.job_id}".encode()
        return self.append(NAMES.outcomes, key, codec.encode(record))

    # --- looking

    def values(self, topic: str, kind: type[T]) -> list[T]:
        """Everything of this kind that stands on the topic, committed, in the order of partitions and offsets."""
        found: list[T] = []
        for partition in range(self.log.partitions(topic)):
            for stored in self.log.records(topic, partition):
                if stored.state == "committed" and stored.record.value is not None:
                    value = codec.decode(stored.record.value)
                    if isinstance(value, kind):
                        found.append(value)
        return found

    def dues(self, queue: str = "default") -> list[DueRun]:
        """By instant, then job."""
        found = [
            due for topic in (NAMES.due(queue), NAMES.due_now(queue)) for due in self.values(topic, DueRun)
        ]
        return sorted(found, key=lambda due: (due.due_ms, due.namespace, due.job_id, due.dispatch))

    def dispatched(self) -> list[str]:
        """The run of each due record."""
        return [due.run_id for due in self.dues()]

    def run_events(self) -> list[RunEvent]:
        return self.values(NAMES.runs, RunEvent)

    def quarantined(self) -> list[Quarantined]:
        return self.values(NAMES.quarantine, Quarantined)

    def journals(self) -> list[Journal]:
        return self.values(NAMES.journal, Journal)

    def row(self, key: str = "default/a") -> JobRow:
        for each in self.topology.partitions.values():
            found = each.store.reader().job(JobKey(key))
            if found is not None:
                return found[0]
        raise AssertionError(f"{key} has no row")

    def epoch(self, name: str = "s0") -> int:
        """How often the transactional id of the process was taken, by itself or by who fenced it."""
        return self.log.broker.transactional[f"{NAMES.streams_group}.{name}"].epoch


@contextmanager
def process_in(
    path: Path,
    environment: StoreEnvironment,
    *,
    partitions: int = 1,
    clock_mode: ClockMode = "guarded",
    log_has_clock: bool = True,
) -> Iterator[Process]:
    process = Process(
        path, environment, partitions=partitions, clock_mode=clock_mode, log_has_clock=log_has_clock
    )
    try:
        yield process
    finally:
        process.give_up()


@contextmanager
def quick_directory() -> Iterator[Path]:
    """For stores that are opened by the dozen: in memory, where the machine has that. They need not outlast anything."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tocsin-test-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)
