"""What a question costs that goes through an API process to whoever owns the partition, and how fast it is answered.

    python -m benchmarks.bench_kafka_queries [--jobs 2000] [--seconds 5]

Method: a broker, two streams processes and an API as processes of their own; jobs that never run. Clients in this process ask
over kept connections, as many at once as is said: for one job, for a page of 100, for a definition that is to be applied.
`/livez` shows what the server costs without any question. Beside each figure the processor time of the API and of one owner,
in cores. docs/decisions/012 has the figures that were found.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from benchmarks.kafka import rig
from benchmarks.node import percentile
from tests.kafka.cluster import Cluster
from tests.kafka.waiting import until

Ask = Callable[[aiohttp.ClientSession, int], Any]
"""Begins the n-th request."""


def manual(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "target": {"http": {"url": "http://127.0.0.1:9/never"}}, **more}


async def asked(ask: Ask, at_once: int, seconds: float) -> list[float]:
    """Milliseconds of each request."""
    found: list[float] = []
    end_s = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client(number: int) -> None:
            while time.monotonic() < end_s:
                began_s = time.monotonic()
                async with ask(session, number) as response:
                    await response.read()
                    assert response.status < 300, await response.text()
                found.append((time.monotonic() - began_s) * 1000)
                number += at_once

        await asyncio.gather(*(client(number) for number in range(at_once)))
    return found


def measure(cluster: Cluster, what: str, ask: Ask, at_once: int, seconds: float) -> None:
    roles = (cluster["api"], cluster["streams-1"])
    before = [role.cpu_s() for role in roles]
    polls = cluster["api"].metric("tocsin_api_questions_total")
    found = asyncio.run(asked(ask, at_once, seconds))
    api, owner = ((role.cpu_s() - was) / seconds for role, was in zip(roles, before, strict=True))
    questions = cluster["api"].metric("tocsin_api_questions_total") - polls
    print(
        f"{what}, {at_once:>3} at once: {len(found) / seconds:6.0f}/s, p50 {percentile(found, 0.5):6.1f} ms, "
        f"p99 {percentile(found, 0.99):6.1f} ms; API {api:.2f} of a core, an owner {owner:.2f}; "
        f"{questions / max(1, len(found)):.2f} questions each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    with rig() as target:
        cluster = target.cluster
        cluster.start(streams=2, workers=0)
        until(
            lambda: cluster.client.get("/readyz", params={"all": "true"}).status_code == 200,
            "every partition answers",
        )
        names = [f"j{number:05}" for number in range(given.jobs)]
        began_s = time.monotonic()
        cluster.define(*(manual(name) for name in names))
        print(f"{given.jobs:,} definitions in one batch, applied: {time.monotonic() - began_s:.2f} s")
        url = cluster["api"].url

        def job(session: aiohttp.ClientSession, number: int) -> Any:
            return session.get(f"{url}/v1/jobs/default/{names[number * 7 % given.jobs]}")

        def page(session: aiohttp.ClientSession, number: int) -> Any:
            return session.get(f"{url}/v1/jobs", params={"cursor": f"default/{names[number % given.jobs]}"})

        def applied(session: aiohttp.ClientSession, number: int) -> Any:
            name = names[number * 7 % given.jobs]
            changed = manual(name, description=f"the {number}th")
            return session.put(f"{url}/v1/jobs/default/{name}", json=changed, params={"wait": "applied"})

        for what, ask, all_at_once in (
            ("nothing (/livez)       ", lambda session, _: session.get(f"{url}/livez"), (1, 8)),
            ("one job                ", job, (1, 8, 32)),
            ("a page of 100          ", page, (1, 8)),
            ("a definition, applied  ", applied, (1, 50, 500)),
        ):
            for at_once in all_at_once:
                measure(cluster, what, ask, at_once, given.seconds)


if __name__ == "__main__":
    main()
