"""The search: the next and the previous instant at which a cron expression fires in a zone.

Everything is integers, seconds since the epoch, UTC. A search has two halves that know nothing of each other:
*which local reading* the expression names next (tables of next values within the day, bit masks within the
month) and *which instant* shows that reading (the pieces of a timeline, found by bisection).
``docs/decisions/002-own-cron-engine.md`` says why this is not a library.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.grammar import EXPRESSIONS_KEPT_MAX, Fields, parse
from tocsin.schedules.readings import readings_of
from tocsin.schedules.timelines import FOLDS, GAPS, Fold, Gap, Timeline, timeline
from tocsin.schedules.zones import Zone, zone

COUNT_LIMIT: Final = 10_000  # a longer series is recorded as "at least so many"
SEARCH_S: Final = (
    21_915 * 86_400
)  # 60 years; the longest wait of the calendar is 40, a 29 February on a given weekday

_FIRST_S: Final = -62_135_596_800  # 0001-01-01T00:00:00Z
_LAST_S: Final = 253_402_300_799  # 9999-12-31T23:59:59Z


class Count(NamedTuple):
    """How many occurrences an interval holds; ``at_least`` says that counting stopped at the limit."""

    n: int
    at_least: bool


class Cron:
    """A cron expression in a zone, with its policies for clock changes.

    Pure: the answers depend on the expression, the zone, the policies and the time-zone data alone. Raises
    ScheduleError. An expression that is well formed but names a day that no year has is built, says so in
    ``never`` and answers None to everything.

    Use ``shared_cron`` where many jobs may have the same expression.
    """

    __slots__ = ("_fields", "_line", "_memo", "_readings", "expression", "fold", "gap", "zone")

    def __init__(
        self,
        expression: str,
        timezone: str | Zone = "UTC",
        gap: Gap = "at_end",
        fold: Fold = "first",
    ) -> None:
        if gap not in GAPS:
            raise _policy("gap", gap, GAPS)
        if fold not in FOLDS:
            raise _policy("fold", fold, FOLDS)
        self.expression: Final = expression
        self.gap: Final[Gap] = gap
        self.fold: Final[Fold] = fold
        self._fields: Final = parse(expression)
        self._readings: Final = readings_of(expression)
        self.zone: Final = timezone if isinstance(timezone, Zone) else zone(timezone)
        self._line: Final = timeline(self.zone, self._fields.starred, gap, fold, False)
        self._memo = (0, 0, 0)

    @property
    def timezone(self) -> str:
        return self.zone.name

    @property
    def fields(self) -> Fields:
        return self._fields

    @property
    def never(self) -> bool:
        """Whether no year has a day that the expression names (31 April): such a schedule is refused when defined."""
        return self._readings.never

    def require_fires(self, after_ms: int) -> None:
        """Raises ScheduleError ``cron-never`` unless the expression fires within 60 years of ``after_ms``."""
        if self.never or self.next(after_ms) is None:
            raise ScheduleError(
                field="expression",
                rule="cron-never",
                message=f"{self.expression} never fires: no year has such a day"
                if self.never
                else f"{self.expression} does not fire in {self.timezone} within 60 years",
                value=self.expression,
            )

    def next(self, after_ms: int) -> int | None:
        """The first fire strictly after ``after_ms``; None if there is none within 60 years, or before the year 10000."""
        after_s = after_ms // 1000
        # Between two fires the answer is the same. A million jobs of one expression ask at one instant.
        low, high, _ = memo = self._memo
        if low <= after_s < high:
            return memo[2]
        fire_s = self._next_s(after_s)
        if fire_s is None:
            return None
        fire_ms = fire_s * 1000
        self._memo = (min(low, after_s) if high == fire_s else after_s, fire_s, fire_ms)
        return fire_ms

    def prev(self, before_ms: int) -> int | None:
        """The last fire strictly before ``before_ms``; None if there is none within 60 years, or since the year 1."""
        fire_s = self._prev_s(-(-before_ms // 1000))
        return None if fire_s is None else fire_s * 1000

    def fires(self, after_ms: int, until_ms: int | None = None) -> Iterator[int]:
        """The fires in (after, until], in order; without ``until_ms``, as long as there are any."""
        fire_ms = self.next(after_ms)
        while fire_ms is not None and (until_ms is None or fire_ms <= until_ms):
            yield fire_ms
            fire_ms = self.next(fire_ms)

    def count(self, from_ms: int, to_ms: int, limit: int = COUNT_LIMIT) -> Count:
        """How many fires (from, to] holds, counted up to ``limit``."""
        n = 0
        for _ in self.fires(from_ms, to_ms):
            if n == limit:
                return Count(n, True)
            n += 1
        return Count(n, False)

    def matching_stretch(self, instant_ms: int) -> tuple[int, int] | None:
        """The stretch [from, to) around an instant all of whose readings the expression names; None if not
        this one.

        It is the instant's second (six fields) or minute (five fields), or its hour or day where the
        expression names the whole of it, cut off at a clock change. The policies for clock changes play no
        part: this is what an exclusion asks, and the stretch lets it jump.
        """
        instant_s = instant_ms // 1000
        start_s, end_s, offset = self.zone.stretch_at(instant_s)
        reading = instant_s + offset
        named = self._readings.stretch_at(reading)
        if named is None:
            return None
        return max(named[0] - offset, start_s) * 1000, min(named[1] - offset, end_s) * 1000

    # -- instants --------------------------------------------------------------------------------------------

    def _next_s(self, after_s: int) -> int | None:
        if after_s < _FIRST_S:
            after_s = _FIRST_S - 1
        line = self._line
        if after_s >= line.search_until_s:
            return self._next_far(after_s)
        # The usual case: one piece, and the next reading lies in it.
        index = bisect_right(line.starts, after_s) - 1
        from_s = after_s + 1
        end_s = line.ends[index]
        if line.alone_from[index] <= from_s < end_s:
            offset = line.offsets[index]
            fire_s = self._readings.at_or_after(from_s + offset) - offset
            if fire_s < end_s:
                return fire_s if fire_s - after_s <= SEARCH_S and fire_s <= _LAST_S else None
        return self._next_over(line, after_s, index)

    def _next_far(self, after_s: int) -> int | None:
        if after_s > _LAST_S:
            return None
        _, shift_s = self.zone.covering(after_s)
        reduced_s = after_s - shift_s
        line = timeline(self.zone, self._fields.starred, self.gap, self.fold, True)
        fire_s = self._next_over(line, reduced_s, bisect_right(line.starts, reduced_s) - 1)
        return None if fire_s is None or fire_s + shift_s > _LAST_S else fire_s + shift_s

    def _next_over(self, line: Timeline, after_s: int, index: int) -> int | None:
        """The first fire after ``after_s``, from the piece at ``index`` on through as many as it takes."""
        starts, ends, offsets, windows = line.starts, line.ends, line.offsets, line.windows
        at_or_after = self._readings.at_or_after
        best = min(after_s + SEARCH_S, _LAST_S) + 1
        none = best
        # Once set, the expression names no reading in [low, high): most pieces need no search of their own.
        low, high = 1, 0
        index = line.leads[index]
        while index < len(starts) and starts[index] < best:
            from_s = max(after_s + 1, starts[index])
            if from_s < ends[index]:
                window = windows[index]
                reading = from_s + offsets[index] if window is None else window[0]
                if not low <= reading <= high:
                    low, high = reading, at_or_after(reading)
                if window is None:
                    fire_s = high - offsets[index]
                    if fire_s < ends[index] and fire_s < best:
                        best = fire_s
                elif high < window[1]:
                    best = from_s
            index += 1
        return None if best == none else best

    def _prev_s(self, before_s: int) -> int | None:
        if before_s > _LAST_S:
            before_s = _LAST_S + 1
        line = self._line
        shift_s = 0
        if before_s >= line.search_until_s:
            _, shift_s = self.zone.covering(before_s)
            before_s -= shift_s
            line = timeline(self.zone, self._fields.starred, self.gap, self.fold, True)
        starts, ends, offsets, windows, reaches = (
            line.starts,
            line.ends,
            line.offsets,
            line.windows,
            line.reaches,
        )
        readings = self._readings
        best = max(before_s - SEARCH_S, _FIRST_S) - 1
        none = best
        low, high = 1, 0  # once set, the expression names no reading in (low, high]
        index = bisect_left(starts, before_s) - 1
        while index >= 0:
            window = windows[index]
            if window is not None:
                if starts[index] > best and readings.at_or_after(window[0]) < window[1]:
                    best = starts[index]
            else:
                reading = min(before_s, ends[index]) - 1 + offsets[index]
                if not low <= reading <= high:
                    low, high = readings.at_or_before(reading), reading
                fire_s = low - offsets[index]
                if fire_s >= starts[index] and fire_s > best:
                    best = fire_s
            if reaches[index] <= best + 1:
                break
            index -= 1
        return None if best == none else best + shift_s

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.timezone!r}, gap={self.gap!r}, fold={self.fold!r})"


@lru_cache(maxsize=EXPRESSIONS_KEPT_MAX)
def shared_cron(expression: str, timezone: str = "UTC", gap: Gap = "at_end", fold: Fold = "first") -> Cron:
    """The one Cron of these values, so that jobs of the same schedule share what was compiled and the last answer."""
    return Cron(expression, timezone, gap, fold)


def _policy(field: str, value: str, known: tuple[str, ...]) -> ScheduleError:
    message = f"{value!r} is no {field} policy: use {', '.join(known[:-1])} or {known[-1]}"
    return ScheduleError(field=field, rule=f"{field}-unknown", message=message, value=str(value))
