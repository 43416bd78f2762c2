"""How jobs, runs and dead letters look in JSON: the shapes of the documentation, instants as ISO 8601, "not set" as null."""

from collections.abc import Callable
from typing import Any, TypeVar

from tocsin.log.port import Delivery
from tocsin.schedules.instants import format_instant
from tocsin.schemas.document import render
from tocsin.schemas.records import Attempt, DeadLetter, RunEvent
from tocsin.schemas.rows import JobRow
from tocsin.streams.queries import JobView, MissingPartition, Page, sentence

T = TypeVar("T")


def instant(ms: int) -> str | None:
    """0 and below mean "not set" on the log."""
    return format_instant(ms) if ms > 0 else None


def coordinates(delivery: Delivery) -> dict[str, object]:
    return {"topic": delivery.topic, "partition": delivery.partition, "offset": delivery.offset}


def page(items: Page[T], show: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    return {
        "items": [show(item) for item in items.items],
        "next_cursor": items.next_cursor or None,
        "missing_partitions": [missing_partition(each) for each in items.missing],
    }


def missing_partition(missing: MissingPartition) -> dict[str, Any]:
    return {
        "partition": missing.partition,
        "reason": missing.reason,
        "detail": sentence(missing),
        "restore_done": missing.restore_done,
        "restore_total": missing.restore_total,
        "restore_eta_s": missing.restore_eta_s,
    }


def job_state(row: JobRow) -> str:
    if row.broken:
        return "broken"
    if row.paused:
        return "paused"
    return "finished" if row.finished_ms and not row.open else "active"


def next_instants(row: JobRow) -> dict[str, str | None]:
    """The next occurrence, if it is known. Where exclusions left nothing in a long search, only how far it has come."""
    is_known = row.armed not in ("none", "continue")
    return {
        "next_nominal": instant(row.armed_nominal_ms) if is_known else None,
        "next_due": instant(row.armed_due_ms) if is_known else None,
        "none_before": instant(row.armed_nominal_ms) if row.armed == "continue" else None,
    }


def job(view: JobView, *, full: bool = False) -> dict[str, Any]:
    """A job with its definition: what was given, or with `full` every default as well."""
    row = view.row
    return {
        **job_line(view),
        "definition": None if view.job is None else render(view.job, full),
        "pause": {
            "by": row.paused_by or None,
            "reason": row.paused_reason or None,
            "until": instant(row.paused_until_ms),
        }
        if row.paused
        else None,
        "skip_next": row.skip_next,
        "created_at": instant(row.created_ms),
        "defined_at": instant(view.defined_ms),
        "defined_by": view.actor or None,
        "definition_offset": view.definition_offset,
        "finished_at": instant(row.finished_ms),
        "delete_at": instant(row.delete_at_ms),
        "last_failure": {"at": instant(row.last_failure_ms), "error": row.last_error or None}
        if row.last_failure_ms
        else None,
    }


def job_line(view: JobView) -> dict[str, Any]:
    """A job as lists show it, without its definition."""
    row = view.row
    defined = view.job
    namespace, _, job_id = view.key.partition("/")
    return {
        "key": view.key,
        "namespace": namespace,
        "id": job_id,
        "description": "" if defined is None else defined.description,
        "labels": {} if defined is None else dict(defined.labels),
        "queue": None if defined is None else defined.queue,
        "schedule": None if defined is None else _schedule_text(render(defined, False).get("schedule")),
        "revision": row.revision,
        "state": job_state(row),
        "broken": row.broken or None,
        **next_instants(row),
        "open_runs": len(row.open),
        "consecutive_failures": row.consecutive_failures,
        "last_run": {
            "run_id": row.last_run_id,
            "status": row.last_status,
            "ended_at": instant(row.last_ended_ms),
            "lateness_ms": row.last_lateness_ms,
        }
        if row.last_run_id
        else None,
    }


def _schedule_text(schedule: Any) -> str:
    """One line for a list: `cron 0 9 * * MON-FRI (Europe/Berlin)`."""
    if not isinstance(schedule, dict):
        return "manual"
    for kind in ("cron", "every", "at", "delay"):
        if kind in schedule:
            value = schedule[kind]
            text = " | ".join(value) if isinstance(value, list) else str(value)
            zone = schedule.get("timezone", "UTC")
            return f"{kind} {text}" if zone == "UTC" else f"{kind} {text} ({zone})"
    return "manual"


def run(event: RunEvent) -> dict[str, Any]:
    """A run, or a series of skipped occurrences (then with `last_nominal` and `count`)."""
    shown: dict[str, Any] = {
        "run_id": event.run_id,
        "job": f"{event.namespace}/{event.job_id}",
        "revision": event.revision,
        "cause": event.cause,
        "nominal": instant(event.nominal_ms),
        "due": instant(event.due_ms),
        "status": event.status,
        "reason": event.reason or None,
        "updated_at": instant(event.event_ms),
        "attempts": [attempt(a) for a in event.attempts],
    }
    if event.count != 1 or event.count_at_least:
        shown["last_nominal"] = instant(event.last_nominal_ms)
        shown["count"] = event.count
        shown["count_at_least"] = event.count_at_least
    return shown


def attempt(a: Attempt) -> dict[str, Any]:
    return {
        "attempt": a.attempt,
        "dispatch": a.dispatch,
        "due": instant(a.due_ms),
        "dispatched_at": instant(a.dispatched_ms),
        "started_at": instant(a.started_ms),
        "ended_at": instant(a.ended_ms),
        "lateness_ms": a.lateness_ms if a.started_ms else None,
        "outcome": a.outcome,
        "http_status": a.http_status or None,
        "error": a.error or None,
        "response": a.response or None,
        "worker": a.worker or None,
        "next_attempt_at": instant(a.next_attempt_ms),
    }


def dead_letter(letter: DeadLetter) -> dict[str, Any]:
    return {**run(letter.run), "died_at": instant(letter.died_ms)}
