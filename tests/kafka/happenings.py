"""What was done to whom, and when: the judge explains second executions by it."""

from dataclasses import dataclass, field
from typing import Final, Literal

from tocsin.clock import Clock, SystemClock

Kind = Literal["streams", "worker", "api", "broker"]
Deed = Literal["start", "kill", "stop", "freeze", "thaw", "exit"]

EXPLAINING: Final[frozenset[Kind]] = frozenset(("worker", "broker"))
"""Only these may make an attempt run twice: what a streams process does is atomic, and the API executes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    at_ms: int
    kind: Kind
    name: str
    deed: Deed

    def __str__(self) -> str:
        return f"{self.deed} {self.name}"


@dataclass(slots=True)
class Happenings:
    clock: Clock = field(default_factory=SystemClock)
    all: list[Happening] = field(default_factory=list)

    def note(self, kind: Kind, name: str, deed: Deed) -> None:
        self.all.append(Happening(at_ms=self.clock.now_ms(), kind=kind, name=name, deed=deed))

    def explaining(self, from_ms: int, to_ms: int) -> Happening | None:
        """What may be the reason why an attempt that began at `from_ms` began again at `to_ms`."""
        found = [each for each in self.all if each.kind in EXPLAINING and from_ms <= each.at_ms <= to_ms]
        hard = [each for each in found if each.deed in ("kill", "freeze", "thaw", "stop")]
        return next(iter(hard), None) or self._down_at(from_ms) or next(iter(found), None)

    def _down_at(self, at_ms: int) -> Happening | None:
        """Why a worker or the broker could do nothing at this instant."""
        last: dict[str, Happening] = {}
        for each in self.all:
            if each.at_ms <= at_ms and each.kind in EXPLAINING:
                last[each.name] = each
        return next((each for each in last.values() if each.deed == "freeze" or _is_away(each)), None)


def _is_away(last: Happening) -> bool:
    """A worker goes on without its broker for a while; one that is dead itself has begun nothing."""
    return last.kind == "broker" and last.deed == "kill"
