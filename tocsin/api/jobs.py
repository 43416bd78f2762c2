"""Jobs: define, read, list, delete, and the commands to one job."""

import base64
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import JSONResponse

from tocsin.api import views
from tocsin.api.context import Api, Context
from tocsin.api.definitions import check, in_force, may_be_in_force
from tocsin.api.openapi import operation
from tocsin.api.problems import ID_SENTENCE, ApiProblem, errors_of, invalid, invalid_job
from tocsin.api.requests import (
    HALF_A_CHARACTER,
    ID_OR_NOTHING,
    Cursor,
    JobId,
    Limit,
    Namespace,
    Wait,
    actor_of,
    read_json,
    read_object,
)
from tocsin.api.writes import outcome_of
from tocsin.clock import new_id
from tocsin.log.port import Delivery
from tocsin.schedules.errors import ScheduleError
from tocsin.schedules.instants import parse_instant
from tocsin.schemas.job import Job, JobKey, Problem
from tocsin.schemas.limits import BODY_BYTES_MAX, ID_PATTERN, LABELS_MAX
from tocsin.schemas.problems import CONTROL_CHARACTER
from tocsin.schemas.records import Command, JobDefinition, Pause, Resume, SkipNext, Trigger
from tocsin.schemas.rows import JobRow
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.ids import trigger_run_id
from tocsin.streams.queries import JobFilter, JobView, Page, PartitionsMissing

router = APIRouter(prefix="/v1", tags=["jobs"])

T = TypeVar("T")

SKIP_NEXT_MAX: Final = 10_000
REASON_MAX: Final = 1_000
NOT_APPLIED: Final = (
    "The log has it; what the processor made of it is not known yet. It will be applied, and /readyz says what "
    "holds it up."
)

State = Annotated[
    Literal["", "active", "paused", "broken", "finished"], Query(description="Only jobs in this state.")
]


@router.put(
    "/jobs/{namespace}/{id}",
    **operation("defineJob", body="job", accepted="written", done="defined", created=True),
)
async def define_job(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
) -> JSONResponse:
    """Define a job, or change its definition.

    The same document again changes nothing: no new revision, no effect on what runs. `paused` in the document counts
    when the job is created; afterwards pause and resume alone decide.
    """
    document = _with_key(await read_json(request), namespace, job_id)
    job, found = check(document, config=api.services.config(), now_ms=api.services.clock.now_ms())
    if job is not None and may_be_in_force(found) and in_force(job, await api.asks.get_job(job.key)):
        found = []
    if job is None or found:
        raise invalid_job(found)
    existed = wait == "applied" and await _existed(api, job.key)
    delivery = await api.writes.define(
        JobDefinition(namespace=namespace, id=job_id, job=job, actor=actor_of(request), source="api")
    )
    answer = {"key": job.key, "result": "acknowledged", **views.coordinates(delivery)}
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, view = await api.writes.after(delivery, lambda: api.asks.get_job(job.key))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    return _defined(job, delivery, view, answer, existed=existed)


async def _existed(api: Context, key: JobKey) -> bool:
    """As far as it can be told: a definition is taken also while nobody knows."""
    try:
        return await api.asks.get_job(key) is not None
    except PartitionsMissing:
        return False


def _with_key(document: Any, namespace: str, job_id: str) -> dict[str, Any]:
    """The document with the key of the path; one that names another key is refused rather than moved."""
    if not isinstance(document, dict):
        raise invalid_job([Problem(field="", rule="object", message="a job definition is a JSON object")])
    for name, value in (("namespace", namespace), ("id", job_id)):
        if document.get(name, value) != value:
            message = f"the path says {value}; leave {name} out, or write the same"
            raise invalid_job(
                [Problem(field=name, rule="differs-from-path", message=message, value=str(document[name]))]
            )
    return {**document, "namespace": namespace, "id": job_id}


