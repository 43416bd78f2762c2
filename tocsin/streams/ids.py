"""Run ids: deterministic, so that the same occurrence is never two runs."""

import re
from typing import Final

from tocsin.schedules.instants import format_compact
from tocsin.schemas.job import JobKey

_MARK: Final = re.compile("[@!]")


def occurrence_run_id(key: str, nominal_ms: int) -> str:
    """`ns/id@20260308T070000.000Z`."""
    return f"{key}@{format_compact(nominal_ms)}"


def trigger_run_id(key: str, trigger_id: str) -> str:
    """`ns/id!t.<trigger id>`."""
    return f"{key}!t.{trigger_id}"


def job_key_of(run_id: str) -> JobKey:
    """The job key at the head of a run id. Raises ValueError if there is none."""
    mark = _MARK.search(run_id)  # the first: what follows is anybody's, and may hold the other one
    if mark is not None and run_id.count("/", 0, mark.start()) == 1:
        return JobKey(run_id[: mark.start()])
    raise ValueError(f"{run_id!r} is no run id: expected namespace/id@instant or namespace/id!kind.name")
