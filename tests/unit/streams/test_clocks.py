"""The guard over the wall clock: what it believes, what it holds, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import FakeClock
from tocsin.streams.clocks import JITTER_MS, STEADY_S, STEP_MS, ClockGuard, WallClock

HOUR_MS = 3_600_000


def guarded() -> tuple[FakeClock, ClockGuard]:
    """A guard that has looked once, so that it knows what was true."""
    clock = FakeClock()
    guard = ClockGuard(clock)
    assert "" == guard.read().held
    return clock, guard


def wait(clock: FakeClock, guard: ClockGuard, ms: int, every_ms: int = 1_000) -> None:
    """Let time pass, with a look now and then, as the loop does."""
    for _ in range(ms // every_ms):
        clock.advance(every_ms)
        guard.read()


def test_the_first_look_believes_the_wall_clock_whatever_it_says() -> None:
    clock = FakeClock(4_000)
    assert (4_000, "") == (ClockGuard(clock).read().now_ms, ClockGuard(clock).read().held)


@pytest.mark.parametrize("step_ms", [STEP_MS + 1, HOUR_MS, -STEP_MS - 1, -HOUR_MS])
def test_a_step_beyond_five_seconds_holds_and_time_goes_on_as_if_there_was_none(step_ms: int) -> None:
    clock, guard = guarded()
    true_ms = clock.now_ms()
    clock.step_wall(step_ms)
    assert true_ms == guard.read().now_ms
    clock.advance(7_000)
    reading = guard.read()
    assert true_ms + 7_000 == reading.now_ms
    assert reading.held


@pytest.mark.parametrize("step_ms", [STEP_MS, 1, -1, -STEP_MS])
def test_a_step_of_up_to_five_seconds_is_believed(step_ms: int) -> None:
    clock, guard = guarded()
    clock.step_wall(step_ms)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_was_steady_for_a_minute_is_believed(step_ms: int) -> None:
    clock, guard = guarded()
    clock.step_wall(step_ms)
    guard.read()
    wait(clock, guard, 59_999, every_ms=1)
    assert guard.read().held
    clock.advance(1)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)
    wait(clock, guard, 5_000)
    assert "" == guard.read().held


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("off_by_ms", [0, JITTER_MS, -JITTER_MS])
def test_a_clock_that_has_come_back_is_believed_at_once(step_ms: int, off_by_ms: int) -> None:
    clock, guard = guarded()
    clock.step_wall(step_ms)
    wait(clock, guard, 10_000)
    clock.step_wall(-step_ms + off_by_ms)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


def test_a_clock_that_comes_back_only_nearly_has_to_be_steady_first() -> None:
    clock, guard = guarded()
    clock.step_wall(HOUR_MS)
    wait(clock, guard, 50_000)
    clock.step_wall(-HOUR_MS + JITTER_MS + 1)
    assert guard.read().held
    wait(clock, guard, 59_000)
    assert guard.read().held
    wait(clock, guard, 1_000)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


def test_jitter_while_held_does_not_prolong_it() -> None:
    clock, guard = guarded()
    clock.step_wall(HOUR_MS)
    guard.read()
    for number in range(60):
        assert guard.read().held
        clock.advance(1_000)
        clock.step_wall(JITTER_MS if number % 2 == 0 else -JITTER_MS)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


def test_another_step_while_held_begins_the_minute_anew() -> None:
    clock, guard = guarded()
    clock.step_wall(HOUR_MS)
    guard.read()
    wait(clock, guard, 59_000)
    clock.step_wall(JITTER_MS + 1)
    wait(clock, guard, 59_000)
    assert guard.read().held
    wait(clock, guard, 2_000)
    assert "" == guard.read().held


@pytest.mark.parametrize("rate", [-0.004, 0.004])
def test_slewing_never_holds_however_far_it_goes(rate: float) -> None:
    """As a time service corrects a clock: 4 ms in each second, for three hours, is nine times the step that holds."""
    clock, guard = guarded()
    for _ in range(3 * 3_600):
        clock.advance(1_000)
        clock.step_wall(round(1_000 * rate))
        assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


def test_a_machine_that_was_suspended_for_a_night_is_not_held() -> None:
    """The steady clock counts suspension, so both have gone on."""
    clock, guard = guarded()
    clock.advance(8 * HOUR_MS)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_mode_wall_believes_every_step(step_ms: int) -> None:
    clock = FakeClock()
    guard = WallClock(clock)
    guard.read()
    clock.step_wall(step_ms)
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)


@pytest.mark.parametrize("step_ms, shown", [(HOUR_MS, "by 3600.0 s"), (-7_500, "by -7.5 s")])
def test_what_holds_says_how_far_it_stepped_how_long_it_takes_and_what_to_do(
    step_ms: int, shown: str
) -> None:
    clock, guard = guarded()
    clock.step_wall(step_ms)
    guard.read()
    wait(clock, guard, 18_000)
    held = guard.read().held
    assert shown in held
    assert "42 s" in held
    assert "--clock wall" in held


MOVES = st.lists(
    st.tuples(
        st.integers(min_value=1, max_value=30_000),
        st.one_of(st.just(0), st.integers(-JITTER_MS, JITTER_MS), st.integers(-HOUR_MS, HOUR_MS)),
    ),
    max_size=40,
)


@given(MOVES)
def test_whatever_the_wall_clock_does_time_never_leaps_and_is_never_held_for_ever(
    moves: list[tuple[int, int]],
) -> None:
    clock, guard = guarded()
    before = guard.read()
    for ms, step_ms in moves:
        clock.advance(ms)
        clock.step_wall(step_ms)
        reading = guard.read()
        if reading.held and before.held:
            assert before.now_ms + ms == reading.now_ms
        if not reading.held:
            assert clock.now_ms() == reading.now_ms
            # It was believed before, up to a slew; or a minute has passed since the step, or it has come back.
            assert before.held or abs(reading.now_ms - before.now_ms - ms) <= STEP_MS
        before = reading
    clock.advance(1)
    guard.read()
    clock.advance(round(STEADY_S * 1_000))
    assert (clock.now_ms(), "") == (guard.read().now_ms, guard.read().held)
