"""The search against the brute-force oracle: every zone, every policy, any expression."""

from bisect import bisect_right
from datetime import date, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules.oracle import Asked, expressions, fires_between, zoneinfo_of
from tests.unit.schedules.tzif import tzif
from tocsin.schedules import FOLDS, GAPS, Cron, Fold, Gap, Zone, zone, zone_names

NAMES = sorted(zone_names())
CHANGING = [name for name in NAMES if len(zone(name).near.transitions) > 1]
YEAR_S = 31_556_952

# An example costs 1 to 15 ms, so more of them than the profile asks for fit into the time of a unit test.
OFTEN = settings(max_examples=settings().max_examples * 8)
TWICE = settings(max_examples=settings().max_examples * 2)


@st.composite
def windows(draw: st.DrawFn, *, length_s: int) -> tuple[str, int, int]:
    """A zone and an interval, most often around one of its changes."""
    if draw(st.integers(0, 3)):
        name = draw(st.sampled_from(CHANGING))
        far = draw(st.integers(0, 9)) == 0
        changes = (zone(name).far if far else zone(name).near).transitions
        start = draw(st.sampled_from(changes)) - draw(st.integers(0, length_s))
    else:
        name = draw(st.sampled_from(NAMES))
        start = draw(st.integers(-70 * YEAR_S, 7_900 * YEAR_S))
    return name, start, start + draw(st.integers(1, length_s))


