"""A million armed jobs on one node: defining them, starting with them, and firing beside them.

    python -m benchmarks.bench_million [--jobs 1000000] [--small 10000] [--rate 200] [--seconds 20]

Method: `tocsin up` as a process of its own on an empty directory. First SMALL jobs are armed (crons of one day in the
year to come) and RATE jobs of `every: 1s` fire for a while; then the jobs are filled up to JOBS through POST
/v1/jobs:batch in batches of 10,000, the node is stopped and started again, and the same RATE jobs fire once more. Printed:
the time to define, the time from exec to ready, the resident memory, and runs per second and lateness beside each number
of armed jobs.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.node import Node, Sink, node, percentile, sink

BATCH = 10_000
WARM_UP_S = 5.0


def armed(first: int, count: int) -> Iterator[dict[str, Any]]:
    for number in range(first, first + count):
        minute, hour, day, month = (
            number % 60,
            number // 60 % 24,
            number // 1440 % 28 + 1,
            number // 40_320 % 12 + 1,
        )
        yield {
            "namespace": f"team-{number % 100}",
            "id": f"job-{number}",
            "schedule": {"cron": f"{minute} {hour} {day} {month} *", "timezone": "Europe/Berlin"},
            "target": {"http": {"url": "http://127.0.0.1:9/never", "body": {"n": number}}},
        }


def define(target: Node, first: int, count: int) -> float:
    started = time.monotonic()
    for batch in range(first, first + count, BATCH):
        target.define(armed(batch, min(BATCH, first + count - batch)))
        if batch // BATCH % 10 == 9:
            print(f"    {batch + BATCH:,} defined after {time.monotonic() - started:.0f} s", flush=True)
    return time.monotonic() - started


def fire(target: Node, receiver: Sink, seconds: float, label: str) -> float:
    time.sleep(WARM_UP_S)
    receiver.take()
    cpu_s = target.cpu_s()
    time.sleep(seconds)
    runs = receiver.take()
    lateness = [late for _, late in runs]
    rate = len(runs) / seconds
    print(
        f"  beside {label}: {rate:.1f} runs/s, p50 {percentile(lateness, 0.5):.1f}, p99 {percentile(lateness, 0.99):.1f} ms, "
        f"{(target.cpu_s() - cpu_s) / seconds:.2f} cores, {target.rss_mib():.0f} MiB resident"
    )
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with sink() as receiver, node() as target:
        print(f"  an empty node is ready after {target.start():.1f} s")
        define(target, 0, given.small)
        target.define(
            {
                "namespace": "bench",
                "id": f"firing-{number}",
                "schedule": {"every": "1s", "anchor": f"2026-01-01T00:00:00.{number * 997 % 1000:03d}Z"},
                "target": {"http": {"url": f"{receiver.url}/ok"}},
            }
            for number in range(given.rate)
        )
        few = fire(target, receiver, given.seconds, f"{given.small:,} armed jobs")
        took = define(target, given.small, given.jobs - given.small)
        print(
            f"  {given.jobs - given.small:,} jobs defined in {took:.0f} s ({(given.jobs - given.small) / took:,.0f} a second)"
        )
        many = fire(target, receiver, given.seconds, f"{given.jobs:,} armed jobs")
        target.stop()
        print(f"  with {given.jobs:,} jobs the node is ready after {target.start():.1f} s")
        fire(target, receiver, given.seconds, f"{given.jobs:,} armed jobs, started again")
        print(f"  ratio of the rates, many to few: {many / few:.3f}")


if __name__ == "__main__":
    main()
