"""EventLog: topics, offsets, times."""

import pytest

from tests.contract.rigs import Rig, everything, values
from tocsin.log.port import TopicMismatch, TopicPartition, TopicSpec, UnknownTopic


def test_a_topic_exists_once_it_was_created(rig: Rig) -> None:
    made = rig.own("made")
    rig.log.create_topics([TopicSpec(name=made, partitions=3)])
    assert rig.log.topics()[made] == 3
    assert rig.log.partitions(made) == 3


def test_creating_a_topic_again_as_it_is_changes_nothing(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    rig.put(topic, b"kept")
    rig.log.create_topics([TopicSpec(name=topic, partitions=2)])
    assert rig.log.end_offset(TopicPartition(topic, 0), "committed") == 1


def test_a_topic_with_another_count_of_partitions_is_a_mismatch(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    with pytest.raises(TopicMismatch, match=topic):
        rig.log.create_topics([TopicSpec(name=topic, partitions=3)])
    assert rig.log.partitions(topic) == 2


def test_a_topic_with_another_configuration_is_a_mismatch(rig: Rig) -> None:
    topic = rig.topic(cleanup="delete")
    with pytest.raises(TopicMismatch, match=topic):
        rig.log.create_topics([TopicSpec(name=topic, partitions=1, cleanup="compact")])


def test_a_topic_that_nobody_created_is_unknown(rig: Rig) -> None:
    nowhere = TopicPartition("nobody.made.it", 0)
    with pytest.raises(UnknownTopic, match=r"nobody\.made\.it"):
        rig.log.partitions("nobody.made.it")
    with pytest.raises(UnknownTopic):
        rig.log.begin_offset(nowhere)
    with pytest.raises(UnknownTopic):
        rig.log.end_offset(nowhere, "committed")
    with pytest.raises(UnknownTopic):
        rig.log.offset_for_time(nowhere, 0)


def test_a_partition_beyond_the_count_is_unknown(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    with pytest.raises(UnknownTopic):
        rig.log.end_offset(TopicPartition(topic, 2), "uncommitted")


def test_an_empty_partition_begins_and_ends_at_zero(rig: Rig) -> None:
    where = TopicPartition(rig.topic(), 0)
    assert rig.log.begin_offset(where) == 0
    assert rig.log.end_offset(where, "committed") == 0
    assert rig.log.end_offset(where, "uncommitted") == 0


def test_the_end_is_one_past_the_last_record(rig: Rig) -> None:
    topic = rig.topic()
    *_, last = rig.put(topic, b"1", b"2", b"3")
    assert rig.log.end_offset(TopicPartition(topic, 0), "uncommitted") == last.offset + 1
    assert rig.log.end_offset(TopicPartition(topic, 0), "committed") == last.offset + 1


def test_the_offset_for_a_time_is_that_of_the_first_record_at_or_after_it(ageing: Rig) -> None:
    topic = ageing.topic()
    where = TopicPartition(topic, 0)
    (first,) = ageing.put(topic, b"1")
    ageing.age(1_000)
    second, third = ageing.put(topic, b"2", b"3")
    log = ageing.log
    assert log.offset_for_time(where, first.timestamp_ms - 1) == first.offset
    assert log.offset_for_time(where, first.timestamp_ms) == first.offset
    assert log.offset_for_time(where, first.timestamp_ms + 1) == second.offset
    assert log.offset_for_time(where, second.timestamp_ms) == second.offset
    assert log.offset_for_time(where, third.timestamp_ms + 1) == log.end_offset(where, "uncommitted")


def test_what_was_acknowledged_survives_a_restart(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    rig.put(topic, b"plain", partition=1)
    producer = rig.log.transactional_producer(rig.own("survivor"))
    producer.init()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"transactional", headers=(("h", b"x"),))
    producer.commit()
    before = [everything(rig.log, topic, number, at_least=1) for number in (0, 1)]
    rig.restart()
    assert rig.log.partitions(topic) == 2
    assert before == [everything(rig.log, topic, number) for number in (0, 1)]
    assert [[b"transactional"], [b"plain"]] == [values(records) for records in before]
