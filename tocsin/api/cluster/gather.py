"""Questions to the owners of the partitions: by key to one of them, lists to all. What could not be asked is named."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from tocsin.api.cluster import wire
from tocsin.api.cluster.client import NotNow, NotOwned, OwnerClient, OwnerFailed
from tocsin.api.cluster.directory import Directory
from tocsin.api.cluster.merging import merge_dead_letters, merge_jobs, merge_recent_runs
from tocsin.api.cluster.waits import NotAnswered
from tocsin.log.partitioner import partition_for
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.streams.ids import job_key_of
from tocsin.streams.queries import (
    JobFilter,
    JobView,
    MissingPartition,
    Page,
    PartitionHealth,
    PartitionsMissing,
    not_ready,
    sentence,
)

WHOLE_PAGES_UPTO: Final = 100
"""Up to this limit each owner is asked for a whole page. Of more, each for its share and a bit: keys lie evenly."""

HEALTH_S: Final = 0.8
"""After this long /readyz answers without an owner: whoever asks for it gives up after a second or two, and would take this
process for dead."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the partitions stand, all of them, and why some of them fire nothing."""

    health: Sequence[PartitionHealth]
    broken: str


class Gather:
    """queries.Queries as coroutines; implements api.asking.Asking on its own event loop."""

    def __init__(self, directory: Directory, client: OwnerClient, partitions: Callable[[], int]) -> None:
        self._directory = directory
        self._client = client
        self._partitions = partitions

    # --- by key

    async def get_job(self, key: JobKey) -> JobView | None:
        return await self._of_key(key, "job", {"key": key}, lambda data: _one(data, wire.job_of))

    async def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        by_partition: dict[int, list[JobKey]] = {}
        for key in keys:
            by_partition.setdefault(self._number_of(key), []).append(key)
        parts = await _all_of(self._some_jobs(number, some) for number, some in by_partition.items())
        return {view.key: view for part in parts for view in part}

    async def _some_jobs(self, number: int, keys: Sequence[JobKey]) -> list[JobView]:
        views: list[JobView] = []
        while keys:
            fields = {"keys": keys[: wire.KEYS_MAX]}
            answered, some = await self._of_partition(number, "jobs-by-key", fields, _some_views)
            views += some
            keys = keys[answered:]
        return views

    async def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        fields = {"key": key, "cursor": cursor, "limit": limit}
        return await self._of_key(key, "runs-of", fields, lambda data: wire.unpack_page(data, wire.run_of))

    async def get_run(self, run_id: str) -> RunEvent | None:
        try:
            key = job_key_of(run_id)
        except ValueError:
            return None
        return await self._of_key(key, "run", {"run_id": run_id}, lambda data: _one(data, wire.run_of))

    def _number_of(self, key: str) -> int:
        return partition_for(key.encode(), self._partitions())

    async def _of_key(
        self, key: str, question: str, fields: Mapping[str, Any], read: Callable[[bytes], T]
    ) -> T:
        return await self._of_partition(self._number_of(key), question, fields, read)

    async def _of_partition(
        self, number: int, question: str, fields: Mapping[str, Any], read: Callable[[bytes], T]
    ) -> T:
        """The owner's answer; after one that is none any more, the next owner's. Raises PartitionsMissing."""
        fields = {**fields, "partition": number}
        last = False
        while True:
            url = self._directory.owner_of(number)
            if url is None:
                missing = self._directory.missing(number)
            else:
                try:
                    return read(await self._client.ask(url, question, fields))
                except NotOwned:
                    missing = MissingPartition(partition=number, reason="moving")
                except NotNow as error:
                    raise PartitionsMissing(error.missing) from None
                except wire.WireError as error:
                    raise PartitionsMissing([_incompatible(url, error).of(number)]) from None
                except OwnerFailed as error:
                    missing = error.of(number)
            if last or not await self._is_worth_another(missing, number, url):
                raise PartitionsMissing([missing])
            last = True

    async def _is_worth_another(self, missing: MissingPartition, number: int, asked: str | None) -> bool:
        """Whether a second try may find what the first did not. Looks at the group again, if that is not too early:
        somebody waits for an answer, and who asks again will see what the next look finds."""
        if missing.reason == "moving" or self._directory.may_look:
            await self._directory.refresh()
        url = self._directory.owner_of(number)
        return url is not None and (url != asked or missing.reason == "moving")

    # --- lists

    async def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        fields = {
            "namespace": where.namespace,
            "id_prefix": where.id_prefix,
            "labels": dict(where.labels),
            "state": where.state,
            "failing": where.failing,
            "cursor": cursor,
        }
        pages, missing = await self._from_all("jobs", fields, limit, partitions, wire.job_of)
        return merge_jobs(pages, limit, missing)

    async def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        fields = {"namespace": namespace, "status": status}
        pages, missing = await self._from_all("runs", fields, limit, partitions, wire.run_of, whole=True)
        return merge_recent_runs(pages, limit, missing)

    async def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        fields = {"namespace": namespace, "cursor": cursor}
        pages, missing = await self._from_all("dead-letters", fields, limit, partitions, wire.letter_of)
        return merge_dead_letters(pages, limit, missing)

    async def _from_all(
        self,
        question: str,
        fields: Mapping[str, Any],
        limit: int,
        partitions: Collection[int] | None,
        read: Callable[[bytes], T],
        *,
        whole: bool = False,
    ) -> tuple[list[Page[T]], list[MissingPartition]]:
        """The pages of all owners, and what none of them answered for. Each owner is asked for what it owns by name, so
        that nothing falls between two of them while it moves; what did is asked again once."""
        open_ = frozenset(range(self._partitions()) if partitions is None else partitions)
        owners = max(1, len(self._directory.owners.urls()))
        share = limit if whole or limit <= WHOLE_PAGES_UPTO else min(limit, limit * 5 // (4 * owners) + 16)
        pages: list[Page[T]] = []
        missing: dict[int, MissingPartition] = {}
        for last in (False, True):
            by_owner: dict[str, list[int]] = {}
            for number in sorted(open_):
                url = self._directory.owner_of(number)
                if url is None:
                    missing[number] = self._directory.missing(number)
                else:
                    by_owner.setdefault(url, []).append(number)
                    missing.pop(number, None)
            found = await _all_of(
                self._page(url, question, {**fields, "limit": share, "partitions": numbers}, numbers, read)
                for url, numbers in by_owner.items()
            )
            for page in found:
                pages.append(page)
                missing |= {each.partition: each for each in page.missing}
            if last or not missing:
                break
            open_ = await self._worth_another(missing)
            if not open_:
                break
        return pages, [missing[number] for number in sorted(missing)]

    async def _page(
        self,
        url: str,
        question: str,
        fields: Mapping[str, Any],
        numbers: Sequence[int],
        read: Callable[[bytes], T],
    ) -> Page[T]:
        """The owner's page; if there is none, an empty one that says why."""
        try:
            page = wire.unpack_page(await self._client.ask(url, question, fields), read)
        except NotOwned:
            return _nothing(numbers, "moving")
        except NotNow as error:
            return Page(items=(), missing=error.missing)
        except wire.WireError as error:
            return _failed(numbers, _incompatible(url, error))
        except OwnerFailed as error:
            return _failed(numbers, error)
        # That it is not there says that it is elsewhere.
        moved = [
            replace(each, reason="moving", detail="") if each.reason == "no-owner" else each
            for each in page.missing
        ]
        return replace(page, missing=moved)

    async def _worth_another(self, missing: Mapping[int, MissingPartition]) -> frozenset[int]:
        before = {number: self._directory.owner_of(number) for number in missing}
        moving = any(each.reason == "moving" for each in missing.values())
        if moving or self._directory.may_look:
            await self._directory.refresh()
        return frozenset(
            number
            for number, each in missing.items()
            if (now := self._directory.owner_of(number)) is not None
            and (now != before[number] or each.reason == "moving")
        )

    # --- health

    async def standing(self) -> tuple[Sequence[PartitionHealth], str]:
        found = await self.stand()
        return found.health, found.broken

    async def stand(self) -> Standing:
        directory = self._directory
        if len(directory.owners.by_partition) < self._partitions() and directory.may_look:
            await directory.refresh()
        by_owner: dict[str, list[int]] = {}
        found: dict[int, PartitionHealth] = {}
        for number in range(self._partitions()):
            url = self._directory.owner_of(number)
            if url is None:
                found[number] = not_ready(self._directory.missing(number))
            else:
                by_owner.setdefault(url, []).append(number)
        asked = {url: asyncio.ensure_future(self._health_of(url, by_owner[url])) for url in by_owner}
        if asked:
            await asyncio.wait(
                asked.values(), timeout=HEALTH_S
            )  # who is later is asked to the end, for the breaker's sake
        complaints: dict[str, None] = {}
        for url, numbers in by_owner.items():
            health, broken = asked[url].result() if asked[url].done() else _late(url, numbers)
            said = {each.partition: replace(each, owner=url) for each in health}
            for number in numbers:
                moving = MissingPartition(partition=number, reason="moving")
                found[number] = said.get(number) or replace(not_ready(moving), owner=url)
            if broken and all(found[number].ready for number in numbers):
                complaints[f"{broken} (partitions {', '.join(map(str, numbers))})"] = None
        health = [found[number] for number in sorted(found)]
        return Standing(health=health, broken=_why_broken(health, list(complaints)))

    async def _health_of(self, url: str, numbers: Sequence[int]) -> tuple[list[PartitionHealth], str]:
        try:
            head, _ = wire.unpack(await self._client.ask(url, "health", {}))
            return wire.health_of(head.get("health")), str(head.get("broken", ""))
        except OwnerFailed as error:
            return [not_ready(error.of(number)) for number in numbers], ""
        except wire.WireError as error:
            return [not_ready(_incompatible(url, error).of(number)) for number in numbers], ""
        except (NotOwned, NotNow):
            return [], ""

    # --- waiting

    async def applied(self, topic: str, partition: int, offsets: Sequence[int], within_s: float) -> int:
        """See waits.Ask."""
        url = self._directory.owner_of(partition)
        if url is None:
            raise NotAnswered
        fields = {
            "topic": topic,
            "partition": partition,
            "offsets": list(offsets),
            "within_ms": int(within_s * 1000),
        }
        try:
            head, _ = wire.unpack(await self._client.ask(url, "applied", fields, poll_s=within_s))
        except (NotOwned, NotNow, OwnerFailed, wire.WireError):
            raise NotAnswered from None
        through = head.get("through")
        return through if type(through) is int else -1


# --- small parts --------------------------------------------------------------------------------------------------------


async def _all_of(asked: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*asked))


