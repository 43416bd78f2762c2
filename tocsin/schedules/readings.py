"""Which local readings an expression names: tables of next values within the day, bit masks within the month.

A reading is in seconds since the epoch of a clock that is never changed, 1970-01-01T00:00:00 being 0.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from tocsin.schedules.grammar import EXPRESSIONS_KEPT_MAX, DayRules, Fields, parse
from tocsin.schedules.months import CYCLE_DAYS, MONTH_SHAPES, MONTH_STARTS, SHAPES, day_mask, never_fires

NONE_AFTER: Final = 1 << 61  # "no such reading", beyond all others in either direction
NONE_BEFORE: Final = -(1 << 61)
ALL_24: Final = (1 << 24) - 1
ALL_60: Final = (1 << 60) - 1

_MONTHS: Final = len(MONTH_STARTS)
_MONTHS_SEARCHED: Final = 61 * 12  # sixty years and a margin


@lru_cache(maxsize=EXPRESSIONS_KEPT_MAX)
def readings_of(expression: str) -> Readings:
    """The search over local readings for an expression, shared by all zones."""
    return Readings(parse(expression))


class Readings:
    """The local readings that an expression names."""

    __slots__ = (
        "_days",
        "_fields",
        "_first_of_day",
        "_first_of_hour",
        "_first_of_minute",
        "_hour_after",
        "_hour_before",
        "_last_of_day",
        "_last_of_hour",
        "_last_of_minute",
        "_minute_after",
        "_minute_before",
        "_month_after",
        "_month_before",
        "_never",
        "_second_before",
        "_second_from",
        "_stretch_s",
    )

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._never: bool | None = None
        # In seconds, ready to be added to the start of the minute, the hour or the day; -1 where there is none.
        self._second_from, self._second_before = _neighbours(fields.seconds, 60, 1)
        self._minute_after, self._minute_before = _neighbours(fields.minutes, 60, 60)
        self._hour_after, self._hour_before = _neighbours(fields.hours, 24, 3600)
        self._first_of_minute = self._second_from[0]
        self._first_of_hour = self._minute_after[0] + self._first_of_minute
        self._first_of_day = self._hour_after[0] + self._first_of_hour
        self._last_of_minute = self._second_before[-1]
        self._last_of_hour = self._minute_before[-1] + self._last_of_minute
        self._last_of_day = self._hour_before[-1] + self._last_of_hour
        self._month_after, self._month_before = _months_to_go(fields.months)
        days, rules = (fields.days, fields.months, fields.weekdays), (fields.month_days, fields.week_days)
        self._days = _day_masks((*days, *rules, fields.both_days))
        self._stretch_s = 1  # how much is named together with a second
        if fields.seconds == ALL_60 or not fields.has_seconds:
            self._stretch_s = 60
            if fields.minutes == ALL_60:
                self._stretch_s = 86_400 if fields.hours == ALL_24 else 3600

    @property
    def never(self) -> bool:
        if self._never is None:
            self._never = never_fires(self._fields)
        return self._never

    def at_or_after(self, reading: int) -> int:
        """The first named reading from ``reading`` on; NONE_AFTER if sixty years have none."""
        day, of_day = divmod(reading, 86_400)
        of_cycle = day if 0 <= day < CYCLE_DAYS else day % CYCLE_DAYS
        month = bisect_right(MONTH_STARTS, of_cycle) - 1
        shape = MONTH_SHAPES[month]
        days = self._days[shape]
        if days < 0:
            days = self._days[shape] = day_mask(self._fields, shape)
        days >>= of_cycle - MONTH_STARTS[month]
        if days & 1:
            hour, of_hour = divmod(of_day, 3600)
            if self._fields.hours >> hour & 1:
                minute, second = divmod(of_hour, 60)
                if self._fields.minutes >> minute & 1:
                    found = self._second_from[second]
                    if found >= 0:
                        return reading - second + found
                found = self._minute_after[minute + 1]
                if found >= 0:
                    return reading - of_hour + found + self._first_of_minute
            found = self._hour_after[hour + 1]
            if found >= 0:
                return reading - of_day + found + self._first_of_hour
            days -= 1
        if days:
            return (day + (days & -days).bit_length() - 1) * 86_400 + self._first_of_day
        return self._in_later_month(day - of_cycle, month)

    def _in_later_month(self, cycle_start: int, month: int) -> int:
        last = month + _MONTHS_SEARCHED
        while True:
            month += self._month_after[month % 12]
            if month > last:
                return NONE_AFTER
            cycle, of_cycle = divmod(month, _MONTHS)
            shape = MONTH_SHAPES[of_cycle]
            days = self._days[shape]
            if days < 0:
                days = self._days[shape] = day_mask(self._fields, shape)
            if days:
                day = (
                    cycle_start
                    + cycle * CYCLE_DAYS
                    + MONTH_STARTS[of_cycle]
                    + (days & -days).bit_length()
                    - 1
                )
                return day * 86_400 + self._first_of_day

    def at_or_before(self, reading: int) -> int:
        """The last named reading up to ``reading``; NONE_BEFORE if sixty years have none."""
        day, of_day = divmod(reading, 86_400)
        of_cycle = day % CYCLE_DAYS
        month = bisect_right(MONTH_STARTS, of_cycle) - 1
        of_month = of_cycle - MONTH_STARTS[month]
        days = self._days_of(month) & ((2 << of_month) - 1)
        if days >> of_month:
            hour, of_hour = divmod(of_day, 3600)
            if self._fields.hours >> hour & 1:
                minute, second = divmod(of_hour, 60)
                if self._fields.minutes >> minute & 1 and self._second_before[second] >= 0:
                    return reading - second + self._second_before[second]
                if minute and self._minute_before[minute - 1] >= 0:
                    return reading - of_hour + self._minute_before[minute - 1] + self._last_of_minute
            if hour and self._hour_before[hour - 1] >= 0:
                return reading - of_day + self._hour_before[hour - 1] + self._last_of_hour
            days ^= 1 << of_month
        first = month - _MONTHS_SEARCHED
        while not days:
            month -= self._month_before[month % 12]
            if month < first:
                return NONE_BEFORE
            days = self._days_of(month % _MONTHS)
        cycle, month = divmod(month, _MONTHS)
        day = day - of_cycle + cycle * CYCLE_DAYS + MONTH_STARTS[month] + days.bit_length() - 1
        return day * 86_400 + self._last_of_day

    def stretch_at(self, reading: int) -> tuple[int, int] | None:
        """The readings [from, to) around ``reading`` that are named together with it; None if it is not
        named.

        Five fields name whole minutes here.
        """
        start = reading - reading % self._stretch_s
        named = reading if self._fields.has_seconds else reading - reading % 60
        return (start, start + self._stretch_s) if self.at_or_after(named) == named else None

    def _days_of(self, month: int) -> int:
        shape = MONTH_SHAPES[month]
        if self._days[shape] < 0:
            self._days[shape] = day_mask(self._fields, shape)
        return self._days[shape]


# Expressions have few different fields: what depends on one field alone is shared by all that have it.


@lru_cache(maxsize=4096)
def _neighbours(mask: int, size: int, unit_s: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the first value from i on, the last value up to i) for each i, in seconds; -1 where there is none."""
    after = [-1] * (size + 1)
    for index in reversed(range(size)):
        after[index] = index * unit_s if mask >> index & 1 else after[index + 1]
    before = [-1] * size
    for index in range(size):
        before[index] = index * unit_s if mask >> index & 1 else (before[index - 1] if index else -1)
    return tuple(after), tuple(before)


@lru_cache(maxsize=4096)
def _months_to_go(mask: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many months it is from each month (January is 0) on to the next that is named, and back to the last."""
    months = [month for month in range(12) if mask >> (month + 1) & 1]
    return (
        tuple(min((month - now - 1) % 12 + 1 for month in months) for now in range(12)),
        tuple(min((now - month - 1) % 12 + 1 for month in months) for now in range(12)),
    )


_DayKey = tuple[int, int, int, DayRules, DayRules, bool]


@lru_cache(maxsize=16_384)
def _day_masks(key: _DayKey) -> list[int]:  # noqa: ARG001 - what the list is remembered by
    """The one list, by shape of month, of the day masks of all expressions with these day fields; -1: not made yet."""
    return [-1] * SHAPES
