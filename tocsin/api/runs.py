"""Runs and dead letters: read, cancel, run again."""

import asyncio
import re
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from tocsin.api import views
from tocsin.api.context import Api, Context
from tocsin.api.jobs import NOT_APPLIED, known_job, listed, reason_of
from tocsin.api.openapi import operation
from tocsin.api.problems import ID_SENTENCE, ApiProblem, invalid
from tocsin.api.requests import (
    ID_OR_NOTHING,
    Cursor,
    JobId,
    Limit,
    Namespace,
    Rest,
    Wait,
    actor_of,
    read_object,
)
from tocsin.log.port import Delivery
from tocsin.schemas.job import JobKey
from tocsin.schemas.limits import ID_PATTERN
from tocsin.schemas.records import CancelRun, Redrive, RunEvent
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.ids import job_key_of
from tocsin.streams.queries import PartitionsMissing

router = APIRouter(prefix="/v1")

REDRIVE_MAX: Final = 1_000
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "superseded", "skipped"})

Status = Annotated[
    Literal[
        "", "scheduled", "running", "retrying", "buffered", "waiting", "undecided",
        "succeeded", "failed", "cancelled", "superseded", "skipped",
    ],
    Query(description="Only runs of this status."),
]  # fmt: skip
OneNamespace = Annotated[str, Query(pattern=ID_OR_NOTHING, description="Only this namespace.")]


@router.get("/runs", tags=["runs"], **operation("recentRuns", done="run_list"))
async def recent_runs(
    api: Api, namespace: OneNamespace = "", status: Status = "", limit: Limit = 100
) -> JSONResponse:
    """The newest runs of all jobs, newest first, from a bounded memory of what happened lately."""
    found = await api.asks.recent_runs(namespace=namespace, status=status, limit=limit)
    return listed(api, found, views.run)


@router.get("/jobs/{namespace}/{id}/runs", tags=["runs"], **operation("runsOfJob", done="run_list"))
async def runs_of_job(
    api: Api,
    namespace: Namespace,
    job_id: JobId,
    cursor: Cursor = "",
    limit: Limit = 50,
) -> JSONResponse:
    """The runs of a job, newest first: those that are open, and the last that ended (older ones are on the log)."""
    view = await known_job(api, f"{namespace}/{job_id}")
    try:
        found = await api.asks.runs_of(view.key, cursor=cursor, limit=limit)
    except InvalidCursor as error:
        raise invalid("cursor", "cursor", str(error), cursor) from None
    return JSONResponse(views.page(found, views.run))


@router.get("/runs/{namespace}/{rest:path}", tags=["runs"], **operation("getRun", done="run"))
async def get_run(api: Api, namespace: Namespace, rest: Rest) -> JSONResponse:
    """One run, by its run id."""
    _, run = await _known(api, namespace, rest)
    return JSONResponse(views.run(run))


def _run_id(namespace: str, rest: str) -> tuple[JobKey, str]:
    """The job key and the run id."""
    run_id = f"{namespace}/{rest}"
    try:
        key = job_key_of(run_id)
    except ValueError as error:
        raise ApiProblem("unknown-run", str(error)) from None
    if not re.fullmatch(ID_PATTERN, key.partition("/")[2]):
        raise ApiProblem("unknown-run", f"No run {run_id} is known: {key} is no key of a job.")
    return key, run_id


async def _run_to_steer(api: Context, key: str, run_id: str) -> RunEvent | None:
    """The run, for a command to it; None while nobody can be asked about it: see jobs.job_to_steer()."""
    try:
        return await _known_run(api, key, run_id)
    except PartitionsMissing:
        return None


async def _known(api: Context, namespace: str, rest: str) -> tuple[str, RunEvent]:
    """The job key and the run."""
    key, run_id = _run_id(namespace, rest)
    return key, await _known_run(api, key, run_id)


async def _known_run(api: Context, key: str, run_id: str) -> RunEvent:
    run = await api.writes.find_run(run_id, key)
    if run is None:
        raise ApiProblem(
            "unknown-run", f"No run {run_id} is known; runs that left the job's history are on the log."
        )
    return run


@router.post(
    "/runs/{namespace}/{rest:path}/cancel",
    tags=["runs"],
    **operation("cancelRun", body="reason", accepted="run_command", done="cancelled"),
)
async def cancel_run(
    api: Api, request: Request, namespace: Namespace, rest: Rest, wait: Wait = "acknowledged"
) -> JSONResponse:
    """Cancel a run at any stage: what has not begun will not begin, and a request under way is aborted."""
    fields = await read_object(request, {"reason": (str,)})
    key, run_id = _run_id(namespace, rest)
    before = await _run_to_steer(api, key, run_id)
    if before is not None and before.status in ENDED:
        raise ApiProblem("run-ended", f"{run_id} {_ended(before.status)}; there is nothing left to cancel.")
    delivery = await api.writes.command(
        CancelRun(
            namespace=namespace,
            id=key.partition("/")[2],
            run_id=run_id,
            actor=actor_of(request),
            reason=reason_of(fields),
        )
    )
    answer = _answer(run_id, key, delivery)
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, after = await api.writes.after(delivery, lambda: api.asks.get_run(run_id))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    after = after or before
    if after is None:
        raise ApiProblem("unknown-run", f"No run {run_id} was known when the cancel was applied.")
    if after.status in ENDED and after.status != "cancelled":
        raise ApiProblem("run-ended", f"{run_id} {_ended(after.status)} before the cancel was applied.")
    answer |= {"result": "cancelled" if after.status == "cancelled" else "requested", "run": views.run(after)}
    return JSONResponse(answer)


