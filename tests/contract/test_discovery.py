"""What anybody may ask of a log without reading it: the ends of many partitions at once, and who is in a group."""

import pytest

from tests.contract.rigs import Rig, until
from tocsin.log.port import EventLog, GroupConsumer, TopicPartition, UnknownTopic


def _member(log: EventLog, topic: str, client_id: str) -> GroupConsumer:
    consumer = log.group_consumer(f"group.of.{topic}", client_id=client_id)
    consumer.subscribe(topic, on_assign=lambda _: None, on_revoke=lambda _: None, on_lost=lambda _: None)
    return consumer


def _shown(log: EventLog, topic: str) -> dict[str, set[int]]:
    members = log.members(f"group.of.{topic}")
    assert len(members) == len({member.client_id for member in members})
    return {member.client_id: {where.partition for where in member.partitions} for member in members}


def _polls(*consumers: GroupConsumer) -> None:
    for consumer in consumers:
        consumer.poll(10, 0.05)


def test_the_ends_of_many_partitions_are_those_of_each(rig: Rig) -> None:
    one, two = rig.topic(partitions=2), rig.topic()
    rig.put(one, b"1", b"2", partition=1)
    rig.put(two, b"3")
    asked = [TopicPartition(one, 0), TopicPartition(one, 1), TopicPartition(two, 0)]
    for isolation in ("committed", "uncommitted"):
        ends = rig.log.end_offsets(asked, isolation)
        assert ends == {where: rig.log.end_offset(where, isolation) for where in asked}
        assert [ends[where] for where in asked] == [0, 2, 1]


def test_the_ends_of_no_partition_are_none(rig: Rig) -> None:
    assert rig.log.end_offsets([], "committed") == {}


def test_the_ends_of_an_open_transaction_are_told_apart_by_isolation(storing: Rig) -> None:
    topic = storing.topic(partitions=2)
    producer = storing.log.transactional_producer(storing.own("streams-0"))
    producer.init()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"open")
    where = TopicPartition(topic, 0)
    until(lambda: storing.log.end_offset(where, "uncommitted") == 1, lambda: None)
    asked = [where, TopicPartition(topic, 1)]
    assert list(storing.log.end_offsets(asked, "uncommitted").values()) == [1, 0]
    assert list(storing.log.end_offsets(asked, "committed").values()) == [0, 0]
    producer.abort()


def test_the_end_of_an_unknown_partition_is_refused_also_among_others(rig: Rig) -> None:
    topic = rig.topic()
    with pytest.raises(UnknownTopic):
        rig.log.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)], "uncommitted")


def test_a_group_that_nobody_joined_has_no_members(rig: Rig) -> None:
    assert rig.log.members(f"nobody.{rig.topic()}") == ()


def test_a_member_is_shown_under_its_client_id_with_what_it_owns_until_it_leaves(rig: Rig) -> None:
    topic = rig.topic(partitions=3)
    consumer = _member(rig.log, topic, "http://127.0.0.1:9100")
    until(lambda: _shown(rig.log, topic) == {"http://127.0.0.1:9100": {0, 1, 2}}, lambda: _polls(consumer))
    consumer.close()
    until(lambda: _shown(rig.log, topic) == {}, lambda: None)


def test_members_that_share_a_topic_are_shown_with_their_shares(sharing: Rig) -> None:
    topic = sharing.topic(partitions=4)
    one = _member(sharing.process("one"), topic, "one")
    until(lambda: _shown(sharing.log, topic) == {"one": {0, 1, 2, 3}}, lambda: _polls(one))
    two = _member(sharing.process("two"), topic, "two")

    def is_shared() -> bool:
        shown = _shown(sharing.log, topic)
        return {name: len(owned) for name, owned in shown.items()} == {"one": 2, "two": 2}

    until(is_shared, lambda: _polls(one, two))
    shown = _shown(sharing.log, topic)
    assert shown["one"] == {where.partition for where in one.assigned()}
    assert shown["two"] == {where.partition for where in two.assigned()}
    one.close()
    until(lambda: _shown(sharing.log, topic) == {"two": {0, 1, 2, 3}}, lambda: _polls(two))
    two.close()


def test_a_member_of_another_group_is_not_shown(rig: Rig) -> None:
    one, two = rig.topic(), rig.topic()
    consumer = _member(rig.log, one, "one")
    until(lambda: bool(_shown(rig.log, one)), lambda: _polls(consumer))
    assert _shown(rig.log, two) == {}
    consumer.close()
