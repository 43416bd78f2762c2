"""The composition root of the all-in-one node: embedded log, stream processor, workers, API."""

import asyncio
import gc
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvicorn

from tocsin.api.app import create_app
from tocsin.api.appender import Appender
from tocsin.api.services import ApiServices, ConfigSnapshot, WorkerSnapshot
from tocsin.cli.roles.serving import Server
from tocsin.cli.roles.snapshots import snapshots
from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import LogCorrupt
from tocsin.schemas.callbacks import Callbacks
from tocsin.schemas.topics import TopicNames
from tocsin.streams.answers import Answers
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.clocks import ClockMode
from tocsin.streams.failures import EXPLAINED
from tocsin.streams.origin import ForeignState, StateDirectory, foreign, has_stores
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.topology import StreamsConfig, Topology
from tocsin.worker.config import WorkerConfig
from tocsin.worker.egress import EgressPolicy
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.service import Worker

LOG: Final = "the embedded log beside it"
"""What it is called where its state is: the two are moved together."""
PARTITIONS: Final = 4
"""Of the job topics and of each queue on the embedded log: enough to keep scans short, few enough for small memory."""
SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may keep the interpreter while another waits. The default, 5 ms, is felt as lateness."""
LOOK_AROUND_S: Final = 0.5
STOP_API_S: Final = 5

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What the all-in-one node is started with."""

    data: Path
    clock_mode: ClockMode = "guarded"
    concurrency: int = 256
    functions: bool = False
    """Whether @function callables were registered, to be run here."""
    api_key: str = ""
    egress: EgressPolicy = field(default_factory=lambda: EgressPolicy(allow_loopback=True))
    secrets: Path | None = None
    callback_url: str = ""
    """Where endpoints of long runs reach this node."""
    drain_s: float = 30.0
    names: TopicNames = field(default_factory=TopicNames)


