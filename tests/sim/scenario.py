"""One seed's life: what is drawn, how it goes, and how it settles when the faults stop."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.sim.clients import Clients
from tests.sim.endpoint import Script
from tests.sim.faults import FAULTS, Faults
from tests.sim.oracle import Verdict, Violation, judge
from tests.sim.world import START_MS, World
from tocsin.schemas.records import DueRun
from tocsin.streams.core import TIMERS_PER_PASS_MAX
from tocsin.worker.offsets import WINDOW_MAX

Weather = Literal["calm", "workers", "processors", "storm"]
WEATHERS: Final[tuple[tuple[Weather, float], ...]] = (
    ("calm", 2), ("workers", 3), ("processors", 3), ("storm", 6),
)  # fmt: skip
SETTLE_MAX_MS: Final = 900_000
"""Leases, retries, start deadlines, held clocks: with all of them one after the other it is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the seed has drawn."""

    weather: Weather
    lasts_ms: int
    jobs: int
    queues: tuple[str, ...]
    act_every_ms: int
    fault_every_ms: int


def make_world(seed: int) -> tuple[World, Plan]:
    random = Random(seed)
    weather = random.choices([w for w, _ in WEATHERS], [p for _, p in WEATHERS])[0]
    streams = ("s0", "s1", "s2")[: random.choice((1, 2, 2, 3))]
    world = World(
        seed,
        partitions=random.choice((1, 1, 2, 3)),
        queue_partitions=random.choice((1, 2)),
        streams=streams,
        standby=tuple(name for name in streams if random.random() < 0.4),
        log_has_clock=random.random() < 0.75,
        workers=("w0", "w1", "w2")[: random.choice((1, 2, 2, 3))],
        timers_per_pass_max=random.choice((TIMERS_PER_PASS_MAX, TIMERS_PER_PASS_MAX, 5)),
        window_max=random.choice((WINDOW_MAX, WINDOW_MAX, 12)),
        hold_bytes_max=random.choice((1 << 20, 1 << 20, 8_000)),
        worker_capacity=random.choice((1, 2, 8, 8)),
        drain_s=random.choice((2.0, 10.0)),
        clock_mode=random.choice(("guarded", "guarded", "wall")),
    )
    queues: tuple[str, ...] = ("default",)
    if random.random() < 0.25:
        queues = ("default", "other")
        world.add_queue("other")
        world.add_worker("x0", "other")
    besieged = random.random() < 0.3  # a few jobs, and something happens to them all the time
    plan = Plan(
        weather=weather,
        lasts_ms=random.randrange(15_000, 60_000),
        jobs=random.choice((1, 1, 2)) if besieged else random.choice((1, 2, 3, 4)),
        queues=queues,
        act_every_ms=500 if besieged else random.choice((700, 2_000, 5_000, 12_000)),
        fault_every_ms=300 if besieged else random.choice((400, 800, 1_500, 4_000)),
    )
    return world, plan


def live(world: World, plan: Plan) -> None:
    """The life itself, and its settling. Raises Violation if something does not settle."""
    random = world.random
    world.endpoint.scripts = scripts(random)
    clients = Clients(world, random, plan.jobs, plan.queues, START_MS + plan.lasts_ms)
    faults = Faults(world, random, FAULTS[plan.weather])
    world.start()
    world.run(200)
    clients.begin()
    act_ms = fault_ms = world.now_ms()
    while world.now_ms() < plan.lasts_ms:
        if world.now_ms() >= act_ms:
            clients.act()
            act_ms = world.now_ms() + random.randrange(2 * plan.act_every_ms)
        if plan.weather != "calm" and world.now_ms() >= fault_ms:
            faults.strike()
            fault_ms = world.now_ms() + random.randrange(2 * plan.fault_every_ms)
        faults.end_what_is_over()
        _round(world, random, calm=plan.weather == "calm")
    faults.stop()
    settle(world)


def _round(world: World, random: Random, *, calm: bool) -> None:
    if calm:
        world.round(20)
        return
    low, high = random.choices(((1, 30), (30, 200), (200, 900)), (6, 3, 1))[0]
    world.advance(random.randrange(low, high))
    names = list(world.processes)
    random.shuffle(names)
    world.step(*(name for name in names if random.random() < 0.9))


def settle(world: World) -> None:
    """Everybody is well again: what is open ends, and nothing new begins."""
    world.note("--- the faults have stopped")
    begun_ms = world.now_ms()
    world.hurried_ms = world.wall_ms
    while not (world.is_quiet() and world.now_ms() > begun_ms + 2_000):
        passed_ms = world.now_ms() - begun_ms
        if passed_ms > SETTLE_MAX_MS:
            raise Violation("LIVE", f"not settled after {passed_ms} ms: {world.what_is_open()}")
        world.start()
        world.round(50 if passed_ms < 10_000 else 200 if passed_ms < 40_000 else 700)
    world.run(1_000, every_ms=100)


def scripts(random: Random) -> Callable[[DueRun], Script]:
    def script(_run: DueRun) -> Script:
        low, high = random.choices(((5, 80), (300, 2_500), (2_000, 15_000)), (4, 4, 2))[0]
        return Script(
            duration_ms=random.randrange(low, high),
            ending=random.choices(("succeeded", "failed", "refused"), (70, 25, 5))[0],
            begin_after_ms=random.choice((0, 0, 0, 0, 40, 1_500)),
            stops=random.random() < 0.8,
            retry_after_ms=random.choice((-1, -1, -1, 0, 3_000)),
        )

    return script


def run_seed(seed: int) -> tuple[Verdict, list[str]]:
    """Live one seed and judge it; the trace is returned, too. Raises with the trace's end as a note."""
    world, plan = make_world(seed)
    with world:
        world.note(f"{plan}")
        live(world, plan)
        world.stop(*world.streams)
        verdict = judge(world, healthy=plan.weather == "calm")
        verdict.counts[f"weather {plan.weather}"] += 1
        return verdict, world.trace