def _one(data: bytes, read: Callable[[bytes], T]) -> T | None:
    _, blobs = wire.unpack(data)
    return read(blobs[0]) if blobs else None


def _some_views(data: bytes) -> tuple[int, list[JobView]]:
    head, blobs = wire.unpack(data)
    answered = head.get("answered")
    if type(answered) is not int or answered < 1:
        raise wire.WireError("it does not say how many keys it is about")
    return answered, [wire.job_of(blob) for blob in blobs]


def _incompatible(url: str, error: wire.WireError) -> OwnerFailed:
    return OwnerFailed(
        "incompatible",
        f"the streams process at {url} answered in a way that this release does not understand: {error}; bring both to "
        "one release",
    )


def _failed(numbers: Iterable[int], error: OwnerFailed) -> Page[Any]:
    return Page(items=(), missing=[error.of(number) for number in numbers])


def _nothing(numbers: Iterable[int], reason: Any) -> Page[Any]:
    return Page(items=(), missing=[MissingPartition(partition=n, reason=reason) for n in numbers])


def _late(url: str, numbers: Sequence[int]) -> tuple[list[PartitionHealth], str]:
    error = OwnerFailed("unreachable", f"the streams process at {url} has not answered for {HEALTH_S} s")
    return [not_ready(error.of(number)) for number in numbers], ""


def _why_broken(health: Sequence[PartitionHealth], complaints: Sequence[str]) -> str:
    """Without the addresses of owners: /readyz is shown to everybody."""
    lacking = [each for each in health if not each.ready]
    if not lacking:
        return "; ".join(complaints)
    first = lacking[0]
    why = sentence(
        MissingPartition(
            partition=first.partition,
            reason=first.reason or "restoring",
            restore_done=first.restore_done,
            restore_total=first.restore_total,
            restore_eta_s=first.restore_eta_s,
        )
    )
    if len(lacking) == 1:
        return why
    return f"{why}; {len(lacking) - 1} more of {len(health)} partitions cannot be asked"
