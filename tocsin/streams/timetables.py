"""From a definition to its timetable. Timetables are values: jobs with the same schedule share one."""

from functools import lru_cache
from typing import Final

from tocsin.schedules.timetable import Timetable
from tocsin.schemas.job import Schedule
from tocsin.schemas.rows import DefinitionRow, JobRow

TIMETABLES_KEPT_MAX: Final = 16_384
"""Building one costs some 10 us; the crons inside are shared anyway."""


def timetable_of(definition: DefinitionRow, row: JobRow) -> Timetable:
    """When the job's occurrences are. Raises ScheduleError if its zone or expression is not known here."""
    schedule = definition.job.schedule
    match schedule.kind:
        case "every":
            base_ms = row.created_ms if schedule.anchor_ms is None else schedule.anchor_ms
        case "delay":
            base_ms = row.schedule_since_ms
        case _:
            base_ms = 0
    return timetable_for(schedule, base_ms)


@lru_cache(maxsize=TIMETABLES_KEPT_MAX)
def timetable_for(schedule: Schedule, base_ms: int) -> Timetable:
    """`base_ms`: the anchor of `every`, or what `delay` counts from; 0 for the others, so that they are shared."""
    return Timetable(
        kind=schedule.kind,
        crons=schedule.cron,
        timezone=schedule.timezone,
        gap=schedule.gap,
        fold=schedule.fold,
        every_ms=schedule.every_ms or 0,
        anchor_ms=base_ms if schedule.every_ms is not None else 0,
        after_completion=schedule.after_completion,
        at_ms=schedule.at_ms or 0,
        delay_ms=schedule.delay_ms or 0,
        base_ms=base_ms if schedule.delay_ms is not None else 0,
        exclude_crons=tuple(each.cron for each in schedule.exclude if each.cron),
        exclude_ranges=tuple(
            (each.from_ms, each.to_ms)
            for each in schedule.exclude
            if each.from_ms is not None and each.to_ms is not None
        ),
        starts_at_ms=schedule.starts_at_ms,
        ends_at_ms=schedule.ends_at_ms,
        spread_ms=schedule.spread_ms,
    )
