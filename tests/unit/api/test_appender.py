"""Many callers, one producer: what is acknowledged, what is refused, and what happens when the log is away."""

from collections.abc import Iterator
from concurrent.futures import Future, wait
from threading import Event, Thread
from typing import Any

import pytest

from tocsin.api import appender as module
from tocsin.api.appender import Appender, AppenderClosed, AppenderFull
from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import (
    RECORD_BYTES_MAX,
    Delivery,
    DeliveryCallback,
    Headers,
    LogUnavailable,
    RecordTooLarge,
    TopicSpec,
    UnknownTopic,
)

LIMIT_S = 60
TOPIC = "jobs"


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog(SystemClock())
    made.create_topics([TopicSpec(name=TOPIC, partitions=2)])
    return made


@pytest.fixture
def appender(log: MemoryLog) -> Iterator[Appender]:
    made = Appender(log.producer(), clock=SystemClock())
    made.start()
    yield made
    log.faults.release_sends("main")
    made.stop()


def test_an_append_is_answered_with_where_the_record_stands(appender: Appender) -> None:
    assert [(1, 0), (1, 1), (0, 0)] == [
        (d.partition, d.offset)
        for d in [appender.append(TOPIC, b"k", b"v", p).result(LIMIT_S) for p in (1, 1, 0)]
    ]


def test_many_records_are_answered_in_their_order(appender: Appender) -> None:
    records = [(b"k%d" % n, b"v", n % 2) for n in range(1000)]
    deliveries = appender.append_many(TOPIC, records).result(LIMIT_S)
    assert [(n % 2, n // 2) for n in range(1000)] == [(d.partition, d.offset) for d in deliveries]
    assert [] == appender.append_many(TOPIC, []).result(LIMIT_S)


def test_threads_append_at_the_same_time_and_each_gets_its_own_answer(
    log: MemoryLog, appender: Appender
) -> None:
    answers: list[list[Delivery]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        futures = [appender.append(TOPIC, b"k", b"%d" % number, 0) for _ in range(100)]
        answers[number] = [future.result(LIMIT_S) for future in futures]

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    stored = [r.record.value for r in log.records(TOPIC, 0)]
    assert [b"%d" % number for number in range(8) for _ in range(100)] == [
        stored[d.offset] for found in answers for d in found
    ]


@pytest.mark.parametrize(
    "topic, value, error", [("nowhere", b"", UnknownTopic), (TOPIC, b"x" * RECORD_BYTES_MAX, RecordTooLarge)]
)
def test_a_record_that_cannot_be_written_is_refused_alone(
    appender: Appender, topic: str, value: bytes, error: type[Exception]
) -> None:
    bad = appender.append(topic, b"key", value, 0)
    good = appender.append(TOPIC, b"key", b"v", 0)
    assert isinstance(bad.result(LIMIT_S).error, error)
    assert good.result(LIMIT_S).error is None


def test_stopping_acknowledges_what_was_accepted_and_refuses_what_comes_after(
    log: MemoryLog, appender: Appender
) -> None:
    futures = [appender.append(TOPIC, b"k", b"v", 0) for _ in range(100)]
    appender.stop()
    appender.stop()
    assert all(future.result(0).error is None for future in futures)
    assert not appender.alive
    with pytest.raises(AppenderClosed):
        appender.append(TOPIC, b"k", b"v", 0)


def test_more_than_may_wait_is_refused_at_once(
    log: MemoryLog, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUEUED_RECORDS_MAX", 10)
    appender._wake.acquire()  # the thread cannot take anything
    try:
        appender.append_many(TOPIC, [(b"k", b"v", 0)] * 20)  # larger than the bound by itself, and alone
        with pytest.raises(AppenderFull):
            appender.append(TOPIC, b"k", b"v", 0)
    finally:
        appender._wake.release()


def test_giving_up_an_append_does_not_disturb_its_answer(log: MemoryLog, appender: Appender) -> None:
    log.faults.hold_sends("main")
    future = appender.append(TOPIC, b"k", b"v", 0)
    assert not future.cancel()
    log.faults.release_sends("main")
    assert future.result(LIMIT_S).error is None


class _FullQueue:
    """A producer whose queue holds one record, acknowledged by the next flush once the log is `open`."""

    def __init__(self) -> None:
        self.open = Event()
        self.refused = Event()
        self._queue: list[tuple[DeliveryCallback, int]] = []
        self._offset = 0

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        if self._queue:
            self.refused.set()
            raise LogUnavailable("the local queue is full")
        assert on_delivery is not None
        assert partition is not None
        self._queue.append((on_delivery, partition))

    def poll(self) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        if self._queue and self.open.wait(timeout_s):
            on_delivery, partition = self._queue.pop()
            on_delivery(Delivery(TOPIC, partition, self._offset, 1))
            self._offset += 1
        return len(self._queue)

    def close(self) -> None:
        """Nothing is held."""


def test_a_full_local_queue_is_waited_for() -> None:
    producer = _FullQueue()
    appender = Appender(producer, clock=SystemClock())
    appender.start()
    future = appender.append_many(TOPIC, [(b"k", b"v", 0)] * 3)
    assert producer.refused.wait(LIMIT_S)
    assert not future.done()
    producer.open.set()
    assert [0, 1, 2] == [d.offset for d in future.result(LIMIT_S)]
    appender.stop()


def test_a_local_queue_that_stays_full_fails_the_rest_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFUSED_FOR_S", 0.05)
    producer = _FullQueue()
    appender = Appender(producer, clock=SystemClock())
    appender.start()
    futures: list[Future[Any]] = [
        appender.append(TOPIC, b"k", b"v", 0),
        appender.append_many(TOPIC, [(b"k", b"v", 0)] * 2),
    ]
    failed = futures[1].result(LIMIT_S)
    assert [LogUnavailable, LogUnavailable] == [type(d.error) for d in failed]
    producer.open.set()
    wait(futures, LIMIT_S)
    assert futures[0].result(0).error is None
    appender.stop()
