"""What the Kafka adapter costs by itself: commits, visibility, reading, waiting, on a broker of this machine.

    python -m benchmarks.bench_kafka_adapter [--kafka HOST:PORT] [--seconds 10]

Method: one broker, one client process; each figure is the percentiles of one run of so many seconds.

* commit: a transaction of 24 records on 12 partitions of two topics and the offsets of 12 partitions; back to back, and
  once every 25 ms.
* visible: from the call of commit(), to the record in the hands of a committed reader on another thread; every 25 ms.
* read: 200,000 records of 300 bytes on 12 partitions, by one reader, 1,000 a poll.
* write: the same number by one plain producer, each with a delivery callback.
* wait: from a wake() on another thread to the end of wait() on three consumers; and from the acknowledgement of a plain
  record to the end of the wait, for the consumer that it is read by, in turn.
* idle: processor time of a process that does nothing but wait on a member and two readers of 12 partitions each, in turns
  of 0.25 s, and what the broker needs beside it.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.node import percentile
from tests.kafka.roles import cpu_s
from tocsin.broker import LocalKafka
from tocsin.clock import SystemClock, new_id
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.port import GroupConsumer, OffsetCommit, Reader, Record, TopicPartition, TopicSpec

PARTITIONS = 12
RECORDS = 200_000
PACE_S = 0.025


@contextlib.contextmanager
def broker(given: str | None) -> Iterator[tuple[str, Callable[[], float]]]:
    """The address, and the processor time that the broker has used."""
    if given:
        yield given, lambda: 0.0
        return
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as directory:
        kafka = LocalKafka(Path(directory) / "kafka")
        kafka.start(lambda line: print(line, file=sys.stderr))
        try:
            yield (
                kafka.bootstrap,
                lambda: sum(cpu_s(each.pid) for each in kafka.status() if each.pid is not None),
            )
        finally:
            kafka.wipe()


def topic(log: KafkaLog) -> str:
    name = f"bench.{new_id()[:12]}"
    log.create_topics([TopicSpec(name=name, partitions=PARTITIONS)])
    return name


def places(name: str) -> list[TopicPartition]:
    return [TopicPartition(name, number) for number in range(PARTITIONS)]


def member(log: KafkaLog, name: str) -> GroupConsumer:
    consumer = log.group_consumer(f"group.of.{name}", client_id="bench")
    consumer.subscribe(name, on_assign=lambda _: None, on_revoke=lambda _: None, on_lost=lambda _: None)
    while len(consumer.assigned()) < PARTITIONS:
        consumer.poll(10, 0.1)
    return consumer


def show(what: str, values: list[float], unit: str = "ms") -> None:
    marks = "  ".join(f"p{mark} {percentile(values, mark / 100):7.1f}" for mark in (50, 90, 99))
    print(f"{what:28} {marks}  max {max(values):7.1f} {unit}  (n={len(values)})")


def commits(log: KafkaLog, seconds: float) -> None:
    state, runs, inputs = topic(log), topic(log), topic(log)
    consumer = member(log, inputs)
    producer = log.transactional_producer(f"bench.{new_id()[:8]}")
    producer.init()
    for pace_s, what in ((0.0, "commit, back to back"), (PACE_S, "commit, every 25 ms")):
        found: list[float] = []
        until = time.monotonic() + seconds
        due = time.monotonic()
        while time.monotonic() < until:
            consumer.poll(10, 0.0)
            producer.begin()
            for where in (*places(state), *places(runs)):
                producer.produce(where.topic, partition=where.partition, key=b"k" * 20, value=b"v" * 300)
            began = time.monotonic()
            producer.send_offsets(dict.fromkeys(places(inputs), OffsetCommit(1)), consumer.metadata())
            producer.commit()
            found.append((time.monotonic() - began) * 1000)
            due = max(due + pace_s, time.monotonic() - pace_s)
            time.sleep(max(0.0, due - time.monotonic()))
        show(what, found)
    producer.close()
    consumer.close()


def visible(log: KafkaLog, seconds: float) -> None:
    name = topic(log)
    found: list[float] = []
    stopping = threading.Event()
    reader = log.reader()
    reader.assign(dict.fromkeys(places(name), 0))

    def follow() -> None:
        while not stopping.is_set():
            records = reader.poll(100, 0.1)
            now = time.monotonic()
            found.extend((now - float(record.value or b"0")) * 1000 for record in records)

    thread = threading.Thread(target=follow)
    thread.start()
    producer = log.transactional_producer(f"bench.{new_id()[:8]}")
    producer.init()
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        began = time.monotonic()
        producer.begin()
        producer.produce(name, partition=number % PARTITIONS, key=b"k", value=repr(began).encode())
        producer.commit()
        number += 1
        time.sleep(max(0.0, began + PACE_S - time.monotonic()))
    time.sleep(0.5)
    stopping.set()
    thread.join()
    show("visible, every 25 ms", found[20:])


def rates(log: KafkaLog) -> None:
    name = topic(log)
    answered = 0

    def count(_: object) -> None:
        nonlocal answered
        answered += 1

    producer = log.producer()
    producer.produce(name, key=b"k", value=b"v", partition=0)
    producer.flush(10)
    began = time.monotonic()
    for number in range(RECORDS):
        if number % 10_000 == 0:
            producer.flush(10)
        producer.produce(
            name, key=b"k%d" % number, value=b"v" * 280, partition=number % PARTITIONS, on_delivery=count
        )
    producer.flush(30)
    print(f"{'write':28} {answered / (time.monotonic() - began):10,.0f} records/s")
    reader = log.reader()
    reader.assign(dict.fromkeys(places(name), 0))
    records: list[Record] = []
    began, read = time.monotonic(), 0
    while read < RECORDS:
        records = reader.poll(1_000, 1.0)
        read += len(records)
    print(f"{'read':28} {read / (time.monotonic() - began):10,.0f} records/s")


def waits(log: KafkaLog, seconds: float) -> None:
    name = topic(log)
    readers = (log.reader(), log.reader())
    consumers: tuple[GroupConsumer | Reader, ...] = (member(log, name), *readers)
    others = (topic(log), topic(log))
    for reader, other in zip(readers, others, strict=True):
        reader.assign(dict.fromkeys(places(other), 0))
    woken: list[float] = []
    stamps: list[float] = []

    def wake() -> None:
        stamps.append(time.monotonic())
        log.wake()

    while len(woken) < 100:
        stamps.clear()
        timer = threading.Timer(0.02, wake)
        timer.start()
        while not stamps:
            log.wait(consumers, 1.0)
        woken.append((time.monotonic() - stamps[0]) * 1000)
        timer.join()
    show("wait ends after wake()", woken)
    producer = log.producer()
    for number, consumer in enumerate(consumers):
        at = (name, *others)[number]
        found: list[float] = []
        until = time.monotonic() + seconds / 3
        while time.monotonic() < until:
            stamps.clear()
            producer.produce(
                at,
                key=b"k",
                value=b"v",
                partition=0,
                on_delivery=lambda _: stamps.append(time.monotonic()),
            )
            flush = threading.Timer(0.01, producer.flush, (5.0,))
            flush.start()
            while True:
                log.wait(consumers, 1.0)
                ended = time.monotonic()
                if consumer.poll(10, 0.0):
                    break
                for each in consumers:
                    each.poll(10, 0.0)
            flush.join()
            found.append((ended - stamps[0]) * 1000)
        show(f"wait, consumer {number + 1} of 3", found)


def idle(log: KafkaLog, seconds: float, broker_cpu_s: Callable[[], float]) -> None:
    name = topic(log)
    readers = (log.reader(), log.reader())
    consumers: tuple[GroupConsumer | Reader, ...] = (member(log, name), *readers)
    for reader in readers:
        reader.assign(dict.fromkeys(places(topic(log)), 0))
    for _ in range(20):
        log.wait(consumers, 0.1)
        for each in consumers:
            each.poll(100, 0.0)
    ours = resource.getrusage(resource.RUSAGE_SELF)
    theirs, began = broker_cpu_s(), time.monotonic()
    while time.monotonic() < began + seconds:
        log.wait(consumers, 0.25)
        for each in consumers:
            each.poll(100, 0.0)
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - ours.ru_utime - ours.ru_stime
    print(f"{'idle, this process':28} {100 * used / took:6.1f} % of a core")
    print(f"{'idle, the broker beside it':28} {100 * (broker_cpu_s() - theirs) / took:6.1f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a running broker, instead of one of our own")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    with broker(arguments.kafka) as (bootstrap, broker_cpu_s):
        log = KafkaLog.open(KafkaConfig(bootstrap=bootstrap), SystemClock())
        commits(log, arguments.seconds)
        visible(log, arguments.seconds)
        rates(log)
        waits(log, arguments.seconds)
        log.close()
        log = KafkaLog.open(KafkaConfig(bootstrap=bootstrap), SystemClock())
        idle(log, arguments.seconds, broker_cpu_s)
        log.close()


if __name__ == "__main__":
    main()
