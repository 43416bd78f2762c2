"""Members that freeze, are cut off, and go on believing."""

import pytest

from tests.contract.members import Member, begun, clock_of, let_pass, pair
from tests.contract.rigs import MemoryRig, everything, values
from tocsin.log.port import (
    Delivery,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    OutcomeUnknown,
    ProducerFenced,
    TopicPartition,
)

# --- frozen members -------------------------------------------------------------------------------------------------


def test_the_partitions_of_a_frozen_member_go_to_the_others_when_its_session_ends(faulty: MemoryRig) -> None:
    one, two = pair(faulty, faulty.topic(partitions=2))
    let_pass(faulty, 5.5, two)
    assert len(two.owned) == 1
    let_pass(faulty, 1, two)
    assert two.owned == {0, 1}
    assert len(one.owned) == 1  # it does not know yet


def test_a_frozen_member_learns_of_its_loss_at_its_next_poll_and_joins_again(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    one, two = pair(faulty, topic)
    (held,) = one.owned
    let_pass(faulty, 7, two)
    assert one.poll() == []
    assert one.told[-1] == ("lost", [held])
    with pytest.raises(NotAMember):
        one.consumer.metadata()
    let_pass(faulty, 2, one, two)
    assert one.owned | two.owned == {0, 1}
    assert len(one.owned) == 1


def test_nothing_that_a_zombie_commits_is_accepted(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    where = TopicPartition(topic, 0)
    one, two = pair(faulty, topic)
    let_pass(faulty, 7, two)
    with pytest.raises(NotAMember):
        one.consumer.commit_sync({where: OffsetCommit(9)}, 1)
    one.consumer.commit({where: OffsetCommit(9)}, one.answers.append)
    producer = begun(faulty.process("one"))
    with pytest.raises(NotAMember):
        producer.send_offsets({where: OffsetCommit(9)}, one.consumer.metadata())
    one.poll()
    assert [NotAMember] == [type(answer) for answer in one.answers]
    assert {where: None} == two.consumer.committed([where], 1)


def test_a_zombie_that_lost_its_session_while_nobody_else_was_there_is_refused_too(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    alone = Member(faulty.process("alone"), topic, "alone")
    alone.poll()
    clock_of(faulty).advance(6_001)
    with pytest.raises(NotAMember):
        alone.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(1)}, 1)


def test_an_accepted_commit_keeps_a_member_that_does_not_poll(faulty: MemoryRig) -> None:
    topic = faulty.topic(partitions=2)
    one, two = pair(faulty, topic)
    (held,) = one.owned
    for _ in range(8):
        let_pass(faulty, 4, two)
        one.consumer.commit_sync({TopicPartition(topic, held): OffsetCommit(0)}, 1)
    assert len(two.owned) == 1
    let_pass(faulty, 5.5, two)
    one.poll()
    assert one.told[-1][0] != "lost"


def test_the_session_is_counted_by_the_clock_that_does_not_step(faulty: MemoryRig) -> None:
    one, two = pair(faulty, faulty.topic(partitions=2))
    clock_of(faulty).step_wall(3_600_000)
    two.poll()
    clock_of(faulty).step_wall(-7_200_000)
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


# --- cut off --------------------------------------------------------------------------------------------------------


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
    one, two = pair(faulty, faulty.topic(partitions=2))
    (held,) = one.owned
    faulty.memory.faults.cut("one")
    let_pass(faulty, 6.5, one, two)
    assert one.owned == {held}
    assert two.owned == {0, 1}  # for a while both believe that they own it
    let_pass(faulty, 1, one, two)
    assert one.told[-1] == ("lost", [held])
    assert one.owned == set()


def test_a_short_cut_costs_nothing(faulty: MemoryRig) -> None:
    one, two = pair(faulty, faulty.topic(partitions=2))
    faulty.memory.faults.cut("one")
    let_pass(faulty, 4, one, two)
    faulty.memory.faults.heal("one")
    let_pass(faulty, 10, one, two)
    assert (len(one.owned), len(two.owned)) == (1, 1)
    assert "lost" not in {what for what, _ in one.told}


def test_an_offset_commit_waits_for_a_log_that_is_out_of_reach_and_is_given_up(faulty: MemoryRig) -> None:
    topic = faulty.topic()
    where = TopicPartition(topic, 0)
    member = Member(faulty.process("worker"), topic, "worker")
    member.poll()
    faulty.memory.faults.cut("worker")
    member.consumer.commit({where: OffsetCommit(1)}, member.answers.append)
    let_pass(faulty, 5, member)
    assert member.answers == []
    let_pass(faulty, 0.5, member)
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
    let_pass(faulty, 1, member)
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
    clock_of(faulty).advance(30_001)
    assert producer.poll() == 1
    assert isinstance(deliveries[0].error, LogUnavailable)
    assert (deliveries[0].offset, deliveries[0].timestamp_ms) == (-1, -1)


def test_a_transaction_that_cannot_be_committed_is_of_unknown_outcome_and_stays_open(
    faulty: MemoryRig,
) -> None:
    topic = faulty.topic()
    producer = begun(faulty.process("streams"))
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
