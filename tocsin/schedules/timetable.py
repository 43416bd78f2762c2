"""A job's schedule as plain values, and the nominal instants it produces.

This is what the processors ask. A timetable knows nothing of runs: how many there may be (``max_runs``), what
is paused and what was missed is decided above. It is a value: equal values make equal timetables, on every
machine.

* A nominal is in the schedule if its rule names it, ``starts_at_ms <= nominal < ends_at_ms``, and nothing
  excludes it.
* An exclusion by five cron fields excludes whole minutes, by six fields seconds, in the job's zone and as the
  clocks there show it; an excluded range is ``[from, to)``.
* ``every``: ``anchor_ms + k * every_ms`` for every whole k, so the anchor is a phase and no start.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, assert_never

from tocsin.schedules.cron import COUNT_LIMIT, Count, Cron, shared_cron
from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.instants import INSTANT_MAX_MS, INSTANT_MIN_MS
from tocsin.schedules.timelines import Fold, Gap

Kind = Literal["cron", "every", "at", "delay", "manual"]

EVERY_MIN_MS: Final = 1_000
# Candidates that one call may find excluded: some 30 ms, so that one job cannot hold up the others. With several
# exclusions by expression, each of which is asked, so many times fewer.
EXCLUDED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """So many candidates were excluded that the search stopped: call the same method again with this instant."""

    resume_from_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The nominal instants of one schedule.

    Which of the fields count depends on ``kind``: ``crons`` (their union), ``timezone``, ``gap`` and ``fold``
    for ``cron``; ``every_ms``, ``anchor_ms`` and ``after_completion`` for ``every``; ``at_ms`` for ``at``;
    ``delay_ms`` and ``base_ms`` (the log's timestamp of the revision that last changed the schedule) for
    ``delay``. ``manual`` has no nominals. The zone also holds for ``exclude_crons``. Named calendars are
    resolved by the caller into ``exclude_crons`` and ``exclude_ranges``.

    Raises ScheduleError if a value makes no sense, an unknown zone included. Building one costs a few
    microseconds; ``shared()`` gives the one of equal value that others hold already.
    """

    kind: Kind
    crons: tuple[str, ...] = ()
    timezone: str = "UTC"
    gap: Gap = "at_end"
    fold: Fold = "first"
    every_ms: int = 0
    anchor_ms: int = 0
    after_completion: bool = False
    at_ms: int = 0
    delay_ms: int = 0
    base_ms: int = 0
    exclude_crons: tuple[str, ...] = ()
    exclude_ranges: tuple[tuple[int, int], ...] = ()
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    spread_ms: int = 0
    _crons: tuple[Cron, ...] = field(init=False, repr=False, compare=False)
    _exclusions: _Exclusions | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled: tuple[Cron, ...] = ()
        match self.kind:
            case "cron":
                if not self.crons:
                    raise _error("cron", "schedule-empty", "a cron schedule needs an expression", "")
                compiled = tuple(
                    [shared_cron(each, self.timezone, self.gap, self.fold) for each in self.crons]
                )
            case "every":
                if self.every_ms < EVERY_MIN_MS:
                    raise _error("every", "schedule-every", "every is at least 1s", f"{self.every_ms}ms")
            case "delay":
                if self.delay_ms < 0:
                    raise _error("delay", "schedule-delay", "a delay is not negative", f"{self.delay_ms}ms")
            case "at" | "manual":
                pass
            case _:
                assert_never(self.kind)
        if self.spread_ms < 0:
            raise _error("spread", "schedule-spread", "a spread is not negative", f"{self.spread_ms}ms")
        exclusions = None
        if self.exclude_crons or self.exclude_ranges:
            exclusions = _exclusions(self.exclude_crons, self.exclude_ranges, self.timezone)
        object.__setattr__(self, "_crons", compiled)
        object.__setattr__(self, "_exclusions", exclusions)

    def shared(self) -> Timetable:
        """The timetable of equal value that is held already, or else this one from now on."""
        return _shared(self)

    @property
    def predetermined(self) -> bool:
        """Whether the nominals are known without knowing when runs end; false for fixed delays only.

        The series of a fixed delay is given as if every run ended at once.
        """
        return not (self.kind == "every" and self.after_completion)

    def next_nominal(self, after_ms: int) -> int | Continuation | None:
        """The first nominal strictly after ``after_ms``; None if there is none any more."""
        if self.starts_at_ms is not None and after_ms < self.starts_at_ms:
            after_ms = self.starts_at_ms - 1
        nominal_ms = self._next_candidate(after_ms)
        exclusions = self._exclusions
        if exclusions is None:
            return self._unless_ended(nominal_ms)
        for _ in range(exclusions.excluded_max):
            nominal_ms = self._unless_ended(nominal_ms)
            if nominal_ms is None:
                return None
            stretch = exclusions.stretch_at(nominal_ms)
            if stretch is None:
                return nominal_ms
            assert nominal_ms < stretch[1], (
                "an exclusion reaches past what it excludes, so the search gets on"
            )
            after_ms = stretch[1] - 1
            nominal_ms = self._next_candidate(after_ms)
        return Continuation(resume_from_ms=after_ms)

    def next_after_completion(self, end_ms: int) -> int | Continuation | None:
        """The nominal after a run that ended at ``end_ms``, for ``every`` with ``after_completion``.

        An excluded instant is passed over as if a run there had taken no time. When an occurrence became no
        run, the instant of its disposition stands for the end.
        """
        assert self.kind == "every", "only every has fixed delays"
        nominal_ms = end_ms + self.every_ms
        if self.starts_at_ms is not None and nominal_ms < self.starts_at_ms:
            nominal_ms = self.starts_at_ms
        exclusions = self._exclusions
        for _ in range(exclusions.excluded_max if exclusions else 1):
            if self._unless_ended(nominal_ms) is None:
                return None
            stretch = exclusions.stretch_at(nominal_ms) if exclusions else None
            if stretch is None:
                return nominal_ms
            nominal_ms += -(-(stretch[1] - nominal_ms) // self.every_ms) * self.every_ms
        return Continuation(resume_from_ms=nominal_ms - self.every_ms)

    def prev_nominal(self, before_ms: int) -> int | None:
        """The last nominal strictly before ``before_ms``.

        None if there is none, and also if the EXCLUDED_MAX candidates before it are all excluded.
        """
        return next(self._backwards(before_ms), None)

    def nominals(self, from_ms: int, to_ms: int) -> Iterator[int]:
        """The nominals in (from, to], in order, however many are excluded in between."""
        after_ms = from_ms
        while True:
            found = self.next_nominal(after_ms)
            match found:
                case None:
                    return
                case Continuation():
                    after_ms = found.resume_from_ms
                    if after_ms > to_ms:
                        return
                case int():
                    if found > to_ms:
                        return
                    yield found
                    after_ms = found

    def count(self, from_ms: int, to_ms: int, limit: int = COUNT_LIMIT) -> Count:
        """How many nominals (from, to] holds, counted up to ``limit``.

        ``at_least`` is also set if EXCLUDED_MAX candidates in a row were found excluded before the end.
        """
        if self.kind == "every" and self._exclusions is None:
            return self._count_every(from_ms, to_ms, limit)
        n = 0
        after_ms = from_ms
        while True:
            found = self.next_nominal(after_ms)
            match found:
                case None:
                    return Count(n, False)
                case Continuation():
                    return Count(n, found.resume_from_ms < to_ms)
                case int():
                    if found > to_ms:
                        return Count(n, False)
                    if n == limit:
                        return Count(n, True)
                    n += 1
                    after_ms = found

    def newest(self, from_ms: int, to_ms: int, n: int) -> tuple[int, ...]:
        """The newest ``n`` nominals in (from, to], oldest first; it costs the same however long the interval is."""
        found: list[int] = []
        if n > 0:
            for nominal_ms in self._backwards(to_ms + 1):
                if nominal_ms <= from_ms:
                    break
                found.append(nominal_ms)
                if len(found) == n:
                    break
        return tuple(reversed(found))

    def spread_offset(self, job_key: str) -> int:
        """The job's own offset in [0, spread_ms), in milliseconds, the same for ever and everywhere."""
        return spread_offset(job_key, self.spread_ms)

    # -- candidates: what the rule names, before bounds and exclusions ---------------------------------------

    def _next_candidate(self, after_ms: int) -> int | None:
        match self.kind:
            case "cron":
                crons = self._crons
                if len(crons) == 1:
                    return crons[0].next(after_ms)
                return min(
                    (fire for cron in crons if (fire := cron.next(after_ms)) is not None), default=None
                )
            case "every":
                nominal_ms = (
                    self.anchor_ms + ((after_ms - self.anchor_ms) // self.every_ms + 1) * self.every_ms
                )
                return nominal_ms if nominal_ms <= INSTANT_MAX_MS else None
            case "at":
                return self.at_ms if self.at_ms > after_ms else None
            case "delay":
                nominal_ms = self.base_ms + self.delay_ms
                return nominal_ms if nominal_ms > after_ms else None
            case "manual":
                return None
            case _:
                assert_never(self.kind)

    def _prev_candidate(self, before_ms: int) -> int | None:
        match self.kind:
            case "cron":
                return max(
                    (fire for cron in self._crons if (fire := cron.prev(before_ms)) is not None), default=None
                )
            case "every":
                nominal_ms = (
                    self.anchor_ms + (before_ms - 1 - self.anchor_ms) // self.every_ms * self.every_ms
                )
                return nominal_ms if nominal_ms >= INSTANT_MIN_MS else None
            case "at":
                return self.at_ms if self.at_ms < before_ms else None
            case "delay":
                nominal_ms = self.base_ms + self.delay_ms
                return nominal_ms if nominal_ms < before_ms else None
            case "manual":
                return None
            case _:
                assert_never(self.kind)

    def _unless_ended(self, nominal_ms: int | None) -> int | None:
        if nominal_ms is None or (self.ends_at_ms is not None and nominal_ms >= self.ends_at_ms):
            return None
        return nominal_ms

    def _backwards(self, before_ms: int) -> Iterator[int]:
        """The nominals before an instant, newest first, until too many candidates were excluded."""
        if self.ends_at_ms is not None and before_ms > self.ends_at_ms:
            before_ms = self.ends_at_ms
        exclusions = self._exclusions
        excluded = 0
        while exclusions is None or excluded < exclusions.excluded_max:
            nominal_ms = self._prev_candidate(before_ms)
            if nominal_ms is None or (self.starts_at_ms is not None and nominal_ms < self.starts_at_ms):
                return
            stretch = exclusions.stretch_at(nominal_ms) if exclusions else None
            if stretch is None:
                yield nominal_ms
                before_ms = nominal_ms
            else:
                assert stretch[0] <= nominal_ms
                excluded += 1
                before_ms = stretch[0]

    def _count_every(self, from_ms: int, to_ms: int, limit: int) -> Count:
        if self.starts_at_ms is not None:
            from_ms = max(from_ms, self.starts_at_ms - 1)
        if self.ends_at_ms is not None:
            to_ms = min(to_ms, self.ends_at_ms - 1)
        from_ms, to_ms = max(from_ms, INSTANT_MIN_MS - 1), min(to_ms, INSTANT_MAX_MS)
        n = (to_ms - self.anchor_ms) // self.every_ms - (from_ms - self.anchor_ms) // self.every_ms
        return Count(limit, True) if n > limit else Count(max(n, 0), False)


def spread_offset(job_key: str, spread_ms: int) -> int:
    """The offset of a job within its spread: ``floor(h * spread_ms / 2**64)``.

    h is the first 8 bytes, big-endian, of the SHA-256 of the job's key in UTF-8. So a job stays where it is
    for ever, any language can compute it, and a wider spread moves all jobs apart without reordering them.
    """
    if spread_ms == 0:
        return 0
    hashed = int.from_bytes(hashlib.sha256(job_key.encode()).digest()[:8], "big")
    return hashed * spread_ms >> 64


class _Exclusions:
    """Which instants are excluded, and how far the exclusion reaches around them."""

    __slots__ = ("_crons", "_range_ends", "_range_starts", "excluded_max")

    def __init__(self, crons: tuple[Cron, ...], ranges: list[tuple[int, int]]) -> None:
        self.excluded_max: Final = EXCLUDED_MAX // max(1, len(crons))
        self._crons = crons
        self._range_starts = [start for start, _ in ranges]
        self._range_ends = [end for _, end in ranges]

    def stretch_at(self, instant_ms: int) -> tuple[int, int] | None:
        """The excluded stretch [from, to) around an instant; None if it is not excluded."""
        index = bisect_right(self._range_starts, instant_ms) - 1
        if index >= 0 and instant_ms < self._range_ends[index]:
            return self._range_starts[index], self._range_ends[index]
        for cron in self._crons:
            stretch = cron.matching_stretch(instant_ms)
            if stretch is not None:
                return stretch
        return None


@lru_cache(maxsize=4096)
def _exclusions(crons: tuple[str, ...], ranges: tuple[tuple[int, int], ...], timezone: str) -> _Exclusions:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            raise _error(
                "exclude", "schedule-range", "an excluded range ends after it starts", f"{start}-{end}"
            )
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return _Exclusions(tuple(shared_cron(each, timezone) for each in crons), merged)


@lru_cache(maxsize=16_384)
def _shared(timetable: Timetable) -> Timetable:
    return timetable


def _error(name: str, rule: str, message: str, value: str) -> ScheduleError:
    return ScheduleError(field=name, rule=rule, message=message, value=value)
