"""The worker's core: one queue, one thread, no waiting, no clock but the one passed in.

`run_once` is the core loop's body: poll -> apply control -> fold ends -> report -> start what is due -> commit.
The shell around it (service.py) waits; the simulation steps it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.clock import Clock, new_id
from tocsin.log.port import (
    EventLog,
    GroupConsumer,
    LogError,
    NotAMember,
    OffsetOutOfRange,
    Reader,
    Record,
    TopicPartition,
)
from tocsin.schemas.records import Lane
from tocsin.worker.assignments import Assignment, Assignments
from tocsin.worker.clock_offset import ClockOffset
from tocsin.worker.commits import Commits
from tocsin.worker.config import CoreConfig
from tocsin.worker.endings import Endings
from tocsin.worker.execution import Executor, Outcome
from tocsin.worker.executions import Executions
from tocsin.worker.handover import Handover
from tocsin.worker.holding import Held, Holding
from tocsin.worker.intake import Intake
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.reports import Reports
from tocsin.worker.rules import ALL_RULES, WorkerRules

logger = logging.getLogger(__name__)

DUE_PER_PASS_MAX: Final = 200
"""Due records of one lane: about 10 ms of work, so that what is due meanwhile is not late."""

SCAN_PER_PASS_MAX: Final = 2_000
"""While a partition is scanned (W7) nothing of it starts anyway."""

CONTROL_PER_PASS_MAX: Final = 2_000

IDLE_WAIT_S: Final = 0.5
JOIN_WAIT_S: Final = 0.05
"""While no partition is held: each step of a rebalance is served by a poll."""

FORGET_EVERY_S: Final = 10.0
SURVEY_EVERY_S: Final = 1.0
"""How often the oldest overdue record is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPass:
    """What one pass did."""

    due_read: int = 0
    control_read: int = 0
    ended: int = 0
    started: int = 0
    committed: int = 0
    """Partitions for which an offset commit was sent."""

    def __bool__(self) -> bool:
        return bool(self.due_read or self.control_read or self.ended or self.started)


