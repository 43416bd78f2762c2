"""What a log and its clients do to each other on a bad day. Kafka does all of this; a simulation makes it happen."""

import pytest

from tests.contract.members import Member, begun, clock_of, let_pass, pair
from tests.contract.rigs import MemoryRig, everything, values
from tocsin.log.memory import ClientCrashed, MemoryLog
from tocsin.log.port import (
    Delivery,
    LogUnavailable,
    OffsetCommit,
    OutcomeUnknown,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
)

# --- lag ------------------------------------------------------------------------------------------------------------


def test_a_client_that_lags_in_one_topic_sees_the_others(faulty: MemoryRig) -> None:
    slow, quick = faulty.topic(), faulty.topic()
    where = TopicPartition(slow, 0)
    reader = faulty.process("worker").reader()
    reader.assign({where: 0, TopicPartition(quick, 0): 0})
    faulty.put(slow, b"before")
    faulty.memory.faults.lag("worker", slow)
    faulty.put(slow, b"unseen")
    faulty.put(quick, b"seen")
    assert {b"before", b"seen"} == set(values(reader.poll(10, 0)))
    assert reader.poll(10, 0) == []
    assert reader.position(where) == 1
    assert faulty.process("worker").end_offset(where, "committed") == 2  # asked, not fetched
    assert [b"before", b"unseen"] == values(everything(faulty.process("another"), slow))
    faulty.memory.faults.release("worker", slow)
    assert [b"unseen"] == values(reader.poll(10, 0))


