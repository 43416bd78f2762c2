"""The kinds of failure that users of other schedulers met, K1 to K53: each is ruled out by name."""

from itertools import islice

import pytest

from tests.unit.schedules.tzif import tzif
from tocsin.schedules import (
    Cron,
    Fold,
    Gap,
    ScheduleError,
    Timetable,
    Zone,
    format_instant,
    parse_instant,
    shared_cron,
)
from tocsin.schedules.explain import explain

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def fires(cron: Cron, after: str, count: int) -> list[str]:
    return [format_instant(each)[:16] + "Z" for each in islice(cron.fires(parse_instant(after)), count)]


# -- K1: a double fire in the fold


def test_k1_a_repeated_reading_fires_in_the_first_pass_only() -> None:
    cron = Cron("30 1 * * *", "America/New_York")
    assert ["2026-11-01T05:30Z", "2026-11-02T06:30Z"] == fires(cron, "2026-10-31T12:00Z", 2)


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]),
        ("second", ["2026-11-01T06:30Z", "2026-11-02T06:30Z"]),
        ("both", ["2026-11-01T05:30Z", "2026-11-01T06:30Z"]),
    ],
)
def test_k1_the_other_pass_or_both_can_be_asked_for(fold: Fold, expected: list[str]) -> None:
    cron = Cron("30 1 * * *", "America/New_York", fold=fold)
    assert expected == fires(cron, "2026-10-31T12:00Z", 2)


# -- K2: a silent skip in the gap


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("at_end", ["2026-03-08T07:00Z", "2026-03-09T06:30Z"]),
        ("shift", ["2026-03-08T07:30Z", "2026-03-09T06:30Z"]),
        ("skip", ["2026-03-09T06:30Z", "2026-03-10T06:30Z"]),
    ],
)
def test_k2_a_skipped_reading_fires_as_its_policy_says(gap: Gap, expected: list[str]) -> None:
    cron = Cron("30 2 * * *", "America/New_York", gap=gap)
    assert expected == fires(cron, "2026-03-07T12:00Z", 2)


def test_k2_several_skipped_readings_and_a_regular_one_make_one_fire_at_the_end_of_the_gap() -> None:
    cron = Cron("0,20,40 2,3 * * *", "America/New_York")
    expected = ["2026-03-08T07:00Z", "2026-03-08T07:20Z", "2026-03-08T07:40Z", "2026-03-09T06:00Z"]
    assert expected == fires(cron, "2026-03-07T12:00Z", 4)


# -- K3: an overshoot by months, or an answer in the past, near the gap


def test_k3_the_last_minute_before_a_gap_is_followed_by_the_first_after_it() -> None:
    cron = Cron("*/5 * * * *", "America/New_York")
    assert ["2026-03-08T07:00Z"] == fires(cron, "2026-03-08T06:59Z", 1)
    assert ["2026-03-08T07:00Z"] == fires(cron, "2026-03-08T06:59:59.999Z", 1)


# -- K5: a schedule within the hour goes quiet for an hour


def test_k5_quarters_of_an_hour_follow_real_time_through_the_repeated_hour() -> None:
    cron = Cron("*/15 * * * *", "Europe/London")
    start_ms, end_ms = parse_instant("2026-10-25T00:00Z"), parse_instant("2026-10-25T02:00Z")
    found = list(cron.fires(start_ms, end_ms))
    assert [start_ms + number * 15 * MINUTE_MS for number in range(1, 9)] == found


def test_k5_one_second_passes_over_the_gap_not_an_hour_and_one() -> None:
    cron = Cron("* * * * * *", "America/Los_Angeles")
    before_ms = parse_instant("2026-03-08T09:59:59Z")  # 01:59:59, then 03:00:00
    assert before_ms + 1000 == cron.next(before_ms)


# -- K7: a gap at midnight skips the day


def test_k7_a_gap_at_midnight_loses_neither_the_day_nor_the_rhythm() -> None:
    cron = Cron("0 */2 * * *", "Africa/Cairo")
    expected = ["2025-04-24T20:00Z", "2025-04-24T23:00Z", "2025-04-25T01:00Z", "2025-04-25T03:00Z"]
    assert expected == fires(cron, "2025-04-24T19:10Z", 4)


