"""From a document to a definition that may be written, or to everything that is wrong with it."""

from typing import Any, Final

from tocsin.api.admission import queue_problems
from tocsin.api.services import ConfigSnapshot
from tocsin.api.writes import same_definition
from tocsin.schemas.document import parse
from tocsin.schemas.job import Job, Problem
from tocsin.schemas.problems import problems
from tocsin.streams.queries import JobView

TOO_OLD: Final = "at-too-old"


def check(document: Any, *, config: ConfigSnapshot, now_ms: int) -> tuple[Job | None, list[Problem]]:
    """The job and no problems, or all problems of the document together (the job, too, if it could be read)."""
    job, misread = parse(document)
    if job is None:
        return None, list(misread)
    return job, [*problems(job, now_ms=now_ms), *queue_problems(job, config.queues)]


def may_be_in_force(found: list[Problem]) -> bool:
    """Whether the job may be right all the same: an `at` that was ahead when it was defined lies in the past when the
    same file is applied again."""
    return bool(found) and all(p.rule == TOO_OLD for p in found)


def in_force(job: Job, view: JobView | None) -> bool:
    """Whether the document says what holds already; such a one is never refused."""
    return (
        view is not None and view.job is not None and not view.row.broken and same_definition(job, view.job)
    )
