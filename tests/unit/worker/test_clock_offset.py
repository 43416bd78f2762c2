"""How far the wall clock is from the log's."""

from tocsin.clock import FakeClock
from tocsin.worker.clock_offset import ClockOffset

LIMIT_MS = 500


def test_nothing_is_known_before_the_first_answer() -> None:
    offset = ClockOffset(FakeClock(), LIMIT_MS)
    assert (0, False) == (offset.offset_ms(), offset.is_off())


def test_the_offset_is_measured_in_the_middle_of_the_round_trip() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    log_ms = (
        clock.now_ms() + 20 - 700
    )  # stamped 20 ms after it was sent, by a clock that is 700 ms behind ours
    sent_s = clock.monotonic_s()
    clock.advance(40)
    offset.delivered(sent_s, log_ms)
    assert (700, True) == (offset.offset_ms(), offset.is_off())


def test_a_step_of_the_wall_clock_shows_at_once_and_so_does_its_repair() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    offset.delivered(clock.monotonic_s(), clock.now_ms())
    clock.step_wall(-600)
    assert (-600, True) == (offset.offset_ms(), offset.is_off())
    clock.step_wall(600)
    assert (0, False) == (offset.offset_ms(), offset.is_off())


def test_a_slow_answer_proves_nothing() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    sent_s, log_ms = clock.monotonic_s(), clock.now_ms()
    clock.advance(2_000)
    offset.delivered(sent_s, log_ms)
    assert 1_000 == offset.offset_ms()
    assert not offset.is_off()


def test_a_slow_answer_does_not_replace_a_quick_one() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    sent_s = clock.monotonic_s()
    clock.advance(10)
    offset.delivered(sent_s, clock.now_ms() - 5)
    sent_s, log_ms = clock.monotonic_s(), clock.now_ms()
    clock.advance(2_000)
    offset.delivered(sent_s, log_ms)
    assert 0 == offset.offset_ms()


def test_a_record_from_the_future_proves_that_the_wall_clock_is_behind() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    offset.read(clock.now_ms() + 501)
    assert offset.is_off()
    clock.step_wall(600)
    assert not offset.is_off()


def test_an_old_record_proves_nothing() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    offset.read(clock.now_ms() - 3_600_000)
    assert not offset.is_off()


def test_when_the_logs_clock_was_repaired_the_records_read_show_it() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, LIMIT_MS)
    offset.delivered(clock.monotonic_s(), clock.now_ms() - 5_000)
    clock.advance(61_000)
    assert offset.is_off()
    offset.read(clock.now_ms() - 30)
    assert not offset.is_off()


def test_a_log_with_this_machines_clock_is_never_off() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock, None)
    offset.delivered(clock.monotonic_s(), clock.now_ms() - 5_000)
    offset.read(clock.now_ms() + 5_000)
    assert (0, False) == (offset.offset_ms(), offset.is_off())
