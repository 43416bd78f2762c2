"""TransactionalProducer: all or nothing, over topics, partitions and offsets."""

import pytest

from tests.contract.rigs import Rig, everything, take, take_up_to, until, values
from tocsin.log.port import (
    RECORD_BYTES_MAX,
    EventLog,
    GroupConsumer,
    GroupMetadata,
    NotAMember,
    OffsetCommit,
    ProducerFenced,
    RecordTooLarge,
    TopicPartition,
    TransactionAborted,
    TransactionalProducer,
    UnknownTopic,
)


def _producer(rig: Rig, log: EventLog | None = None, name: str = "streams-0") -> TransactionalProducer:
    producer = (log or rig.log).transactional_producer(rig.own(name))
    producer.init()
    return producer


def _member(rig: Rig, topic: str) -> GroupConsumer:
    consumer = rig.log.group_consumer(f"group.of.{topic}", client_id="member")
    consumer.subscribe(topic, on_assign=_ignore, on_revoke=_ignore, on_lost=_ignore)
    until(lambda: bool(consumer.assigned()), lambda: consumer.poll(1, 0.2))
    return consumer


def _ignore(_: object) -> None: ...


def test_a_producer_knows_its_transactional_id(rig: Rig) -> None:
    assert rig.log.transactional_producer("streams-7").transactional_id == "streams-7"


def test_nothing_of_a_transaction_is_visible_before_its_commit_and_all_of_it_after(rig: Rig) -> None:
    first, second = rig.topic(partitions=2), rig.topic()
    producer = _producer(rig)
    producer.begin()
    producer.produce(first, partition=0, key=b"k", value=b"1")
    producer.produce(first, partition=1, key=b"k", value=b"2")
    producer.produce(second, partition=0, key=b"k", value=b"3")
    assert [] == everything(rig.log, first, 0) + everything(rig.log, first, 1) + everything(rig.log, second)
    producer.commit()
    places = ((first, 0), (first, 1), (second, 0))
    found = [everything(rig.log, topic, number, at_least=1) for topic, number in places]
    assert [[b"1"], [b"2"], [b"3"]] == [values(records) for records in found]


def test_a_receipt_names_the_last_record_of_each_partition(rig: Rig) -> None:
    topic = rig.topic(partitions=3)
    producer = _producer(rig)
    producer.begin()
    for value in (b"1", b"2", b"3"):
        producer.produce(topic, partition=0, key=b"k", value=value)
    producer.produce(topic, partition=2, key=b"k", value=b"4")
    receipt = producer.commit()
    last = {
        number: everything(rig.log, topic, number, at_least=count)[-1] for number, count in ((0, 3), (2, 1))
    }
    expected = {TopicPartition(topic, n): (record.offset, record.timestamp_ms) for n, record in last.items()}
    assert expected == dict(receipt.last)


def test_an_aborted_transaction_leaves_nothing_and_its_producer_goes_on(rig: Rig) -> None:
    topic = rig.topic()
    producer = _producer(rig)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"dropped")
    producer.abort()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"kept")
    producer.commit()
    assert [b"kept"] == values(everything(rig.log, topic, at_least=1))


def test_aborting_without_a_transaction_does_nothing(rig: Rig) -> None:
    producer = _producer(rig)
    producer.abort()
    producer.begin()
    producer.abort()
    producer.abort()


def test_an_empty_transaction_commits(rig: Rig) -> None:
    producer = _producer(rig)
    producer.begin()
    assert dict(producer.commit().last) == {}
    producer.begin()
    producer.abort()


def test_closing_a_producer_leaves_nothing_of_its_open_transaction(rig: Rig) -> None:
    topic = rig.topic()
    producer = _producer(rig)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"dropped")
    producer.close()
    rig.put(topic, b"kept")
    assert [b"kept"] == values(everything(rig.log, topic, at_least=1))


def test_records_of_a_transaction_keep_their_order_and_content(rig: Rig) -> None:
    topic = rig.topic()
    producer = _producer(rig)
    producer.begin()
    for number in range(300):
        producer.produce(topic, partition=0, key=b"%d" % number, value=None, headers=(("n", b"%d" % number),))
    producer.commit()
    records = everything(rig.log, topic, at_least=300)
    assert [b"%d" % number for number in range(300)] == [record.key for record in records]
    assert [(("n", b"%d" % number),) for number in range(300)] == [record.headers for record in records]
    assert [None] * 300 == values(records)


