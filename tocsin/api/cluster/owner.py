"""What a streams process serves to the API processes: the questions of tocsin.streams.queries, about its own partitions.

Whoever asks shows the cluster's secret. A question about a partition that is not this process's is answered with 421, one
about a partition that is being restored with 503 and its progress; a list names both among what is missing.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tocsin.api.cluster import wire
from tocsin.schemas.codec import encode
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.queries import JobFilter, JobView, MissingPartition, PartitionsMissing, Queries

SCANS_AT_ONCE: Final = 4
"""Searches take up to 50 ms of a thread, and of the interpreter that the processor runs in."""
SCANS_WAITING_MAX: Final = 64
POLLS_MAX: Final = 2_048
"""Long polls at once: each API process has one for a partition and topic that somebody waits for."""
POLL_S_MAX: Final = 10.0
OWNED_EVERY_S: Final = 0.25
"""How soon somebody who waits for a partition learns that it has moved."""

_CONFLICT: Final = 421

Answer = bytes | Response


class BadQuestion(ValueError):
    """The question is none that an API of this version asks."""


def owner_router(queries: Queries, secret: Callable[[], str], owns: Callable[[], Iterable[int]]) -> APIRouter:
    """To be mounted at the root of what the process serves.

    `secret`: the cluster's; while it is "" nobody is answered. `owns`: the partitions assigned to this process, those that
    are being restored included.
    """
    router = APIRouter()
    router.add_route(
        "/cluster/{path:path}",
        _Owner(queries, secret, owns).answer,
        methods=["GET", "POST", "PUT", "DELETE", "PATCH"],
        include_in_schema=False,
    )
    return router


class _Owner:
    def __init__(
        self, queries: Queries, secret: Callable[[], str], owns: Callable[[], Iterable[int]]
    ) -> None:
        self._queries = queries
        self._secret = secret
        self._owns = owns
        self._scans = asyncio.Semaphore(SCANS_AT_ONCE)
        self._waiting = 0
        self._polls = 0
        self._questions: Mapping[str, Callable[[dict[str, Any], Request], Awaitable[Answer]]] = {
            "job": self._job,
            "jobs-by-key": self._jobs_by_key,
            "jobs": self._jobs,
            "runs-of": self._runs_of,
            "runs": self._runs,
            "run": self._run,
            "dead-letters": self._dead_letters,
            "health": self._health,
            "applied": self._applied,
        }

    async def answer(self, request: Request) -> Response:
        if not self._is_ours(request.headers.get(wire.SECRET_HEADER, "")):
            return Response(status_code=401)
        version, _, name = request.path_params["path"].partition("/")
        ask = self._questions.get(name)
        if version != str(wire.VERSION) or ask is None or request.method != "POST":
            return _refusal(501, versions=[wire.VERSION])
        try:
            found = await ask(await _read(request), request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except BadQuestion as error:
            return _refusal(400, detail=str(error))
        except InvalidCursor:
            return _refusal(422, cursor="invalid")
        except PartitionsMissing as error:
            return _not_here(error.missing)
        return found if isinstance(found, Response) else Response(found, media_type=wire.CONTENT_TYPE)

    def _is_ours(self, given: str) -> bool:
        secret = self._secret().encode()
        return bool(secret) and hmac.compare_digest(given.encode("latin-1"), secret)

    # --- one partition

    def _require(self, fields: dict[str, Any]) -> int:
        number = _whole(fields, "partition", 0, 1 << 31)
        if number not in set(self._owns()):
            raise PartitionsMissing([MissingPartition(partition=number, reason="no-owner")])
        return number

    async def _job(self, fields: dict[str, Any], _: Request) -> Answer:
        self._require(fields)
        view = self._queries.get_job(JobKey(_text(fields, "key")))
        return wire.pack({}, [] if view is None else [wire.job_bytes(view)])

    async def _jobs_by_key(self, fields: dict[str, Any], _: Request) -> Answer:
        self._require(fields)
        keys = [JobKey(key) for key in _texts(fields, "keys", wire.KEYS_MAX)]
        return await self._scan(lambda: self._some_jobs(keys))

    def _some_jobs(self, keys: list[JobKey]) -> bytes:
        """As many as fit; `answered` says how many of the keys were looked at."""
        blobs: list[bytes] = []
        size = answered = 0
        for key in keys:
            if size >= wire.PAGE_BYTES_MAX:
                break
            view = self._queries.get_job(key)
            answered += 1
            if view is not None:
                blobs.append(wire.job_bytes(view))
                size += len(blobs[-1])
        return wire.pack({"answered": answered}, blobs)

    async def _runs_of(self, fields: dict[str, Any], _: Request) -> Answer:
        self._require(fields)
        cursor = _text(fields, "cursor")
        page = self._queries.runs_of(JobKey(_text(fields, "key")), cursor=cursor, limit=_limit(fields))
        start = int(cursor or "0")
        return wire.pack_page(page, encode, lambda _, number: str(start + number))

    async def _run(self, fields: dict[str, Any], _: Request) -> Answer:
        self._require(fields)
        event = self._queries.get_run(_text(fields, "run_id"))
        return wire.pack({}, [] if event is None else [encode(event)])

    # --- lists

    async def _jobs(self, fields: dict[str, Any], _: Request) -> Answer:
        where = JobFilter(
            namespace=_text(fields, "namespace"),
            id_prefix=_text(fields, "id_prefix"),
            labels=_labels(fields),
            state=_text(fields, "state"),
            failing=fields.get("failing") is True,
        )
        cursor, limit, partitions = _text(fields, "cursor"), _limit(fields), _partitions(fields)
        return await self._scan(
            lambda: wire.pack_page(
                self._queries.list_jobs(where, cursor=cursor, limit=limit, partitions=partitions),
                wire.job_bytes,
                _job_place,
            )
        )

    async def _runs(self, fields: dict[str, Any], _: Request) -> Answer:
        namespace, status = _text(fields, "namespace"), _text(fields, "status")
        limit, partitions = _limit(fields), _partitions(fields)
        return await self._scan(
            lambda: wire.pack_page(
                self._queries.recent_runs(
                    namespace=namespace, status=status, limit=limit, partitions=partitions
                ),
                encode,
                _run_place,
            )
        )

    async def _dead_letters(self, fields: dict[str, Any], _: Request) -> Answer:
        namespace, cursor = _text(fields, "namespace"), _text(fields, "cursor")
        limit, partitions = _limit(fields), _partitions(fields)
        return await self._scan(
            lambda: wire.pack_page(
                self._queries.dead_letters(
                    namespace=namespace, cursor=cursor, limit=limit, partitions=partitions
                ),
                encode,
                _letter_place,
            )
        )

    async def _health(self, _: dict[str, Any], __: Request) -> Answer:
        return await self._scan(
            lambda: wire.pack(
                {
                    "health": wire.health_fields(self._queries.health(figures=False)),
                    "broken": self._queries.broken(),
                }
            )
        )

    async def _scan(self, ask: Callable[[], bytes]) -> Answer:
        if self._waiting >= SCANS_WAITING_MAX:
            return _refusal(503, busy=True)
        self._waiting += 1
        try:
            async with self._scans:
                return await asyncio.to_thread(ask)
        finally:
            self._waiting -= 1

    # --- waiting

    async def _applied(self, fields: dict[str, Any], request: Request) -> Answer:
        """Until the first of the offsets is applied, or the time is over: `through` is the highest that is (-1: none)."""
        number = self._require(fields)
        topic = _text(fields, "topic")
        offsets = _offsets(fields)
        within_s = min(_whole(fields, "within_ms", 0, 1 << 31) / 1000, POLL_S_MAX)
        if self._polls >= POLLS_MAX:
            return _refusal(503, busy=True)
        self._polls += 1
        waiting = {
            asyncio.wrap_future(self._queries.applied(topic, number, offset)): offset for offset in offsets
        }
        gone = asyncio.ensure_future(_until_disconnected(request))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        try:
            while True:
                left_s = max(0.0, until_s - loop.time())
                done, _ = await asyncio.wait(
                    {*waiting, gone},
                    timeout=min(left_s, OWNED_EVERY_S),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if gone in done:
                    return Response(status_code=400)  # nobody reads it
                if done:
                    ended = [waiting[future] for future in done if future.exception() is None]
                    if ended:
                        return wire.pack({"through": max(ended)})
                    raise PartitionsMissing([MissingPartition(partition=number, reason="moving")])
                self._require(fields)
                if left_s == 0.0:
                    return wire.pack({"through": -1})
        finally:
            self._polls -= 1
            gone.cancel()
            for future in waiting:
                future.cancel()


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- reading questions --------------------------------------------------------------------------------------------------


async def _read(request: Request) -> dict[str, Any]:
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > wire.QUESTION_BYTES_MAX:
            raise BadQuestion(f"a question has at most {wire.QUESTION_BYTES_MAX} bytes")
        chunks.append(chunk)
    try:
        fields = json.loads(b"".join(chunks) or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadQuestion(f"the question is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadQuestion("the question is no object")
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise BadQuestion(f"{name} is no text")
    return value


def _texts(fields: dict[str, Any], name: str, at_most: int) -> list[str]:
    value = fields.get(name)
    if (
        not isinstance(value, list)
        or len(value) > at_most
        or not all(isinstance(each, str) for each in value)
    ):
        raise BadQuestion(f"{name} are up to {at_most} texts")
    return value


def _whole(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not low <= value <= high:
        raise BadQuestion(f"{name} is a whole number from {low} to {high}")
    return value


def _limit(fields: dict[str, Any]) -> int:
    return _whole(fields, "limit", 1, wire.ITEMS_MAX)


def _partitions(fields: dict[str, Any]) -> list[int]:
    value = fields.get("partitions")
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise BadQuestion("partitions are whole numbers")
    return value


def _offsets(fields: dict[str, Any]) -> list[int]:
    value = fields.get("offsets")
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= wire.OFFSETS_MAX
        or not all(type(each) is int and each >= 0 for each in value)
    ):
        raise BadQuestion(f"offsets are 1 to {wire.OFFSETS_MAX} whole numbers")
    return value


def _labels(fields: dict[str, Any]) -> dict[str, str]:
    value = fields.get("labels", {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise BadQuestion("labels are texts by name")
    return value


# --- answers --------------------------------------------------------------------------------------------------------------


def _job_place(view: JobView, _: int) -> str:
    return view.key


def _run_place(event: RunEvent, _: int) -> str:
    return str(event.event_ms)  # no cursor: that the page was cut here


def _letter_place(letter: DeadLetter, _: int) -> str:
    return f"{letter.run.namespace}/{letter.run.job_id}:{letter.run.seq}"


def _not_here(missing: Iterable[MissingPartition]) -> Response:
    status = _CONFLICT if all(each.reason == "no-owner" for each in missing) else 503
    return _refusal(status, missing=[wire.missing_fields(each) for each in missing])


def _refusal(status: int, **fields: object) -> Response:
    return Response(json.dumps(fields), status_code=status, media_type="application/json")
