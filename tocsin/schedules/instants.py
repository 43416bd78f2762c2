"""Instants at the edges: ISO 8601 text on one side, integer milliseconds since the epoch, UTC, on the other.

Everything between the edges is integers. A local reading (what a clock on a wall shows) is written in
seconds, as if it were UTC, and is turned into an instant by a zone.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final

from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.zones import zone

INSTANT_MIN_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
INSTANT_MAX_MS: Final = (
    253_402_300_799_999  # 9999-12-31T23:59:59.999Z: four digits of year, as the texts have
)

_DAY_MS: Final = 86_400_000
_EPOCH_ORDINAL: Final = 719_163  # date(1970, 1, 1).toordinal()
_ISO: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?"
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_COMPACT: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})\.([0-9]{3})Z")


def format_instant(instant_ms: int) -> str:
    """``instant_ms`` as ``2026-03-09T08:00:00.000Z``."""
    day, rest = divmod(instant_ms, _DAY_MS)
    seconds, ms = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_day_text(day)}T{hour:02d}:{minute:02d}:{second:02d}.{ms:03d}Z"


def format_compact(instant_ms: int) -> str:
    """``instant_ms`` as ``20260309T080000.000Z``, the form in run ids: it sorts as the instants do."""
    day, rest = divmod(instant_ms, _DAY_MS)
    seconds, ms = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_compact_day_text(day)}T{hour:02d}{minute:02d}{second:02d}.{ms:03d}Z"


def parse_instant(text: str) -> int:
    """The instant that ``text`` names, ISO 8601 with ``Z`` or an offset; parts below a millisecond are
    dropped.

    Raises ScheduleError: ``instant-format``, ``instant-offset`` (none is given), ``instant-range``.
    """
    reading_ms, offset = _parse(text)
    if offset is None:
        raise _error(
            "instant-offset",
            text,
            "has no offset: end it with Z for UTC, or with an offset such as +01:00",
        )
    return _within_range(reading_ms - offset * 1000, text)


def parse_compact(text: str) -> int:
    """The instant of ``20260309T080000.000Z``; only that form, since equal instants must have equal run ids."""
    matched = _COMPACT.fullmatch(text)
    if matched is None:
        raise _error("instant-format", text, "is not an instant of the form 20260309T080000.000Z")
    year, month, day, hour, minute, second, ms = map(int, matched.groups())
    return _reading_ms(text, year, month, day, hour, minute, second) + ms


def resolve_local(text: str, timezone: str) -> int:
    """The instant at which the clocks of ``timezone`` show ``text``, for example ``2026-12-01T09:00:00``.

    A date alone means its midnight. A reading that the clocks skip is the first instant after the gap; one
    that they show twice is the first of the two. A text with an offset of its own already names an instant,
    and the zone is only checked. Raises ScheduleError, ``timezone-unknown`` among others.
    """
    place = zone(timezone)
    reading_ms, offset = _parse(text)
    if offset is not None:
        return _within_range(reading_ms - offset * 1000, text)
    seconds, ms = divmod(reading_ms, 1000)
    instant_s, skipped = place.resolve(seconds)
    return _within_range(instant_s * 1000 + (0 if skipped else ms), text)


def _parse(text: str) -> tuple[int, int | None]:
    """The local reading in milliseconds, and the offset in seconds if one is given."""
    matched = _ISO.fullmatch(text)
    if matched is None:
        raise _error("instant-format", text, "is not an instant: write for example 2026-12-01T09:00:00+01:00")
    year, month, day, hour, minute, second, fraction, offset = matched.groups()
    reading_ms = _reading_ms(
        text, int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
    )
    if fraction is not None:
        reading_ms += int(fraction[:3].ljust(3, "0"))
    if offset is None:
        return reading_ms, None
    if offset in ("Z", "z"):
        return reading_ms, 0
    offset_hours, offset_minutes = int(offset[1:3]), int(offset[-2:])
    if offset_hours > 23 or offset_minutes > 59:
        raise _error(
            "instant-range", text, f"has an impossible part: the offset {offset} is outside -23:59 to +23:59"
        )
    size = offset_hours * 3600 + offset_minutes * 60
    return reading_ms, -size if offset[0] == "-" else size


def _reading_ms(text: str, year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    if hour > 23 or minute > 59 or second > 59:
        raise _error(
            "instant-range",
            text,
            f"has an impossible part: {hour:02d}:{minute:02d}:{second:02d} is no time of day",
        )
    days = _days(year, month, day)
    if days is None:
        raise _error(
            "instant-range",
            text,
            f"has an impossible part: {year:04d}-{month:02d}-{day:02d} is no date of the calendar",
        )
    return (days * 86_400 + hour * 3600 + minute * 60 + second) * 1000


def _within_range(instant_ms: int, text: str) -> int:
    if not INSTANT_MIN_MS <= instant_ms <= INSTANT_MAX_MS:
        raise _error("instant-range", text, "is outside the years 0001 to 9999 in UTC")
    return instant_ms


# A scheduler names the same few days over and over: the caches halve the cost of both directions.
@lru_cache(maxsize=4096)
def _days(year: int, month: int, day: int) -> int | None:
    try:
        return date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _day_text(day: int) -> str:
    return date.fromordinal(day + _EPOCH_ORDINAL).isoformat()


@lru_cache(maxsize=4096)
def _compact_day_text(day: int) -> str:
    return _day_text(day).replace("-", "")


def _error(rule: str, text: str, why: str) -> ScheduleError:
    shown = text if len(text) <= 40 else text[:40] + "..."
    return ScheduleError(field="instant", rule=rule, message=f"{shown!r} {why}", value=text)
