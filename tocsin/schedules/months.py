"""The days of a month that an expression names, as bit masks, and the calendar as a table of months.

A month has one of 12 x 7 x 2 shapes (which month, the weekday it starts on, leap year or not): the days an
expression names depend on the shape alone, so at most 91 masks are made for an expression, each when it is
first needed.
"""

from __future__ import annotations

from typing import Final

from tocsin.schedules.grammar import DayRules, Fields

CYCLE_DAYS: Final = 146_097  # 400 years, a whole number of weeks
SHAPES: Final = 168
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _table() -> tuple[tuple[int, ...], tuple[int, ...]]:
    starts: list[int] = []
    shapes: list[int] = []
    day = 0
    for year in range(1970, 2370):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        for month in range(12):
            weekday = (day + 4) % 7  # day 0 was a Thursday, Sunday is 0
            is_leap = leap and month == 1
            starts.append(day)
            shapes.append(month + 12 * weekday + (84 if is_leap else 0))
            day += _LENGTHS[month] + is_leap
    return tuple(starts), tuple(shapes)


# One cycle from 1970: the days since the epoch at which its 4,800 months start, and their shapes.
MONTH_STARTS, MONTH_SHAPES = _table()


def day_mask(fields: Fields, shape: int) -> int:
    """The days of a month of ``shape`` on which ``fields`` fire; bit 0 is the 1st."""
    leap, rest = divmod(shape, 84)
    first_weekday, month = divmod(rest, 12)
    if not fields.months >> (month + 1) & 1:
        return 0
    length = _LENGTHS[month] + leap
    by_date = (
        fields.days >> 1
        | _from_end(fields.month_days, length)
        | _nearest(fields.month_days, first_weekday, length)
    )
    by_weekday = _on_weekdays(fields.weekdays, first_weekday) | _counted(
        fields.week_days, first_weekday, length
    )
    either = by_date & by_weekday if fields.both_days else by_date | by_weekday
    return either & ((1 << length) - 1)


def never_fires(fields: Fields) -> bool:
    """Whether no month of any year has a day that ``fields`` name."""
    return not any(day_mask(fields, shape) for shape in range(84)) and not any(
        day_mask(fields, 84 + 1 + 12 * weekday) for weekday in range(7)
    )


def _from_end(rules: DayRules, length: int) -> int:
    mask = 0
    for before in rules.from_last:
        if before < length:
            mask |= 1 << (length - 1 - before)
    return mask


def _nearest(rules: DayRules, first_weekday: int, length: int) -> int:
    mask = 0
    for day in (*rules.nearest, *(length - before for before in rules.nearest_from_last)):
        if 1 <= day <= length:
            mask |= 1 << (_nearest_working_day(day, first_weekday, length) - 1)
    return mask


def _nearest_working_day(day: int, first_weekday: int, length: int) -> int:
    """The day from Monday to Friday nearest to ``day`` that lies in the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _on_weekdays(weekdays: int, first_weekday: int) -> int:
    """All days of five weeks whose weekday is in the mask."""
    week = (weekdays >> first_weekday | weekdays << (7 - first_weekday)) & 0x7F
    return week | week << 7 | week << 14 | week << 21 | week << 28


def _counted(rules: DayRules, first_weekday: int, length: int) -> int:
    mask = 0
    for weekday, nth in rules.nth_weekday:
        day = 1 + (weekday - first_weekday) % 7 + 7 * (nth - 1)
        if day <= length:
            mask |= 1 << (day - 1)
    for weekday in range(7):
        if rules.last_weekday >> weekday & 1:
            last = length - (first_weekday + length - 1 - weekday) % 7
            mask |= 1 << (last - 1)
    return mask
