"""Whether a job's queue exists and holds its kind of target. Light to import: `tocsin jobs apply` asks the same."""

from collections.abc import Mapping
from typing import Final

from tocsin.schemas.job import Job, Problem
from tocsin.schemas.records import Queue

QUEUES_NAMED_MAX: Final = 20


def queue_problems(job: Job, queues: Mapping[str, Queue]) -> list[Problem]:
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
