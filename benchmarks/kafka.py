"""A local broker and a cluster of roles as processes, for the benchmarks that measure the whole on Kafka."""

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.kafka.cluster import Cluster, made
from tests.kafka.roles import cpu_s
from tests.kafka.waiting import until
from tocsin.broker import LocalKafka
from tocsin.clock import SystemClock
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.partitioner import partition_for
from tocsin.log.port import EventLog, LogUnavailable, Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.records import JobDefinition
from tocsin.schemas.topics import TopicNames
from tocsin.streams.takeover import newest_journals


@dataclass(frozen=True, slots=True)
class Rig:
    broker: LocalKafka
    cluster: Cluster

    def broker_cpu_s(self) -> float:
        return sum(cpu_s(each.pid) for each in self.broker.status() if each.pid is not None)


@contextlib.contextmanager
def rig(*, partitions: int = 12) -> Iterator[Rig]:
    """One broker and a cluster on it, in a directory that is deleted. Nothing of the cluster is started yet."""
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as directory:
        broker = LocalKafka(Path(directory) / "kafka")
        broker.start(lambda line: print(line, file=sys.stderr))
        try:
            folder = Path(directory) / "cluster"
            with made(broker.bootstrap, folder, partitions=partitions, tell=lambda _: None) as cluster:
                try:
                    yield Rig(broker, cluster)
                except BaseException:
                    print(cluster.tails(), file=sys.stderr)
                    raise
        finally:
            broker.wipe()


@dataclass(slots=True)
class Watch:
    """Reads topics to their ends in a thread of its own, and notes when each record was seen."""

    log: EventLog
    topics: tuple[str, ...]
    take: Callable[[Record, float], None]
    """Called on that thread: the record, and the wall clock in ms, with fractions."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        reader = self.log.reader("committed")
        at = [TopicPartition(topic, n) for topic in self.topics for n in range(self.log.partitions(topic))]
        reader.assign({each: self.log.end_offset(each, "uncommitted") for each in at})

        def watch() -> None:
            while not self._stopping.is_set():
                records = reader.poll(1_000, 0.1)
                seen_ms = time.time() * 1000
                for record in records:
                    self.take(record, seen_ms)
            reader.close()

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()


def spread(values: list[float], unit: str = "ms", digits: int = 1) -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    middle = ordered[len(ordered) // 2]
    return f"min {ordered[0]:.{digits}f}, median {middle:.{digits}f}, max {ordered[-1]:.{digits}f} {unit}"


FAR_MS = 3_976_214_400_000  # 2096-01-01


def start_bulk_load(cluster: Cluster, count: int) -> "subprocess.Popen[bytes]":
    """Writes so many definitions of jobs that are due in decades to the log, in a process of its own."""
    given = (cluster.bootstrap, cluster.names.prefix, str(cluster.partitions), str(count))
    return subprocess.Popen([sys.executable, "-m", "benchmarks.kafka", *given])


def load_definitions(bootstrap: str, prefix: str, partitions: int, count: int) -> None:
    log = KafkaLog.open(KafkaConfig(bootstrap=bootstrap), SystemClock())
    topic = TopicNames(prefix).jobs
    producer = log.producer()
    target = HttpTarget(url="http://127.0.0.1:9/ok", body=b'{"customer": 12345}', body_kind="json")
    for number in range(count):
        name = f"bulk-{number}"
        schedule = Schedule(at_ms=FAR_MS + number)
        made = Job(namespace="bulk", id=name, labels=(("team", "bench"),), schedule=schedule, http=target)
        key = f"bulk/{name}".encode()
        value = codec.encode(JobDefinition(namespace="bulk", id=name, job=made))
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=partition_for(key, partitions))
                break
            except LogUnavailable:  # the local queue is full
                producer.flush(0.1)
    while producer.flush(10.0):
        pass
    log.close()


def applied_definitions(cluster: Cluster) -> int:
    """How many records of `jobs` the journals have, over all partitions."""
    newest = newest_journals(cluster.log, cluster.names, range(cluster.partitions))
    return sum(row.jobs_offset for row in newest.values() if row is not None)


def until_applied(cluster: Cluster, count: int) -> None:
    until(
        lambda: applied_definitions(cluster) >= count,
        f"{count} definitions are applied",
        3_600.0,
        every_s=2.0,
    )


if __name__ == "__main__":
    load_definitions(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
