"""Reader, and the consumers of librdkafka that closed readers leave to the next."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

import confluent_kafka as ck
from confluent_kafka import KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.connections import close_within
from tocsin.log.kafka.errors import error_of, to_log_error
from tocsin.log.kafka.fetching import Fetching
from tocsin.log.kafka.settings import CLOSE_S, CONSUMING, options_for
from tocsin.log.kafka.topics import Topics
from tocsin.log.port import Isolation, Record, TopicPartition

IDLE_MAX: Final = 6
"""Consumers of each isolation that are kept for the next reader. One costs four threads and eight file descriptors
(measured); a takeover reads one partition after the other through a few of them."""


class ReaderPool:
    """Makes consumers that are in no group, and keeps a few. Used by many threads."""

    def __init__(self, config: KafkaConfig, troubles: Troubles) -> None:
        self._config = config
        self._troubles = troubles
        self._lock = Lock()
        self._idle: dict[Isolation, list[ck.Consumer]] = {"committed": [], "uncommitted": []}
        self._closed = False

    def acquire(self, isolation: Isolation) -> ck.Consumer:
        with self._lock:
            if self._idle[isolation]:
                return self._idle[isolation].pop()
        # librdkafka wants a group's name even from a consumer that never joins; nothing is committed under it.
        options = options_for(
            self._config,
            CONSUMING,
            group_id=f"{self._config.client_id}.reader",
            isolation_level=f"read_{isolation}",
        )
        try:
            return ck.Consumer(options | self._troubles.options())
        except KafkaException as exception:
            raise to_log_error(error_of(exception), "make a reader", self._troubles.explain) from None

    def release(self, isolation: Isolation, consumer: ck.Consumer) -> None:
        """The consumer reads nothing any more."""
        with self._lock:
            if not self._closed and len(self._idle[isolation]) < IDLE_MAX:
                self._idle[isolation].append(consumer)
                return
        close_within(consumer, CLOSE_S)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            for consumers in self._idle.values():
                consumers.clear()
        for consumer in idle:
            close_within(consumer, CLOSE_S)


class KafkaReader:
    """Reader."""

    def __init__(
        self,
        isolation: Isolation,
        pool: ReaderPool,
        topics: Topics,
        clock: Clock,
        troubles: Troubles,
        on_close: Callable[["KafkaReader"], None],
    ) -> None:
        self._isolation: Isolation = isolation
        self._pool = pool
        self._topics = topics
        self._on_close = on_close
        self._consumer: ck.Consumer | None = pool.acquire(isolation)
        self.fetching = Fetching(self._consumer, clock, troubles)

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where in offsets:
            self._topics.check(where)
        self.fetching.assign(offsets)

    def add(self, partition: TopicPartition, offset: int) -> None:
        self._topics.check(partition)
        self.fetching.add(partition, offset)

    def remove(self, partition: TopicPartition) -> None:
        self.fetching.remove(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.fetching.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.fetching.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.fetching.resume(partitions)

    def assigned(self) -> frozenset[TopicPartition]:
        return self.fetching.assigned()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        if self._consumer is None:
            raise RuntimeError("this reader is closed")
        return self.fetching.poll(max_records, timeout_s)

    def position(self, partition: TopicPartition) -> int:
        return self.fetching.standing(partition).position

    def is_ready(self, timeout_s: float) -> bool:
        return self.fetching.is_ready(timeout_s)

    def close(self) -> None:
        """Safe twice. The consumer goes back to the pool."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self._on_close(self)
        try:
            self.fetching.assign({})
            self.fetching.apply()
        except Exception:
            with suppress(Exception):
                consumer.close()
            raise
        self._pool.release(self._isolation, consumer)
