"""Time zones as sorted integers, from the ``tzdata`` package alone.

The zone files of the machine are never read: two machines of a cluster must not disagree about an instant,
and a cluster records which version of the data is in force. A zone is two sequences, the instants at which
its offset changes and the offsets between them; whether a change is "daylight saving", and what the letters
are, does not matter to a schedule. Sources: RFC 8536 (TZif), POSIX.1-2017 section 8.3 (the TZ string after
the last recorded change).
"""

from __future__ import annotations

import pkgutil
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from tocsin.schedules.errors import ScheduleError

BEGINNING_S: Final = -(1 << 60)  # before any instant we can name
END_S: Final = 1 << 60

CYCLE_S: Final = 146_097 * 86_400  # 400 years: the calendar, its weekdays and so every rule of a zone repeat
NEAR_YEAR: Final = 2101  # changes up to here are kept for every zone; 60 years of search from 2040 fit in
FAR_YEAR: Final = 2662  # one cycle beyond 2200, and 60 years more; what is later is looked up a cycle earlier
_OFFSET_MAX_S: Final = 26 * 3600  # RFC 8536: "should be more than -25 hours and less than 26 hours"


class Span(NamedTuple):
    """The changes of a zone before ``through_s``: offsets[i] is in force from transitions[i - 1] until transitions[i]."""

    transitions: tuple[int, ...]
    offsets: tuple[int, ...]  # one more than transitions, seconds east of UTC
    through_s: int  # END_S if the zone has no rule for the future

    @property
    def search_until_s(self) -> int:
        """Sixty years from any earlier instant are covered."""
        return self.through_s - (0 if self.through_s == END_S else _SEARCH_S)


