"""GroupConsumer: what holds for every adapter, with one member or with several."""

from collections.abc import Sequence

import pytest

from tests.contract.rigs import PATIENCE_S, Rig, take, until, values
from tocsin.log.port import (
    OFFSET_METADATA_BYTES_MAX,
    EventLog,
    GroupConsumer,
    LogError,
    NotAMember,
    OffsetCommit,
    TopicPartition,
    UnknownTopic,
)


class Member:
    """A group consumer that writes down what its callbacks were told."""

    def __init__(self, log: EventLog, topic: str, name: str, *, commit_on_revoke: int | None = None) -> None:
        self.told: list[tuple[str, frozenset[int]]] = []
        self.owned: set[int] = set()
        self.commit_on_revoke = commit_on_revoke
        self.seek_on_assign: int | None = None
        self.consumer: GroupConsumer = log.group_consumer(f"group.of.{topic}", client_id=name)
        self.consumer.subscribe(
            topic, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self) -> None:
        """A poll that must find nothing to read."""
        assert self.consumer.poll(10, 0.05) == []

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("assign", partitions)
        assert self.owned.isdisjoint(where.partition for where in partitions)
        self.owned.update(where.partition for where in partitions)
        if self.seek_on_assign is not None:
            for where in partitions:
                self.consumer.seek(where, self.seek_on_assign)

    def _on_revoke(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("revoke", partitions)
        if self.commit_on_revoke is not None:
            commit = OffsetCommit(self.commit_on_revoke, "revoked")
            self.consumer.commit_sync(dict.fromkeys(partitions, commit), PATIENCE_S)
        self.owned.difference_update(where.partition for where in partitions)

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("lost", partitions)
        self.owned.difference_update(where.partition for where in partitions)

    def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, frozenset(where.partition for where in partitions)))


def _joined(log: EventLog, topic: str, name: str = "alone") -> Member:
    member = Member(log, topic, name)
    until(lambda: bool(member.owned), lambda: member.consumer.poll(1, 0.05) if not member.owned else None)
    return member


def _commit(member: Member, offsets: dict[TopicPartition, OffsetCommit]) -> LogError | None:
    """Commit without waiting, then poll for the answer."""
    answers: list[LogError | None] = []
    member.consumer.commit(offsets, answers.append)
    assert answers == []
    until(lambda: bool(answers), lambda: member.consumer.poll(1, 0.05))
    assert len(answers) == 1
    return answers[0]


# --- one member -------------------------------------------------------------------------------------------------------


def test_the_only_member_is_assigned_everything_inside_a_poll(rig: Rig) -> None:
    topic = rig.topic(partitions=3)
    member = Member(rig.log, topic, "alone")
    assert member.told == []
    until(lambda: bool(member.told), member.poll)
    assert member.told == [("assign", frozenset({0, 1, 2}))]
    assert frozenset(TopicPartition(topic, n) for n in range(3)) == member.consumer.assigned()
    for _ in range(5):
        member.poll()
    assert len(member.told) == 1
    member.consumer.close()


def test_an_unknown_topic_cannot_be_subscribed(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        Member(rig.log, "nobody.made.it", "alone")


def test_before_its_first_assignment_a_consumer_is_no_member(rig: Rig) -> None:
    topic = rig.topic()
    member = Member(rig.log, topic, "alone")
    with pytest.raises(NotAMember):
        member.consumer.metadata()
    with pytest.raises(NotAMember):
        member.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(0)}, PATIENCE_S)
    member.consumer.close()


def test_a_member_knows_its_group_and_generation(rig: Rig) -> None:
    topic = rig.topic()
    member = _joined(rig.log, topic)
    metadata = member.consumer.metadata()
    assert f"group.of.{topic}" == metadata.group
    assert metadata.generation >= 0
    assert "alone" in metadata.member
    assert metadata == member.consumer.metadata()
    member.consumer.close()


def test_a_group_that_never_committed_begins_at_the_first_offset_kept(rig: Rig) -> None:
    topic = rig.topic()
    rig.put(topic, b"1", b"2")
    member = Member(rig.log, topic, "alone")
    assert [b"1", b"2"] == values(take(member.consumer, 2))
    member.consumer.close()


def test_a_member_begins_at_the_committed_offset(rig: Rig) -> None:
    topic = rig.topic()
    deliveries = rig.put(topic, b"1", b"2", b"3")
    where = TopicPartition(topic, 0)
    first = _joined(rig.log, topic)
    first.consumer.commit_sync({where: OffsetCommit(deliveries[2].offset)}, PATIENCE_S)
    first.consumer.close()
    second = Member(rig.log, topic, "second")
    assert [b"3"] == values(take(second.consumer, 1))
    second.consumer.close()


