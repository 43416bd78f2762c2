"""Questions of an API process to several streams processes: who is asked, and what is said when somebody cannot be."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Self

import pytest

from tests.unit.api.owners import (
    PARTITIONS,
    SECRET,
    START_MS,
    Cluster,
    Frozen,
    Owner,
    Part,
    World,
    all_keys,
    cluster,
    number_of,
    run_of,
    view_of,
    wait_for,
)
from tocsin.api.cluster import client as client_module
from tocsin.api.cluster import directory as directory_module
from tocsin.api.cluster import wire
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.queries import JobFilter, PartitionsMissing

KEYS = [f"default/j{number:03}" for number in range(60)]


@pytest.fixture
def world() -> World:
    made = World()
    made.add(*KEYS, "other/a", "other/b")
    made.runs += [run_of(key, "one", event_ms=START_MS + at) for at, key in enumerate(KEYS)]
    made.runs += [run_of(KEYS[0], f"n{n}", event_ms=START_MS + 100 + n, status="failed") for n in range(7)]
    made.dead += [
        DeadLetter(run=run_of(key, "dead", status="failed", seq=seq), body=b"\0\xff", died_ms=START_MS)
        for seq, key in enumerate([*KEYS[::3], KEYS[0]], 5)
    ]
    return made


@pytest.fixture
def three(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Changes of the group are seen at once."""
    monkeypatch.setattr(directory_module, "REFRESH_MIN_S", 0.05)
    monkeypatch.setattr(directory_module, "REFRESH_IDLE_S", 0.1)
    monkeypatch.setattr(directory_module, "LOOK_AROUND_S", 0.02)
    with cluster(world=world) as made:
        assert made.queries.get_job(key_in(0)) is not None
        yield made


