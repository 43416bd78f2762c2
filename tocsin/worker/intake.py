"""Takes what was read: due records into the hold, or past it while a limit is reached (W1, W7, W9); and control."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from tocsin.log.port import Record
from tocsin.schemas.codec import CodecError, decode
from tocsin.schemas.records import Control, DueRun, Lane, Quarantined
from tocsin.worker.assignments import Assignment, Assignments
from tocsin.worker.assignments import Lane as DueLane
from tocsin.worker.config import CoreConfig
from tocsin.worker.endings import Endings
from tocsin.worker.executions import Executions
from tocsin.worker.holding import HELD_OVERHEAD_BYTES, Held, Holding
from tocsin.worker.reports import QUARANTINED_KEY_BYTES_MAX, QUARANTINED_VALUE_BYTES_MAX, Reports
from tocsin.worker.rules import WorkerRules

RESUME_BELOW: Final = 0.75
"""A lane that was stopped at a limit goes on when it is down to this share of it, not at every record that ends."""


class Intake:
    """Decides what becomes of each record that was read."""

    def __init__(
        self,
        config: CoreConfig,
        rules: WorkerRules,
        assignments: Assignments,
        holding: Holding,
        executions: Executions,
        endings: Endings,
        reports: Reports,
    ) -> None:
        self._rules = rules
        self._assignments = assignments
        self._holding = holding
        self._executions = executions
        self._endings = endings
        self._reports = reports
        self._window_max = config.window_max
        urgent = config.hold_bytes_max // 4
        self._bytes_max: dict[Lane, int] = {"due": config.hold_bytes_max - urgent, "due-now": urgent}

    # --- due records ----------------------------------------------------------------------------------------------------

    def take_due(self, name: Lane, records: Sequence[Record]) -> None:
        get = self._assignments.get
        for record in records:
            assignment = get(record.partition)
            if assignment is not None:
                self._take(assignment, assignment.lane(name), record)

    def _take(self, assignment: Assignment, lane: DueLane, record: Record) -> None:
        tracker, offset = lane.tracker, record.offset
        if offset < tracker.position:
            return  # delivered before
        lane.rewound = False
        finished = tracker.is_finished(offset)
        if lane.first_ms is None and not finished:
            lane.first_ms = record.timestamp_ms
        run = _decode(record)
        is_superseded = isinstance(run, DueRun) and self._rules.w7 and self._learn(assignment, run)
        if lane.skimming:
            return
        size = len(record.value or b"")
        if not finished and self._is_full(lane, offset, size):
            lane.skimming = True
            if not self._rules.w7_scan:
                self._go_back(lane)
            return
        if not tracker.deliver(offset):
            return
        if not isinstance(run, DueRun):
            self._quarantine(record, _why_not(run, "due run"), lane)
            return
        held = Held(run, assignment, lane.name, offset, size)
        self._holding.hold(held)
        if is_superseded or self._executions.has_begun(run):
            self._endings.finish_silently(held)
            return
        control = assignment.knowledge.control(run.run_id)
        if control is not None:
            self._apply(control, held, read_first=True)

    def _learn(self, assignment: Assignment, run: DueRun) -> bool:
        """W7: remember what this record says of others, end those here and now, and return whether it is itself ended."""
        knowledge = assignment.knowledge
        job = f"{run.namespace}/{run.job_id}"
        is_latest = knowledge.learn_dispatch(run.run_id, run.dispatch)
        if is_latest and run.dispatch > 1:
            for other in self._holding.of_run(run.run_id):
                if other.run.dispatch < run.dispatch:
                    self._supersede(other)
        if knowledge.learn_floor(job, run.floor):
            for other in self._holding.of_job(job):
                if other.run.seq < run.floor:
                    self._supersede(other)
        return not is_latest or run.seq < knowledge.floor(job)

    def _supersede(self, held: Held) -> None:
        """W7: never started; aborted if it executes; finished in silence. Also if its own report is still unanswered:
        whoever is told so later knows already what it says."""
        if held.running is not None:
            self._executions.abort(held.running, "settled")
        elif held.state in ("held", "yielded", "reporting"):
            self._endings.finish_silently(held)

    def _quarantine(self, record: Record, reason: str, lane: DueLane | None) -> None:
        """It is kept elsewhere with where it came from, and the partition moves on."""
        self._reports.quarantine(
            Quarantined(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                reason=reason,
                key=None if record.key is None else record.key[:QUARANTINED_KEY_BYTES_MAX],
                value=None if record.value is None else record.value[:QUARANTINED_VALUE_BYTES_MAX],
            ),
            acknowledged=partial(lane.tracker.finish, record.offset) if lane is not None else _nothing,
        )

    # --- limits ---------------------------------------------------------------------------------------------------------

    def _is_full(self, lane: DueLane, offset: int, size: int) -> bool:
        tracker = lane.tracker
        # W9: the commit's metadata has a bit for each offset between the lowest unfinished and the highest fetched.
        if self._rules.w9 and tracker.unfinished() and offset - tracker.low() > self._window_max:
            return True
        # A lane that holds nothing may always take one: others' records, however many, do not stop it for good.
        needed = self._holding.held_bytes[lane.name] + size + HELD_OVERHEAD_BYTES
        return lane.held > 0 and needed > self._bytes_max[lane.name]

    def regulate(self) -> None:
        """Go back to what was skimmed once the scan is over, stop lanes at a limit, let them go on below it."""
        for assignment in self._assignments:
            for lane in assignment.lanes:
                if lane.skimming and (lane.scanned or not self._rules.w7_scan):
                    lane.skimming = False
                    self._go_back(lane)
                if lane.paused and self._has_room(lane):
                    lane.paused = False
                    lane.consumer.resume([lane.where])

    def _go_back(self, lane: DueLane) -> None:
        """Stop at the limit: what follows is fetched again when there is room for it."""
        lane.rewound = lane.paused = True
        lane.consumer.seek(lane.where, lane.tracker.position)
        lane.consumer.pause([lane.where])

    def _has_room(self, lane: DueLane) -> bool:
        tracker = lane.tracker
        if self._rules.w9 and tracker.position - tracker.low() > self._window_max * RESUME_BELOW:
            return False
        return (
            not lane.held or self._holding.held_bytes[lane.name] <= self._bytes_max[lane.name] * RESUME_BELOW
        )

    # --- control --------------------------------------------------------------------------------------------------------

    def take_control(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.value is None:
                continue
            control = _decode(record)
            if not isinstance(control, Control):
                self._quarantine(record, _why_not(control, "control record"), None)
                continue
            assignment = self._assignments.get(record.partition)
            if assignment is not None:
                assignment.knowledge.learn_control(control)
            for held in self._holding.of_run(control.run_id):
                # W5: whoever owns the partition.
                if self._rules.w5 or held.assignment.alive:
                    self._apply(control, held)

    def _apply(self, control: Control, held: Held, *, read_first: bool = False) -> None:
        """What a control record says of one dispatch."""
        dispatch, running = held.run.dispatch, held.running
        if control.settled_upto >= dispatch:
            self._supersede(held)  # P8: the same silence
            return
        if control.claimed_dispatch == dispatch:
            self._apply_claim(control, held)
        if control.withdrawn_upto < dispatch or control.withdrawn_how == "none":
            return
        if running is None:
            if held.state != "held":
                return
            if read_first and not self._rules.w1:
                self._endings.finish_silently(held)
            else:
                self._endings.drop(held)
        elif control.withdrawn_how == "cancel":
            self._executions.abort(running, "cancel")
        else:
            self._executions.claim(running)  # P3: it has begun, and says so at once

    def _apply_claim(self, control: Control, held: Held) -> None:
        running = held.running
        if running is not None:
            if control.claimed_execution == running.id:
                self._executions.confirm(running)
            elif control.claimed_epoch > running.epoch:
                self._executions.abort(running, "outbid")
        elif held.state == "held" and control.claimed_epoch > held.assignment.epoch and self._rules.w10:
            # Somebody who got the partition after us has begun it: we have lost it, and have yet to hear so.
            self._holding.take(held, "yielded")


def _decode(record: Record) -> object:
    """The decoded record, or the error that says why it cannot be."""
    if record.value is None:
        return CodecError("a tombstone says nothing here")
    try:
        return decode(record.value)
    except CodecError as error:
        return error


def _why_not(decoded: object, wanted: str) -> str:
    return str(decoded) if isinstance(decoded, CodecError) else f"a {type(decoded).__name__} is no {wanted}"


def _nothing() -> None: ...
