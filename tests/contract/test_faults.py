"""What a log and its clients do to each other on a bad day. Kafka does all of this; a simulation makes it happen."""

from collections.abc import Sequence

import pytest

from tests.contract.rigs import MemoryRig, everything, values
from tocsin.clock import FakeClock
from tocsin.log.memory import ClientCrashed, MemoryLog
from tocsin.log.port import (
    Delivery,
    EventLog,
    GroupConsumer,
    LogError,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    OutcomeUnknown,
    ProducerFenced,
    Record,
    TopicPartition,
    TransactionAborted,
    TransactionalProducer,
)


class Member:
    """A group consumer of a client, with what its callbacks were told."""

    def __init__(self, log: EventLog, topic: str, client: str) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.answers: list[LogError | None] = []
        self.consumer: GroupConsumer = log.group_consumer("group", client_id=client)
        self.consumer.subscribe(
            topic,
            on_assign=lambda partitions: self._tell("assign", partitions),
            on_revoke=lambda partitions: self._tell("revoke", partitions),
            on_lost=lambda partitions: self._tell("lost", partitions),
        )

    def poll(self) -> list[Record]:
        return self.consumer.poll(10, 0)

    @property
    def owned(self) -> set[int]:
        return {where.partition for where in self.consumer.assigned()}

    def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, [where.partition for where in partitions]))


def _clock(rig: MemoryRig) -> FakeClock:
    assert isinstance(rig.clock, FakeClock)
    return rig.clock


def _let_pass(rig: MemoryRig, seconds: float, *polling: Member) -> None:
    """Time passes in steps of half a second; these members poll meanwhile."""
    for _ in range(int(seconds * 2)):
        _clock(rig).advance(500)
        for member in polling:
            member.poll()


def _pair(rig: MemoryRig, topic: str) -> tuple[Member, Member]:
    """Two members that share the topic."""
    one = Member(rig.process("one"), topic, "one")
    one.poll()
    two = Member(rig.process("two"), topic, "two")
    for _ in range(4):
        two.poll()
        one.poll()
    two.poll()
    assert (len(one.owned), len(two.owned)) == (1, 1)
    return one, two


def _transaction(log: EventLog, transactional_id: str = "streams-0") -> TransactionalProducer:
    producer = log.transactional_producer(transactional_id)
    producer.init()
    producer.begin()
    return producer


# --- frozen members -----------------------------------------------------------------------------------------------------


def test_the_partitions_of_a_frozen_member_go_to_the_others_when_its_session_ends(faulty: MemoryRig) -> None:
    one, two = _pair(faulty, faulty.topic(partitions=2))
    _let_pass(faulty, 5.5, two)
    assert len(two.owned) == 1
    _let_pass(faulty, 1, two)
    assert two.owned == {0, 1}
    assert len(one.owned) == 1  # it does not know yet


