"""What can be wrong with a schedule."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, assert_never

from tocsin.schedules import (
    INSTANT_MAX_MS,
    Continuation,
    Cron,
    ScheduleError,
    Timetable,
    format_instant,
    shared_cron,
    zone,
)
from tocsin.schemas.bounds import duration_text, outside_durations, outside_numbers, problem
from tocsin.schemas.job import CatchUp, Exclusion, Problem, Schedule
from tocsin.schemas.limits import (
    DAY_MS,
    EVERY_MS_MIN,
    EXCLUSIONS_MAX,
    EXPRESSIONS_MAX,
    INTERVAL_MS_MAX,
    RUNS_MAX,
    SPREAD_MS_MAX,
)

NOTHING_LEFT_MS: Final = 400 * DAY_MS
"""One expression that excludes all for so long excludes all for ever: what it leaves, it leaves every year."""
NOTHING_LEFT_BY_SEVERAL_MS: Final = 3_653 * DAY_MS
"""Several could leave a 29 February."""

EXCLUSIVE: Final = ("cron", "every", "at", "delay")


def schedule_problems(schedule: Schedule, catchup: CatchUp, now_ms: int | None) -> Iterator[Problem]:
    """`now_ms` None: whether an `at` lies too far in the past is not asked."""
    if schedule == _NONE:
        return
    found = [*_kind_problems(schedule), *_zone_problems(schedule), *_bound_problems(schedule)]
    found += [*_cron_problems(schedule), *_exclusion_problems(schedule)]
    found = found or [*_end_problems(schedule)]
    yield from found
    if now_ms is not None and schedule.at_ms is not None:
        yield from _age_problems(schedule.at_ms, catchup, now_ms)


_NONE: Final = Schedule()


def _kind_problems(schedule: Schedule) -> Iterator[Problem]:
    given = [
        name
        for name, is_given in zip(
            EXCLUSIVE,
            (
                bool(schedule.cron),
                schedule.every_ms is not None,
                schedule.at_ms is not None,
                schedule.delay_ms is not None,
            ),
            strict=True,
        )
        if is_given
    ]
    if len(given) > 1:
        message = f"a schedule is one of {', '.join(EXCLUSIVE)}; here are {' and '.join(given)}: keep one"
        yield problem("schedule", "one-of", message, ", ".join(given))
    if schedule.every_ms is None:
        for name, is_given in (
            ("anchor", schedule.anchor_ms is not None),
            ("after_completion", schedule.after_completion),
        ):
            if is_given:
                message = f"{name} says how `every` counts, and this schedule has no every: leave it out"
                yield problem(f"schedule.{name}", "needs-every", message)
    elif schedule.after_completion and schedule.anchor_ms is not None:
        message = "with after_completion the interval counts from the end of the run before: leave anchor out"
        yield problem("schedule.anchor", "anchor-unused", message, _instant_text(schedule.anchor_ms))


def _zone_problems(schedule: Schedule) -> Iterator[Problem]:
    try:
        zone(schedule.timezone)
    except ScheduleError as error:
        yield problem("schedule.timezone", error.rule, error.message, error.value)


def _bound_problems(schedule: Schedule) -> Iterator[Problem]:
    if schedule.every_ms is not None:
        yield from outside_durations("schedule.every", schedule.every_ms, EVERY_MS_MIN, INTERVAL_MS_MAX)
    if schedule.delay_ms is not None:
        yield from outside_durations("schedule.delay", schedule.delay_ms, 0, INTERVAL_MS_MAX)
    yield from outside_durations("schedule.spread", schedule.spread_ms, 0, SPREAD_MS_MAX)
    if schedule.max_runs is not None:
        yield from outside_numbers("schedule.max_runs", schedule.max_runs, 1, RUNS_MAX)
    for name, instant_ms in (
        ("at", schedule.at_ms),
        ("anchor", schedule.anchor_ms),
        ("starts_at", schedule.starts_at_ms),
        ("ends_at", schedule.ends_at_ms),
    ):
        if instant_ms is not None:
            yield from _instant_problems(f"schedule.{name}", instant_ms)
    if (
        schedule.starts_at_ms is not None
        and schedule.ends_at_ms is not None
        and schedule.starts_at_ms >= schedule.ends_at_ms
    ):
        message = f"ends_at is not after starts_at ({_instant_text(schedule.starts_at_ms)}): no instant lies between them"
        yield problem("schedule.ends_at", "order", message, _instant_text(schedule.ends_at_ms))


def _instant_problems(field: str, instant_ms: int) -> Iterator[Problem]:
    if not 0 <= instant_ms <= INSTANT_MAX_MS:
        name = field.rpartition(".")[2]
        message = f"{name} lies outside the years 1970 to 9999"
        yield problem(field, "instant-range", message, _instant_text(instant_ms))


def _instant_text(instant_ms: int) -> str:
    try:
        return format_instant(instant_ms)
    except (ValueError, OverflowError):
        return f"{instant_ms} ms"


def _cron_problems(schedule: Schedule) -> Iterator[Problem]:
    if len(schedule.cron) > EXPRESSIONS_MAX:
        message = f"a schedule is the union of at most {EXPRESSIONS_MAX} expressions, not {len(schedule.cron)}: make several jobs"
        yield problem("schedule.cron", "expressions-max", message, str(len(schedule.cron)))
        return
    for i, expression in enumerate(schedule.cron):
        yield from _expression_problems(f"schedule.cron[{i}]", expression, schedule, must_fire=True)


def _expression_problems(
    field: str, expression: str, schedule: Schedule, *, must_fire: bool
) -> Iterator[Problem]:
    try:
        # The zone has problems of its own; the expression is read all the same.
        cron = _cron(expression, schedule)
    except ScheduleError as error:
        yield problem(field, error.rule, error.message, expression)
        return
    if cron.never and must_fire:
        message = f"{expression} never fires: no year has such a day"
        yield problem(field, "cron-never", message, expression)


def _cron(expression: str, schedule: Schedule) -> Cron:
    """The very object that the job's timetable will use: what was compiled to check it is not compiled again."""
    try:
        return shared_cron(expression, schedule.timezone, schedule.gap, schedule.fold)
    except ScheduleError as error:
        if error.field != "timezone":
            raise
        return shared_cron(expression, "UTC", schedule.gap, schedule.fold)


