"""Commits of one streams process: how often, and what stands after one that went wrong."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, Sleeper, process_in
from tocsin.log.memory.faults import CommitFault
from tocsin.log.port import EventLog
from tocsin.schemas.job import Retry, Schedule
from tocsin.schemas.records import JobEvent, RunEvent
from tocsin.streams import pace as pace_module
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.view import View

HOURLY = Schedule(every_ms=3_600_000)
FAULTS: tuple[CommitFault, ...] = ("aborted", "fenced", "unknown_committed", "unknown_aborted")


@pytest.fixture
def process(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    with process_in(place, environment) as made:
        made.start()
        yield made


def dispatches(process: Process) -> list[tuple[str, int]]:
    """What was dispatched, each as often as it was."""
    return [(due.run_id, due.dispatch) for due in process.dues()]


def ended(process: Process) -> list[tuple[str, str]]:
    final = ("succeeded", "failed", "cancelled", "superseded", "skipped")
    return [(each.run_id, each.status) for each in process.run_events() if each.status in final]


# --- a commit that goes wrong leaves one effect


@pytest.mark.parametrize("fault", FAULTS)
def test_a_definition_is_applied_once(process: Process, fault: CommitFault) -> None:
    process.define(job(HOURLY))
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    assert 1 == process.row().revision
    assert ["revision_applied"] == [event.kind for event in process.values(NAMES.runs, JobEvent)]
    process.define(job(HOURLY, description="another"))
    process.run(1_000)
    assert 2 == process.row().revision


@pytest.mark.parametrize("fault", FAULTS)
def test_a_trigger_is_dispatched_once(process: Process, fault: CommitFault) -> None:
    process.define(job(HOURLY))
    process.run(1_000)
    process.trigger("one")
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    assert [("default/a!t.one", 1)] == dispatches(process)
    process.report(process.dues()[0], "succeeded")
    process.run(1_000)
    process.trigger("two")
    process.run(1_000)
    assert [("default/a!t.one", 1), ("default/a!t.two", 1)] == dispatches(process)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_occurrence_is_dispatched_once(process: Process, fault: CommitFault) -> None:
    process.define(job(Schedule(every_ms=3_600_000, anchor_ms=T0 + 20_000)))
    process.run(9_500)
    assert [] == process.dues()
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    assert [("default/a@20260101T000020.000Z", 1)] == dispatches(process)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_report_ends_its_run_once(process: Process, fault: CommitFault) -> None:
    process.apply(job(HOURLY))
    process.trigger("one")
    process.run(1_000)
    process.report(process.dues()[0], "succeeded")
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    assert [("default/a!t.one", "succeeded")] == ended(process)
    assert [] == process.row().open


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_plans_one_retry_at_one_instant(process: Process, fault: CommitFault) -> None:
    process.define(job(HOURLY, retry=Retry(base_ms=5_000, backoff="fixed", jitter=0.0)))
    process.run(500)
    process.trigger("one")
    process.run(1_000)
    process.report(process.dues()[0], "failed", retryable=True)
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    first, second = process.dues()
    assert ("default/a!t.one", 2, 2) == (second.run_id, second.dispatch, second.attempt)
    assert 5_000 <= second.due_ms - first.due_ms <= 7_000


@pytest.mark.parametrize("fault", FAULTS)
def test_several_in_a_row_do_no_more_harm_than_one(process: Process, fault: CommitFault) -> None:
    process.apply(job(HOURLY))
    for _ in range(3):
        process.log.faults.fail_next_commit(fault)
    process.trigger("one")
    process.run(8_000)
    assert [("default/a!t.one", 1)] == dispatches(process)
    assert "" == process.topology.log_trouble


def test_all_kinds_in_turn_under_load_dispatch_every_occurrence_once(
    place: Path, environment: StoreEnvironment
) -> None:
    with process_in(place, environment, partitions=3) as process:
        process.start()
        for number in range(6):
            process.define(job(Schedule(every_ms=1_000, anchor_ms=T0 + number * 37), id=f"j{number}"))
        for fault in FAULTS * 3:
            process.log.faults.fail_next_commit(fault)
            process.run(1_000)
            for due in process.dues():
                process.report(due, "succeeded")  # those that have ended already: stale
        process.run(5_000)
        times = Counter(dispatches(process))
        assert [] == [each for each, count in times.items() if count > 1]
        assert len(times) >= 6 * 10
        decided: dict[str, set[int]] = {}
        for event in process.run_events():
            decided.setdefault(event.job_id, set()).update(
                range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
            )
        for nominals in decided.values():
            found = sorted(nominals)
            assert list(range(found[0], found[-1] + 1, 1_000)) == found


@pytest.mark.parametrize("fault", FAULTS)
def test_who_waits_is_told_when_it_stands_and_not_before(process: Process, fault: CommitFault) -> None:
    offset = process.define(job(HOURLY))
    future = process.topology.applied(NAMES.jobs, 0, offset)
    process.log.faults.fail_next_commit(fault)
    process.run(200, every_ms=5)
    told = False
    for _ in range(600):
        process.step(5)
        applied = any(journal.jobs_offset > offset for journal in process.journals())
        assert applied or not future.done()
        told |= future.done()
    assert told
    assert future.result(0) is None


@pytest.mark.parametrize("fault", FAULTS)
def test_run_events_are_told_once_they_stand_and_not_before(process: Process, fault: CommitFault) -> None:
    told: list[RunEvent] = []

    def look(events: list[RunEvent]) -> None:
        standing = process.run_events()
        assert all(event in standing for event in events)
        told.extend(events)

    process.topology.on_runs = look
    process.apply(job(HOURLY))
    process.trigger("one")
    process.run(1_000)
    process.report(process.dues()[0], "succeeded")
    process.log.faults.fail_next_commit(fault)
    process.run(3_000)
    assert len(told) == len(set(told))
    if (
        fault == "unknown_committed"
    ):  # it stands, and nobody was told: the log has it, the memory of recent runs not
        assert ["scheduled"] == [event.status for event in told]
    else:
        assert process.run_events() == told


def test_an_aborted_commit_keeps_the_producer_and_an_unknown_one_takes_over_anew(process: Process) -> None:
    process.define(job(HOURLY))
    before = process.epoch()
    process.log.faults.fail_next_commit("aborted")
    process.run(1_000)
    assert before == process.epoch()
    process.log.faults.fail_next_commit("unknown_committed")
    process.trigger("one")
    process.run(1_000)
    assert before + 1 == process.epoch()


# --- an error that nobody foresaw


@pytest.fixture
def running(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    """A process whose run() lets time pass when it waits."""
    with process_in(place, environment) as made:
        made.wrap = lambda log: cast(EventLog, Sleeper(log, made))
        made.start()
        made.apply(job(HOURLY))
        yield made


def test_what_a_failing_pass_did_by_halves_never_reaches_the_log(
    running: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its inputs, which are read again by whoever comes next, would have their effects twice."""
    ends = running.log.snapshot()
    seen = 0
    put_run = View.put_run

    def failing(view: View, row: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise ZeroDivisionError("a fault of our own")
        put_run(view, row)  # type: ignore[arg-type]

    running.trigger("one")
    running.trigger("two")
    monkeypatch.setattr(View, "put_run", failing)
    with pytest.raises(ZeroDivisionError):
        running.topology.run()
    monkeypatch.undo()
    assert "the stream processor stopped: ZeroDivisionError" in running.answers.broken()
    committed = {
        where: records for where, records in running.log.snapshot().items() if where.topic != NAMES.commands
    }
    assert {where: found for where, found in ends.items() if where.topic != NAMES.commands} == committed
    running.start()
    assert [("default/a!t.one", 1)] == dispatches(running)


def test_a_store_that_fails_after_the_log_has_it_writes_nothing_twice(
    running: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.trigger("one")

    def full(view: View, position: object) -> None:
        raise OSError("no space is left")

    monkeypatch.setattr(View, "commit", full)
    with pytest.raises(OSError, match="no space"):
        running.topology.run()
    monkeypatch.undo()
    assert [("default/a!t.one", 1)] == dispatches(running)
    running.start()
    running.report(running.dues()[0], "succeeded")
    running.run(1_000)
    assert [("default/a!t.one", 1)] == dispatches(running)
    assert [("default/a!t.one", "succeeded")] == ended(running)


# --- how often


def commit_times(process: Process, ms: int) -> list[int]:
    """Milliseconds from now on at which a commit was made, looking every 5 ms."""
    return [at for at in range(5, ms + 1, 5) if process.step(5).committed]


def assert_one_commit_at(process: Process, ms: int) -> None:
    """Within the next second there is one, after that many milliseconds (rounded up to those that are looked at)."""
    found = commit_times(process, 1_000)
    assert [True] == [ms <= at <= ms + 10 for at in found], found


def quiet(process: Process) -> None:
    """Just after the journal row that is written every five seconds."""
    process.run(1_000)
    process.run_until_committed()


def test_an_idle_process_commits_one_journal_row_in_five_seconds_and_nothing_else(process: Process) -> None:
    quiet(process)
    before = {where: len(records) for where, records in process.log.snapshot().items()}
    found = commit_times(process, 60_000)
    assert 11 <= len(found) <= 12
    assert all(5_000 <= after - at <= 5_500 for at, after in pairwise(found))
    grown = {
        where.topic
        for where, records in process.log.snapshot().items()
        if len(records) > before.get(where, 0)
    }
    assert {NAMES.journal, NAMES.state} == grown


def test_what_nobody_waits_for_is_committed_after_a_quarter_of_a_second(process: Process) -> None:
    quiet(process)
    process.define(job(HOURLY))
    assert_one_commit_at(process, 250)


def test_what_somebody_waits_for_is_committed_after_25_ms(process: Process) -> None:
    quiet(process)
    future = process.topology.applied(NAMES.jobs, 0, process.define(job(HOURLY)))
    assert_one_commit_at(process, 25)
    assert future.done()


def test_what_is_due_within_a_second_is_committed_after_25_ms(process: Process) -> None:
    process.define(job(HOURLY))
    quiet(process)
    process.trigger("one")
    assert_one_commit_at(process, 25)


def test_a_withdrawal_is_committed_after_25_ms(process: Process) -> None:
    process.define(job(Schedule(every_ms=3_600_000, anchor_ms=T0 + 20_000)))
    process.run(10_500)
    assert 1 == len(process.dues())
    quiet(process)
    process.delete("default/a")
    assert_one_commit_at(process, 25)


def test_what_is_dispatched_long_before_its_instant_is_not_urgent(process: Process) -> None:
    process.define(job(Schedule(every_ms=3_600_000, anchor_ms=T0 + 30_000)))
    while process.now_ms < 19_995:
        process.step(5)
    quiet_since = process.now_ms
    while not process.dues():
        process.step(5)
    assert 250 <= process.now_ms - quiet_since <= 265


def test_what_is_urgent_does_not_wait_for_what_was_not(process: Process) -> None:
    process.define(job(HOURLY))
    quiet(process)
    process.define(job(HOURLY, description="another"))
    process.step(5)
    process.trigger("one")
    assert_one_commit_at(process, 20)  # counted from the first that is to be committed


@pytest.mark.parametrize("bound", ["CHANGED_ROWS_MAX", "EFFECT_BYTES_MAX"])
def test_much_work_is_committed_at_once(
    process: Process, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    quiet(process)
    monkeypatch.setattr(pace_module, bound, 20)
    for number in range(30):
        process.define(job(HOURLY, id=f"j{number}"))
    assert process.step(0).committed


def test_a_waiter_for_something_else_commits_nothing_by_itself(process: Process) -> None:
    quiet(process)
    process.topology.applied(NAMES.jobs, 0, 1_000_000)
    assert [] == commit_times(process, 4_000)
