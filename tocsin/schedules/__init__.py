"""When a job is due. Pure: an instant in, an instant out; integers, milliseconds since the epoch, UTC.

This is the lowest layer: it knows no job, no log and no clock, and imports nothing else of Tocsin.

* ``Timetable`` is a job's whole schedule as the processors use it: next, previous, count, newest, spread.
* ``Cron`` is one expression in a zone.
* ``parse_...``, ``format_...`` and ``resolve_local`` are for the edges, where people write instants and
  durations.
* ``tocsin.schedules.explain`` says in words what an expression does, and warns.

Whatever is written wrongly raises ``ScheduleError``, with the field, the rule and a sentence that says what
to write.
"""

from tocsin.schedules.cron import COUNT_LIMIT, Count, Cron, shared_cron
from tocsin.schedules.durations import format_duration, parse_duration
from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.instants import (
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    format_compact,
    format_instant,
    parse_compact,
    parse_instant,
    resolve_local,
)
from tocsin.schedules.timelines import FOLDS, GAPS, Fold, Gap
from tocsin.schedules.timetable import EVERY_MIN_MS, Continuation, Kind, Timetable, spread_offset
from tocsin.schedules.zones import Zone, tzdata_version, zone, zone_names

__all__ = [
    "COUNT_LIMIT",
    "EVERY_MIN_MS",
    "FOLDS",
    "GAPS",
    "INSTANT_MAX_MS",
    "INSTANT_MIN_MS",
    "Continuation",
    "Count",
    "Cron",
    "Fold",
    "Gap",
    "Kind",
    "ScheduleError",
    "Timetable",
    "Zone",
    "format_compact",
    "format_duration",
    "format_instant",
    "parse_compact",
    "parse_duration",
    "parse_instant",
    "resolve_local",
    "shared_cron",
    "spread_offset",
    "tzdata_version",
    "zone",
    "zone_names",
]
