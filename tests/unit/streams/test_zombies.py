"""A process that was frozen, or whose commits fail while it gives partitions up: nothing of it is lost, nothing done twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.crowd import (
    Crowd,
    assert_nothing_is_lost_or_doubled,
    crowd_in,
    define_many,
    leave_open,
    open_records,
)
from tests.unit.streams.driver import NAMES
from tocsin.log.memory.faults import CommitFault
from tocsin.log.port import LogUnavailable
from tocsin.streams.store import StoreEnvironment

PARTITIONS = 4
FAULTS: tuple[CommitFault, ...] = ("aborted", "unknown_aborted", "unknown_committed", "fenced")


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def test_one_that_was_frozen_beyond_its_session_adds_nothing_and_works_again(crowd: Crowd) -> None:
    for name in ("s0", "s1"):
        crowd.enter(name)
        crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    crowd.frozen.add("s0")
    crowd.run(9_000)
    assert set(range(PARTITIONS)) == crowd.owned("s1")
    crowd.frozen.discard("s0")
    before = {where: len(records) for where, records in crowd.log.snapshot().items()}
    crowd.living["s0"].run_once()
    after = {where: len(records) for where, records in crowd.log.snapshot().items()}
    assert before == after
    assert set() == crowd.owned("s0")
    crowd.settle()
    assert crowd.owned("s0")
    crowd.run(3_000)
    assert_nothing_is_lost_or_doubled(crowd)


@pytest.mark.parametrize("heals", [True, False])
def test_one_that_is_frozen_between_its_pass_and_its_commit_commits_nothing(
    crowd: Crowd, heals: bool
) -> None:
    """The stale generation, and the fence, each keep it from that."""
    for name in ("s0", "s1"):
        crowd.enter(name)
        crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    frozen = crowd.living["s0"]
    commit = frozen.transactions.commit
    outcomes = []

    def thawed(*arguments: object) -> object:
        crowd.frozen.add("s0")
        crowd.run(9_000)
        crowd.frozen.discard("s0")
        frozen.transactions.commit = commit  # type: ignore[method-assign]
        if not heals:
            crowd.log.faults.cut("s0")
        outcomes.append(commit(*arguments))  # type: ignore[arg-type]
        crowd.log.faults.heal("s0")
        return outcomes[-1]

    frozen.transactions.commit = thawed  # type: ignore[method-assign, assignment]
    while not outcomes:
        crowd.step(25)
    assert outcomes[0] in ("void", "unknown")
    crowd.settle()
    crowd.run(3_000)
    assert_nothing_is_lost_or_doubled(crowd)


@pytest.mark.parametrize("fault", FAULTS)
def test_released_stands_only_with_the_commit_that_says_so(crowd: Crowd, fault: CommitFault) -> None:
    """Every kind of failure while partitions are given up, by a stop and by a rebalance."""
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    crowd.enter("s1")
    crowd.run(40)
    for _ in range(3):
        crowd.log.faults.fail_next_commit(fault, "s0")
    crowd.settle(60_000)
    crowd.run(1_000)
    assert_nothing_is_lost_or_doubled(crowd)
    crowd.log.faults._commits.clear()
    for _ in range(2):
        crowd.log.faults.fail_next_commit(fault, "s0")
    crowd.leave("s0")
    crowd.settle(60_000)
    crowd.run(2_000)
    assert_nothing_is_lost_or_doubled(crowd)


def test_a_refused_release_is_made_once_more_so_that_nobody_has_to_be_fenced(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    crowd.run(1_000)
    before = crowd.epoch("s0")
    crowd.log.faults.fail_next_commit("aborted", "s0")
    crowd.leave("s0")
    crowd.enter("s1")
    crowd.settle()
    assert before == crowd.epoch("s0")


def test_a_partition_that_is_given_up_before_it_was_claimed_is_not_released(crowd: Crowd) -> None:
    """Whoever wrote last is still named, and fenced by the next."""
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    leave_open(crowd, "s0")
    second = crowd.enter("s1")
    second.holdings.restore = lambda rebuild: False  # type: ignore[method-assign]
    crowd.run(8_000)
    assert PARTITIONS == len(second.partitions)
    crowd.leave("s1")
    crowd.enter("s2")
    crowd.settle()
    crowd.run(2_000)
    assert not open_records(crowd)
    assert_nothing_is_lost_or_doubled(crowd)


def test_who_waits_at_one_that_loses_the_partition_is_told_to_ask_elsewhere(crowd: Crowd) -> None:
    first = crowd.enter("s0")
    crowd.settle()
    waiting = {number: first.applied(NAMES.jobs, number, 1_000_000) for number in range(PARTITIONS)}
    crowd.enter("s1")
    crowd.settle()
    assert crowd.owned("s1") == {number for number, future in waiting.items() if future.done()}
    for number in crowd.owned("s1"):
        with pytest.raises(LogUnavailable, match="is moving"):
            waiting[number].result(0)
