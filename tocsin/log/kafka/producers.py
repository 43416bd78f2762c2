"""Producer: plain, idempotent, acknowledged by all replicas in sync."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.connections import connect
from tocsin.log.kafka.errors import describe, error_of, is_fatal, to_log_error
from tocsin.log.kafka.settings import CLOSE_S, CONNECT_S, PLAIN_PRODUCER, PRODUCING, options_for
from tocsin.log.kafka.topics import Topics
from tocsin.log.limits import check_key, check_record
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Delivery, DeliveryCallback, Headers, LogError, LogUnavailable, TopicPartition

logger = logging.getLogger(__name__)


class KafkaProducer:
    """Producer. Used by one thread."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: Topics,
        troubles: Troubles,
        on_close: Callable[["KafkaProducer"], None],
    ) -> None:
        self._topics = topics
        self._troubles = troubles
        self._on_close = on_close
        self._options = options_for(config, PRODUCING, PLAIN_PRODUCER) | troubles.options()
        self._producer: ck.Producer | None = self._make()
        self._is_connected = False
        self._keyless = 0
        self._called = 0

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
        if partition is None:
            partition = self._choose(topic, key)
        where = TopicPartition(topic, partition)
        cleanup = self._topics.check(where)
        check_record(topic, key, value, headers)
        check_key(topic, cleanup, key)
        if not self._is_connected:
            self._is_connected = True
            connect(self._open(), CONNECT_S)
        callback = partial(self._delivered, where, on_delivery)
        try:
            self._open().produce(topic, value, key, partition, callback, headers=list(headers) or None)
        except BufferError:
            raise LogUnavailable(
                f"the local queue is full ({len(self._open())} records wait to be acknowledged): poll, then go on"
            ) from None
        except KafkaException as exception:
            error = error_of(exception)
            if is_fatal(error):
                self._replace(error)
            raise self._problem(error, where) from None

    def poll(self) -> int:
        before = self._called
        try:
            self._open().poll(0)
        except KafkaException as exception:
            self._replace(error_of(exception))
        return self._called - before

    def flush(self, timeout_s: float) -> int:
        try:
            return self._open().flush(timeout_s)
        except KafkaException as exception:
            self._replace(error_of(exception))
            return 0

    def close(self) -> None:
        """Safe twice. What is not acknowledged within a few seconds is given up; no callback is called any more."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        self._on_close(self)
        with suppress(KafkaException):
            producer.flush(CLOSE_S)
        _discard(producer)

    # --- the rest -------------------------------------------------------------------------------------------------------

    def _open(self) -> ck.Producer:
        if self._producer is None:
            raise RuntimeError("this producer is closed")
        return self._producer

    def _make(self) -> ck.Producer:
        try:
            return ck.Producer(self._options)
        except KafkaException as exception:
            raise to_log_error(error_of(exception), "make a producer", self._troubles.explain) from None

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._topics.partitions(topic)
        if key is not None:
            return partition_for(key, count)
        self._keyless += 1
        return self._keyless % count

    def _delivered(
        self,
        where: TopicPartition,
        on_delivery: DeliveryCallback | None,
        error: KafkaError | None,
        message: "ck.Message[bytes, bytes]",
    ) -> None:
        self._called += 1
        if on_delivery is None or self._producer is None:
            return
        offset = message.offset()
        if error is not None:
            on_delivery(Delivery(*where, -1, -1, self._problem(error, where)))
        elif offset is None or offset < 0:
            # A duplicate that was recognised long after: it stands, nobody can say where.
            lost = LogUnavailable(
                f"a record for {where.topic}[{where.partition}] was written, its offset is unknown"
            )
            on_delivery(Delivery(*where, -1, -1, lost))
        else:
            on_delivery(Delivery(*where, offset, message.timestamp()[1]))

    def _problem(self, error: KafkaError, where: TopicPartition) -> LogError:
        return to_log_error(error, f"write to {where.topic}[{where.partition}]", self._troubles.explain)

    def _replace(self, error: KafkaError) -> None:
        """librdkafka never writes again after a fatal error; what it held is told as failed, and a new one goes on."""
        logger.warning("a new producer takes over: %s", describe(error))
        _discard(self._open())
        self._producer = self._make()
        self._is_connected = False


def _discard(producer: ck.Producer) -> None:
    """Its threads and connections end with the last reference to it; what it still holds is told as failed."""
    with suppress(KafkaException):
        producer.purge()
        producer.flush(1.0)
