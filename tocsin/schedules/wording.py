"""A cron expression in plain English, for previews and the command line."""

from __future__ import annotations

from typing import Final

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

TIMES_LISTED_MAX: Final = 6  # more times of day than this read better as a rule than as a list

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NTH: Final = ("first", "second", "third", "fourth", "fifth")


def reading(fields: Fields) -> str:
    """One sentence that says when the expression fires, for example ``At 09:00, Monday to Friday``."""
    parts = [_time(fields), *_days(fields), *_months(fields)]
    text = ", ".join(part for part in parts if part)
    return text[0].upper() + text[1:]


def values(unit: Unit, mask: int) -> list[int]:
    """The values of a field in order."""
    return [value for value in range(unit.low, unit.high + 1) if mask >> value & 1]


def ordinal(number: int) -> str:
    suffix = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def joined(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def month_names(months: list[int]) -> str:
    return joined([_MONTHS[month - 1] for month in months])


# -- the time of day


def _time(fields: Fields) -> str:
    seconds, minutes, hours = (
        values(SECOND, fields.seconds),
        values(MINUTE, fields.minutes),
        values(HOUR, fields.hours),
    )
    if len(seconds) * len(minutes) * len(hours) <= TIMES_LISTED_MAX:
        return "at " + joined(
            [
                f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if fields.has_seconds else "")
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    parts = []
    if fields.has_seconds and seconds != [0]:
        parts.append(_rhythm(SECOND, seconds))
    if not (parts and len(minutes) == 60):
        parts.append(_rhythm(MINUTE, minutes))
    if not fields.has_seconds and len(minutes) == 1 and len(hours) < 24:
        if _is_run(hours):
            return f"every hour from {hours[0]:02d}:{minutes[0]:02d} to {hours[-1]:02d}:{minutes[0]:02d}"
        if minutes == [0]:
            return _rhythm(HOUR, hours)
    if len(hours) < 24:
        parts.append(_hours(hours, minutes))
    elif parts[-1].startswith("at "):
        parts.append("every hour")
    return " ".join(parts)


def _rhythm(unit: Unit, found: list[int]) -> str:
    """The values of a field as a rhythm if they have one, otherwise as a list."""
    size = unit.high + 1
    if len(found) == size:
        return f"every {unit.name}"
    if len(found) == 1:
        return f"at {unit.name} {found[0]}"
    step = _even_step(found, size)
    if step:
        start = f" from {unit.name} {found[0]} on" if found[0] else ""
        return f"every {step} {unit.name}s{start}"
    if _is_run(found):
        return f"every {unit.name} from {found[0]} to {found[-1]}"
    return f"at {unit.name}s {joined(_runs([str(value) for value in found], found))}"


def _hours(hours: list[int], minutes: list[int]) -> str:
    if _is_run(hours) and len(hours) > 2:
        return f"from {hours[0]:02d}:{minutes[0]:02d} to {hours[-1]:02d}:{minutes[-1]:02d}"
    step = _even_step(hours, 24)
    if step:
        start = f" from {hours[0]:02d} on" if hours[0] else ""
        return f"of every {ordinal(step)} hour{start}"
    between = joined(_runs([f"{hour:02d}" for hour in hours], hours))
    return f"of hour{'s' if len(hours) > 1 else ''} {between}"


def _even_step(found: list[int], size: int) -> int:
    """The step if the values go round the whole field evenly; 0 if not."""
    if len(found) < 2:
        return 0
    step = found[1] - found[0]
    if step < 2 or size % step or found[0] >= step or found != list(range(found[0], size, step)):
        return 0
    return step


def _is_run(found: list[int]) -> bool:
    return len(found) > 1 and found[-1] - found[0] == len(found) - 1


def _runs(texts: list[str], found: list[int]) -> list[str]:
    """The texts of the values, three or more neighbours drawn together: ``1 to 5``."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(found) + 1):
        if index < len(found) and found[index] == found[index - 1] + 1:
            continue
        if index - start >= 3:
            parts.append(f"{texts[start]} to {texts[index - 1]}")
        else:
            parts.extend(texts[start:index])
        start = index
    return parts


# -- the day


def _days(fields: Fields) -> list[str]:
    day_text, month_text, weekday_text = fields.texts[3:]
    any_date, any_weekday = day_text in ("*", "?"), weekday_text in ("*", "?")
    if any_date and any_weekday:
        rare = len(values(HOUR, fields.hours)) < 24
        return ["every day"] if rare and month_text == "*" else []
    if any_weekday:
        return [_dates(fields)]
    if any_date:
        return [_weekdays(fields)]
    if fields.both_days:
        return [f"{_dates(fields)} if that is also {_weekdays(fields)}"]
    return [_dates(fields), f"and also {_weekdays(fields)}"]


def _dates(fields: Fields) -> str:
    found = values(DAY_OF_MONTH, fields.days)
    rules = fields.month_days
    step = found[1] - found[0] if len(found) > 3 else 0
    if step > 1 and found == list(range(found[0], 32, step)):
        parts = [f"every {ordinal(step)} day counted from the {ordinal(found[0])}"]
    else:
        parts = _runs([f"the {ordinal(day)}" for day in found], found)
    parts += [
        "the last day" if not before else f"the {ordinal(before + 1)} day from the end"
        for before in rules.from_last
    ]
    parts += [f"the weekday nearest to the {ordinal(day)}" for day in rules.nearest]
    parts += [
        "the last weekday"
        if not before
        else f"the weekday nearest to the {ordinal(before + 1)} day from the end"
        for before in rules.nearest_from_last
    ]
    return f"on {joined(parts)} of the month"


def _weekdays(fields: Fields) -> str:
    found = [(day + 1) % 7 for day in range(7) if fields.weekdays >> ((day + 1) % 7) & 1]  # from Monday on
    rules = fields.week_days
    parts = _runs([_WEEKDAYS[day] for day in found], [(day + 6) % 7 for day in found])
    parts += [f"the {_NTH[nth - 1]} {_WEEKDAYS[day]} of the month" for day, nth in rules.nth_weekday]
    parts += [f"the last {_WEEKDAYS[day]} of the month" for day in values(DAY_OF_WEEK, rules.last_weekday)]
    if len(found) == 7 and len(parts) == 1:
        return "any day of the week"
    return f"on {joined(parts)}"


def _months(fields: Fields) -> list[str]:
    found = values(MONTH, fields.months)
    if len(found) == 12:
        return []
    return [f"in {joined(_runs([_MONTHS[month - 1] for month in found], found))}"]
