"""Timetables: what the processors ask, with bounds and exclusions."""

from bisect import bisect_right
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schedules import (
    Continuation,
    Cron,
    Kind,
    ScheduleError,
    Timetable,
    format_instant,
    parse_instant,
    spread_offset,
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


def at(text: str) -> int:
    return parse_instant(text)


def shown(instants: object) -> list[str]:
    assert isinstance(instants, list | tuple)
    return [format_instant(each)[:19] for each in instants]


# -- each kind


def test_a_union_of_expressions_names_each_instant_once() -> None:
    timetable = Timetable(kind="cron", crons=("0 9 * * *", "0 */3 * * *", "30 9 * * *"))
    found = list(timetable.nominals(at("2026-01-01T05:00Z"), at("2026-01-01T12:00Z")))
    assert ["06:00:00", "09:00:00", "09:30:00", "12:00:00"] == [text[11:] for text in shown(found)]


def test_a_union_goes_on_when_one_of_its_expressions_never_fires() -> None:
    timetable = Timetable(kind="cron", crons=("0 0 31 4 *", "0 9 * * *"))
    assert at("2026-01-01T09:00Z") == timetable.next_nominal(at("2026-01-01T00:00Z"))
    assert at("2025-12-31T09:00Z") == timetable.prev_nominal(at("2026-01-01T00:00Z"))


def test_every_counts_from_its_anchor_in_both_directions_to_the_millisecond() -> None:
    timetable = Timetable(kind="every", every_ms=90_000, anchor_ms=at("2026-01-01T00:00:00.250Z"))
    assert at("2026-01-01T00:01:30.250Z") == timetable.next_nominal(at("2026-01-01T00:00:00.250Z"))
    assert at("2026-01-01T00:00:00.250Z") == timetable.next_nominal(at("2026-01-01T00:00:00.249Z"))
    assert at("2025-12-31T23:58:30.250Z") == timetable.prev_nominal(at("2026-01-01T00:00:00.250Z"))


def test_an_anchor_in_the_future_is_a_phase_and_no_start() -> None:
    timetable = Timetable(kind="every", every_ms=HOUR_MS, anchor_ms=at("2027-01-01T00:20Z"))
    assert at("2026-05-05T10:20Z") == timetable.next_nominal(at("2026-05-05T09:30Z"))


def test_at_and_delay_name_one_instant() -> None:
    moment = at("2026-12-01T08:00Z")
    for timetable in (
        Timetable(kind="at", at_ms=moment),
        Timetable(kind="delay", delay_ms=30_000, base_ms=moment - 30_000),
    ):
        assert moment == timetable.next_nominal(moment - 1)
        assert timetable.next_nominal(moment) is None
        assert moment == timetable.prev_nominal(moment + 1)
        assert timetable.prev_nominal(moment) is None
        assert (1, False) == timetable.count(0, moment)
        assert (0, False) == timetable.count(moment, moment + DAY_MS)
        assert (moment,) == timetable.newest(0, moment + DAY_MS, 10)


def test_a_manual_schedule_names_nothing() -> None:
    timetable = Timetable(kind="manual")
    assert timetable.next_nominal(0) is None
    assert timetable.prev_nominal(0) is None
    assert (0, False) == timetable.count(0, at("2100-01-01T00:00Z"))
    assert () == timetable.newest(0, at("2100-01-01T00:00Z"), 5)


# -- bounds


def test_a_start_is_included_and_an_end_is_not() -> None:
    timetable = Timetable(
        kind="cron",
        crons=("0 9 * * *",),
        starts_at_ms=at("2026-01-02T09:00Z"),
        ends_at_ms=at("2026-01-05T09:00Z"),
    )
    expected = ["2026-01-02T09:00:00", "2026-01-03T09:00:00", "2026-01-04T09:00:00"]
    wide = (at("2025-01-01T00:00Z"), at("2027-01-01T00:00Z"))
    assert expected == shown(list(timetable.nominals(*wide)))
    assert expected == shown(timetable.newest(*wide, 10))
    assert (3, False) == timetable.count(*wide)
    assert timetable.next_nominal(at("2026-01-04T09:00Z")) is None
    assert at("2026-01-04T09:00Z") == timetable.prev_nominal(at("2027-01-01T00:00Z"))
    assert timetable.prev_nominal(at("2026-01-02T09:00Z")) is None


def test_bounds_hold_for_every_too() -> None:
    timetable = Timetable(
        kind="every",
        every_ms=HOUR_MS,
        starts_at_ms=at("2026-01-01T02:00Z"),
        ends_at_ms=at("2026-01-01T05:00Z"),
    )
    wide = (at("2025-01-01T00:00Z"), at("2027-01-01T00:00Z"))
    assert (3, False) == timetable.count(*wide)
    assert ["02", "03", "04"] == [text[11:13] for text in shown(timetable.newest(*wide, 9))]
    assert ["03", "04"] == [text[11:13] for text in shown(timetable.newest(*wide, 2))]


def test_a_start_within_a_second_waits_for_the_next_second() -> None:
    timetable = Timetable(kind="cron", crons=("* * * * * *",), starts_at_ms=at("2026-01-01T00:00:00.001Z"))
    assert at("2026-01-01T00:00:01Z") == timetable.next_nominal(0)


# -- exclusions


def test_five_fields_exclude_the_whole_minute_and_six_a_second() -> None:
    start, end = at("2026-01-01T00:00:58Z"), at("2026-01-01T00:03:01Z")
    minute = Timetable(kind="cron", crons=("* * * * * *",), exclude_crons=("1-2 * * * *",))
    expected = ["2026-01-01T00:00:59", "2026-01-01T00:03:00", "2026-01-01T00:03:01"]
    assert expected == shown(list(minute.nominals(start, end)))
    second = Timetable(kind="cron", crons=("*/20 * * * * *",), exclude_crons=("20 1 * * * *",))
    expected = ["00:01:00", "00:01:40", "00:02:00", "00:02:20", "00:02:40", "00:03:00"]
    assert expected == [text[11:] for text in shown(list(second.nominals(start, end)))]


def test_an_exclusion_is_what_the_clocks_show_at_the_instant() -> None:
    """02:30 does not exist on that day and fires at 03:00: an exclusion of the hour 2 does not touch it, of 3 it does."""
    for excluded, expected in (
        ("* 2 * * *", ["2026-03-08T07:00:00"]),
        ("* 3 * * *", ["2026-03-07T07:30:00", "2026-03-09T06:30:00"]),
    ):
        timetable = Timetable(
            kind="cron", crons=("30 2 * * *",), timezone="America/New_York", exclude_crons=(excluded,)
        )
        assert expected == shown(list(timetable.nominals(at("2026-03-07T00:00Z"), at("2026-03-09T12:00Z"))))


def test_both_passes_of_a_repeated_hour_are_excluded() -> None:
    timetable = Timetable(
        kind="cron", crons=("*/30 * * * *",), timezone="America/New_York", exclude_crons=("* 1 * * *",)
    )
    expected = ["2026-11-01T04:30:00", "2026-11-01T07:00:00"]
    assert expected == shown(list(timetable.nominals(at("2026-11-01T04:00Z"), at("2026-11-01T07:00Z"))))


def test_a_range_is_excluded_from_its_start_until_before_its_end() -> None:
    timetable = Timetable(
        kind="cron",
        crons=("0 * * * *",),
        exclude_ranges=(
            (at("2026-01-01T02:00Z"), at("2026-01-01T04:00Z")),
            (at("2026-01-01T05:00Z"), at("2026-01-01T05:00:00.001Z")),
        ),
    )
    found = list(timetable.nominals(at("2026-01-01T00:00Z"), at("2026-01-01T07:00Z")))
    assert ["01", "04", "06", "07"] == [text[11:13] for text in shown(found)]


def test_overlapping_ranges_are_one() -> None:
    hour = at("2026-01-01T00:00Z")
    ranges = (
        (hour + 4 * HOUR_MS, hour + 6 * HOUR_MS),
        (hour, hour + 3 * HOUR_MS),
        (hour + 2 * HOUR_MS, hour + 4 * HOUR_MS),
    )
    timetable = Timetable(kind="every", every_ms=HOUR_MS, anchor_ms=hour, exclude_ranges=ranges)
    assert hour + 6 * HOUR_MS == timetable.next_nominal(hour - 1)
    assert hour - HOUR_MS == timetable.prev_nominal(hour + 6 * HOUR_MS)


def test_years_of_excluded_seconds_are_jumped_over() -> None:
    start = at("2026-01-01T00:00Z")
    timetable = Timetable(
        kind="cron", crons=("* * * * * *",), exclude_ranges=((start, at("2126-01-01T00:00Z")),)
    )
    assert at("2126-01-01T00:00Z") == timetable.next_nominal(start - 1)
    assert at("2025-12-31T23:59:59Z") == timetable.prev_nominal(at("2126-01-01T00:00Z"))


def test_excluded_days_are_jumped_over_as_days() -> None:
    """A weekend has 172,800 seconds, far more than one call may look at one by one."""
    timetable = Timetable(
        kind="cron", crons=("* * * * * *",), timezone="Europe/Berlin", exclude_crons=("* * * * SAT,SUN",)
    )
    friday, monday = (
        at("2026-03-27T22:59:59Z"),
        at("2026-03-29T22:00:00Z"),
    )  # the clocks change on that Sunday
    assert monday == timetable.next_nominal(friday)
    assert (friday - 1000, friday) == timetable.newest(0, monday - 1, 2)
    assert (1, False) == timetable.count(friday, monday)


def test_a_search_gives_up_after_ten_thousand_excluded_candidates_and_can_be_resumed() -> None:
    timetable = Timetable(kind="cron", crons=("*/2 * * * *",), exclude_crons=("0-58/2 * 1-30 1 *",))
    start = at("2026-01-01T00:00Z") - 1
    found = timetable.next_nominal(start)
    steps = 0
    while isinstance(found, Continuation):
        steps += 1
        assert found.resume_from_ms >= start + steps * 10_000 * 2 * MINUTE_MS - 2 * MINUTE_MS
        found = timetable.next_nominal(found.resume_from_ms)
    assert steps == 2  # 30 days of 720 candidates
    assert at("2026-01-31T00:00Z") == found
    assert [found] == list(timetable.nominals(start, found))
    assert (0, True) == timetable.count(start, found)
    assert (found,) == timetable.newest(start, found, 3)
    assert timetable.prev_nominal(found) is None  # bounded too


def test_an_excluded_one_shot_is_no_occurrence() -> None:
    moment = at("2026-12-24T08:00Z")
    timetable = Timetable(kind="at", at_ms=moment, exclude_crons=("* * 24 12 *",))
    assert timetable.next_nominal(0) is None
    assert timetable.prev_nominal(moment + 1) is None


# -- fixed delay


def test_a_fixed_delay_counts_from_the_end_of_the_run() -> None:
    timetable = Timetable(
        kind="every", every_ms=5 * MINUTE_MS, after_completion=True, anchor_ms=at("2026-01-01T00:00Z")
    )
    assert not timetable.predetermined
    assert at("2026-01-01T00:05Z") == timetable.next_nominal(at("2026-01-01T00:00Z"))
    assert at("2026-01-01T00:11:23.456Z") == timetable.next_after_completion(at("2026-01-01T00:06:23.456Z"))


def test_a_fixed_delay_keeps_to_its_bounds_and_passes_over_exclusions_in_its_own_steps() -> None:
    timetable = Timetable(
        kind="every",
        every_ms=25 * MINUTE_MS,
        after_completion=True,
        exclude_crons=("* 12 * * *",),
        starts_at_ms=at("2026-01-01T06:00Z"),
        ends_at_ms=at("2026-01-01T20:00Z"),
    )
    assert at("2026-01-01T06:00Z") == timetable.next_after_completion(at("2026-01-01T01:00Z"))
    assert at("2026-01-01T13:05Z") == timetable.next_after_completion(at("2026-01-01T11:50Z"))
    assert timetable.next_after_completion(at("2026-01-01T19:35Z")) is None
    assert at("2026-01-01T19:59:59.999Z") == timetable.next_after_completion(at("2026-01-01T19:34:59.999Z"))


def test_a_fixed_delay_that_is_always_excluded_is_bounded_too() -> None:
    timetable = Timetable(
        kind="every",
        every_ms=2 * HOUR_MS,
        after_completion=True,
        exclude_crons=("0-59 */2 * * *", "59 * * * *"),
    )
    end = at("2026-01-01T00:00Z")
    found = timetable.next_after_completion(end)
    assert Continuation(resume_from_ms=end + 10_000 // 2 * 2 * HOUR_MS) == found  # two exclusions, half each
    assert Timetable(kind="every", every_ms=HOUR_MS).predetermined


# -- agreement among the questions


@st.composite
def timetables(draw: st.DrawFn) -> Timetable:
    crons = st.sampled_from(
        ("*/7 * * * *", "0 9 * * *", "30 2 * * *", "15,45 */3 * * MON-FRI", "0 0 L * *", "*/50 * * * * *")
    )
    excluded = st.sampled_from(
        ("* 9 * * *", "* * * * SUN", "10-40 * * * *", "0 30 * * * *", "*/2 2 * 3,11 *")
    )
    base = at("2026-03-05T00:00Z")
    starts = draw(st.none() | st.integers(base, base + 8 * DAY_MS))
    kind: Kind = draw(st.sampled_from(["cron", "every"]))
    return Timetable(
        kind=kind,
        crons=tuple(draw(st.lists(crons, min_size=1, max_size=3))) if kind == "cron" else (),
        timezone=draw(st.sampled_from(("UTC", "America/New_York", "Australia/Lord_Howe"))),
        gap=draw(st.sampled_from(("at_end", "skip", "shift"))),
        fold=draw(st.sampled_from(("first", "second", "both"))),
        every_ms=draw(st.integers(900_000, 90_000_000)) if kind == "every" else 0,
        anchor_ms=draw(st.integers(0, 2**41)),
        exclude_crons=tuple(draw(st.lists(excluded, max_size=2))),
        exclude_ranges=tuple(
            (base + start, base + start + length)
            for start, length in draw(
                st.lists(st.tuples(st.integers(0, 8 * DAY_MS), st.integers(1, 2 * DAY_MS)), max_size=2)
            )
        ),
        starts_at_ms=starts,
        ends_at_ms=draw(st.none() | st.integers(base, base + 8 * DAY_MS)),
    )


def scanned(timetable: Timetable, start: int, end: int) -> list[int]:
    """The nominals in (start, end], by filtering all candidates of the bare rule one by one."""
    if timetable.kind == "every":
        first = (
            timetable.anchor_ms
            + ((start - timetable.anchor_ms) // timetable.every_ms + 1) * timetable.every_ms
        )
        candidates = set(range(first, end + 1, timetable.every_ms))
    else:
        bare = [Cron(each, timetable.timezone, timetable.gap, timetable.fold) for each in timetable.crons]
        candidates = {fire for cron in bare for fire in cron.fires(start, end)}
    excluding = [Cron(each, timetable.timezone) for each in timetable.exclude_crons]

    def excluded(instant: int) -> bool:
        for cron in excluding:
            # By fires of the expression itself, both passes of a fold: the minute (or the second) that holds
            # the instant.
            both = Cron(cron.expression, timetable.timezone, "skip", "both")
            whole = 1000 if cron.fields.has_seconds else MINUTE_MS
            begin = instant - instant % whole
            if both.next(begin - 1) == begin:
                return True
        return any(low <= instant < high for low, high in timetable.exclude_ranges)

    low = timetable.starts_at_ms if timetable.starts_at_ms is not None else start
    high = timetable.ends_at_ms if timetable.ends_at_ms is not None else end + 1
    return sorted(each for each in candidates if low <= each < high and not excluded(each))


@settings(max_examples=settings().max_examples * 2)
@given(timetables(), st.integers(0, 6 * DAY_MS), st.integers(0, 4 * DAY_MS), st.integers(0, 60), st.data())
def test_all_questions_agree_with_a_scan_of_all_candidates(
    timetable: Timetable, offset: int, length: int, n: int, data: st.DataObject
) -> None:
    start = at("2026-03-05T00:00Z") + offset
    end = start + length
    expected = scanned(timetable, start, end)
    assert expected == list(timetable.nominals(start, end))
    assert (len(expected), False) == timetable.count(start, end)
    assert tuple(expected[-n:] if n else ()) == timetable.newest(start, end, n)
    limited = timetable.count(start, end, limit=n)
    assert (min(n, len(expected)), len(expected) > n) == limited
    middle = data.draw(st.integers(start, end))
    index = bisect_right(expected, middle)
    if index < len(expected):
        assert expected[index] == timetable.next_nominal(middle)
    if index:
        assert expected[index - 1] == timetable.prev_nominal(middle + 1)


def test_the_newest_of_years_of_seconds_are_found_from_the_end() -> None:
    timetable = Timetable(kind="cron", crons=("* * * * * *", "*/2 * * * * *"))
    end = at("2026-01-01T00:00Z")
    assert tuple(end - back * 1000 for back in (2, 1, 0)) == timetable.newest(end - 3_000 * DAY_MS, end, 3)
    assert () == timetable.newest(end, end, 3)
    assert () == timetable.newest(end, end - DAY_MS, 3)
    assert () == timetable.newest(0, end, 0)


def test_a_count_stops_at_its_limit() -> None:
    timetable = Timetable(kind="cron", crons=("* * * * * *",))
    assert (10_000, True) == timetable.count(0, DAY_MS)
    assert (86_400, False) == timetable.count(0, DAY_MS, limit=86_400)
    assert (86_399, True) == timetable.count(0, DAY_MS, limit=86_399)
    every = Timetable(kind="every", every_ms=1000)
    assert (10_000, True) == every.count(0, DAY_MS)
    assert (86_400, False) == every.count(0, DAY_MS, limit=86_400)
    assert (0, False) == every.count(DAY_MS, 0)


# -- spread


@pytest.mark.parametrize(
    ("job_key", "spread_ms", "expected"),
    [
        # Test vectors for whoever computes it elsewhere: the first 8 bytes of SHA-256, big-endian, as a share
        # of spread.
        ("billing/send-invoices", 600_000, 241_035),
        ("billing/send-invoices", 86_400_000, 34_709_056),
        ("default/a", 600_000, 372_612),
        ("default/b", 600_000, 494_181),
        ("default/a", 1, 0),
        ("default/a", 0, 0),
    ],
)
def test_the_spread_of_a_job_is_the_same_for_ever(job_key: str, spread_ms: int, expected: int) -> None:
    assert expected == spread_offset(job_key, spread_ms)
    assert expected == Timetable(kind="manual", spread_ms=spread_ms).spread_offset(job_key)


@given(st.text(min_size=1), st.integers(1, DAY_MS), st.integers(1, DAY_MS))
def test_a_wider_spread_moves_no_job_past_another(job_key: str, one: int, other: int) -> None:
    narrow, wide = sorted((one, other))
    assert 0 <= spread_offset(job_key, narrow) < narrow
    assert spread_offset(job_key, narrow) <= spread_offset(job_key, wide)
    assert (spread_offset(job_key, narrow) <= spread_offset("x", narrow)) or (
        spread_offset(job_key, wide) >= spread_offset("x", wide)
    )


# -- as values


def test_timetables_of_equal_values_are_equal_and_shared() -> None:
    def build(hour: int) -> Timetable:
        return Timetable(kind="cron", crons=(f"0 {hour} * * *",), timezone="Europe/Berlin")

    assert build(9) == build(9)
    assert hash(build(9)) == hash(build(9))
    assert build(9) != build(10)
    assert build(9).shared() is build(9).shared()
    assert ", _crons" not in repr(build(9))


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"kind": "cron"}, "schedule-empty"),
        ({"kind": "cron", "crons": ("61 * * * *",)}, "cron-minute"),
        ({"kind": "cron", "crons": ("* * * * *",), "timezone": "Mars/Olympus"}, "timezone-unknown"),
        ({"kind": "cron", "crons": ("* * * * *",), "gap": "never"}, "gap-unknown"),
        ({"kind": "cron", "crons": ("* * * * *",), "fold": "third"}, "fold-unknown"),
        ({"kind": "cron", "crons": ("* * * * *",), "exclude_crons": ("x",)}, "cron-field-count"),
        ({"kind": "cron", "crons": ("* * * * *",), "exclude_ranges": ((5, 5),)}, "schedule-range"),
        ({"kind": "every", "every_ms": 999}, "schedule-every"),
        ({"kind": "delay", "delay_ms": -1}, "schedule-delay"),
        ({"kind": "manual", "spread_ms": -1}, "schedule-spread"),
        ({"kind": "at", "at_ms": 1, "exclude_crons": ("* * * * *",), "timezone": "Nope"}, "timezone-unknown"),
    ],
)
def test_values_that_make_no_timetable_are_refused(values: dict[str, object], rule: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Timetable(**values)  # type: ignore[arg-type]
    assert rule == caught.value.rule
    assert caught.value.message


def test_the_first_fires_of_a_schedule_can_be_taken_from_any_start() -> None:
    timetable = Timetable(kind="every", every_ms=HOUR_MS)
    assert [HOUR_MS, 2 * HOUR_MS] == list(islice(timetable.nominals(0, DAY_MS), 2))