@pytest.fixture
def settled(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The group was looked at, and is looked at again only when something is not as expected."""
    monkeypatch.setattr(directory_module, "REFRESH_IDLE_S", 1_000_000)
    with cluster(world=world) as made:
        assert made.queries.get_job(key_in(0)) is not None
        yield made


def key_in(number: int) -> JobKey:
    return JobKey(next(key for key in KEYS if number_of(key) == number))


def reasons(missing: Any) -> dict[int, str]:
    return {each.partition: each.reason for each in missing}


# --- answers -------------------------------------------------------------------------------------------------------------


def test_a_question_about_a_key_is_answered_as_its_owner_would(three: Cluster, world: World) -> None:
    for key in KEYS:
        assert world.jobs[key] == three.queries.get_job(JobKey(key))
    assert three.queries.get_job(JobKey("default/nobody")) is None
    run = world.runs[3]
    assert run == three.queries.get_run(run.run_id)
    assert three.queries.get_run(f"{KEYS[0]}!t.none") is None
    assert three.queries.get_run("no run id at all") is None
    assert {"job"} == {question for owner in three.owners.values() for question in owner.queries.asked}


def test_many_keys_are_asked_for_at_once(
    three: Cluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "KEYS_MAX", 4)  # so that it takes several questions
    wanted = [JobKey(key) for key in (*KEYS, "default/nobody")]
    assert {key: world.jobs[key] for key in KEYS} == three.queries.get_jobs(wanted)
    assert {} == three.queries.get_jobs([])


def test_the_runs_of_a_job_come_page_by_page(three: Cluster) -> None:
    found: list[str] = []
    cursor = ""
    while True:
        page = three.queries.runs_of(JobKey(KEYS[0]), cursor=cursor, limit=3)
        found += [run.run_id for run in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert [*(f"{KEYS[0]}!t.n{n}" for n in reversed(range(7))), f"{KEYS[0]}!t.one"] == found


def test_lists_of_all_owners_are_one_list_in_order(three: Cluster, world: World) -> None:
    for limit in (1, 7, 62, 63, 500):
        assert world.in_order() == all_keys(three.queries, limit=limit)
    assert ["other/a", "other/b"] == all_keys(three.queries, limit=10, namespace="other")


def test_searches_that_give_up_early_make_short_pages_and_leave_nothing_out(
    three: Cluster, world: World
) -> None:
    world.scan_max = 2
    assert world.in_order() == all_keys(three.queries, limit=50)
    assert ["other/a", "other/b"] == all_keys(three.queries, limit=50, namespace="other")


def test_pages_that_are_too_large_to_send_are_cut_and_go_on(
    three: Cluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "PAGE_BYTES_MAX", 1)
    assert world.in_order() == all_keys(three.queries, limit=500)
    assert set(KEYS) == three.queries.get_jobs([JobKey(key) for key in KEYS]).keys()
    newest = three.queries.recent_runs(namespace="", status="", limit=500).items
    assert newest[0] == world.runs[-1]


def test_dead_letters_of_all_owners_are_one_list_in_order(three: Cluster, world: World) -> None:
    expected = sorted((each.run.job_id, each.run.seq) for each in world.dead)
    for limit in (1, 2, 5, 100):
        found: list[tuple[str, int]] = []
        cursor = ""
        while True:
            page = three.queries.dead_letters(namespace="", cursor=cursor, limit=limit)
            found += [(each.run.job_id, each.run.seq) for each in page.items]
            cursor = page.next_cursor
            if not cursor:
                break
        assert expected == found


def test_recent_runs_of_all_owners_come_by_the_time_of_their_last_event(three: Cluster, world: World) -> None:
    newest = [run.run_id for run in reversed(world.runs)]
    page = three.queries.recent_runs(namespace="", status="", limit=20)
    assert newest[:20] == [run.run_id for run in page.items]
    failed = three.queries.recent_runs(namespace="default", status="failed", limit=3)
    assert newest[:3] == [run.run_id for run in failed.items]


def test_the_health_of_all_partitions_names_their_owners(three: Cluster) -> None:
    health = three.queries.health()
    assert list(range(PARTITIONS)) == [each.partition for each in health]
    assert [three.owners["abc"[number % 3]].url for number in range(PARTITIONS)] == [
        each.owner for each in health
    ]
    assert all(each.ready for each in health)
    assert 62 == sum(each.jobs for each in health)
    assert "" == three.queries.broken()


def test_why_an_owner_fires_nothing_is_said_with_its_partitions(three: Cluster) -> None:
    three.owners["b"].queries.why_broken = "the wall clock is 7.2 s ahead of the log's"
    assert "the wall clock is 7.2 s ahead of the log's (partitions 1, 4)" == three.queries.broken()
    assert all(each.ready for each in three.queries.health())


def test_a_cursor_that_no_page_gave_is_refused(three: Cluster) -> None:
    for ask in (
        lambda: three.queries.list_jobs(JobFilter(), cursor="!", limit=5),
        lambda: three.queries.dead_letters(namespace="", cursor="!", limit=5),
        lambda: three.queries.runs_of(JobKey(KEYS[0]), cursor="!", limit=5),
    ):
        with pytest.raises(InvalidCursor):
            ask()


def test_another_event_loop_awaits_the_answers(three: Cluster, world: World) -> None:
    async def ask() -> None:
        asks = three.queries.asking()
        views = await asyncio.gather(*(asks.get_job(JobKey(key)) for key in KEYS))
        assert [world.jobs[key] for key in KEYS] == views
        page = await asks.list_jobs(JobFilter(), cursor="", limit=500)
        assert world.in_order() == [view.key for view in page.items]
        health, broken = await asks.standing()
        assert (PARTITIONS, "") == (len(health), broken)

    asyncio.run(ask())


# --- partitions that move ------------------------------------------------------------------------------------------------


def test_partitions_that_move_between_two_pages_lose_and_double_nothing(
    settled: Cluster, world: World
) -> None:
    keys: list[str] = []
    cursor = ""
    for turn in range(200):
        page = settled.queries.list_jobs(JobFilter(), cursor=cursor, limit=25)
        assert {} == reasons(page.missing)
        keys += [view.key for view in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
        settled.give("abc"[turn % 3], turn % PARTITIONS)
    assert world.in_order() == keys


def test_after_421_the_next_owner_is_asked(settled: Cluster, world: World) -> None:
    settled.give("b", 0)
    looks = settled.group.asked
    assert world.jobs[key_in(0)] == settled.queries.get_job(key_in(0))
    assert looks + 1 == settled.group.asked
    settled.give("c", 0, 3)
    assert world.in_order() == [
        v.key for v in settled.queries.list_jobs(JobFilter(), cursor="", limit=500).items
    ]
    assert looks + 2 == settled.group.asked


def test_while_nobody_has_a_partition_that_moves_it_is_named(three: Cluster) -> None:
    assert three.queries.get_job(key_in(0)) is not None
    three.give("b", 0, told=False)
    three.world.owner[0] = "nobody yet"
    with pytest.raises(PartitionsMissing, match="partition 0 is just being opened again, or moves"):
        three.queries.get_job(key_in(0))
    assert three.queries.get_job(key_in(1)) is not None
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {0: "moving"} == reasons(page.missing)
    assert [key for key in three.world.in_order() if number_of(key) != 0] == [view.key for view in page.items]
    assert [0] == [each.partition for each in three.queries.health() if not each.ready]
    assert "partition 0 is just being opened again, or moves" == three.queries.broken()


def test_while_the_group_is_balanced_its_members_are_asked_for_what_they_had(
    three: Cluster, world: World
) -> None:
    three.group.idle = [owner.url for owner in three.owners.values()]
    three.group.shown.clear()
    three.group.wait_until_asked(2)
    assert world.in_order() == all_keys(three.queries, limit=100)


def test_a_partition_of_nobody_is_named(three: Cluster) -> None:
    assert three.queries.get_job(key_in(0)) is not None
    del three.group.shown[0], three.group.shown[3]
    three.group.wait_until_asked(2)
    with pytest.raises(
        PartitionsMissing, match=r"partition 0 has no streams process .*it is being handed over"
    ):
        three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {0: "no-owner", 3: "no-owner"} == reasons(page.missing)
    assert "2 of 6 partitions cannot be asked: partition 0 has no streams process" in three.queries.broken()


def test_without_any_streams_process_everything_is_missing(three: Cluster) -> None:
    three.group.shown.clear()
    three.group.wait_until_asked(2)
    with pytest.raises(PartitionsMissing, match="no streams process is running"):
        three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=5)
    assert ([], list(range(PARTITIONS))) == (page.items, [each.partition for each in page.missing])


def test_a_log_that_does_not_answer_hides_no_owner_that_is_known(three: Cluster, world: World) -> None:
    assert world.in_order() == all_keys(three.queries, limit=100)
    assert "" == three.queries.log_trouble()
    three.group.down = True
    three.group.wait_until_asked(2)
    assert "no broker answers" == three.queries.log_trouble()
    assert world.in_order() == all_keys(three.queries, limit=100)


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
    monkeypatch.setattr(client_module, "ANSWER_S", 1.0)
    made = Frozen()
    three.group.shown[0] = made.url
    three.group.wait_until_asked(2)
    yield made
    made.close()


def test_a_frozen_process_holds_up_nobody_and_is_left_alone(three: Cluster, frozen: Frozen) -> None:
    async def ask() -> None:
        asks = three.queries.asking()
        stuck = [asyncio.ensure_future(asks.get_job(key_in(0))) for _ in range(100)]
        views = await asyncio.gather(*(asks.get_job(key_in(number)) for number in (1, 2, 4, 5) * 25))
        assert all(views)
        assert not any(task.done() for task in stuck), "nobody waited for it"
        for task in stuck:
            with pytest.raises(PartitionsMissing, match="did not answer in time"):
                await task

    asyncio.run(ask())
    before = frozen.connections()
    assert before > 0
    with pytest.raises(PartitionsMissing, match="did not answer in time"):
        three.queries.get_job(key_in(0))
    page = three.queries.list_jobs(JobFilter(), cursor="", limit=500)
    assert {0: "unreachable"} == reasons(page.missing)
    assert {1, 2, 3, 4, 5} == {number_of(view.key) for view in page.items}
    assert 0 == frozen.connections()


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
        self._thread = threading.Thread(target=self._server.serve_forever)
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


# --- waiting until something is applied ----------------------------------------------------------------------------------

JOBS = "tocsin.jobs"


def test_who_waits_is_told_when_the_owner_has_applied_the_record(three: Cluster) -> None:
    owner = three.owners["a"].queries
    owner.waiters.applied(JOBS, 0, 5)
    three.queries.applied(JOBS, 0, 4).result(30)
    later = three.queries.applied(JOBS, 0, 9)
    wait_for(lambda: owner.waiters.any)
    assert not later.done()
    owner.waiters.applied(JOBS, 0, 9)
    assert not later.done()
    owner.waiters.applied(JOBS, 0, 10)
    later.result(30)


def test_many_who_wait_cost_few_questions_and_no_thread(three: Cluster) -> None:
    owner = three.owners["a"].queries
    assert three.queries.get_job(key_in(0)) is not None
    threads = threading.active_count()
    futures = [three.queries.applied(JOBS, 0, offset) for offset in range(5_000)]
    wait_for(lambda: three.queries.figures().waiting == 5_000 and owner.waiters.any)
    assert threads == threading.active_count()
    owner.waiters.applied(JOBS, 0, 2_500)
    wait_for(lambda: sum(future.done() for future in futures) >= 2_400)
    assert not any(future.done() for future in futures[2_500:])
    owner.waiters.applied(JOBS, 0, 5_000)
    for future in futures:
        future.result(30)
    assert three.queries.figures().asked < 40
    assert 0 == three.queries.figures().waiting


def test_who_waits_for_something_earlier_is_not_kept_by_who_waits_for_something_later(three: Cluster) -> None:
    owner = three.owners["a"].queries
    three.queries.applied(JOBS, 0, 1_000)
    wait_for(lambda: owner.waiters.any)
    earlier = three.queries.applied(JOBS, 0, 1)
    owner.waiters.applied(JOBS, 0, 2)
    earlier.result(30)


def test_waiting_survives_a_change_of_the_owner(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.give("b", 0)
    wait_for(lambda: three.owners["b"].queries.waiters.any)
    three.owners["b"].queries.waiters.applied(JOBS, 0, 8)
    future.result(30)


def test_waiting_survives_the_death_of_the_owner_and_its_start(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.owners["a"].stop()
    assert not future.done()
    three.owners["a"].queries = Part(three.world, "a")
    three.owners["a"].start()
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.owners["a"].queries.waiters.applied(JOBS, 0, 8)
    future.result(30)


def test_who_waits_no_more_is_forgotten_here_and_at_the_owner(three: Cluster) -> None:
    owner = three.owners["a"].queries
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: owner.waiters.any)
    assert future.cancel()
    wait_for(lambda: three.queries.figures().waiting == 0)
    owner.waiters.applied(JOBS, 0, 1)  # which clears out
    wait_for(lambda: not owner.waiters.any)


def test_who_still_waits_when_the_process_stops_is_told(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.queries.stop()
    with pytest.raises(ConnectionError, match="the process is stopping"):
        future.result(30)
    with pytest.raises(ConnectionError, match="the process is stopping"):
        three.queries.get_job(key_in(0))
    with pytest.raises(ConnectionError, match="the process is stopping"):
        three.queries.applied(JOBS, 0, 8).result(30)
    three.queries.stop()


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