class Zone:
    """A time zone: pure, immutable, and shared by all who ask for its name."""

    __slots__ = ("_far", "_recorded", "_rule", "name", "near")

    def __init__(self, name: str, recorded: Span, rule: DaylightRule | None) -> None:
        self.name = name
        self._recorded = recorded
        self._rule = rule
        self.near: Final = self._span(NEAR_YEAR)
        self._far: Span | None = None

    @classmethod
    def from_tzif(cls, name: str, data: bytes) -> Zone:
        """The zone that a TZif file of version 2 or later describes. Raises ValueError if it is none."""
        recorded, footer = _read_tzif(data)
        rule, fixed_offset = _read_footer(footer)
        if rule is None and fixed_offset is not None and recorded.offsets[-1] != fixed_offset:
            raise ValueError(f"zone {name}: the footer {footer!r} contradicts the last recorded change")
        return cls(name, recorded, rule)

    @property
    def far(self) -> Span:
        """The changes through FAR_YEAR, made when somebody first asks for an instant that late."""
        if self._far is None:
            self._far = self._span(FAR_YEAR)
        return self._far

    def covering(self, instant_s: int) -> tuple[Span, int]:
        """A span that covers an instant and sixty years from it, and what to take from the instant to look it up there.

        That is a number of whole 400-year cycles: an instant far away is looked up in the years 2200 to 2600, where
        every zone follows its rule, sixty years earlier too.
        """
        if instant_s < self.near.search_until_s:
            return self.near, 0
        if instant_s < _REDUCE_FROM_S:
            return self.far, 0
        return self.far, ((instant_s - _REDUCE_FROM_S) // CYCLE_S + 1) * CYCLE_S

    def offset_at(self, instant_s: int) -> int:
        """Seconds east of UTC at an instant."""
        return self.stretch_at(instant_s)[2]

    def stretch_at(self, instant_s: int) -> tuple[int, int, int]:
        """The stretch [from, to) without a change of offset around an instant, and its offset."""
        (transitions, offsets, _), shift_s = self.covering(instant_s)
        index = bisect_right(transitions, instant_s - shift_s)
        start_s = transitions[index - 1] + shift_s if index else BEGINNING_S
        end_s = transitions[index] + shift_s if index < len(transitions) else END_S
        return start_s, end_s, offsets[index]

    def resolve(self, reading_s: int) -> tuple[int, bool]:
        """The first instant whose local reading is ``reading_s``, and whether the clocks skip that reading.

        A skipped reading gives the first instant after the gap.
        """
        (transitions, offsets, _), shift_s = self.covering(reading_s)
        reading_s -= shift_s
        index = bisect_right(transitions, reading_s - _OFFSET_MAX_S)
        while index < len(transitions) and reading_s >= transitions[index] + offsets[index]:
            index += 1
        instant_s = reading_s - offsets[index]
        if index and instant_s < transitions[index - 1]:
            return transitions[index - 1] + shift_s, True
        return instant_s + shift_s, False

    def changes(self, after_s: int, until_s: int) -> Iterator[tuple[int, int, int]]:
        """(instant, offset before, offset after) of each change in (after, until], in order."""
        span = self.near if until_s < self.near.through_s else self.far
        for index in range(bisect_right(span.transitions, after_s), bisect_right(span.transitions, until_s)):
            yield span.transitions[index], span.offsets[index], span.offsets[index + 1]

    def _span(self, year: int) -> Span:
        rule = self._rule
        if rule is None:
            return self._recorded._replace(through_s=END_S)
        transitions, offsets = list(self._recorded.transitions), list(self._recorded.offsets)
        last_s = self._recorded.through_s
        first_year = max(
            1970 + last_s // 31_556_952 - 1, 1
        )  # a year of 365.2425 days; one earlier to be sure
        for instant_s, offset in rule.changes(first_year, year):
            if instant_s > last_s and offset != offsets[-1]:
                transitions.append(instant_s)
                offsets.append(offset)
        return Span(tuple(transitions), tuple(offsets), _days(year, 1, 1) * 86_400)

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"


_SEARCH_S: Final = 61 * 366 * 86_400  # the longest search, and a margin
_REDUCE_FROM_S: Final = 19_880_899_200  # 2600-01-01


@lru_cache(maxsize=1024)  # all the zones there are
def zone(name: str) -> Zone:
    """The zone of that IANA name. Raises ScheduleError ``timezone-unknown``."""
    if name not in zone_names():
        raise ScheduleError(field="timezone", rule="timezone-unknown", message=_unknown(name), value=name)
    data = pkgutil.get_data("tzdata", f"zoneinfo/{name}")
    if data is None:
        raise ValueError(f"the tzdata package lists the zone {name} but does not hold it: install it again")
    return Zone.from_tzif(name, data)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every zone name that a schedule may give: those of the tz database, its old names included."""
    listing = pkgutil.get_data("tzdata", "zones")
    if listing is None:
        raise ValueError("the tzdata package has no list of zones: install it again")
    return frozenset(listing.decode("ascii").split()) - {"Factory"}  # which means "nobody has set a zone"


@lru_cache(maxsize=1)
def tzdata_version() -> str:
    """The version of the tz database in this process, as IANA names it, for example ``2026f``."""
    import tzdata

    return str(tzdata.IANA_VERSION)


def _unknown(name: str) -> str:
    import difflib

    if not name:
        return "the timezone is empty: leave it out for UTC, or name one such as Europe/Berlin"
    by_fold = {known.lower(): known for known in zone_names()}
    if name.lower() in by_fold:
        near = [by_fold[name.lower()]]
    else:
        near = [
            by_fold[key]
            for key in difflib.get_close_matches(name[:64].lower(), list(by_fold), n=3, cutoff=0.75)
        ]
    hint = f": did you mean {' or '.join(near)}?" if near else ": use a name such as Europe/Berlin, or UTC"
    return f"{name[:64]!r} is not a zone of the tz database {tzdata_version()}{hint}"


# -- TZif ----------------------------------------------------------------------------------------------------

_HEADER: Final = struct.Struct(">4sc15x6l")


def _read_tzif(data: bytes) -> tuple[Span, str]:
    """The recorded changes (through the last; those that keep the offset are left out), and the footer."""
    _, version, utc_count, std_count, leap_count, time_count, type_count, char_count = _header(data, 0)
    if version < b"2":
        raise ValueError(
            "a TZif file of version 1 knows nothing beyond 2037: build the data with a newer zic"
        )
    start = (
        _HEADER.size + time_count * 5 + type_count * 6 + char_count + leap_count * 8 + std_count + utc_count
    )
    _, _, utc_count, std_count, leap_count, time_count, type_count, char_count = _header(data, start)
    if leap_count:
        raise ValueError('the zone counts leap seconds (a "right/" zone); schedules count POSIX seconds')
    start += _HEADER.size
    instants = struct.unpack_from(f">{time_count}q", data, start)
    start += time_count * 8
    kinds = data[start : start + time_count]
    start += time_count
    kind_offsets = [struct.unpack_from(">lBB", data, start + 6 * kind)[0] for kind in range(type_count)]
    start += type_count * 6 + char_count + std_count + utc_count
    footer = data[start:].decode("ascii")
    if len(footer) < 2 or footer[0] != "\n" or footer[-1] != "\n":
        raise ValueError("the TZif file ends without its footer")

    transitions: list[int] = []
    offsets: list[int] = [kind_offsets[0]]  # RFC 8536 3.2: before the first change, type 0
    last_s = BEGINNING_S
    for instant_s, kind in zip(instants, kinds, strict=True):
        if instant_s <= last_s:
            raise ValueError("the changes in the TZif file are not in order")
        last_s = instant_s
        # An earlier change may keep the offset, and later rules still count from it: America/Grand_Turk in
        # 2018.
        if kind_offsets[kind] != offsets[-1]:
            transitions.append(instant_s)
            offsets.append(kind_offsets[kind])
    return Span(tuple(transitions), tuple(offsets), last_s), footer[1:-1]


def _header(data: bytes, start: int) -> tuple[bytes, bytes, int, int, int, int, int, int]:
    if len(data) < start + _HEADER.size:
        raise ValueError("the TZif file is cut off")
    fields: tuple[bytes, bytes, int, int, int, int, int, int] = _HEADER.unpack_from(data, start)
    if fields[0] != b"TZif":
        raise ValueError("not a TZif file")
    return fields


# -- the POSIX TZ string in the footer -----------------------------------------------------------------------

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_TIME = r"[+-]?[0-9]{1,3}(?::[0-9]{2}(?::[0-9]{2})?)?"
_DAY = r"(?:M[0-9]{1,2}\.[1-5]\.[0-6]|J[0-9]{1,3}|[0-9]{1,3})"
_TZ_STRING: Final = re.compile(
    rf"{_NAME}(?P<std>{_TIME})"
    rf"(?:{_NAME}(?P<dst>{_TIME})?,(?P<start>{_DAY})(?:/(?P<start_at>{_TIME}))?,(?P<end>{_DAY})(?:/(?P<end_at>{_TIME}))?)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaylightRule:
    """Two changes a year, for ever. Offsets and times of day in seconds; days as POSIX writes them (Mm.w.d, Jn, n)."""

    standard_offset: int
    daylight_offset: int
    start_day: str
    start_at: int
    end_day: str
    end_at: int

    def changes(self, first_year: int, end_year: int) -> Iterator[tuple[int, int]]:
        """(instant, offset from then on) in order, for the years [first_year, end_year)."""
        found: list[tuple[int, int, int]] = []
        for year in range(first_year, end_year):
            start_s = _rule_day(self.start_day, year) * 86_400 + self.start_at - self.standard_offset
            end_s = _rule_day(self.end_day, year) * 86_400 + self.end_at - self.daylight_offset
            found.append((start_s, 1, self.daylight_offset))
            found.append((end_s, 0, self.standard_offset))
        found.sort()  # an end and a start at one instant: daylight time all year, as in EST5EDT,0/0,J365/25
        return ((instant_s, offset) for instant_s, _, offset in found)


def _read_footer(footer: str) -> tuple[DaylightRule | None, int | None]:
    """The rule, or the one offset for ever, or neither: then the last recorded change is the last."""
    if not footer:
        return None, None
    matched = _TZ_STRING.fullmatch(footer)
    if matched is None:
        raise ValueError(f"the TZ string {footer!r} cannot be read")
    standard = -_seconds(matched["std"])
    if matched["start"] is None:
        return None, standard
    return (
        DaylightRule(
            standard_offset=standard,
            daylight_offset=standard + 3600 if matched["dst"] is None else -_seconds(matched["dst"]),
            start_day=matched["start"],
            start_at=7200 if matched["start_at"] is None else _seconds(matched["start_at"]),
            end_day=matched["end"],
            end_at=7200 if matched["end_at"] is None else _seconds(matched["end_at"]),
        ),
        None,
    )


def _seconds(text: str) -> int:
    """``[+-]hh[:mm[:ss]]`` in seconds, up to 167 hours either way as RFC 8536 allows."""
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    size = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -size if text[0] == "-" else size


def _rule_day(rule: str, year: int) -> int:
    """Days since the epoch of a POSIX day in a year."""
    if rule[0] == "J":  # 1 to 365, the 29th of February is never counted
        number = int(rule[1:])
        return _days(year, 1, 1) + number - 1 + (1 if number >= 60 and _is_leap(year) else 0)
    if rule[0] != "M":  # 0 to 365, the 29th of February is counted
        return _days(year, 1, 1) + int(rule)
    month, week, weekday = (int(part) for part in rule[1:].split("."))
    first = _days(year, month, 1)
    day = first + (weekday - first - 4) % 7 + (week - 1) * 7  # day 0 was a Thursday
    end = _days(year + month // 12, month % 12 + 1, 1)
    return day if day < end else day - 7  # week 5 is the last


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days(year: int, month: int, day: int) -> int:
    """Days since the epoch of a date of the proleptic Gregorian calendar (Howard Hinnant's days_from_civil)."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
