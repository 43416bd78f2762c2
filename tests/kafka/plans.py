"""What one round of chaos does, chosen by its seed alone: the same seed is the same plan."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from tests.kafka import load

SPAN_S: Final = 25.0
"""How long faults go on; what begins in it may end after it."""
WORKERS: Final = 2

Deed = Literal["kill", "freeze", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From `at_s` on, for `for_s`: dead, frozen, or (restart: SIGTERM) away."""

    at_s: float
    for_s: float
    deed: Deed
    target: str

    def __str__(self) -> str:
        return f"{self.deed} {self.target} @{self.at_s:.1f}+{self.for_s:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something asked of the API in the midst of it: a trigger, or the definition of a job."""

    at_s: float
    trigger: bool
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    standby: tuple[bool, ...]
    """One for each streams process."""
    faults: tuple[Fault, ...]
    requests: tuple[Request, ...]
    jobs: int

    @property
    def targets(self) -> tuple[str, ...]:
        streams = tuple(f"streams-{number + 1}" for number in range(len(self.standby)))
        return (*streams, *(f"worker-{number + 1}" for number in range(WORKERS)))

    def __str__(self) -> str:
        faults = ", ".join(map(str, self.faults))
        return f"{len(self.standby)} streams ({sum(self.standby)} standby), {self.jobs} jobs; {faults}"


def plan(seed: int, *, span_s: float = SPAN_S, broker: bool = True) -> Plan:
    """`broker`: whether it may be harmed (one that others use may not)."""
    chance = Random(seed)
    # The first one is none: somebody has to be there for a standby to follow.
    standby = (False, *(chance.random() < 0.4 for _ in range(chance.randrange(3))))
    drawn = Plan(seed=seed, standby=standby, faults=(), requests=(), jobs=chance.randint(16, 32))
    faults = [_fault(chance, drawn.targets, span_s, broker) for _ in range(chance.randint(3, 6))]
    requests = [
        Request(at_s=round(chance.uniform(0, span_s), 1), trigger=chance.random() < 0.5, number=number)
        for number in range(chance.randint(4, 12))
    ]
    return Plan(
        seed=seed,
        standby=standby,
        faults=tuple(sorted(faults, key=lambda each: each.at_s)),
        requests=tuple(sorted(requests, key=lambda each: each.at_s)),
        jobs=drawn.jobs,
    )


def _fault(chance: Random, roles: tuple[str, ...], span_s: float, broker: bool) -> Fault:
    at_s = round(chance.uniform(0.5, span_s), 1)
    kind = chance.random()
    if kind < 0.2 and broker:
        deed: Deed = chance.choice(("kill", "kill", "freeze"))
        return Fault(at_s=at_s, for_s=round(chance.uniform(0.5, 6.0), 1), deed=deed, target="broker")
    target = "api" if kind > 0.95 else chance.choice(roles)
    deed = chance.choice(("kill", "kill", "freeze", "restart"))
    # Around the session timeout of 6 s: sometimes noticed, sometimes not.
    for_s = chance.uniform(1.0, 11.0) if deed == "freeze" else chance.uniform(0.1, 8.0)
    return Fault(at_s=at_s, for_s=round(for_s, 1), deed=deed, target=target)


def documents(chosen: Plan, url: str) -> list[dict[str, Any]]:
    """The jobs of the round; the kinds that may skip have `overlap` other than allow."""
    chance = Random(chosen.seed * 7919 + 1)
    return [_document(chance, url, f"job-{number}") for number in range(chosen.jobs)]


def late_document(chosen: Plan, url: str, number: int) -> dict[str, Any]:
    """A job that is defined while things break."""
    chance = Random(chosen.seed * 7919 + 1_000 + number)
    return _document(chance, url, f"late-{number}")


def _document(chance: Random, url: str, name: str) -> dict[str, Any]:
    phase_ms = chance.randrange(1_000)
    schedules: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: load.every(f"{chance.randint(1, 6)}s", phase_ms),
        lambda: load.every(f"{chance.randint(1, 3)}s", phase_ms),
        lambda: {"cron": f"*/{chance.randint(1, 5)} * * * * *"},
        lambda: {"delay": f"{chance.randint(1, 40)}s"},
        lambda: load.every("1m", chance.randrange(60) * 1_000 + phase_ms),
    )
    paths = (
        "ok",
        "ok",
        "ok",
        f"slow/{chance.randint(50, 400)}",
        f"slow/{chance.randint(1_000, 4_000)}",
        "fail/1",
        "fail/2",
    )
    return load.job(
        name,
        f"{url}/{chance.choice(paths)}",
        chance.choice(schedules)(),
        overlap=chance.choice(("allow", "allow", "skip")),
        priority=chance.choice(("normal", "normal", "high")),
    )
