"""Appends to the log for many callers at once, through one producer on a thread of its own.

Whoever appends gets a future; records that arrive while the log is busy leave together in the next round, so a hundred
small requests cost one acknowledgement, and ten thousand definitions one flush.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Condition, Thread
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import Delivery, LogError, LogUnavailable, Producer

QUEUED_RECORDS_MAX: Final = 100_000  # ten full batches; more would wait longer than a client does
QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
ROUND_S: Final = (
    0.02  # how long a new record may wait behind a slow acknowledgement before it is handed over as well
)
REFUSED_FOR_S: Final = 10.0  # a log whose queue stays full for longer is an error to the caller, not a wait

_log = logging.getLogger(__name__)


class AppenderFull(LogUnavailable):
    """More records wait for the log than it has acknowledged lately. Nothing was kept; try again in a second."""


class AppenderClosed(LogUnavailable):
    """The process is stopping. Nothing was kept."""


class _Group:
    """Records of one call, until the last of them is acknowledged."""

    __slots__ = ("_done", "_missing", "bytes", "deliveries", "records", "topic")

    def __init__(
        self,
        topic: str,
        records: Sequence[tuple[bytes, bytes, int]],
        done: Callable[[list[Delivery]], None],
    ) -> None:
        self.topic = topic
        self.records = records
        self.bytes = sum(len(key) + len(value) for key, value, _ in records)
        self.deliveries: list[Delivery | None] = [None] * len(records)
        self._missing = len(records)
        self._done = done

    def delivered(self, index: int, delivery: Delivery) -> None:
        if self.deliveries[index] is None:
            self.deliveries[index] = delivery
            self._missing -= 1
            if self._missing == 0:
                self._done([d for d in self.deliveries if d is not None])

    def refuse(self, start: int, error: LogError) -> None:
        """The records from `start` on were not handed over."""
        for index in range(start, len(self.records)):
            self.delivered(index, Delivery(self.topic, self.records[index][2], -1, -1, error))


class Appender:
    """Safe to use from any thread. start() before use; stop() waits for what was handed over."""

    def __init__(self, producer: Producer, *, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock
        self._waiting: deque[_Group] = deque()
        self._wake = Condition()
        self._queued_records = 0
        self._queued_bytes = 0
        self._outstanding = 0
        self._stopping = False
        self._stop_by_s = 0.0
        self._thread = Thread(target=self._run, name="tocsin-appender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    def stop(self) -> None:
        """What was accepted is acknowledged, as far as the log still answers, and the producer is closed. Safe twice."""
        with self._wake:
            if not self._stopping:
                self._stopping = True
                self._stop_by_s = self._clock.monotonic_s() + REFUSED_FOR_S
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Delivery]":
        """Done when the log has answered; look at Delivery.error. Raises AppenderFull and AppenderClosed at once."""
        future: Future[Delivery] = Future()
        future.set_running_or_notify_cancel()  # a caller that stops waiting must not make the answer fail
        self._put(_Group(topic, ((key, value, partition),), lambda done: future.set_result(done[0])))
        return future

    def append_many(
        self, topic: str, records: Sequence[tuple[bytes, bytes, int]]
    ) -> "Future[list[Delivery]]":
        """As append, for (key, value, partition) each; the answers are in the order of the records."""
        future: Future[list[Delivery]] = Future()
        future.set_running_or_notify_cancel()
        if records:
            self._put(_Group(topic, records, future.set_result))
        else:
            future.set_result([])
        return future

    def _put(self, group: _Group) -> None:
        with self._wake:
            if self._stopping:
                raise AppenderClosed("the process is stopping")
            records = self._queued_records + len(group.records)
            size = self._queued_bytes + group.bytes
            # A call that is larger than the bound by itself goes through when nothing else waits.
            if self._queued_records and (records > QUEUED_RECORDS_MAX or size > QUEUED_BYTES_MAX):
                raise AppenderFull(f"{self._queued_records} records wait for the log already")
            self._queued_records, self._queued_bytes = records, size
            self._waiting.append(group)
            self._wake.notify()

    # --- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._round():
                pass
        finally:
            with self._wake:
                self._stopping = True
                left = list(self._waiting)
                self._waiting.clear()
            for group in left:
                group.refuse(0, AppenderClosed("the process is stopping"))
            self._producer.close()

    def _round(self) -> bool:
        with self._wake:
            while not (self._waiting or self._outstanding or self._stopping):
                self._wake.wait()
            groups = list(self._waiting)
            self._waiting.clear()
            if self._stopping and (not self._outstanding or self._clock.monotonic_s() >= self._stop_by_s):
                stop = not groups
            else:
                stop = False
        if stop:
            return False
        for group in groups:
            self._hand_over(group)
            with self._wake:
                self._queued_records -= len(group.records)
                self._queued_bytes -= group.bytes
        self._acknowledged()
        return True

    def _hand_over(self, group: _Group) -> None:
        produce = self._producer.produce
        for index, (key, value, partition) in enumerate(group.records):
            try:
                produce(
                    group.topic,
                    key=key,
                    value=value,
                    partition=partition,
                    on_delivery=partial(self._delivered, group, index),
                )
                self._outstanding += 1
            except LogUnavailable:
                if not self._again(group, index):
                    return
            except LogError as error:  # this record alone cannot be written: too large, or no such topic
                group.delivered(index, Delivery(group.topic, partition, -1, -1, error))

    def _again(self, group: _Group, index: int) -> bool:
        """Hand the record over once the log's own queue has room; if it stays full, fail it and all after it."""
        key, value, partition = group.records[index]
        until = self._clock.monotonic_s() + REFUSED_FOR_S
        while True:
            self._acknowledged()
            try:
                self._producer.produce(
                    group.topic,
                    key=key,
                    value=value,
                    partition=partition,
                    on_delivery=partial(self._delivered, group, index),
                )
            except LogUnavailable as error:
                # Without anything outstanding flush() returns at once: then waiting makes no room, the log is away.
                if self._clock.monotonic_s() >= until or self._stopping or not self._outstanding:
                    group.refuse(index, error)
                    return False
                continue
            self._outstanding += 1
            return True

    def _delivered(self, group: _Group, index: int, delivery: Delivery) -> None:
        self._outstanding -= 1
        group.delivered(index, delivery)

    def _acknowledged(self) -> None:
        try:
            self._producer.flush(ROUND_S)
        except LogError:
            _log.exception("the log could not be flushed; what it holds is tried again")
