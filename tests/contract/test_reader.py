"""Reader: partitions assigned by hand, each from an explicit offset."""

import pytest

from tests.contract.rigs import PATIENCE_S, Rig, take, take_up_to, until, values
from tocsin.clock import SystemClock
from tocsin.log.port import OffsetOutOfRange, Record, TopicPartition, UnknownTopic


def test_a_reader_reads_from_the_offset_it_was_given(rig: Rig) -> None:
    topic = rig.topic()
    *_, last = rig.put(topic, b"1", b"2", b"3")
    reader = rig.log.reader()
    reader.assign({TopicPartition(topic, 0): last.offset})
    assert [b"3"] == values(take(reader, 1))


def test_a_reader_without_partitions_reads_nothing(rig: Rig) -> None:
    assert rig.log.reader().poll(10, 0.01) == []


def test_an_unknown_partition_cannot_be_assigned(rig: Rig) -> None:
    topic = rig.topic()
    reader = rig.log.reader()
    with pytest.raises(UnknownTopic):
        reader.assign({TopicPartition("nobody.made.it", 0): 0})
    with pytest.raises(UnknownTopic):
        reader.add(TopicPartition(topic, 1), 0)


def test_records_come_in_order_within_a_partition_and_not_more_at_once_than_asked_for(rig: Rig) -> None:
    topic = rig.topic(partitions=3)
    for number in range(3):
        rig.put(topic, *(b"%d" % value for value in range(40)), partition=number)
    reader = rig.log.reader()
    reader.assign({TopicPartition(topic, number): 0 for number in range(3)})
    found: list[Record] = []

    def step() -> None:
        records = reader.poll(7, 0.2)
        assert len(records) <= 7
        found.extend(records)

    until(lambda: len(found) == 120, step)
    for number in range(3):
        mine = [record for record in found if record.partition == number]
        assert [b"%d" % value for value in range(40)] == values(mine)


