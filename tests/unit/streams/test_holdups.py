"""A process that takes over, or follows, while a part of the log does not answer: what it works on already is not held up."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.streams.crowd import Crowd, assert_nothing_is_lost_or_doubled, crowd_in, define_many
from tests.unit.streams.driver import NAMES
from tocsin.log.port import EventLog, Isolation, LogUnavailable, TopicPartition, TransactionalProducer
from tocsin.streams.store import StoreEnvironment

PARTITIONS = 4


class Partly:
    """EventLog of which a part does not answer."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.no_ends_of: set[str] = set()
        self.unfenced: set[str] = set()
        self.tried = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        asked = list(partitions)
        if self.no_ends_of & {where.topic for where in asked}:
            self.tried += 1
            raise LogUnavailable("the leader is being elected")
        return self._log.end_offsets(asked, isolation)

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        if transactional_id in self.unfenced:
            self.tried += 1
            raise LogUnavailable("its coordinator is away")
        return self._log.transactional_producer(transactional_id)


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def enter_partly(crowd: Crowd, name: str, *, standby: bool = False) -> Partly:
    log = Partly(crowd.log.client(name))
    crowd.enter(name, standby=standby, log=cast(EventLog, log))
    return log


def dispatched_meanwhile(crowd: Crowd, ms: int) -> int:
    before = len(crowd.dispatched())
    crowd.run(ms)
    return len(crowd.dispatched()) - before


def test_who_cannot_be_fenced_is_tried_each_second_and_holds_up_nothing_else(crowd: Crowd) -> None:
    log = enter_partly(crowd, "s1")
    crowd.settle()
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    own = crowd.owned("s1")
    log.unfenced.add("tocsin.streams.s0")
    crowd.kill("s0")
    crowd.run(8_000)
    log.tried = 0
    share = dispatched_meanwhile(crowd, 5_000)
    assert own == crowd.owned("s1")
    assert share >= 5 * 12 * len(own) // PARTITIONS // 2
    assert 4 <= log.tried <= 6
    assert "its coordinator is away" in crowd.status("s1").log_trouble
    assert {"fencing"} == {each.stage for each in crowd.status("s1").owned if each.partition not in own}
    log.unfenced.clear()
    crowd.settle()
    crowd.run(2_000)
    assert "" == crowd.status("s1").log_trouble
    assert_nothing_is_lost_or_doubled(crowd)


def test_a_restore_that_cannot_begin_is_tried_again_and_holds_up_nothing_else(crowd: Crowd) -> None:
    log = enter_partly(crowd, "s1")
    crowd.settle()
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    own = crowd.owned("s1")
    log.no_ends_of.add(NAMES.state)
    crowd.kill("s0")
    crowd.run(8_000)
    log.tried = 0
    assert dispatched_meanwhile(crowd, 5_000) >= 5 * 12 * len(own) // PARTITIONS // 2
    assert own == crowd.owned("s1")
    assert 8 <= log.tried <= 11
    assert "elected" in crowd.status("s1").log_trouble
    log.no_ends_of.clear()
    crowd.settle()
    crowd.run(2_000)
    assert "" == crowd.status("s1").log_trouble
    assert_nothing_is_lost_or_doubled(crowd)


def test_a_standby_that_cannot_read_goes_on_working_and_follows_later(crowd: Crowd) -> None:
    log = enter_partly(crowd, "s0", standby=True)
    crowd.settle()
    log.no_ends_of.add(NAMES.state)
    crowd.enter("s1")
    crowd.settle()
    define_many(crowd)
    crowd.run(1_000)
    log.tried = 0
    assert dispatched_meanwhile(crowd, 6_000) >= 6 * 12
    assert log.tried <= 5
    followed = crowd.status("s0").followed
    assert followed
    assert not any(each.nearly_current for each in followed)
    log.no_ends_of.clear()
    crowd.run(4_000)
    assert all(each.nearly_current for each in crowd.status("s0").followed)
    assert_nothing_is_lost_or_doubled(crowd)