def _ended(status: str) -> str:
    return status if status in ("succeeded", "failed") else f"was {status}"


def _answer(run_id: str, key: str, delivery: Delivery) -> dict[str, object]:
    return {"run_id": run_id, "key": key, "result": "acknowledged", **views.coordinates(delivery)}


# --- dead letters -----------------------------------------------------------------------------------------------------


@router.get("/dead-letters", tags=["dead letters"], **operation("listDeadLetters", done="dead_letter_list"))
async def list_dead_letters(
    api: Api, namespace: OneNamespace = "", cursor: Cursor = "", limit: Limit = 100
) -> JSONResponse:
    """Runs whose attempts are exhausted or that failed for good, and that nobody has run again.

    `missing_partitions` names what could not be asked.
    """
    try:
        found = await api.asks.dead_letters(namespace=namespace, cursor=cursor, limit=limit)
    except InvalidCursor as error:
        raise invalid("cursor", "cursor", str(error), cursor) from None
    return listed(api, found, views.dead_letter)


@router.post(
    "/dead-letters/{namespace}/{rest:path}/redrive",
    tags=["dead letters"],
    **operation("redriveDeadLetter", body="reason", accepted="run_command", done="redriven"),
)
async def redrive(
    api: Api, request: Request, namespace: Namespace, rest: Rest, wait: Wait = "acknowledged"
) -> JSONResponse:
    """Run a dead letter again: the same run id, and its attempts go on counting, under the retry policy it had."""
    fields = await read_object(request, {"reason": (str,)})
    key, run = await _known(api, namespace, rest)
    if run.status != "failed":
        raise ApiProblem(
            "unknown-dead-letter", f"{run.run_id} is {run.status}; only a failed run can be run again."
        )
    delivery = await _redrive(api, run, actor_of(request), reason_of(fields))
    answer = _answer(run.run_id, key, delivery)
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, after = await api.writes.after(delivery, lambda: api.asks.get_run(run.run_id))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    if after is None or (after.status == "failed" and after.dispatch == run.dispatch):
        raise ApiProblem("rejected", f"{run.run_id} is no dead letter any more, or its job was deleted.")
    return JSONResponse({**answer, "result": "redriven", "run": views.run(after)})


@router.post(
    "/dead-letters:redrive",
    tags=["dead letters"],
    **operation("redriveDeadLetters", body="redrive", done="redrive_results"),
)
async def redrive_many(api: Api, request: Request) -> JSONResponse:
    """Run the dead letters of a namespace (or of all) again, up to `limit` (100 unless given, at most 1,000).

    With `dry_run` nothing is run, and the answer says what would be. Answered when the log has all commands; go on with
    `next_cursor` until it is null.
    """
    fields = await read_object(
        request,
        {"namespace": (str,), "cursor": (str,), "limit": (int,), "dry_run": (bool,), "reason": (str,)},
    )
    limit = fields.get("limit", 100)
    if not 1 <= limit <= REDRIVE_MAX:
        raise invalid("limit", "range", f"1 to {REDRIVE_MAX}", str(limit))
    namespace = fields.get("namespace", "")
    if namespace and not re.fullmatch(ID_PATTERN, namespace):
        raise invalid("namespace", "id-grammar", ID_SENTENCE, namespace)
    try:
        found = await api.asks.dead_letters(namespace=namespace, cursor=fields.get("cursor", ""), limit=limit)
    except InvalidCursor as error:
        raise invalid("cursor", "cursor", str(error), fields["cursor"]) from None
    if found.missing:  # whoever follows the cursors to the end would believe that all were run again
        raise PartitionsMissing(found.missing)
    run_ids = [letter.run.run_id for letter in found.items]
    dry_run = fields.get("dry_run", False)
    if not dry_run:
        reason, actor = reason_of(fields), actor_of(request)
        await asyncio.gather(*[_redrive(api, letter.run, actor, reason) for letter in found.items])
    return JSONResponse(
        {
            "run_ids": run_ids,
            "count": len(run_ids),
            "dry_run": dry_run,
            "next_cursor": found.next_cursor or None,
        }
    )


async def _redrive(api: Context, run: RunEvent, actor: str, reason: str) -> Delivery:
    return await api.writes.command(
        Redrive(
            namespace=run.namespace,
            id=run.job_id,
            run_id=run.run_id,
            seq=run.seq,
            actor=actor,
            reason=reason,
        )
    )
