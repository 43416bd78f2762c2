"""Streams processes without processors: each serves its part of one world over real HTTP on loopback."""

import asyncio
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI

from tocsin.api.cluster.owner import owner_router
from tocsin.api.cluster.queries import ClusterQueries
from tocsin.api.services import ConfigSnapshot
from tocsin.clock import SystemClock
from tocsin.log.partitioner import partition_for
from tocsin.log.port import LogUnavailable, Member, TopicPartition
from tocsin.schemas.job import HttpTarget, Job, JobKey, Schedule
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.schemas.rows import JobRow
from tocsin.schemas.topics import TopicNames
from tocsin.streams import cursors
from tocsin.streams.ids import job_key_of
from tocsin.streams.queries import (
    JobFilter,
    JobView,
    MissingPartition,
    Page,
    PartitionHealth,
    PartitionsMissing,
)
from tocsin.streams.waiters import Waiters

NAMES = TopicNames()
PARTITIONS = 6
SECRET = "the secret of the cluster"
HOURLY = Schedule(every_ms=3_600_000)
START_MS = 1_767_225_600_000


KEYS = [f"default/j{number:03}" for number in range(60)]


def view_of(key: str, **row: Any) -> JobView:
    namespace, _, job_id = key.partition("/")
    job = Job(
        namespace=namespace,
        id=job_id,
        schedule=HOURLY,
        http=HttpTarget(url="http://127.0.0.1:1/ok", body=b"\xff\0"),
    )
    return JobView(
        key=JobKey(key),
        job=job,
        row=JobRow(revision=1, digest=b"\x01\xfe", open=[3, 9], **row),
        definition_offset=7,
        defined_ms=START_MS,
        actor="cli:ännä",
    )


def run_of(
    key: str, name: str, *, event_ms: int = START_MS, status: Any = "succeeded", seq: int = 1
) -> RunEvent:
    namespace, _, job_id = key.partition("/")
    return RunEvent(
        run_id=f"{key}!t.{name}",
        namespace=namespace,
        job_id=job_id,
        seq=seq,
        revision=1,
        cause="trigger",
        nominal_ms=event_ms,
        due_ms=event_ms,
        status=status,
        event_ms=event_ms,
    )


def number_of(key: str) -> int:
    return partition_for(key.encode(), PARTITIONS)


