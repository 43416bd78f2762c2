"""Everything that goes wrong, drawn from a seeded source, each with its end."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.sim.processes import Disk, Process, WorkerProcess
from tests.sim.world import World
from tocsin.log.memory import CommitFault

WORKERS: Final = {
    "crash worker": 3, "crash worker at": 3, "stop worker": 2, "freeze worker": 3, "cut worker": 3, "lag worker": 4,
    "hold reports": 2, "lose acknowledgement": 1, "duplicate reports": 2, "worker clock": 1,
}  # fmt: skip
PROCESSORS: Final = {
    "crash streams": 3, "crash streams at": 4, "stop streams": 2, "freeze streams": 2, "cut streams": 2,
    "lag streams": 3, "fail commit": 4, "duplicate commands": 1, "checkpoint": 2, "streams clock": 1, "compact": 1,
}  # fmt: skip
FAULTS: Final[dict[str, dict[str, int]]] = {
    "calm": {},
    "workers": WORKERS,
    "processors": PROCESSORS,
    "storm": {**WORKERS, **PROCESSORS, "all clocks": 1, "blackout": 1},
}
DISKS: Final[tuple[Disk, ...]] = ("kept", "wiped", "old")
HALF_DONE_WORKER: Final = (
    "before a record for tocsin.outcomes",
    "after a record for tocsin.outcomes",
    "after a record for tocsin.outcomes",
    "before an offset commit",
    "after an offset commit",
)
HALF_DONE_STREAMS: Final = (
    "after begin",
    "after a record for tocsin.due",
    "after a record for tocsin.control",
    "after a record for tocsin.runs",
    "after a record for tocsin.journal",
    "after send_offsets",
    "after commit",
    "after commit",
    "after a store's batch",
    "after a store's batch",
    "after init",
)
COMMIT_FAULTS: Final[tuple[CommitFault, ...]] = ("aborted", "unknown_committed", "unknown_aborted", "fenced")


class Faults:
    """Strikes, and ends what it has begun."""

    def __init__(self, world: World, random: Random, weights: dict[str, int]) -> None:
        self._world = world
        self._random = random
        self._weights = weights
        self._ends: list[tuple[int, int, Callable[[], None]]] = []
        self._begun = 0

    def strike(self) -> None:
        kind = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        what, _, whom = kind.partition(" ")
        match kind:
            case "crash worker" | "crash streams":
                self._crash(self._some(whom))
            case "crash worker at" | "crash streams at":
                self._crash_at(self._some(whom.partition(" ")[0]))
            case "stop worker" | "stop streams":
                self._stop(self._some(whom))
            case "freeze worker" | "freeze streams":
                self._freeze(self._some(whom))
            case "cut worker" | "cut streams":
                self._cut(self._some(whom))
            case "lag worker" | "lag streams":
                self._lag(self._some(whom), whom)
            case "worker clock" | "streams clock":
                self._clock(self._some(what))
            case _:
                self._log(kind)

    def end_what_is_over(self) -> None:
        now_ms = self._world.now_ms()
        over = [each for each in self._ends if each[0] <= now_ms]
        self._ends = [each for each in self._ends if each[0] > now_ms]
        for _, _, end in sorted(over, key=lambda each: each[:2]):
            end()

    def stop(self) -> None:
        """Everything heals."""
        for _, _, end in sorted(self._ends, key=lambda each: each[:2]):
            end()
        self._ends.clear()
        for process in self._world.processes.values():
            process.crash_after = None
            process.crash_where = lambda _where: False
            process.clock.error_ms = 0
        self._world.forget_planned_faults()

    def _until(self, ms: int, end: Callable[[], None]) -> None:
        self._begun += 1
        self._ends.append((self._world.now_ms() + ms, self._begun, end))

    def _some(self, kind: str) -> Process:
        processes = self._world.workers if kind == "worker" else self._world.streams
        return self._random.choice(list(processes.values()))

    # --- of one process

    def _crash(self, process: Process) -> None:
        self._world.crash(process.name)
        self._start_later(process)

    def _start_later(self, process: Process) -> None:
        random = self._random
        disk = random.choices(DISKS, (6, 1, 2))[0]
        self._until(
            random.choice((50, 1_000, 4_000, 9_000, 20_000)),
            lambda: self._world.start(process.name, disk=disk),
        )

    def _crash_at(self, process: Process) -> None:
        """At one of the calls that it makes soon, or at a call after which something is half done."""
        if self._random.random() < 0.4:
            process.crash_after = self._random.randrange(1, 25)
        else:
            worker = isinstance(process, WorkerProcess)
            chosen = self._random.choice(HALF_DONE_WORKER if worker else HALF_DONE_STREAMS)
            process.crash_where = lambda where: where.startswith(chosen)
        self._start_later(process)

    def _stop(self, process: Process) -> None:
        self._world.stop(process.name)
        self._start_later(process)

    def _freeze(self, process: Process) -> None:
        if process.alive and not process.frozen:
            life = process.life
            self._world.freeze(process.name)
            self._until(self._some_time(), lambda: self._thaw(process, life))

    def _thaw(self, process: Process, life: int) -> None:
        if process.life == life and process.frozen:
            self._world.thaw(process.name)

    def _cut(self, process: Process) -> None:
        if not process.cut and process.alive:
            self._world.cut(process.name)
            self._until(self._some_time(), lambda: self._world.heal(process.name))

    def _lag(self, process: Process, kind: str) -> None:
        names = self._world.names
        queue = process.queue if isinstance(process, WorkerProcess) else "default"
        topics = {
            "worker": (names.due(queue), names.due_now(queue), names.control(queue)),
            "streams": (names.outcomes, names.commands, names.jobs),
        }
        topic = self._random.choice(topics[kind])
        self._world.note(f"{process.name} lags in {topic}")
        self._world.log.faults.lag(process.name, topic)
        times = 2 if topic == names.outcomes else 1  # beyond a lease
        self._until(times * self._some_time(), lambda: self._world.log.faults.release(process.name, topic))

    def _clock(self, process: Process) -> None:
        error_ms = self._random.choice((-12_000, -2_000, -400, 400, 2_000, 12_000))
        self._world.note(f"the clock of {process.name} is off by {error_ms}")
        process.clock.error_ms = error_ms
        self._until(self._some_time(), lambda: setattr(process.clock, "error_ms", 0))

    def _some_time(self) -> int:
        return self._random.choice((200, 1_500, 4_500, 7_000, 12_000))

    # --- of the log

    def _log(self, kind: str) -> None:
        world, random = self._world, self._random
        faults, names = world.log.faults, world.names
        world.note(kind)
        match kind:
            case "hold reports":
                name = random.choice(list(world.workers))
                faults.hold_sends(name)
                self._until(self._some_time(), lambda: faults.release_sends(name))
            case "lose acknowledgement":
                faults.lose_acknowledgement_of_next(names.outcomes, random.randrange(1, 4))
            case "duplicate reports":
                faults.duplicate_next(names.outcomes, random.randrange(1, 6))
            case "duplicate commands":
                faults.duplicate_next(random.choice((names.commands, names.jobs)), random.randrange(1, 3))
            case "fail commit":
                fault = random.choice(COMMIT_FAULTS)
                name = random.choice(list(world.streams))
                world.note(f"the next commit of {name} will be {fault}")
                faults.fail_next_commit(fault, name)
            case "checkpoint":
                for each in world.streams.values():
                    each.checkpoint()
            case "compact":
                world.log.run_maintenance_once()
            case "blackout":
                for process in world.processes.values():
                    self._crash(process)
            case "all clocks":
                step_ms = random.choice((-8_000, -1_500, -300, 300, 1_500, 8_000))
                world.note(f"all clocks step by {step_ms}")
                world.clock.step_wall(step_ms)
            case _:
                raise AssertionError(kind)