def test_one_transaction_follows_another(rig: Rig) -> None:
    topic = rig.topic()
    producer = _producer(rig)
    for number in range(20):
        producer.begin()
        producer.produce(topic, partition=0, key=b"k", value=b"%d" % number)
        producer.commit()
    records = everything(rig.log, topic, at_least=20)
    assert [b"%d" % number for number in range(20)] == values(records)
    assert sorted({record.offset for record in records}) == [record.offset for record in records]


def test_what_is_refused_in_a_transaction_is_refused_before_it_is_sent(rig: Rig) -> None:
    topic = rig.topic()
    producer = _producer(rig)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"1")
    with pytest.raises(UnknownTopic):
        producer.produce("nobody.made.it", partition=0, key=b"k", value=b"v")
    with pytest.raises(UnknownTopic):
        producer.produce(topic, partition=1, key=b"k", value=b"v")
    with pytest.raises(RecordTooLarge):
        producer.produce(topic, partition=0, key=b"k", value=b"x" * RECORD_BYTES_MAX)
    producer.produce(topic, partition=0, key=b"k", value=b"2")
    producer.commit()
    assert [b"1", b"2"] == values(everything(rig.log, topic, at_least=2))


# --- fencing ----------------------------------------------------------------------------------------------------------


def test_init_fences_the_earlier_producer_and_aborts_what_it_left_open(rig: Rig) -> None:
    topic = rig.topic()
    old = _producer(rig, rig.process("old"))
    old.begin()
    old.produce(topic, partition=0, key=b"k", value=b"old")
    new = _producer(rig, rig.process("new"))
    rig.put(topic, b"behind it")
    assert [b"behind it"] == values(everything(rig.log, topic, at_least=1))
    with pytest.raises(ProducerFenced):
        old.commit()
    new.begin()
    new.produce(topic, partition=0, key=b"k", value=b"new")
    new.commit()
    assert [b"behind it", b"new"] == values(everything(rig.log, topic, at_least=2))


def test_a_fenced_producer_stays_fenced(rig: Rig) -> None:
    topic = rig.topic()
    old = _producer(rig, rig.process("old"))
    _producer(rig, rig.process("new"))

    def attempt() -> None:
        old.begin()
        old.produce(topic, partition=0, key=b"k", value=b"v")
        old.commit()

    for _ in range(2):
        with pytest.raises(ProducerFenced):
            attempt()
    assert [] == everything(rig.log, topic)


def test_a_fenced_producer_aborts_in_silence_and_learns_of_it_later(rig: Rig) -> None:
    topic = rig.topic()
    old = _producer(rig, rig.process("old"))
    old.begin()
    old.produce(topic, partition=0, key=b"k", value=b"old")
    _producer(rig, rig.process("new"))
    old.abort()

    def attempt() -> None:
        old.begin()
        old.produce(topic, partition=0, key=b"k", value=b"v")
        old.commit()

    with pytest.raises(ProducerFenced):
        attempt()
    assert [] == everything(rig.log, topic)


def test_producers_with_other_ids_are_not_fenced(rig: Rig) -> None:
    topic = rig.topic()
    one, two = (
        _producer(rig, rig.process("one"), "streams-1"),
        _producer(rig, rig.process("two"), "streams-2"),
    )
    for producer in (one, two):
        producer.begin()
        producer.produce(topic, partition=0, key=b"k", value=producer.transactional_id.encode())
    two.commit()
    one.commit()
    names = {rig.own("streams-1").encode(), rig.own("streams-2").encode()}
    assert names == set(values(everything(rig.log, topic, at_least=2)))


def test_a_transactional_id_goes_on_after_a_restart(rig: Rig) -> None:
    topic = rig.topic()
    _producer(rig).close()
    rig.restart()
    producer = _producer(rig)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    producer.commit()
    assert [b"v"] == values(everything(rig.log, topic, at_least=1))


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_transaction(rig: Rig) -> None:
    inputs, outputs = rig.topic(partitions=2), rig.topic()
    member = _member(rig, inputs)
    rig.put(inputs, b"1", b"2", b"3")
    here, other = TopicPartition(inputs, 0), TopicPartition(outputs, 0)
    producer = _producer(rig)
    producer.begin()
    producer.produce(outputs, partition=0, key=b"k", value=b"v")
    producer.send_offsets({here: OffsetCommit(2, "with words"), other: OffsetCommit(0)}, member.metadata())
    producer.commit()
    assert {here: OffsetCommit(2, "with words"), other: OffsetCommit(0)} == member.committed(
        [here, other], 30.0
    )
    member.close()


