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
from tocsin.schemas.topics import TopicNames
from tocsin.streams.answers import Answers
from tocsin.streams.clocks import ClockMode
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import StreamsConfig, Topology

STOP_S = 20.0
"""The last commit and the hand-over of every partition; the log may just be electing its leaders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRoleConfig:
    """What `tocsin streams` is started with."""

    data: Path
    advertise: str
    """Where other processes reach what this one serves: also its name in the group."""
    names: TopicNames
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

    def start(self) -> None:
        config = self._config
        log = self._log = config.open_log()
        self._process.begin("it looks for its topics, and makes those that are missing")
        initialise(log, config.names, partitions=config.partitions, queue_partitions=config.queue_partitions)
        self._process.begin("it opens its producer and its consumers")
        topology = Topology(
            StreamsConfig(
                data=config.data,
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
            lambda: self._status(topology, answers),
            lambda: self._figures(topology, answers),
            [owner_router(answers, self._secret(topology), lambda: _owned(topology))],
        )
        self._thread = self._process.thread("tocsin-streams", topology.run)

    def look(self) -> str:
        assert self._answers is not None
        assert self._pulse is not None
        return self._pulse.trouble() or self._restoring() or self._answers.broken()

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

    def _restoring(self) -> str:
        """The partition that is farthest from being ready, with its progress."""
        assert self._topology is not None
        waiting = [each for each in list(self._topology.partitions.values()) if not each.ready]
        if not waiting:
            return ""
        lines = []
        for each in waiting:
            progress = each.progress
            if progress is None or not progress.total:
                continue
            eta = "" if progress.eta_s is None else f", about {progress.eta_s:.0f} s left"
            lines.append(f"partition {each.number} has {progress.done:,} of {progress.total:,} rows{eta}")
        shown = "; ".join(lines[:3])
        more = f"; {len(lines) - 3} more" if len(lines) > 3 else ""
        count = len(self._topology.partitions)
        return f"restoring {len(waiting)} of {count} partitions{': ' if shown else ''}{shown}{more}"

    def _status(self, topology: Topology, answers: Answers) -> Mapping[str, Any]:
        progress = {each.number: each.progress for each in list(topology.partitions.values())}
        partitions = []
        for health in answers.health():
            restoring = progress.get(health.partition)
            partitions.append(
                {
                    "partition": health.partition,
                    "ready": health.ready,
                    "watermark": views.instant(health.watermark_ms),
                    "restore_done": health.restore_done,
                    "restore_total": health.restore_total,
                    "restore_eta_s": None if restoring is None or health.ready else restoring.eta_s,
                }
            )
        return {"role": self.name, "advertised": self._config.advertise, "partitions": partitions}

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
