"""One streams process on a log: how it waits, stops, and starts again."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, Sleeper, process_in
from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.partitioner import partition_for
from tocsin.log.port import (
    EventLog,
)
from tocsin.schemas.job import Overlap, Schedule
from tocsin.schemas.records import DueRun, JobEvent, RunEvent
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import (
    IDLE_S,
    StreamsConfig,
    Topology,
)

HOURLY = Schedule(every_ms=3_600_000)
ALLOW = Overlap(mode="allow")
HORIZON_MS = 10_000
WITHIN_S = 30.0


@pytest.fixture
def process(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    with process_in(place, environment) as made:
        made.start()
        yield made


@pytest.fixture
def alone(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    """A process whose log takes its time from the process's own machine."""
    with process_in(place, environment, log_has_clock=False) as made:
        made.start()
        yield made


@pytest.fixture
def sleeper(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    """A process whose run() lets time pass when it waits; see run_for()."""
    with process_in(place, environment) as made:
        made.wrap = lambda log: cast(EventLog, Sleeper(log, made))
        made.start()
        yield made


def run_for(process: Process, ms: int) -> None:
    """run() for so long; afterwards it goes on as another process."""
    until_ms = process.now_ms + ms

    def look() -> None:
        if process.now_ms >= until_ms:
            process.topology.stop()

    process.waits.clear()
    process.look_around = look
    process.topology.run()


# --- how long it may sleep


def test_an_idle_process_sleeps_a_quarter_of_a_second_at_a_time(process: Process) -> None:
    process.run(1_000)
    process.run_until_committed()
    assert IDLE_S == process.topology.wait_s()


def test_what_is_to_be_committed_is_slept_for_no_longer_than_until_then(process: Process) -> None:
    process.apply(job(HOURLY))
    process.run_until_committed()
    process.define(job(HOURLY, description="another"))
    process.step()
    assert 0.25 == pytest.approx(process.topology.wait_s())
    process.step(100)
    assert 0.15 == pytest.approx(process.topology.wait_s())
    process.step(150)
    process.trigger("urgent")
    process.step()
    assert 0.025 == pytest.approx(process.topology.wait_s())
    process.step(20)
    assert 0.005 == pytest.approx(process.topology.wait_s())


def test_the_next_occurrence_is_slept_for_until_the_horizon_before_it(process: Process) -> None:
    process.apply(job(Schedule(every_ms=3_600_000, anchor_ms=T0 + 20_000)))
    while process.now_ms < 9_900:
        process.step(5)
    while process.topology.run_once().committed:
        pass
    assert (20_000 - HORIZON_MS - process.now_ms) / 1000 >= process.topology.wait_s() > 0


def test_who_sleeps_as_long_as_it_says_dispatches_each_occurrence_at_its_moment(sleeper: Process) -> None:
    for number, every_ms in enumerate((1_003, 2_500, 7_001, 11_000)):
        schedule = Schedule(every_ms=every_ms, anchor_ms=T0 + number * 13)
        sleeper.define(job(schedule, id=f"j{number}", overlap=ALLOW))
    run_for(sleeper, 60_000)
    dues = [due for due in sleeper.dues() if due.due_ms > T0 + 15_000]
    assert len(dues) > 60 + 24 + 8 + 5 - 10
    late = [due.emitted_ms - (due.due_ms - HORIZON_MS) for due in dues]
    assert set(late) <= {0, 1}
    # A wait for each instant, for each commit, and for each quarter of a second without either: no busy loop.
    assert len(sleeper.waits) < 3 * len(dues) + 60_000 / 250


def test_a_lease_that_runs_out_while_all_sleeps_is_noticed_at_its_end(sleeper: Process) -> None:
    sleeper.apply(job(HOURLY, lease_ms=30_000))
    sleeper.trigger("one")
    sleeper.run(100)
    sleeper.report(sleeper.dues()[0], "started")
    claimed_ms = sleeper.clock.now_ms()
    run_for(sleeper, 40_000)
    (lost,) = [event for event in sleeper.run_events() if event.status == "retrying"]
    assert "lost" == lost.attempts[-1].outcome
    assert "nothing was heard of the attempt within its lease" == lost.attempts[-1].error
    assert 0 <= lost.event_ms - (claimed_ms + 30_000) <= 2


def test_a_report_that_comes_with_the_end_of_the_lease_is_read_first(sleeper: Process) -> None:
    """P9: the end of the reports is captured before they are read, and the lease fires only up to there."""
    sleeper.apply(job(HOURLY, lease_ms=30_000))
    sleeper.trigger("one")
    sleeper.run(100)
    (due,) = sleeper.dues()
    sleeper.report(due, "started")
    sleeper.run(100)
    sleeper.log.faults.lag("s0", NAMES.outcomes)
    sleeper.report(due, "succeeded")
    sleeper.run(40_000, every_ms=100)
    assert [] == [event for event in sleeper.run_events() if event.status in ("retrying", "failed")]
    sleeper.log.faults.release("s0", NAMES.outcomes)
    sleeper.run(1_000)
    assert "succeeded" == sleeper.run_events()[-1].status


# --- a clock that is held, on a log without a clock of its own


def test_while_the_clock_is_held_inputs_are_applied_and_nothing_fires(alone: Process) -> None:
    alone.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
    alone.run(3_000)
    before, watermark_ms = alone.dispatched(), alone.journals()[-1].watermark_ms
    alone.clock.step_wall(3_600_000)
    alone.step()
    assert "stepped by 3600.0 s" in alone.answers.broken()
    alone.define(job(HOURLY, id="b"))
    alone.run(30_000, every_ms=100)
    assert before == alone.dispatched()
    assert 1 == alone.row("default/b").revision
    held = alone.journals()[-1]
    assert (False, watermark_ms) == (held.fired, held.watermark_ms)
    assert held.now_ms - T0 < 60_000  # time goes on as if the clock had not been moved
    assert alone.topology.wait_s() >= 0.2  # what is overdue does not make a busy loop


def test_when_the_clock_is_believed_again_what_was_due_is_decided(alone: Process) -> None:
    alone.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
    alone.run(3_000)
    before = alone.dispatched()
    alone.clock.step_wall(-3_600_000)
    alone.run(59_000, every_ms=100)
    assert before == alone.dispatched()
    alone.run(2_000)
    assert "" == alone.answers.broken()
    alone.run(3_600_000 - 60_000, every_ms=5_000)  # the hour that the clock has to make up for
    alone.run(10_000)
    assert len(alone.dispatched()) > len(before)
    nominals = sorted(due.nominal_ms for due in alone.dues())
    assert len(nominals) == len(set(nominals))
    rows = alone.journals()
    assert all(after.now_ms >= row.now_ms for row, after in pairwise(rows))


def test_a_clock_that_comes_back_fires_at_once(alone: Process) -> None:
    alone.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
    alone.run(3_000)
    alone.clock.step_wall(3_600_000)
    alone.run(10_000)
    alone.clock.step_wall(-3_600_000)
    alone.run(500)
    assert "" == alone.answers.broken()
    late = [due for due in alone.dues() if due.emitted_ms > T0 + 13_000]
    assert [T0 + 15_000, T0 + 20_000] == [due.due_ms for due in late]


# --- stopping


def test_a_clean_stop_commits_what_there_is_and_says_that_it_has_let_go(process: Process) -> None:
    process.apply(job(HOURLY))
    process.define(job(HOURLY, id="b"))
    process.step()
    process.stop()
    assert process.journals()[-1].released
    kinds = [(event.job_id, event.kind) for event in process.values(NAMES.runs, JobEvent)]
    assert [("a", "revision_applied"), ("b", "revision_applied")] == kinds
    assert {} == process.log.broker.coordinator.group(NAMES.streams_group).members


def test_a_stop_is_safe_twice_and_before_the_start(place: Path, environment: StoreEnvironment) -> None:
    with process_in(place, environment) as process:
        topology = process.open()
        topology.stop()
        topology.stop()
        topology.run()
        topology.close()
        process.start()
        assert "" == process.answers.broken()


def test_a_stop_ends_run_from_another_thread(place: Path, environment: StoreEnvironment) -> None:
    clock = SystemClock()
    log = MemoryLog(clock)
    bootstrap(log, NAMES, partitions=2, queue_partitions=2)
    topology = Topology(StreamsConfig(data=place), clock, log, environment)
    thread = Thread(target=topology.run)
    thread.start()
    producer = log.producer()
    producer.produce(NAMES.jobs, key=b"default/a", value=b"anything")
    producer.flush(WITHIN_S)
    topology.applied(NAMES.jobs, partition_for(b"default/a", 2), 0).result(WITHIN_S)
    topology.stop()
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert "" == topology.failed


@pytest.mark.parametrize("fault", ["aborted", "fenced", "unknown_committed", "unknown_aborted"])
def test_a_stop_whose_last_commit_goes_wrong_loses_nothing(process: Process, fault: str) -> None:
    process.apply(job(HOURLY))
    process.trigger("one")
    process.step()
    process.log.faults.fail_next_commit(fault)  # type: ignore[arg-type]
    process.stop()
    process.start()
    process.run(1_000)
    assert ["default/a!t.one"] == process.dispatched()


def test_who_waits_is_told_that_the_processor_has_stopped(process: Process) -> None:
    future = process.topology.applied(NAMES.jobs, 0, 99)
    topology = process.topology
    process.stop()
    for each in (future, topology.applied(NAMES.jobs, 0, 99)):
        with pytest.raises(RuntimeError, match="stopped"):
            each.result(0)


# --- starting again


def test_a_process_that_was_stopped_goes_on_without_fencing_anybody(process: Process) -> None:
    process.apply(job(HOURLY))
    before = process.epoch()
    process.stop()
    process.start()
    assert before + 1 == process.epoch()  # its own producer, once
    process.trigger("one")
    process.run(500)
    assert ["default/a!t.one"] == process.dispatched()


def test_a_process_that_died_takes_over_from_itself_and_fences_only_its_former_life(process: Process) -> None:
    process.apply(job(HOURLY))
    before = process.epoch()
    process.crash()
    process.start()
    assert before + 1 == process.epoch()
    assert "" == process.topology.log_trouble


def test_another_process_fences_one_that_died_and_not_one_that_let_go(process: Process) -> None:
    before = process.epoch("s0")
    process.crash()
    process.start("s1")
    assert before + 1 == process.epoch("s0")
    last = process.epoch("s1")
    process.stop()
    process.start("s2")
    assert (before + 1, last) == (process.epoch("s0"), process.epoch("s1"))


def test_what_is_no_row_in_the_journal_keeps_nobody_from_taking_over(process: Process) -> None:
    before = process.epoch("s0")
    for value in (b"\xff\xff", b"", None):
        process.append(NAMES.journal, None, value, partition=0)
    process.crash()
    process.start("s1")
    assert before + 1 == process.epoch("s0")


def test_what_a_dead_process_left_open_is_ended_by_its_successor(process: Process) -> None:
    """Its records hold the readers of the partition back until then: no other process would see a new one."""
    process.apply(job(HOURLY))
    process.trigger("one")
    process.step()
    process.log.faults.fail_next_commit("unknown_aborted", "s0")
    process.run(100)
    process.crash()
    process.start("s1")
    process.run(500)
    assert ["default/a!t.one"] == process.dispatched()
    states = {stored.state for stored in process.log.records(NAMES.journal, 0)}
    assert "open" not in states


def test_the_first_commit_of_an_owner_is_its_own_journal_row(process: Process) -> None:
    process.stop()
    before = process.journals()[-1]
    assert before.released
    process.open("s1")
    process.run(2_000)
    first = process.journals()[-1]
    assert first.transactional_id.endswith(".s1")
    assert not first.released
    assert (before.jobs_offset, before.commands_offset) == (first.jobs_offset, first.commands_offset)


def test_an_own_store_that_is_kept_and_one_that_is_lost_come_to_the_same(
    process: Process, place: Path
) -> None:
    process.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
    process.run(3_000)
    first = process.row()
    process.crash()
    process.start()
    kept = process.row()
    process.crash()
    process.start("elsewhere")
    lost = process.row()
    assert first.revision == kept.revision == lost.revision
    assert first.decided_ms <= kept.decided_ms <= lost.decided_ms
    found = process.dispatched()
    assert len(found) == len(set(found))


# --- run events


def test_run_events_are_told_in_the_order_of_the_log(process: Process) -> None:
    told: list[RunEvent] = []
    process.topology.on_runs = told.extend
    process.apply(job(HOURLY))
    process.trigger("one")
    process.run(500)
    process.report(process.dues()[0], "succeeded")
    process.run(500)
    assert ["scheduled", "succeeded"] == [event.status for event in told]
    assert process.run_events() == told


def test_the_due_record_is_on_the_log_before_its_run_is_told(process: Process) -> None:
    seen: list[list[DueRun]] = []
    process.topology.on_runs = lambda events: seen.append(process.dues()) if events else None
    process.apply(job(HOURLY))
    process.trigger("one")
    process.run(500)
    assert [1] == [len(dues) for dues in seen]