def assert_agrees(asked: Asked, window: tuple[str, int, int], gap: Gap, fold: Fold, at: list[int]) -> None:
    name, start_s, end_s = window
    cron = Cron(asked.text, name, gap, fold)
    expected = fires_between(asked, zoneinfo_of(name), start_s, end_s, gap, fold)
    start_ms, end_ms = start_s * 1000, end_s * 1000
    assert [each * 1000 for each in expected] == list(cron.fires(start_ms, end_ms))

    backwards = []
    before_ms: int | None = end_ms + 1
    while before_ms is not None and (before_ms := cron.prev(before_ms)) is not None and before_ms > start_ms:
        backwards.append(before_ms)
    assert [each * 1000 for each in reversed(expected)] == backwards
    assert (len(expected), False) == cron.count(start_ms, end_ms, limit=100_000)

    # From anywhere, in any order: nothing may depend on what was asked before, or on milliseconds.
    for share in at:
        instant_ms = start_ms + share * (end_ms - start_ms) // 1_000_000
        later = expected[bisect_right(expected, instant_ms // 1000) :]
        if later:
            assert later[0] * 1000 == cron.next(instant_ms)
        earlier = [each for each in expected if each * 1000 < instant_ms]
        if earlier:
            assert earlier[-1] * 1000 == cron.prev(instant_ms)


POINTS = st.lists(st.integers(0, 1_000_000), min_size=3, max_size=3)


@OFTEN
@given(expressions(), windows(length_s=40 * 3600), st.sampled_from(GAPS), st.sampled_from(FOLDS), POINTS)
def test_five_fields_fire_as_a_scan_of_all_minutes_says(
    asked: Asked, window: tuple[str, int, int], gap: Gap, fold: Fold, at: list[int]
) -> None:
    assert_agrees(asked, window, gap, fold, at)


@OFTEN
@given(
    expressions(plain_days=True),
    windows(length_s=8 * 3600),
    st.sampled_from(GAPS),
    st.sampled_from(FOLDS),
    POINTS,
)
def test_every_day_expressions_fire_as_a_scan_of_all_minutes_says(
    asked: Asked, window: tuple[str, int, int], gap: Gap, fold: Fold, at: list[int]
) -> None:
    assert_agrees(asked, window, gap, fold, at)


@TWICE
@given(
    expressions(with_seconds=True, plain_days=True),
    windows(length_s=2 * 3600),
    st.sampled_from(GAPS),
    st.sampled_from(FOLDS),
    POINTS,
)
def test_six_fields_fire_as_a_scan_of_all_seconds_says(
    asked: Asked, window: tuple[str, int, int], gap: Gap, fold: Fold, at: list[int]
) -> None:
    assert_agrees(asked, window, gap, fold, at)


@TWICE
@given(expressions(), st.dates(date(1990, 1, 1), date(2120, 1, 1)))
def test_the_days_of_three_years_are_those_that_the_calendar_names(asked: Asked, first: date) -> None:
    cron = Cron(asked.text, "UTC")
    days = [first + timedelta(days=number) for number in range(3 * 365)]
    expected = [day for day in days if asked.names_day(day)]
    found = []
    after_ms = _midnight_ms(first) - 1
    while True:
        fire_ms = cron.next(after_ms)
        if fire_ms is None or fire_ms >= _midnight_ms(days[-1] + timedelta(days=1)):
            break
        found.append(date(1970, 1, 1) + timedelta(days=fire_ms // 86_400_000))
        after_ms = fire_ms - fire_ms % 86_400_000 + 86_399_999  # on to the next day
    assert expected == found


def _midnight_ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400_000


@OFTEN
@given(
    expressions(),
    st.sampled_from(NAMES),
    st.integers(-3_000 * YEAR_S, 9_000 * YEAR_S),
    st.integers(-3_000 * YEAR_S, 9_000 * YEAR_S),
    st.sampled_from(GAPS),
    st.sampled_from(FOLDS),
)
def test_next_is_later_never_decreases_and_is_undone_by_prev(
    asked: Asked, name: str, one: int, other: int, gap: Gap, fold: Fold
) -> None:
    cron = Cron(asked.text, name, gap, fold)
    first, second = sorted((one * 1000 + 1, other * 1000 + 999))
    next_first, next_second = cron.next(first), cron.next(second)
    if next_first is not None:
        assert next_first > first
        assert next_second is None or next_first <= next_second
        prev = cron.prev(next_first)
        assert prev is None or prev <= first
        assert cron.prev(next_first + 1) == next_first
        assert cron.next(next_first - 1) == next_first


@st.composite
def sparse_expressions(draw: st.DrawFn) -> Asked:
    """A few times of every day, so that a scan of all of them costs little."""
    minutes = draw(st.one_of(st.just(list(range(60))), st.lists(st.integers(0, 59), min_size=1, max_size=4)))
    hours = draw(st.lists(st.integers(0, 23), min_size=1, max_size=4))
    starred = len(minutes) == 60
    return Asked(
        text=f"{'*' if starred else ','.join(map(str, minutes))} {','.join(map(str, hours))} * * *",
        seconds=frozenset({0}),
        minutes=frozenset(minutes),
        hours=frozenset(hours),
        names_day=lambda day: True,
        starred=starred,
    )


@TWICE
@given(
    sparse_expressions(),
    st.lists(st.tuples(st.integers(1, 20 * 3600), st.integers(-43_200, 50_400)), min_size=2, max_size=6),
    st.sampled_from(GAPS),
    st.sampled_from(FOLDS),
    st.integers(-90_000, 200_000),
)
def test_changes_on_top_of_each_other_leave_the_answers_in_order(
    asked: Asked, steps: list[tuple[int, int]], gap: Gap, fold: Fold, at_s: int
) -> None:
    """No zone is like that: gaps longer than what follows them, readings that come three times, skipped ones that come."""
    changes = []
    instant_s = 0
    for apart_s, offset in steps:
        instant_s += apart_s
        changes.append((instant_s, offset))
    place = Zone.from_tzif("Test/Wild", tzif(0, changes, ""))
    cron = Cron(asked.text, place, gap, fold)
    start_ms, end_ms = -2 * 86_400_000, (instant_s + 2 * 86_400) * 1000
    expected = [
        each * 1000 for each in wild_fires(asked, changes, gap, fold) if start_ms < each * 1000 <= end_ms
    ]
    assert expected == list(cron.fires(start_ms, end_ms))
    backwards = []
    before_ms: int | None = end_ms + 1
    while before_ms is not None and (before_ms := cron.prev(before_ms)) is not None and before_ms > start_ms:
        backwards.append(before_ms)
    assert expected == backwards[::-1]
    later = expected[bisect_right(expected, at_s * 1000) :]
    if later and at_s * 1000 >= start_ms:
        assert later[0] == Cron(asked.text, place, gap, fold).next(at_s * 1000)


def wild_fires(asked: Asked, changes: list[tuple[int, int]], gap: Gap, fold: Fold) -> list[int]:
    """The specification read so that any changes make sense: a reading below one that was shown was shown or skipped."""
    found: set[int] = set()
    offsets = [0, *(offset for _, offset in changes)]
    edges = [-10 * 86_400, *(instant for instant, _ in changes), changes[-1][0] + 10 * 86_400]
    readings = [
        day * 86_400 + hour * 3600 + minute * 60
        for day in range(-5, 12)
        if asked.names_day(date(1970, 1, 1) + timedelta(days=day))
        for hour in asked.hours
        for minute in asked.minutes
    ]
    read_until = edges[0]
    for index, offset in enumerate(offsets):
        start, end = edges[index], edges[index + 1]
        for reading in readings:
            if start <= reading - offset < end:
                again = fold == "second" and index + 1 < len(offsets) and reading >= end + offsets[index + 1]
                if asked.starred or not ((fold == "first" and reading < read_until) or again):
                    found.add(reading - offset)
            if index and not asked.starred and read_until <= reading < start + offset and gap != "skip":
                found.add(start + (reading - read_until if gap == "shift" else 0))
        read_until = max(read_until, end + offset)
    return sorted(found)


def test_the_reading_at_the_epoch_is_like_any_other() -> None:
    """A zone that shows 1970-01-01T00:00:00 just as its clocks change: 0 must not pass for "nothing found yet"."""
    cron = Cron("0 12 * * *", Zone.from_tzif("Test/Epoch", tzif(0, [(3600, -3600)], "")))
    noon_ms = 13 * 3_600_000
    assert noon_ms == cron.next(3_599_000) == cron.next(3_600_000)
    assert noon_ms - 86_400_000 - 3_600_000 == cron.prev(3_601_000) == cron.prev(3_600_000)