@dataclass
class World:
    """What all owners together know, and who owns what."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    runs: list[RunEvent] = field(default_factory=list)
    """Oldest first."""
    dead: list[DeadLetter] = field(default_factory=list)
    owner: dict[int, str] = field(default_factory=dict)
    """Partition -> name of the owner, as the owners themselves know it."""
    restoring: set[int] = field(default_factory=set)
    scan_max: int = 1_000_000
    """Jobs that a search looks at before it gives up."""

    def add(self, *keys: str) -> None:
        for key in keys:
            self.jobs[key] = view_of(key)

    def in_order(self) -> list[str]:
        return sorted(self.jobs)


class Part:
    """queries.Queries of one owner; owner None: of all partitions, in one process."""

    def __init__(self, world: World, name: str | None = None) -> None:
        self.world = world
        self.name = name
        self.waiters = Waiters()
        self.asked: list[str] = []
        self.why_broken = ""

    def owns(self) -> list[int]:
        if self.name is None:
            return list(range(PARTITIONS))
        return [number for number, owner in self.world.owner.items() if owner == self.name]

    def _lacks(self, number: int) -> MissingPartition | None:
        if number not in self.owns():
            return MissingPartition(partition=number, reason="no-owner")
        if number in self.world.restoring:
            return MissingPartition(
                partition=number, reason="restoring", restore_done=3, restore_total=12, restore_eta_s=4.5
            )
        return None

    def _require(self, key: str) -> None:
        lacks = self._lacks(number_of(key))
        if lacks is not None:
            raise PartitionsMissing([lacks])

    def _part(self, partitions: Collection[int] | None) -> tuple[set[int], list[MissingPartition]]:
        wanted = self.owns() if partitions is None else partitions
        missing = [lacks for number in wanted if (lacks := self._lacks(number)) is not None]
        return set(wanted) - {each.partition for each in missing}, missing

    def get_job(self, key: JobKey) -> JobView | None:
        self.asked.append("job")
        self._require(key)
        return self.world.jobs.get(key)

    def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        return {key: view for key in keys if (view := self.get_job(key)) is not None}

    def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        self.asked.append("jobs")
        here, missing = self._part(partitions)
        after = cursors.job_key(cursor) if cursor else ""
        keys = [key for key in self.world.in_order() if key > after and number_of(key) in here]
        items: list[JobView] = []
        last = cursor
        for looked, key in enumerate(keys):
            if len(items) == limit or looked >= self.world.scan_max:
                return Page(items=items, next_cursor=last, missing=missing)
            last = key
            if where.namespace in ("", key.partition("/")[0]):
                items.append(self.world.jobs[key])
        return Page(items=items, missing=missing)

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        self._require(key)
        start = cursors.place(cursor) if cursor else 0
        runs = [run for run in reversed(self.world.runs) if job_key_of(run.run_id) == key]
        more = start + limit < len(runs)
        return Page(items=runs[start : start + limit], next_cursor=str(start + limit) if more else "")

    def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        here, missing = self._part(partitions)
        found = [
            run
            for run in reversed(self.world.runs)
            if number_of(job_key_of(run.run_id)) in here
            and namespace in ("", run.namespace)
            and status in ("", run.status)
        ]
        return Page(items=found[:limit], missing=missing)

    def get_run(self, run_id: str) -> RunEvent | None:
        self._require(job_key_of(run_id))
        return next((run for run in self.world.runs if run.run_id == run_id), None)

    def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        here, missing = self._part(partitions)
        after = cursors.job_and_seq(cursor) if cursor else ("", -1)
        placed = sorted(((job_key_of(each.run.run_id), each.run.seq), each) for each in self.world.dead)
        found = [
            (place, each)
            for place, each in placed
            if place > after and number_of(place[0]) in here and namespace in ("", each.run.namespace)
        ]
        more = len(found) > limit
        cursor = f"{found[limit - 1][0][0]}:{found[limit - 1][0][1]}" if more else ""
        return Page(items=[each for _, each in found[:limit]], next_cursor=cursor, missing=missing)

    def health(self, *, figures: bool = True) -> Sequence[PartitionHealth]:
        return [
            PartitionHealth(
                partition=number,
                ready=number not in self.world.restoring,
                watermark_ms=START_MS,
                tick_ms=START_MS,
                jobs=sum(number_of(key) == number for key in self.world.jobs),
                open_runs=0,
                dead_letters=0,
                overdue=0,
                pending={"1s": 1},
                restore_done=3 if number in self.world.restoring else 0,
                restore_total=12 if number in self.world.restoring else 0,
                reason="restoring" if number in self.world.restoring else "",
            )
            for number in self.owns()
        ]

    def broken(self) -> str:
        return self.why_broken

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        return self.waiters.add(topic, partition, offset)


class Owner:
    """One streams process: its questions on a port of loopback. It may be stopped, and start again on the same port."""

    def __init__(self, world: World, name: str, secret: str = SECRET) -> None:
        self.queries = Part(world, name)
        self.name = name
        self._secret = secret
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        # Else asyncio leaves Nagle's algorithm on, and each answer waits 40 ms.
        listening = socket.socket(proto=socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen(64)
        self._port = listening.getsockname()[1]
        app = FastAPI(openapi_url=None)
        asked: Any = _Current(self)
        app.include_router(owner_router(asked, lambda: self._secret, self._owns))
        server = self._server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
            )
        )
        server.capture_signals = _none  # type: ignore[method-assign]
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        self._thread.start()

    def _owns(self) -> list[int]:
        return self.queries.owns()

    def start_if_stopped(self) -> None:
        if self._server is None:
            self.start()

    def ask_to_stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True

    def stop(self) -> None:
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join()
            self._server = self._thread = None


class _Current:
    """The questions of the test that is running: servers are started once for many."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner.queries, name)