def _defined(
    job: Job, delivery: Delivery, view: JobView | None, answer: dict[str, object], *, existed: bool
) -> JSONResponse:
    outcome = outcome_of(job, delivery.offset, view, existed=existed)
    if outcome == "rejected":
        raise ApiProblem("rejected", errors=errors_of([rejection(view)]), extra={"key": job.key})
    answer["result"] = outcome
    if view is not None:
        answer["revision"] = view.row.revision
        answer["state"] = views.job_state(view.row)
        answer["next_due"] = views.next_instants(view.row)["next_due"]
    return JSONResponse(answer, status_code=201 if outcome == "created" else 200)


def rejection(view: JobView | None) -> Problem:
    """Why the processor did not take a definition that looked right from here."""
    broken = "" if view is None else view.row.broken
    if broken:
        rule = broken.replace("_", "-")
        message = f"the processor could not put the definition in force: {broken.replace('_', ' ')}"
        if rule == "unknown-queue":
            message += "; if the queue was created a moment ago, apply the job once more"
        return Problem(field="queue" if rule == "unknown-queue" else "", rule=rule, message=message)
    stays = "" if view is None else f", revision {view.row.revision} stays in force"
    return Problem(
        field="",
        rule="rejected",
        message=f"the processor refused the definition{stays} (its reasons are in the event `rejected` on the topic "
        "of runs), or the job was deleted in the meantime",
    )


@router.get("/jobs/{namespace}/{id}", **operation("getJob", done="job_view"))
async def get_job(
    api: Api,
    namespace: Namespace,
    job_id: JobId,
    full: Annotated[bool, Query(description="The definition with every default written out.")] = False,
) -> JSONResponse:
    """A job as it stands: its definition, what comes next, how the last run went."""
    return JSONResponse(views.job(await known_job(api, f"{namespace}/{job_id}"), full=full))


async def known_job(api: Context, key: str) -> JobView:
    view = await api.writes.find_job(key)
    if view is None:
        raise ApiProblem("unknown-job", f"No job {key} is defined.")
    return view


async def job_to_steer(api: Context, key: str) -> JobView | None:
    """The job, for a command to it; None while nobody can be asked about it. Then the command is taken all the same (a job
    that must be paused must not wait for a restore), and the processor refuses it if there is no such job."""
    try:
        return await known_job(api, key)
    except PartitionsMissing:
        return None


@router.delete("/jobs/{namespace}/{id}", **operation("deleteJob", accepted="written", done="deleted"))
async def delete_job(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
) -> JSONResponse:
    """Delete a job. What is scheduled is withdrawn; a run that has begun ends by itself, without a retry."""
    key = f"{namespace}/{job_id}"
    await job_to_steer(api, key)
    delivery = await api.writes.define(
        JobDefinition(namespace=namespace, id=job_id, deleted=True, actor=actor_of(request), source="api")
    )
    answer = {"key": key, "result": "acknowledged", **views.coordinates(delivery)}
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, view = await api.writes.after(delivery, lambda: api.asks.get_job(JobKey(key)))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    return JSONResponse({**answer, "result": "deleted" if view is None else "superseded"})


