"""Questions of an API process to several streams processes: who is asked, and what comes together."""

import asyncio

import pytest

from tests.unit.api.owners import (
    KEYS,
    PARTITIONS,
    Cluster,
    World,
    all_keys,
    key_in,
    number_of,
    reasons,
)
from tocsin.api.cluster import wire
from tocsin.schemas.job import JobKey
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.queries import JobFilter, PartitionsMissing

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
    assert (
        "partition 0 has no streams process at the moment; 1 more of 6 partitions cannot be asked"
        == three.queries.broken()
    )


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