def test_k7_a_daily_job_at_a_midnight_that_does_not_exist_runs_when_the_day_begins() -> None:
    cron = Cron("0 0 * * *", "America/Santiago")
    assert ["2026-09-06T04:00Z", "2026-09-07T03:00Z"] == fires(cron, "2026-09-05T12:00Z", 2)


def test_k7_a_day_that_a_zone_left_out_fires_once_at_the_end_of_it() -> None:
    """Samoa had no 30 December 2011."""
    cron = Cron("0 12 * * *", "Pacific/Apia")
    expected = ["2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z"]
    assert expected == fires(cron, "2011-12-29T00:00Z", 3)


# -- K10: the rules of a zone change under a stored next run


def test_k10_new_rules_move_what_they_touch_and_fire_nothing_twice() -> None:
    """Egypt gave three days' notice of summer time in 2023: from the last Friday of April, 00:00."""
    old = Zone.from_tzif("Africa/Cairo", tzif(7200, [], "EET-2"))
    new = Zone.from_tzif("Africa/Cairo", tzif(7200, [], "EET-2EEST,M4.5.5/0,M10.5.4/24"))
    installed_ms = parse_instant("2023-04-26T12:00Z")
    moved = {}
    for expression in ("0 9 * * *", "30 23 * * *", "0 0 28 4 *", "*/10 * * * *", "0 9 * * MON"):
        before, after = Cron(expression, old), Cron(expression, new)
        last_ms = before.prev(installed_ms + 1)
        assert last_ms is not None
        # What was armed is recomputed from the last nominal, never from now.
        while last_ms < installed_ms + 6 * DAY_MS:
            armed_ms, renewed_ms = before.next(last_ms), after.next(last_ms)
            assert armed_ms is not None
            assert renewed_ms is not None
            assert renewed_ms > last_ms
            if armed_ms > installed_ms + 6 * DAY_MS:
                break
            if armed_ms != renewed_ms:
                moved[expression] = (format_instant(armed_ms)[:16], format_instant(renewed_ms)[:16])
                break
            last_ms = armed_ms
    assert moved == {
        "0 9 * * *": ("2023-04-28T07:00", "2023-04-28T06:00"),
        "30 23 * * *": ("2023-04-28T21:30", "2023-04-28T20:30"),
        "0 9 * * MON": ("2023-05-01T07:00", "2023-05-01T06:00"),
    }


@pytest.mark.parametrize("expression", ["0 9 * * *", "30 23 * * *", "0 0 * * *", "15 0 * * *"])
@pytest.mark.parametrize(
    "installed", ["2023-04-26T12:00Z", "2023-04-27T21:50Z", "2023-04-27T22:00Z", "2023-04-28T06:30Z"]
)
def test_k10_a_daily_job_runs_every_day_once_whenever_the_new_rules_come(
    expression: str, installed: str
) -> None:
    old = Zone.from_tzif("Africa/Cairo", tzif(7200, [], "EET-2"))
    new = Zone.from_tzif("Africa/Cairo", tzif(7200, [], "EET-2EEST,M4.5.5/0,M10.5.4/24"))
    start_ms, installed_ms = parse_instant("2023-04-20T00:00Z"), parse_instant(installed)
    found = list(Cron(expression, old).fires(start_ms, installed_ms))
    # The installation moves the armed nominal; what lies before it and was not due then, runs at once as a
    # late one.
    found += Cron(expression, new).fires(found[-1], parse_instant("2023-05-10T00:00Z"))
    days = [(each // 1000 + new.offset_at(each // 1000)) // 86_400 for each in found]
    assert sorted(found) == found
    assert list(range(days[0], days[0] + len(days))) == days


def test_k10_a_zone_follows_the_data_it_was_given() -> None:
    new = Zone.from_tzif("Africa/Cairo", tzif(7200, [], "EET-2EEST,M4.5.5/0,M10.5.4/24"))
    assert [7200, 10_800] == [
        new.offset_at(parse_instant(text) // 1000) for text in ("2023-04-27T21:59Z", "2023-04-27T22:00Z")
    ]


# -- K12: both day fields


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("0 0 13 * 5", 61), ("0 0 */2 * 1", 26), ("0 0 1-31/2 * 1", 212), ("0 0 1-31 * 1", 365)],
)
def test_k12_a_star_at_the_start_of_a_day_field_means_both_must_match(expression: str, expected: int) -> None:
    cron = Cron(expression)
    start_ms, end_ms = parse_instant("2025-12-31T23:59:59Z"), parse_instant("2026-12-31T23:59:59Z")
    assert (expected, False) == cron.count(start_ms, end_ms)


def test_k12_friday_the_thirteenth_is_had_by_excluding_the_other_days() -> None:
    timetable = Timetable(kind="cron", crons=("0 0 13 * *",), exclude_crons=("* * * * SAT-THU",))
    start_ms, end_ms = parse_instant("2025-12-31T23:59:59Z"), parse_instant("2026-12-31T23:59:59Z")
    expected = ["2026-02-13", "2026-03-13", "2026-11-13"]
    assert expected == [format_instant(each)[:10] for each in timetable.nominals(start_ms, end_ms)]


@pytest.mark.parametrize("expression", ["0 0 13 * 5", "0 0 */2 * 1"])
def test_k12_the_preview_says_which_of_the_two_it_is(expression: str) -> None:
    assert ["both-days"] == [
        warning.rule for warning in explain(expression, after_ms=0).warnings if warning.rule == "both-days"
    ]


# -- K13: 29 February, and dates that do not exist


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-03-01T00:00Z", "2028-02-29T00:00Z"),
        ("2096-03-01T00:00Z", "2104-02-29T00:00Z"),
        ("2396-03-01T00:00Z", "2400-02-29T00:00Z"),
    ],
)
def test_k13_the_29th_of_february_is_found_over_any_century(after: str, expected: str) -> None:
    assert [expected] == fires(Cron("0 0 29 2 *"), after, 1)