def _exclusion_problems(schedule: Schedule) -> Iterator[Problem]:
    if not schedule.exclude:
        return
    if len(schedule.exclude) > EXCLUSIONS_MAX:
        message = f"at most {EXCLUSIONS_MAX} exclusions are allowed, not {len(schedule.exclude)}"
        yield problem("schedule.exclude", "exclusions-max", message, str(len(schedule.exclude)))
        return
    expressions = sum(bool(each.cron) for each in schedule.exclude)
    if expressions > EXPRESSIONS_MAX:
        message = (
            f"at most {EXPRESSIONS_MAX} of the exclusions are cron expressions, not {expressions}: use ranges"
        )
        yield problem("schedule.exclude", "expressions-max", message, str(expressions))
        return
    for i, each in enumerate(schedule.exclude):
        yield from _one_exclusion_problems(f"schedule.exclude[{i}]", each, schedule)


def _one_exclusion_problems(field: str, each: Exclusion, schedule: Schedule) -> Iterator[Problem]:
    if each.cron and each.from_ms is None and each.to_ms is None:
        yield from _expression_problems(f"{field}.cron", each.cron, schedule, must_fire=False)
    elif each.cron or each.from_ms is None or each.to_ms is None:
        yield problem(
            field, "exclusion", "an exclusion is {cron: ...}, or {from: ..., to: ...} with both ends"
        )
    else:
        bad = [
            *_instant_problems(f"{field}.from", each.from_ms),
            *_instant_problems(f"{field}.to", each.to_ms),
        ]
        if not bad and each.from_ms >= each.to_ms:
            message = f"to is not after from ({format_instant(each.from_ms)}); the range ends before it: give the day after"
            bad = [problem(f"{field}.to", "order", message, format_instant(each.to_ms))]
        yield from bad


def _end_problems(schedule: Schedule) -> Iterator[Problem]:
    """That a schedule whose parts are well formed has no occurrence: none between its bounds, or all excluded."""
    for i, each in enumerate(schedule.exclude):
        if set(each.cron.split()) == {"*"} and schedule.kind != "manual":
            message = f"{each.cron} excludes every instant, so the schedule would never run"
            yield problem(f"schedule.exclude[{i}].cron", "never", message, each.cron)
            return
    match schedule.kind:
        case "at":
            yield from _at_problems(schedule)
        case "cron" | "every" | "delay":
            yield from _never_problems(schedule)
        case "manual":
            pass
        case _:
            assert_never(schedule.kind)


