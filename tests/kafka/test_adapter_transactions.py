"""Transactions on Kafka: what an open one holds up, what ends it, and what a broker refuses in the middle of one."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.contract.rigs import KafkaRig, everything, until, values
from tests.kafka.adapter import admin, rig_on
from tests.kafka.roles import ROOT
from tocsin.clock import SystemClock
from tocsin.log.port import ProducerFenced, RecordTooLarge, TopicPartition, TransactionAborted

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def rig(kafka_bootstrap: str) -> Iterator[KafkaRig]:
    with rig_on(kafka_bootstrap) as made:
        yield made


def test_the_transaction_of_a_killed_process_holds_up_the_last_stable_offset_until_it_is_fenced(
    rig: KafkaRig, kafka_bootstrap: str, record_property: Callable[[str, object], None]
) -> None:
    topic = rig.topic()
    where = TopicPartition(topic, 0)
    transactional_id = rig.own("killed")
    command = [
        sys.executable,
        "-m",
        "tests.kafka.adapter",
        kafka_bootstrap,
        rig.own("g"),
        topic,
        transactional_id,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as said:
        assert "open\n" == said.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    rig.put(topic, b"behind it")
    assert rig.log.end_offset(where, "committed") == 0
    assert rig.log.end_offset(where, "uncommitted") == 2
    clock = SystemClock()
    began_s = clock.monotonic_s()
    heir = rig.log.transactional_producer(transactional_id)
    heir.init()
    until(lambda: rig.log.end_offset(where, "committed") >= 2, lambda: None)
    took_s = clock.monotonic_s() - began_s
    record_property("fencing freed the last stable offset after, in s", round(took_s, 2))
    # By itself the broker ends it 30 to 40 s after it was begun.
    assert took_s < 15
    assert [b"behind it"] == values(everything(rig.log, topic, at_least=1))
    heir.close()


def test_a_record_that_the_broker_refuses_aborts_its_transaction_and_the_producer_goes_on(
    rig: KafkaRig, kafka_bootstrap: str
) -> None:
    narrow = rig.own("narrow")
    operator = admin(kafka_bootstrap)
    operator.create_topics([NewTopic(narrow, 1, 1, config={"max.message.bytes": "1000"})])[narrow].result()
    wide = rig.topic()
    producer = rig.log.transactional_producer(rig.own("streams"))
    producer.init()
    producer.begin()
    producer.produce(wide, partition=0, key=b"k", value=b"dropped")
    until(lambda: rig.log.partitions(narrow) == 1, lambda: None)
    producer.produce(narrow, partition=0, key=b"k", value=Random(1).randbytes(10_000))
    with pytest.raises(TransactionAborted) as caught:
        producer.commit()
    assert isinstance(caught.value.__cause__, RecordTooLarge), repr(caught.value.__cause__)
    producer.begin()
    producer.produce(wide, partition=0, key=b"k", value=b"kept")
    receipt = producer.commit()
    assert [TopicPartition(wide, 0)] == list(receipt.last)
    assert [b"kept"] == values(everything(rig.log, wide, at_least=1))
    producer.close()


def test_a_closed_producer_says_that_it_is(rig: KafkaRig) -> None:
    producer = rig.log.transactional_producer(rig.own("streams"))
    producer.init()
    producer.close()
    producer.close()
    with pytest.raises(ProducerFenced, match="it is closed"):
        producer.begin()