def test_a_seek_inside_on_assign_wins_over_the_committed_offset(rig: Rig) -> None:
    topic = rig.topic()
    deliveries = rig.put(topic, b"1", b"2", b"3")
    first = _joined(rig.log, topic)
    first.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(deliveries[2].offset)}, PATIENCE_S)
    first.consumer.close()
    second = Member(rig.log, topic, "second")
    second.seek_on_assign = deliveries[1].offset
    assert [b"2", b"3"] == values(take(second.consumer, 2))
    second.consumer.close()


def test_a_member_pauses_resumes_and_seeks(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    member.consumer.pause([where])
    deliveries = rig.put(topic, b"1", b"2")
    member.poll()
    member.consumer.resume([where])
    assert [b"1", b"2"] == values(take(member.consumer, 2))
    assert deliveries[1].offset + 1 == member.consumer.position(where)
    member.consumer.seek(where, deliveries[1].offset)
    assert [b"2"] == values(take(member.consumer, 1))
    member.consumer.close()


def test_open_and_aborted_records_are_not_shown_to_a_member(rig: Rig) -> None:
    topic = rig.topic()
    member = _joined(rig.log, topic)
    producer = rig.log.transactional_producer(rig.own("streams-0"))
    producer.init()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"aborted")
    producer.abort()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"committed")
    member.poll()
    producer.commit()
    assert [b"committed"] == values(take(member.consumer, 1))
    member.consumer.close()


# --- commits ----------------------------------------------------------------------------------------------------------


