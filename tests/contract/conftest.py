"""The adapters that the contract suite runs on. A further one is a line in each table that it belongs to."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.contract.rigs import EmbeddedRig, KafkaRig, MemoryRig, Rig
from tocsin.clock import FakeClock, SystemClock

ADAPTERS: dict[str, Callable[[pytest.FixtureRequest, Path], Rig]] = {
    "memory": lambda *_: MemoryRig(FakeClock()),
    "memory in real time": lambda *_: MemoryRig(SystemClock()),
    "embedded": lambda _, directory: EmbeddedRig(directory / "log"),
    "kafka": lambda request, _: KafkaRig(request.getfixturevalue("kafka_bootstrap")),
}

SHARING = ("memory", "memory in real time", "kafka")
"""The members of a group share its partitions, and rebalance (else the first one owns all of them until it leaves)."""

STORING = ("memory", "memory in real time", "kafka")
"""The records of an open transaction take offsets already (else they exist from the commit on)."""

AGEING = ("memory", "embedded")
"""A test can move the log's clock, and run what happens in the background."""

BLOCKING = ("memory in real time", "embedded", "kafka")
"""poll and wait take real time when there is nothing to return (a simulation's log never waits)."""

FAULTY = ("memory",)
"""The log can be made to misbehave."""


def _each(adapters: Iterable[str]) -> list[ParameterSet]:
    marks = {"kafka": pytest.mark.kafka}
    return [pytest.param(name, marks=marks.get(name, ()), id=name) for name in adapters]


@pytest.fixture(params=_each(ADAPTERS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from _made(request, tmp_path)


@pytest.fixture(params=_each(SHARING))
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from _made(request, tmp_path)


@pytest.fixture(params=_each(STORING))
def storing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from _made(request, tmp_path)


@pytest.fixture(params=_each(AGEING))
def ageing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from _made(request, tmp_path)


@pytest.fixture(params=_each(BLOCKING))
def blocking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from _made(request, tmp_path)


@pytest.fixture(params=_each(FAULTY))
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryRig]:
    for made in _made(request, tmp_path):
        assert isinstance(made, MemoryRig)
        yield made


def _made(request: pytest.FixtureRequest, directory: Path) -> Iterator[Rig]:
    made = ADAPTERS[request.param](request, directory)
    yield made
    made.close()
