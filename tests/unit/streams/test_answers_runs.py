"""Answers about dead letters, and from the memory of recent runs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.driver import job
from tests.unit.streams.process import Process, process_in
from tocsin.log.partitioner import partition_for
from tocsin.schemas.job import Job, JobKey, Overlap, Retry, Schedule
from tocsin.schemas.records import Redrive
from tocsin.streams import answers as answers_module
from tocsin.streams.answers import Answers
from tocsin.streams.queries import PartitionsMissing
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


def run_once(process: Process, key: str, name: str, kind: str = "succeeded", **fields: object) -> str:
    """Trigger the job, and end its run; returns its id."""
    process.trigger(name, key)
    process.run(100)
    run_id = f"default/{key}!t.{name}"
    (due,) = [each for each in process.dues() if each.run_id == run_id]
    process.report(due, kind, **fields)
    process.run(300)  # nobody waits for it
    return run_id


# --- dead letters


def test_dead_letters_of_all_partitions_come_by_job_and_age(process: Process) -> None:
    keys = [*(f"j{number}" for number in range(6)), "j1-a", "j1.b"]
    define_all(process, *(job(HOURLY, id=key, retry=Retry(max_attempts=1)) for key in keys))
    for number in range(2):
        for key in keys:
            run_once(process, key, f"t{number}", "failed", retryable=False)
    expected = [f"default/{key}!t.t{number}" for key in sorted(keys) for number in range(2)]
    for limit in (1, 3, 16, 100):
        found: list[str] = []
        cursor = ""
        while True:
            page = process.answers.dead_letters(namespace="", cursor=cursor, limit=limit)
            found += [letter.run.run_id for letter in page.items]
            cursor = page.next_cursor
            if not cursor:
                break
            assert limit == len(page.items)
        assert expected == found
    assert [] == list(process.answers.dead_letters(namespace="other", cursor="", limit=10).items)
    assert [] == list(process.answers.dead_letters(namespace="defaul", cursor="", limit=10).items)
    assert 16 == len(process.answers.dead_letters(namespace="default", cursor="", limit=100).items)


def test_a_cursor_goes_on_although_the_letter_it_names_is_gone(process: Process) -> None:
    process.apply(job(HOURLY, id="x", retry=Retry(max_attempts=1)))
    for number in range(3):
        run_once(process, "x", f"t{number}", "failed", retryable=False)
    first = process.answers.dead_letters(namespace="", cursor="", limit=1)
    letter = first.items[0].run
    process.command(Redrive(namespace="default", id="x", run_id=letter.run_id, seq=letter.seq))
    process.run(200)
    second = process.answers.dead_letters(namespace="", cursor=first.next_cursor, limit=10)
    assert ["default/x!t.t1", "default/x!t.t2"] == [each.run.run_id for each in second.items]


# --- recent runs


def test_recent_runs_come_newest_first_each_once_as_it_stands(process: Process) -> None:
    define_all(process, *(job(HOURLY, id=key, retry=Retry(max_attempts=1)) for key in "abc"))
    run_once(process, "a", "one")
    run_once(process, "b", "one", "failed", retryable=False)
    process.trigger("one", "c")
    process.run(100)
    found = process.answers.recent_runs(namespace="", status="", limit=10)
    assert [("c", "scheduled"), ("b", "failed"), ("a", "succeeded")] == [
        (each.job_id, each.status) for each in found.items
    ]
    assert ["c", "b"] == [
        each.job_id for each in process.answers.recent_runs(namespace="", status="", limit=2).items
    ]
    assert [] == process.answers.recent_runs(namespace="other", status="", limit=10).items


def test_recent_runs_of_a_status_are_those_that_have_it_now(process: Process) -> None:
    """Each run was scheduled once."""
    define_all(process, *(job(HOURLY, id=key) for key in "abc"))
    run_once(process, "a", "one")
    process.trigger("one", "c")
    process.run(100)
    scheduled = process.answers.recent_runs(namespace="", status="scheduled", limit=10)
    assert ["c"] == [each.job_id for each in scheduled.items]
    succeeded = process.answers.recent_runs(namespace="", status="succeeded", limit=10)
    assert ["a"] == [each.job_id for each in succeeded.items]


def test_the_memory_of_recent_runs_is_bounded(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "RECENT_RUNS_MAX", 5)
    process.answers = Answers(process.topology, process.clock)
    process.apply(job(HOURLY, id="x"))
    for number in range(6):
        run_once(process, "x", f"t{number}")
    found = process.answers.recent_runs(namespace="", status="", limit=100)
    assert ["default/x!t.t5", "default/x!t.t4", "default/x!t.t3"] == [each.run_id for each in found.items]


def test_the_memory_of_recent_runs_is_bounded_in_bytes_too(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of these is about 4,700 bytes, most of them what the endpoint answered."""
    monkeypatch.setattr(answers_module, "RECENT_BYTES_MAX", 12_000)
    process.apply(job(HOURLY, id="x"))
    for number in range(6):
        run_once(process, "x", f"t{number}", response="r" * 4_000)
    found = process.answers.recent_runs(namespace="", status="", limit=100)
    assert ["default/x!t.t5", "default/x!t.t4"] == [each.run_id for each in found.items]


