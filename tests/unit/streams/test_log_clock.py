"""The wall clock held against the log's: what is believed, what is held, and what time ticks have meanwhile."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.streams.crowd import Crowd, SkewedClock, crowd_in
from tests.unit.streams.driver import NAMES, T0, job
from tocsin.clock import FakeClock
from tocsin.schemas import codec
from tocsin.schemas.job import Overlap, Schedule
from tocsin.schemas.records import Journal
from tocsin.streams.clocks import MEASURED_WITHIN_MS, STEP_MS, LogClockGuard, WallClock, guard_for, offset_of
from tocsin.streams.store import StoreEnvironment

HOUR_MS = 3_600_000
EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")
PARTITIONS = 2


# --- what an answer proves


@pytest.mark.parametrize(
    "wall_ms, took_ms, stamp_ms, offset_ms",
    [
        (1_000, 0, 1_000, 0),
        (1_000, 100, 950, 0),  # from within the time that it took
        (1_000, 100, 900, 0),
        (1_000, 100, 899, 1),  # at the least
        (1_000, 100, 1_001, -1),
        (1_000, 100, 0, 900),
        (1_000, 900, 0, 100),
        (1_000, 100, 5_000, -4_000),
    ],
)
def test_an_offset_counts_as_far_as_the_time_of_the_answer_does_not_explain_it(
    wall_ms: int, took_ms: int, stamp_ms: int, offset_ms: int
) -> None:
    assert (offset_ms, stamp_ms) == offset_of(wall_ms, took_ms, [stamp_ms])


def test_of_several_stamps_the_one_that_agrees_best_counts() -> None:
    """Each broker puts its own time on what it appends, and one of them may be wrong."""
    assert (0, 990) == offset_of(1_000, 20, [990, 990 + HOUR_MS])
    assert (-3, 1_003) == offset_of(1_000, 20, [0, 1_003, HOUR_MS])


# --- the guard


class Bench:
    """A guard on a machine whose wall clock may be wrong, and a log whose clock is right."""

    def __init__(self) -> None:
        self.true = FakeClock()
        self.machine = SkewedClock(self.true)
        self.guard = LogClockGuard(self.machine)

    def measure(self, took_ms: int = 10, stamped_after_ms: int = 5) -> None:
        sent_s = self.true.monotonic_s()
        self.true.advance(stamped_after_ms)
        stamp_ms = self.true.now_ms()
        self.true.advance(took_ms - stamped_after_ms)
        self.guard.measured([stamp_ms], sent_s)

    @property
    def held(self) -> str:
        return self.guard.read().held

    @property
    def believes(self) -> bool:
        reading = self.guard.read()
        return not reading.held and reading.now_ms == self.machine.now_ms()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_before_the_first_answer_it_is_no_time_at_all(bench: Bench) -> None:
    """So no tick can take an hour from it that is not there."""
    reading = bench.guard.read()
    assert 0 == reading.now_ms
    assert "not compared" in reading.held
    bench.true.advance(HOUR_MS)
    assert 0 == bench.guard.read().now_ms


@pytest.mark.parametrize("error_ms", [0, 500, -500, STEP_MS, -STEP_MS])
def test_a_clock_that_is_off_by_up_to_five_seconds_is_believed(bench: Bench, error_ms: int) -> None:
    bench.machine.error_ms = error_ms
    bench.measure(took_ms=0, stamped_after_ms=0)
    assert bench.believes
    assert error_ms == bench.guard.offset_ms


@pytest.mark.parametrize("error_ms", [STEP_MS + 1, -STEP_MS - 1, HOUR_MS, -HOUR_MS])
def test_beyond_that_nothing_fires_and_time_is_the_logs(bench: Bench, error_ms: int) -> None:
    bench.machine.error_ms = error_ms
    bench.measure(took_ms=0, stamped_after_ms=0)
    reading = bench.guard.read()
    assert bench.true.now_ms() == reading.now_ms
    assert ("ahead of" if error_ms > 0 else "behind") in reading.held
    assert "--clock wall" in reading.held
    assert f"{abs(error_ms) / 1000:.1f} s" in reading.held
    bench.true.advance(7_000)
    assert bench.true.now_ms() == bench.guard.read().now_ms


def test_time_that_is_the_logs_is_never_ahead_of_it(bench: Bench) -> None:
    bench.machine.error_ms = HOUR_MS
    bench.measure(took_ms=900, stamped_after_ms=100)
    assert 800 == bench.true.now_ms() - bench.guard.read().now_ms


@pytest.mark.parametrize("error_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_was_set_right_is_believed_after_the_next_answer(bench: Bench, error_ms: int) -> None:
    bench.machine.error_ms = error_ms
    bench.measure()
    assert bench.held
    bench.machine.error_ms = 0
    assert bench.held
    bench.measure()
    assert bench.believes


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, STEP_MS + 1])
def test_a_step_is_noticed_at_once_and_time_goes_on_as_before(bench: Bench, step_ms: int) -> None:
    bench.measure()
    bench.machine.error_ms = step_ms
    bench.true.advance(1)
    reading = bench.guard.read()
    assert "stepped by" in reading.held
    assert bench.true.now_ms() == reading.now_ms
    bench.machine.error_ms = 0
    assert bench.believes  # it has come back


def test_a_step_that_the_log_confirms_is_believed(bench: Bench) -> None:
    """The clock was wrong all the time, by less than five seconds, and was set right; or all clocks were."""
    bench.machine.error_ms = 4_000
    bench.measure()
    bench.machine.error_ms = -3_000
    assert "stepped by -7.0 s" in bench.held
    bench.measure()
    assert bench.believes


def test_small_steps_do_not_add_up_to_a_large_one_between_two_answers(bench: Bench) -> None:
    bench.measure()
    for _ in range(3):
        bench.machine.error_ms += 2_000
        bench.true.advance(100)
        bench.guard.read()
    assert bench.held


def test_an_answer_that_took_long_proves_that_a_clock_is_off_and_not_that_it_is_right(bench: Bench) -> None:
    bench.measure(took_ms=MEASURED_WITHIN_MS + 1)
    assert "took too long" in bench.held
    bench.measure()
    assert bench.believes
    bench.measure(took_ms=60_000)
    assert bench.believes  # as far as was known before
    bench.machine.error_ms = 2 * HOUR_MS
    bench.measure(took_ms=60_000)
    assert "ahead of" in bench.held


def test_a_wall_that_is_believed_always_still_says_how_far_it_is_off() -> None:
    true = FakeClock()
    machine = SkewedClock(true)
    machine.error_ms = HOUR_MS
    guard = guard_for(machine, "wall", log_has_clock=True)
    assert isinstance(guard, WallClock)
    guard.measured([true.now_ms()], true.monotonic_s())
    assert HOUR_MS == guard.offset_ms
    assert (machine.now_ms(), "") == (guard.read().now_ms, guard.read().held)


MOVES = st.lists(
    st.tuples(
        st.integers(0, 8_000),
        st.one_of(st.just(0), st.integers(-6_000, 6_000), st.sampled_from((-HOUR_MS, HOUR_MS))),
        st.integers(0, 8_000),
        st.booleans(),
    ),
    max_size=30,
)


@given(MOVES)
def test_whatever_the_clock_does_no_time_is_further_ahead_than_a_step(
    moves: list[tuple[int, int, int, bool]],
) -> None:
    bench = Bench()
    for wait_ms, step_ms, took_ms, measures in moves:
        bench.true.advance(wait_ms)
        bench.machine.error_ms += step_ms
        if measures:
            bench.measure(took_ms=took_ms, stamped_after_ms=took_ms // 2)
        reading = bench.guard.read()
        assert reading.now_ms - bench.true.now_ms() <= 2 * STEP_MS + 8_000
        assert reading.held or abs(reading.now_ms - bench.true.now_ms()) <= 2 * STEP_MS + 8_000
    bench.machine.error_ms = 0
    bench.measure()
    assert bench.believes


# --- of whole processes


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def rows(crowd: Crowd, name: str = "") -> list[tuple[int, Journal]]:
    """Every journal row of the process, with the log's time, also those that were aborted."""
    return [
        (each.record.timestamp_ms, row)
        for number in range(PARTITIONS)
        for each in crowd.log.records(NAMES.journal, number)
        if each.record.value and isinstance(row := codec.decode(each.record.value), Journal)
        if row.transactional_id.endswith(name)
    ]


