"""What the embedded log takes and gives: commits, plain records, bulk load, tail and cold reads, latency under load.

    python -m benchmarks.bench_log [--seconds 2] [--directory .]

Method: one process, a new log in a temporary directory below --directory (give one on the disk in question: on a tmpfs
an fsync costs nothing). Records of 300 bytes with a key of 20. Each part runs for --seconds; latencies are the minimum,
the median, the 99th percentile and the maximum of single calls, in milliseconds. The first line is what the disk itself
takes for one write of 512 bytes and an fdatasync.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import Delivery, TopicPartition, TopicSpec

VALUE: Final = os.urandom(300)  # bytes that do not compress
KEY: Final = b"billing/invoice-%04d"
PARTITIONS: Final = 4
RECORDS_PER_COMMIT: Final = 50


def spread(samples: Sequence[float]) -> str:
    ordered = sorted(sample * 1_000 for sample in samples)
    at = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return f"min {ordered[0]:7.2f}  median {at[0]:7.2f}  p99 {at[1]:7.2f}  max {ordered[-1]:7.2f} ms"


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def bench_disk(directory: Path) -> None:
    file = directory / "disk"
    fd = os.open(file, os.O_CREAT | os.O_WRONLY)

    def write() -> None:
        os.write(fd, VALUE[:256] * 2)
        os.fdatasync(fd)

    samples = [timed(write) for _ in range(300)]
    os.close(fd)
    file.unlink()
    print(f"disk: write + fdatasync          {spread(samples)}")


def bench_commits(log: EmbeddedLog, threads: int, seconds: float) -> None:
    samples: list[list[float]] = [[] for _ in range(threads)]
    stop = threading.Event()

    def run(index: int) -> None:
        producer = log.transactional_producer(f"bench-{index}")
        producer.init()

        def commit() -> None:
            producer.begin()
            for number in range(RECORDS_PER_COMMIT):
                producer.produce("runs", partition=number % PARTITIONS, key=KEY % number, value=VALUE)
            producer.commit()

        while not stop.is_set():
            samples[index].append(timed(commit))

    took = _run_threads([lambda index=index: run(index) for index in range(threads)], stop, seconds)  # type: ignore[misc]
    count = sum(map(len, samples))
    print(
        f"commits of {RECORDS_PER_COMMIT} records, {threads} thread(s)  "
        f"{spread([s for each in samples for s in each])}"
        f"   {count / took:6.0f} commits/s  {count * RECORDS_PER_COMMIT / took:8.0f} records/s"
    )


def bench_plain(log: EmbeddedLog, seconds: float) -> None:
    """One record at a time, each waited for: what an API call pays."""
    producer = log.producer()
    samples: list[float] = []
    ends = time.perf_counter() + seconds

    def acknowledged() -> None:
        producer.produce("commands", key=b"k", value=VALUE)
        producer.flush(10)

    while time.perf_counter() < ends:
        samples.append(timed(acknowledged))
    print(f"one plain record, acknowledged   {spread(samples)}   {len(samples) / seconds:6.0f} records/s")


def bench_bulk(log: EmbeddedLog, seconds: float) -> None:
    producer = log.producer()
    acknowledged = 0

    def on_delivery(delivery: Delivery) -> None:
        nonlocal acknowledged
        assert delivery.error is None
        acknowledged += 1

    started = time.perf_counter()
    number = 0
    while time.perf_counter() - started < seconds:
        for _ in range(1_000):
            number += 1
            producer.produce("jobs", key=b"billing/invoice-%d" % number, value=VALUE, on_delivery=on_delivery)
        producer.poll()
        if number - acknowledged > 50_000:
            producer.flush(10)
    producer.flush(10)
    took = time.perf_counter() - started
    print(f"bulk load, one producer          {acknowledged / took:8.0f} records/s acknowledged")


def bench_reads(log: EmbeddedLog, name: str, topic: str) -> None:
    reader = log.reader()
    reader.assign({TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
    count = 0
    started = time.perf_counter()
    while records := reader.poll(5_000, 0):
        count += len(records)
    took = time.perf_counter() - started
    print(f"{name:32} {count / took:8.0f} records/s ({count} records)")


def bench_load(log: EmbeddedLog, seconds: float) -> None:
    """What 500 runs a second are to the log: 40 commits of 50 records and 2,000 plain records a second, all followed."""
    stop = threading.Event()
    commits: list[float] = []
    acknowledged: list[float] = []
    seen: list[float] = []

    def streams() -> None:
        producer = log.transactional_producer("load")
        producer.init()

        def commit() -> None:
            producer.begin()
            for number in range(RECORDS_PER_COMMIT):
                stamp = b"%.9f" % time.perf_counter()
                producer.produce("runs", partition=number % PARTITIONS, key=stamp, value=VALUE)
            producer.commit()

        while not stop.wait(0.025):
            commits.append(timed(commit))

    def worker() -> None:
        producer = log.producer()
        while not stop.wait(0.01):
            for number in range(10):
                started = time.perf_counter()

                def on_delivery(_: Delivery, started: float = started) -> None:
                    acknowledged.append(time.perf_counter() - started)

                producer.produce("outcomes", key=KEY % number, value=VALUE, on_delivery=on_delivery)
            producer.flush(10)

    def follower() -> None:
        reader = log.reader()
        for topic in ("runs", "outcomes"):
            for number in range(PARTITIONS):
                where = TopicPartition(topic, number)
                reader.add(where, log.end_offset(where, "committed"))
        while not stop.is_set():
            log.wait([reader], 0.1)
            now = time.perf_counter()
            seen.extend(now - float(r.key or b"0") for r in reader.poll(1_000, 0) if r.topic == "runs")

    cpu = time.process_time()
    took = _run_threads([streams, worker, worker, follower], stop, seconds)
    cpu = time.process_time() - cpu
    print(
        f"under the load of 500 runs/s ({len(commits) / took:.0f} commits/s, {len(acknowledged) / took:.0f} plain/s):"
    )
    print(f"  commit                         {spread(commits)}")
    print(f"  plain record, acknowledged     {spread(acknowledged)}")
    print(f"  produced, then read by another {spread(seen)}")
    print(f"  processor time                 {cpu / took:.0%} of a core, load generator and reader included")


def _run_threads(targets: Sequence[Callable[[], None]], stop: threading.Event, seconds: float) -> float:
    threads = [threading.Thread(target=target) for target in targets]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--directory", type=Path, default=Path())
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, rocksdict {version('rocksdict')}, {os.cpu_count()} cores")
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-log-") as temporary:
        directory = Path(temporary)
        bench_disk(directory)
        with EmbeddedLog.open(directory / "log", SystemClock()) as log:
            log.create_topics(
                TopicSpec(name=name, partitions=PARTITIONS)
                for name in ("runs", "commands", "outcomes", "jobs")
            )
            for threads in (1, 4):
                bench_commits(log, threads, arguments.seconds)
            bench_plain(log, arguments.seconds)
            bench_bulk(log, arguments.seconds)
            bench_load(log, arguments.seconds)
            bench_reads(log, "read from the beginning", "jobs")
            print(f"memory: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
