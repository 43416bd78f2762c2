"""Producer: plain, acknowledged records."""

import pytest

from tests.contract.rigs import PATIENCE_S, Rig, everything, until, values
from tocsin.log.partitioner import partition_for
from tocsin.log.port import RECORD_BYTES_MAX, Delivery, Headers, RecordTooLarge, TopicPartition, UnknownTopic


def test_a_delivery_names_the_place_and_the_time_of_the_record(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    first, second = rig.put(topic, b"1", b"2", partition=1)
    records = everything(rig.log, topic, 1)
    assert [b"1", b"2"] == values(records)
    assert [(topic, 1, first.offset), (topic, 1, second.offset)] == [record[:3] for record in records]
    assert [first.timestamp_ms, second.timestamp_ms] == [record.timestamp_ms for record in records]
    assert first.offset < second.offset


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"key", b"value", ()),
        (b"", b"", ()),
        (None, b"no key", ()),
        (b"a tombstone", None, ()),
        (None, None, ()),
        (b"\x00\xff", b"\x00" * 100, (("name", b"content"),)),
        (b"k", b"v", (("twice", b"1"), ("twice", b"2"), ("empty", b""), ("größe", b"\xff"))),
        (b"k", None, (("if-offset", b"7"),)),
    ],
)
def test_a_record_is_read_as_it_was_written(
    rig: Rig, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    topic = rig.topic()
    rig.put(topic, value, key=key, headers=headers)
    (record,) = everything(rig.log, topic)
    assert (key, value, headers) == (record.key, record.value, record.headers)


def test_a_key_alone_goes_to_the_partition_that_the_java_client_chooses(rig: Rig) -> None:
    topic = rig.topic(partitions=5)
    deliveries: list[Delivery] = []
    producer = rig.log.producer()
    keys = [b"billing/invoice-%d" % number for number in range(50)]
    for key in keys:
        producer.produce(topic, key=key, value=b"", on_delivery=deliveries.append)
    assert producer.flush(PATIENCE_S) == 0
    placed = {record.key: number for number in range(5) for record in everything(rig.log, topic, number)}
    assert {key: partition_for(key, 5) for key in keys} == placed
    assert sorted(placed.values()) == sorted(delivery.partition for delivery in deliveries)


def test_a_record_without_a_key_goes_to_some_partition(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    producer = rig.log.producer()
    for value in (b"1", b"2", b"3"):
        producer.produce(topic, key=None, value=value)
    assert producer.flush(PATIENCE_S) == 0
    found = values(everything(rig.log, topic, 0)) + values(everything(rig.log, topic, 1))
    assert {b"1", b"2", b"3"} == set(found)


def test_deliveries_are_told_from_poll_and_flush_only(rig: Rig) -> None:
    topic = rig.topic()
    deliveries: list[Delivery] = []
    producer = rig.log.producer()
    producer.produce(topic, key=b"k", value=b"v", on_delivery=deliveries.append)
    where = TopicPartition(topic, 0)
    until(lambda: rig.log.end_offset(where, "committed") == 1, lambda: None)
    assert deliveries == []
    called: list[int] = []
    until(lambda: sum(called) == 1, lambda: called.append(producer.poll()))
    assert len(deliveries) == 1
    assert producer.poll() == 0
    assert producer.flush(0) == 0


def test_deliveries_come_in_the_order_of_their_records(rig: Rig) -> None:
    topic = rig.topic()
    told: list[tuple[int, int]] = []
    producer = rig.log.producer()
    for number in range(500):

        def on_delivery(delivery: Delivery, number: int = number) -> None:
            told.append((number, delivery.offset))

        producer.produce(topic, key=b"k", value=b"%d" % number, partition=0, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    assert list(range(500)) == [number for number, _ in told]
    assert sorted(offset for _, offset in told) == [offset for _, offset in told]
    assert [b"%d" % number for number in range(500)] == values(everything(rig.log, topic))


def test_a_callback_may_produce(rig: Rig) -> None:
    topic = rig.topic()
    producer = rig.log.producer()

    def again(_: Delivery) -> None:
        producer.produce(topic, key=b"k", value=b"second")

    producer.produce(topic, key=b"k", value=b"first", on_delivery=again)
    until(lambda: producer.flush(1.0) == 0 and len(everything(rig.log, topic)) == 2, lambda: None)
    assert [b"first", b"second"] == values(everything(rig.log, topic))


def test_an_unknown_topic_is_refused_before_anything_is_sent(rig: Rig) -> None:
    producer = rig.log.producer()
    with pytest.raises(UnknownTopic):
        producer.produce("nobody.made.it", key=b"k", value=b"v")
    topic = rig.topic(partitions=2)
    with pytest.raises(UnknownTopic):
        producer.produce(topic, key=b"k", value=b"v", partition=2)
    assert producer.flush(0) == 0


def test_a_record_of_the_largest_size_is_taken_and_a_byte_more_is_refused(rig: Rig) -> None:
    topic = rig.topic()
    rest = RECORD_BYTES_MAX - len(b"key") - len("name") - len(b"content")
    headers: Headers = (("name", b"content"),)
    rig.put(topic, b"x" * rest, headers=headers)
    producer = rig.log.producer()
    with pytest.raises(RecordTooLarge, match=str(RECORD_BYTES_MAX)):
        producer.produce(topic, key=b"key", value=b"x" * (rest + 1), partition=0, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    assert [rest] == [len(value or b"") for value in values(everything(rig.log, topic))]


def test_timestamps_are_the_logs_own(ageing: Rig) -> None:
    topic = ageing.topic()
    (first,) = ageing.put(topic, b"1")
    ageing.age(12_345)
    (second,) = ageing.put(topic, b"2")
    assert first.timestamp_ms + 12_345 == second.timestamp_ms


def test_two_producers_write_to_one_partition(rig: Rig) -> None:
    topic = rig.topic()
    one, two = rig.process("one").producer(), rig.process("two").producer()
    for number in range(20):
        (one if number % 2 else two).produce(topic, key=b"k", value=b"%d" % number)
    assert one.flush(PATIENCE_S) == 0
    assert two.flush(PATIENCE_S) == 0
    found = [int(value or b"") for value in values(everything(rig.log, topic))]
    assert list(range(0, 20, 2)) == [number for number in found if number % 2 == 0]
    assert list(range(1, 20, 2)) == [number for number in found if number % 2 == 1]