@router.get("/jobs", **operation("listJobs", done="job_list"))
async def list_jobs(
    api: Api,
    namespace: Annotated[str, Query(pattern=ID_OR_NOTHING)] = "",
    label: Annotated[list[str], Query(description="`name=value`; several: all of them.")] = [],  # noqa: B006
    state: State = "",
    id_prefix: Annotated[str, Query(max_length=128)] = "",
    failing: Annotated[bool, Query(description="Only jobs whose last run failed.")] = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> JSONResponse:
    """Jobs in the order of their keys. A page may be short, even empty, and still have a cursor: go on with it.

    `missing_partitions` names what could not be asked, so that what lies there is not on the page.
    """
    where = JobFilter(
        namespace=namespace, id_prefix=id_prefix, labels=_labels(label), state=state, failing=failing
    )
    try:
        found = await api.asks.list_jobs(where, cursor=cursor, limit=limit)
    except InvalidCursor as error:
        raise invalid("cursor", "cursor", str(error), cursor) from None
    return listed(api, found, views.job_line)


def listed(api: Context, page: Page[T], show: Callable[[T], dict[str, Any]]) -> JSONResponse:
    """The page, unless nobody at all could be asked: then there is nothing to show. Raises PartitionsMissing."""
    if len(page.missing) >= api.services.config().partitions:
        raise PartitionsMissing(page.missing)
    return JSONResponse(views.page(page, show))


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for entry in given:
        name, sign, value = entry.partition("=")
        if not sign or not name:
            raise invalid("label", "label", "write name=value", entry)
        labels[name] = value
    if len(labels) > LABELS_MAX:
        raise invalid("label", "labels-max", f"at most {LABELS_MAX} labels")
    return labels


# --- commands ----------------------------------------------------------------------------------------------------------


@router.post(
    "/jobs/{namespace}/{id}/trigger",
    **operation("triggerJob", body="trigger", accepted="triggered", done="triggered_applied", created=True),
)
async def trigger_job(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
    idempotency_key: Annotated[
        str | None,
        Header(
            description="The trigger's id; a second trigger with the same id within 24 h is the same run."
        ),
    ] = None,
) -> JSONResponse:
    """Run the job now, once, beside its schedule. `body` replaces the target's body (or a function's arguments)."""
    key = f"{namespace}/{job_id}"
    fields = await read_object(request, {"body": (), "body_base64": (str,), "reason": (str,)})
    trigger_id = new_id() if idempotency_key is None else idempotency_key
    if not re.fullmatch(ID_PATTERN, trigger_id):
        raise invalid("Idempotency-Key", "id", ID_SENTENCE, trigger_id)
    await job_to_steer(api, key)
    command = Trigger(
        namespace=namespace,
        id=job_id,
        trigger_id=trigger_id,
        body=_payload(fields),
        after_jobs_offset=api.writes.after_jobs_offset(key),
        actor=actor_of(request),
        reason=reason_of(fields),
    )
    run_id = trigger_run_id(key, trigger_id)
    existed = wait == "applied" and await _run_existed(api, run_id)
    delivery = await api.writes.command(command)
    answer = {"run_id": run_id, "key": key, "result": "acknowledged", **views.coordinates(delivery)}
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, run = await api.writes.after(delivery, lambda: api.asks.get_run(run_id))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    if run is None:
        raise ApiProblem("rejected", f"{key} was not defined, or broken, when the trigger was applied.")
    answer |= {"result": "unchanged" if existed else "created", "run": views.run(run)}
    return JSONResponse(answer, status_code=200 if existed else 201)


async def _run_existed(api: Context, run_id: str) -> bool:
    """As far as it can be told."""
    try:
        return await api.asks.get_run(run_id) is not None
    except PartitionsMissing:
        return False


def _payload(fields: dict[str, Any]) -> bytes | None:
    if "body_base64" in fields:
        if "body" in fields:
            raise invalid("body_base64", "one-of", "give body or body_base64, not both")
        try:
            body = base64.b64decode(fields["body_base64"], validate=True)
        except ValueError as error:  # binascii.Error is one, and so is what letters beyond ASCII raise
            raise invalid("body_base64", "base64", str(error)) from None
    elif "body" not in fields:
        return None
    else:
        given = fields["body"]
        text = (
            given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, separators=(",", ":"))
        )
        try:
            body = text.encode()
        except UnicodeEncodeError:
            raise invalid("body", "text", HALF_A_CHARACTER) from None
    if len(body) > BODY_BYTES_MAX:
        raise invalid(
            "body", "body-size", f"the body has {len(body)} bytes; {BODY_BYTES_MAX} (200 KiB) is the limit"
        )
    return body


def reason_of(fields: dict[str, Any]) -> str:
    reason: str = fields.get("reason", "")
    if len(reason) > REASON_MAX:
        raise invalid("reason", "length", f"at most {REASON_MAX} characters")
    if (wrong := CONTROL_CHARACTER.search(reason)) is not None:
        raise invalid(
            "reason", "control-character", f"the character {wrong[0]!r} cannot stand in a reason", reason
        )
    return reason


