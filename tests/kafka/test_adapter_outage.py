"""The broker is killed and comes back: every object of a log says so within its limit, and goes on with what it has."""

from collections.abc import Callable
from threading import Thread

import pytest

from tests.contract.rigs import KafkaRig, everything, take, until, values
from tests.kafka.adapter import Telling
from tocsin.broker import LocalKafka
from tocsin.log.port import (
    Delivery,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
    TransactionalProducer,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


def _asked(ask: Callable[[], object], answers: list[object]) -> Thread:
    """Ask on a thread of its own."""

    def run() -> None:
        try:
            answers.append(ask())
        except LogError as error:
            answers.append(error)

    thread = Thread(target=run)
    thread.start()
    return thread


def _committed_again(rig: KafkaRig, producer: TransactionalProducer, topic: str) -> TransactionalProducer:
    """What a streams process does, until a commit stands."""
    committed = False
    while not committed:
        try:
            producer.begin()
            producer.produce(topic, partition=0, key=b"k", value=b"after")
            producer.commit()
            committed = True
        except TransactionAborted:
            pass
        except (ProducerFenced, OutcomeUnknown, LogUnavailable):
            producer.close()
            producer = rig.log.transactional_producer(rig.own("streams"))
            until(lambda made=producer: _is_initialised(made), lambda: None)  # type: ignore[misc]
    return producer


def _is_initialised(producer: TransactionalProducer) -> bool:
    try:
        producer.init()
    except LogUnavailable:
        return False
    return True


def test_everything_goes_on_after_the_broker_was_killed(local_kafka: Callable[..., LocalKafka]) -> None:
    kafka = local_kafka()
    rig = KafkaRig(kafka.bootstrap)
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    rig.put(topic, b"before")
    member = Telling(rig.new_log(), topic, rig.own("group"))
    reader = rig.log.reader()
    reader.assign({where: 0})
    assert [b"before"] == values(take(member.consumer, 1)) == values(take(reader, 1))
    producer = rig.log.transactional_producer(rig.own("streams"))
    producer.init()
    plain = rig.log.producer()
    deliveries: list[Delivery] = []

    kafka.kill()
    with pytest.raises(LogUnavailable, match=f"is a broker running at {kafka.bootstrap}"):
        rig.log.end_offset(where, "committed")
    # A description of a group that was given up by librdkafka itself would end this process when the broker is back.
    answers: list[object] = []
    asking = [_asked(lambda: rig.log.members(rig.own("group")), answers) for _ in range(2)]
    plain.produce(topic, key=b"k", value=b"meanwhile", partition=0, on_delivery=deliveries.append)
    assert reader.poll(10, 0.1) == []
    for thread in asking:
        thread.join()
    assert [LogUnavailable, LogUnavailable] == [type(answer) for answer in answers]
    assert plain.flush(0.1) == 1

    kafka.restart()
    until(lambda: not plain.flush(1.0), lambda: None)
    (delivery,) = deliveries
    assert delivery.error is None
    producer = _committed_again(rig, producer, topic)
    until(lambda: rig.log.end_offset(where, "committed") > delivery.offset + 1, lambda: None)
    found = [record.value for record in everything(rig.log, topic)]
    assert found[:2] == [b"before", b"meanwhile"]
    assert set(found[2:]) == {b"after"}
    assert found[1:] == values(take(reader, len(found) - 1))
    until(lambda: member.owned == {0}, lambda: member.consumer.poll(1, 0.1))
    until(lambda: len(rig.log.members(rig.own("group"))) == 1, lambda: member.consumer.poll(1, 0.1))
    rig.close()
