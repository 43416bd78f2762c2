"""Whether the node lives, whether it works, and its figures."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, RedirectResponse, Response

from tocsin.api import views
from tocsin.api.context import Api, Context
from tocsin.api.metrics import CONTENT_TYPE, exposition
from tocsin.api.openapi import operation
from tocsin.schemas.document import json_schema
from tocsin.streams.queries import MissingPartition, MissingReason, PartitionHealth, sentence

router = APIRouter(tags=["node"])


@router.get("/livez", **operation("livez", done="live"))
async def livez() -> JSONResponse:
    """The process answers. It says nothing about whether jobs are run: see /readyz."""
    return JSONResponse({"status": "alive"})


@router.get(
    "/readyz", **operation("readyz", done="ready", failed={503: ("It does not, and why.", "not_ready")})
)
async def readyz(
    api: Api,
    everything: Annotated[
        bool,
        Query(alias="all", description="503 also while it is `degraded`: for gates, not for load balancers."),
    ] = False,
) -> JSONResponse:
    """Whether this process does its work; else 503, with the reason, and each partition's progress.

    An all-in-one node accepts writes and fires. An API beside processors of their own accepts writes: it is `degraded`,
    and still answers 200, while some partitions cannot be asked or fire nothing, because every other API sees the same, and
    what can be done without them should be done.
    """
    health, broken = await api.asks.standing()
    status, reason = _status(api, health, broken)
    body = {
        "status": status,
        "reason": reason or None,
        "partitions": [_partition(each) for each in health],
    }
    fine = status == "ready" or (status == "degraded" and not everything)
    return JSONResponse(body, status_code=200 if fine else 503, headers={"Cache-Control": "no-store"})


def _status(api: Context, health: Sequence[PartitionHealth], broken: str) -> tuple[str, str]:
    """The first thing that keeps the process, or the processors that it asks, from their work."""
    services = api.services
    if not services.appender.alive:
        return "not-ready", "the node is stopping, or can no longer write to the log"
    if trouble := services.writable():
        return "not-ready", f"the log takes nothing at the moment: {trouble}"
    reason = broken or next((_sentence(each) for each in health if not each.ready), "")
    if not reason:
        return "ready", ""
    return "not-ready" if services.fires else "degraded", reason


def _sentence(each: PartitionHealth) -> str:
    """Without the detail, which may name addresses: nobody needs a key to ask for this."""
    return sentence(
        MissingPartition(
            partition=each.partition,
            reason=_reason(each),
            restore_done=each.restore_done,
            restore_total=each.restore_total,
            restore_eta_s=each.restore_eta_s,
        )
    )


def _reason(each: PartitionHealth) -> MissingReason:
    return each.reason or "restoring"


def _partition(each: PartitionHealth) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "ready": each.ready,
        "reason": None if each.ready else _reason(each),
        "watermark": views.instant(each.watermark_ms),
        "restore_done": each.restore_done,
        "restore_total": each.restore_total,
        "restore_eta_s": each.restore_eta_s,
    }


@router.get("/metrics", include_in_schema=False)
async def metrics(api: Api) -> Response:
    return Response(await asyncio.to_thread(exposition, api.services), media_type=CONTENT_TYPE)


@router.get("/v1/schema/job.json", include_in_schema=False)
async def job_schema() -> JSONResponse:
    """The JSON Schema of a job document, for completion in editors."""
    return JSONResponse(json_schema(), media_type="application/schema+json")


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    return RedirectResponse("/docs", status_code=307)
