"""Writing definitions and commands to the log, and waiting for what the processor makes of them.

An answer to a read is the committed state, which trails the log by a fraction of a second. So that a client finds what it
has just written, the last offsets that this API appended are remembered: a command for a job whose definition may still
be on its way names that offset, and a job that is not found is looked for again once the state has caught up.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Literal, TypeVar

from tocsin.api.asking import Asking
from tocsin.api.problems import ApiProblem, log_problem
from tocsin.api.services import ApiServices
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Delivery
from tocsin.schemas.codec import encode
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import Command, JobDefinition, RunEvent, RunReport
from tocsin.streams.queries import JobView, PartitionsMissing

SETTLED_WITHIN_S: Final = 5.0
"""How long a read for something unknown waits for the API's own last write to that partition."""
RECENT_KEYS_MAX: Final = 10_000

Outcome = Literal["created", "changed", "unchanged", "superseded", "rejected"]
T = TypeVar("T")


class Writes:
    """One per API; used on its event loop."""

    def __init__(self, services: ApiServices, asks: Asking) -> None:
        self._services = services
        self._asks = asks
        self._names = services.names
        self._jobs_offset: OrderedDict[str, int] = OrderedDict()  # per key, of single writes lately
        self._highest: dict[tuple[str, int], int] = {}  # per topic and partition, of everything written here

    def partition(self, key: str) -> int:
        return partition_for(key.encode(), self._services.config().partitions)

    async def define(self, definition: JobDefinition) -> Delivery:
        key = f"{definition.namespace}/{definition.id}"
        delivery = await self._append(self._names.jobs, key, encode(definition))
        self._jobs_offset[key] = delivery.offset
        self._jobs_offset.move_to_end(key)
        if len(self._jobs_offset) > RECENT_KEYS_MAX:
            self._jobs_offset.popitem(last=False)
        return delivery

    async def command(self, command: Command) -> Delivery:
        return await self._append(self._names.commands, f"{command.namespace}/{command.id}", encode(command))

    async def report(self, report: RunReport) -> Delivery:
        key = f"{report.namespace}/{report.job_id}"
        return await self._append(self._names.outcomes, key, encode(report))

    def after_jobs_offset(self, key: str) -> int:
        """What a command for the job must wait for, because it was defined here lately; -1: nothing."""
        return self._jobs_offset.get(key, -1)

    async def define_many(self, records: Sequence[tuple[bytes, bytes, int]]) -> list[Delivery]:
        deliveries = await self.acknowledged(self._services.appender.append_many(self._names.jobs, records))
        for partition, offset in highest_offsets(deliveries).items():
            self._note(self._names.jobs, partition, offset)
        return deliveries

    async def append_config(self, key: str, value: bytes) -> Delivery:
        return await self._append(self._names.config, key, value, partition=0)

    async def _append(self, topic: str, key: str, value: bytes, partition: int | None = None) -> Delivery:
        raw = key.encode()
        if partition is None:
            partition = partition_for(raw, self._services.config().partitions)
        delivery = await self.acknowledged(self._services.appender.append(topic, raw, value, partition))
        if delivery.error is not None:
            raise log_problem(delivery.error)
        self._note(topic, partition, delivery.offset)
        return delivery

    def _note(self, topic: str, partition: int, offset: int) -> None:
        self._highest[topic, partition] = max(offset, self._highest.get((topic, partition), -1))

    async def acknowledged(self, future: "Future[T]") -> T:
        """The log's answer. An append that was handed over and is not answered in time may yet stand."""
        wrapped = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({wrapped}, timeout=self._services.acknowledged_within_s)
        if not done:
            raise ApiProblem(
                "log-unavailable",
                f"The log did not acknowledge within {self._services.acknowledged_within_s:g} s; the write may yet "
                "stand. Repeating it does no harm (a trigger: with the same Idempotency-Key).",
                headers={"Retry-After": "5"},
            )
        return wrapped.result()

    async def applied(self, topic: str, partition: int, offset: int, within_s: float | None = None) -> bool:
        """Whether the processor has applied the record, within the time; what it made of it is in the state then."""
        wrapped = asyncio.wrap_future(self._services.queries.applied(topic, partition, offset))
        done, _ = await asyncio.wait(
            {wrapped}, timeout=self._services.applied_within_s if within_s is None else within_s
        )
        if not done:
            wrapped.cancel()  # nobody waits any more, so nobody need commit sooner or be asked again for it
            return False
        # An error is the processor's end: the record stands on the log, and whoever comes next will apply it.
        return wrapped.exception() is None

    async def after(
        self, delivery: Delivery, get: Callable[[], Awaitable[T | None]]
    ) -> tuple[bool, T | None]:
        """Whether the processor has applied the record and can be asked, and what `get` finds then."""
        if not await self.applied(delivery.topic, delivery.partition, delivery.offset):
            return False, None
        try:
            return True, await get()
        except PartitionsMissing:  # the partition moves just now; the write stands, so the answer is no error
            return False, None

    async def find_job(self, key: str) -> JobView | None:
        return await self._find(lambda: self._asks.get_job(JobKey(key)), self._names.jobs, key)

    async def find_run(self, run_id: str, key: str) -> RunEvent | None:
        """As a command of a moment ago may be about to make it: asked again when the API's own are applied."""
        return await self._find(lambda: self._asks.get_run(run_id), self._names.commands, key)

    async def _find(self, get: Callable[[], Awaitable[T | None]], topic: str, key: str) -> T | None:
        found = await get()
        if found is None:
            partition = self.partition(key)
            offset = self._highest.get((topic, partition))
            if offset is not None and await self.applied(topic, partition, offset, SETTLED_WITHIN_S):
                found = await get()
        return found


def highest_offsets(deliveries: Sequence[Delivery]) -> dict[int, int]:
    """Per partition the last offset that was written."""
    highest: dict[int, int] = {}
    for delivery in deliveries:
        if delivery.error is None and delivery.offset > highest.get(delivery.partition, -1):
            highest[delivery.partition] = delivery.offset
    return highest


def outcome_of(job: Job, offset: int, view: JobView | None, *, existed: bool = False) -> Outcome:
    """What became of the definition `job` written at `offset`, from the state after it was applied.

    A definition that made a revision is the one in force, by its offset; one that did not is equal to what is in force,
    was overtaken by a later one, or was refused. `existed`: the job was seen before the write.
    """
    if view is None or view.job is None or view.row.broken:
        return "rejected"
    if view.definition_offset == offset:
        # A job that is created again after a deletion counts its revisions on: it is as old as its definition.
        new = view.row.revision == 1 or (not existed and view.row.created_ms == view.defined_ms)
        return "created" if new else "changed"
    if same_definition(job, view.job):
        return "unchanged"
    return "superseded" if view.definition_offset > offset else "rejected"


def foreseen_outcome(job: Job, view: JobView | None) -> Outcome:
    """What would become of `job` if it were written now."""
    if view is None or view.job is None:
        return "created"
    return "unchanged" if same_definition(job, view.job) and not view.row.broken else "changed"


def same_definition(one: Job, other: Job) -> bool:
    """Equal in everything that makes a revision: `paused` counts at creation only."""
    if one.paused != other.paused:
        one, other = _unpaused(one), _unpaused(other)
    return one == other


def _unpaused(job: Job) -> Job:
    return replace(job, paused=False)
