"""The in-memory EventLog, and the view of it that one client process has."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tocsin.clock import Clock
from tocsin.log.memory.broker import Broker
from tocsin.log.memory.consumers import HEARTBEAT_S, MemoryGroupConsumer, MemoryReader
from tocsin.log.memory.faults import Faults
from tocsin.log.memory.partition import StoredRecord
from tocsin.log.memory.producers import MemoryProducer, MemoryTransactionalProducer
from tocsin.log.port import (
    EventLog,
    GroupConsumer,
    Isolation,
    LogUnavailable,
    Member,
    Reader,
    TopicPartition,
    TopicSpec,
)


class ClientCrashed(RuntimeError):
    """A test goes on using an object of a process that it has let crash: take a new one from MemoryLog.client()."""


class MemoryClient:
    """EventLog, as one process sees it: faults.cut, lag and crash act on the process by its name."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self._alive = True
        self._consumers: list[MemoryReader | MemoryGroupConsumer] = []
        self._woken = threading.local()

    # --- EventLog -----------------------------------------------------------------------------------------------------

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        with self.request():
            self.broker.create_topics(specs)

    def topics(self) -> dict[str, int]:
        with self.request():
            return dict(self.broker.counts)

    def partitions(self, topic: str) -> int:
        with self.request():
            return self.broker.count(topic)

    def begin_offset(self, partition: TopicPartition) -> int:
        with self.request():
            return self.broker.partition(partition).begin

    def end_offset(self, partition: TopicPartition, isolation: Isolation) -> int:
        return self.end_offsets([partition], isolation)[partition]

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        with self.request():
            stored = {where: self.broker.partition(where) for where in partitions}
            return {
                where: partition.end if isolation == "uncommitted" else partition.last_stable_offset()
                for where, partition in stored.items()
            }

    def members(self, group: str) -> tuple[Member, ...]:
        with self.request():
            return self.broker.coordinator.described(group)

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        with self.request():
            return self.broker.partition(partition).offset_for_time(timestamp_ms)

    def producer(self) -> MemoryProducer:
        self.check_alive()
        return MemoryProducer(self)

    def transactional_producer(self, transactional_id: str) -> MemoryTransactionalProducer:
        self.check_alive()
        return MemoryTransactionalProducer(self, transactional_id)

    def reader(self, isolation: Isolation = "committed") -> MemoryReader:
        self.check_alive()
        reader = MemoryReader(self, isolation)
        self._consumers.append(reader)
        return reader

    def group_consumer(self, group: str, *, client_id: str) -> MemoryGroupConsumer:
        self.check_alive()
        consumer = MemoryGroupConsumer(self, group, client_id)
        self._consumers.append(consumer)
        return consumer

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        self.check_alive()
        deadline_s = self.broker.clock.monotonic_s() + timeout_s
        while True:
            version = self.broker.version
            if self._was_woken() or any(_is_ready(c) for c in consumers):
                return
            if not self.wait_for_change(version, deadline_s):
                return

    def wake(self) -> None:
        with self.broker.changed:
            self.broker.wakes += 1
            self.broker.notify()

    def close(self) -> None:
        """Close the consumers that are still open. The log itself lives on for the other clients."""
        for consumer in list(self._consumers):
            consumer.close()

    # --- for the objects of this client -------------------------------------------------------------------------------

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request to the log, under its lock. Raises LogUnavailable while the client is cut off."""
        with self.broker.changed:
            self.check_alive()
            if self.broker.faults.is_cut(self.name):
                raise LogUnavailable(f"{self.name} cannot reach the log")
            self.broker.expire()
            yield

    def check_alive(self) -> None:
        if not self._alive:
            raise ClientCrashed(f"{self.name} has crashed")

    def wait_for_change(self, version: int, deadline_s: float) -> bool:
        """Wait until something may have changed since `version`; False when the time is up. With a FakeClock nothing
        ever waits: the simulation steps everything itself."""
        left_s = deadline_s - self.broker.clock.monotonic_s()
        if left_s <= 0 or not self.broker.blocking:
            return False
        with self.broker.changed:
            if self.broker.version == version:
                self.broker.changed.wait(min(left_s, HEARTBEAT_S))
        return True

    def fetch_ahead(self) -> None:
        for consumer in self._consumers:
            consumer.fetch_ahead()

    def forget_fetched(self) -> None:
        for consumer in self._consumers:
            consumer.forget_fetched()

    def forget(self, consumer: MemoryReader | MemoryGroupConsumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def die(self) -> None:
        self._alive = False
        self._consumers.clear()

    def _was_woken(self) -> bool:
        wakes = self.broker.wakes
        seen: int = getattr(self._woken, "wakes", 0)
        self._woken.wakes = wakes
        return wakes != seen


class MemoryLog(MemoryClient):
    """EventLog for tests and the simulation; itself the view of a client named `main`.

    With a FakeClock no call ever blocks: the simulation calls everything in its own order, on one thread. With another
    clock it may be used by threads, and poll, wait and flush wait in real time.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(Broker(clock), "main")
        self.broker.faults.register("main", self)

    @property
    def faults(self) -> Faults:
        return self.broker.faults

    def client(self, name: str) -> EventLog:
        """The log as the process `name` sees it: the same view until faults.crash(name), then that of its next life."""
        with self.broker.changed:
            existing = self.broker.faults.existing(name)
            if existing is not None:
                return existing
            client = MemoryClient(self.broker, name)
            self.broker.faults.register(name, client)
            return client

    def run_maintenance_once(self) -> int:
        """Compact and expire everything that the clock allows now. Returns how many offsets were emptied."""
        return self.broker.maintain()

    def records(self, topic: str, partition: int) -> list[StoredRecord]:
        """Everything that stands in one partition, markers, open and aborted records included."""
        with self.broker.changed:
            return [
                StoredRecord(
                    record=entry.record,
                    state=entry.state,
                    transactional_id=None
                    if entry.transaction is None
                    else entry.transaction.transactional_id,
                    client=entry.client,
                )
                for entry in self.broker.partition(TopicPartition(topic, partition)).entries
            ]

    def snapshot(self) -> dict[TopicPartition, list[StoredRecord]]:
        """records() of every partition that holds any."""
        with self.broker.changed:
            return {
                where: self.records(where.topic, where.partition)
                for where, partition in self.broker.partitions.items()
                if partition.entries
            }


def _is_ready(consumer: Reader | GroupConsumer) -> bool:
    if not isinstance(consumer, MemoryReader | MemoryGroupConsumer):
        raise TypeError(f"this log cannot wait for a {type(consumer).__name__}: pass its own consumers")
    return consumer.is_ready()
