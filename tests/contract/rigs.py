"""What the contract suite needs of an adapter: a log, other processes' views of it, and a few honest admissions.

A further adapter is one more class here and one more line in conftest.py.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tocsin.clock import Clock, FakeClock, SystemClock, new_id
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.memory import MemoryLog
from tocsin.log.port import (
    Cleanup,
    Delivery,
    EventLog,
    GroupConsumer,
    Headers,
    Producer,
    Reader,
    Record,
    TopicPartition,
    TopicSpec,
)

PATIENCE_S = 30.0
"""How long a test waits for what must happen. Never a measure of speed."""


class Rig:
    """One adapter under test. `log` is the view of one process, process() that of another."""

    shares: bool
    """See conftest.SHARING."""
    log: EventLog
    _id: str = ""
    _writer: tuple[EventLog, Producer] | None = None

    def own(self, name: str) -> str:
        """The name made the test's own: a log may be shared by many tests at a time."""
        self._id = self._id or new_id()[:12]
        return f"{name}.{self._id}"

    def process(self, name: str) -> EventLog:
        raise NotImplementedError

    def restart(self) -> None:
        """Close everything and open it again; `log` is the new view."""
        raise NotImplementedError

    def age(self, ms: int) -> None:
        """Let that time pass for the log, and its retention and compaction do what they do then."""
        raise NotImplementedError

    def close(self) -> None:
        self.log.close()

    # --- helpers for the tests ----------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1, cleanup: Cleanup = "delete", **settings: int) -> str:
        """A new topic of the test's own."""
        name = f"topic.{new_id()[:12]}"
        self.log.create_topics([TopicSpec(name=name, partitions=partitions, cleanup=cleanup, **settings)])
        return name

    def put(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = b"key",
        headers: Headers = (),
    ) -> list[Delivery]:
        """Produce the values, plainly, and wait until they are acknowledged."""
        deliveries: list[Delivery] = []
        if self._writer is None or self._writer[0] is not self.log:
            self._writer = (self.log, self.log.producer())
        producer = self._writer[1]
        for value in values:
            producer.produce(
                topic,
                key=key,
                value=value,
                partition=partition,
                headers=headers,
                on_delivery=deliveries.append,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert [None] * len(values) == [delivery.error for delivery in deliveries]
        return deliveries


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeat the step until it is done."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + PATIENCE_S
    while not done():
        assert clock.monotonic_s() < deadline_s, f"not done after {PATIENCE_S} s"
        step()


def take(consumer: Reader | GroupConsumer, count: int) -> list[Record]:
    """Poll until `count` records came, and no more."""
    records: list[Record] = []
    until(lambda: len(records) >= count, lambda: records.extend(consumer.poll(1_000, 0.2)))
    assert count == len(records)
    return records


def take_up_to(consumer: Reader, end: int, where: TopicPartition) -> list[Record]:
    """Poll until the position has reached `end`."""
    records: list[Record] = []
    until(lambda: consumer.position(where) >= end, lambda: records.extend(consumer.poll(1_000, 0.2)))
    return records


def everything(log: EventLog, topic: str, partition: int = 0, *, at_least: int = 0) -> list[Record]:
    """All that a committed reader can see of a partition now, or once it sees `at_least` so many records."""
    where = TopicPartition(topic, partition)
    reader = log.reader()
    records: list[Record] = []
    while True:
        reader.assign({where: log.begin_offset(where)})
        end = log.end_offset(where, "committed")
        records = take_up_to(reader, end, where)
        if len(records) >= at_least:
            reader.close()
            return records
        _until_end_moves(log, where, end)


def _until_end_moves(log: EventLog, where: TopicPartition, end: int) -> None:
    until(lambda: log.end_offset(where, "committed") > end, lambda: None)


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


class MemoryRig(Rig):
    shares = True

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.memory = MemoryLog(clock)
        self.log = self.memory

    def process(self, name: str) -> EventLog:
        return self.memory.client(name)

    def restart(self) -> None:
        self.memory.close()

    def age(self, ms: int) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(ms)
        self.memory.run_maintenance_once()


class EmbeddedRig(Rig):
    shares = False

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self._directory = directory
        self.embedded = self._open()
        self.log = self.embedded

    def process(self, name: str) -> EventLog:
        return self.embedded

    def restart(self) -> None:
        self.embedded.close()
        self.embedded = self._open()
        self.log = self.embedded

    def age(self, ms: int) -> None:
        self.clock.advance(ms)
        self.embedded.run_maintenance_once()

    def _open(self) -> EmbeddedLog:
        return EmbeddedLog.open(self._directory, self.clock, maintenance_interval_s=None)


class KafkaRig(Rig):
    shares = True

    def __init__(self, bootstrap: str) -> None:
        self._config = KafkaConfig(bootstrap=bootstrap)
        self._processes: list[KafkaLog] = []
        self.log = self.new_log()

    def process(self, name: str) -> EventLog:
        return self.new_log()

    def restart(self) -> None:
        """The broker is shared; what restarts is the client."""
        self.close()
        self.log = self.new_log()

    def close(self) -> None:
        while self._processes:
            self._processes.pop().close()

    def new_log(self) -> KafkaLog:
        self._processes.append(KafkaLog.open(self._config, SystemClock()))
        return self._processes[-1]