def test_a_frozen_member_learns_of_its_loss_at_its_next_poll_and_joins_again(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    one, two = _pair(faulty, topic)
    (held,) = one.owned
    _let_pass(faulty, 7, two)
    assert one.poll() == []
    assert one.told[-1] == ("lost", [held])
    with pytest.raises(NotAMember):
        one.consumer.metadata()
    _let_pass(faulty, 2, one, two)
    assert one.owned | two.owned == {0, 1}
    assert len(one.owned) == 1


def test_nothing_that_a_zombie_commits_is_accepted(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    where = TopicPartition(topic, 0)
    one, two = _pair(faulty, topic)
    _let_pass(faulty, 7, two)
    with pytest.raises(NotAMember):
        one.consumer.commit_sync({where: OffsetCommit(9)}, 1)
    one.consumer.commit({where: OffsetCommit(9)}, one.answers.append)
    producer = _transaction(faulty.process("one"))
    with pytest.raises(NotAMember):
        producer.send_offsets({where: OffsetCommit(9)}, one.consumer.metadata())
    one.poll()
    assert [NotAMember] == [type(answer) for answer in one.answers]
    assert {where: None} == two.consumer.committed([where], 1)


def test_a_zombie_that_lost_its_session_while_nobody_else_was_there_is_refused_too(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    alone = Member(faulty.process("alone"), topic, "alone")
    alone.poll()
    _clock(faulty).advance(6_001)
    with pytest.raises(NotAMember):
        alone.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(1)}, 1)


def test_an_accepted_commit_keeps_a_member_that_does_not_poll(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    one, two = _pair(faulty, topic)
    (held,) = one.owned
    for _ in range(8):
        _let_pass(faulty, 4, two)
        one.consumer.commit_sync({TopicPartition(topic, held): OffsetCommit(0)}, 1)
    assert len(two.owned) == 1
    _let_pass(faulty, 5.5, two)
    one.poll()
    assert one.told[-1][0] != "lost"


def test_the_session_is_counted_by_the_clock_that_does_not_step(faulty: MemoryRig) -> None:
    one, two = _pair(faulty, faulty.topic(partitions=2))
    _clock(faulty).step_wall(3_600_000)
    two.poll()
    _clock(faulty).step_wall(-7_200_000)
    two.poll()
    one.poll()
    assert (len(one.owned), len(two.owned)) == (1, 1)


def test_a_member_that_keeps_its_partition_is_refused_until_it_has_polled_after_a_rebalance(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic(partitions=3)
    members = [Member(faulty.process(name), topic, name) for name in ("one", "two", "three")]
    for _ in range(5):
        for member in members:
            member.poll()
    one, two, three = members
    (number,) = one.owned
    kept = TopicPartition(topic, number)
    two.consumer.close()
    one.poll()  # joins the rebalance
    three.poll()  # completes it: the generation has risen
    with pytest.raises(NotAMember):
        one.consumer.commit_sync({kept: OffsetCommit(1)}, 1)
    one.poll()
    one.consumer.commit_sync({kept: OffsetCommit(1)}, 1)


# --- cut off --------------------------------------------------------------------------------------------------------------


def test_a_member_that_is_cut_off_reads_on_what_it_had_fetched_ahead(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    member = Member(faulty.process("worker"), topic, "worker")
    member.poll()
    faulty.put(topic, b"1", b"2")
    faulty.memory.faults.cut("worker")
    faulty.put(topic, b"3")
    assert [b"1", b"2"] == values(member.poll())
    assert member.poll() == []
    faulty.memory.faults.heal("worker")
    assert [b"3"] == values(member.poll())


def test_a_member_that_is_cut_off_notices_it_after_the_log_has_given_its_partitions_away(
    faulty: MemoryRig,
) -> None:
    one, two = _pair(faulty, faulty.topic(partitions=2))
    (held,) = one.owned
    faulty.memory.faults.cut("one")
    _let_pass(faulty, 6.5, one, two)
    assert one.owned == {held}
    assert two.owned == {0, 1}  # for a while both believe that they own it
    _let_pass(faulty, 1, one, two)
    assert one.told[-1] == ("lost", [held])
    assert one.owned == set()


def test_a_short_cut_costs_nothing(faulty: MemoryRig) -> None:
    one, two = _pair(faulty, faulty.topic(partitions=2))
    faulty.memory.faults.cut("one")
    _let_pass(faulty, 4, one, two)
    faulty.memory.faults.heal("one")
    _let_pass(faulty, 10, one, two)
    assert (len(one.owned), len(two.owned)) == (1, 1)
    assert "lost" not in {what for what, _ in one.told}


def test_an_offset_commit_waits_for_a_log_that_is_out_of_reach_and_is_given_up(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    where = TopicPartition(topic, 0)
    member = Member(faulty.process("worker"), topic, "worker")
    member.poll()
    faulty.memory.faults.cut("worker")
    member.consumer.commit({where: OffsetCommit(1)}, member.answers.append)
    _let_pass(faulty, 5, member)
    assert member.answers == []
    _let_pass(faulty, 0.5, member)
    assert [LogUnavailable] == [type(answer) for answer in member.answers]
    with pytest.raises(LogUnavailable):
        member.consumer.commit_sync({where: OffsetCommit(1)}, 1)
    with pytest.raises(LogUnavailable):
        member.consumer.committed([where], 0)


def test_an_offset_commit_that_was_waiting_is_accepted_once_the_log_is_in_reach_again(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic()
    where = TopicPartition(topic, 0)
    member = Member(faulty.process("worker"), topic, "worker")
    member.poll()
    faulty.memory.faults.cut("worker")
    member.consumer.commit({where: OffsetCommit(1)}, member.answers.append)
    _let_pass(faulty, 1, member)
    faulty.memory.faults.heal("worker")
    member.poll()
    assert member.answers == [None]
    assert {where: OffsetCommit(1)} == member.consumer.committed([where], 0)


def test_nothing_can_be_asked_of_a_log_that_is_out_of_reach(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    log = faulty.process("api")
    faulty.memory.faults.cut("api")
    with pytest.raises(LogUnavailable):
        log.end_offset(TopicPartition(topic, 0), "committed")
    with pytest.raises(LogUnavailable):
        log.topics()
    with pytest.raises(LogUnavailable):
        log.transactional_producer("streams-0").init()
    faulty.memory.faults.heal("api")
    assert log.end_offset(TopicPartition(topic, 0), "committed") == 0


@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_plain_records_wait_in_the_queue_of_a_client_that_cannot_send(faulty: MemoryRig, fault: str) -> None:
    topic = faulty.topic()
    faults, deliveries = faulty.memory.faults, list[Delivery]()
    producer = faulty.process("worker").producer()
    faults.cut("worker") if fault == "cut" else faults.hold_sends("worker")
    producer.produce(topic, key=b"k", value=b"v", on_delivery=deliveries.append)
    assert producer.flush(1) == 1
    assert everything(faulty.log, topic) == []
    faults.heal("worker") if fault == "cut" else faults.release_sends("worker")
    assert producer.poll() == 1
    assert [b"v"] == values(everything(faulty.log, topic))
    assert deliveries[0].error is None


def test_a_plain_record_is_given_up_after_half_a_minute(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    deliveries: list[Delivery] = []
    producer = faulty.process("worker").producer()
    faulty.memory.faults.cut("worker")
    producer.produce(topic, key=b"k", value=b"v", on_delivery=deliveries.append)
    _clock(faulty).advance(30_001)
    assert producer.poll() == 1
    assert isinstance(deliveries[0].error, LogUnavailable)
    assert (deliveries[0].offset, deliveries[0].timestamp_ms) == (-1, -1)


def test_a_transaction_that_cannot_be_committed_is_of_unknown_outcome_and_stays_open(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic()
    producer = _transaction(faulty.process("streams"))
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.memory.faults.cut("streams")
    with pytest.raises(OutcomeUnknown):
        producer.commit()
    faulty.put(topic, b"behind")
    assert everything(faulty.log, topic) == []
    faulty.memory.faults.heal("streams")
    with pytest.raises(ProducerFenced):
        producer.begin()
    faulty.process("streams").transactional_producer("streams-0").init()
    assert [b"behind"] == values(everything(faulty.log, topic))


# --- lag ------------------------------------------------------------------------------------------------------------------


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
    faulty.memory.faults.lag("worker", topic, until_s=_clock(faulty).monotonic_s() + 2)
    faulty.put(topic, b"1")
    _clock(faulty).advance(1_999)
    assert reader.poll(10, 0) == []
    _clock(faulty).advance(1)
    assert [b"1"] == values(reader.poll(10, 0))


# --- appends --------------------------------------------------------------------------------------------------------------


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


# --- commits of transactions ----------------------------------------------------------------------------------------------


def test_a_definite_abort_leaves_a_usable_producer(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    producer = _transaction(faulty.log)
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
    producer = _transaction(faulty.log)
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
    producer = _transaction(faulty.log)
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
    producer = _transaction(faulty.process("streams"))
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
    producer = _transaction(faulty.log)
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    faulty.put(topic, b"behind")
    _clock(faulty).advance(30_000)
    assert everything(faulty.log, topic) == []
    _clock(faulty).advance(1)
    assert [b"behind"] == values(everything(faulty.log, topic))
    with pytest.raises(ProducerFenced):
        producer.commit()


def test_committed_offsets_wait_for_a_transaction_that_carries_one(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    faulty.put(topic, b"1", b"2", partition=0)
    member = Member(faulty.process("streams"), topic, "streams")
    member.poll()
    producer = _transaction(faulty.process("streams"))
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


# --- crashes --------------------------------------------------------------------------------------------------------------


def test_a_crash_leaves_the_transaction_open_and_the_member_in_its_group(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    _, two = _pair(faulty, topic)
    producer = _transaction(faulty.process("one"))
    producer.produce(topic, partition=1, key=b"k", value=b"v")
    faulty.memory.faults.crash("one")
    faulty.put(topic, b"behind", partition=1)
    _let_pass(faulty, 5.5, two)
    assert len(two.owned) == 1
    _let_pass(faulty, 1, two)
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
    transactional = _transaction(log)
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


# --- oracles --------------------------------------------------------------------------------------------------------------


def test_a_test_can_see_everything_that_stands_in_a_partition(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    log: MemoryLog = faulty.memory
    faulty.put(topic, b"plain")
    for value, commit in ((b"committed", True), (b"aborted", False)):
        producer = _transaction(faulty.process("streams"))
        producer.produce(topic, partition=0, key=b"k", value=value)
        if commit:
            producer.commit()
        else:
            producer.abort()
    _transaction(faulty.process("streams"), "another").produce(topic, partition=0, key=b"k", value=b"open")
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
    aborted = _transaction(faulty.log)
    aborted.produce(topic, partition=0, key=b"a", value=b"aborted")
    aborted.abort()
    faulty.put(topic, b"1", b"2", key=b"a")
    waiting = _transaction(faulty.log)
    waiting.produce(topic, partition=0, key=b"a", value=b"3")
    faulty.age(0)
    assert [b"2", b"3"] == [s.record.value for s in faulty.memory.records(topic, 0) if s.state != "marker"]
    waiting.commit()
    faulty.age(0)
    assert [b"3"] == [s.record.value for s in faulty.memory.records(topic, 0) if s.state != "marker"]
    assert faulty.log.end_offset(TopicPartition(topic, 0), "committed") == 6
