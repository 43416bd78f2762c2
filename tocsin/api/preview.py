"""What a schedule would do, before anybody defines it."""

import asyncio
from typing import Any, Final, assert_never

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from tocsin.api import views
from tocsin.api.context import Api
from tocsin.api.openapi import operation
from tocsin.api.problems import ApiProblem, invalid, invalid_job
from tocsin.api.requests import read_object
from tocsin.schedules.durations import format_duration
from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.explain import explain
from tocsin.schedules.instants import format_instant, parse_instant
from tocsin.schedules.timetable import Continuation, Timetable
from tocsin.schedules.zones import zone
from tocsin.schemas.document import parse
from tocsin.schemas.job import Job, Schedule
from tocsin.schemas.problems import problems
from tocsin.streams.timetables import timetable_for

router = APIRouter(prefix="/v1", tags=["jobs"])

COUNT_MAX: Final = 1_000
COUNT: Final = 10
PREVIEW_KEY: Final = {"namespace": "default", "id": "preview"}
PREVIEW_TARGET: Final = {"http": {"url": "https://example.com/"}}


@router.post("/jobs:preview", **operation("previewJob", body="preview", done="previewed"))
async def preview(api: Api, request: Request) -> JSONResponse:
    """The next instants of a job's document, or of a schedule alone, in words and with what may surprise.

    `after` is the instant to look from (default: now), `count` how many (default 10, at most 1,000).
    """
    fields = await read_object(
        request, {"document": (dict,), "schedule": (dict,), "count": (int,), "after": (str,)}
    )
    count = fields.get("count", COUNT)
    if not 1 <= count <= COUNT_MAX:
        raise invalid("count", "range", f"1 to {COUNT_MAX}", str(count))
    after_ms = api.services.clock.now_ms()
    if "after" in fields:
        try:
            after_ms = parse_instant(fields["after"])
        except ScheduleError as error:
            raise invalid("after", error.rule, error.message, error.value) from None
    job = _job(fields)
    return JSONResponse(await asyncio.to_thread(_preview, job, after_ms, count))


def _job(fields: dict[str, Any]) -> Job:
    match fields.get("document"), fields.get("schedule"):
        case None, None:
            raise invalid("schedule", "one-of", "give a schedule, or a whole document")
        case None, schedule:
            document = {**PREVIEW_KEY, "schedule": schedule, "target": PREVIEW_TARGET}
        case given, None:
            assert given is not None
            document = {**PREVIEW_KEY, "target": PREVIEW_TARGET, **given}
        case _:
            raise invalid("document", "one-of", "give a schedule or a document, not both")
    job, found = parse(document)
    if job is None or found:
        raise invalid_job(found)
    # That an `at` has passed is for the list to show, not an error.
    wrong = problems(job)
    if wrong:
        raise invalid_job(wrong)
    return job


SEARCHES_MAX: Final = 10
"""Searches that end without an occurrence, each after 10,000 excluded candidates: together well under a second."""


def _preview(job: Job, after_ms: int, count: int) -> dict[str, Any]:
    """A delay, and an interval without an anchor, count from the definition: here from `after`."""
    schedule = job.schedule
    base_ms = after_ms
    if schedule.kind == "every":
        base_ms = after_ms if schedule.anchor_ms is None else schedule.anchor_ms
    elif schedule.kind != "delay":
        base_ms = 0
    try:
        table = timetable_for(schedule, base_ms)
        reading, warnings = _words(schedule, after_ms)
        # An `at` is shown although it has passed: whether it still runs is said when the job is defined.
        start_ms = min(after_ms, schedule.at_ms - 1) if schedule.at_ms is not None else after_ms
        limit = count if schedule.max_runs is None else min(count, schedule.max_runs)
        nominals, gave_up = _nominals(table, start_ms, limit)
        warnings += gave_up
    except ScheduleError as error:
        raise ApiProblem(
            "invalid-job",
            errors=[
                {"field": "schedule", "rule": error.rule, "message": error.message, "value": error.value}
            ],
        ) from None
    spread_ms = table.spread_offset(job.key)
    shown = []
    for nominal_ms in nominals:
        entry = {"nominal": format_instant(nominal_ms), "local": _local(nominal_ms, schedule.timezone)}
        if spread_ms:
            entry["due"] = format_instant(nominal_ms + spread_ms)
        shown.append(entry)
    return {"kind": schedule.kind, "reading": reading, "warnings": warnings, "next": shown}


def _nominals(table: Timetable, start_ms: int, limit: int) -> tuple[list[int], list[str]]:
    """The next `limit` nominals, as far as they are found soon: exclusions can leave out years one by one."""
    found: list[int] = []
    after_ms = start_ms
    for _ in range(limit + SEARCHES_MAX):
        match table.next_nominal(after_ms):
            case None:
                break
            case Continuation(resume_from_ms=from_ms):
                after_ms = from_ms
            case nominal_ms:
                found.append(nominal_ms)
                after_ms = nominal_ms
        if len(found) == limit:
            break
    else:
        return found, [
            f"nothing more is found up to {format_instant(after_ms)}: exclude leaves out all until then"
        ]
    return found, []


def _words(schedule: Schedule, after_ms: int) -> tuple[str, list[str]]:
    match schedule.kind:
        case "cron":
            explained = [
                explain(
                    each, schedule.timezone, after_ms=after_ms, count=1, gap=schedule.gap, fold=schedule.fold
                )
                for each in schedule.cron
            ]
            reading = "; and ".join(each.reading for each in explained)
            warnings = [warning.message for each in explained for warning in each.warnings]
        case "every":
            how = "after the end of each run" if schedule.after_completion else "at a fixed rate"
            reading, warnings = f"every {format_duration(schedule.every_ms or 0)}, {how}", []
        case "at":
            reading, warnings = f"once, at {views.instant(schedule.at_ms or 0)}", []
        case "delay":
            reading, warnings = f"once, {format_duration(schedule.delay_ms or 0)} after it is defined", []
        case "manual":
            reading, warnings = "only when it is triggered", []
        case _:
            assert_never(schedule.kind)
    if schedule.exclude:
        reading += ", but for what is excluded"
    if schedule.spread_ms:
        reading += f", spread over {format_duration(schedule.spread_ms)}"
    return reading, list(dict.fromkeys(warnings))


def _local(instant_ms: int, timezone: str) -> str:
    """What the clocks of the zone show, with their offset: 2026-03-09T09:00:00+01:00."""
    offset_s = zone(timezone).offset_at(instant_ms // 1000)
    sign = "-" if offset_s < 0 else "+"
    hours, rest = divmod(abs(offset_s), 3600)
    text = format_instant(instant_ms + offset_s * 1000)
    return f"{text[:19]}{sign}{hours:02d}:{rest // 60:02d}"
