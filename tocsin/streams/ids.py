"""Run ids: deterministic, so that the same occurrence is never two runs."""

from tocsin.schedules.instants import format_compact
from tocsin.schemas.job import JobKey


def occurrence_run_id(key: str, nominal_ms: int) -> str:
    """`ns/id@20260308T070000.000Z`."""
    return f"{key}@{format_compact(nominal_ms)}"


def trigger_run_id(key: str, trigger_id: str) -> str:
    """`ns/id!t.<trigger id>`."""
    return f"{key}!t.{trigger_id}"


def job_key_of(run_id: str) -> JobKey:
    """The job key at the head of a run id. Raises ValueError if there is none."""
    for mark in "@!":
        head, found, _ = run_id.partition(mark)
        if found and head.count("/") == 1:
            return JobKey(head)
    raise ValueError(f"{run_id!r} is no run id: expected namespace/id@instant or namespace/id!kind.name")