class WorkerCore:
    """Follows the due runs of one queue and executes them through `executor`.

    Everything but ended() and wake-ups happens on the thread that calls run_once(). Rebalance callbacks of the group
    run inside run_once() and close().
    """

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        log: EventLog,
        executor: Executor,
        rules: WorkerRules = ALL_RULES,
        *,
        new_id: Callable[[], str] = new_id,
        while_waiting: Callable[[float], None] | None = None,
    ) -> None:
        """`while_waiting(seconds)` is called in place of a wait for control to move on, of at most so many seconds,
        when a partition is handed over (W6); a simulation lets time pass and the processor step there."""
        self.config = config
        self.metrics = WorkerMetrics()
        self._clock = clock
        self._log = log
        self._executor = executor
        self._rules = rules
        topics = config.topics
        self._group = log.group_consumer(topics.worker_group(config.queue), client_id=config.worker)
        self._due_now = log.reader("committed")
        self._control = log.reader("committed")
        self._clock_offset = ClockOffset(clock, config.clock_offset_max_ms)
        self._holding = Holding()
        self._reports = Reports(config, clock, log.producer(), self._clock_offset, self.metrics)
        self._assignments = Assignments(config, clock, log, rules, self._group, self._due_now, self._control)
        self._endings = Endings(config, rules, self._holding, self._reports, self._clock_offset, self.metrics)
        self._executions = Executions(
            config,
            clock,
            rules,
            executor,
            new_id,
            self._holding,
            self._endings,
            self._reports,
            self.metrics,
            self._assignments.release_control,
        )
        self._intake = Intake(
            config, rules, self._assignments, self._holding, self._executions, self._endings, self._reports
        )
        self._commits = Commits(config, clock, rules, self._group, self._assignments, self.metrics)
        self._handover = Handover(
            config,
            clock,
            rules,
            self._assignments,
            self._holding,
            self._executions,
            self._endings,
            self._reports,
            self._commits,
            self._read_control,
            while_waiting or self._wait_for_control,
        )
        self._opened: list[Assignment] = []
        self._read_more = False
        self._hungry = False
        self._stopping = False
        self._drain_until_s = 0.0
        self.has_left = False
        """Its group. What executes then outlives its partition."""
        self._forget_at_s = clock.monotonic_s() + FORGET_EVERY_S
        self._survey_at_s = 0.0
        self._group.subscribe(
            topics.due(config.queue),
            on_assign=self._on_assign,
            on_revoke=lambda partitions: self._handover.revoke([p.partition for p in partitions]),
            on_lost=lambda partitions: self._handover.lost([p.partition for p in partitions]),
        )

    # --- the core loop ------------------------------------------------------------------------------------------------

    def run_once(self) -> WorkerPass:
        """One pass, without waiting. Raises LogUnavailable when the log does not answer; the next pass goes on."""
        due_read = self._read_due()
        control_read = self._read_control()
        due_read += self._read_due_now()
        self._assignments.pass_gates()
        self._intake.regulate()
        ended = self._executions.fold_ended()
        self._executions.ring()
        self._reports.poll()
        started = self._start_ready()
        committed = self._commits.send_due()
        self._keep_house()
        return WorkerPass(
            due_read=due_read, control_read=control_read, ended=ended, started=started, committed=committed
        )

    def wait_s(self) -> float:
        """How long nothing needs to be done, unless a consumer of `consumers` becomes readable or ended() is called."""
        if self._read_more or self._executions.ended_waiting():
            return 0.0
        now_s = self._clock.monotonic_s()
        waits = [IDLE_WAIT_S]
        outstanding = len(self._executions) or self._reports.outstanding() or self._commits.in_flight()
        if outstanding or self._stopping or self._assignments.are_opening():
            waits.append(self.config.report_delay_s)
        elif not len(self._assignments):
            waits.append(JOIN_WAIT_S)
        due_ms = self._holding.next_due_ms()
        if due_ms is not None and not self._stopping:
            waits.append((due_ms - self._clock.now_ms()) / 1000)
        alarms = (self._commits.next_due_s(), self._executions.next_alarm_s())
        waits += [at_s - now_s for at_s in alarms if at_s is not None]
        return max(0.0, min(waits))

    @property
    def consumers(self) -> tuple[GroupConsumer | Reader, ...]:
        """What the shell waits for."""
        return (self._control,) if self.has_left else (self._group, self._due_now, self._control)

    def ended(self, execution_id: str, outcome: Outcome) -> None:
        """An execution has ended. From any thread, exactly once for each start."""
        self._executions.ended(execution_id, outcome)
        if self._hungry:
            self._log.wake()

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin the drain: nothing starts any more. From any thread; safe twice."""
        if not self._stopping:
            self._drain_until_s = self._clock.monotonic_s() + self.config.drain_s
            self._stopping = True
        self._log.wake()

    def is_drained(self) -> bool:
        """After stop(): whether all has ended and is reported, or the time for it is over. Then call close()."""
        if not self._stopping:
            return False
        if self._clock.monotonic_s() >= self._drain_until_s + self.config.abort_s:
            return True
        waiting = any(assignment.awaiting_commit for assignment in self._assignments)
        return not (len(self._executions) or self._reports.outstanding() or waiting)

    def close(self) -> None:
        """Leave the group, handing over in order (W6). What still executes then is aborted unless it was confirmed."""
        self._stopping = True
        try:
            if not self.has_left:
                self.has_left = True
                self._group.close()
            self._reports.flush(self.config.revoke_s)
        finally:
            for running in self._executions.all():
                self._executions.abort(running, "lost")
            self._due_now.close()
            self._control.close()
            self._reports.close()

    def _drain(self) -> None:
        if self._clock.monotonic_s() >= self._drain_until_s:
            for running in self._executions.all():
                self._executions.abort(running, "stopped")
        elif not self.has_left:
            self._leave_early()

    def _leave_early(self) -> None:
        """Leave the group as soon as all that executes outlives its partition (W5): what is held here, and will not be
        started, then is another worker's business at once, not after the drain.

        It is the hand-over of W6, at a moment when nothing is left to wait for: claimed, confirmed and committed is all
        that executes, acknowledged all that has ended, so nothing is aborted, and nothing is done twice.
        """
        owned = [running for running in self._executions.all() if running.held.assignment.alive]
        for running in owned:
            if not running.is_given_up:
                self._executions.claim(running)
        if not all(running.outlives_partition for running in owned):
            return
        if self._reports.outstanding() or any(a.awaiting_commit for a in self._assignments):
            return
        self.has_left = True
        try:
            self._group.close()
        except LogError as error:
            logger.warning("the group could not be told that this worker leaves: %s", error)
        self._handover.lost([assignment.number for assignment in self._assignments])

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_due(self) -> int:
        """Keeps the membership, too: whatever was lost meanwhile is let go before anything else is done."""
        self._opened.clear()
        if self.has_left:
            self._read_more = False
            return 0
        limit = self._due_limit()
        records = self._group.poll(limit, 0.0)
        if self._opened:
            # What this very call returned may have been fetched under an earlier assignment, further on.
            opened = {assignment.number for assignment in self._opened}
            records = [record for record in records if record.partition not in opened]
            for assignment in self._opened:
                if assignment.alive:
                    self._assignments.read_from_tracker(assignment)
        self._read_more = len(records) >= limit or bool(self._opened)
        self._assignments.open_waiting()
        self._take("due", records)
        return len(records)

    def _read_due_now(self) -> int:
        limit = self._due_limit()
        records = self._poll(self._due_now, limit)
        self._read_more = self._read_more or len(records) >= limit
        self._take("due-now", records)
        return len(records)

    def _take(self, lane: Lane, records: list[Record]) -> None:
        if records:
            self._clock_offset.read(records[-1].timestamp_ms)
            self._intake.take_due(lane, records)

    def _read_control(self) -> int:
        records = self._poll(self._control, CONTROL_PER_PASS_MAX)
        self._intake.take_control(records)
        return len(records)

    def _poll(self, reader: Reader, limit: int) -> list[Record]:
        try:
            return reader.poll(limit, 0.0)
        except OffsetOutOfRange:
            # Retention has taken what we stand before: go on with the first record that is kept.
            for where in reader.assigned():
                begin = self._log.begin_offset(where)
                if reader.position(where) < begin:
                    logger.warning("%s[%d] is read on from %d", where.topic, where.partition, begin)
                    reader.seek(where, begin)
            return []

    def _due_limit(self) -> int:
        return DUE_PER_PASS_MAX if self._assignments.are_scanned() else SCAN_PER_PASS_MAX

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._opened += self._assignments.assign([where.partition for where in partitions])

    def _wait_for_control(self, timeout_s: float) -> None:
        self._log.wait([self._control], timeout_s)

    # --- starting -----------------------------------------------------------------------------------------------------

    def _start_ready(self) -> int:
        """Start what is due, in turn, as far as there are slots."""
        if self._stopping:
            self._drain()
            return 0
        self._unpark()
        now_ms = self._clock.now_ms()
        self._holding.release(now_ms)
        started = 0
        unknown = self.config.asks_the_time_first and self._clock_offset.is_unknown()
        clock_off = unknown or self._clock_offset.is_off()
        wanted = self._holding.has_ready() or (unknown and self._holding.held_count)
        if clock_off and wanted and self._clock_offset.is_old():
            self._reports.ask_the_time()
        if self._holding.has_ready() and not clock_off:
            slots = self._executor.capacity()
            while started < slots and (held := self._holding.pop_ready()) is not None:
                if self._may_start(held, now_ms):
                    self._executions.start(held, now_ms, self._start_by_s(held.assignment))
                    started += 1
        self._hungry = self._holding.has_ready() or self._executions.is_anyone_behind()
        return started

    def _unpark(self) -> None:
        for assignment in self._assignments:
            if assignment.parked and self._is_open(assignment):
                parked, assignment.parked = assignment.parked, []
                for held in parked:
                    self._holding.make_ready(held)

    def _may_start(self, held: Held, now_ms: int) -> bool:
        """Whether it starts now. If not, it was put where its obstacle will find it again."""
        run = held.run
        if run.due_ms > now_ms:
            self._holding.put_back(held)  # the wall clock was stepped back (I1)
        elif not self._is_open(held.assignment):
            held.assignment.parked.append(held)
        elif now_ms > run.start_deadline_ms:
            # W4: said only when our own clock is past it by more than a second.
            expired_ms = run.start_deadline_ms + (self.config.expire_slack_ms if self._rules.w4 else 0)
            if now_ms > expired_ms:
                self._endings.expire(held)
            else:
                self._holding.put_back_until(held, expired_ms + 1)
        else:
            return not self._executions.must_wait(held)
        return False

    def _is_open(self, assignment: Assignment) -> bool:
        """Whether executions of this partition may start at this instant."""
        if not assignment.gates_passed():
            return False  # W3, W7
        if self._rules.w10 and not assignment.commits_accepted:
            return False  # W10: the epoch is committed before the first start
        return not self._rules.w8 or self._clock.monotonic_s() < self._start_by_s(assignment)

    def _start_by_s(self, assignment: Assignment) -> float:
        return assignment.starts_until_s(self.config.session_timeout_s) if self._rules.w8 else float("inf")

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _keep_house(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._forget_at_s:
            self._forget_at_s = now_s + FORGET_EVERY_S
            self._assignments.forget_old_knowledge()
        metrics, holding = self.metrics, self._holding
        metrics.in_flight = len(self._executions)
        metrics.held = holding.held_count
        metrics.held_overdue = holding.overdue_count()
        if now_s >= self._survey_at_s or not metrics.held_overdue:
            self._survey_at_s = now_s + SURVEY_EVERY_S
            metrics.held_overdue_since_ms = holding.overdue_since_ms()
        metrics.held_bytes = sum(holding.held_bytes.values())
        metrics.partitions = len(self._assignments)
        metrics.joined = bool(metrics.partitions) or self._is_member()
        metrics.partitions_open = sum(1 for assignment in self._assignments if self._is_open(assignment))
        metrics.clock_offset_ms = self._clock_offset.offset_ms()
        metrics.clock_off = self._clock_offset.is_off()

    def _is_member(self) -> bool:
        if self.has_left:
            return False
        try:
            self._group.metadata()
        except NotAMember:
            return False
        return True
