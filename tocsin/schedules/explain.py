"""What an expression does, in words, and what may surprise whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from tocsin.schedules.cron import Cron
from tocsin.schedules.grammar import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Fields,
    Unit,
)
from tocsin.schedules.instants import format_instant
from tocsin.schedules.readings import ALL_24, readings_of
from tocsin.schedules.timelines import Fold, Gap
from tocsin.schedules.wording import joined, month_names, ordinal, reading, values

CHANGES_AHEAD_MS: Final = (
    2 * 366 * 86_400_000
)  # two years: each kind of change of a zone shows at least twice
READINGS_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:  # noqa: A001 - the word users know; it is always used through this module
    """Something that is right as written, and that people often do not mean."""

    rule: str  # a slug for programs
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An expression, explained as of one instant."""

    expression: str
    timezone: str
    reading: str
    fires: tuple[int, ...]
    warnings: tuple[Warning, ...]


def explain(
    expression: str,
    timezone: str = "UTC",
    *,
    after_ms: int,
    count: int = 5,
    gap: Gap = "at_end",
    fold: Fold = "first",
) -> Explanation:
    """The expression in words, its next ``count`` fires, and warnings. Raises ScheduleError as Cron does."""
    cron = Cron(expression, timezone, gap, fold)
    fires = tuple(islice(cron.fires(after_ms), count))
    warnings = [*_never(cron, fires, count), *_steps(cron.fields), *_missing_days(cron.fields)]
    warnings += [*_both_days(cron.fields), *_clock_changes(cron, after_ms)]
    return Explanation(
        expression=expression,
        timezone=timezone,
        reading=f"{reading(cron.fields)} ({timezone})",
        fires=fires,
        warnings=tuple(warnings),
    )


def _never(cron: Cron, fires: tuple[int, ...], count: int) -> list[Warning]:
    if cron.never:
        return [Warning(rule="never", message="It never fires: no year has such a day.")]
    if not fires and count > 0:
        return [Warning(rule="never", message="It does not fire within the next 60 years.")]
    return []


def _steps(fields: Fields) -> list[Warning]:
    """Steps that do not divide their field: the last one is shorter than the others."""
    found = []
    for index, unit in ((0, SECOND), (1, MINUTE), (2, HOUR), (3, DAY_OF_MONTH), (4, MONTH), (5, DAY_OF_WEEK)):
        for item in fields.texts[index].split(","):
            start, slash, step = item.partition("/")
            if slash and "-" not in start and int(step) > 1:
                message = _uneven(unit, item, int(step), fields)
                if message:
                    found.append(Warning(rule="uneven-step", message=message))
    return found


def _uneven(unit: Unit, item: str, step: int, fields: Fields) -> str | None:
    if unit is DAY_OF_MONTH:
        return (
            f"{item} in the day of month starts again in every month, so the last step of a month is shorter."
        )
    size = unit.high - unit.low + 1
    if size % step == 0 or (unit is DAY_OF_WEEK and step == 7):
        return None
    whole, mask = {
        SECOND: ("a minute", fields.seconds),
        MINUTE: ("an hour", fields.minutes),
        HOUR: ("a day", fields.hours),
        MONTH: ("a year", fields.months),
        DAY_OF_WEEK: ("a week", fields.weekdays),
    }[unit]
    found = values(unit, mask)
    rest = size - found[-1] + found[0]
    counted = "day" if unit is DAY_OF_WEEK else unit.name
    lasts = f"{rest} {counted}s lie" if rest > 1 else f"1 {counted} lies"
    return (
        f"{item} in the {unit.name} field is uneven: {step} does not divide {size}, "
        f"so {lasts} between the last of {whole} and the first of the next."
    )


