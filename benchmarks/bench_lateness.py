"""Start lateness at 500 HTTP runs a second on one node, jobs of every second included.

    python -m benchmarks.bench_lateness [--rate 500] [--seconds 20] [--rounds 3]

Method: `tocsin up` as a process of its own on an empty directory, a receiver (aiohttp) as another. RATE jobs, each once
a second: a fifth of them by `cron: "* * * * * *"`, so they all fall on the full second together; the others by `every: 1s`
at phases spread over the second. Lateness is measured by the receiver, when a request has reached it, minus Tocsin-Due: it
holds everything, the receiver's own queue included. What the node itself measured, at the start of each request, is read
from /metrics. The same receiver is then sent the same pattern by a bare asyncio + aiohttp loop that knows all instants
beforehand: the ratio of the two says what Tocsin adds to that on this machine, now.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiohttp

from benchmarks.node import Node, Sink, node, percentile, sink

WARM_UP_S = 5.0


def documents(rate: int, url: str) -> Iterator[dict[str, Any]]:
    for number in range(rate):
        phase_ms = 0 if number % 5 == 0 else number * 997 % 1000
        schedule: dict[str, Any] = {"cron": "* * * * * *"}
        if number % 5:
            schedule = {"every": "1s", "anchor": f"2026-01-01T00:00:00.{phase_ms:03d}Z"}
        yield {
            "namespace": "bench",
            "id": f"job-{number}",
            "schedule": schedule,
            "target": {"http": {"url": f"{url}/ok", "body": {"n": number}}},
        }


def of_node(target: Node, receiver: Sink, rate: int, seconds: float, rounds: int) -> list[list[float]]:
    target.define(documents(rate, receiver.url))
    time.sleep(WARM_UP_S)
    receiver.take()
    found = []
    for number in range(rounds):
        cpu_s = target.cpu_s()
        time.sleep(seconds)
        runs = receiver.take()
        lateness = [late for _, late in runs]
        found.append(lateness)
        busy = (target.cpu_s() - cpu_s) / seconds
        print(
            f"  round {number + 1}: {len(runs) / seconds:6.1f} runs/s, {len(runs) - len({r for r, _ in runs})} twice; "
            f"p50 {percentile(lateness, 0.5):6.1f}  p99 {percentile(lateness, 0.99):6.1f}  "
            f"max {max(lateness):6.1f} ms; {busy:.2f} cores"
        )
    return found


async def of_bare_loop(receiver: Sink, rate: int, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    body = b'{"n": 1}'
    connector = aiohttp.TCPConnector(limit=256)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(due_s: float) -> None:
            async with session.post(
                f"{receiver.url}/ok", data=body, headers={"Tocsin-Due": f"{due_s:.6f}"}
            ) as response:
                await response.read()

        tasks: list[asyncio.Task[None]] = []
        wall_s, loop_s = time.time(), loop.time()
        start_s = float(int(wall_s) + 2)
        for second in range(int(seconds)):
            for number in range(rate):
                phase_s = 0.0 if number % 5 == 0 else number * 997 % 1000 / 1000
                due_s = start_s + second + phase_s
                loop.call_at(
                    loop_s + due_s - wall_s,
                    lambda due_s=due_s: tasks.append(asyncio.create_task(send(due_s))),  # type: ignore[misc]
                )
        await asyncio.sleep(start_s - wall_s + seconds + 1)
        await asyncio.gather(*tasks)
    return [late for _, late in receiver.take()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"{given.rate} HTTP runs a second, a fifth of them on the full second; lateness at the receiver")
    with sink() as receiver:
        with node() as target:
            target.start()
            found = of_node(target, receiver, given.rate, given.seconds, given.rounds)
            started = target.metrics()
            within = {
                name: value
                for name, value in started.items()
                if name.startswith("tocsin_lateness_seconds_bucket")
            }
            total = max(within.values(), default=0.0)
            below = next((v for n, v in within.items() if 'le="0.05"' in n and "default" in n), 0.0)
            print(
                f"  by the node's own measure, {below / max(total, 1):.2%} of all starts were at most 50 ms late"
            )
        bare = asyncio.run(of_bare_loop(receiver, given.rate, given.seconds))
    p99 = sorted(percentile(each, 0.99) for each in found)
    print(f"  p99 of the rounds: min {p99[0]:.1f}, median {p99[len(p99) // 2]:.1f}, max {p99[-1]:.1f} ms")
    reference = percentile(bare, 0.99)
    print(f"  a bare asyncio loop: p50 {percentile(bare, 0.5):.1f}, p99 {reference:.1f} ms")
    print(f"  ratio of p99 (median of the rounds): {p99[len(p99) // 2] / reference:.2f}")


if __name__ == "__main__":
    main()
