"""How handlers ask the processors without holding up the event loop, wherever these are.

A question about one key to partitions of this process is a read of some 50 us, so that it is answered on the spot; a search
takes up to 50 ms, and goes to a thread. Processors elsewhere are asked over HTTP, and waited for without any thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.streams.queries import JobFilter, JobView, Page, PartitionHealth, Queries


class Asking(Protocol):
    """queries.Queries for a coroutine; see there."""

    async def get_job(self, key: JobKey) -> JobView | None: ...

    async def list_jobs(self, where: JobFilter, *, cursor: str, limit: int) -> Page[JobView]: ...

    async def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]: ...

    async def recent_runs(self, *, namespace: str, status: str, limit: int) -> Page[RunEvent]: ...

    async def get_run(self, run_id: str) -> RunEvent | None: ...

    async def dead_letters(self, *, namespace: str, cursor: str, limit: int) -> Page[DeadLetter]: ...

    async def standing(self) -> tuple[Sequence[PartitionHealth], str]:
        """health() without figures, and broken(), as of one moment."""
        ...

    async def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFigures:
    """What a process that asks others counts. Totals only ever grow."""

    owners: int
    unanswered: int
    """Owners that did not answer lately."""
    waiting: int
    """Callers that wait until something is applied."""
    asked: int
    failed: int
    seconds: float


@runtime_checkable
class Elsewhere(Protocol):
    """Queries whose answers come from other processes."""

    def asking(self) -> Asking: ...

    def figures(self) -> AskedFigures: ...


def asking(queries: Queries) -> Asking:
    return queries.asking() if isinstance(queries, Elsewhere) else _Here(queries)


class _Here:
    """The partitions are this process's."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def get_job(self, key: JobKey) -> JobView | None:
        return self._queries.get_job(key)

    async def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        return await asyncio.to_thread(self._queries.get_jobs, keys)

    async def list_jobs(self, where: JobFilter, *, cursor: str, limit: int) -> Page[JobView]:
        return await asyncio.to_thread(self._queries.list_jobs, where, cursor=cursor, limit=limit)

    async def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        return self._queries.runs_of(key, cursor=cursor, limit=limit)

    async def recent_runs(self, *, namespace: str, status: str, limit: int) -> Page[RunEvent]:
        return await asyncio.to_thread(
            self._queries.recent_runs, namespace=namespace, status=status, limit=limit
        )

    async def get_run(self, run_id: str) -> RunEvent | None:
        return self._queries.get_run(run_id)

    async def dead_letters(self, *, namespace: str, cursor: str, limit: int) -> Page[DeadLetter]:
        return await asyncio.to_thread(
            self._queries.dead_letters, namespace=namespace, cursor=cursor, limit=limit
        )

    async def standing(self) -> tuple[Sequence[PartitionHealth], str]:
        return await asyncio.to_thread(lambda: (self._queries.health(figures=False), self._queries.broken()))
