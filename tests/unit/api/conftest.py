from collections.abc import Iterator

import pytest

from tests.unit.api.fakes import FakeNode, fake_node
from tests.unit.api.owners import KEYS, START_MS, Cluster, Owner, World, cluster, key_in, run_of
from tocsin.api.cluster import client as client_module
from tocsin.api.cluster import directory as directory_module
from tocsin.api.cluster import gather as gather_module
from tocsin.schemas.records import DeadLetter


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with fake_node() as made:
        yield made


@pytest.fixture(scope="session")
def owners() -> Iterator[dict[str, Owner]]:
    """Started once: what they know is each test's own."""
    made = {name: Owner(World(), name) for name in "abc"}
    yield made
    for owner in made.values():
        owner.ask_to_stop()
    for owner in made.values():
        owner.stop()


@pytest.fixture
def world() -> World:
    made = World()
    made.add(*KEYS, "other/a", "other/b")
    made.runs += [run_of(key, "one", event_ms=START_MS + at) for at, key in enumerate(KEYS)]
    made.runs += [run_of(KEYS[0], f"n{n}", event_ms=START_MS + 100 + n, status="failed") for n in range(7)]
    made.dead += [
        DeadLetter(run=run_of(key, "dead", status="failed", seq=seq), body=b"\0\xff", died_ms=START_MS)
        for seq, key in enumerate([*KEYS[::3], KEYS[0]], 5)
    ]
    return made


@pytest.fixture
def three(owners: dict[str, Owner], world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Changes of the group are seen at once."""
    monkeypatch.setattr(directory_module, "REFRESH_MIN_S", 0.05)
    monkeypatch.setattr(directory_module, "REFRESH_IDLE_S", 0.1)
    monkeypatch.setattr(directory_module, "LOOK_AROUND_S", 0.02)
    monkeypatch.setattr(directory_module, "TROUBLE_S", 0.0)
    monkeypatch.setattr(gather_module, "HEALTH_S", 30.0)
    monkeypatch.setattr(client_module, "ANSWER_S", 30.0)
    with cluster(owners, world) as made:
        assert made.queries.get_job(key_in(0)) is not None
        yield made


@pytest.fixture
def settled(owners: dict[str, Owner], world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The group was looked at, and is looked at again only when something is not as expected."""
    monkeypatch.setattr(directory_module, "REFRESH_IDLE_S", 1_000_000)
    monkeypatch.setattr(client_module, "ANSWER_S", 30.0)
    with cluster(owners, world) as made:
        assert made.queries.get_job(key_in(0)) is not None
        yield made