@contextmanager
def _none() -> Iterator[None]:
    yield


class Frozen:
    """A process that is stopped by a signal: its kernel takes connections, and nobody answers."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(64)
        self._taken: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def connections(self) -> int:
        """How many it was sent since it was asked last."""
        self._socket.setblocking(False)
        found = 0
        while True:
            try:
                self._taken.append(self._socket.accept()[0])
            except BlockingIOError:
                return found
            found += 1

    def close(self) -> None:
        for each in (*self._taken, self._socket):
            each.close()


@dataclass
class Group:
    """The consumer group as its coordinator shows it: what EventLog.members() is asked for."""

    shown: dict[int, str] = field(default_factory=dict)
    """Partition -> client id."""
    idle: list[str] = field(default_factory=list)
    """Members without partitions."""
    down: bool = False
    asked: int = 0
    looked: threading.Condition = field(default_factory=threading.Condition)

    def members(self, group: str) -> tuple[Member, ...]:
        assert group == NAMES.streams_group
        with self.looked:
            self.asked += 1
            self.looked.notify_all()
        if self.down:
            raise LogUnavailable("no broker answers")
        by_client: dict[str, set[int]] = {client_id: set() for client_id in self.idle}
        for partition, client_id in self.shown.items():
            by_client.setdefault(client_id, set()).add(partition)
        return tuple(
            Member(
                client_id=client_id,
                partitions=frozenset(TopicPartition(NAMES.commands, number) for number in numbers),
            )
            for client_id, numbers in by_client.items()
        )

    def wait_until_asked(self, times: int = 1) -> None:
        """Until it was asked so many times from now on, and so answered all but the last of them."""
        with self.looked:
            until = self.asked + times
            assert self.looked.wait_for(lambda: self.asked >= until, 30)


@dataclass
class Cluster:
    """Owners a, b and c with two partitions each, and an API process that asks them."""

    world: World
    group: Group
    owners: dict[str, Owner]
    queries: ClusterQueries
    secret: str = SECRET

    def give(self, name: str, *partitions: int, told: bool = True) -> None:
        """The partitions move to another owner; `told`: and the group shows it."""
        for number in partitions:
            self.world.owner[number] = name
            if told:
                self.group.shown[number] = self.owners[name].url


@contextmanager
def cluster(owners: dict[str, Owner], world: World) -> Iterator[Cluster]:
    """Over the world; `owners` serve it now, and those that a test stopped have been started again."""
    with ExitStack() as stack:
        for name, owner in owners.items():
            owner.queries = Part(world, name)
            owner.start_if_stopped()
        world.owner.update({number: "abc"[number % 3] for number in range(PARTITIONS)})
        group = Group(shown={number: owners[name].url for number, name in world.owner.items()})
        made = Cluster(world=world, group=group, owners=owners, queries=None)  # type: ignore[arg-type]
        made.queries = ClusterQueries(
            group,  # type: ignore[arg-type]
            NAMES,
            config=lambda: ConfigSnapshot(partitions=PARTITIONS),
            secret=lambda: made.secret,
            clock=SystemClock(),
        )
        made.queries.start()
        stack.callback(made.queries.stop)
        yield made


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it does not come about")


def all_keys(queries: Any, *, limit: int, pages_max: int = 1_000, **where: Any) -> list[str]:
    """Every key, following the cursors to the end."""
    keys: list[str] = []
    cursor = ""
    for _ in range(pages_max):
        page = queries.list_jobs(JobFilter(**where), cursor=cursor, limit=limit)
        assert [] == list(page.missing)
        assert len(page.items) <= limit
        keys += [view.key for view in page.items]
        cursor = page.next_cursor
        if not cursor:
            return keys
    raise AssertionError("the pages have no end")


def key_in(number: int) -> JobKey:
    return JobKey(next(key for key in KEYS if number_of(key) == number))


def reasons(missing: Any) -> dict[int, str]:
    return {each.partition: each.reason for each in missing}
