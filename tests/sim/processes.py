"""One streams process and one worker process of the simulation: started, stepped, frozen, killed, started again."""

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from tests.sim.endpoint import FakeExecutor
from tests.sim.probes import Crashed, ProbedEnvironment, ProbedLog
from tocsin.clock import FakeClock
from tocsin.log.port import LogError, LogUnavailable
from tocsin.streams.store import PartitionStore
from tocsin.streams.topology import StreamsConfig, Topology
from tocsin.worker.config import CoreConfig
from tocsin.worker.core import WorkerCore

if TYPE_CHECKING:
    from tests.sim.world import World

Disk = Literal["kept", "wiped", "old"]
"""What a process finds of its stores when it starts again: all, nothing, or what they were some time ago."""


class SkewedClock:
    """A machine's clock: the true one, and an error that can change."""

    def __init__(self, true: FakeClock) -> None:
        self._true = true
        self.error_ms = 0

    def now_ms(self) -> int:
        return self._true.now_ms() + self.error_ms

    def monotonic_s(self) -> float:
        return self._true.monotonic_s()


class Process:
    """What both kinds have in common: a life that ends in a crash, at a chosen call or between two steps."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.clock = SkewedClock(world.clock)
        self.life = 0
        self.alive = False
        self.frozen = False
        self.cut = False
        self.crash_after: int | None = None
        """How many more calls it makes before it dies."""
        self.crash_where: Callable[[str], bool] = lambda _where: False
        """Or: at which call."""
        self.owned: set[int] = set()

    @property
    def running(self) -> bool:
        return self.alive and not self.frozen

    def at(self, where: str) -> None:
        if self.crash_after is not None:
            self.crash_after -= 1
        if self.crash_after == 0 or self.crash_where(where):
            self.crash_after = None
            self.crash_where = lambda _where: False
            self.world.note(f"{self.name} dies {where}")
            raise Crashed

    def watch(self, what: str, partitions: list[int]) -> None:
        if what == "assigned":
            self.owned.update(partitions)
        else:
            self.owned.difference_update(partitions)
        self.world.moved(self, what, partitions)

    def log(self) -> ProbedLog:
        return ProbedLog(self.world.log.client(self.name), self.at, self.watch)


class StreamsProcess(Process):
    """Topology, with its stores in a directory of its own."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.directory = world.directory / name
        self._old = world.directory / f"{name}.old"
        self.topology: Topology | None = None

    def start(self, disk: Disk = "kept") -> None:
        assert not self.alive
        if disk == "wiped" or (disk == "old" and not self._old.exists()):
            shutil.rmtree(self.directory, ignore_errors=True)
        elif disk == "old":
            shutil.rmtree(self.directory, ignore_errors=True)
            shutil.copytree(self._old, self.directory)
        self.life += 1
        config = StreamsConfig(
            data=self.directory,
            client_id=self.name,
            names=self.world.names,
            rules=self.world.stream_rules,
            timers_per_pass_max=self.world.timers_per_pass_max,
            clock_mode=self.world.clock_mode,
            log_has_clock=self.world.log_has_clock,
            standby=self.name in self.world.standby,
            check=True,
            threads=False,
        )
        try:
            self.topology = Topology(config, self.clock, self.log(), ProbedEnvironment(self.at))
        except Crashed:
            self._die()
        except LogUnavailable as error:
            self.world.note(f"{self.name} does not start: {error}")
            self._die()
        else:
            self.alive = True
            self.world.note(f"{self.name} starts (disk {disk})")

    def step(self) -> None:
        if not self.running:
            return
        assert self.topology is not None
        try:
            done = self.topology.run_once()
        except Crashed:
            self._die()
        except LogError as error:
            self.world.gave_up(self, error)
            self._die()
        else:
            if done.committed:
                self.world.note(f"{self.name} committed")

    def crash(self) -> None:
        if self.alive:
            self.world.note(f"{self.name} dies")
            self._die()

    def stop(self) -> None:
        """As asked to: everything is committed and released."""
        if not self.running:
            return
        assert self.topology is not None
        self.world.note(f"{self.name} stops")
        self.world.leaves(self)
        try:
            self.topology.close()
        except Crashed:
            pass
        except LogError as error:
            self.world.gave_up(self, error)
        self._die()

    def checkpoint(self) -> None:
        """What the disk is now may be found again after a later crash (power failed, nothing was synced since)."""
        if not self.alive:
            return
        assert self.topology is not None
        shutil.rmtree(self._old, ignore_errors=True)
        self._old.mkdir(parents=True)
        for number, store in self.topology.holdings.stores().items():
            store.checkpoint(self._old / f"partition-{number}")

    def store(self, partition: int) -> PartitionStore:
        assert self.topology is not None
        return self.topology.partitions[partition].store

    def _die(self) -> None:
        self.alive = self.frozen = False
        self.owned.clear()
        self.world.died(self)
        topology, self.topology = self.topology, None
        if topology is not None:
            topology.abandon()  # nothing is flushed, and nothing is told to the log


class WorkerProcess(Process):
    """WorkerCore, with an executor that talks to the world's endpoint."""

    def __init__(self, world: "World", name: str, queue: str = "default", capacity: int = 8) -> None:
        super().__init__(world, name)
        self.queue = queue
        self.capacity = capacity
        self.core: WorkerCore | None = None
        self.executor: FakeExecutor | None = None
        self._ids = 0
        self.stopping = False

    def start(self) -> None:
        assert not self.alive
        self.life += 1
        self.stopping = False
        executor = FakeExecutor(self.world.endpoint, self.name, self.life, self.clock, self.capacity)
        config = CoreConfig(
            queue=self.queue,
            worker=self.name,
            topics=self.world.names,
            window_max=self.world.window_max,
            hold_bytes_max=self.world.hold_bytes_max,
            drain_s=self.world.drain_s,
        )
        self.executor = executor
        try:
            self.core = WorkerCore(
                config,
                self.clock,
                self.log(),
                executor,
                self.world.worker_rules,
                new_id=self._new_id,
                while_waiting=self._while_waiting,
            )
        except Crashed:
            self._die()
            return
        executor.ended = self.core.ended
        self.alive = True
        self.world.note(f"{self.name} starts")

    def step(self) -> None:
        if not self.running:
            return
        assert self.core is not None
        assert self.executor is not None
        self.executor.pump()
        had_left = self.core.has_left
        try:
            self.core.run_once()
            if self.core.has_left and not had_left:
                self.world.leaves(self)
            if self.stopping and self.core.is_drained():
                if not self.core.has_left:
                    self.world.leaves(self)
                self.core.close()
                self.world.note(f"{self.name} has stopped")
                self._die()
        except Crashed:
            self._die()
        except LogUnavailable:
            pass  # the next pass goes on

    def crash(self) -> None:
        if self.alive:
            self.world.note(f"{self.name} dies")
            self._die()

    def stop(self) -> None:
        """Begin the drain; its steps end it."""
        if self.running and not self.stopping:
            assert self.core is not None
            self.world.note(f"{self.name} is asked to stop")
            self.stopping = True
            self.core.stop()

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self.name}.{self._ids}"

    def _while_waiting(self, seconds: float) -> None:
        """Time passes, and everybody else goes on, while this worker waits for its claims to come back."""
        assert self.executor is not None
        self.world.advance(max(1, round(seconds * 1000)))
        for each in self.world.streams.values():
            each.step()
        self.executor.pump()

    def _die(self) -> None:
        self.alive = self.frozen = False
        self.owned.clear()
        if self.executor is not None:
            self.executor.die()
        self.world.died(self)
        self.core = self.executor = None