def test_a_commit_is_answered_from_a_later_poll(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    assert _commit(member, {where: OffsetCommit(7, "seven")}) is None
    assert {where: OffsetCommit(7, "seven")} == member.consumer.committed([where], PATIENCE_S)
    member.consumer.close()


def test_commits_are_answered_in_their_order_and_the_last_one_stands(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    answers: list[tuple[int, LogError | None]] = []
    for offset in range(10):

        def on_done(error: LogError | None, offset: int = offset) -> None:
            answers.append((offset, error))

        member.consumer.commit({where: OffsetCommit(offset)}, on_done)
    until(lambda: len(answers) == 10, member.poll)
    assert [(offset, None) for offset in range(10)] == answers
    assert {where: OffsetCommit(9)} == member.consumer.committed([where], PATIENCE_S)
    member.consumer.close()


def test_one_commit_may_name_partitions_of_other_topics(rig: Rig) -> None:
    topic, other = rig.topic(), rig.topic(partitions=2)
    member = _joined(rig.log, topic)
    offsets = {TopicPartition(topic, 0): OffsetCommit(1, "lane"), TopicPartition(other, 1): OffsetCommit(2)}
    member.consumer.commit_sync(offsets, PATIENCE_S)
    asked = [*offsets, TopicPartition(other, 0)]
    assert {**offsets, TopicPartition(other, 0): None} == member.consumer.committed(asked, PATIENCE_S)
    member.consumer.close()


def test_metadata_of_the_largest_size_is_kept_and_a_byte_more_is_refused(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    largest = OffsetCommit(3, "m" * OFFSET_METADATA_BYTES_MAX)
    member.consumer.commit_sync({where: largest}, PATIENCE_S)
    assert {where: largest} == member.consumer.committed([where], PATIENCE_S)
    with pytest.raises(ValueError, match=str(OFFSET_METADATA_BYTES_MAX)):
        member.consumer.commit_sync({where: OffsetCommit(4, largest.metadata + "m")}, PATIENCE_S)
    member.consumer.close()


def test_groups_do_not_share_offsets(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    member.consumer.commit_sync({where: OffsetCommit(1)}, PATIENCE_S)
    stranger = rig.log.group_consumer(f"another.group.of.{topic}", client_id="stranger")
    assert {where: None} == stranger.committed([where], PATIENCE_S)
    member.consumer.close()


def test_committed_offsets_survive_a_restart(rig: Rig) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    member = _joined(rig.log, topic)
    member.consumer.commit_sync({where: OffsetCommit(1, "words: größe")}, PATIENCE_S)
    member.consumer.close()
    rig.restart()
    after = rig.log.group_consumer(f"group.of.{topic}", client_id="after")
    assert {where: OffsetCommit(1, "words: größe")} == after.committed([where], PATIENCE_S)


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_closing_revokes_what_is_held_and_commits_work_inside(rig: Rig) -> None:
    topic = rig.topic(partitions=2)
    member = _joined(rig.log, topic)
    member.commit_on_revoke = 5
    member.consumer.close()
    assert ("revoke", frozenset({0, 1})) == member.told[-1]
    after = _joined(rig.log, topic, "after")
    where = TopicPartition(topic, 1)
    assert {where: OffsetCommit(5, "revoked")} == after.consumer.committed([where], PATIENCE_S)
    after.consumer.close()


def test_a_member_that_was_never_assigned_anything_closes_silently(rig: Rig) -> None:
    member = Member(rig.log, rig.topic(), "alone")
    member.consumer.close()
    assert member.told == []


def test_what_a_leaving_member_held_goes_to_the_other(rig: Rig) -> None:
    topic = rig.topic(partitions=4)
    first = _joined(rig.log, topic, "first")
    second = Member(rig.process("second"), topic, "second")

    def step() -> None:
        first.poll()
        second.poll()

    if rig.shares:
        until(lambda: len(second.owned) == 2, step)
    first.consumer.close()
    until(lambda: len(second.owned) == 4, second.poll)
    assert "lost" not in {what for what, _ in first.told + second.told}
    second.consumer.close()


def test_the_metadata_of_a_member_that_left_is_stale(rig: Rig) -> None:
    topic = rig.topic()
    first = _joined(rig.log, topic, "first")
    left = first.consumer.metadata()
    first.consumer.close()
    second = _joined(rig.log, topic, "second")
    assert left != second.consumer.metadata()
    second.consumer.close()


# --- several members ----------------------------------------------------------------------------------------------------


def test_members_share_the_partitions_and_none_is_owned_twice_at_any_time(sharing: Rig) -> None:
    topic = sharing.topic(partitions=6)
    members = [Member(sharing.process(name), topic, name) for name in ("one", "two", "three")]

    def step() -> None:
        for member in members:
            member.poll()
            owned = [number for each in members for number in each.owned]
            assert len(owned) == len(set(owned))

    until(lambda: all(len(member.owned) == 2 for member in members), step)
    assert {0, 1, 2, 3, 4, 5} == set().union(*(member.owned for member in members))
    for member in members:
        member.consumer.close()


def test_partitions_that_are_kept_through_a_rebalance_are_not_mentioned(sharing: Rig) -> None:
    topic = sharing.topic(partitions=4)
    first = _joined(sharing.process("first"), topic, "first")
    second = Member(sharing.process("second"), topic, "second")

    def step() -> None:
        first.poll()
        second.poll()

    until(lambda: len(second.owned) == 2, step)
    assert [what for what, _ in first.told] == ["assign", "revoke"]
    assert first.told[1][1] == frozenset(second.owned)
    assert len(first.owned) == 2
    for member in (first, second):
        member.consumer.close()


def test_a_commit_inside_on_revoke_is_where_the_next_owner_begins(sharing: Rig) -> None:
    topic = sharing.topic(partitions=2)
    for number in (0, 1):
        sharing.put(topic, b"old", b"new", partition=number)
    first = _joined(sharing.process("first"), topic, "first")
    first.commit_on_revoke = 1
    second = Member(sharing.process("second"), topic, "second")
    found: list[bytes | None] = []

    def step() -> None:
        first.consumer.poll(10, 0.05)
        found.extend(values(second.consumer.poll(10, 0.05)))

    until(lambda: len(found) == 1, step)
    assert found == [b"new"]
    # A member that closes before it has learned of the new generation could not commit any more.
    until(lambda: first.consumer.metadata().generation == second.consumer.metadata().generation, step)
    for member in (first, second):
        member.consumer.close()


def test_a_rebalance_ends_the_generation_and_a_poll_learns_the_new_one(sharing: Rig) -> None:
    topic = sharing.topic(partitions=2)
    where = TopicPartition(topic, 0)
    first = _joined(sharing.process("first"), topic, "first")
    before = first.consumer.metadata()
    second = Member(sharing.process("second"), topic, "second")

    def step() -> None:
        first.poll()
        second.poll()

    until(lambda: len(second.owned) == 1, step)
    until(lambda: first.consumer.metadata().generation == second.consumer.metadata().generation, step)
    assert before.generation < first.consumer.metadata().generation
    producer = sharing.log.transactional_producer(sharing.own("streams-0"))
    producer.init()
    producer.begin()
    with pytest.raises(NotAMember):
        producer.send_offsets({where: OffsetCommit(1)}, before)
    producer.abort()
    assert _commit(first, {where: OffsetCommit(1)}) is None
    for member in (first, second):
        member.consumer.close()
