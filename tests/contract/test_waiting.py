"""EventLog.wait and wake, with threads."""

import threading
from collections.abc import Callable

import pytest

from tests.contract.rigs import PATIENCE_S, Rig, take, values
from tocsin.clock import SystemClock
from tocsin.log.port import EventLog, Reader, TopicPartition


class _Waiting:
    """A thread in wait(); says how long it took."""

    def __init__(self, log: EventLog, readers: list[Reader], timeout_s: float) -> None:
        self._call: Callable[[], None] = lambda: log.wait(readers, timeout_s)
        self._thread = threading.Thread(target=self._run)
        self.took_s = -1.0
        self._thread.start()

    def _run(self) -> None:
        clock = SystemClock()
        begun_s = clock.monotonic_s()
        self._call()
        self.took_s = clock.monotonic_s() - begun_s

    def has_ended(self) -> bool:
        self._thread.join(PATIENCE_S / 2)
        return not self._thread.is_alive() and self.took_s < PATIENCE_S / 2

    def is_going_on(self) -> bool:
        self._thread.join(0.05)
        return self._thread.is_alive()


def _reader(rig: Rig, topic: str) -> Reader:
    reader = rig.log.reader()
    where = TopicPartition(topic, 0)
    reader.assign({where: rig.log.end_offset(where, "committed")})
    return reader


def test_waiting_ends_when_a_record_arrives(blocking: Rig) -> None:
    topic = blocking.topic()
    reader = _reader(blocking, topic)
    waiting = _Waiting(blocking.log, [reader], PATIENCE_S)
    assert waiting.is_going_on()
    blocking.put(topic, b"1")
    assert waiting.has_ended()
    assert [b"1"] == values(take(reader, 1))


def test_waiting_ends_when_a_transaction_is_committed(blocking: Rig) -> None:
    topic = blocking.topic()
    waiting = _Waiting(blocking.log, [_reader(blocking, topic)], PATIENCE_S)
    producer = blocking.log.transactional_producer(blocking.own("streams-0"))
    producer.init()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"v")
    producer.commit()
    assert waiting.has_ended()


def test_waiting_does_not_begin_while_there_is_something_to_read(blocking: Rig) -> None:
    topic = blocking.topic()
    reader = _reader(blocking, topic)
    blocking.put(topic, b"1")
    assert _Waiting(blocking.log, [reader], PATIENCE_S).has_ended()


def test_waiting_ends_when_any_of_the_consumers_has_something(blocking: Rig) -> None:
    quiet, busy = blocking.topic(), blocking.topic()
    waiting = _Waiting(blocking.log, [_reader(blocking, quiet), _reader(blocking, busy)], PATIENCE_S)
    blocking.put(busy, b"1")
    assert waiting.has_ended()


def test_waiting_ends_when_its_time_is_up(blocking: Rig) -> None:
    topic = blocking.topic()
    assert _Waiting(blocking.log, [_reader(blocking, topic)], 0.02).has_ended()


def test_wake_ends_every_wait(blocking: Rig) -> None:
    topic = blocking.topic()
    waits = [_Waiting(blocking.log, [_reader(blocking, topic)], PATIENCE_S) for _ in range(3)]
    assert all(waiting.is_going_on() for waiting in waits)
    blocking.log.wake()
    assert [True] * 3 == [waiting.has_ended() for waiting in waits]


def test_a_wake_just_before_the_wait_is_not_lost(blocking: Rig) -> None:
    topic = blocking.topic()
    reader = _reader(blocking, topic)
    blocking.log.wait([reader], 0)  # this thread has seen every wake() up to now
    blocking.log.wake()
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    blocking.log.wait([reader], PATIENCE_S)
    assert clock.monotonic_s() - begun_s < PATIENCE_S / 2


def test_a_poll_ends_when_a_record_arrives(blocking: Rig) -> None:
    topic = blocking.topic()
    reader = _reader(blocking, topic)
    found: list[bytes | None] = []
    thread = threading.Thread(target=lambda: found.extend(values(reader.poll(10, PATIENCE_S))))
    thread.start()
    blocking.put(topic, b"1")
    thread.join(PATIENCE_S / 2)
    assert found == [b"1"]


@pytest.mark.parametrize("threads", [4])
def test_transactions_of_several_threads_are_each_whole(blocking: Rig, threads: int) -> None:
    topic = blocking.topic(partitions=2)

    def write(name: str) -> None:
        producer = blocking.log.transactional_producer(blocking.own(name))
        producer.init()
        for number in range(25):
            producer.begin()
            for partition in (0, 1):
                producer.produce(topic, partition=partition, key=name.encode(), value=b"%d" % number)
            producer.commit()

    writers = [threading.Thread(target=write, args=(f"writer-{n}",)) for n in range(threads)]
    reader = blocking.log.reader()
    reader.assign({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    for writer in writers:
        writer.start()
    records = take(reader, threads * 25 * 2)
    for writer in writers:
        writer.join()
    for name in (b"writer-%d" % n for n in range(threads)):
        for partition in (0, 1):
            mine = [r for r in records if r.key == name and r.partition == partition]
            assert [b"%d" % number for number in range(25)] == values(mine)
