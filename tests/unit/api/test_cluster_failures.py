"""Streams processes that do not answer, answer something else, or must not be asked at all."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self

import pytest

from tests.unit.api.owners import (
    SECRET,
    Cluster,
    Frozen,
    Owner,
    World,
    all_keys,
    key_in,
    number_of,
    reasons,
    view_of,
)
from tocsin.api.cluster import client as client_module
from tocsin.api.cluster import gather as gather_module
from tocsin.api.cluster import wire
from tocsin.streams.queries import JobFilter, PartitionsMissing

# --- processes that do not answer ----------------------------------------------------------------------------------------


def test_what_is_being_restored_is_named_with_its_progress(three: Cluster, world: World) -> None:
    world.restoring.add(2)
    with pytest.raises(PartitionsMissing, match="partition 2 is being restored: 3 of 12, about 4 s left"):
        three.queries.get_job(key_in(2))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {2: "restoring"} == reasons(page.missing)
    assert (3, 12, 4.5) == (
        page.missing[0].restore_done,
        page.missing[0].restore_total,
        page.missing[0].restore_eta_s,
    )
    assert {2} == {number_of(key) for key in world.in_order()} - {number_of(view.key) for view in page.items}
    assert [(2, 3, 12)] == [
        (each.partition, each.restore_done, each.restore_total)
        for each in three.queries.health()
        if not each.ready
    ]


def test_a_process_that_is_gone_takes_its_partitions_with_it_and_nothing_else(three: Cluster) -> None:
    assert three.queries.get_job(key_in(0)) is not None
    three.owners["a"].stop()
    with pytest.raises(PartitionsMissing, match="cannot be asked: its streams process does not answer"):
        three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {0: "unreachable", 3: "unreachable"} == reasons(page.missing)
    assert {1, 2, 4, 5} == {number_of(view.key) for view in page.items}
    assert {three.owners["a"].url} == set(three.queries.unanswered())
    assert three.owners["a"].url not in three.queries.broken()


def test_a_process_that_starts_again_at_its_address_is_asked_again(three: Cluster, world: World) -> None:
    assert three.queries.get_job(key_in(0)) is not None
    three.owners["a"].stop()
    with pytest.raises(PartitionsMissing):
        three.queries.get_job(key_in(0))
    three.owners["a"].start()
    until_answered(lambda: three.queries.get_job(key_in(0)))
    assert world.in_order() == all_keys(three.queries, limit=100)
    assert set() == set(three.queries.unanswered())


def until_answered(ask: Callable[[], object]) -> None:
    """A process that failed is left alone for a while."""
    pause = threading.Event()
    for _ in range(300):
        try:
            ask()
        except PartitionsMissing:
            pause.wait(0.1)
        else:
            return
    raise AssertionError("it is not asked again")


def test_partitions_of_a_dead_process_are_asked_of_whoever_takes_them_over(
    three: Cluster, world: World
) -> None:
    assert three.queries.get_job(key_in(0)) is not None
    three.owners["a"].stop()
    three.give("b", 0, 3)
    until_answered(lambda: three.queries.get_job(key_in(0)))
    assert world.in_order() == all_keys(three.queries, limit=100)


@pytest.fixture
def frozen(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frozen]:
    """Partition 0's owner."""
    monkeypatch.setattr(client_module, "CLOSED_S", 1_000)
    monkeypatch.setattr(client_module, "CLOSED_MAX_S", 1_000)
    made = Frozen()
    three.group.shown[0] = made.url
    three.group.wait_until_asked(2)
    yield made
    made.close()


