"""A small model of the processor (P1-P9 without policies), random faults, and what must hold whatever happens.

It is an oracle for the worker alone; the simulation of the whole topology has the real processor.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.unit.worker.world import NAMES, FakeExecutor, World
from tocsin.schemas.codec import decode
from tocsin.schemas.records import Control, Lane, RunReport, Withdrawal
from tocsin.worker.execution import Execution
from tocsin.worker.rules import ALL_RULES, WorkerRules

STEP_MS = 50
SESSION_MS = 8_000
"""The group session, the local notice of its end, and a rebalance."""
ATTEMPTS_MAX = 3


@dataclass
class Run:
    """One run as the processor sees it."""

    run_id: str
    job: int
    seq: int
    partition: int
    dispatch: int = 0
    attempt: int = 1
    due_ms: int = 0
    withdrawn_upto: int = 0
    withdrawn_how: Withdrawal = "none"
    settled_upto: int = 0
    claim: tuple[int, str, int] = (0, "", 0)
    """Dispatch, execution, epoch."""
    lease_until_ms: int | None = None
    status: str = "open"

    def control(self) -> Control:
        dispatch, execution, epoch = self.claim
        return Control(
            run_id=self.run_id,
            withdrawn_upto=self.withdrawn_upto,
            withdrawn_how=self.withdrawn_how,
            settled_upto=self.settled_upto,
            claimed_dispatch=dispatch,
            claimed_execution=execution,
            claimed_epoch=epoch,
        )


@dataclass
class Begun:
    """One execution as the outside world sees it."""

    run_id: str
    dispatch: int
    attempt: int
    worker: str
    began_ms: int


@dataclass
class Processor:
    world: World
    random: Random
    runs: dict[str, Run] = field(default_factory=dict)
    seqs: Counter[int] = field(default_factory=Counter)
    read: Counter[int] = field(default_factory=Counter)
    closed_dispatches: set[tuple[str, int]] = field(default_factory=set)
    """Whose `dropped` or `cancelled` was folded."""

    def open_run(self, job: int) -> None:
        """One run of a job at a time, as with overlap skip."""
        if any(run.job == job and run.status == "open" for run in self.runs.values()):
            return
        self.seqs[job] += 1
        seq = self.seqs[job]
        partitions = self.world.log.partitions(NAMES.due("default"))
        run = Run(run_id=f"n{job % 3}/j{job}@{seq}", job=job, seq=seq, partition=job % partitions)
        self.runs[run.run_id] = run
        self.dispatch(run, in_ms=self.random.choice((0, 300, 3_000, 9_000)))

    def dispatch(self, run: Run, in_ms: int) -> None:
        run.dispatch += 1
        run.lease_until_ms = None
        due = self.world.run(
            run.run_id,
            in_ms=in_ms,
            seq=run.seq,
            floor=run.seq,
            dispatch=run.dispatch,
            attempt=run.attempt,
            lease_ms=6_000,
        )
        run.due_ms = due.due_ms
        lane: Lane = "due-now" if in_ms < 1_000 else "due"
        self.world.due(due, lane, run.partition)

    def withdraw(self, run: Run, how: Withdrawal) -> None:
        if run.status == "open" and not (
            run.withdrawn_upto == run.dispatch and run.withdrawn_how == "cancel"
        ):
            run.withdrawn_upto, run.withdrawn_how = run.dispatch, how
            self._write(run)

    def step(self) -> None:
        for partition in range(self.world.log.partitions(NAMES.outcomes)):
            stored = self.world.log.records(NAMES.outcomes, partition)
            for record in stored[self.read[partition] :]:
                report = decode(record.record.value or b"")
                assert isinstance(report, RunReport)
                self._fold(report)
            self.read[partition] = len(stored)
        now_ms = self.world.clock.now_ms()
        for run in list(self.runs.values()):
            if run.status == "open" and run.lease_until_ms is not None and run.lease_until_ms < now_ms:
                self._next(run, "lost")

    def _fold(self, report: RunReport) -> None:
        run = self.runs[report.run_id]
        if run.status != "open" or report.dispatch != run.dispatch:
            return  # P1
        claimed = run.claim[0] == run.dispatch
        if claimed and report.epoch < run.claim[2] and report.kind not in ("dropped", "expired"):
            return
        if report.kind in ("dropped", "expired"):
            if claimed and run.withdrawn_how != "cancel":
                return  # P5
            self.closed_dispatches.add((run.run_id, run.dispatch))
            self._next(run, report.kind)
        elif report.kind in ("started", "heartbeat"):
            self._claim(run, report)
        elif report.kind == "succeeded":
            run.status = "succeeded"
        elif report.kind == "cancelled":
            self.closed_dispatches.add((run.run_id, run.dispatch))
            self._close(run, "cancelled")
        else:
            self._next(run, "failed")

    def _claim(self, run: Run, report: RunReport) -> None:
        run.lease_until_ms = self.world.clock.now_ms() + 6_000
        claim = (run.dispatch, report.execution, report.epoch)
        if claim != run.claim:
            run.claim = claim
            if run.withdrawn_how == "withdraw":
                run.withdrawn_upto, run.withdrawn_how = 0, "none"  # P3: it has begun
            self._write(run)

    def _next(self, run: Run, why: str) -> None:
        if run.withdrawn_how == "cancel" and run.withdrawn_upto >= run.dispatch:
            self._close(run, "cancelled")  # P4, P6
            return
        if why in ("failed", "lost"):
            run.attempt += 1
            if run.attempt > ATTEMPTS_MAX:
                self._close(run, "failed")
                return
        run.settled_upto = run.dispatch  # P8
        self._write(run)
        self.dispatch(run, in_ms=self.random.choice((200, 2_000)))

    def _close(self, run: Run, status: str) -> None:
        run.status = status
        run.settled_upto = run.dispatch
        self._write(run)

    def _write(self, run: Run) -> None:
        self.world.control(run.control(), run.partition)


class Chaos:
    """Workers, faults, and the judge."""

    def __init__(self, seed: int, *, faults: bool, rules: WorkerRules = ALL_RULES) -> None:
        self.random = Random(seed)
        self.world = World(partitions=2)
        self.processor = Processor(self.world, self.random)
        self.faults = faults
        self.rules = rules
        self.begun: dict[str, Begun] = {}
        self.history: list[Begun] = []
        self.violations: list[str] = []
        self.frozen: dict[str, int] = {}
        self.cut: dict[str, int] = {}
        self.dead: dict[str, int] = {}
        self.suspect_until: Counter[str] = Counter()
        """Until when a worker's executions may be repeated elsewhere, because it was not healthy."""
        self.world._while_waiting = self.while_waiting  # type: ignore[method-assign]
        for name in ("w0", "w1", "w2"):
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        worker = self.world.worker(name, self.rules)
        executor = worker.executor
        executor.slots = 6
        start, end = executor.start, executor.end

        def judged_start(execution: Execution) -> None:
            self.judge(name, execution)
            start(execution)

        def noticed_end(execution_id: str, kind: Any = "succeeded", **fields: Any) -> None:
            self.begun.pop(execution_id, None)
            end(execution_id, kind, **fields)

        executor.start = judged_start  # type: ignore[method-assign]
        executor.end = noticed_end  # type: ignore[method-assign]

    def while_waiting(self, seconds: float) -> None:
        self.world.clock.advance(round(seconds * 1000))
        self.processor.step()

    # --- the judge ------------------------------------------------------------------------------------------------------

    def judge(self, name: str, execution: Execution) -> None:
        run, now_ms = execution.run, self.world.clock.now_ms()
        if now_ms < run.due_ms:
            self.violations.append(f"I1: {run.run_id} started {run.due_ms - now_ms} ms early")
        if (run.run_id, run.dispatch) in self.processor.closed_dispatches:
            self.violations.append(
                f"I5: {run.run_id} dispatch {run.dispatch} started after its acknowledgement"
            )
        for other in self.begun.values():
            if other.run_id.rpartition("@")[0] == run.run_id.rpartition("@")[0] and not self.excused(other):
                self.violations.append(f"I4/I6: {run.run_id}#{run.dispatch} beside {other}")
        for earlier in self.history:
            if (earlier.run_id, earlier.attempt, earlier.dispatch) == (
                run.run_id,
                run.attempt,
                run.dispatch,
            ) and (not self.excused(earlier) and not self.faults):
                self.violations.append(f"I3: {earlier} again on {name}")
        begun = Begun(run.run_id, run.dispatch, run.attempt, name, now_ms)
        self.begun[execution.id] = begun
        self.history.append(begun)

    def excused(self, begun: Begun) -> bool:
        """Its lease or its worker's session may have expired."""
        return self.suspect_until[begun.worker] >= begun.began_ms

    # --- what happens -----------------------------------------------------------------------------------------------------

    def run(self, seconds: int) -> list[str]:
        """Let random things happen for a while, then let everything settle. Returns what must not have happened."""
        for _ in range(seconds * 1000 // STEP_MS):
            self.step(quiet=False)
        self.heal_all()
        for _ in range(90_000 // STEP_MS):
            self.step(quiet=True)
            if all(run.status != "open" for run in self.processor.runs.values()):
                break
        stuck = [run for run in self.processor.runs.values() if run.status == "open"]
        self.violations += [f"LIVE: {run}" for run in stuck]
        return self.violations

    def step(self, *, quiet: bool) -> None:
        self.world.clock.advance(STEP_MS)
        now_ms = self.world.clock.now_ms()
        if not quiet:
            self.act()
            if self.faults:
                self.break_something()
        for state, undo in ((self.frozen, _nothing), (self.cut, self._heal), (self.dead, self._revive)):
            for name in [name for name, until_ms in state.items() if until_ms <= now_ms]:
                del state[name]
                undo(name)
        if self.random.random() < 0.9:  # the processor is late now and then
            self.processor.step()
        for name, worker in self.world.workers.items():
            if name not in self.frozen and self.random.random() < 0.9:
                self.end_some(worker.executor)
                worker.core.run_once()

    def act(self) -> None:
        dice = self.random.random()
        if dice < 0.15:
            self.processor.open_run(self.random.randrange(12))
        elif dice < 0.25 and (still := [r for r in self.processor.runs.values() if r.status == "open"]):
            run = self.random.choice(still)
            self.processor.withdraw(run, self.random.choice(("withdraw", "cancel")))

    def end_some(self, executor: FakeExecutor) -> None:
        for execution_id in list(executor.executing):
            dice = self.random.random()
            if dice < 0.06:
                executor.end(execution_id, "succeeded")
            elif dice < 0.09:
                executor.end(execution_id, "failed", error="x", retryable=True)

    def break_something(self) -> None:
        name = self.random.choice(("w0", "w1", "w2"))
        healthy = name in self.world.workers and name not in self.frozen and name not in self.cut
        now_ms, lasts_ms = self.world.clock.now_ms(), self.random.choice((500, 4_000, 9_000))
        dice = self.random.random()
        if not healthy or dice > 0.024:
            return
        if dice < 0.005:
            self.world.log.faults.crash(name)
            self.bury(name, now_ms + lasts_ms)
        elif dice < 0.010:
            self.frozen[name] = now_ms + lasts_ms
        elif dice < 0.018:
            self.world.log.faults.cut(name)
            self.cut[name] = now_ms + lasts_ms
        elif dice < 0.021:
            self.world.workers[name].core.stop()
            self.world.workers[name].core.close()
            self.bury(name, now_ms + lasts_ms)
            return  # in good order, so nothing is excused by it
        else:
            topic = self.random.choice(
                (NAMES.control("default"), NAMES.due("default"), NAMES.due_now("default"))
            )
            self.world.log.faults.lag(name, topic, self.world.clock.monotonic_s() + lasts_ms / 1000)
            return
        self.suspect_until[name] = now_ms + lasts_ms + SESSION_MS

    def bury(self, name: str, until_ms: int) -> None:
        for execution_id in list(self.world.workers.pop(name).executor.executing):
            self.begun.pop(execution_id, None)
        self.dead[name] = until_ms

    def _heal(self, name: str) -> None:
        self.world.log.faults.heal(name)

    def _revive(self, name: str) -> None:
        self.start_worker(name)

    def heal_all(self) -> None:
        for name in list(self.frozen):
            del self.frozen[name]
        for name in list(self.cut):
            del self.cut[name]
            self._heal(name)
        for name in list(self.dead):
            del self.dead[name]
            self._revive(name)


def _nothing(_: str) -> None: ...