def test_k13_a_29th_of_february_on_a_given_weekday_may_be_forty_years_away() -> None:
    assert ["2120-02-29T00:00Z"] == fires(Cron("0 0 29 2 */4"), "2104-03-01T00:00Z", 1)
    assert ["2088-02-29T00:00Z"] == fires(Cron("0 0 *,29 2 SUN#5"), "2060-03-01T00:00Z", 1)
    sundays = fires(Cron("0 0 29 2 */7"), "1880-03-01T00:00Z", 3)
    assert ["1920-02-29T00:00Z", "1948-02-29T00:00Z", "1976-02-29T00:00Z"] == sundays


@pytest.mark.parametrize("expression", ["0 0 31 4,6,9,11 *", "0 0 30 2 *", "0 0 30W 2 *", "0 0 L-29 2 *"])
def test_k13_an_impossible_date_is_known_without_a_search(expression: str) -> None:
    cron = Cron(expression, "Europe/Berlin")
    assert cron.never
    assert cron.next(0) is None
    assert (0, False) == cron.count(0, parse_instant("9999-12-31T00:00Z"))


# -- K14: the end of the month, uneven steps, Sunday, and what is out of range


def test_k14_the_31st_skips_short_months_and_l_does_not() -> None:
    assert ["2026-03-31T00:00Z"] == fires(Cron("0 0 31 * *"), "2026-01-31T00:00Z", 1)
    assert ["2026-02-28T00:00Z"] == fires(Cron("0 0 L * *"), "2026-01-31T00:00Z", 1)


@pytest.mark.parametrize(
    ("expression", "rule", "words"),
    [("0 0 31 * *", "missing-day", "There is no 31st"), ("*/7 * * * *", "uneven-step", "4 minutes")],
)
def test_k14_the_preview_warns(expression: str, rule: str, words: str) -> None:
    messages = {warning.rule: warning.message for warning in explain(expression, after_ms=0).warnings}
    assert words in messages[rule]


def test_k14_sevens_of_an_hour_start_again_at_the_full_hour() -> None:
    assert ["2026-01-01T00:56Z", "2026-01-01T01:00Z"] == fires(Cron("*/7 * * * *"), "2026-01-01T00:50Z", 2)


@pytest.mark.parametrize(
    "expression", ["0 0 * * 7", "0 0 * * 0", "0 0 * * SUN", "0 0 * * 7-7", "0 0 * * 7L,0"]
)
def test_k14_sunday_is_0_and_7(expression: str) -> None:
    expected = ["2026-01-04T00:00Z", "2026-01-11T00:00Z", "2026-01-18T00:00Z", "2026-01-25T00:00Z"]
    assert expected == fires(Cron(expression), "2026-01-01T00:00Z", 4)


