"""Several streams processes that share one log in memory, each with a clock of its own: stepped, killed, frozen by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process
from tocsin.clock import FakeClock
from tocsin.log.memory.partition import StoredRecord
from tocsin.log.port import EventLog
from tocsin.schedules.zones import tzdata_version
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams.status import StreamsStatus, status_of
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import Pass, StreamsConfig, Topology


class SkewedClock:
    """A machine's wall clock: the true one, and an error that can change."""

    def __init__(self, true: FakeClock) -> None:
        self._true = true
        self.error_ms = 0

    def now_ms(self) -> int:
        return self._true.now_ms() + self.error_ms

    def monotonic_s(self) -> float:
        return self._true.monotonic_s()


class Crowd(Process):
    """See the module. What a Process has for its one topology (step, start, crash, stop) is here by name."""

    def __init__(self, path: Path, environment: StoreEnvironment, *, partitions: int = 4) -> None:
        super().__init__(path, environment, partitions=partitions)
        self.living: dict[str, Topology] = {}
        self.clocks: dict[str, SkewedClock] = {}
        self.frozen: set[str] = set()

    def enter(
        self, name: str, *, standby: bool = False, tzdata: str = "", log: EventLog | None = None
    ) -> Topology:
        """Start a process, and do nothing yet."""
        clock = self.clocks.setdefault(name, SkewedClock(self.clock))
        config = StreamsConfig(
            data=self.path / name,
            client_id=name,
            standby=standby,
            clock_mode=self.clock_mode,
            check=True,
            threads=False,
            tzdata=tzdata or tzdata_version(),
        )
        topology = Topology(config, clock, log or self.log.client(name), self.environment)
        self.living[name] = topology
        return topology

    def kill(self, name: str) -> None:
        self.log.faults.crash(name)
        self.living.pop(name).abandon()
        self.frozen.discard(name)

    def leave(self, name: str) -> None:
        """A clean stop."""
        self.living.pop(name).close()

    def give_up(self) -> None:
        for each in self.living.values():
            each.abandon()

    def step(self, ms: int = 0) -> Pass:
        self.clock.advance(ms)
        committed = False
        for name in list(self.living):
            if name not in self.frozen:
                committed |= self.living[name].run_once().committed
        return Pass(committed=committed)

    def settle(self, within_ms: int = 20_000) -> None:
        """Until every partition is worked on by somebody who is not frozen, and by nobody else."""
        for _ in range(within_ms // 25):
            self.step(25)
            if self.is_settled:
                return
        raise AssertionError(f"not settled: {self.owners()}")

    @property
    def is_settled(self) -> bool:
        members = self.log.members(NAMES.streams_group)
        shown = {each.client_id: {at.partition for at in each.partitions} for each in members}
        awake = {name: each for name, each in self.living.items() if name not in self.frozen}
        ready = {
            name: self.owned(name) for name, each in awake.items() if each.joined or not each.config.standby
        }
        return shown == ready and set(range(self.partitions)) == set().union(*ready.values())

    def owned(self, name: str) -> set[int]:
        """The partitions that the process works on."""
        return {number for number, each in self.living[name].partitions.items() if each.ready}

    def owners(self) -> dict[str, set[int]]:
        return {name: self.owned(name) for name in self.living}

    def status(self, name: str) -> StreamsStatus:
        return status_of(self.living[name])


@contextmanager
def crowd_in(path: Path, environment: StoreEnvironment, *, partitions: int = 4) -> Iterator[Crowd]:
    crowd = Crowd(path, environment, partitions=partitions)
    try:
        yield crowd
    finally:
        crowd.give_up()


# --- a crowd with work to do

EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")


def define_many(crowd: Crowd, count: int = 12) -> None:
    for number in range(count):
        crowd.define(job(EVERY_SECOND, id=f"j{number}", overlap=ALLOW))


def assert_nothing_is_lost_or_doubled(crowd: Crowd) -> None:
    """Of jobs that run each second, and allow overlaps."""
    dispatches = [(due.run_id, due.dispatch) for due in crowd.dues()]
    assert len(dispatches) == len(set(dispatches))
    by_job: dict[str, set[int]] = {}
    for event in crowd.run_events():
        by_job.setdefault(event.job_id, set()).update(
            range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
        )
    for found in by_job.values():
        assert set(range(min(found), max(found) + 1, 1_000)) == found
        assert max(found) >= crowd.clock.now_ms() - 1_500


def open_records(crowd: Crowd) -> list[StoredRecord]:
    return [each for records in crowd.log.snapshot().values() for each in records if each.state == "open"]


def leave_open(crowd: Crowd, name: str) -> None:
    """The process writes a transaction, and dies before it is answered: it stays open."""
    crowd.log.faults.fail_next_commit("unknown_aborted", name)
    topology = crowd.living[name]
    for _ in range(400):
        crowd.clock.advance(25)
        topology.run_once()
        if topology.transactions.in_doubt:
            break
    else:
        raise AssertionError("it did not commit")
    crowd.kill(name)
    assert open_records(crowd)
