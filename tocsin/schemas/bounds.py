"""The sentences for values outside their bounds, the same for every field."""

import re
from collections.abc import Iterator
from typing import Final

from tocsin.schedules import format_duration
from tocsin.schemas.job import Problem

VALUE_SHOWN_MAX: Final = 200
"""Characters of a wrong value that a problem repeats."""


def problem(field: str, rule: str, message: str, value: object = "") -> Problem:
    text = value if isinstance(value, str) else repr(value)
    return Problem(field=field, rule=rule, message=message, value=text[:VALUE_SHOWN_MAX])


def duration_text(ms: int) -> str:
    return format_duration(ms) if ms >= 0 else f"-{format_duration(-ms)}"


def outside_durations(field: str, ms: int, low_ms: int, high_ms: int) -> Iterator[Problem]:
    if low_ms <= ms <= high_ms:
        return
    name = field.rpartition(".")[2]
    limits = f"{name} is {format_duration(low_ms)} to {format_duration(high_ms)}"
    yield problem(field, "range", f"{limits}, not {duration_text(ms)}", duration_text(ms))


def outside_numbers(field: str, value: float, low: float, high: float) -> Iterator[Problem]:
    if low <= value <= high:  # false for a NaN
        return
    name = field.rpartition(".")[2]
    yield problem(field, "range", f"{name} is {low:,} to {high:,}, not {value:,}", str(value))


def not_matching(
    field: str, text: str, pattern: re.Pattern[str], rule: str, form: str, longest: int
) -> Iterator[Problem]:
    """That `text` does not match, with the reason in words: empty, too long, or the first character that may not be there."""
    if pattern.fullmatch(text):
        return
    name = field.rpartition(".")[2]
    if not text:
        reason = "is empty"
    elif len(text) > longest:
        reason = f"has {len(text)} characters, at most {longest} are allowed"
    else:
        wrong = next((c for i, c in enumerate(text) if not pattern.fullmatch(text[: i + 1])), text[-1])
        reason = f"may not hold {wrong!r}" if wrong != text[0] else f"may not begin with {wrong!r}"
    yield problem(field, rule, f"{name} {reason}: {form}", text)
