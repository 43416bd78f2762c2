"""Whether the node lives, whether it works, and its figures."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, RedirectResponse, Response

from tocsin.api import views
from tocsin.api.context import Api, Context
from tocsin.api.metrics import CONTENT_TYPE, exposition
from tocsin.api.openapi import operation
from tocsin.schemas.document import json_schema
from tocsin.streams.queries import PartitionHealth

router = APIRouter(tags=["node"])


@router.get("/livez", **operation("livez", done="live"))
async def livez() -> JSONResponse:
    """The process answers. It says nothing about whether jobs are run: see /readyz."""
    return JSONResponse({"status": "alive"})


@router.get(
    "/readyz", **operation("readyz", done="ready", failed={503: ("It does not, and why.", "not_ready")})
)
async def readyz(api: Api) -> JSONResponse:
    """Whether the node accepts writes and fires; else 503, with the reason, and each partition's progress."""
    health = await asyncio.to_thread(api.services.queries.health)
    reason = _reason(api, health)
    body = {
        "status": "not-ready" if reason else "ready",
        "reason": reason or None,
        "partitions": [_partition(each) for each in health],
    }
    return JSONResponse(body, status_code=503 if reason else 200, headers={"Cache-Control": "no-store"})


def _reason(api: Context, health: Sequence[PartitionHealth]) -> str:
    """The first thing that keeps the node from its work."""
    if not api.services.appender.alive:
        return "the node is stopping, or can no longer write to the log"
    broken = api.services.queries.broken()
    if broken:
        return broken
    for each in health:
        if not each.ready:
            progress = f": {each.restore_done} of {each.restore_total} rows" if each.restore_total else ""
            return f"partition {each.partition} is being restored{progress}"
    return ""


def _partition(each: PartitionHealth) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "ready": each.ready,
        "watermark": views.instant(each.watermark_ms),
        "restore_done": each.restore_done,
        "restore_total": each.restore_total,
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
