"""The HTTP API of a process without processors, over those of others."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.unit.api.owners import NAMES, PARTITIONS, Cluster, Owner, World, cluster, number_of, wait_for
from tocsin.api.app import create_app
from tocsin.api.appender import Appender
from tocsin.api.cluster import client as client_module
from tocsin.api.cluster import directory as directory_module
from tocsin.api.cluster import gather as gather_module
from tocsin.api.cluster import queries as queries_module
from tocsin.api.services import ApiServices, ConfigSnapshot
from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.schemas.records import Queue
from tocsin.schemas.topics import base_topics
from tocsin.streams.waiters import Waiters

HELLO: dict[str, Any] = {"schedule": {"every": "1h"}, "target": {"http": {"url": "http://127.0.0.1:1/ok"}}}
A, B = "default/a", "default/b"


@dataclass
class ApiProcess:
    cluster: Cluster
    app: FastAPI
    log: MemoryLog

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, request))

    async def _ask(self, method: str, path: str, request: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            return await client.request(method, path, **request)


@pytest.fixture
def process(owners: dict[str, Owner], monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiProcess]:
    monkeypatch.setattr(directory_module, "REFRESH_MIN_S", 0.05)
    monkeypatch.setattr(directory_module, "REFRESH_IDLE_S", 0.1)
    monkeypatch.setattr(directory_module, "LOOK_AROUND_S", 0.02)
    monkeypatch.setattr(directory_module, "TROUBLE_S", 0.0)
    monkeypatch.setattr(gather_module, "HEALTH_S", 30.0)
    monkeypatch.setattr(client_module, "ANSWER_S", 30.0)
    monkeypatch.setattr(queries_module, "STANDING_S", -1.0)
    world = World()
    world.add(A, B)
    clock = SystemClock()
    log = MemoryLog(clock)
    log.create_topics(base_topics(NAMES, PARTITIONS))
    appender = Appender(log.producer(), clock=clock)
    appender.start()
    queue = Queue(name="default", kind="http", partitions=PARTITIONS)
    with cluster(owners, world) as made:
        services = ApiServices(
            appender=appender,
            queries=made.queries,
            clock=clock,
            config=lambda: ConfigSnapshot(partitions=PARTITIONS, queues={"default": queue}),
            create_topics=log.create_topics,
            fires=False,
            writable=made.queries.log_trouble,
            applied_within_s=30,
        )
        yield ApiProcess(cluster=made, app=create_app(services), log=log)
    appender.stop()


def stop_owner_of(process: ApiProcess, key: str) -> int:
    """Returns its partition."""
    number = number_of(key)
    process.cluster.owners["abc"[number % 3]].stop()
    return number


def test_jobs_of_other_processes_are_read_and_listed(process: ApiProcess) -> None:
    assert A == process.ask("GET", f"/v1/jobs/{A}").json()["key"]
    assert 404 == process.ask("GET", "/v1/jobs/default/nobody").status_code
    listed = process.ask("GET", "/v1/jobs").json()
    assert ([A, B], [], None) == (
        [job["key"] for job in listed["items"]],
        listed["missing_partitions"],
        listed["next_cursor"],
    )
    for path in ("/v1/runs", "/v1/dead-letters", f"/v1/jobs/{A}/runs"):
        assert {"items": [], "next_cursor": None, "missing_partitions": []} == process.ask("GET", path).json()
    assert 422 == process.ask("GET", "/v1/jobs", params={"cursor": "!"}).status_code


def test_with_a_part_gone_the_rest_is_served_and_the_part_is_named(process: ApiProcess) -> None:
    assert 2 == len({number_of(A) % 3, number_of(B) % 3}), "two owners"
    number = stop_owner_of(process, A)
    answer = process.ask("GET", f"/v1/jobs/{A}")
    assert (503, "urn:tocsin:problem:partitions-missing", "1") == (
        answer.status_code,
        answer.json()["type"],
        answer.headers["retry-after"],
    )
    assert [(number, "unreachable")] == [
        (each["partition"], each["reason"]) for each in answer.json()["missing_partitions"]
    ]
    assert 200 == process.ask("GET", f"/v1/jobs/{B}").status_code
    listed = process.ask("GET", "/v1/jobs")
    assert (200, [B]) == (listed.status_code, [job["key"] for job in listed.json()["items"]])
    assert {number, (number + 3) % PARTITIONS} == {
        each["partition"] for each in listed.json()["missing_partitions"]
    }


def test_with_a_part_gone_it_is_ready_for_writes_and_says_what_is_missing(process: ApiProcess) -> None:
    assert 200 == process.ask("GET", "/readyz").status_code
    number = stop_owner_of(process, A)
    ready = process.ask("GET", "/readyz")
    assert (200, "degraded") == (ready.status_code, ready.json()["status"])
    assert "1 more of 6 partitions cannot be asked" in ready.json()["reason"]
    assert ("unreachable", False) == (
        ready.json()["partitions"][number]["reason"],
        ready.json()["partitions"][number]["ready"],
    )
    assert "127.0.0.1" not in ready.text, "addresses are not for everybody"
    assert 503 == process.ask("GET", "/readyz", params={"all": "true"}).status_code
    assert 202 == process.ask("PUT", f"/v1/jobs/{A}", json=HELLO).status_code


def test_a_log_that_does_not_answer_is_no_place_to_send_anybody(process: ApiProcess) -> None:
    assert 200 == process.ask("GET", "/readyz").status_code
    process.cluster.group.down = True
    process.cluster.group.wait_until_asked(2)
    ready = process.ask("GET", "/readyz")
    assert (503, "the log takes nothing at the moment: no broker answers") == (
        ready.status_code,
        ready.json()["reason"],
    )


def test_a_write_waits_until_the_owner_has_applied_it_whoever_that_is_by_then(process: ApiProcess) -> None:
    """The old owner never applies it; the new one does as soon as it is asked."""

    class Applies(Waiters):
        def add(self, topic: str, partition: int, offset: int) -> Any:
            self.applied(topic, partition, offset + 1)
            return super().add(topic, partition, offset)

    number = number_of(A)
    old, new = "abc"[number % 3], "abc"[(number + 1) % 3]
    process.cluster.owners[new].queries.waiters = Applies()

    async def both() -> httpx.Response:
        writing = asyncio.ensure_future(
            process._ask("PUT", f"/v1/jobs/{A}", {"json": HELLO, "params": {"wait": "applied"}})
        )
        await asyncio.to_thread(wait_for, lambda: process.cluster.owners[old].queries.waiters.any)
        assert not writing.done()
        process.cluster.give(new, number)
        return await writing

    answer = asyncio.run(both())
    # Nothing folds what was written, so that the state still shows what was there before.
    assert (200, "superseded", number) == (
        answer.status_code,
        answer.json()["result"],
        answer.json()["partition"],
    )


def test_a_batch_asks_for_its_outcomes_in_few_questions(process: ApiProcess) -> None:
    class Applies(Waiters):
        def add(self, topic: str, partition: int, offset: int) -> Any:
            self.applied(topic, partition, offset + 1)
            return super().add(topic, partition, offset)

    for owner in process.cluster.owners.values():
        owner.queries.waiters = Applies()
    lines = "".join(json.dumps({"id": f"n{number}", **HELLO}) + "\n" for number in range(600))
    before = process.cluster.queries.figures().asked
    answer = process.ask("POST", "/v1/jobs:batch", content=lines, params={"wait": "applied"})
    results = [json.loads(line)["result"] for line in answer.text.splitlines()]
    assert (600, {"rejected"}) == (len(results), set(results)), "nothing folds what was written"
    assert process.cluster.queries.figures().asked - before <= 3 * PARTITIONS


def test_the_figures_of_an_api_are_about_whom_it_asks(process: ApiProcess) -> None:
    number = stop_owner_of(process, A)
    text = process.ask("GET", "/metrics").text
    assert f'tocsin_api_partition_answers{{partition="{number}"}} 0.0' in text
    assert f'tocsin_api_partition_answers{{partition="{number_of(B)}"}} 1.0' in text
    assert "tocsin_api_owners 3.0" in text
    assert "tocsin_api_owners_unanswered 1.0" in text
    assert "tocsin_jobs" not in text, "the owners show them, and a sum would count them twice"
    assert "127.0.0.1" not in text
