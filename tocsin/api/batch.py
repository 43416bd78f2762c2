"""Many definitions in one request: NDJSON in, a result for each line out, in order.

This is the bulk path, and it shares one interpreter with the processor: each line is read, checked and encoded once, all
records go to the log as one group with one acknowledgement to wait for, and `?wait=applied` waits once per partition, for
the last record.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tocsin.api.context import Api, Context
from tocsin.api.definitions import check, in_force, may_be_in_force
from tocsin.api.jobs import rejection
from tocsin.api.openapi import NDJSON, operation
from tocsin.api.problems import ApiProblem, encodable, errors_of, log_problem
from tocsin.api.requests import Wait, actor_of, parse_json, read_body
from tocsin.api.writes import foreseen_outcome, highest_offsets, outcome_of
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Delivery
from tocsin.schemas.codec import encode
from tocsin.schemas.job import Job, JobKey, Problem
from tocsin.schemas.limits import DOCUMENT_BYTES_MAX
from tocsin.schemas.records import JobDefinition
from tocsin.streams.queries import JobView, PartitionsMissing

router = APIRouter(prefix="/v1", tags=["jobs"])

LINES_MAX: Final = 10_000
BYTES_MAX: Final = 32 * 1024 * 1024  # ten thousand lines of 3 KiB; a job is some 300 bytes
AT_ONCE_MAX: Final = 2
"""Batches that are prepared at the same time: a third waits, so that memory is bounded."""

Partial = Annotated[
    bool, Query(description="false: if a line is wrong, nothing is written (422, and the results say which).")
]


@dataclass(slots=True)
class _Line:
    key: str = ""
    result: str = ""
    job: Job | None = None
    errors: list[dict[str, str]] = field(default_factory=list)
    doubts: list[dict[str, str]] = field(default_factory=list)
    """Errors, unless the document says what holds already."""


class NdjsonResponse(Response):
    media_type: str | None = NDJSON


@router.post(
    "/jobs:batch",
    response_class=NdjsonResponse,
    **operation(
        "defineJobs",
        body="batch",
        done="batch_results",
        failed={422: ("With partial=false: nothing was written.", "batch_refused")},
    ),
)
async def define_jobs(
    api: Api,
    request: Request,
    wait: Wait = "acknowledged",
    partial: Partial = True,
    dry_run: Annotated[bool, Query(description="Write nothing; say what would become of each line.")] = False,
) -> Response:
    """Define up to 10,000 jobs: a JSON document on each line, and a result for each, in order.

    `acknowledged` lines are on the log; with `wait=applied` the results are `created`, `changed`, `unchanged` or
    `rejected`. `invalid` lines were not written, and no other line is affected, unless `partial=false`. A key may occur
    once in a batch.
    """
    body = await read_body(request, BYTES_MAX)
    async with request.app.state.batches:
        lines = await asyncio.to_thread(_read, api, body)
        await _settle_doubts(api, lines)
        # Everything is known to be right or wrong before the first record is written.
        wrong = sum(1 for line in lines if line.errors)
        if wrong and not partial:
            for line in lines:
                line.result = line.result or "skipped"
            return _answer(lines, status=422)
        if dry_run:
            views = await api.asks.get_jobs([line.job.key for line in lines if line.job is not None])
            await asyncio.to_thread(_foresee, lines, views)
            return _answer(lines)
        records = await asyncio.to_thread(_records, api, lines, actor_of(request))
        good = [line for line in lines if line.job is not None]
        deliveries = await api.writes.define_many(records)
        if good and all(delivery.error is not None for delivery in deliveries):
            assert deliveries[0].error is not None
            raise log_problem(deliveries[0].error)
        _acknowledge(good, deliveries)
        if wait == "applied":
            await _apply(api, good, deliveries)
    return _answer(lines)


def new_limit() -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE_MAX)


def _read(api: Context, body: bytes) -> list[_Line]:
    """Every line as a job, or with all that is wrong with it."""
    raw = body.split(b"\n")
    while raw and not raw[-1].strip():
        raw.pop()  # the newline at the end of the last line
    if not raw:
        raise ApiProblem("invalid-json", "The body is empty; a JSON document on each line is expected.")
    if len(raw) > LINES_MAX:
        raise ApiProblem(
            "too-large", f"{len(raw)} lines; {LINES_MAX} is the limit of one batch. Send several."
        )
    config = api.services.config()
    now_ms = api.services.clock.now_ms()
    seen: dict[str, int] = {}
    lines = []
    for number, text in enumerate(raw, 1):
        line = _Line()
        lines.append(line)
        if len(text) > DOCUMENT_BYTES_MAX:
            _refuse(
                line,
                "too-large",
                f"the document has {len(text)} bytes; {DOCUMENT_BYTES_MAX} (256 KiB) is the limit",
            )
            continue
        try:
            document = parse_json(text)
        except ValueError as error:
            _refuse(line, "json", str(error) if text.strip() else "the line is empty")
            continue
        line.key = _key(document)
        job, found = check(document, config=config, now_ms=now_ms)
        if job is not None and may_be_in_force(found):
            line.doubts, found = errors_of(found), []
        if job is None or found:
            line.errors, line.result = errors_of(found), "invalid"
            continue
        first = seen.setdefault(line.key, number)
        if first != number:
            _refuse(line, "duplicate", f"the same job is on line {first}", field_="id")
            continue
        line.job = job
    return lines


async def _settle_doubts(api: Context, lines: Sequence[_Line]) -> None:
    doubtful = [line for line in lines if line.doubts and line.job is not None]
    if not doubtful:
        return
    views = await api.asks.get_jobs([line.job.key for line in doubtful if line.job is not None])
    for line in doubtful:
        assert line.job is not None
        if not in_force(line.job, views.get(line.job.key)):
            line.errors, line.result, line.job = line.doubts, "invalid", None


def _refuse(line: _Line, rule: str, message: str, *, field_: str = "") -> None:
    line.errors = errors_of([Problem(field=field_, rule=rule, message=message)])
    line.result = "invalid"


def _key(document: Any) -> str:
    """What the document calls itself, as far as it can be told."""
    if not isinstance(document, dict):
        return ""
    return f"{document.get('namespace', 'default')}/{document.get('id', '')}"


def _records(api: Context, lines: Sequence[_Line], actor: str) -> list[tuple[bytes, bytes, int]]:
    partitions = api.services.config().partitions
    records = []
    for line in lines:
        job = line.job
        if job is not None:
            key = line.key.encode()
            definition = JobDefinition(namespace=job.namespace, id=job.id, job=job, actor=actor, source="api")
            records.append((key, encode(definition), partition_for(key, partitions)))
    return records


def _acknowledge(good: Sequence[_Line], deliveries: Sequence[Delivery]) -> None:
    for line, delivery in zip(good, deliveries, strict=True):
        if delivery.error is None:
            line.result = "acknowledged"
        else:
            line.result = "failed"
            line.errors = errors_of([Problem(field="", rule="log", message=f"not written: {delivery.error}")])


async def _apply(api: Context, good: Sequence[_Line], deliveries: Sequence[Delivery]) -> None:
    """Wait until the last record of each partition is applied, and then look once at each job."""
    jobs = api.services.names.jobs
    highest = highest_offsets(deliveries)
    applied = await asyncio.gather(*[api.writes.applied(jobs, p, offset) for p, offset in highest.items()])
    written: dict[int, list[tuple[_Line, Delivery]]] = {}
    for line, delivery in zip(good, deliveries, strict=True):
        if delivery.error is None:
            written.setdefault(delivery.partition, []).append((line, delivery))
    ended = [partition for partition, done in zip(highest, applied, strict=True) if done]
    await asyncio.gather(*[_apply_to(api, written[partition]) for partition in ended])


async def _apply_to(api: Context, written: Sequence[tuple[_Line, Delivery]]) -> None:
    """The lines of one partition. If it moves just now, they stay acknowledged: that is all that is known of them."""
    try:
        views = await api.asks.get_jobs([line.job.key for line, _ in written if line.job is not None])
    except PartitionsMissing:
        return
    await asyncio.to_thread(_outcomes, written, views)


def _outcomes(written: Sequence[tuple[_Line, Delivery]], views: Mapping[JobKey, JobView]) -> None:
    for line, delivery in written:
        assert line.job is not None
        view = views.get(line.job.key)
        line.result = outcome_of(line.job, delivery.offset, view)
        if line.result == "rejected":
            line.errors = errors_of([rejection(view)])


def _foresee(lines: Sequence[_Line], views: Mapping[JobKey, JobView]) -> None:
    for line in lines:
        if line.job is not None:
            line.result = foreseen_outcome(line.job, views.get(line.job.key))


def _answer(lines: Sequence[_Line], *, status: int = 200) -> Response:
    text = "".join(
        [
            f"{json.dumps({'key': line.key, 'result': line.result, 'errors': line.errors}, ensure_ascii=False)}\n"
            for line in lines
        ]
    )
    return NdjsonResponse(encodable(text), status_code=status)
