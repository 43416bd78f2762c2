"""The worker as a service: a thread for each queue's core, each beside an executor of its own.

`Worker.run()` blocks until stop() was called (from a signal handler, say) and the drain is over.
"""

import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tocsin.client.functions import FunctionRegistry
from tocsin.client.functions import registry as default_registry
from tocsin.clock import Clock
from tocsin.log.port import EventLog, LogError, LogUnavailable, UnknownTopic
from tocsin.worker.config import WorkerConfig
from tocsin.worker.core import WorkerCore, WorkerPass
from tocsin.worker.egress import EgressGuard
from tocsin.worker.executor import LoopExecutor
from tocsin.worker.functions import FunctionCaller
from tocsin.worker.http import HttpCaller, Lookup, SystemLookup
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.reports import COMPLAIN_EVERY_S
from tocsin.worker.secrets import SecretFiles

logger = logging.getLogger(__name__)

UNAVAILABLE_WAIT_S: Final = 0.25
"""After a pass that the log did not answer."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread may keep the interpreter while another waits for it. A start passes from the core's thread to the
executor's; with Python's default of 5 ms, 1,500 runs a second were late by 24 ms at the 99th percentile, with this by
4 ms, for a little less time of the processor (2 cores, one of them busy with the endpoint)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    core: WorkerCore
    executor: LoopExecutor


class Worker:
    """Executes the due runs of its queues."""

    def __init__(
        self,
        config: WorkerConfig,
        clock: Clock,
        log: EventLog,
        *,
        functions: FunctionRegistry = default_registry,
        lookup: Lookup | None = None,
    ) -> None:
        """Raises UnknownTopic for a queue that does not exist."""
        self._config = config
        self._clock = clock
        self._log = log
        _check_queues(config, log)
        guard = EgressGuard(config.egress)
        self._own_lookup = SystemLookup()
        self._served = {
            queue: self._serve_queue(queue, clock, functions, guard, lookup or self._own_lookup)
            for queue in config.queues
        }
        self._never = threading.Event()
        self._is_open = False
        self._failure: BaseException | None = None

    def _serve_queue(
        self, queue: str, clock: Clock, functions: FunctionRegistry, guard: EgressGuard, lookup: Lookup
    ) -> _Served:
        executor = LoopExecutor(
            clock=clock,
            concurrency=self._config.concurrency,
            http=HttpCaller(
                clock=clock,
                guard=guard,
                connect_timeout_s=self._config.connect_timeout_s,
                lookup=lookup,
                secrets=SecretFiles(self._config.secrets, clock),
                callbacks=self._config.callbacks,
            ),
            functions=FunctionCaller(clock=clock, registry=functions, name=f"tocsin-function-{queue}"),
            name=f"tocsin-executor-{queue}",
        )
        return _Served(
            core=WorkerCore(self._config.core(queue), clock, self._log, executor), executor=executor
        )

    @property
    def metrics(self) -> Mapping[str, WorkerMetrics]:
        """By queue; live, for anybody to read."""
        return {queue: served.core.metrics for queue, served in self._served.items()}

    def run(self) -> None:
        """Serve until stop(), then drain. Raises what a queue's thread could not survive, after stopping the others."""
        self.open()
        switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(min(switch_interval_s, SWITCH_INTERVAL_S))
        threads = [
            threading.Thread(target=self._guarded, args=(served,), name=f"tocsin-worker-{queue}")
            for queue, served in self._served.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch_interval_s)
        self._own_lookup.close()
        if self._failure is not None:
            raise self._failure

    def run_once(self) -> dict[str, WorkerPass]:
        """One pass of each queue, on this thread, without waiting. For tests; open() first, not beside run()."""
        return {queue: served.core.run_once() for queue, served in self._served.items()}

    def open(self) -> None:
        """Start the executors. Done by run()."""
        if not self._is_open:
            self._is_open = True
            for served in self._served.values():
                served.executor.open(served.core.ended)

    def stop(self) -> None:
        """Start nothing more, let executions end for at most the drain, then leave. Safe twice, and before run()."""
        for served in self._served.values():
            served.core.stop()

    def close(self) -> None:
        """Leave at once, handing over. Done by run() for each queue."""
        for served in self._served.values():
            _leave(served)
        self._own_lookup.close()

    def _guarded(self, served: _Served) -> None:
        try:
            self._serve(served)
        except BaseException as failure:  # noqa: BLE001 - told to whoever called run()
            self._failure = self._failure or failure
            self.stop()
        finally:
            _leave(served)

    def _serve(self, served: _Served) -> None:
        core = served.core
        complain_s = float("-inf")
        while not core.is_drained():
            try:
                core.run_once()
            except LogUnavailable as error:
                now_s = self._clock.monotonic_s()
                if now_s >= complain_s:
                    complain_s = now_s + COMPLAIN_EVERY_S
                    logger.warning("the log does not answer, and is asked again: %s", error)
                self._never.wait(UNAVAILABLE_WAIT_S)
                continue
            wait_s = core.wait_s()
            if wait_s > 0:
                self._log.wait(core.consumers, wait_s)


def _leave(served: _Served) -> None:
    try:
        served.core.close()
    except LogError as error:
        logger.warning("the group could not be told that this worker leaves: %s", error)
    finally:
        served.executor.close()


def _check_queues(config: WorkerConfig, log: EventLog) -> None:
    """A worker that waits for a topic that nobody creates would look healthy and do nothing."""
    existing = log.topics()
    names = config.topics
    missing = [
        queue
        for queue in config.queues
        if not {names.due(queue), names.due_now(queue), names.control(queue)} <= existing.keys()
    ]
    if missing:
        raise UnknownTopic(
            f"the queue {', '.join(missing)} does not exist: create it first (tocsin queues create NAME --kind ...)"
        )
