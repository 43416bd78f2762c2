"""From a document to a definition that may be written, or to everything that is wrong with it."""

from collections.abc import Mapping
from typing import Any, Final

from tocsin.api.services import ConfigSnapshot
from tocsin.api.writes import same_definition
from tocsin.schemas.document import parse
from tocsin.schemas.job import Job, JobKey, Problem
from tocsin.schemas.problems import problems
from tocsin.streams.queries import Queries

QUEUES_NAMED_MAX: Final = 20


def check(
    document: Any, *, config: ConfigSnapshot, queries: Queries, now_ms: int
) -> tuple[Job | None, list[Problem]]:
    """The job and no problems, or all problems of the document together (the job, too, if it could be read)."""
    job, found = parse(document)
    if job is None:
        return None, list(found)
    found = [*found, *problems(job, now_ms=now_ms), *queue_problems(job, config.queues)]
    if found and _in_force(job, queries):
        return job, []
    return job, found


def _in_force(job: Job, queries: Queries) -> bool:
    """A document that says what holds already is never refused: an `at` that was in the future when it was defined
    lies in the past when the same file is applied again."""
    view = queries.get_job(JobKey(job.key))
    return (
        view is not None and view.job is not None and not view.row.broken and same_definition(job, view.job)
    )


def queue_problems(job: Job, queues: Mapping[str, Any]) -> list[Problem]:
    queue = queues.get(job.queue)
    if queue is None or queue.deleted:
        kind = target_kind(job)
        names = sorted(name for name, q in queues.items() if not q.deleted)
        shown = ", ".join(names[:QUEUES_NAMED_MAX]) + (", ..." if len(names) > QUEUES_NAMED_MAX else "")
        return [
            Problem(
                field="queue",
                rule="unknown-queue",
                message=f"there is no queue {job.queue}; existing queues: {shown or 'none'}. "
                f"Create it with `tocsin queues create {job.queue} --kind {kind}`",
                value=job.queue,
            )
        ]
    if queue.kind != target_kind(job):
        fitting = sorted(name for name, q in queues.items() if q.kind == target_kind(job) and not q.deleted)
        hint = f"use {' or '.join(fitting[:QUEUES_NAMED_MAX])}" if fitting else "create one that does"
        return [
            Problem(
                field="queue",
                rule="queue-kind",
                message=f"queue {job.queue} holds {queue.kind} targets and this target is {target_kind(job)}: {hint}",
                value=job.queue,
            )
        ]
    return []


def target_kind(job: Job) -> str:
    return "function" if job.function is not None else "http"
