"""Queues: which there are, and making one."""

import asyncio
from typing import Final, Literal, get_args

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from tocsin.api.context import Api, Context
from tocsin.api.openapi import operation
from tocsin.api.problems import ApiProblem, invalid
from tocsin.api.requests import QueueName, read_object
from tocsin.log.port import TopicMismatch
from tocsin.schemas.codec import encode
from tocsin.schemas.records import Queue
from tocsin.schemas.topics import queue_topics

router = APIRouter(prefix="/v1", tags=["queues"])

PARTITIONS_MAX: Final = 256
READ_WITHIN_S: Final = 10.0
READ_EVERY_S: Final = 0.02

Kind = Literal["http", "function", "topic"]


@router.get("/queues", **operation("listQueues", done="queue_list"))
async def list_queues(api: Api) -> JSONResponse:
    """The queues by name, with the workers that read each: of this node, or on a Kafka all there are (counted every few
    seconds, so that one that has just come may be missing)."""
    live: dict[str, int] = {}
    for worker in api.services.workers():
        live[worker.queue] = live.get(worker.queue, 0) + worker.live
    queues = sorted(api.services.config().queues.values(), key=lambda queue: queue.name)
    shown = [_view(api, queue, live.get(queue.name, 0)) for queue in queues if not queue.deleted]
    return JSONResponse({"items": shown, "next_cursor": None, "missing_partitions": []})


def _view(api: Context, queue: Queue, live: int) -> dict[str, object]:
    return {
        "name": queue.name,
        "kind": queue.kind,
        "partitions": queue.partitions,
        "live_workers": live,
        # What to start if there are none: the node that has the processors has the workers, too.
        "served_by": "node" if api.services.fires else "workers",
    }


@router.put("/queues/{name}", **operation("createQueue", body="queue", done="queue_view", created=True))
async def create_queue(api: Api, request: Request, name: QueueName) -> JSONResponse:
    """Create a queue, with its topics. A queue holds one kind of target for ever; the same request again changes nothing."""
    fields = await read_object(request, {"kind": (str,), "partitions": (int,)})
    kind = fields.get("kind", "http")
    if kind not in get_args(Kind):
        raise invalid("kind", "queue-kind", f"write one of {', '.join(get_args(Kind))}", kind)
    if kind == "topic":
        raise invalid(
            "kind", "not-available", "topic targets are not available yet: write http or function", kind
        )
    partitions = fields.get("partitions")
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise invalid("partitions", "range", f"1 to {PARTITIONS_MAX}", str(partitions))
    present = api.services.config().queues.get(name)
    if present is not None and not present.deleted:
        if present.kind != kind:
            raise ApiProblem(
                "queue-exists", f"{name} holds {present.kind} targets; choose another name for {kind}."
            )
        if partitions not in (None, present.partitions):
            raise ApiProblem(
                "queue-exists", f"{name} has {present.partitions} partitions; that cannot be changed."
            )
        return JSONResponse(_view(api, present, 0))
    queue = Queue(name=name, kind=kind, partitions=partitions or api.services.queue_partitions)
    await _create(api, queue)
    return JSONResponse(_view(api, queue, 0), status_code=201)


async def _create(api: Context, queue: Queue) -> None:
    """The topics, then the record that tells everybody, then this process has read it."""
    specs = queue_topics(api.services.names, queue.name, queue.partitions)
    try:
        await asyncio.to_thread(api.services.create_topics, specs)
    except TopicMismatch as error:
        raise ApiProblem(
            "queue-exists", f"Topics of an earlier queue {queue.name} are in the way: {error}"
        ) from None
    await api.writes.append_config(f"queue/{queue.name}", encode(queue))
    # The configuration is read by another thread, which has nobody to tell: a glance every 20 ms, once per new queue.
    until = api.services.clock.monotonic_s() + READ_WITHIN_S
    while not _is_read(api, queue) and api.services.clock.monotonic_s() < until:  # noqa: ASYNC110
        await asyncio.sleep(READ_EVERY_S)


def _is_read(api: Context, queue: Queue) -> bool:
    return api.services.config().queues.get(queue.name) == queue
