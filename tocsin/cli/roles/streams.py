"""The composition root of `tocsin streams`: the log, the topology, and what it serves: its health and its partitions."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tocsin.api import metrics, views
from tocsin.api.cluster.owner import owner_router
from tocsin.api.ops import create_ops_app
from tocsin.cli.roles.cluster import OpenLog, Pulse, initialise
from tocsin.cli.roles.process import Process
from tocsin.cli.roles.serving import Front
from tocsin.clock import Clock
from tocsin.log.port import EventLog
from tocsin.schemas.records import Journal
from tocsin.schemas.topics import TopicNames
from tocsin.streams.answers import Answers
from tocsin.streams.clocks import ClockMode
from tocsin.streams.settings import StreamsConfig
from tocsin.streams.status import OwnedStatus, status_of
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import Topology

ASK_EVERY_S = 2.0
"""How often a process without a partition looks whether all of them are others'."""
STOP_S = 20.0
"""The last commit and the hand-over of every partition; the log may just be electing its leaders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRoleConfig:
    """What `tocsin streams` is started with."""

    data: Path
    advertise: str
    """Where other processes reach what this one serves: also its name in the group."""
    names: TopicNames
    log: str
    """What to call the log: where it is."""
    open_log: OpenLog
    clock_mode: ClockMode = "guarded"
    standby: bool = False
    partitions: int | None = None
    queue_partitions: int | None = None
    secret: str = ""
    """Given from outside; "": the cluster's own."""


class StreamsRole:
    """Implements process.Role."""

    name = "streams"
    drain_s = STOP_S

    def __init__(self, config: StreamsRoleConfig, process: Process, front: Front, clock: Clock) -> None:
        self._config = config
        self._process = process
        self._front = front
        self._clock = clock
        self._environment = StoreEnvironment()
        self._log: EventLog | None = None
        self._pulse: Pulse | None = None
        self._topology: Topology | None = None
        self._answers: Answers | None = None
        self._thread: threading.Thread | None = None
        self._ask_at_s = 0.0
        self._is_idle = False

    def start(self) -> None:
        config = self._config
        log = self._log = config.open_log()
        self._process.begin("it looks for its topics, and makes those that are missing")
        initialise(log, config.names, partitions=config.partitions, queue_partitions=config.queue_partitions)
        self._process.begin("it opens its producer and its consumers")
        topology = Topology(
            StreamsConfig(
                data=config.data,
                log=config.log,
                client_id=config.advertise,
                names=config.names,
                clock_mode=config.clock_mode,
                standby=config.standby,
            ),
            self._clock,
            log,
            self._environment,
        )
        self._topology = topology
        answers = self._answers = Answers(topology, self._clock)
        self._pulse = Pulse(log, config.names, self._clock)
        self._front.app = create_ops_app(
            lambda: self._process.reason,
            lambda: self._status(topology),
            lambda: self._figures(topology, answers),
            [owner_router(answers, self._secret(topology), lambda: _owned(topology))],
        )
        self._thread = self._process.thread("tocsin-streams", topology.run)

    def look(self) -> str:
        assert self._answers is not None
        assert self._pulse is not None
        assert self._topology is not None
        trouble = self._pulse.trouble()
        if trouble or self._has_nothing_to_do():
            return trouble
        return status_of(self._topology).summary or self._answers.broken()

    def _has_nothing_to_do(self) -> bool:
        """Whether this process is a member like the others, and there are more of them than partitions."""
        assert self._log is not None
        assert self._topology is not None
        topology = self._topology
        if topology.failed or topology.held or topology.partitions or topology.unopened:
            self._is_idle = False
            return False
        now_s = self._clock.monotonic_s()
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + ASK_EVERY_S
            members = self._log.members(self._config.names.streams_group)
            owned = sum(len(member.partitions) for member in members)
            self._is_idle = (
                any(member.client_id == self._config.advertise for member in members)
                and owned == topology.configuration.cluster.partitions
            )
        return self._is_idle

    def stop(self) -> None:
        if self._topology is not None:
            self._topology.stop()
            if self._thread is not None:
                self._thread.join()
            else:
                self._topology.close()
            self._topology = self._thread = None
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- what is told

    def _status(self, topology: Topology) -> Mapping[str, Any]:
        status = status_of(topology)
        journals = {each.number: each.committed_journal for each in list(topology.partitions.values())}
        return {
            "role": self.name,
            "advertised": self._config.advertise,
            "joined": status.joined,
            "clock_offset_ms": status.clock_offset_ms,
            "partitions": [_owned_view(each, journals.get(each.partition)) for each in status.owned],
            "followed": [
                {"partition": each.partition, "behind": each.behind, "nearly_current": each.nearly_current}
                for each in status.followed
            ],
        }

    def _figures(self, topology: Topology, answers: Answers) -> bytes:
        return metrics.render(
            metrics.processor_figures(answers, self._clock.now_ms(), topology.clock_offset_ms)
        )

    def _secret(self, topology: Topology) -> Callable[[], str]:
        given = self._config.secret
        return lambda: given or topology.configuration.cluster.secret


def _owned(topology: Topology) -> list[int]:
    """The partitions assigned to this process, those that are not ready yet included."""
    return [*list(topology.partitions), *topology.unopened]


def _owned_view(each: OwnedStatus, journal: Journal | None) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "ready": each.stage in ("history", "working"),
        "stage": each.stage,
        "watermark": None if journal is None else views.instant(journal.watermark_ms),
        "restore_done": each.done,
        "restore_total": each.total,
        "restore_eta_s": each.eta_s,
    }