class AllInOne:
    """start() it, serve() the API until a signal comes, stop() it. stop() is safe twice, and after a failed start."""

    def __init__(self, config: NodeConfig, *, tell: Tell) -> None:
        """`tell` takes lines for the person who started the node."""
        self._config = config
        self._tell = tell
        self._clock = SystemClock()
        self._log: EmbeddedLog | None = None
        self._topology: Topology | None = None
        self._topology_thread: threading.Thread | None = None
        self._appender: Appender | None = None
        self._answers: Answers | None = None
        self._workers: dict[str, tuple[Worker, threading.Thread]] = {}
        self._server: uvicorn.Server | None = None
        self._stopping = threading.Event()
        self._failure = ""

    # --- life

    def start(self) -> None:
        """Open everything, and start the threads. Raises LogError, StoreError, OSError: each says what to do."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        config = self._config
        _refuse_a_lost_log(config.data)
        self._log = EmbeddedLog.open(config.data / "log", self._clock)
        bootstrap(self._log, config.names, partitions=PARTITIONS, queue_partitions=PARTITIONS)
        streams = StreamsConfig(
            data=config.data / "state",
            log=LOG,
            names=config.names,
            clock_mode=config.clock_mode,
            log_has_clock=False,  # the embedded log takes its time from this machine's own
        )
        self._topology = Topology(streams, self._clock, self._log, StoreEnvironment())
        self._answers = Answers(self._topology, self._clock)
        self._topology_thread = self._thread("tocsin-streams", self._topology.run)
        self._appender = Appender(self._log.producer(), clock=self._clock)
        self._appender.start()
        self._thread("tocsin-queues", self._look_around)
        # What stands now stays: the collector need not look at it again, and its pauses are felt as lateness.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)

    def serve(self, listening: socket.socket) -> str:
        """Serve the API on the socket until SIGINT or SIGTERM. Returns why the node failed, "" if it did not."""
        server = Server(
            uvicorn.Config(
                create_app(self._services()),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=STOP_API_S,
            )
        )
        self._server = server
        if not self._stopping.is_set():
            asyncio.run(server.serve(sockets=[listening]))
        return self._failure

    def ask_to_stop(self) -> None:
        """serve() returns soon. For signal handlers, and for threads that failed."""
        self._stopping.set()
        if self._server is not None:
            self._server.should_exit = True

    def stop(self) -> None:
        """Drain the workers, commit, close the log."""
        self.ask_to_stop()
        in_flight = sum(metrics.in_flight for metrics in self._metrics().values())
        if in_flight:
            self._tell(f"stopping: waiting up to {self._config.drain_s:.0f} s for {in_flight} runs in flight")
        workers = list(self._workers.values())
        for worker, _ in workers:
            worker.stop()
        for _, thread in workers:
            thread.join()
        if self._appender is not None:
            self._appender.stop()
        if self._topology is not None and self._topology_thread is not None:
            self._topology.stop()
            self._topology_thread.join()
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- threads

    def _thread(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """A thread whose failure ends the node, with a reason."""

        def guarded() -> None:
            try:
                body()
            except EXPLAINED as error:  # these say what to do; where they came from helps nobody
                self._failure = self._failure or f"{name} stopped: {error}"
                self.ask_to_stop()
            except Exception as error:
                logging.getLogger(__name__).exception("%s failed", name)
                self._failure = self._failure or f"{name} stopped: {type(error).__name__}: {error}"
                self.ask_to_stop()

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        return thread

    def _look_around(self) -> None:
        """Start a worker for every queue, also for those that are created later; tell of a long restore."""
        assert self._topology is not None
        told = ""
        while not self._stopping.is_set():
            if self._log is not None and self._log.damage is not None:
                raise self._log.damage  # whoever met it, the maintenance too: what is written now would be lost
            for queue in list(self._topology.configuration.queues.values()):
                wanted = queue.kind == "http" or (queue.kind == "function" and self._config.functions)
                if wanted and not queue.deleted and queue.name not in self._workers:
                    self._start_worker(queue.name)
            progress = self._restoring()
            if progress != told and progress:
                self._tell(progress)
            told = progress
            self._stopping.wait(LOOK_AROUND_S)

    def _restoring(self) -> str:
        assert self._topology is not None
        found = []
        for each in list(self._topology.partitions.values()):
            progress = each.progress
            if each.ready or progress is None or progress.total < 50_000:
                continue
            eta = "" if progress.eta_s is None else f", about {progress.eta_s:.0f} s left"
            found.append(f"restoring partition {each.number}: {progress.done:,} of {progress.total:,}{eta}")
        return "; ".join(found)

    def _start_worker(self, queue: str) -> None:
        assert self._log is not None
        worker = Worker(
            WorkerConfig(
                worker=f"node-{queue}",
                queues=(queue,),
                concurrency=self._config.concurrency,
                topics=self._config.names,
                drain_s=self._config.drain_s,
                clock_offset_max_ms=None,  # the embedded log takes its time from this machine's own clock
                egress=self._config.egress,
                secrets=self._config.secrets,
                callbacks=Callbacks(self._config.callback_url, self._secret()),
            ),
            self._clock,
            self._log,
        )
        self._workers[queue] = (worker, self._thread(f"tocsin-worker-{queue}", worker.run))

    # --- what the API is given

    def _services(self) -> ApiServices:
        assert self._log is not None
        assert self._topology is not None
        assert self._appender is not None
        assert self._answers is not None
        topology = self._topology

        def config() -> ConfigSnapshot:
            current = topology.configuration
            return ConfigSnapshot(partitions=current.cluster.partitions, queues=current.queues)

        return ApiServices(
            appender=self._appender,
            queries=self._answers,
            clock=self._clock,
            config=config,
            create_topics=self._log.create_topics,
            names=self._config.names,
            queue_partitions=PARTITIONS,
            api_key=self._config.api_key,
            secret=self._secret,
            workers=self._snapshots,
            clock_offset_ms=lambda: topology.clock_offset_ms,
        )

    def _secret(self) -> str:
        assert self._topology is not None
        return self._topology.configuration.cluster.secret

    def _metrics(self) -> dict[str, WorkerMetrics]:
        found: dict[str, WorkerMetrics] = {}
        for worker, _ in list(self._workers.values()):
            found.update(worker.metrics)
        return found

    def _snapshots(self) -> Iterator[WorkerSnapshot]:
        return snapshots(self._metrics(), self._clock.now_ms())


def _refuse_a_lost_log(data: Path) -> None:
    """State without the log that it was made from is the last copy of the jobs, and a new log would have it wiped."""
    log, state = data / "log", data / "state"
    if EmbeddedLog.exists(log) or not has_stores(state):
        return
    origin = StateDirectory.origin(state)
    if origin is not None and origin.where != LOG:
        raise ForeignState(foreign(state, origin.where, LOG))
    raise LogCorrupt(
        f"the log in {log} is gone, and the state that was made from it is still in {state}: restore the log from "
        f"a backup, or remove {state} to start anew without any job"
    )
