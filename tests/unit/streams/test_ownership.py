"""Who owns what: whatever comes and goes, the inputs of a partition are read by one process, all of them, or by none."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.unit.streams.crowd import Crowd, crowd_in
from tests.unit.streams.driver import NAMES, T0, job
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import Topology

EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")
PARTITIONS = 5


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def inputs_of(topology: Topology) -> tuple[set[int], set[int], set[int]]:
    """The partitions of which it reads commands, outcomes, jobs."""
    found = topology._consumers.assigned()
    return found[NAMES.commands], found[NAMES.outcomes], found[NAMES.jobs]


def assert_no_inputs_are_split(crowd: Crowd) -> None:
    for name, topology in crowd.living.items():
        if name not in crowd.frozen:
            commands, outcomes, jobs = inputs_of(topology)
            assert outcomes == jobs == crowd.owned(name), name
            assert outcomes <= commands, name


@pytest.mark.parametrize("seed", range(6))
def test_no_partitions_inputs_are_split_after_any_sequence_of_joins_and_leaves(
    crowd: Crowd, seed: int
) -> None:
    random = Random(seed)
    for number in range(8):
        crowd.define(job(EVERY_SECOND, id=f"j{number}", overlap=ALLOW))
    crowd.enter("s0")
    names = [f"s{number}" for number in range(4)]
    for _ in range(12):
        name = random.choice(names)
        if name not in crowd.living:
            crowd.enter(name, standby=random.random() < 0.4)
        elif len(crowd.living) > 1 and name in crowd.frozen:
            crowd.frozen.discard(name)
        elif len(set(crowd.living) - crowd.frozen) > 1:
            match random.choice(("leave", "kill", "freeze")):
                case "leave":
                    crowd.leave(name)
                case "kill":
                    crowd.kill(name)
                case _:
                    crowd.frozen.add(name)
        for _ in range(random.choice((1, 5, 40, 300))):
            crowd.step(25)
            assert_no_inputs_are_split(crowd)
    crowd.frozen.clear()
    crowd.settle(60_000)
    for _ in range(20):
        crowd.step(25)
    assert_no_inputs_are_split(crowd)
    owned = [inputs_of(each)[1] for each in crowd.living.values()]
    assert list(range(PARTITIONS)) == sorted(number for each in owned for number in each)
    found = crowd.dispatched()
    assert len(found) == len(set(found))
    decided = {
        (event.job_id, nominal_ms)
        for event in crowd.run_events()
        for nominal_ms in range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
    }
    first = {name: min(at for key, at in decided if key == name) for name, _ in decided}
    last_ms = crowd.clock.now_ms() - 1_000
    assert 8 == len(first)
    for name, from_ms in first.items():
        assert {(name, at) for at in range(from_ms, last_ms, 1_000)} <= decided


def test_the_partitions_of_a_process_that_stops_need_nobody_to_be_fenced(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    crowd.enter("s1")
    crowd.settle()
    before = crowd.epoch("s0")
    assert crowd.owned("s0")
    assert crowd.owned("s1")
    crowd.leave("s0")
    crowd.settle()
    assert before == crowd.epoch("s0")
    assert set(range(PARTITIONS)) == crowd.owned("s1")


def test_what_is_kept_through_a_rebalance_is_not_opened_again(crowd: Crowd) -> None:
    first = crowd.enter("s0")
    crowd.settle()
    before = dict(first.partitions)
    crowd.enter("s1")
    crowd.settle()
    kept = crowd.owned("s0")
    assert 0 < len(kept) < PARTITIONS
    assert all(before[number] is first.partitions[number] for number in kept)


def test_a_commit_that_is_refused_around_a_rebalance_is_made_again_without_opening_anything(
    crowd: Crowd,
) -> None:
    """The generation has changed between the pass and its commit: abortable, and no reason to start anew."""
    first = crowd.enter("s0")
    crowd.settle()
    before, epoch = dict(first.partitions), crowd.epoch("s0")
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    crowd.run(2_000)
    crowd.log.faults.fail_next_commit("aborted", "s0")
    crowd.enter("s1")
    crowd.settle()
    assert all(before[number] is each for number, each in first.partitions.items())
    assert epoch == crowd.epoch("s0")
    crowd.run(3_000)
    found = crowd.dispatched()
    assert len(found) == len(set(found)) > 3
