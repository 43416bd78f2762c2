"""KafkaLog: the EventLog on Apache Kafka."""

import threading
from collections.abc import Iterable, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.cluster import Cluster
from tocsin.log.kafka.config import InvalidKafkaConfig, KafkaConfig
from tocsin.log.kafka.errors import error_of
from tocsin.log.kafka.fetching import SLICE_S
from tocsin.log.kafka.groups import KafkaGroupConsumer
from tocsin.log.kafka.offsets import Offsets
from tocsin.log.kafka.producers import KafkaProducer
from tocsin.log.kafka.readers import KafkaReader, ReaderPool
from tocsin.log.kafka.settings import OPEN_S
from tocsin.log.kafka.topics import Topics
from tocsin.log.kafka.transactions import KafkaTransactionalProducer
from tocsin.log.port import (
    GroupConsumer,
    Isolation,
    Member,
    Reader,
    TopicPartition,
    TopicSpec,
)

_Closable = KafkaReader | KafkaGroupConsumer | KafkaProducer | KafkaTransactionalProducer
_T = TypeVar("_T", bound=_Closable)


class KafkaLog:
    """EventLog. Used by many threads; what it makes, by one thread each."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        """Asks nothing of the cluster yet; see open()."""
        self._config = config
        self._clock = clock
        self._troubles = Troubles(config.bootstrap, clock.monotonic_s)
        self._cluster = Cluster(config, clock, self._troubles)
        self._offsets = Offsets(config, clock, self._troubles)
        self._topics = Topics(config, clock, self._cluster)
        self._pool = ReaderPool(config, self._troubles)
        self._open: set[_Closable] = set()
        self._woken = threading.Condition()
        self._wakes = 0
        self._seen = threading.local()

    @classmethod
    def open(cls, config: KafkaConfig, clock: Clock) -> "KafkaLog":
        """Raises InvalidKafkaConfig, or LogUnavailable (saying what to do) if no broker answers."""
        try:
            log = cls(config, clock)
        except KafkaException as exception:
            raise InvalidKafkaConfig(_wrong_properties(config, error_of(exception))) from None
        try:
            log._cluster.brokers(OPEN_S)
        except BaseException:
            log.close()
            raise
        return log

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        self._topics.create(specs)

    def differences(self, specs: Iterable[TopicSpec]) -> list[str]:
        """What differs from the specifications, as sentences; [] if all is as specified. For `tocsin topics verify`."""
        return self._topics.differences(specs)

    def topics(self) -> dict[str, int]:
        return self._cluster.counts()

    def partitions(self, topic: str) -> int:
        return self._topics.partitions(topic)

    # --- offsets and groups -------------------------------------------------------------------------------------------

    def begin_offset(self, partition: TopicPartition) -> int:
        self._topics.check(partition)
        return self._offsets.begins([partition])[partition]

    def end_offset(self, partition: TopicPartition, isolation: Isolation) -> int:
        return self.end_offsets([partition], isolation)[partition]

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        for partition in wanted:
            self._topics.check(partition)
        return self._offsets.ends(wanted, isolation)

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        self._topics.check(partition)
        found = self._offsets.at_time(partition, timestamp_ms)
        return found if found is not None else self.end_offset(partition, "uncommitted")

    def members(self, group: str) -> tuple[Member, ...]:
        return self._cluster.members(group)

    # --- what it makes --------------------------------------------------------------------------------------------------

    def producer(self) -> KafkaProducer:
        return self._keep(KafkaProducer(self._config, self._topics, self._troubles, self._open.discard))

    def transactional_producer(self, transactional_id: str) -> KafkaTransactionalProducer:
        return self._keep(
            KafkaTransactionalProducer(
                transactional_id, self._config, self._topics, self._clock, self._troubles, self._open.discard
            )
        )

    def reader(self, isolation: Isolation = "committed") -> KafkaReader:
        return self._keep(
            KafkaReader(isolation, self._pool, self._topics, self._clock, self._troubles, self._open.discard)
        )

    def group_consumer(self, group: str, *, client_id: str) -> KafkaGroupConsumer:
        return self._keep(
            KafkaGroupConsumer(
                group,
                client_id,
                self._config,
                self._offsets,
                self._topics,
                self._clock,
                self._troubles,
                self._open.discard,
            )
        )

    def _keep(self, made: _T) -> _T:
        self._open.add(made)
        return made

    # --- waiting --------------------------------------------------------------------------------------------------------

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        """librdkafka cannot wait for several consumers: each in turn is looked at for a slice, the others in passing."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        mine = [_mine(consumer) for consumer in consumers]
        turn = 0
        while not self._was_woken():
            if any(consumer.is_ready(0.0) for consumer in mine):
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            if not mine:
                with self._woken:
                    if self._wakes == getattr(self._seen, "wakes", 0):
                        self._woken.wait(left_s)
            elif mine[turn].is_ready(min(left_s, SLICE_S)):
                return
            else:
                turn = (turn + 1) % len(mine)

    def wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def _was_woken(self) -> bool:
        wakes = self._wakes
        seen: int = getattr(self._seen, "wakes", 0)
        self._seen.wakes = wakes
        return wakes != seen

    def close(self) -> None:
        """Close everything that is still open. Safe twice."""
        try:
            for made in list(self._open):
                made.close()
        finally:
            self._pool.close()
            self._offsets.close()
            self._cluster.close()


def _mine(consumer: Reader | GroupConsumer) -> KafkaReader | KafkaGroupConsumer:
    if not isinstance(consumer, KafkaReader | KafkaGroupConsumer):
        raise TypeError(f"this log cannot wait for a {type(consumer).__name__}: pass its own consumers")
    return consumer


def _wrong_properties(config: KafkaConfig, error: KafkaError) -> list[str]:
    """Which of the user's properties librdkafka does not take, each by itself; or what it said of them together."""
    from confluent_kafka.admin import AdminClient

    problems = []
    for name, value in config.properties.items():
        try:
            AdminClient({name: value})
        except KafkaException as exception:
            problems.append(f"{name}: {error_of(exception).str()}")
    return problems or [error.str()]
