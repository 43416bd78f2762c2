"""What executes now: starts, claims with a lease, heartbeats, aborts, ends. Executions may outlive their partition."""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from tocsin.clock import Clock
from tocsin.schemas.records import DueRun, RunReport
from tocsin.worker.assignments import Assignment
from tocsin.worker.config import CoreConfig
from tocsin.worker.endings import Endings
from tocsin.worker.execution import Execution, Executor, Outcome
from tocsin.worker.holding import Held, Holding
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.reports import Reports
from tocsin.worker.rules import WorkerRules
from tocsin.worker.running import STRENGTH, AbortReason, Running


class Executions:
    """All executions of one queue's core, of whatever partition. Used by the core's thread, but for ended()."""

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        rules: WorkerRules,
        executor: Executor,
        new_id: Callable[[], str],
        holding: Holding,
        endings: Endings,
        reports: Reports,
        metrics: WorkerMetrics,
        release_control: Callable[[int], None],
    ) -> None:
        self._config = config
        self._release_control = release_control
        self._clock = clock
        self._rules = rules
        self._executor = executor
        self._new_id = new_id
        self._holding = holding
        self._endings = endings
        self._reports = reports
        self._metrics = metrics
        self._running: dict[str, Running] = {}
        self._of_partition: Counter[int] = Counter()
        self._of_job: dict[str, list[Running]] = {}
        self._of_target: Counter[str] = Counter()
        self._behind_target: dict[str, deque[Held]] = {}
        self._behind_run: list[Held] = []
        self._alarms: list[tuple[float, int, Running]] = []
        self._alarm_count = 0
        self._ended: deque[tuple[str, Outcome]] = deque()
        self._begun: set[tuple[str, int]] = set()
        """Without W1 alone: what this worker has ever begun."""

    def __len__(self) -> int:
        return len(self._running)

    def of_partition(self, number: int) -> int:
        return self._of_partition[number]

    def is_anyone_behind(self) -> bool:
        """Whether a ready record waits for an execution to end."""
        return bool(self._behind_run or self._behind_target)

    def all(self) -> list[Running]:
        return list(self._running.values())

    def ended_waiting(self) -> bool:
        return bool(self._ended)

    def ended(self, execution_id: str, outcome: Outcome) -> None:
        """From any thread; folded by the next pass."""
        self._ended.append((execution_id, outcome))

    # --- starting -----------------------------------------------------------------------------------------------------

    def must_wait(self, held: Held) -> bool:
        """Whether something that executes stands in the way. It is made ready again when that has ended."""
        if self._rules.w7 and self._has_predecessor(held):
            self._behind_run.append(held)
            return True
        target = target_of(held.run)
        if target and self._of_target[target] >= self._config.per_target_max:
            self._behind_target.setdefault(target, deque()).append(held)
            return True
        return False

    def has_begun(self, run: DueRun) -> bool:
        """Whether this worker takes the attempt for done since it has begun it once. Never, with W1."""
        return not self._rules.w1 and (run.run_id, run.attempt) in self._begun

    def start(self, held: Held, now_ms: int, start_by_s: float) -> None:
        self._holding.take(held, "executing")
        if not self._rules.w1:
            self._begun.add((held.run.run_id, held.run.attempt))
        running = Running(self._new_id(), held, now_ms, target_of(held.run))
        held.running = running
        self._running[running.id] = running
        self._of_partition[held.assignment.number] += 1
        self._of_job.setdefault(held.job, []).append(running)
        self._of_target[running.target] += 1
        self._ring_at(running, self._clock.monotonic_s() + self._config.claim_after_s)
        self._metrics.started += 1
        self._executor.start(Execution(id=running.id, run=held.run, start_by_s=start_by_s))

    def _has_predecessor(self, held: Held) -> bool:
        """W7: an earlier dispatch of the run, or a settled run of the job, whose execution has not ended yet."""
        executing = self._of_job.get(held.job)
        if executing is None:
            return False
        run = held.run
        return any(
            running.held.run.run_id == run.run_id or running.held.run.seq < run.floor for running in executing
        )

    # --- claims -------------------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Claims, heartbeats and missing answers that are due now."""
        now_s = self._clock.monotonic_s()
        alarms = self._alarms
        while alarms and alarms[0][0] <= now_s:
            _, _, running = heapq.heappop(alarms)
            if running.id in self._running:
                self._on_alarm(running, now_s)

    def next_alarm_s(self) -> float | None:
        alarms = self._alarms
        while alarms and alarms[0][2].id not in self._running:
            heapq.heappop(alarms)  # most executions end before their first alarm
        return alarms[0][0] if alarms else None

    def _on_alarm(self, running: Running, now_s: float) -> None:
        if running.is_given_up:
            return
        if running.lease_ms:
            if now_s >= running.lease_until_s:
                self._end_unconfirmed_lease(running)
            return
        if running.claim_sent_s is None:
            self.claim(running)
            return
        answer_due_s = running.claim_sent_s + self._config.claim_answer_s
        if not running.confirmed and now_s >= answer_due_s:
            self.abort(running, "unconfirmed")
            return
        if now_s >= running.heartbeat_s:
            self._reports.send(self._claim_report("heartbeat", running), again=False)
            running.heartbeat_s = now_s + _heartbeat_every_s(running.held.run)
        self._ring_at(running, self._next_alarm(running))

    def claim(self, running: Running) -> None:
        """Write `started`: from now on a lease guards the attempt. Safe twice."""
        if running.claim_sent_s is not None:
            return
        now_s = self._clock.monotonic_s()
        running.claim_sent_s = now_s
        running.heartbeat_s = now_s + _heartbeat_every_s(running.held.run)
        self._metrics.claims += 1
        self._reports.send(
            self._claim_report("started", running),
            wanted=lambda: running.id in self._running and not running.is_given_up,
        )
        if not self._rules.w2:
            self._endings.finish_offset(running.held)
        self._ring_at(running, self._next_alarm(running))

    def confirm(self, running: Running) -> None:
        """The claim was read back from control: its offset may move (W2)."""
        if running.confirmed:
            return
        running.confirmed = True
        self._endings.finish_offset(running.held)
        if running.held.assignment.alive:
            running.held.assignment.to_commit.append(running)
        if running.lease_ms and running.lease_known:
            self._leave_to_endpoint(running)

    def _claim_report(self, kind: Literal["started", "heartbeat"], running: Running) -> RunReport:
        return self._endings.claim_report(
            kind, running.held, running.id, running.epoch, running.started_ms, running.lease_ms
        )

    def _next_alarm(self, running: Running) -> float:
        if running.confirmed or running.claim_sent_s is None:
            return running.heartbeat_s
        return min(running.heartbeat_s, running.claim_sent_s + self._config.claim_answer_s)

    def _ring_at(self, running: Running, at_s: float) -> None:
        self._alarm_count += 1
        heapq.heappush(self._alarms, (at_s, self._alarm_count, running))

    # --- long runs ------------------------------------------------------------------------------------------------------

    def _accept(self, running: Running, outcome: Outcome) -> None:
        """The endpoint works on it from now on, under a lease of its own. The record is finished here once the log has
        that lease and the claim was read back: until then, whoever gets the partition hands it to the endpoint again.
        """
        now_s = self._clock.monotonic_s()
        running.abort = None
        running.lease_ms = outcome.lease_ms
        running.lease_until_s = now_s + outcome.lease_ms / 1000
        if running.claim_sent_s is None:
            running.claim_sent_s = now_s
            self._metrics.claims += 1
        self._free_target(running.target)
        self._metrics.accepted += 1
        self._metrics.lateness.observe(outcome.started_ms - running.held.run.due_ms)

        def known() -> None:
            running.lease_known = True
            if running.confirmed and running.id in self._running:
                self._leave_to_endpoint(running)

        self._reports.send(
            self._claim_report("started", running),
            acknowledged=known,
            wanted=lambda: running.id in self._running,
        )
        self._ring_at(running, running.lease_until_s)

    def _leave_to_endpoint(self, running: Running) -> None:
        self._remove(running)
        self._endings.finish(running.held)

    def _end_unconfirmed_lease(self, running: Running) -> None:
        """Its lease is over and the processor has not answered the claim: so it counts as lost there, too."""
        self._remove(running)
        now_ms = self._clock.now_ms()
        error = "lost: the endpoint accepted the run, and the scheduler did not confirm that within its lease"
        outcome = Outcome(
            kind="failed", started_ms=running.started_ms, ended_ms=now_ms, error=error, retryable=True
        )
        self._metrics.failed += 1
        self._report(running, "failed", outcome)

    # --- aborting and ending --------------------------------------------------------------------------------------------

    def abort(self, running: Running, reason: AbortReason) -> None:
        """Stop it; what is reported then depends on the strongest reason given."""
        if running.abort is not None and STRENGTH[running.abort] >= STRENGTH[reason]:
            return
        if running.lease_ms:
            # Nothing here can stop it: a cancel is answered by the endpoint, or by its lease.
            if reason in ("settled", "outbid", "lost"):
                running.abort = reason
                self._remove(running)
                self._end_silently(running, reason)
            return
        if running.abort is None:
            self._metrics.aborted += 1
            self._executor.abort(running.id)
        running.abort = reason
        if reason == "cancel":
            running.cancel_commit = running.held.assignment.commits_sent + 1
            if running.held.assignment.alive:
                running.held.assignment.commit_wanted = True

    def fold_ended(self) -> int:
        """Report what has ended since the last pass."""
        folded = 0
        ended = self._ended
        while ended:
            execution_id, outcome = ended.popleft()
            running = self._running.get(execution_id)
            if running is None:
                continue
            folded += 1
            if outcome.kind == "accepted" and not running.is_given_up:
                self._accept(running, outcome)
            else:
                self._remove(running)
                self._end(running, outcome)
        return folded

    def _remove(self, running: Running) -> None:
        del self._running[running.id]
        self._free(running)
        self._on_partition_idle(running.held.assignment)

    def _on_partition_idle(self, assignment: Assignment) -> None:
        """W5: control stays assigned until the last execution of a partition that was lost has ended."""
        if not assignment.alive and not self._of_partition[assignment.number]:
            self._release_control(assignment.number)

    def _free(self, running: Running) -> None:
        """Let those go on that waited for this execution."""
        held = running.held
        held.running = None
        held.outlived = running.outlives_partition
        self._of_partition[held.assignment.number] -= 1
        of_job = self._of_job[held.job]
        of_job.remove(running)
        if not of_job:
            del self._of_job[held.job]
        if not running.lease_ms:
            self._free_target(running.target)
        if self._behind_run:
            waiting, self._behind_run = self._behind_run, []
            for behind_run in waiting:
                self._holding.make_ready(behind_run)

    def _free_target(self, target: str) -> None:
        self._of_target[target] -= 1
        if not self._of_target[target]:
            del self._of_target[target]
        behind = self._behind_target.get(target)
        while behind:
            next_one = behind.popleft()
            if next_one.state == "held":
                self._holding.make_ready(next_one)
                break
        if behind is not None and not behind:
            del self._behind_target[target]

    def _end(self, running: Running, outcome: Outcome) -> None:
        match running.abort:
            case "lost" | "outbid" | "settled":
                self._end_silently(running, running.abort)
            case None | "stopped" | "unconfirmed" | "cancel":
                self._end_with_report(running, outcome)

    def _end_silently(self, running: Running, reason: Literal["lost", "outbid", "settled"]) -> None:
        match reason:
            case "lost":
                self._metrics.lost += 1
                self._endings.forget(running.held)
            case "outbid":
                self._holding.take(running.held, "yielded")
            case "settled":
                self._endings.finish_silently(running.held)

    def _end_with_report(self, running: Running, outcome: Outcome) -> None:
        match outcome.kind:
            case "succeeded":
                self._metrics.succeeded += 1
                self._metrics.lateness.observe(outcome.started_ms - running.held.run.due_ms)
                self._report(running, "succeeded", outcome)
            case "failed":
                self._metrics.failed += 1
                self._metrics.lateness.observe(outcome.started_ms - running.held.run.due_ms)
                self._report(running, "failed", outcome)
            case "not_begun" if running.claim_sent_s is None:
                self._metrics.not_begun += 1
                self._end_unbegun(running)
            case "aborted" | "not_begun" | "accepted":
                self._end_aborted(running, outcome)

    def _end_unbegun(self, running: Running) -> None:
        held = running.held
        if not held.assignment.alive:
            self._endings.forget(held)
        elif running.abort == "cancel":
            self._endings.drop(held)
        else:
            self._holding.hold_again(held)

    def _end_aborted(self, running: Running, outcome: Outcome) -> None:
        # What was aborted does not say when it had begun.
        outcome = replace(outcome, started_ms=running.started_ms)
        held = running.held
        if running.abort == "cancel":
            self._metrics.cancelled += 1
            report = self._endings.final_report("cancelled", held, running.id, running.epoch, outcome)
            if running.outlives_partition:
                # W4's exception: claimed, and committed as such by this worker.
                self._endings.report(held, report)
            else:
                self._endings.report_after_commit(held, report, running.cancel_commit)
            return
        error = {
            "stopped": "worker_stopped: the worker was stopped before the attempt ended",
            "unconfirmed": "the scheduler did not confirm the start of this attempt in time",
        }.get(running.abort or "", "the attempt was interrupted inside the worker")
        self._metrics.failed += 1
        self._report(running, "failed", replace(outcome, kind="failed", error=error, retryable=True))

    def _report(self, running: Running, kind: Literal["succeeded", "failed"], outcome: Outcome) -> None:
        held = running.held
        if self._rules.w5 and not held.assignment.alive and not running.outlives_partition:
            # W5: not ours any more, and nothing protects what we would say.
            self._endings.forget(held)
            return
        self._endings.report(held, self._endings.final_report(kind, held, running.id, running.epoch, outcome))


def target_of(run: DueRun) -> str:
    """Host and port that the run talks to; empty for a function."""
    return "" if run.http is None else _origin(run.http.url)


@lru_cache(maxsize=4_096)
def _origin(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _heartbeat_every_s(run: DueRun) -> float:
    """A third of the lease, so that two may be lost."""
    return run.lease_ms / 3_000
