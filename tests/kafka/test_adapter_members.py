"""Members of a group on Kafka: what is particular to librdkafka, and what a frozen process learns."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import TopicPartition as Place

from tests.contract.rigs import KafkaRig, take, until, values
from tests.kafka.adapter import Telling, admin, rig_on
from tests.kafka.roles import ROOT
from tocsin.log.port import NotAMember, OffsetCommit, OffsetOutOfRange, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def rig(kafka_bootstrap: str) -> Iterator[KafkaRig]:
    with rig_on(kafka_bootstrap) as made:
        yield made


def _member(rig: KafkaRig, topic: str, name: str = "member") -> Telling:
    return Telling(rig.new_log(), topic, f"group.of.{topic}", name)


def _join(member: Telling, partitions: int) -> None:
    until(lambda: len(member.owned) == partitions, lambda: member.consumer.poll(10, 0.05))


def _delete_below(bootstrap: str, topic: str, offset: int) -> None:
    operator = admin(bootstrap)
    for future in operator.delete_records([Place(topic, 0, offset)]).values():
        future.result()


def test_partitions_that_were_paused_since_their_assignment_move_like_others(rig: KafkaRig) -> None:
    topic = rig.topic(partitions=4)
    one = _member(rig, topic, "one")
    one.inside = lambda what, where: one.consumer.pause(where) if what == "assign" else None
    _join(one, 4)
    two = _member(rig, topic, "two")

    def step() -> None:
        one.consumer.poll(10, 0.05)
        two.consumer.poll(10, 0.05)

    until(lambda: len(two.owned) == 2, step)
    assert ["assign", "revoke"] == [what for what, _ in one.told]
    assert {0, 1, 2, 3} == one.owned | two.owned
    assert set(one.told[1][1]) == two.owned
    rig.put(topic, b"seen", partition=min(two.owned))
    rig.put(topic, b"not seen", partition=min(one.owned))
    assert [b"seen"] == values(take(two.consumer, 1))
    assert one.consumer.poll(10, 0.2) == []
    one.consumer.close()
    two.consumer.close()


def test_inside_of_callbacks_everything_may_be_called(rig: KafkaRig) -> None:
    """Inside librdkafka's own callbacks a second call that gives the GIL away ends the process."""
    topic = rig.topic(partitions=2)
    deliveries = rig.put(topic, b"1", b"2", b"3")
    where = TopicPartition(topic, 0)
    reader = rig.log.reader()
    reader.assign({where: 0})
    seen: list[object] = []
    one = _member(rig, topic, "one")

    def inside(what: str, partitions: Sequence[TopicPartition]) -> None:
        assert what in ("assign", "revoke")
        seen.append(one.consumer.committed(partitions, 10.0))
        if what == "assign" and where in partitions:
            assert one.consumer.position(where) == 0
            one.consumer.seek(where, deliveries[1].offset)
            assert deliveries[1].offset == one.consumer.position(where)
        rig.log.wait([reader], 1.0)
        one.consumer.commit_sync({each: OffsetCommit(1, what) for each in partitions}, 10.0)
        seen.append(one.consumer.metadata())

    one.inside = inside
    assert [b"2", b"3"] == values(take(one.consumer, 2))
    two = _member(rig, topic, "two")
    until(lambda: len(two.owned) == 1, lambda: (one.consumer.poll(10, 0.05), two.consumer.poll(10, 0.05)))
    assert len(seen) == 4
    (moved,) = two.consumer.assigned()
    assert {moved: OffsetCommit(1, "revoke")} == two.consumer.committed([moved], 10.0)
    one.consumer.close()
    two.consumer.close()


