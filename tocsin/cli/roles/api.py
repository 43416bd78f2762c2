"""The composition root of `tocsin api`: the log, the configuration, and the questions to whoever owns the partitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tocsin.api.app import create_app
from tocsin.api.appender import Appender
from tocsin.api.cluster.queries import ClusterQueries
from tocsin.api.services import ApiServices, ConfigSnapshot, WorkerSnapshot
from tocsin.cli.roles.cluster import PARTITIONS, Following, OpenLog, Pulse
from tocsin.cli.roles.process import Degraded, Process, waiting_app
from tocsin.cli.roles.serving import Front
from tocsin.clock import Clock
from tocsin.log.port import EventLog, LogUnavailable
from tocsin.schemas.topics import TopicNames
from tocsin.streams.config import Configuration

STOP_S: Final = 10.0
"""What was accepted is acknowledged, as far as the log still answers."""
COUNT_EVERY_S: Final = 3.0
"""How often the workers of each queue are counted: a request to the log for each queue."""

ASK_EVERY_S: Final = 1.0
"""How often every streams process is asked how it stands, for what is told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoleConfig:
    """What `tocsin api` is started with."""

    names: TopicNames
    open_log: OpenLog
    api_key: str = ""
    secret: str = ""
    """Given from outside; "": the cluster's own."""


class ApiRole:
    """Implements process.Role."""

    name = "api"
    drain_s = STOP_S

    def __init__(self, config: ApiRoleConfig, process: Process, front: Front, clock: Clock) -> None:
        self._config = config
        self._process = process
        self._front = front
        self._clock = clock
        self._log: EventLog | None = None
        self._pulse: Pulse | None = None
        self._following: Following | None = None
        self._appender: Appender | None = None
        self._queries: ClusterQueries | None = None
        self._live: dict[str, int] = {}
        self._count_at_s = 0.0
        self._broken = ""
        self._ask_at_s = 0.0

    def start(self) -> None:
        config = self._config
        log = self._log = config.open_log()
        self._process.begin("it reads the configuration")
        self._following = Following(log, config.names)
        self._pulse = Pulse(log, config.names, self._clock)
        self._appender = Appender(log.producer(), clock=self._clock)
        self._appender.start()
        self._queries = ClusterQueries(
            log, config.names, config=self._snapshot, secret=self._secret, clock=self._clock
        )
        self._queries.start()
        self._front.app = create_app(
            ApiServices(
                appender=self._appender,
                queries=self._queries,
                clock=self._clock,
                config=self._snapshot,
                create_topics=log.create_topics,
                names=config.names,
                queue_partitions=self._queue_partitions(),
                api_key=config.api_key,
                secret=self._secret,
                fires=False,
                writable=self._queries.log_trouble,
                workers=self._workers,
            )
        )

    def look(self) -> str:
        assert self._pulse is not None
        assert self._queries is not None
        assert self._appender is not None
        trouble = self._pulse.trouble()
        if trouble:
            return trouble
        assert self._following is not None
        self._following.poll(self._clock.monotonic_s())
        self._count()
        if not self._appender.alive:
            self._process.fail("what writes to the log has ended")
        if trouble := self._queries.log_trouble():
            return f"the log takes nothing at the moment: {trouble}"
        now_s = self._clock.monotonic_s()
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + ASK_EVERY_S
            self._broken = self._queries.broken()
        if self._broken:
            raise Degraded(self._broken)
        return ""

    def stop(self) -> None:
        self._front.app = waiting_app(self._process)
        if self._appender is not None:
            self._appender.stop()
            self._appender = None
        if self._queries is not None:
            self._queries.stop()
            self._queries = None
        if self._following is not None:
            self._following.close()  # its last word is still asked for
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- what changes

    def _count(self) -> None:
        """How many workers read each queue, as their groups say."""
        assert self._log is not None
        now_s = self._clock.monotonic_s()
        if now_s < self._count_at_s:
            return
        self._count_at_s = now_s + COUNT_EVERY_S
        names = self._config.names
        live = {}
        for name, queue in self._snapshot().queues.items():
            if not queue.deleted:
                try:
                    live[name] = len(self._log.members(names.worker_group(name)))
                except LogUnavailable:
                    return
        self._live = live

    # --- what the API is given

    def _cluster(self) -> Configuration:
        assert self._following is not None
        return self._following.current

    def _snapshot(self) -> ConfigSnapshot:
        current = self._cluster()
        return ConfigSnapshot(partitions=current.cluster.partitions, queues=current.queues)

    def _secret(self) -> str:
        return self._config.secret or self._cluster().cluster.secret

    def _queue_partitions(self) -> int:
        """As the queue that the first start made: whoever chose its number chose it for this Kafka."""
        found = self._snapshot().queues.get("default")
        return PARTITIONS if found is None else found.partitions

    def _workers(self) -> Iterator[WorkerSnapshot]:
        for queue, live in self._live.items():
            yield WorkerSnapshot(queue=queue, live=live, elsewhere=True)
