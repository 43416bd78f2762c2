"""ClusterQueries: the questions of an API process, answered by whichever streams processes own the partitions."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from tocsin.api.asking import AskedFigures, Asking
from tocsin.api.cluster.client import OwnerClient
from tocsin.api.cluster.directory import Directory
from tocsin.api.cluster.gather import Gather, Standing
from tocsin.api.cluster.waits import Waits
from tocsin.api.services import ConfigSnapshot
from tocsin.clock import Clock
from tocsin.log.port import EventLog, LogUnavailable
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.schemas.topics import TopicNames
from tocsin.streams.queries import JobFilter, JobView, Page, PartitionHealth

QUESTION_S: Final = 15.0
"""Each question is bounded by itself, two tries and a look at the group together; this is for our own defects."""
STANDING_S: Final = 0.5
"""How old an answer about the health of all partitions may be: a figure, a health check and a person ask at once."""
START_S: Final = 10.0

T = TypeVar("T")


class ClusterQueries:
    """Implements streams.queries.Queries. start() before use; stop() ends everything that waits. Any thread may ask.

    One thread of its own does it all; whoever waits does so on a future, or awaits it (asking()).
    """

    def __init__(
        self,
        log: EventLog,
        names: TopicNames,
        *,
        config: Callable[[], ConfigSnapshot],
        secret: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._loop = _new_loop()

        def partitions() -> int:
            return config().partitions

        self._directory = Directory(
            lambda: log.members(names.streams_group), names.commands, partitions, clock
        )
        self._client = OwnerClient(secret, clock)
        self._gather = Gather(self._directory, self._client, partitions)
        self._waits = Waits(self._gather.applied, self._loop)
        self._directory.moved = self._moved
        self._directory.unsettled = lambda: bool(len(self._waits) or self._client.unanswered())
        self._thread = threading.Thread(target=self._run, name="tocsin-queries", daemon=True)
        self._running = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._stood: tuple[float, asyncio.Task[Standing]] | None = None

    # --- life

    def start(self) -> None:
        """Return when questions may be asked; what the group looks like is found out meanwhile."""
        self._thread.start()
        if not self._running.wait(START_S):
            raise RuntimeError("the thread of the questions does not start")

    def stop(self) -> None:
        """Safe twice, and before the start."""
        if self._stopping is None:  # it never ran
            self._loop.close()
        elif self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        await self._client.open()
        watch = asyncio.create_task(self._directory.watch())
        self._running.set()
        try:
            await self._stopping.wait()
        finally:
            watch.cancel()
            self._waits.close()
            self._directory.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._client.close()

    def _moved(self, partitions: frozenset[int]) -> None:
        owners = self._directory.owners
        self._client.forget_all_but(owners.urls())
        self._client.ask_again(
            url for number in partitions if (url := owners.by_partition.get(number)) is not None
        )
        self._waits.interrupt(partitions)

    # --- what the API process shows of itself

    def log_trouble(self) -> str:
        """Why the log has not answered for a while, as far as the looks at the group tell; "" if it has."""
        return self._directory.log_trouble

    def unanswered(self) -> Collection[str]:
        """URLs of owners that did not answer lately."""
        return self._client.unanswered()

    def figures(self) -> AskedFigures:
        counts = self._client.counts
        return AskedFigures(
            owners=len(self._directory.owners.urls()),
            unanswered=len(self._client.unanswered()),
            waiting=len(self._waits),
            asked=counts.asked,
            failed=counts.failed,
            seconds=counts.seconds,
        )

    # --- Queries

    def get_job(self, key: JobKey) -> JobView | None:
        return self._wait(self._gather.get_job(key))

    def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        return self._wait(self._gather.get_jobs(keys))

    def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        return self._wait(self._gather.list_jobs(where, cursor=cursor, limit=limit, partitions=partitions))

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        return self._wait(self._gather.runs_of(key, cursor=cursor, limit=limit))

    def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        return self._wait(
            self._gather.recent_runs(namespace=namespace, status=status, limit=limit, partitions=partitions)
        )

    def get_run(self, run_id: str) -> RunEvent | None:
        return self._wait(self._gather.get_run(run_id))

    def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        return self._wait(
            self._gather.dead_letters(namespace=namespace, cursor=cursor, limit=limit, partitions=partitions)
        )

    def health(self, *, figures: bool = True) -> Sequence[PartitionHealth]:  # noqa: ARG002 - the owners show them
        """Without figures in any case: the owners show theirs themselves."""
        return self._wait(self._stand()).health

    def broken(self) -> str:
        return self._wait(self._stand()).broken

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        """Survives a change of the owner. Cancel it when nobody waits any more."""
        return self._waits.add(topic, partition, offset)

    async def _stand(self) -> Standing:
        """One question for all who ask at about the same time."""
        now_s = self._clock.monotonic_s()
        if self._stood is None or now_s - self._stood[0] > STANDING_S:
            self._stood = now_s, asyncio.create_task(self._gather.stand())
        return await asyncio.shield(self._stood[1])

    # --- from other threads, and from other event loops

    def asking(self) -> Asking:
        return _Awaited(self)

    def begin(self, question: "Coroutine[Any, Any, T]") -> "Future[T]":
        """The question, asked on the thread of the questions."""
        try:
            return asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:
            question.close()
            raise LogUnavailable("the process is stopping") from None

    def _wait(self, question: "Coroutine[Any, Any, T]") -> T:
        future = self.begin(question)
        try:
            return future.result(QUESTION_S)
        except CancelledError:
            raise LogUnavailable("the process is stopping") from None
        except TimeoutError:
            future.cancel()
            raise LogUnavailable(f"the streams processes did not answer within {QUESTION_S:.0f} s") from None


class _Awaited:
    """Asking for another event loop: no thread waits."""

    def __init__(self, queries: ClusterQueries) -> None:
        self._queries = queries
        self._gather = queries._gather  # noqa: SLF001 - one class in two parts

    async def get_job(self, key: JobKey) -> JobView | None:
        return await self._answer(self._gather.get_job(key))

    async def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        return await self._answer(self._gather.get_jobs(keys))

    async def list_jobs(self, where: JobFilter, *, cursor: str, limit: int) -> Page[JobView]:
        return await self._answer(self._gather.list_jobs(where, cursor=cursor, limit=limit))

    async def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        return await self._answer(self._gather.runs_of(key, cursor=cursor, limit=limit))

    async def recent_runs(self, *, namespace: str, status: str, limit: int) -> Page[RunEvent]:
        return await self._answer(self._gather.recent_runs(namespace=namespace, status=status, limit=limit))

    async def get_run(self, run_id: str) -> RunEvent | None:
        return await self._answer(self._gather.get_run(run_id))

    async def dead_letters(self, *, namespace: str, cursor: str, limit: int) -> Page[DeadLetter]:
        return await self._answer(self._gather.dead_letters(namespace=namespace, cursor=cursor, limit=limit))

    async def standing(self) -> tuple[Sequence[PartitionHealth], str]:
        found = await self._answer(self._queries._stand())  # noqa: SLF001
        return found.health, found.broken

    async def _answer(self, question: "Coroutine[Any, Any, T]") -> T:
        future = self._queries.begin(question)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LogUnavailable("the process is stopping") from None  # it is the question that was cancelled


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