def _missing_days(fields: Fields) -> list[Warning]:
    """Days of the month that some of the months named do not have."""
    if fields.texts[3][0] in "*?":
        return []
    lengths = {2: 28, 4: 30, 6: 30, 9: 30, 11: 30}
    latest = [day for day in values(DAY_OF_MONTH, fields.days) if day > 28]
    nearest = [day for day in fields.month_days.nearest if day > 28]
    if set(latest) == {29, 30, 31} and fields.days >> 28 & 1:
        latest = []  # a range to the end of the month: nobody expects a 31 April of it
    found = []
    for day in (*latest, *nearest):
        months = [month for month in values(MONTH, fields.months) if lengths.get(month, 31) < day]
        if not months:
            continue
        where = month_names(months) if day > 29 else "February, except in leap years"
        hint = (
            " L is the last day of every month."
            if day in latest
            else " LW is the last weekday of every month."
        )
        found.append(
            Warning(
                rule="missing-day",
                message=f"There is no {ordinal(day)} in {where}: nothing fires for it.{hint}",
            )
        )
    return found


def _both_days(fields: Fields) -> list[Warning]:
    day_text, weekday_text = fields.texts[3], fields.texts[5]
    if day_text in ("*", "?") or weekday_text in ("*", "?"):
        return []
    if fields.both_days:
        message = (
            "Both day fields are set and one begins with a star: it fires only on days that match both. "
            "Without the star, either would be enough."
        )
    else:
        message = (
            "Both day fields are set: it fires on days that match either of them, not only on those that match "
            "both. For both, keep one of the two here and exclude the other days: cron 0 0 13 * * with exclude "
            "* * * * SAT-THU is Friday the 13th."
        )
    return [Warning(rule="both-days", message=message)]


# -- clock changes


def _clock_changes(cron: Cron, after_ms: int) -> list[Warning]:
    """The changes of the zone within two years that touch the expression, with what happens then."""
    found = []
    readings = readings_of(cron.expression)
    after_s = after_ms // 1000
    for instant_s, before, after in cron.zone.changes(after_s, after_s + CHANGES_AHEAD_MS // 1000):
        low, high = sorted((instant_s + before, instant_s + after))
        named: list[int] = []
        found_s = readings.at_or_after(low)
        while found_s < high and len(named) <= READINGS_NAMED_MAX:
            named.append(found_s)
            found_s = readings.at_or_after(found_s + 1)
        if named and not (cron.fields.starred and _goes_round(cron.fields, high - low)):
            message = _change(cron, instant_s, high - low, named, skipped=after > before)
            found.append(Warning(rule="clock-change", message=message))
    return found


def _goes_round(fields: Fields, moved_s: int) -> bool:
    """Whether a starred expression keeps its rhythm through a change by whole hours: it names every hour alike."""
    return fields.hours == ALL_24 and moved_s % 3600 == 0


def _change(cron: Cron, instant_s: int, moved_s: int, named: list[int], *, skipped: bool) -> str:
    times = [_clock(named_s) for named_s in named[:READINGS_NAMED_MAX]]
    what = joined(times) if len(named) <= READINGS_NAMED_MAX else f"{', '.join(times)} ..."
    day = _date(named[0])
    several = len(named) > 1
    starred = cron.fields.starred
    if skipped:
        does_not = "do not exist" if several else "does not exist"
        at_end = f"it fires once, when the gap ends, at {format_instant(instant_s * 1000)}"
        shift = f"it fires {_span(moved_s)} later by the clock"
        nothing = "nothing fires for it"
        then = nothing if starred else {"at_end": at_end, "shift": shift, "skip": nothing}[cron.gap]
        return f"On {day} the clocks of {cron.timezone} go forward and {what} {does_not}: {then}."
    comes = "come twice" if several else "comes twice"
    passes = (
        "it fires both times" if starred or cron.fold == "both" else f"it fires the {cron.fold} time only"
    )
    return f"On {day} the clocks of {cron.timezone} go back and {what} {comes}: {passes}."


def _clock(reading_s: int) -> str:
    minutes, second = divmod(reading_s % 86_400, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}" + (f":{second:02d}" if second else "")


def _date(reading_s: int) -> str:
    return format_instant(reading_s * 1000)[:10]


def _span(moved_s: int) -> str:
    hours, rest = divmod(moved_s, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = (
        [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes) + [f"{seconds} s"] * bool(seconds)
    )
    return " ".join(parts)