def skewed(crowd: Crowd, name: str, error_ms: int) -> SkewedClock:
    clock = crowd.clocks.setdefault(name, SkewedClock(crowd.clock))
    clock.error_ms = error_ms
    return clock


@pytest.mark.parametrize("error_ms", [HOUR_MS, -HOUR_MS, 12_000])
def test_a_process_whose_clock_is_off_journals_no_time_that_was_not_fires_nothing_and_says_so(
    crowd: Crowd, error_ms: int
) -> None:
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    skewed(crowd, "s0", error_ms)
    crowd.enter("s0")
    crowd.settle()
    crowd.run(20_000, every_ms=100)
    assert [] == crowd.dispatched()
    assert len(rows(crowd)) > 2 * PARTITIONS
    assert all(row.now_ms <= at_ms for at_ms, row in rows(crowd))
    assert not any(row.fired for _, row in rows(crowd) if row.digest)
    status = crowd.status("s0")
    assert f"{abs(error_ms) / 1000:.1f} s" in status.held
    assert error_ms == status.clock_offset_ms
    assert crowd.living["s0"].wait_s() > 0.01  # what is overdue makes no busy loop


def test_what_it_held_back_is_decided_once_its_clock_is_right(crowd: Crowd) -> None:
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    clock = skewed(crowd, "s0", HOUR_MS)
    crowd.enter("s0")
    crowd.settle()
    crowd.run(10_000, every_ms=100)
    clock.error_ms = 0
    crowd.run(8_000, every_ms=100)
    assert "" == crowd.status("s0").held
    nominals = [due.nominal_ms for due in crowd.dues()]
    assert len(nominals) == len(set(nominals)) > 8
    decided = {
        at for event in crowd.run_events() for at in range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
    }
    assert set(range(min(decided), crowd.clock.now_ms(), 1_000)) <= decided


