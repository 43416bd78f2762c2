"""Where partitions begin and end, and which offset belongs to an instant. Used by many threads.

Asked through consumers, and not through the admin client, whose list_offsets() of librdkafka 2.16 gives -1001 without an
error when a connection breaks, and never again an answer once a broker was restarted (FENCED_LEADER_EPOCH: it asks with
the leader's old epoch until somebody else refreshes its metadata). Both were found by killing a broker.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Event, Lock
from typing import Final

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.connections import close_within
from tocsin.log.kafka.errors import error_of, few, is_refusal, to_unavailable
from tocsin.log.kafka.settings import CLOSE_S, CONSUMING, OFFSETS_S, options_for
from tocsin.log.port import Isolation, TopicPartition

AGAIN_S: Final = 0.05
"""After an answer that another one is expected to follow: a leader is being elected, a connection is made."""

_END: Final = -1
_BEGIN: Final = -2
"""What Kafka's ListOffsets takes in place of an instant."""

_FINAL: Final = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError.INVALID_REQUEST, codes.FATAL})


class Offsets:
    """One request for each leader. Partitions are known to exist; that one is not found is a matter of moments."""

    def __init__(self, config: KafkaConfig, clock: Clock, troubles: Troubles) -> None:
        self._config = config
        self._clock = clock
        self._troubles = troubles
        self._lock = Lock()
        self._consumers: dict[Isolation, ck.Consumer] = {}
        self._closed = Event()

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask("begins", dict.fromkeys(partitions, _BEGIN), "uncommitted")

    def ends(self, partitions: Iterable[TopicPartition], isolation: Isolation) -> dict[TopicPartition, int]:
        return self._ask("ends", dict.fromkeys(partitions, _END), isolation)

    def at_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset stamped at or after the instant, if there is one."""
        found = self._ask(
            "has a record from that time on", {partition: max(timestamp_ms, 0)}, "uncommitted", lowest=_END
        )[partition]
        return found if found >= 0 else None

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            consumers = list(self._consumers.values())
            self._consumers.clear()
        for consumer in consumers:
            close_within(consumer, CLOSE_S)

    def _ask(
        self, what: str, asked: Mapping[TopicPartition, int], isolation: Isolation, lowest: int = 0
    ) -> dict[TopicPartition, int]:
        """The answers; what is below `lowest` is none."""
        if not asked:
            return {}
        deadline_s = self._clock.monotonic_s() + OFFSETS_S
        consumer = self._consumer(isolation)
        while True:
            found, failure = self._answers(
                consumer, asked, max(deadline_s - self._clock.monotonic_s(), 0.1), lowest
            )
            if failure is None:
                return found
            over = self._clock.monotonic_s() + AGAIN_S >= deadline_s or self._closed.is_set()
            failure = self._troubles.refused or failure
            if over or failure.code() in _FINAL or is_refusal(failure.code()):
                doing = f"learn where {few(f'{topic}[{number}]' for topic, number in asked)} {what}"
                raise to_unavailable(failure, doing, self._troubles.explain)
            self._closed.wait(AGAIN_S)

    def _answers(
        self, consumer: ck.Consumer, asked: Mapping[TopicPartition, int], timeout_s: float, lowest: int
    ) -> tuple[dict[TopicPartition, int], KafkaError | None]:
        wanted = [ck.TopicPartition(*where, each) for where, each in asked.items()]
        try:
            answers = consumer.offsets_for_times(wanted, timeout=timeout_s)
        except KafkaException as exception:
            self._serve(consumer)
            return {}, error_of(exception)
        found: dict[TopicPartition, int] = {}
        failure: KafkaError | None = None
        for each in answers:
            if each.error is not None:
                failure = each.error
            elif each.offset < lowest:
                failure = KafkaError(codes.TRANSPORT, "the request was not answered for every partition")
            else:
                found[TopicPartition(each.topic, each.partition)] = each.offset
        if failure is None and len(found) < len(asked):
            failure = KafkaError(codes.TRANSPORT, "the request was not answered for every partition")
        return found, failure

    def _consumer(self, isolation: Isolation) -> ck.Consumer:
        with self._lock:
            if isolation not in self._consumers:
                options = options_for(
                    self._config,
                    CONSUMING,
                    group_id=f"{self._config.client_id}.reader",
                    isolation_level=f"read_{isolation}",
                )
                self._consumers[isolation] = ck.Consumer(options | self._troubles.options())
            return self._consumers[isolation]

    def _serve(self, consumer: ck.Consumer) -> None:
        """Hand over what librdkafka has to say: only when there is something to say."""
        if self._lock.acquire(blocking=False):
            try:
                with suppress(KafkaException, RuntimeError):
                    consumer.poll(0)
            finally:
                self._lock.release()