def test_no_partition_is_starved_by_another(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    rig.put(topic, *(b"many" for _ in range(200)), partition=0)
    rig.put(topic, b"single", partition=1)
    reader = rig.log.reader()
    reader.assign({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    where = TopicPartition(topic, 0)

    def rewind_and_poll() -> None:
        if reader.position(where) > 100:
            reader.seek(where, 0)  # so that partition 0 always has more
        seen.update(record.partition for record in reader.poll(5, 0.2))

    seen: set[int] = set()
    until(lambda: 1 in seen, rewind_and_poll)


def test_assigning_again_reads_exactly_the_new_partitions(rig: Rig) -> None:
    topic = rig.topic(partitions=3)
    for number in range(3):
        rig.put(topic, b"%d" % number, partition=number)
    one, two, three = (TopicPartition(topic, number) for number in range(3))
    reader = rig.log.reader()
    reader.assign({one: 0, two: 0})
    assert {b"0", b"1"} == set(values(take(reader, 2)))
    reader.assign({two: 0, three: 0})
    assert frozenset({two, three}) == reader.assigned()
    assert {b"1", b"2"} == set(values(take(reader, 2)))  # two was sought back
    assert reader.poll(10, 0.01) == []


def test_partitions_are_added_and_removed_one_by_one(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    rig.put(topic, b"0", partition=0)
    rig.put(topic, b"1", partition=1)
    reader = rig.log.reader()
    reader.add(one, 0)
    assert [b"0"] == values(take(reader, 1))
    reader.add(two, 0)
    assert [b"1"] == values(take(reader, 1))
    reader.remove(one)
    assert frozenset({two}) == reader.assigned()
    rig.put(topic, b"unseen", partition=0)
    rig.put(topic, b"seen", partition=1)
    assert [b"seen"] == values(take(reader, 1))


def test_a_reader_can_be_sought_back_and_forth(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    deliveries = rig.put(topic, b"1", b"2", b"3")
    reader = rig.log.reader()
    reader.assign({where: 0})
    assert [b"1", b"2", b"3"] == values(take(reader, 3))
    reader.seek(where, deliveries[1].offset)
    assert deliveries[1].offset == reader.position(where)
    assert [b"2", b"3"] == values(take(reader, 2))
    reader.seek(where, deliveries[2].offset)
    assert [b"3"] == values(take(reader, 1))


def test_a_paused_partition_is_not_read_until_it_is_resumed(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    rig.put(topic, b"0", partition=0)
    rig.put(topic, b"1", partition=1)
    reader = rig.log.reader()
    reader.assign({one: 0, two: 0})
    reader.pause([one])
    assert [b"1"] == values(take(reader, 1))
    assert reader.poll(10, 0.05) == []
    assert reader.position(one) == 0
    assert frozenset({one, two}) == reader.assigned()
    reader.resume([one])
    assert [b"0"] == values(take(reader, 1))


def test_a_partition_that_is_assigned_again_is_not_paused(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    rig.put(topic, b"1")
    reader = rig.log.reader()
    reader.assign({where: 0})
    reader.pause([where])
    reader.remove(where)
    reader.add(where, 0)
    assert [b"1"] == values(take(reader, 1))


def test_the_position_is_the_next_offset_to_be_read(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    deliveries = rig.put(topic, b"1", b"2", b"3")
    reader = rig.log.reader()
    reader.assign({where: 0})
    assert reader.position(where) == 0
    until(lambda: reader.position(where) > 0, lambda: reader.poll(1, 0.2))
    assert deliveries[0].offset + 1 == reader.position(where)
    take_up_to(reader, deliveries[2].offset + 1, where)
    assert rig.log.end_offset(where, "committed") == reader.position(where)


def test_a_partition_that_is_not_assigned_has_no_position(rig: Rig) -> None:
    topic = rig.topic()
    reader = rig.log.reader()
    with pytest.raises(LookupError):
        reader.position(TopicPartition(topic, 0))
    with pytest.raises(LookupError):
        reader.seek(TopicPartition(topic, 0), 0)


def test_an_offset_beyond_the_end_is_out_of_range(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    rig.put(topic, b"1")
    where = TopicPartition(topic, 0)
    reader = rig.log.reader()
    reader.assign({where: 100})
    with pytest.raises(OffsetOutOfRange, match=topic):
        until(lambda: False, lambda: reader.poll(10, 0.2))
    reader.seek(where, 0)
    assert [b"1"] == values(take(reader, 1))


def test_records_of_other_partitions_are_not_lost_to_an_offset_out_of_range(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    rig.put(topic, b"1", b"2", partition=0)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = rig.log.reader()
    reader.assign({good: 0, bad: 100})
    found: list[Record] = []
    failures: list[OffsetOutOfRange] = []

    def step() -> None:
        try:
            found.extend(reader.poll(1, 0.2))
        except OffsetOutOfRange as error:
            failures.append(error)

    until(lambda: len(found) == 2 and bool(failures), step)
    assert [b"1", b"2"] == values(found)


def test_the_end_itself_is_in_range(rig: Rig) -> None:
    topic = rig.topic()
    rig.put(topic, b"1")
    where = TopicPartition(topic, 0)
    reader = rig.log.reader()
    reader.assign({where: rig.log.end_offset(where, "committed")})
    assert reader.poll(10, 0.01) == []
    rig.put(topic, b"2")
    assert [b"2"] == values(take(reader, 1))


def test_two_readers_do_not_disturb_each_other(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    rig.put(topic, b"1", b"2")
    one, two = rig.log.reader(), rig.log.reader()
    one.assign({where: 0})
    two.assign({where: 0})
    assert [b"1", b"2"] == values(take(one, 2))
    assert [b"1", b"2"] == values(take(two, 2))


def test_a_poll_does_not_wait_for_more_once_it_has_a_record(blocking: Rig) -> None:
    topic = blocking.topic()
    blocking.put(topic, b"1")
    reader = blocking.log.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    assert [b"1"] == values(reader.poll(1_000, PATIENCE_S))
    assert clock.monotonic_s() - begun_s < PATIENCE_S / 2


def test_a_poll_with_nothing_to_read_returns_when_its_time_is_up(blocking: Rig) -> None:
    topic = blocking.topic()
    reader = blocking.log.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    assert reader.poll(10, 0.05) == []
