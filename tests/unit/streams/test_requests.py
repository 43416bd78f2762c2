"""What a process asks the log for: on a remote log each question is a round trip, and each pass costs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, Sleeper, process_in
from tocsin.log.partitioner import partition_for
from tocsin.log.port import EventLog, Isolation, LogUnavailable, TopicPartition
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams.store import StoreEnvironment

HOURLY = Schedule(every_ms=3_600_000)
EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")
PARTITIONS = 12
ENDS = "end_offsets"
ASKED = (ENDS, "end_offset", "begin_offset", "members", "topics", "partitions", "offset_for_time", "reader")


class Counted:
    """EventLog that counts what it is asked for; `away`: ends are not answered."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.asked: Counter[str] = Counter()
        self.ends_of: list[list[TopicPartition]] = []
        self.away = False

    def __getattr__(self, name: str) -> object:
        if name in ASKED:
            self.asked[name] += 1
        return getattr(self._log, name)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        self.asked[ENDS] += 1
        self.ends_of.append(sorted(partitions))
        if self.away:
            raise LogUnavailable("nobody knows how far it reaches")
        return self._log.end_offsets(self.ends_of[-1], isolation)


@pytest.fixture
def counted(place: Path, environment: StoreEnvironment) -> Iterator[tuple[Process, Counted]]:
    """A process whose run() lets time pass when it waits."""
    with process_in(place, environment, partitions=PARTITIONS) as made:
        log = Counted(made.log.client("s0"))
        made.wrap = lambda _: cast(EventLog, Sleeper(cast(EventLog, log), made))
        made.start()
        made.run(6_000)
        log.asked.clear()
        log.ends_of.clear()
        yield made, log


def run_for(process: Process, ms: int) -> int:
    """Returns how many times the loop has waited."""
    until_ms = process.now_ms + ms

    def look() -> None:
        if process.now_ms >= until_ms:
            process.topology.stop()

    process.waits.clear()
    process.look_around = look
    process.topology.run()
    return len(process.waits)


def test_an_idle_process_asks_nothing_and_commits_for_all_partitions_at_once(
    counted: tuple[Process, Counted],
) -> None:
    process, log = counted
    before = {number: len(process.log.records(NAMES.journal, number)) for number in range(PARTITIONS)}
    passes = run_for(process, 60_000)
    assert not log.asked
    assert passes < 60 * 2 + 12 * 3
    times = []
    for number in range(PARTITIONS):
        rows = process.log.records(NAMES.journal, number)[before[number] :]
        times.append([each.record.timestamp_ms for each in rows if each.record.value])
    rows_at = Counter(at for each in times for at in each)
    assert 11 <= len(rows_at) - 1 <= 12  # the last one is the release
    assert all(count in (PARTITIONS, 2 * PARTITIONS) for count in rows_at.values())


def test_what_depends_on_no_report_asks_for_none(counted: tuple[Process, Counted]) -> None:
    process, log = counted
    process.define(job(EVERY_SECOND, overlap=ALLOW))
    run_for(process, 10_000)
    assert len(process.dispatched()) >= 15
    assert not log.asked[ENDS]


def test_what_is_due_and_depends_on_reports_asks_once_for_all_that_are(
    counted: tuple[Process, Counted],
) -> None:
    process, log = counted
    names = [f"j{number}" for number in range(8)]
    for name in names:
        process.define(job(HOURLY, id=name, lease_ms=30_000))
    process.run(500)
    for name in names:
        process.trigger("t", f"default/{name}".removeprefix("default/"))
    process.run(500)
    for due in process.dues():
        process.report(due, "started")
    process.run(500)
    log.asked.clear()
    log.ends_of.clear()
    run_for(process, 40_000)
    lost = [event for event in process.run_events() if event.status == "retrying"]
    assert set(names) <= {event.job_id for event in lost}
    numbers = {partition_for(f"default/{name}".encode(), PARTITIONS) for name in names}
    assert {TopicPartition(NAMES.outcomes, number) for number in numbers} == {
        where for each in log.ends_of for where in each
    }
    assert len(log.ends_of) <= 2


def test_while_nobody_says_how_far_the_reports_reach_a_lease_waits_and_it_is_no_busy_loop(
    counted: tuple[Process, Counted],
) -> None:
    process, log = counted
    process.define(job(HOURLY, lease_ms=30_000))
    process.run(500)
    process.trigger("t")
    process.run(500)
    process.report(process.dues()[0], "started")
    process.run(25_000, every_ms=250)
    log.away = True
    passes = run_for(process, 20_000)
    assert [] == [event for event in process.run_events() if event.status == "retrying"]
    assert passes < 20 * 8
    assert log.asked[ENDS] < 20 * 3


def test_a_lease_fires_once_the_end_is_known_again(counted: tuple[Process, Counted]) -> None:
    process, log = counted
    process.define(job(HOURLY, lease_ms=30_000))
    process.run(500)
    process.trigger("t")
    process.run(500)
    process.report(process.dues()[0], "started")
    log.away = True
    process.run(40_000, every_ms=250)
    assert [] == [event for event in process.run_events() if event.status == "retrying"]
    log.away = False
    process.run(2_000)
    assert ["lost"] == [
        event.attempts[-1].outcome for event in process.run_events() if event.status == "retrying"
    ]


def test_a_trigger_beside_an_open_run_is_decided_at_once_and_asks_once(
    counted: tuple[Process, Counted],
) -> None:
    """Its decision depends on reports that may be unread: the pass after the one that has read it knows."""
    process, log = counted
    process.define(job(HOURLY))
    process.run(500)
    process.trigger("one")
    process.run(500)
    log.ends_of.clear()
    process.trigger("two")
    process.run(400, every_ms=5)
    statuses = {event.run_id: event.status for event in process.run_events()}
    assert "default/a!t.two" in statuses
    assert len(log.ends_of) <= 1