def test_a_page_of_large_dead_letters_ends_early_and_goes_on(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "PAGE_BYTES_MAX", 1_000)
    define_all(process, *(job(HOURLY, id=key, retry=Retry(max_attempts=1)) for key in "abcde"))
    for key in "abcde":
        run_once(process, key, "one", "failed", retryable=False)
    found: list[str] = []
    cursor = ""
    while True:
        page = process.answers.dead_letters(namespace="", cursor=cursor, limit=100)
        assert len(page.items) <= 2
        found += [letter.run.job_id for letter in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert list("abcde") == found


def test_recent_runs_of_partitions_that_are_elsewhere_are_left_to_who_goes_on_with_them(
    process: Process,
) -> None:
    process.apply(job(HOURLY, id="x"))
    run_once(process, "x", "one")
    mine = partition_for(b"default/x", PARTITIONS)
    for partitions, expected in (((mine,), ["x"]), (((mine + 1) % PARTITIONS,), [])):
        page = process.answers.recent_runs(namespace="", status="", limit=10, partitions=partitions)
        assert expected == [event.job_id for event in page.items]
        assert [] == page.missing


def test_a_run_from_before_a_partition_came_back_is_not_shown_as_it_was_then(process: Process) -> None:
    """Another process may have ended it in between."""
    process.apply(job(HOURLY, id="x"))
    process.trigger("one", "x")
    process.run(100)
    answers = process.answers
    assert ["scheduled"] == [
        run.status for run in answers.recent_runs(namespace="", status="", limit=9).items
    ]
    number = partition_for(b"default/x", PARTITIONS)
    again = process.topology.partitions[number] = replace(process.topology.partitions[number])
    again.claimed = True
    assert again.ready
    assert [] == answers.recent_runs(namespace="", status="", limit=9).items


def test_while_the_history_is_being_read_what_is_not_in_it_yet_is_not_said_to_be_missing(
    process: Process,
) -> None:
    """A partition works before its history is whole again."""
    process.apply(job(HOURLY, id="x"))
    known = run_once(process, "x", "one")
    process.topology.partitions[partition_for(b"default/x", PARTITIONS)].store.rings_behind = True
    page = process.answers.runs_of(JobKey("default/x"), cursor="", limit=10)
    assert ([known], ["restoring"]) == (
        [run.run_id for run in page.items],
        [each.reason for each in page.missing],
    )
    assert process.answers.get_run(known) is not None
    with pytest.raises(PartitionsMissing, match=r"is being restored: .* \(its history; it works already\)"):
        process.answers.get_run("default/x!t.two")
