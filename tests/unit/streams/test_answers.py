"""Answers from the committed state of several partitions."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, process_in
from tocsin.clock import FakeClock
from tocsin.schemas.job import HttpTarget, Job, JobKey, Overlap, Retry, Schedule
from tocsin.schemas.records import Pause
from tocsin.streams import answers as answers_module
from tocsin.streams.answers import SCAN_S, Answers
from tocsin.streams.families import RING_SIZES
from tocsin.streams.queries import JobFilter, PartitionsMissing
from tocsin.streams.store import StoreEnvironment

HOURLY = Schedule(every_ms=3_600_000)
ALLOW = Overlap(mode="allow")
PARTITIONS = 3


@pytest.fixture
def process(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    with process_in(place, environment, partitions=PARTITIONS) as made:
        made.start()
        yield made


def define_all(process: Process, *jobs: Job) -> None:
    for each in jobs:
        process.define(each)
    process.run(500)


def all_keys(process: Process, where: JobFilter | None = None, limit: int = 3) -> list[str]:
    """Following the cursors to the end."""
    keys: list[str] = []
    cursor = ""
    while True:
        page = process.answers.list_jobs(where or JobFilter(), cursor=cursor, limit=limit)
        keys += [view.key for view in page.items]
        cursor = page.next_cursor
        if not cursor:
            return keys
        assert len(page.items) <= limit


def run_once(process: Process, key: str, name: str, kind: str = "succeeded", **fields: object) -> str:
    """Trigger the job, and end its run; returns its id."""
    process.trigger(name, key)
    process.run(100)
    run_id = f"default/{key}!t.{name}"
    (due,) = [each for each in process.dues() if each.run_id == run_id]
    process.report(due, kind, **fields)
    process.run(300)  # nobody waits for it
    return run_id


# --- jobs


def test_jobs_of_all_partitions_come_in_the_order_of_their_keys(process: Process) -> None:
    names = [f"j{number}" for number in range(20)]
    define_all(process, *(job(HOURLY, id=name) for name in names), job(HOURLY, namespace="a", id="z"))
    assert (
        len(
            {
                number
                for number, each in process.topology.partitions.items()
                if each.store.meta.counts["state"]
            }
        )
        > 1
    )
    for limit in (1, 3, 20, 21, 100):
        assert ["a/z", *(f"default/{name}" for name in sorted(names))] == all_keys(process, limit=limit)


def test_a_job_is_shown_with_its_definition_and_where_it_came_from(process: Process) -> None:
    process.apply(job(HOURLY, id="x"))
    at_ms = process.clock.now_ms()
    offset = process.define(job(HOURLY, id="x", description="second"))
    process.run(500)
    view = process.answers.get_job(JobKey("default/x"))
    assert view is not None
    assert job(HOURLY, id="x", description="second") == view.job
    assert (2, offset, at_ms) == (view.row.revision, view.definition_offset, view.defined_ms)


def test_jobs_that_are_deleted_or_were_never_valid_are_not_there(process: Process) -> None:
    define_all(process, job(HOURLY, id="kept"), job(HOURLY, id="gone"), job(Schedule(every_ms=1), id="never"))
    process.delete("default/gone")
    process.run(500)
    assert ["default/kept"] == all_keys(process)
    assert process.answers.get_job(JobKey("default/gone")) is None
    assert process.answers.get_job(JobKey("default/never")) is None
    assert process.answers.get_job(JobKey("default/unknown")) is None


def test_what_is_not_committed_yet_is_not_shown(process: Process) -> None:
    process.define(job(HOURLY, id="x"))
    process.step()
    assert process.answers.get_job(JobKey("default/x")) is None
    assert [] == all_keys(process)


@pytest.fixture
def various(process: Process) -> Process:
    define_all(
        process,
        job(HOURLY, id="active", labels=(("team", "billing"), ("tier", "1"))),
        job(HOURLY, id="also-active", labels=(("team", "billing"), ("tier", "2"))),
        job(HOURLY, id="broken", queue="nowhere"),
        job(HOURLY, id="failing", retry=Retry(max_attempts=1)),
        job(Schedule(at_ms=T0 + 1), id="finished"),
        job(HOURLY, id="paused", labels=(("team", "shop"),)),
        job(HOURLY, namespace="other", id="active"),
    )
    process.command(Pause(namespace="default", id="paused"))
    run_once(process, "failing", "one", "failed", retryable=False)
    (due,) = [each for each in process.dues() if each.job_id == "finished"]
    process.report(due, "succeeded")
    process.run(500)
    return process


@pytest.mark.parametrize(
    "where, names",
    [
        (
            JobFilter(state="active"),
            ["default/active", "default/also-active", "default/failing", "other/active"],
        ),
        (JobFilter(state="paused"), ["default/paused"]),
        (JobFilter(state="broken"), ["default/broken"]),
        (JobFilter(state="finished"), ["default/finished"]),
        (JobFilter(failing=True), ["default/failing"]),
        (JobFilter(namespace="other"), ["other/active"]),
        (JobFilter(namespace="oth"), []),
        (JobFilter(namespace="default", id_prefix="a"), ["default/active", "default/also-active"]),
        (JobFilter(id_prefix="active"), ["default/active", "other/active"]),
        (JobFilter(labels={"team": "billing"}), ["default/active", "default/also-active"]),
        (JobFilter(labels={"team": "billing", "tier": "2"}), ["default/also-active"]),
        (JobFilter(labels={"team": ""}), []),
        (JobFilter(labels={"team": "shop"}, state="active"), []),
        (JobFilter(labels={"team": "shop"}, state="paused"), ["default/paused"]),
    ],
)
def test_filters_choose_what_they_say(various: Process, where: JobFilter, names: list[str]) -> None:
    for limit in (1, 2, 100):
        assert names == all_keys(various, where, limit)


class Hurried(FakeClock):
    """Each look at the steady clock takes a while."""

    def __init__(self, take_s: float) -> None:
        super().__init__()
        self.take_s = take_s
        self.looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return self.looks * self.take_s


def test_a_search_that_takes_too_long_gives_a_part_and_a_cursor(process: Process) -> None:
    define_all(process, *(job(HOURLY, id=f"j{number:03}") for number in range(300)), job(HOURLY, id="z"))
    clock = Hurried(SCAN_S / 2 + 0.001)
    answers = Answers(process.topology, clock)
    keys, pages, cursor = [], 0, ""
    while pages == 0 or cursor:
        page = answers.list_jobs(JobFilter(id_prefix="z"), cursor=cursor, limit=100)
        pages += 1
        cursor = page.next_cursor
        keys += [view.key for view in page.items]
        assert pages < 10, "each page goes on where the one before stopped"
    assert ["default/z"] == keys
    assert pages > 2


def test_a_page_of_large_jobs_ends_early_and_goes_on(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HttpTarget(url="http://127.0.0.1:1/ok", body=b"x" * 100_000, body_kind="text")
    define_all(process, *(job(HOURLY, id=f"j{number}", http=target) for number in range(7)))
    monkeypatch.setattr(answers_module, "PAGE_BYTES_MAX", 250_000)
    page = process.answers.list_jobs(JobFilter(), cursor="", limit=100)
    assert 3 == len(page.items)
    assert [f"default/j{number}" for number in range(7)] == all_keys(process, limit=100)


def test_a_search_that_is_quick_enough_gives_all_at_once(process: Process) -> None:
    define_all(process, *(job(HOURLY, id=f"j{number:03}") for number in range(300)))
    page = Answers(process.topology, Hurried(0.001)).list_jobs(JobFilter(), cursor="", limit=1_000)
    assert (300, "") == (len(page.items), page.next_cursor)


# --- runs of a job


def test_the_runs_of_a_job_come_newest_first_the_open_ones_before_those_that_ended(process: Process) -> None:
    process.apply(job(HOURLY, id="x", overlap=ALLOW))
    ended = [run_once(process, "x", f"t{number}") for number in range(5)]
    for name in ("open-1", "open-2"):
        process.trigger(name, "x")
        process.run(100)
    expected = ["default/x!t.open-2", "default/x!t.open-1", *reversed(ended)]
    for limit in (1, 2, 3, 7, 100):
        found: list[str] = []
        cursor = ""
        while True:
            page = process.answers.runs_of(JobKey("default/x"), cursor=cursor, limit=limit)
            found += [event.run_id for event in page.items]
            cursor = page.next_cursor
            if not cursor:
                break
            assert limit == len(page.items)
        assert expected == found


def test_a_job_without_runs_and_one_that_is_not_there_have_an_empty_page(process: Process) -> None:
    process.apply(job(HOURLY, id="x"))
    for key in ("default/x", "default/nobody"):
        page = process.answers.runs_of(JobKey(key), cursor="", limit=10)
        assert ([], "") == (list(page.items), page.next_cursor)


def test_of_the_runs_that_ended_the_newest_are_shown(process: Process) -> None:
    process.apply(job(HOURLY, id="x"))
    ended = [run_once(process, "x", f"t{number}") for number in range(RING_SIZES["history"] + 3)]
    page = process.answers.runs_of(JobKey("default/x"), cursor="", limit=100)
    assert ended[: -RING_SIZES["history"] - 1 : -1] == [event.run_id for event in page.items]


# --- one run


def test_a_run_is_found_while_it_is_open_and_when_it_has_ended(process: Process) -> None:
    process.apply(job(HOURLY, id="x"))
    process.trigger("one", "x")
    process.run(100)
    run = process.answers.get_run("default/x!t.one")
    assert run is not None
    assert ("scheduled", 1) == (run.status, len(run.attempts))
    process.report(process.dues()[0], "succeeded")
    process.run(300)
    run = process.answers.get_run("default/x!t.one")
    assert run is not None
    assert ("succeeded", "succeeded") == (run.status, run.attempts[0].outcome)


def test_a_failure_is_found_after_it_has_left_the_history_and_while_it_is_a_dead_letter(
    process: Process,
) -> None:
    define_all(
        process,
        job(HOURLY, id="x", retry=Retry(max_attempts=1)),
        job(HOURLY, id="x-1", retry=Retry(max_attempts=1)),
    )
    failed = [
        run_once(process, "x", f"f{n}", "failed", retryable=False) for n in range(RING_SIZES["failures"] + 2)
    ]
    run_once(process, "x-1", "f0", "failed", retryable=False)
    for number in range(RING_SIZES["history"]):
        run_once(process, "x", f"s{number}")
    shown = [
        event.run_id for event in process.answers.runs_of(JobKey("default/x"), cursor="", limit=100).items
    ]
    assert not set(failed) & set(shown)
    for run_id in failed:
        run = process.answers.get_run(run_id)
        assert run is not None
        assert (run_id, "failed") == (run.run_id, run.status)


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "x",
        "default/x",
        "default/x!t.",
        "default/x!t.other",
        "default/x@20260101T000000.000Z",
        "default/y!t.one",
        "a/b/c@x",
        "\0/\0!t.x",
        "default/x!t.one ",
        "@",
        "é/é@é",
    ],
)
def test_a_run_that_does_not_exist_is_not_found(process: Process, run_id: str) -> None:
    process.apply(job(HOURLY, id="x"))
    run_once(process, "x", "one", "failed", retryable=False)
    assert process.answers.get_run(run_id) is None


# --- health


def test_health_counts_what_is_committed(various: Process) -> None:
    health = various.answers.health()
    assert [0, 1, 2] == sorted(each.partition for each in health)
    assert all(each.ready for each in health)
    assert 7 == sum(each.jobs for each in health)
    assert (0, 1, 0) == (
        sum(each.open_runs for each in health),
        sum(each.dead_letters for each in health),
        sum(each.overdue for each in health),
    )
    assert 5 == sum(
        each.pending["1h"] for each in health
    )  # all but the one that is broken and the one that has finished
    now_ms = various.clock.now_ms()
    assert all(now_ms - 6_000 <= each.watermark_ms <= each.tick_ms <= now_ms for each in health)


def test_what_is_overdue_while_the_clock_is_held_is_counted(
    place: Path, environment: StoreEnvironment
) -> None:
    with process_in(place, environment, log_has_clock=False) as process:
        process.start()
        process.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
        process.clock.step_wall(3_600_000)
        process.run(20_000, every_ms=100)
        assert 1 == sum(each.overdue for each in process.answers.health())


def test_a_glance_at_the_health_counts_nothing_that_has_to_be_looked_for(various: Process) -> None:
    for whole, glance in zip(various.answers.health(), various.answers.health(figures=False), strict=True):
        assert replace(whole, overdue=0, pending={}) == glance


def test_before_anything_is_assigned_all_partitions_are_missing(
    place: Path, environment: StoreEnvironment
) -> None:
    """Else what is asked for would look as if it did not exist."""
    with process_in(place, environment, partitions=PARTITIONS) as process:
        process.open()
        assert [(0, False), (1, False), (2, False)] == [
            (each.partition, each.ready) for each in process.answers.health()
        ]
        assert "restoring" in process.answers.broken()
        with pytest.raises(PartitionsMissing, match="has no streams process"):
            process.answers.get_job(JobKey("default/a"))
        page = process.answers.list_jobs(JobFilter(), cursor="", limit=10)
        assert ([], [0, 1, 2]) == (page.items, [each.partition for each in page.missing])


def test_while_it_restores_it_says_how_far_it_is(process: Process) -> None:
    define_all(process, *(job(HOURLY, id=f"j{number}") for number in range(30)))
    process.crash()
    process.open("elsewhere")
    seen = []
    for _ in range(500):
        process.step(25)
        health = process.answers.health()
        assert [0, 1, 2] == sorted(each.partition for each in health)
        if all(each.ready for each in health):
            break
        seen += [each for each in health if not each.ready]
        assert "restoring" in process.answers.broken()
    else:
        raise AssertionError("it does not become ready")
    assert "" == process.answers.broken()
    assert any(0 < each.restore_done <= each.restore_total for each in seen)
    assert 30 == len(all_keys(process))


def test_a_partition_that_waits_for_the_log_is_missing(place: Path, environment: StoreEnvironment) -> None:
    with process_in(place, environment, partitions=PARTITIONS) as process:
        topology = process.open()
        topology._assigned([0, 1])
        assert [(0, False), (1, False)] == [(each.partition, each.ready) for each in process.answers.health()]
        assert "restoring: 2 of 2" in process.answers.broken()


def test_a_question_to_a_partition_that_is_just_given_up_is_to_be_asked_again(process: Process) -> None:
    process.apply(job(HOURLY, id="x"))
    for each in process.topology.partitions.values():
        each.store.close()
    answers = process.answers
    for ask in (
        lambda: answers.get_job(JobKey("default/x")),
        lambda: answers.get_jobs([JobKey("default/x")]),
        lambda: answers.runs_of(JobKey("default/x"), cursor="", limit=10),
        lambda: answers.get_run("default/x!t.one"),
    ):
        with pytest.raises(PartitionsMissing, match="is just being opened again, or moves"):
            ask()
    for page in (
        answers.list_jobs(JobFilter(), cursor="", limit=10),
        answers.dead_letters(namespace="", cursor="", limit=10),
    ):
        assert [(0, "moving"), (1, "moving"), (2, "moving")] == sorted(
            (each.partition, each.reason) for each in page.missing
        )
    assert not any(each.ready for each in answers.health())


def test_a_list_may_be_asked_of_some_partitions_and_names_those_that_are_not_here(process: Process) -> None:
    define_all(process, *(job(HOURLY, id=f"j{number}") for number in range(20)))
    whole = [view.key for view in process.answers.list_jobs(JobFilter(), cursor="", limit=100).items]
    parts = [
        [
            view.key
            for view in process.answers.list_jobs(
                JobFilter(), cursor="", limit=100, partitions=(number,)
            ).items
        ]
        for number in range(PARTITIONS)
    ]
    assert all(parts)
    assert whole == sorted(itertools.chain(*parts))
    page = process.answers.list_jobs(JobFilter(), cursor="", limit=100, partitions=(0, 7))
    assert (parts[0], [(7, "no-owner")]) == (
        [view.key for view in page.items],
        [(each.partition, each.reason) for each in page.missing],
    )


def test_why_nothing_fires_is_said_in_the_order_of_weight(process: Process) -> None:
    assert "" == process.answers.broken()
    process.topology.transactions.trouble = "12 MiB left"
    assert "12 MiB left" in process.answers.broken()
    process.clock.step_wall(3_600_000)
    process.step()
    assert "the wall clock stepped" in process.answers.broken()
    process.topology.failed = "the stream processor stopped: it was tired"
    assert "it was tired" in process.answers.broken()


def test_who_waits_for_a_record_is_told_through_the_answers(process: Process) -> None:
    offset = process.define(job(HOURLY, id="x"))
    partition = next(
        number for number in range(PARTITIONS) if len(process.log.records(NAMES.jobs, number)) > 0
    )
    future = process.answers.applied(NAMES.jobs, partition, offset)
    process.run(100)
    assert future.result(0) is None
    assert process.answers.get_job(JobKey("default/x")) is not None
