"""Pages of several owners against those of one process that owns everything."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.api.owners import NAMES, PARTITIONS, START_MS, Part, World, number_of, run_of, view_of
from tocsin.api.cluster import wire
from tocsin.api.cluster.directory import Directory, InvalidAddress, base_url
from tocsin.api.cluster.merging import merge_dead_letters, merge_jobs, merge_recent_runs
from tocsin.clock import FakeClock
from tocsin.log.port import LogUnavailable, Member
from tocsin.schemas.records import DeadLetter
from tocsin.streams.queries import JobFilter, MissingPartition, Page, PartitionHealth, sentence

ids = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,3}\Z")
keys = st.builds("{}/{}".format, st.sampled_from(["a", "a-b", "a.b", "B"]), ids)
ownership = st.lists(st.sampled_from("abc"), min_size=PARTITIONS, max_size=PARTITIONS)


def owned(owner: list[str], name: str) -> list[int]:
    return [number for number in range(PARTITIONS) if owner[number] == name]


def of_all(world: World, owner: list[str], ask: Any) -> list[Page[Any]]:
    """The page of each owner, sent and read."""
    world.owner = dict(enumerate(owner))
    return [ask(Part(world, name), owned(owner, name)) for name in sorted(set(owner))]


@given(
    st.sets(keys, max_size=40),
    st.lists(ownership, min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["", "a"]),
)
def test_pages_of_jobs_are_those_of_one_process_however_owners_change_between_them(
    names: set[str], owners: list[list[str]], limit: int, scan_max: int, namespace: str
) -> None:
    world = World(jobs={key: view_of(key) for key in names}, scan_max=scan_max)
    where = JobFilter(namespace=namespace)
    found: list[str] = []
    cursor, turn = "", 0
    while turn == 0 or cursor:
        pages = of_all(
            world,
            owners[turn % len(owners)],
            lambda part, mine: part.list_jobs(where, cursor=cursor, limit=limit, partitions=mine),  # noqa: B023
        )
        page = merge_jobs(pages, limit, ())
        assert len(page.items) <= limit
        assert page.next_cursor == "" or page.next_cursor > cursor, "it goes on"
        found += [view.key for view in page.items]
        cursor = page.next_cursor
        turn += 1
    oracle = Part(World(jobs=world.jobs)).list_jobs(where, cursor="", limit=1_000)
    assert [view.key for view in oracle.items] == found


@given(
    st.lists(st.tuples(keys, st.integers(0, 5)), max_size=30, unique=True),
    st.lists(ownership, min_size=1, max_size=5),
    st.integers(1, 9),
)
def test_pages_of_dead_letters_are_those_of_one_process_however_owners_change_between_them(
    placed: list[tuple[str, int]], owners: list[list[str]], limit: int
) -> None:
    dead = [DeadLetter(run=run_of(key, f"n{seq}", seq=seq), died_ms=START_MS) for key, seq in placed]
    world = World(dead=dead)
    found: list[DeadLetter] = []
    cursor, turn = "", 0
    while turn == 0 or cursor:
        pages = of_all(
            world,
            owners[turn % len(owners)],
            lambda part, mine: part.dead_letters(namespace="", cursor=cursor, limit=limit, partitions=mine),  # noqa: B023
        )
        page = merge_dead_letters(pages, limit, ())
        found += page.items
        cursor = page.next_cursor
        turn += 1
    assert list(Part(World(dead=dead)).dead_letters(namespace="", cursor="", limit=1_000).items) == found


@given(
    st.lists(st.tuples(keys, st.integers(0, 3)), max_size=30, unique=True),
    ownership,
    st.integers(1, 12),
)
def test_recent_runs_are_the_newest_of_all_and_each_once(
    events: list[tuple[str, int]], owner: list[str], limit: int
) -> None:
    runs = [run_of(key, f"n{n}", event_ms=START_MS + at) for at, (key, n) in enumerate(events)]
    world = World(runs=runs)
    pages = of_all(
        world,
        owner,
        lambda part, mine: part.recent_runs(namespace="", status="", limit=limit, partitions=mine),
    )
    merged = merge_recent_runs(pages, limit, ())
    assert [run.run_id for run in reversed(runs)][:limit] == [run.run_id for run in merged.items]


def test_of_a_run_that_two_owners_know_the_later_state_counts() -> None:
    before, after = run_of("a/b", "x", status="running"), run_of("a/b", "x", event_ms=START_MS + 1)
    for pages in ([Page(items=[before]), Page(items=[after])], [Page(items=[after]), Page(items=[before])]):
        assert [after] == merge_recent_runs(pages, 5, ()).items


def test_what_is_older_than_where_a_page_was_cut_is_left_out() -> None:
    cut = Page(items=[run_of("a/b", "x", event_ms=START_MS + 9)], next_cursor="cut")
    whole = Page(items=[run_of("a/c", "y", event_ms=START_MS + at) for at in (10, 8)])
    assert ["y", "x"] == [run.run_id[-1] for run in merge_recent_runs([cut, whole], 5, ()).items]


def test_of_a_job_that_was_asked_twice_the_second_answer_counts() -> None:
    first, second = view_of("a/b"), view_of("a/b", consecutive_failures=3)
    assert [second] == merge_jobs([Page(items=[first]), Page(items=[second])], 5, ()).items


# --- on the wire ---------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_arrives() -> None:
    view = view_of("a/b", decided_ahead=[1, 2**62], last_error="ä\ud7ff\x00", consecutive_failures=2)
    missing = [
        MissingPartition(
            partition=3, reason="restoring", restore_done=1, restore_total=2**60, restore_eta_s=0.1
        )
    ]
    page = Page(items=[view, view_of("a/c")], next_cursor="a/c", missing=missing)
    sent = wire.pack_page(page, wire.job_bytes, lambda view, _: view.key)
    assert page == wire.unpack_page(sent, wire.job_of)
    health = Part(World(restoring={2}, jobs={"a/b": view})).health()
    assert list(health) == wire.health_of(
        wire.unpack(wire.pack({"health": wire.health_fields(health)}))[0]["health"]
    )


def test_what_a_later_release_adds_is_passed_over() -> None:
    head = {
        "next": "a/b",
        "missing": [{"partition": 1, "reason": "on-strike", "detail": "until Monday", "union": "yes"}],
        "news": [1],
    }
    page = wire.unpack_page(wire.pack(head), wire.job_of)
    assert ("a/b", [MissingPartition(partition=1, reason="unreachable", detail="until Monday")]) == (
        page.next_cursor,
        page.missing,
    )
    (health,) = wire.health_of([{**wire.health_fields(Part(World()).health())[0], "mood": "good"}])
    assert isinstance(health, PartitionHealth)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: wire.pack({}, [])[:-2] + tail))
def test_bytes_of_anybody_are_an_answer_or_refused(data: bytes) -> None:
    for read in (wire.job_of, wire.run_of, wire.letter_of):
        try:
            wire.unpack_page(data, read)
        except wire.WireError:
            continue


@given(st.binary(max_size=80))
def test_bytes_of_anybody_are_a_job_or_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.job_of(data)


# --- addresses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "client_id, url",
    [
        ("http://10.0.0.7:8081", "http://10.0.0.7:8081"),
        ("https://streams-0.tocsin.svc:8081/", "https://streams-0.tocsin.svc:8081"),
        ("http://[::1]:8081", "http://[::1]:8081"),
        ("http://localhost", "http://localhost"),
    ],
)
def test_an_address_is_a_scheme_a_host_and_a_port(client_id: str, url: str) -> None:
    assert url == base_url(client_id)


@pytest.mark.parametrize(
    "client_id",
    [
        "",
        "rdkafka",
        "node-1",
        "ftp://host:1",
        "file:///etc/passwd",
        "HTTP://host",
        "http://",
        "http://:8081",
        "http://host:0",
        "http://host:99999",
        "http://host:port",
        "http://user@host:8081",
        "http://user:pass@host:8081",
        "http://host:8081/path",
        "http://host:8081?x=1",
        "http://host:8081/?",
        "http://host:8081#x",
        "http://host\\@evil:8081",
        "http://ho st:8081",
        "http://host:8081\r\nx: y",
        "http://höst:8081",
        "http://[::1:8081",
        f"http://{'a' * 1000}:8081",
    ],
)
def test_the_secret_is_sent_to_no_other_address(client_id: str) -> None:
    with pytest.raises(InvalidAddress):
        base_url(client_id)


def test_before_the_group_was_looked_at_nobody_is_known() -> None:
    directory = Directory(tuple, NAMES.commands, lambda: PARTITIONS, FakeClock())
    assert directory.owner_of(0) is None
    assert "not described yet" in sentence(directory.missing(0))
    directory.close()


def test_keys_of_the_tests_lie_on_several_partitions() -> None:
    assert 1 < len({number_of(f"a/{name}") for name in "abcdefgh"})


def test_a_log_counts_as_away_only_when_it_has_not_answered_for_a_while() -> None:
    """The coordinator of the group may be moving, and writes go on meanwhile."""
    clock = FakeClock()
    down = False

    def members() -> tuple[Member, ...]:
        if down:
            raise LogUnavailable("no broker answers")
        return ()

    async def look() -> None:
        nonlocal down
        directory = Directory(members, NAMES.commands, lambda: PARTITIONS, clock)
        assert "not described yet" in directory.log_trouble
        await directory.refresh()
        assert "" == directory.log_trouble
        down = True
        clock.advance(9_000)
        await directory.refresh()
        assert ("no broker answers", "") == (directory.trouble, directory.log_trouble)
        clock.advance(2_000)
        assert "no broker answers" == directory.log_trouble
        down = False
        await directory.refresh()
        assert ("", "") == (directory.trouble, directory.log_trouble)
        directory.close()

    asyncio.run(look())
