"""A second opinion that shares nothing with the search: every reading of a few days, tried one by one with
zoneinfo.

It knows no next-value table, no bit mask and no list of changes. It asks of each local reading: do the fields
name it, and which instants show it? What is slow here is fast there, and the other way round for what can go
wrong.
"""

from __future__ import annotations

import calendar
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from io import BytesIO
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH = EPOCH.replace(tzinfo=None)
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An expression, and what it means in terms that need no parser."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    names_day: Callable[[date], bool]
    starred: bool


@lru_cache(maxsize=1024)
def zoneinfo_of(name: str) -> ZoneInfo:
    """zoneinfo's zone from the same files; ZoneInfo(name) would prefer those of the machine."""
    data = pkgutil.get_data("tzdata", f"zoneinfo/{name}")
    assert data is not None
    return ZoneInfo.from_file(BytesIO(data), key=name)


def offset_at(place: ZoneInfo, instant_s: int) -> int:
    offset = (EPOCH + timedelta(seconds=instant_s)).astimezone(place).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def fires_between(asked: Asked, place: ZoneInfo, start_s: int, end_s: int, gap: str, fold: str) -> list[int]:
    """The fires in (start, end], as the specification words them."""
    offsets = [offset_at(place, at) for at in range(start_s - 86_400, end_s + 86_401, 21_600)]
    widest = max(offsets) - min(offsets)
    low, high = start_s + min(offsets) - widest, end_s + max(offsets) + widest
    found: set[int] = set()
    day = NAIVE_EPOCH + timedelta(days=low // 86_400)
    while (day - NAIVE_EPOCH).total_seconds() <= high:
        if asked.names_day(day.date()):
            midnight = round((day - NAIVE_EPOCH).total_seconds())
            for hour in asked.hours:
                for minute in asked.minutes:
                    for second in asked.seconds:
                        reading = midnight + hour * 3600 + minute * 60 + second
                        if low <= reading <= high:
                            found.update(_instants(reading, place, asked.starred, gap, fold))
        day += timedelta(days=1)
    return sorted(instant for instant in found if start_s < instant <= end_s)


def _instants(reading: int, place: ZoneInfo, starred: bool, gap: str, fold: str) -> list[int]:
    """The instants at which a named reading fires."""
    naive = NAIVE_EPOCH + timedelta(seconds=reading)
    before = _offset(naive.replace(tzinfo=place, fold=0))
    after = _offset(naive.replace(tzinfo=place, fold=1))
    shown = sorted({reading - each for each in (before, after) if offset_at(place, reading - each) == each})
    if starred:
        return shown
    if not shown:  # skipped; PEP 495: fold 0 has the offset before the gap, fold 1 the offset after it
        if gap == "skip":
            return []
        if gap == "shift":
            return [reading - before]
        low, high = reading - after, reading - before  # the change lies in (low, high]
        while high - low > 1:
            middle = (low + high) // 2
            if offset_at(place, middle) == before:
                low = middle
            else:
                high = middle
        return [high]
    return {"first": shown[:1], "second": shown[-1:], "both": shown}[fold]


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


# -- random expressions, made together with their meaning


@st.composite
def values(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> tuple[str, frozenset[int]]:
    """A field of plain values: its text and the set it means. ``names[i]`` may stand for low + i."""
    size = high - low + 1
    texts: list[str] = []
    meant: set[int] = set()

    def named(value: int) -> str:
        if draw(st.booleans()) and names:
            name = names[value - low]
            return draw(st.sampled_from([name, name.lower(), name.capitalize()]))
        return draw(st.sampled_from([str(value), f"{value:02d}"]))

    for _ in range(draw(st.integers(1, 3))):
        first, last = draw(st.integers(low, high)), draw(st.integers(low, high))
        step = draw(st.integers(1, high))
        match draw(st.sampled_from(("*", "*/n", "a", "a", "a/n", "a-b", "a-b", "a-b/n"))):
            case "*":
                texts.append("*")
                meant.update(range(low, high + 1))
            case "*/n":
                texts.append(f"*/{step}")
                meant.update(range(low, high + 1, step))
            case "a":
                texts.append(named(first))
                meant.add(first)
            case "a/n":
                texts.append(f"{named(first)}/{step}")
                meant.update(range(first, high + 1, step))
            case form:
                step = step if form == "a-b/n" else 1
                texts.append(f"{named(first)}-{named(last)}" + (f"/{step}" if form == "a-b/n" else ""))
                value = first
                walked = 0
                span = (last - first) % size
                while walked <= span:
                    meant.add(value)
                    value = (value - low + step) % size + low
                    walked += step
    return ",".join(texts), frozenset(meant)


def _working_day_near(day: date) -> date:
    """The Monday to Friday nearest to a day, in its month."""
    length = calendar.monthrange(day.year, day.month)[1]
    for distance in (0, -1, 1, -2, 2):
        near = day.day + distance
        if 1 <= near <= length and date(day.year, day.month, near).weekday() < 5:
            return date(day.year, day.month, near)
    raise AssertionError("a month has working days")


@st.composite
def dates(draw: st.DrawFn) -> tuple[str, Callable[[date], bool]]:
    """A day-of-month field: its text and whether it names a date."""
    text, plain = draw(values(1, 31))
    rules: list[Callable[[date], bool]] = [lambda day: day.day in plain]
    texts = [text]
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(1, 31))
        before = draw(st.integers(0, 30))

        def target(day: date, before: int = before) -> int:
            return calendar.monthrange(day.year, day.month)[1] - before

        match draw(st.sampled_from(("L", "L-n", "LW", "nW", "L-nW"))):
            case "L":
                texts.append(draw(st.sampled_from(("L", "l"))))
                rules.append(lambda day: (day + timedelta(days=1)).day == 1)
            case "L-n":
                texts.append(f"L-{before}")
                rules.append(lambda day, target=target: day.day == target(day))  # type: ignore[misc]
            case "LW":
                texts.append("LW")
                rules.append(
                    lambda day: (
                        _working_day_near(day.replace(day=calendar.monthrange(day.year, day.month)[1])) == day
                    )
                )
            case "nW":
                texts.append(f"{number}W")
                rules.append(
                    lambda day, number=number: (  # type: ignore[misc]
                        number <= calendar.monthrange(day.year, day.month)[1]
                        and _working_day_near(day.replace(day=number)) == day
                    )
                )
            case _:
                texts.append(f"L-{before}W")
                rules.append(
                    lambda day, target=target: (  # type: ignore[misc]
                        target(day) >= 1 and _working_day_near(day.replace(day=target(day))) == day
                    )
                )
    if len(texts) > 1 and draw(st.booleans()):
        del texts[0], rules[0]
    return ",".join(texts), lambda day: any(rule(day) for rule in rules)


@st.composite
def weekdays(draw: st.DrawFn) -> tuple[str, Callable[[date], bool]]:
    """A day-of-week field: its text and whether it names a date."""
    text, plain = draw(values(0, 6, WEEKDAYS))
    rules: list[Callable[[date], bool]] = [lambda day: day.isoweekday() % 7 in plain]
    texts = [text]
    for _ in range(draw(st.integers(0, 2))):
        weekday = draw(st.integers(0, 7))
        nth = draw(st.integers(1, 5))
        name = draw(st.sampled_from((str(weekday), WEEKDAYS[weekday % 7])))
        if draw(st.booleans()):
            texts.append(f"{name}#{nth}")
            rules.append(
                lambda day, weekday=weekday, nth=nth: (  # type: ignore[misc]
                    day.isoweekday() % 7 == weekday % 7 and (day.day - 1) // 7 + 1 == nth
                )
            )
        else:
            texts.append(f"{name}L")
            rules.append(
                lambda day, weekday=weekday: (  # type: ignore[misc]
                    day.isoweekday() % 7 == weekday % 7 and (day + timedelta(days=7)).month != day.month
                )
            )
    if len(texts) > 1 and draw(st.booleans()):
        del texts[0], rules[0]
    return ",".join(texts), lambda day: any(rule(day) for rule in rules)


ANY_DAY = st.sampled_from(("*", "?")).map(lambda text: (text, lambda day: True))
DAY_FIELDS = st.one_of(
    st.tuples(ANY_DAY, ANY_DAY),
    st.tuples(dates(), ANY_DAY),
    st.tuples(ANY_DAY, weekdays()),
    st.tuples(dates(), weekdays()),
)


@st.composite
def expressions(draw: st.DrawFn, *, with_seconds: bool = False, plain_days: bool = False) -> Asked:
    """An expression and its meaning."""
    second_text, seconds = draw(values(0, 59)) if with_seconds else ("", frozenset({0}))
    minute_text, minutes = draw(values(0, 59))
    hour_text, hours = draw(values(0, 23))
    (date_text, on_date), (weekday_text, on_weekday) = draw(
        st.tuples(ANY_DAY, ANY_DAY) if plain_days else DAY_FIELDS
    )
    month_text, months = ("*", frozenset(range(1, 13))) if plain_days else draw(values(1, 12, MONTHS))
    both = date_text[0] in "*?" or weekday_text[0] in "*?"
    space = draw(st.sampled_from((" ", "  ", "\t")))
    texts = [minute_text, hour_text, date_text, month_text, weekday_text]

    def names_day(day: date) -> bool:
        if day.month not in months:
            return False
        if both:
            return on_date(day) and on_weekday(day)
        return on_date(day) or on_weekday(day)

    return Asked(
        text=space.join([second_text, *texts] if with_seconds else texts),
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        names_day=names_day,
        starred="*" in (second_text[:1], minute_text[0], hour_text[0]),
    )