def test_offsets_of_an_aborted_transaction_are_not_committed(rig: Rig) -> None:
    topic = rig.topic()
    member = _member(rig, topic)
    rig.put(topic, b"1", b"2")
    where = TopicPartition(topic, 0)
    member.commit_sync({where: OffsetCommit(1)}, 30.0)
    producer = _producer(rig)
    producer.begin()
    producer.send_offsets({where: OffsetCommit(2)}, member.metadata())
    producer.abort()
    assert {where: OffsetCommit(1)} == member.committed([where], 30.0)
    member.close()


def test_a_stale_member_cannot_send_offsets_and_the_transaction_can_be_aborted(rig: Rig) -> None:
    topic = rig.topic()
    member = _member(rig, topic)
    now = member.metadata()
    stale = GroupMetadata(
        group=now.group, member=now.member, generation=now.generation - 1, opaque=now.opaque
    )
    producer = _producer(rig)
    where = TopicPartition(topic, 0)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"dropped")
    with pytest.raises(NotAMember):
        producer.send_offsets({where: OffsetCommit(1)}, stale)
    producer.abort()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"kept")
    producer.send_offsets({where: OffsetCommit(0)}, now)
    producer.commit()
    assert [b"kept"] == values(take(member, 1))
    assert {where: OffsetCommit(0)} == member.committed([where], 30.0)
    member.close()


def test_a_commit_after_refused_offsets_is_a_definite_abort(rig: Rig) -> None:
    topic = rig.topic()
    member = _member(rig, topic)
    now = member.metadata()
    stale = GroupMetadata(
        group=now.group, member=now.member, generation=now.generation - 1, opaque=now.opaque
    )
    producer = _producer(rig)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"dropped")
    with pytest.raises(NotAMember):
        producer.send_offsets({TopicPartition(topic, 0): OffsetCommit(1)}, stale)
    with pytest.raises(TransactionAborted):
        producer.commit()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"kept")
    producer.commit()
    assert [b"kept"] == values(everything(rig.log, topic, at_least=1))
    member.close()


def test_a_member_that_left_cannot_send_offsets(rig: Rig) -> None:
    topic = rig.topic()
    member = _member(rig, topic)
    left = member.metadata()
    member.close()
    producer = _producer(rig)
    producer.begin()
    with pytest.raises(NotAMember):
        producer.send_offsets({TopicPartition(topic, 0): OffsetCommit(1)}, left)
    producer.abort()


# --- the last stable offset ---------------------------------------------------------------------------------------------


def test_records_behind_an_open_transaction_are_hidden_until_it_ends(storing: Rig) -> None:
    topic = storing.topic()
    where = TopicPartition(topic, 0)
    storing.put(topic, b"before")
    producer = _producer(storing)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"inside")
    until(lambda: storing.log.end_offset(where, "uncommitted") == 2, lambda: None)
    storing.put(topic, b"behind")
    assert storing.log.end_offset(where, "committed") == 1
    assert storing.log.end_offset(where, "uncommitted") == 3
    assert [b"before"] == values(everything(storing.log, topic, at_least=1))
    producer.commit()
    assert [b"before", b"inside", b"behind"] == values(everything(storing.log, topic, at_least=3))


def test_an_uncommitted_reader_sees_open_and_aborted_records(storing: Rig) -> None:
    topic = storing.topic()
    where = TopicPartition(topic, 0)
    producer = _producer(storing)
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"aborted")
    # What has not been sent when the transaction is aborted is not sent at all.
    until(lambda: storing.log.end_offset(where, "uncommitted") == 1, lambda: None)
    producer.abort()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"open")
    reader = storing.log.reader("uncommitted")
    reader.assign({where: 0})
    assert [b"aborted", b"open"] == values(take(reader, 2))
    producer.commit()
    assert [b"open"] == values(everything(storing.log, topic, at_least=1))


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
def test_a_reader_reaches_every_end_whatever_stands_there(rig: Rig, isolation: str) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    producer = _producer(rig)
    for value, commit in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        producer.begin()
        producer.produce(topic, partition=0, key=b"k", value=value)
        if commit:
            producer.commit()
        else:
            producer.abort()
    reader = rig.log.reader("committed" if isolation == "committed" else "uncommitted")
    reader.assign({where: 0})
    found = values(take_up_to(reader, rig.log.end_offset(where, "uncommitted"), where))
    assert [b"1", b"3"] == [value for value in found if value in (b"1", b"3")]
    assert reader.poll(10, 0) == []
