"""One API before two streams processes, whose partitions move, die and freeze while it is asked."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.waiting import until
from tocsin.log.partitioner import partition_for

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("queries"), pytest.mark.timeout(600)]

NAMES = [f"j{number:04}" for number in range(240)]
KEYS = [f"default/{name}" for name in NAMES]
ANSWERS_WITHIN_S = 10.0
"""Far above what a question may take (3 s for one that is not answered, twice), and far below waiting for somebody."""


def manual(name: str) -> dict[str, Any]:
    """A job that runs only when it is told to."""
    return {"id": name, "target": {"http": {"url": "http://127.0.0.1:1/never"}}}


@pytest.fixture(scope="module")
def defined(shared_cluster: Cluster) -> Cluster:
    shared_cluster.start(streams=2, workers=0)
    until_complete(shared_cluster)
    shared_cluster.define(*(manual(name) for name in NAMES))
    return shared_cluster


@pytest.fixture
def two(defined: Cluster) -> Cluster:
    """Both streams processes run, whatever the test before did to them, and share the partitions."""
    for name in ("streams-1", "streams-2"):
        if not defined[name].alive:
            defined[name].start()
    defined.until_ready()
    defined.until_shared(defined["streams-1"], defined["streams-2"])
    until_complete(defined)
    return defined


def until_complete(cluster: Cluster) -> None:
    """Every partition answers."""
    until(
        lambda: cluster.client.get("/readyz", params={"all": "true"}).status_code == 200,
        lambda: f"all partitions answer: {cluster.client.get('/readyz').text}",
    )


def number_of(cluster: Cluster, key: str) -> int:
    return partition_for(key.encode(), cluster.partitions)


def listed(cluster: Cluster, limit: int) -> tuple[list[str], set[int]]:
    """Following the cursors to the end: the keys, and the partitions that a page said were missing."""
    keys: list[str] = []
    missing: set[int] = set()
    cursor: str | None = ""
    while cursor is not None:
        answer = cluster.client.get(
            "/v1/jobs", params={"limit": limit, "cursor": cursor}, timeout=ANSWERS_WITHIN_S
        )
        if answer.status_code == 503:  # for a moment nobody had any partition
            assert cluster.partitions == len(answer.json()["missing_partitions"]), answer.text
            missing |= set(range(cluster.partitions))
            threading.Event().wait(float(answer.headers["retry-after"]))
            continue
        assert 200 == answer.status_code, answer.text
        page = answer.json()
        keys += [job["key"] for job in page["items"]]
        missing |= {each["partition"] for each in page["missing_partitions"]}
        cursor = page["next_cursor"]
    return keys, missing


def check_listed(cluster: Cluster, keys: list[str], missing: set[int]) -> None:
    """In order, nothing twice, and nothing left out but what was said to be."""
    assert sorted(set(keys)) == keys
    left_out = set(KEYS) - set(keys)
    assert missing >= {number_of(cluster, key) for key in left_out}, (left_out, missing)


def test_lists_are_whole_or_say_what_they_lack_while_partitions_move(two: Cluster) -> None:
    moving = threading.Event()

    def list_again_and_again() -> tuple[int, int]:
        times = gaps = 0
        while not moving.is_set():
            keys, missing = listed(two, 17)
            check_listed(two, keys, missing)
            times, gaps = times + 1, gaps + bool(missing)
        return times, gaps

    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(list_again_and_again)
        try:
            assert 0 == two["streams-2"].stop()
            two.until_shared(two["streams-1"])
            two["streams-2"].start().until_ready()
            two.until_shared(two["streams-1"], two["streams-2"])
            two["streams-1"].kill()
            two.until_shared(two["streams-2"])
            until_complete(two)
        finally:
            moving.set()
        times, _ = listing.result(ANSWERS_WITHIN_S * 10)
    assert times > 0
    assert (KEYS, set()) == listed(two, 100)


def test_a_frozen_streams_process_is_named_and_holds_up_nobody(two: Cluster) -> None:
    frozen = two["streams-2"]
    lost = two.partitions_of(frozen)
    frozen.freeze()
    seen: dict[str, int] = {}
    for key in KEYS[:40]:
        answer = two.client.get(f"/v1/jobs/{key}", timeout=ANSWERS_WITHIN_S)
        if answer.status_code == 503:
            problem = answer.json()
            assert "urn:tocsin:problem:partitions-missing" == problem["type"]
            assert [number_of(two, key)] == [each["partition"] for each in problem["missing_partitions"]]
            assert number_of(two, key) in lost
            assert float(answer.headers["retry-after"]) >= 1
        else:
            assert 200 == answer.status_code, answer.text
        seen[key] = answer.status_code
    assert {200} == {status for key, status in seen.items() if number_of(two, key) not in lost}
    keys, missing = listed(two, 100)
    check_listed(two, keys, missing)
    assert 200 == two.client.get("/readyz").status_code, "it can still write"
    assert 202 == two.client.put(f"/v1/jobs/{KEYS[0]}", json=manual(NAMES[0])).status_code
    two.until_shared(two["streams-1"])
    until_complete(two)
    assert (KEYS, set()) == listed(two, 100)
    frozen.thaw()
    two.until_shared(two["streams-1"], frozen)
    until_complete(two)
    assert (KEYS, set()) == listed(two, 100)


def test_who_waits_for_a_write_is_answered_by_the_next_owner_when_the_first_is_killed(two: Cluster) -> None:
    killed = two["streams-2"]
    name = next(name for name in NAMES if number_of(two, f"default/{name}") in two.partitions_of(killed))
    killed.kill()
    document = {**manual(name), "description": "written while nobody was there to apply it"}

    def write() -> httpx.Response:
        return two.client.put(f"/v1/jobs/default/{name}", json=document, params={"wait": "applied"})

    answer = until(lambda: (got := write()).status_code == 200 and got, "the write is applied")
    assert isinstance(answer, httpx.Response)
    assert answer.json()["result"] in ("changed", "unchanged"), (
        answer.text
    )  # the latter if the first took too long
    until_complete(two)
    assert document["description"] == two.get(f"/v1/jobs/default/{name}")["description"]


def test_an_api_without_the_secret_learns_nothing(two: Cluster) -> None:
    for role in (two["streams-1"], two["streams-2"]):
        for headers in ({}, {"tocsin-cluster-secret": ""}, {"tocsin-cluster-secret": "guess"}):
            answer = httpx.post(f"{role.url}/cluster/1/jobs", json={"limit": 5}, headers=headers)
            assert (401, b"") == (answer.status_code, answer.content)