@router.post(
    "/jobs/{namespace}/{id}/pause", **operation("pauseJob", body="pause", accepted="command", done="paused")
)
async def pause_job(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
) -> JSONResponse:
    """Skip the job's occurrences (reason paused) until it is resumed, or until an instant. Paused time is not missed
    time: nothing is caught up afterwards."""
    fields = await read_object(request, {"reason": (str,), "until": (str,)})
    until_ms = 0
    if "until" in fields:
        try:
            until_ms = parse_instant(fields["until"])
        except ScheduleError as error:
            raise invalid("until", error.rule, error.message, error.value) from None
        if until_ms <= api.services.clock.now_ms():
            raise invalid(
                "until",
                "past",
                "this instant has passed; leave until out to pause without an end",
                fields["until"],
            )
    key = f"{namespace}/{job_id}"
    before = await job_to_steer(api, key)
    command = Pause(
        namespace=namespace,
        id=job_id,
        until_ms=until_ms,
        after_jobs_offset=api.writes.after_jobs_offset(key),
        actor=actor_of(request),
        reason=reason_of(fields),
    )
    return await _command(api, command, before, wait)


@router.post(
    "/jobs/{namespace}/{id}/resume",
    **operation("resumeJob", body="reason", accepted="command", done="resumed"),
)
async def resume_job(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
) -> JSONResponse:
    """Go on with the next occurrence."""
    fields = await read_object(request, {"reason": (str,)})
    key = f"{namespace}/{job_id}"
    before = await job_to_steer(api, key)
    command = Resume(
        namespace=namespace,
        id=job_id,
        after_jobs_offset=api.writes.after_jobs_offset(key),
        actor=actor_of(request),
        reason=reason_of(fields),
    )
    return await _command(api, command, before, wait)


@router.post(
    "/jobs/{namespace}/{id}/skip-next",
    **operation("skipNext", body="skip_next", accepted="command", done="resumed"),
)
async def skip_next(
    api: Api,
    request: Request,
    namespace: Namespace,
    job_id: JobId,
    wait: Wait = "acknowledged",
) -> JSONResponse:
    """Skip the next `count` occurrences (default 1); 0 takes an earlier request back."""
    fields = await read_object(request, {"count": (int,), "reason": (str,)})
    count = fields.get("count", 1)
    if not 0 <= count <= SKIP_NEXT_MAX:
        raise invalid("count", "range", f"0 to {SKIP_NEXT_MAX}", str(count))
    key = f"{namespace}/{job_id}"
    before = await job_to_steer(api, key)
    command = SkipNext(
        namespace=namespace,
        id=job_id,
        count=count,
        after_jobs_offset=api.writes.after_jobs_offset(key),
        actor=actor_of(request),
        reason=reason_of(fields),
    )
    return await _command(api, command, before, wait)


async def _command(api: Context, command: Command, before: JobView | None, wait: str) -> JSONResponse:
    key = JobKey(f"{command.namespace}/{command.id}")
    delivery = await api.writes.command(command)
    answer = {"key": key, "result": "acknowledged", **views.coordinates(delivery)}
    if wait == "acknowledged":
        return JSONResponse(answer, status_code=202)
    applied, after = await api.writes.after(delivery, lambda: api.asks.get_job(key))
    if not applied:
        return JSONResponse({**answer, "note": NOT_APPLIED}, status_code=202)
    if after is None:
        raise ApiProblem("rejected", f"{key} was not defined when the command was applied.")
    same = before is not None and _switches(before.row) == _switches(after.row)
    result = "unchanged" if same else "changed"
    return JSONResponse({**answer, "result": result, "job": views.job(after)})


def _switches(row: JobRow) -> tuple[object, ...]:
    """What pause, resume and skip-next change."""
    return row.paused, row.paused_until_ms, row.paused_by, row.paused_reason, row.skip_next
