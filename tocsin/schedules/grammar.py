"""The text of a cron expression, read into bit masks and day rules. No time zone and no instant is known
here.

Five fields (minute, hour, day of month, month, day of week) or six (seconds first), or a macro.
``docs/cron.md`` is the user's page. A field is read once into a mask of its values; the two day fields also
hold rules that depend on the month they are asked about (``L``, ``15W``, ``FRI#2`` ...).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn

from tocsin.schedules.errors import ScheduleError

EXPRESSIONS_KEPT_MAX: Final = (
    32_768  # 1.4 KB each with all that is made of one; reading one again costs 14 us
)
EXPRESSION_LENGTH_MAX: Final = (
    1_000  # a list of every second takes 170 characters; the rest is not a schedule
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one field counts. ``top`` is the largest value that may be written: 7 for weekdays, where it is Sunday."""

    name: str  # as errors name the field
    low: int
    high: int
    top: int
    names: tuple[str, ...] = ()  # names[i] stands for low + i

    @property
    def rule(self) -> str:
        return "cron-" + self.name.replace(" ", "-")


SECOND: Final = Unit(name="second", low=0, high=59, top=59)
MINUTE: Final = Unit(name="minute", low=0, high=59, top=59)
HOUR: Final = Unit(name="hour", low=0, high=23, top=23)
DAY_OF_MONTH: Final = Unit(name="day of month", low=1, high=31, top=31)
MONTH: Final = Unit(
    name="month",
    low=1,
    high=12,
    top=12,
    names=("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
DAY_OF_WEEK: Final = Unit(
    name="day of week", low=0, high=6, top=7, names=("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
)
UNITS: Final = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRules:
    """The days of a month that a day field names, beside those in its mask."""

    from_last: tuple[int, ...] = ()  # L-n: n days before the month's last
    nearest: tuple[int, ...] = ()  # nW: the weekday (Monday to Friday) nearest to the n-th
    nearest_from_last: tuple[int, ...] = ()  # L-nW
    last_weekday: int = 0  # FRIL: a mask of weekdays, each the month's last
    nth_weekday: tuple[tuple[int, int], ...] = ()  # FRI#2: (weekday, k)

    def __bool__(self) -> bool:
        return bool(
            self.from_last or self.nearest or self.nearest_from_last or self.last_weekday or self.nth_weekday
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A cron expression, read. Bit v of a mask stands for the value v; Sunday is 0."""

    texts: tuple[str, ...]  # six texts, seconds first; "0" stands for the second that five fields do not have
    has_seconds: bool
    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    month_days: DayRules
    week_days: DayRules
    both_days: bool  # both day fields must match; otherwise either is enough
    starred: bool  # follows real time through clock changes


@lru_cache(maxsize=EXPRESSIONS_KEPT_MAX)
def parse(expression: str) -> Fields:
    """The fields of an expression. Raises ScheduleError whose ``field`` is the name of the first wrong one."""
    if len(expression) > EXPRESSION_LENGTH_MAX:
        message = (
            f"a cron expression has at most {EXPRESSION_LENGTH_MAX} characters, this one {len(expression)}"
        )
        raise ScheduleError(
            field="expression", rule="cron-length", message=message, value=expression[:64] + "..."
        )
    for character in expression:
        if not (" " <= character <= "~" or character == "\t"):
            _refuse_expression(
                expression,
                "cron-character",
                f"the character {character!r} cannot stand in a cron expression: write plain letters, digits and spaces",
            )
    texts = expression.replace("\t", " ").split()
    if len(texts) == 1 and texts[0].startswith("@"):
        texts = _macro(expression, texts[0]).split()
    if len(texts) not in (5, 6) or "TZ=" in texts[0]:
        _refuse_expression(expression, "cron-field-count", _field_count(texts))
    has_seconds = len(texts) == 6
    if not has_seconds:
        texts = ["0", *texts]

    second_text, minute_text, hour_text, day_text, month_text, weekday_text = texts
    seconds, _ = _field(SECOND, second_text)
    minutes, _ = _field(MINUTE, minute_text)
    hours, _ = _field(HOUR, hour_text)
    days, month_days = _field(DAY_OF_MONTH, day_text)
    months, _ = _field(MONTH, month_text)
    weekdays, week_days = _field(DAY_OF_WEEK, weekday_text)
    return Fields(
        texts=tuple(texts),
        has_seconds=has_seconds,
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        month_days=month_days,
        week_days=week_days,
        both_days=day_text[0] in "*?" or weekday_text[0] in "*?",
        starred=second_text[0] == "*" or minute_text[0] == "*" or hour_text[0] == "*",
    )


def _macro(expression: str, name: str) -> str:
    meant = MACROS.get(name.lower())
    if meant is None:
        reason = {
            "@reboot": "@reboot names no time, and a scheduler on a log never starts afresh: give the job no schedule, "
            "and trigger it where the machine starts",
            "@every": "@every is no cron macro: give the schedule as every: 90s",
        }.get(name.lower(), f"{name[:32]} is no macro: use one of {', '.join(MACROS)}")
        _refuse_expression(expression, "cron-macro", reason)
    return meant


def _field_count(texts: list[str]) -> str:
    if not texts:
        return "the expression is empty: write five fields, minute hour day-of-month month day-of-week"
    if texts[0].startswith("@"):
        return "a macro stands alone" + (
            f": @every is no macro, give the schedule as every: {texts[-1][:32]}"
            if texts[0] == "@every"
            else ""
        )
    if "TZ=" in texts[0]:
        return (
            "the zone is no part of the expression: give it as timezone beside cron (--tz for `tocsin cron`)"
        )
    return (
        f"{len(texts)} field{'s' if len(texts) > 1 else ''} where five are needed "
        "(minute hour day-of-month month day-of-week), or six with the second first"
    )


def _refuse_expression(expression: str, rule: str, message: str) -> NoReturn:
    raise ScheduleError(field="expression", rule=rule, message=message, value=expression)


# -- one field -----------------------------------------------------------------------------------------------

_VALUE: Final = r"(?:[0-9]{1,2}|[A-Za-z]{3})"
_RANGE: Final = re.compile(
    rf"(?:(?P<star>\*)|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)(?:/(?P<step>[0-9]{{1,4}}))?"
)
_LAST_DAY: Final = re.compile(r"L(?:-(?P<before>[0-9]{1,2}))?(?P<nearest>W)?", re.IGNORECASE)
_NEAREST_DAY: Final = re.compile(r"(?P<day>[0-9]{1,2})W", re.IGNORECASE)
_LAST_WEEKDAY: Final = re.compile(r"(?P<weekday>[0-9]{1,2}|[A-Za-z]{3})L", re.IGNORECASE)
_NTH_WEEKDAY: Final = re.compile(rf"(?P<weekday>{_VALUE})#(?P<nth>[0-9])")


def _field(unit: Unit, text: str) -> tuple[int, DayRules]:
    if text == "?":
        if unit is not DAY_OF_MONTH and unit is not DAY_OF_WEEK:
            _refuse(unit, text, "'?' stands for any day, and only in the two day fields: write * here")
        return _mask(range(unit.low, unit.high + 1)), DayRules()
    mask = 0
    rules = DayRules()
    for item in text.split(","):
        matched = _RANGE.fullmatch(item)
        if matched is not None:
            mask |= _range_mask(unit, text, matched)
            continue
        added = _day_rule(unit, text, item)
        rules = DayRules(
            from_last=rules.from_last + added.from_last,
            nearest=rules.nearest + added.nearest,
            nearest_from_last=rules.nearest_from_last + added.nearest_from_last,
            last_weekday=rules.last_weekday | added.last_weekday,
            nth_weekday=rules.nth_weekday + added.nth_weekday,
        )
    return mask, rules


def _range_mask(unit: Unit, text: str, matched: re.Match[str]) -> int:
    """The mask of ``*``, ``*/n``, ``a``, ``a/n``, ``a-b`` or ``a-b/n``."""
    size = unit.high - unit.low + 1
    step = 1
    if matched["step"] is not None:
        step = int(matched["step"])
        if step == 0:
            _refuse(unit, text, "a step of 0 never gets anywhere: write 1 or more after the /")
        if step > unit.top:
            message = f"a step of {step} is larger than the {unit.name} field, which ends at {unit.top}"
            letter = {"second": "s", "minute": "m", "hour": "h", "day of month": "d"}.get(unit.name)
            if letter is not None:
                message += f": give the schedule as every: {step}{letter} instead of cron"
            _refuse(unit, text, message)
    if matched["star"] is not None:
        return _mask(range(unit.low, unit.high + 1, step))
    low = _value(unit, text, matched["low"])
    if matched["high"] is None:
        if matched["step"] is None:
            return 1 << _wrapped(unit, low)
        return _mask(range(_wrapped(unit, low), unit.high + 1, step))
    high = _value(unit, text, matched["high"])
    if low > high:  # 22-2 goes on through midnight, and so does its step
        high += size
    return _mask(_wrapped(unit, value) for value in range(low, high + 1, step))


def _day_rule(unit: Unit, text: str, item: str) -> DayRules:
    """The rule that an item of a day field stands for; what is no rule either is refused here."""
    if unit is DAY_OF_MONTH:
        if matched := _LAST_DAY.fullmatch(item):
            before = int(matched["before"] or 0)
            if before > 30:
                _refuse(
                    unit,
                    text,
                    f"{item}: a month has no day {before} days before its last: L-n takes n from 0 to 30",
                )
            return (
                DayRules(nearest_from_last=(before,)) if matched["nearest"] else DayRules(from_last=(before,))
            )
        if matched := _NEAREST_DAY.fullmatch(item):
            return DayRules(nearest=(_value(unit, text, matched["day"]),))
    if unit is DAY_OF_WEEK:
        if matched := _NTH_WEEKDAY.fullmatch(item):
            weekday, nth = _wrapped(unit, _value(unit, text, matched["weekday"])), int(matched["nth"])
            if not 1 <= nth <= 5:
                _refuse(
                    unit, text, f"{item}: a month has a first to a fifth of a weekday: #k takes k from 1 to 5"
                )
            return DayRules(nth_weekday=((weekday, nth),))
        if matched := _LAST_WEEKDAY.fullmatch(item):
            return DayRules(last_weekday=1 << _wrapped(unit, _value(unit, text, matched["weekday"])))
    _refuse(unit, text, _why_not(unit, text, item))


def _value(unit: Unit, text: str, written: str) -> int:
    if written[0].isdigit():
        value = int(written)
        if not unit.low <= value <= unit.top:
            _refuse(unit, text, f"{unit.name} {value} is outside {unit.low}-{unit.top}")
        return value
    if written.upper() in unit.names:
        return unit.names.index(written.upper()) + unit.low
    if not unit.names:
        _refuse(unit, text, f"{written!r} is no {unit.name}: write a number from {unit.low} to {unit.top}")
    _refuse(
        unit,
        text,
        f"{written!r} is no {unit.name}: write {unit.low}-{unit.top}, or {unit.names[0]} to {unit.names[-1]}",
    )


def _wrapped(unit: Unit, value: int) -> int:
    """``value`` brought back into the field: weekday 7 is 0, month 14 of a range that wraps is 2."""
    return (value - unit.low) % (unit.high - unit.low + 1) + unit.low


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def _why_not(unit: Unit, text: str, item: str) -> str:
    if not item:
        return f"the {unit.name} field {text!r} has an empty item: a comma stands between two items"
    if "?" in item:
        return "'?' stands alone in a day field: write * inside a list"
    if "#" in item and unit is DAY_OF_WEEK:
        return f"{item!r}: write one weekday and a number, FRI#2 for the second Friday"
    if unit is DAY_OF_WEEK and item.upper().startswith("L"):
        return f"{item!r}: name the weekday, FRIL for the month's last Friday"
    if unit is not DAY_OF_MONTH and ("W" in item.upper() or item.upper().startswith("L")) and not unit.names:
        return f"{item!r}: L and W belong in the day fields"
    if re.fullmatch(r"[0-9]{3,}", item):
        return f"{unit.name} {item[:16]} is outside {unit.low}-{unit.top}"
    return f"{item[:64]!r} cannot be read as {unit.name}: write *, */n, a, a-b, a-b/n or a list of these"


def _refuse(unit: Unit, text: str, message: str) -> NoReturn:
    raise ScheduleError(field=unit.name, rule=unit.rule, message=message, value=text)