def test_a_lag_ends_at_its_time(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    reader = faulty.process("worker").reader()
    reader.assign({TopicPartition(topic, 0): 0})
    faulty.memory.faults.lag("worker", topic, until_s=clock_of(faulty).monotonic_s() + 2)
    faulty.put(topic, b"1")
    clock_of(faulty).advance(1_999)
    assert reader.poll(10, 0) == []
    clock_of(faulty).advance(1)
    assert [b"1"] == values(reader.poll(10, 0))


# --- appends --------------------------------------------------------------------------------------------------------


def test_a_plain_record_can_arrive_twice(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    faulty.memory.faults.duplicate_next(topic)
    first, second = faulty.put(topic, b"twice", b"once")
    assert [b"twice", b"twice", b"once"] == values(everything(faulty.log, topic))
    assert (first.offset, second.offset) == (1, 2)


def test_a_plain_record_can_stand_though_its_producer_is_told_that_it_failed(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    deliveries: list[Delivery] = []
    producer = faulty.log.producer()
    faulty.memory.faults.lose_acknowledgement_of_next(topic)
    producer.produce(topic, key=b"k", value=b"v", on_delivery=deliveries.append)
    producer.poll()
    assert isinstance(deliveries[0].error, LogUnavailable)
    assert [b"v"] == values(everything(faulty.log, topic))


# --- commits of transactions ----------------------------------------------------------------------------------------


def test_a_definite_abort_leaves_a_usable_producer(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    producer = begun(faulty.log)
    producer.produce(topic, partition=0, key=b"k", value=b"dropped")
    faulty.memory.faults.fail_next_commit("aborted")
    with pytest.raises(TransactionAborted):
        producer.commit()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"kept")
    producer.commit()
    assert [b"kept"] == values(everything(faulty.log, topic))


def test_a_commit_whose_answer_is_lost_stands(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    producer = begun(faulty.log)
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.memory.faults.fail_next_commit("unknown_committed")
    with pytest.raises(OutcomeUnknown):
        producer.commit()
    assert [b"v"] == values(everything(faulty.log, topic))
    with pytest.raises(ProducerFenced):
        producer.begin()


def test_a_commit_that_never_arrived_leaves_the_transaction_open_until_it_is_fenced(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic()
    producer = begun(faulty.log)
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.memory.faults.fail_next_commit("unknown_aborted")
    with pytest.raises(OutcomeUnknown):
        producer.commit()
    faulty.put(topic, b"behind")
    assert everything(faulty.log, topic) == []
    faulty.log.transactional_producer("streams-0").init()
    assert [b"behind"] == values(everything(faulty.log, topic))


def test_a_commit_can_meet_another_producer_with_its_id(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    producer = begun(faulty.process("streams"))
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.memory.faults.fail_next_commit("fenced", client="somebody else")
    faulty.memory.faults.fail_next_commit("fenced", client="streams")
    with pytest.raises(ProducerFenced):
        producer.commit()
    assert everything(faulty.log, topic) == []


def test_the_log_ends_an_open_transaction_after_half_a_minute_and_fences_its_producer(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic()
    producer = begun(faulty.log)
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.put(topic, b"behind")
    clock_of(faulty).advance(30_000)
    assert everything(faulty.log, topic) == []
    clock_of(faulty).advance(1)
    assert [b"behind"] == values(everything(faulty.log, topic))
    with pytest.raises(ProducerFenced):
        producer.commit()


def test_committed_offsets_wait_for_a_transaction_that_carries_one(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    faulty.put(topic, b"1", b"2", partition=0)
    member = Member(faulty.process("streams"), topic, "streams")
    member.poll()
    producer = begun(faulty.process("streams"))
    producer.send_offsets({here: OffsetCommit(1)}, member.consumer.metadata())
    with pytest.raises(LogUnavailable):
        member.consumer.committed([here, there], 0)
    assert {there: None} == member.consumer.committed([there], 0)
    member.consumer.close()
    after = Member(faulty.process("after"), topic, "after")
    assert after.poll() == []  # where to begin is not known yet
    assert after.owned == {0, 1}
    producer.commit()  # the generation was checked when the offsets were sent, and is not checked again
    assert [b"2"] == values(after.poll())


# --- crashes --------------------------------------------------------------------------------------------------------


def test_a_crash_leaves_the_transaction_open_and_the_member_in_its_group(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    _, two = pair(faulty, topic)
    producer = begun(faulty.process("one"))
    producer.produce(topic, partition=1, key=b"k", value=b"v")
    faulty.memory.faults.crash("one")
    faulty.put(topic, b"behind", partition=1)
    let_pass(faulty, 5.5, two)
    assert len(two.owned) == 1
    let_pass(faulty, 1, two)
    assert two.owned == {0, 1}
    assert everything(faulty.log, topic, 1) == []
    faulty.process("one").transactional_producer("streams-0").init()
    assert [b"behind"] == values(everything(faulty.log, topic, 1))


def test_what_a_crashed_client_had_in_its_queue_is_gone(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    producer = faulty.process("worker").producer()
    faulty.memory.faults.hold_sends("worker")
    producer.produce(topic, key=b"k", value=b"v")
    faulty.memory.faults.crash("worker")
    next_life = faulty.process("worker").producer()
    next_life.produce(topic, key=b"k", value=b"w")
    assert next_life.flush(1) == 0
    assert [b"w"] == values(everything(faulty.log, topic))


def test_the_objects_of_a_crashed_client_are_of_no_use(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    log = faulty.process("worker")
    member, reader, producer = Member(log, topic, "worker"), log.reader(), log.producer()
    transactional = begun(log)
    faulty.memory.faults.crash("worker")
    for use in (
        member.poll,
        lambda: reader.poll(1, 0),
        lambda: producer.produce(topic, key=b"k", value=b"v"),
        transactional.commit,
        log.topics,
    ):
        with pytest.raises(ClientCrashed):
            use()
    assert faulty.process("worker") is not log
    assert faulty.process("worker") is faulty.process("worker")
    assert faulty.process("worker").topics() == {topic: 1}


# --- oracles --------------------------------------------------------------------------------------------------------


def test_a_test_can_see_everything_that_stands_in_a_partition(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    log: MemoryLog = faulty.memory
    faulty.put(topic, b"plain")
    for value, commit in ((b"committed", True), (b"aborted", False)):
        producer = begun(faulty.process("streams"))
        producer.produce(topic, partition=0, key=b"k", value=value)
        if commit:
            producer.commit()
        else:
            producer.abort()
    begun(faulty.process("streams"), "another").produce(topic, partition=0, key=b"k", value=b"open")
    stored = log.records(topic, 0)
    assert [
        (0, b"plain", "committed", None, "main"),
        (1, b"committed", "committed", "streams-0", "streams"),
        (2, None, "marker", "streams-0", "streams"),
        (3, b"aborted", "aborted", "streams-0", "streams"),
        (4, None, "marker", "streams-0", "streams"),
        (5, b"open", "open", "another", "streams"),
    ] == [(s.record.offset, s.record.value, s.state, s.transactional_id, s.client) for s in stored]
    assert {TopicPartition(topic, 0): stored} == log.snapshot()


def test_compaction_forgets_aborted_records_and_waits_for_open_ones(faulty: MemoryRig) -> None:
    topic = faulty.topic(cleanup="compact")
    aborted = begun(faulty.log)
    aborted.produce(topic, partition=0, key=b"a", value=b"aborted")
    aborted.abort()
    faulty.put(topic, b"1", b"2", key=b"a")
    waiting = begun(faulty.log)
    waiting.produce(topic, partition=0, key=b"a", value=b"3")
    faulty.age(0)
    assert [b"2", b"3"] == [s.record.value for s in faulty.memory.records(topic, 0) if s.state != "marker"]
    waiting.commit()
    faulty.age(0)
    assert [b"3"] == [s.record.value for s in faulty.memory.records(topic, 0) if s.state != "marker"]
    assert faulty.log.end_offset(TopicPartition(topic, 0), "committed") == 6