def test_a_frozen_process_holds_up_nobody(
    three: Cluster, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_S", 1_000)

    async def ask() -> None:
        asks = three.queries.asking()
        stuck = [asyncio.ensure_future(asks.get_job(key_in(0))) for _ in range(200)]
        views = await asyncio.gather(*(asks.get_job(key_in(number)) for number in (1, 2, 4, 5) * 25))
        assert all(views)
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()

    asyncio.run(ask())


def test_a_frozen_process_is_left_alone(
    three: Cluster, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.2, 1_000):
        monkeypatch.setattr(client_module, "ANSWER_S", seconds)
        with pytest.raises(PartitionsMissing, match="did not answer in time"):
            three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {0: "unreachable"} == reasons(page.missing)
    assert {1, 2, 3, 4, 5} == {number_of(view.key) for view in page.items}
    assert 1 == frozen.connections(), "the first question alone was sent"


def test_the_health_of_all_is_told_without_waiting_for_a_frozen_process(
    three: Cluster, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_S", 1_000)
    monkeypatch.setattr(gather_module, "HEALTH_S", 2.0)
    health, broken = asyncio.run(three.queries.asking().standing())
    assert {0: "unreachable"} == {each.partition: each.reason for each in health if not each.ready}
    assert "partition 0 cannot be asked: its streams process does not answer" == broken


# --- who is asked at all -------------------------------------------------------------------------------------------------


def test_another_secret_is_refused_and_never_shown(three: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    three.secret = "a secret of another cluster"
    with pytest.raises(PartitionsMissing, match="its streams process has another cluster secret") as refused:
        three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=5)
    assert {"refused"} == set(reasons(page.missing).values())
    for text in (str(refused.value), repr(page.missing), three.queries.broken(), caplog.text):
        assert "a secret of" not in text
        assert SECRET not in text


def test_without_a_secret_nothing_is_asked(three: Cluster) -> None:
    three.secret = ""
    three.owners["a"].queries.asked.clear()
    with pytest.raises(PartitionsMissing, match="does not know the secret of the cluster yet"):
        three.queries.get_job(key_in(0))
    assert [] == [question for owner in three.owners.values() for question in owner.queries.asked]


class Listener:
    """An HTTP server that answers every request in one way, and remembers what it was sent."""

    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.seen: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", "0")))
                outer.seen.append(dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """In silence."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_the_secret_does_not_follow_a_redirect(three: Cluster) -> None:
    with Listener(200) as elsewhere, Listener(307, location=elsewhere.url) as owner:
        three.group.shown[0] = owner.url
        three.group.wait_until_asked(2)
        with pytest.raises(PartitionsMissing, match="answered 307"):
            three.queries.get_job(key_in(0))
        assert (1, []) == (len(owner.seen), elsewhere.seen)


def test_the_secret_goes_through_no_proxy(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Listener(200) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert three.queries.get_job(key_in(0)) is not None
        assert [] == proxy.seen


def test_a_member_that_advertises_no_address_is_named_and_not_asked(three: Cluster) -> None:
    three.group.shown[0] = "rdkafka"
    three.group.wait_until_asked(2)
    with pytest.raises(PartitionsMissing, match=r"--advertise http://HOST:PORT.*'rdkafka'"):
        three.queries.get_job(key_in(0))


@pytest.mark.parametrize(
    "status, body",
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"TQ\x02" + bytes(4)),
        (200, wire.pack({})[:-1]),
        (200, wire.pack({}, [b"\xc3\x01unknown"])),
        (200, wire.pack({}, [wire.job_bytes(view_of("default/a"))[:-3]])),
        (404, b"{}"),
        (501, b'{"versions": [2, 3]}'),
    ],
    ids=[
        "nothing",
        "a page",
        "a later version",
        "cut off",
        "unknown item",
        "half an item",
        "no such",
        "other versions",
    ],
)
def test_an_owner_of_another_release_is_named_as_such(three: Cluster, status: int, body: bytes) -> None:
    with Listener(status, body) as owner:
        three.group.shown[0] = owner.url
        three.group.wait_until_asked(2)
        with pytest.raises(PartitionsMissing, match="its streams process is of another release"):
            three.queries.get_job(key_in(0))


@pytest.mark.parametrize("status", [400, 403, 500, 502, 503])
def test_an_owner_that_fails_is_named_as_such(three: Cluster, status: int) -> None:
    with Listener(status, b"[]") as owner:
        three.group.shown[0] = owner.url
        three.group.wait_until_asked(2)
        with pytest.raises(
            PartitionsMissing, match=f"its streams process does not answer.*answered {status}"
        ):
            three.queries.get_job(key_in(0))
        assert {0: "unreachable"} == reasons(three.queries.list_jobs(JobFilter(), cursor="", limit=5).missing)


def test_an_answer_without_end_is_not_read_to_its_end(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ANSWER_BYTES_MAX", 1_000_000)
    with Listener(200, bytes(3_000_000)) as owner:
        three.group.shown[0] = owner.url
        three.group.wait_until_asked(2)
        with pytest.raises(PartitionsMissing, match="broke off"):
            three.queries.get_job(key_in(0))


def test_a_port_that_is_free_is_no_owner(three: Cluster) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    three.group.shown[0] = url
    three.group.wait_until_asked(2)
    with pytest.raises(PartitionsMissing, match="refuses connections"):
        three.queries.get_job(key_in(0))


def test_an_owner_serves_nobody_before_the_cluster_has_a_secret(three: Cluster) -> None:
    owner = Owner(three.world, "a", secret="")
    owner.start()
    try:
        three.group.shown[0] = owner.url
        three.group.wait_until_asked(2)
        with pytest.raises(PartitionsMissing, match="another cluster secret"):
            three.queries.get_job(key_in(0))
    finally:
        owner.stop()