def test_what_a_callback_raises_reaches_the_caller_of_poll_and_the_group_goes_on(rig: KafkaRig) -> None:
    topic = rig.topic(partitions=2)
    one = _member(rig, topic, "one")

    def fail(what: str, _: object) -> None:
        raise RuntimeError(f"in on_{what}")

    one.inside = fail
    with pytest.raises(RuntimeError, match="in on_assign"):
        until(lambda: False, lambda: one.consumer.poll(10, 0.05))
    assert one.owned == {0, 1}
    two = _member(rig, topic, "two")
    failed: list[str] = []

    def step() -> None:
        try:
            one.consumer.poll(10, 0.05)
        except RuntimeError as error:
            failed.append(str(error))
        two.consumer.poll(10, 0.05)

    until(lambda: len(two.owned) == 1, step)
    assert failed == ["in on_revoke"]
    with pytest.raises(RuntimeError, match="in on_revoke"):
        one.consumer.close()
    until(lambda: two.owned == {0, 1}, lambda: two.consumer.poll(10, 0.05))
    two.consumer.close()


def test_a_committed_offset_that_retention_took_gives_way_to_the_first_one_kept(
    rig: KafkaRig, kafka_bootstrap: str
) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    rig.put(topic, b"1", b"2", b"3", b"4")
    first = _member(rig, topic)
    _join(first, 1)
    first.consumer.commit_sync({where: OffsetCommit(1)}, 10.0)
    first.consumer.close()
    _delete_below(kafka_bootstrap, topic, 3)
    assert rig.log.begin_offset(where) == 3
    second = _member(rig, topic)
    assert [b"4"] == values(take(second.consumer, 1))
    second.consumer.seek(where, 0)
    with pytest.raises(OffsetOutOfRange, match=topic):
        until(lambda: False, lambda: second.consumer.poll(10, 0.1))
    second.consumer.seek(where, rig.log.begin_offset(where))
    assert [b"4"] == values(take(second.consumer, 1))
    second.consumer.close()


def test_a_reader_whose_next_offset_was_deleted_is_told_so(rig: KafkaRig, kafka_bootstrap: str) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    rig.put(topic, b"1", b"2", b"3")
    reader = rig.log.reader()
    _delete_below(kafka_bootstrap, topic, 2)
    reader.assign({where: 0})
    with pytest.raises(OffsetOutOfRange, match="has no offset 0"):
        until(lambda: False, lambda: reader.poll(10, 0.1))
    reader.seek(where, 2)
    assert [b"3"] == values(take(reader, 1))


def test_a_commit_that_answers_after_the_membership_was_lost_counts_for_nothing(rig: KafkaRig) -> None:
    topic = rig.topic()
    member = _member(rig, topic)
    _join(member, 1)
    answers: list[object] = []
    member.consumer.close()
    member.consumer.commit({TopicPartition(topic, 0): OffsetCommit(0)}, answers.append)
    with pytest.raises(NotAMember):
        member.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(0)}, 1.0)


def test_a_process_that_was_frozen_learns_of_its_loss_at_once_and_can_write_nothing(
    rig: KafkaRig, kafka_bootstrap: str
) -> None:
    topic = rig.topic()
    group, transactional_id = f"group.of.{topic}", rig.own("zombie")
    command = [sys.executable, "-m", "tests.kafka.adapter", kafka_bootstrap, group, topic, transactional_id]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as said:
        try:
            assert "open\n" == said.readline()
            process.send_signal(signal.SIGSTOP)
            heir = _member(rig, topic, "heir")
            _join(heir, 1)
            takeover = rig.log.transactional_producer(transactional_id)
            takeover.init()
            where = TopicPartition(topic, 0)
            until(lambda: rig.log.end_offset(where, "committed") >= 2, lambda: heir.consumer.poll(10, 0.05))
            process.send_signal(signal.SIGCONT)
            lines: list[str] = []
            until(lambda: bool(lines) and lines[-1] == "done", lambda: lines.append(said.readline().strip()))
        finally:
            process.kill()
            process.wait()
    lost = lines.index("lost [0]")
    metadata, commit, offsets, transaction = lines[lost + 1 : lost + 5]
    assert ("NotAMember", "NotAMember") == (metadata, commit)
    assert offsets in ("NotAMember", "ProducerFenced")
    assert transaction == "ProducerFenced"
    assert [] == values(take(heir.consumer, 0))
    heir.consumer.close()
    takeover.close()