def test_while_it_holds_back_inputs_are_applied_by_the_logs_time(crowd: Crowd) -> None:
    skewed(crowd, "s0", HOUR_MS)
    crowd.enter("s0")
    crowd.settle()
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    crowd.run(1_000)
    found = [each.store.reader().job("default/a") for each in crowd.living["s0"].partitions.values()]  # type: ignore[arg-type]
    (row,) = [each[0] for each in found if each is not None]
    assert 1 == row.revision
    assert abs(row.armed_nominal_ms - crowd.clock.now_ms()) < 3_000


def test_an_hour_that_one_process_is_ahead_does_not_stop_the_next_owner(crowd: Crowd) -> None:
    """A partition's time never goes back: had the hour been journaled, the next owner would stand still for an hour."""
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    crowd.enter("s0")
    crowd.settle()
    crowd.run(3_000)
    skewed(crowd, "s1", HOUR_MS)
    crowd.enter("s1")
    crowd.settle()
    crowd.run(7_000, every_ms=50)
    assert crowd.owned("s1")
    crowd.kill("s1")
    crowd.settle()
    crowd.run(3_000)
    latest = max(row.now_ms for _, row in rows(crowd))
    assert latest <= crowd.clock.now_ms()
    decided = {
        at for event in crowd.run_events() for at in range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
    }
    assert set(range(min(decided), crowd.clock.now_ms(), 1_000)) <= decided
    for number in range(PARTITIONS):
        times = [
            row.now_ms
            for each in crowd.log.records(NAMES.journal, number)
            if each.state == "committed"
            and isinstance(row := codec.decode(each.record.value or b""), Journal)
        ]
        assert all(after >= before for before, after in pairwise(times))


def test_a_wall_that_leaps_between_two_commits_is_noticed_before_anything_fires_by_it(crowd: Crowd) -> None:
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    clock = skewed(crowd, "s0", 0)
    crowd.enter("s0")
    crowd.settle()
    crowd.run(3_000)
    clock.error_ms = HOUR_MS
    crowd.run(300)  # what had fired before is committed
    before = crowd.dispatched()
    crowd.run(12_000, every_ms=50)
    assert before == crowd.dispatched()
    assert all(row.now_ms <= at_ms for at_ms, row in rows(crowd))
    clock.error_ms = 0
    crowd.run(6_000)
    assert len(crowd.dispatched()) > len(before) + 12
    assert len(set(crowd.dispatched())) == len(crowd.dispatched())


def test_only_one_that_was_told_to_believes_its_wall(place: Path, environment: StoreEnvironment) -> None:
    with crowd_in(place, environment, partitions=PARTITIONS) as crowd:
        crowd.define(job(EVERY_SECOND, overlap=ALLOW))
        skewed(crowd, "s0", 60_000)
        crowd.clock_mode = "wall"
        crowd.enter("s0")
        crowd.settle()
        crowd.run(3_000)
        assert crowd.dispatched()
        assert "" == crowd.status("s0").held
        assert 60_000 == crowd.status("s0").clock_offset_ms
