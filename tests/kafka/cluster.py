"""A cluster: roles on one broker under a prefix of its own, a sink, what was defined, and who judges it."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka.admin import AdminClient

from tests.kafka.evidence import Evidence
from tests.kafka.expected import Defined
from tests.kafka.happenings import Happenings
from tests.kafka.judge import Judge, Verdict
from tests.kafka.roles import SHOWN_LINES, TOCSIN, Role, free_port
from tests.kafka.sink import Sink
from tests.kafka.waiting import until
from tocsin.clock import SystemClock, new_id
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.port import EventLog
from tocsin.schemas.topics import TopicNames

PARTITIONS: Final = 4
"""As many as are needed to be shared by several; each costs the broker, and every start."""
SETTLES_WITHIN_S: Final = 240.0


@dataclass(kw_only=True)
class Cluster:
    """Roles are made and started by name; everything that was started is ended by close()."""

    bootstrap: str
    directory: Path
    partitions: int = PARTITIONS
    names: TopicNames = field(default_factory=lambda: TopicNames(f"t.{new_id()[:10]}."))
    sink: Sink = field(default_factory=Sink)
    happenings: Happenings = field(default_factory=Happenings)
    roles: dict[str, Role] = field(default_factory=dict)
    defined: list[Defined] = field(default_factory=list)
    triggers: dict[str, str] = field(default_factory=dict)
    quarantined: int = 0
    _clock: SystemClock = field(default_factory=SystemClock)
    _log: EventLog | None = None
    _evidence: Evidence | None = None
    _client: httpx.Client | None = None

    # --- roles

    def streams(self, number: int = 1, *options: str, module: tuple[str, ...] = TOCSIN) -> Role:
        name = f"streams-{number}"
        data = ("--data", str(self.directory / name))
        counts = ("--partitions", str(self.partitions), "--queue-partitions", str(self.partitions))
        return self._start("streams", name, (*data, *counts, "--listen", "127.0.0.1:0", *options), module)

    def worker(self, number: int = 1, *options: str, module: tuple[str, ...] = TOCSIN) -> Role:
        name = f"worker-{number}"
        given = ("--name", name, "--listen", "127.0.0.1:0", "--allow-loopback", *options)
        return self._start("worker", name, given, module)

    def api(self) -> Role:
        return self._start("api", "api", ("--port", str(free_port())), TOCSIN)

    def _start(self, kind: Any, name: str, options: tuple[str, ...], module: tuple[str, ...]) -> Role:
        role = self.roles.get(name)
        if role is None:
            role = self.roles[name] = Role(
                kind=kind,
                name=name,
                command=(kind, "--kafka", self.bootstrap, "--prefix", self.names.prefix, *options),
                output=self.directory / f"{name}.log",
                happenings=self.happenings,
                module=module,
            )
        return role.start()

    def start(self, *, streams: int = 1, workers: int = 1) -> "Cluster":
        """The usual: so many streams processes and workers, and the API; all are ready."""
        self.sink.start()
        for number in range(1, streams + 1):
            self.streams(number)
        for number in range(1, workers + 1):
            self.worker(number)
        self.api()
        self.until_ready()
        return self

    def until_ready(self) -> None:
        for role in self.roles.values():
            if role.alive and not role.frozen:
                role.until_ready()

    def __getitem__(self, name: str) -> Role:
        return self.roles[name]

    # --- the log

    @property
    def log(self) -> EventLog:
        if self._log is None:
            self._log = KafkaLog.open(KafkaConfig(bootstrap=self.bootstrap), self._clock)
        return self._log

    @property
    def evidence(self) -> Evidence:
        """As of the last refresh()."""
        if self._evidence is None:
            self._evidence = Evidence(self.log, self.names)
        return self._evidence

    def owners(self) -> dict[int, str]:
        """Who has which partition of the job topics, by the group's own account."""
        return {
            each.partition: member.client_id
            for member in self.log.members(self.names.streams_group)
            for each in member.partitions
        }

    def owner_of(self, partition: int) -> Role:
        url = self.owners()[partition]
        return next(role for role in self.roles.values() if role.kind == "streams" and role.url == url)

    def partitions_of(self, role: Role) -> list[int]:
        return sorted(number for number, url in self.owners().items() if url == role.url)

    def until_fires(self, partitions: Iterable[int], after_ms: int) -> int:
        """When, by the log's clock, the last of the partitions had dispatched something after `after_ms` again."""
        wanted = set(partitions)

        def fired() -> int:
            first: dict[int, int] = {}
            for events in self.evidence.refresh().runs.values():
                for event in events:
                    at, stamped_ms = event.record.partition, event.record.timestamp_ms
                    if stamped_ms > after_ms and event.value.status == "scheduled":
                        first[at] = min(stamped_ms, first.get(at, stamped_ms))
            return max(first[number] for number in wanted) if first.keys() >= wanted else 0

        return until(fired, f"partitions {sorted(wanted)} fire again", every_s=0.2)

    def until_shared(self, *roles: Role) -> dict[int, str]:
        """Waits until exactly these processes share all partitions (each has one, if there are enough)."""
        urls = {role.url for role in roles}

        def shared() -> dict[int, str]:
            owners = self.owners()
            whole = len(owners) == self.partitions
            return owners if whole and set(owners.values()) == urls else {}

        return until(shared, lambda: f"{[r.name for r in roles]} share {self.partitions}: {self.owners()}")

    def until_workers_share(self, *roles: Role, queue: str = "default") -> None:
        group, wanted = self.names.worker_group(queue), len(roles)

        def shared() -> bool:
            held = [member.partitions for member in self.log.members(group) if member.partitions]
            return len(held) == wanted and self.partitions == sum(map(len, held))

        until(shared, lambda: f"{wanted} workers share {group}: {self.log.members(group)}")

    def produce(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None
    ) -> tuple[str, int, int]:
        """One record past all of Tocsin; returns its coordinates."""
        found: list[Any] = []
        producer = self.log.producer()
        producer.produce(topic, partition=partition, key=key, value=value, on_delivery=found.append)
        until(lambda: producer.flush(1.0) == 0, f"a record on {topic} is acknowledged")
        producer.close()
        assert found[0].error is None, found[0]
        return topic, partition, found[0].offset

    # --- the API

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            url = until(lambda: self.roles["api"].url, "the API says where it listens")
            self._client = httpx.Client(base_url=url, timeout=90.0)
        return self._client

    def define(
        self,
        *documents: dict[str, Any],
        skips: Iterable[str] = (),
        ends: Iterable[str] = ("succeeded",),
        applied: bool = True,
    ) -> None:
        """Defines the jobs; they are in force afterwards (`applied`), and the judge will ask for what they owe."""
        sent_ms = self._clock.now_ms()
        answer = self.client.post(
            "/v1/jobs:batch",
            content="\n".join(json.dumps(each) for each in documents),
            headers={"Content-Type": "application/x-ndjson"},
            params={"wait": "applied"} if applied else {},
        )
        assert answer.status_code < 300, answer.text
        for line in answer.text.splitlines():
            assert not json.loads(line).get("errors"), line
        self.defined += [
            Defined(
                document=each,
                sent_ms=sent_ms,
                answered_ms=self._clock.now_ms(),
                applied=applied,
                skips=frozenset(skips),
                ends=frozenset(ends),
            )
            for each in documents
        ]

    def define_if_possible(
        self, document: dict[str, Any], *, skips: Iterable[str] = (), within_s: float
    ) -> None:
        """In the midst of faults. Acknowledged, it is owed; not answered, it may have happened, or not."""
        key = f"default/{document['id']}"
        sent_ms = self._clock.now_ms()
        try:
            answer = self.client.put(f"/v1/jobs/{key}", json=document, timeout=within_s)
            acknowledged = answer.status_code < 300
            assert answer.status_code != 422, answer.text
        except httpx.HTTPError:
            acknowledged = False
        self.defined.append(
            Defined(
                document=document,
                sent_ms=sent_ms,
                answered_ms=self._clock.now_ms(),
                applied=False,
                acknowledged=acknowledged,
                skips=frozenset(skips),
            )
        )

    def trigger(self, key: str, trigger_id: str, *, within_s: float = 60.0) -> bool:
        """Whether it was acknowledged: then its run is owed."""
        answer = self.client.post(
            f"/v1/jobs/{key}/trigger", headers={"Idempotency-Key": trigger_id}, json={}, timeout=within_s
        )
        if answer.status_code < 300:
            self.triggers[trigger_id] = f"{key}!t.{trigger_id}"
        return answer.status_code < 300

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    # --- judging

    @property
    def judge(self) -> Judge:
        return Judge(
            evidence=self.evidence,
            defined=self.defined,
            happenings=self.happenings,
            triggers=self.triggers,
            quarantined=self.quarantined,
        )

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def until_status(self, run_id: str, *statuses: str) -> str:
        def found() -> str:
            status = self.evidence.refresh().status(run_id)
            return status if status in statuses else ""

        return until(found, lambda: f"{run_id} is {statuses}, not {self.evidence.status(run_id)!r}")

    def until_requests(self, enough: Callable[[list[Any]], bool], what: str) -> None:
        until(lambda: enough(self.sink.requests), what)

    def settled(self, cut_ms: int | None = None) -> Verdict:
        """Waits until everything up to the cut (now) has its last word, and judges.

        The processes go on meanwhile: what is on its way may arrive.
        """
        cut_ms = self.now_ms() if cut_ms is None else cut_ms
        judge = self.judge

        def is_settled() -> bool:
            self.evidence.refresh()
            return not judge.unsettled(cut_ms)

        with contextlib.suppress(AssertionError):  # what never settles is lost: the verdict names it
            until(is_settled, "all is settled", SETTLES_WITHIN_S, every_s=0.25)
        self.evidence.refresh()
        return judge.verdict(self.sink.requests, cut_ms)

    # --- the end

    def tails(self, lines: int = SHOWN_LINES) -> str:
        """What its processes said last, and what was done to them."""
        told = "\n".join(f"{each.at_ms} {each}" for each in self.happenings.all)
        said = "\n".join(role.tail(lines) for role in self.roles.values())
        return f"{said}\n--- what was done ---\n{told}"

    def close(self) -> None:
        for role in self.roles.values():
            role.close()
        self.sink.stop()
        if self._client is not None:
            self._client.close()
        if self._evidence is not None:
            self._evidence.close()
        if self._log is not None:
            self._log.close()
        self._delete_topics()

    def _delete_topics(self) -> None:
        """What a test leaves behind would cost every later one."""
        with contextlib.suppress(Exception):  # the broker may be gone, rightly
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            found = admin.list_topics(timeout=10).topics
            mine = [name for name in found if name.startswith(self.names.prefix)]
            if mine:
                for future in admin.delete_topics(mine).values():
                    future.result(10)


def show(text: str) -> None:
    """Captured by pytest, and shown with a failure."""
    sys.stdout.write(text + "\n")


@contextmanager
def made(
    bootstrap: str, directory: Path, *, tell: Callable[[str], None] = show, **settings: Any
) -> Iterator[Cluster]:
    """A cluster that is ended, whatever happens; what its processes said is told at the end."""
    cluster = Cluster(bootstrap=bootstrap, directory=directory, **settings)
    try:
        yield cluster
    finally:
        tell(cluster.tails())
        cluster.close()
