"""croniter and cronsim, where their rules are ours: a third and a fourth implementation of the same sums."""

from datetime import datetime, timedelta
from itertools import islice

from croniter import croniter
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules.oracle import EPOCH, zoneinfo_of
from tocsin.schedules import Cron

# Both read 5-5 or 22-2, names in lists and steps after a single value in ways of their own: left out here.
OFTEN = settings(max_examples=settings().max_examples * 2)


@st.composite
def plain_fields(draw: st.DrawFn, low: int, high: int) -> str:
    first = draw(st.integers(low, high - 1))
    last = draw(st.integers(first + 1, high))
    forms = ("*", f"*/{draw(st.integers(2, high // 2))}", str(first), f"{first}-{last}", f"{first},{last}")
    return draw(st.sampled_from(forms))


def plain_expressions(*, both_days: bool) -> st.SearchStrategy[str]:
    time = st.tuples(plain_fields(0, 59), plain_fields(0, 23))
    month = st.sampled_from(("*", "*/3", "2", "1-6", "4,10"))
    date, weekday = st.one_of(plain_fields(1, 28), st.just("L")), plain_fields(0, 6)
    star = st.just("*")
    days = [st.tuples(date, month, star), st.tuples(star, month, weekday)]
    if both_days:
        days.append(st.tuples(plain_fields(1, 28), month, weekday))
    return st.tuples(time, st.one_of(days)).map(lambda parts: " ".join(parts[0] + parts[1]))


STARTS = st.integers(0, 4_000_000_000)


@OFTEN
@given(plain_expressions(both_days=False), STARTS)
def test_croniter_agrees_in_utc(expression: str, start_s: int) -> None:
    other = croniter(expression, EPOCH + timedelta(seconds=start_s))
    expected = [int((other.get_next(datetime) - EPOCH).total_seconds()) for _ in range(5)]
    assert expected == [each // 1000 for each in islice(Cron(expression).fires(start_s * 1000), 5)]


@OFTEN
@given(
    plain_expressions(both_days=True), STARTS, st.sampled_from(("UTC", "Europe/Berlin", "America/New_York"))
)
def test_cronsim_agrees_through_clock_changes_since_both_follow_debian(
    expression: str, start_s: int, name: str
) -> None:
    start = (EPOCH + timedelta(seconds=start_s)).astimezone(zoneinfo_of(name))
    expected = [int((each - EPOCH).total_seconds()) for each in islice(CronSim(expression, start), 5)]
    assert expected == [each // 1000 for each in islice(Cron(expression, name).fires(start_s * 1000), 5)]