def test_k14_monday_is_1() -> None:
    assert ["2026-01-05T00:00Z"] == fires(Cron("0 0 * * 1"), "2026-01-01T00:00Z", 1)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("60 * * * *", "minute 60 is outside 0-59"),
        ("*/0 * * * *", "a step of 0 never gets anywhere: write 1 or more after the /"),
        (
            "*/60 * * * *",
            "a step of 60 is larger than the minute field, which ends at 59: give the schedule as every: 60m instead of cron",
        ),
    ],
)
def test_k14_what_is_out_of_range_is_refused_with_the_range(expression: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Cron(expression)
    error = caught.value
    assert ("minute", "cron-minute", message) == (error.field, error.rule, error.message)
    assert expression.partition(" ")[0] == error.value


# -- K20: a frequency that is lost, or drifts


def test_k20_a_hundred_runs_of_three_seconds_start_a_minute_apart() -> None:
    anchor_ms = parse_instant("2026-01-01T00:00:00Z")
    timetable = Timetable(kind="every", every_ms=MINUTE_MS, anchor_ms=anchor_ms)
    nominal_ms = anchor_ms
    starts = []
    for _ in range(100):
        found = timetable.next_nominal(
            nominal_ms
        )  # from the nominal, though the run ended three seconds later
        assert isinstance(found, int)
        starts.append(nominal_ms := found)
    assert [anchor_ms + number * MINUTE_MS for number in range(1, 101)] == starts


def test_k20_after_a_stall_of_five_minutes_every_occurrence_is_still_named() -> None:
    anchor_ms = parse_instant("2026-01-01T00:00:00Z")
    timetable = Timetable(kind="every", every_ms=MINUTE_MS, anchor_ms=anchor_ms)
    missed = list(timetable.nominals(anchor_ms + 10 * MINUTE_MS, anchor_ms + 15 * MINUTE_MS + 1))
    assert [anchor_ms + number * MINUTE_MS for number in range(11, 16)] == missed


# -- K28: the expression as an identity


def test_k28_two_jobs_of_one_expression_share_the_search_and_nothing_else() -> None:
    one = Timetable(kind="cron", crons=("0 9 * * *",), timezone="Europe/Berlin")
    other = Timetable(kind="cron", crons=("0 9 * * *",), timezone="Europe/Berlin")
    assert shared_cron("0 9 * * *", "Europe/Berlin") is shared_cron("0 9 * * *", "Europe/Berlin")
    first, later = parse_instant("2026-01-01T00:00Z"), parse_instant("2026-06-01T00:00Z")
    for _ in range(2):
        assert parse_instant("2026-01-01T08:00Z") == one.next_nominal(first)
        assert parse_instant("2026-06-01T07:00Z") == other.next_nominal(later)


# -- K45: everybody at midnight


def test_k45_ten_thousand_jobs_at_midnight_spread_to_25_a_second_and_stay_where_they_are() -> None:
    timetable = Timetable(kind="cron", crons=("0 0 * * *",), spread_ms=10 * MINUTE_MS)
    offsets = [timetable.spread_offset(f"billing/job-{number}") for number in range(10_000)]
    assert min(offsets) >= 0
    assert max(offsets) < 10 * MINUTE_MS
    per_second = [0] * 600
    for offset in offsets:
        per_second[offset // 1000] += 1
    # The mean is 16.7; more than 40 in any of 600 seconds would be no accident. Over ten seconds at most 25 a
    # second.
    assert max(per_second) <= 40
    assert max(sum(per_second[start : start + 10]) for start in range(0, 600, 10)) <= 250
    assert offsets == [timetable.spread_offset(f"billing/job-{number}") for number in range(10_000)]


# -- K53: holidays and exclusions


def test_k53_an_excluded_holiday_is_no_occurrence_in_the_zone_of_the_job() -> None:
    timetable = Timetable(
        kind="cron", crons=("0 9 * * *",), timezone="Asia/Tokyo", exclude_crons=("* * 1-3 1 *", "* * 24 12 *")
    )
    expected = ["2025-12-23T00:00", "2025-12-25T00:00"]
    start_ms = parse_instant("2025-12-22T12:00Z")
    assert expected == [
        format_instant(each)[:16] for each in islice(timetable.nominals(start_ms, start_ms + 9 * DAY_MS), 2)
    ]
    new_year = [
        format_instant(each)[:10]
        for each in timetable.nominals(start_ms + 8 * DAY_MS, start_ms + 14 * DAY_MS)
    ]
    assert ["2025-12-31", "2026-01-04", "2026-01-05"] == new_year