def _at_problems(schedule: Schedule) -> Iterator[Problem]:
    starts_ms, ends_ms, at_ms = schedule.starts_at_ms, schedule.ends_at_ms, schedule.at_ms
    assert at_ms is not None
    reason = ""
    if starts_ms is not None and at_ms < starts_ms:
        reason = f"at lies before starts_at ({format_instant(starts_ms)})"
    elif ends_ms is not None and at_ms >= ends_ms:
        reason = f"at is not before ends_at ({format_instant(ends_ms)})"
    if reason:
        yield problem("schedule.at", "never", f"{reason}: it would never run", format_instant(at_ms))
    elif schedule.exclude and _timetable(schedule).next_nominal(at_ms - 1) is None:
        message = f"the exclusions leave nothing of it: {format_instant(at_ms)} is excluded"
        yield problem("schedule.exclude", "never", message)


def _never_problems(schedule: Schedule) -> Iterator[Problem]:
    """One search from the first instant that may run, as every arming of the job makes one."""
    starts_ms, ends_ms = schedule.starts_at_ms, schedule.ends_at_ms
    if starts_ms is None and ends_ms is None and not schedule.exclude:
        return
    start_ms = 0 if starts_ms is None else starts_ms
    found = _timetable(schedule).next_nominal(start_ms - 1)
    since = f" from {format_instant(start_ms)}" if starts_ms is not None else ""
    match found:
        case int():
            return
        case Continuation():
            if _leaves_nothing(schedule, start_ms, found):
                yield problem("schedule.exclude", "never", f"the exclusions leave nothing of it{since}")
        case None if ends_ms is not None:
            message = f"the schedule has no occurrence{since} before ends_at: it would never run"
            yield problem("schedule.ends_at", "never", message, format_instant(ends_ms))
        case None if schedule.exclude:
            yield problem("schedule.exclude", "never", f"the exclusions leave nothing of it{since}")
        case None:
            message = f"the schedule has no occurrence{since}: it would never run"
            yield problem("schedule.starts_at", "never", message, format_instant(start_ms))
        case _:
            assert_never(found)


def _leaves_nothing(schedule: Schedule, start_ms: int, stopped: Continuation) -> bool:
    """Whether the expressions among the exclusions alone leave no occurrence, as far as a search can tell."""
    expressions = tuple([each for each in schedule.exclude if each.cron])
    found: int | Continuation | None = stopped
    if len(expressions) < len(schedule.exclude):  # a range that the search jumped over says nothing of them
        found = _timetable(replace(schedule, exclude=expressions)).next_nominal(start_ms - 1)
    enough_ms = NOTHING_LEFT_MS if len(expressions) == 1 else NOTHING_LEFT_BY_SEVERAL_MS
    return isinstance(found, Continuation) and found.resume_from_ms - start_ms >= enough_ms


def _timetable(schedule: Schedule) -> Timetable:
    """The occurrences; or, where they count from what is not known yet, every second that one could fall into."""
    is_known = schedule.anchor_ms is not None or schedule.kind not in ("every", "delay")
    ranges = [(each.from_ms, each.to_ms) for each in schedule.exclude]
    return Timetable(
        kind=schedule.kind if is_known else "cron",
        crons=schedule.cron if is_known else ("* * * * * *",),
        timezone=schedule.timezone,
        gap=schedule.gap,
        fold=schedule.fold,
        every_ms=schedule.every_ms or 0,
        anchor_ms=schedule.anchor_ms or 0,
        at_ms=schedule.at_ms or 0,
        exclude_crons=tuple([each.cron for each in schedule.exclude if each.cron]),
        exclude_ranges=tuple(
            [(start, end) for start, end in ranges if start is not None and end is not None]
        ),
        starts_at_ms=schedule.starts_at_ms,
        ends_at_ms=schedule.ends_at_ms,
    )


def _age_problems(at_ms: int, catchup: CatchUp, now_ms: int) -> Iterator[Problem]:
    if at_ms < now_ms - catchup.window_ms:
        message = (
            f"at lies further in the past than catchup.window ({duration_text(catchup.window_ms)}), so it would "
            "not run: give an instant ahead, or trigger the job"
        )
        yield problem("schedule.at", "at-too-old", message, _instant_text(at_ms))
