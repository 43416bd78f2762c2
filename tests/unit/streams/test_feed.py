"""One reader for many partitions: each follower gets what is its own, in order, and nobody suffers for another."""

from collections.abc import Iterator

import pytest

from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import OffsetOutOfRange, Record, TopicPartition, TopicSpec, UnknownTopic
from tocsin.streams import feed as feed_module
from tocsin.streams.feed import Feed, OwnReader, Source

TOPIC = "state"


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog(FakeClock())
    made.create_topics([TopicSpec(name=TOPIC, partitions=3, retention_ms=1_000)])
    return made


@pytest.fixture
def feed(log: MemoryLog) -> Iterator[Feed]:
    made = Feed(log)
    yield made
    made.close()


def at(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


def put(log: MemoryLog, number: int, *values: bytes) -> None:
    producer = log.producer()
    for value in values:
        producer.produce(TOPIC, key=b"k", value=value, partition=number)
    producer.flush(1.0)


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_each_gets_the_records_of_its_partition_in_order(log: MemoryLog, feed: Feed) -> None:
    put(log, 0, b"a", b"b")
    put(log, 1, b"c")
    one, two = feed.follow(at(0), 0), feed.follow(at(1), 0)
    assert [b"a", b"b"] == values(one.poll(10, 0.0))
    assert 2 == one.position
    assert [b"c"] == values(two.poll(10, 0.0))
    put(log, 0, b"d")
    assert [] == two.poll(10, 0.0)
    assert [b"d"] == values(one.poll(10, 0.0))


def test_a_position_is_behind_what_was_fetched_and_not_taken(log: MemoryLog, feed: Feed) -> None:
    put(log, 0, b"a", b"b", b"c")
    share = feed.follow(at(0), 0)
    assert [b"a"] == values(share.poll(1, 0.0))
    assert 1 == share.position
    assert [b"b", b"c"] == values(share.poll(5, 0.0))
    assert 3 == share.position


def test_a_position_steps_over_what_is_not_shown(log: MemoryLog, feed: Feed) -> None:
    producer = log.transactional_producer("t")
    producer.init()
    producer.begin()
    producer.produce(TOPIC, partition=0, key=b"k", value=b"aborted")
    producer.abort()
    share = feed.follow(at(0), 0)
    assert [] == share.poll(10, 0.0)
    assert 2 == share.position


def test_there_is_a_reader_while_somebody_follows_and_none_else(log: MemoryLog, feed: Feed) -> None:
    assert not feed.readers
    one, two = feed.follow(at(0), 0), feed.follow(at(1), 0)
    reader = feed.readers[-1]
    assert {at(0), at(1)} == reader.assigned()
    one.close()
    assert {at(1)} == reader.assigned()
    two.close()
    two.close()
    assert not feed.readers
    again = feed.follow(at(1), 0)
    put(log, 1, b"a")
    assert [b"a"] == values(again.poll(10, 0.0))


def test_one_that_takes_nothing_is_paused_and_goes_on_where_it_was(
    log: MemoryLog, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "BUFFERED_MAX", 3)
    monkeypatch.setattr(feed_module, "FETCH_MAX", 4)
    put(log, 0, *[b"%d" % number for number in range(20)])
    slow, fast = feed.follow(at(0), 0), feed.follow(at(1), 0)
    for number in range(10):
        put(log, 1, b"%d" % number)
        assert [b"%d" % number] == values(fast.poll(1, 0.0) or fast.poll(1, 0.0) or fast.poll(1, 0.0))
    assert len(slow.records) <= 3 + 4
    taken: list[bytes | None] = []
    for _ in range(40):
        taken += values(slow.poll(2, 0.0))
    assert [b"%d" % number for number in range(20)] == taken


def test_an_offset_that_is_gone_is_told_to_whose_it_is_and_the_others_read_on(
    log: MemoryLog, feed: Feed
) -> None:
    put(log, 0, b"gone", b"gone, too")
    log.broker.clock.advance(5_000)  # type: ignore[attr-defined]
    log.run_maintenance_once()
    put(log, 0, b"kept")
    put(log, 1, b"a")
    lost, other = feed.follow(at(0), 0), feed.follow(at(1), 0)
    assert [b"a"] == values(other.poll(10, 0.0) or other.poll(10, 0.0))
    with pytest.raises(OffsetOutOfRange):
        lost.poll(10, 0.0)
    lost.close()
    again = feed.follow(at(0), log.begin_offset(at(0)))
    assert [b"kept"] == values(again.poll(10, 0.0))


def test_an_unknown_partition_is_refused(feed: Feed) -> None:
    with pytest.raises(UnknownTopic):
        feed.follow(at(9), 0)


def test_a_reader_of_ones_own_does_the_same(log: MemoryLog) -> None:
    put(log, 0, b"a", b"b")
    source: Source = OwnReader(log, at(0), 1)
    assert [b"b"] == values(source.poll(10, 0.0))
    assert 2 == source.position
    source.close()
