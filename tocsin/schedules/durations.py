"""Durations as users write them, ``1d2h3m4s500ms``, and as the system keeps them, integer milliseconds."""

from __future__ import annotations

import re
from typing import Final

from tocsin.schedules.errors import ScheduleError

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_MS_PER: Final = dict(_UNITS)
_SHAPE: Final = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?")
_PARTS: Final = re.compile(r"([0-9]+)([a-zA-Zµ]+)")

DURATION_MAX_MS: Final = (
    10_000 * 366 * 86_400_000
)  # the span of the calendar; nothing longer can ever be waited for


def parse_duration(text: str) -> int:
    """Milliseconds in ``text``: whole numbers with the units d, h, m, s, ms, each at most once, the largest
    first.

    Raises ScheduleError with a rule of the family ``duration-...`` that says what to write instead.
    """
    matched = _SHAPE.fullmatch(text)
    if matched is None or not text:
        raise _refused(text)
    if len(text) > 64:
        raise _error("duration-range", text, "a duration is at most 10000 years")
    total = 0
    for digits, (_, unit_ms) in zip(matched.groups(), _UNITS, strict=True):
        if digits is not None:
            total += int(digits) * unit_ms
    if total > DURATION_MAX_MS:
        raise _error("duration-range", text, "a duration is at most 10000 years")
    return total


def format_duration(duration_ms: int) -> str:
    """The shortest text that ``parse_duration`` reads as ``duration_ms``; nothing is ``0s``."""
    if duration_ms < 0:
        raise ValueError(f"a duration is not negative: {duration_ms} ms")
    parts = []
    rest = duration_ms
    for unit, unit_ms in _UNITS:
        number, rest = divmod(rest, unit_ms)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _refused(text: str) -> ScheduleError:
    """Why ``text`` is no duration, with the nearest thing that is one."""
    shown = text[:32]
    if not text.strip():
        return _error("duration-empty", text, "a duration is empty: write for example 90s or 1h30m")
    if " " in text.strip() or text != text.strip():
        return _error(
            "duration-format", text, f"{shown!r}: write a duration without spaces, for example 1h30m"
        )
    if re.fullmatch(r"[0-9]+", text):
        message = f"{shown} has no unit: write {shown}s for seconds, {shown}m for minutes or {shown}ms"
        return _error("duration-unit", text, message)
    if text.startswith("-"):
        return _error("duration-sign", text, f"{shown} is negative: a duration counts forward only")
    if re.search(r"[0-9][.,][0-9]", text):
        message = f"{shown} has a fraction: write whole numbers, for example 1h30m or 1s500ms"
        return _error("duration-fraction", text, message)
    parts = _PARTS.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        unknown = next((unit for _, unit in parts if unit not in _MS_PER), None)
        if unknown is not None:
            hint = " (lower case)" if unknown.lower() in _MS_PER else ""
            return _error("duration-unit", text, f"{unknown[:32]!r} is no unit: use d, h, m, s or ms{hint}")
        message = f"{shown}: write each unit once and the largest first, for example 1d2h3m4s500ms"
        return _error("duration-order", text, message)
    return _error("duration-format", text, f"{shown!r} is no duration: write for example 90s, 1h30m or 500ms")


def _error(rule: str, text: str, message: str) -> ScheduleError:
    return ScheduleError(field="duration", rule=rule, message=message, value=text)
