"""The partitions that this worker holds, each from its assignment to its loss: lanes, gates, epoch, freshness.

An Assignment is never reused: whoever still refers to one that has ended finds `alive` False.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tocsin.clock import Clock
from tocsin.log.port import (
    EventLog,
    GroupConsumer,
    LogError,
    OffsetCommit,
    Reader,
    TopicPartition,
)
from tocsin.schemas.records import Lane as LaneName
from tocsin.worker.config import CoreConfig
from tocsin.worker.holding import Held
from tocsin.worker.knowledge import Knowledge
from tocsin.worker.offsets import CommittedLane, ForeignMetadata, OffsetTracker, read_metadata, write_metadata
from tocsin.worker.rules import WorkerRules

if TYPE_CHECKING:
    from tocsin.worker.running import Running

logger = logging.getLogger(__name__)

OPEN_AGAIN_S: Final = 0.5
"""How soon an assignment that could not be opened (the log did not answer) is tried again."""

CONTROL_TIMEOUT_S: Final = 1_800.0
"""Control is compacted after an hour, so a gate that took longer than half of that may have missed a record (W3)."""

CONTROL_SLACK_MS: Final = 60_000
"""A withdrawal may be stamped before the due record that it names: both may stand in one transaction, on brokers
whose clocks differ."""

CONTROL_SLACK_RECORDS: Final = 1_000
"""The same for a log whose clock was stepped back: at least so many records before the end are read."""

OFFSETS_TIMEOUT_S: Final = 5.0


class Lane:
    """One of the two due topics, on the partition of one assignment."""

    __slots__ = (
        "consumer",
        "first_ms",
        "held",
        "name",
        "paused",
        "rewound",
        "scan_end",
        "scanned",
        "skimming",
        "tracker",
        "where",
    )

    def __init__(
        self, name: LaneName, where: TopicPartition, consumer: GroupConsumer | Reader, tracker: OffsetTracker
    ) -> None:
        self.name: LaneName = name
        self.where = where
        self.consumer = consumer
        self.tracker = tracker
        self.scan_end = 0
        """The true end at the assignment."""
        self.scanned = False
        self.skimming = False
        """Beyond the limits: records are only noted, and fetched again from the tracker's position later."""
        self.held = 0
        """Records of this lane that are held now."""
        self.rewound = False
        """Sent back, and nothing came since: the consumer's position may still be the one before."""
        self.paused = False
        self.first_ms: int | None = None
        """The log time of the first unfinished record, once it was read."""


class AwaitingCommit(NamedTuple):
    """A report that may be sent once the commit of this number has been accepted (W4)."""

    commit: int
    send: Callable[[], None]


class Assignment:
    """One partition of the queue, held by this worker since one assignment."""

    __slots__ = (
        "accepted_sent_s",
        "alive",
        "awaiting_commit",
        "commit_due_s",
        "commit_in_flight",
        "commit_wanted",
        "commits_accepted",
        "commits_sent",
        "control",
        "control_end",
        "control_passed",
        "control_reading",
        "due",
        "due_now",
        "epoch",
        "gate_since_s",
        "knowledge",
        "number",
        "parked",
        "to_commit",
    )

    def __init__(self, number: int, epoch: int, due: Lane, due_now: Lane, control: TopicPartition) -> None:
        self.number = number
        self.epoch = epoch
        self.due = due
        self.due_now = due_now
        self.control = control
        self.control_end = 0
        self.control_reading = False
        self.control_passed = False
        self.gate_since_s = 0.0
        self.knowledge = Knowledge()
        self.alive = True
        # Commits are counted from 1. `accepted_sent_s` is when the newest accepted one was sent.
        self.commits_sent = 0
        self.commits_accepted = 0
        self.accepted_sent_s: float | None = None
        self.commit_in_flight = False
        self.commit_wanted = False
        self.commit_due_s = float("-inf")
        self.awaiting_commit: list[AwaitingCommit] = []
        self.to_commit: list[Running] = []
        """Executions whose claim was read back since the last commit was sent (W5)."""
        self.parked: list[Held] = []
        """Ready, and not to be started before this assignment is open."""

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return (self.due_now, self.due)

    def lane(self, name: LaneName) -> Lane:
        return self.due if name == "due" else self.due_now

    def offsets(self) -> dict[TopicPartition, OffsetCommit]:
        """Both lanes, computed at one instant (W2); the epoch travels with each (W10)."""
        return {
            lane.where: OffsetCommit(lane.tracker.low(), write_metadata(self.epoch, lane.tracker.bits()))
            for lane in (self.due, self.due_now)
        }

    def starts_until_s(self, session_timeout_s: float) -> float:
        """W8: until when the newest accepted commit lets executions start; it also brought the epoch (W10)."""
        if self.accepted_sent_s is None:
            return float("-inf")
        return self.accepted_sent_s + session_timeout_s - 1.0

    def gates_passed(self) -> bool:
        """W3 and W7: everything that was there at the assignment was read."""
        return self.control_passed and self.due.scanned and self.due_now.scanned

    def after_commit(self, commit: int, send: Callable[[], None]) -> None:
        """Call `send` once a commit of this number or a later one was accepted; never, if the partition is lost first."""
        if self.commits_accepted >= commit:
            send()
            return
        self.awaiting_commit.append(AwaitingCommit(commit, send))
        if commit > self.commits_sent:
            self.commit_wanted = True


class Assignments:
    """All partitions held. Opens them, and passes their gates."""

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        log: EventLog,
        rules: WorkerRules,
        group: GroupConsumer,
        due_now: Reader,
        control: Reader,
    ) -> None:
        self._clock = clock
        self._log = log
        self._rules = rules
        self._group = group
        self._due_now = due_now
        self._control = control
        self._due_topic = config.topics.due(config.queue)
        self._due_now_topic = config.topics.due_now(config.queue)
        self._control_topic = config.topics.control(config.queue)
        self._unopened: dict[int, float] = {}
        self._by_number: dict[int, Assignment] = {}

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> Assignment | None:
        return self._by_number.get(number)

    # --- opening ------------------------------------------------------------------------------------------------------

    def assign(self, numbers: Sequence[int]) -> list[Assignment]:
        """The group gave us these partitions. Returns those that are open now; the others are tried again."""
        due = dict.fromkeys(numbers, float("-inf"))
        self._unopened.update(due)
        opened = self.open_waiting()
        left = [TopicPartition(self._due_topic, number) for number in numbers if number in self._unopened]
        if left:
            self._group.pause(left)
        return opened

    def open_waiting(self) -> list[Assignment]:
        """Open what could not be opened yet, as far as the log answers."""
        if not self._unopened:
            return []
        now_s = self._clock.monotonic_s()
        numbers = [number for number, at_s in self._unopened.items() if at_s <= now_s]
        if not numbers:
            return []
        try:
            committed = self._group.committed(
                [TopicPartition(t, n) for n in numbers for t in (self._due_topic, self._due_now_topic)],
                OFFSETS_TIMEOUT_S,
            )
            opened = [self._open(number, committed, now_s) for number in numbers]
        except LogError as error:
            logger.warning("partitions %s of %s cannot be opened yet: %s", numbers, self._due_topic, error)
            self._unopened.update(dict.fromkeys(numbers, now_s + OPEN_AGAIN_S))
            return []
        for assignment in opened:
            self._begin(assignment)
        return opened

    def _open(
        self, number: int, committed: Mapping[TopicPartition, OffsetCommit | None], now_s: float
    ) -> Assignment:
        due, due_epoch = self._lane("due", TopicPartition(self._due_topic, number), self._group, committed)
        due_now, due_now_epoch = self._lane(
            "due-now", TopicPartition(self._due_now_topic, number), self._due_now, committed
        )
        # W10: one above whatever was committed for either lane.
        epoch = max(due_epoch, due_now_epoch) + 1 if self._rules.w10 else 0
        control = TopicPartition(self._control_topic, number)
        assignment = Assignment(number, epoch, due, due_now, control)
        # W3: the true end, records of open transactions included.
        assignment.control_end = self._log.end_offset(control, "uncommitted")
        assignment.control_passed = not self._rules.w3
        assignment.gate_since_s = now_s
        return assignment

    def _lane(
        self,
        name: LaneName,
        where: TopicPartition,
        consumer: GroupConsumer | Reader,
        committed: Mapping[TopicPartition, OffsetCommit | None],
    ) -> tuple[Lane, int]:
        """The lane from its committed offset on, or from the first record kept; and the epoch that was committed."""
        begin, end = self._log.begin_offset(where), self._log.end_offset(where, "uncommitted")
        position, said = begin, CommittedLane(0, frozenset())
        commit = committed.get(where)
        if commit is not None:
            try:
                said = read_metadata(commit.offset, commit.metadata)
            except ForeignMetadata as error:
                logger.warning("%s[%d]@%d: %s", where.topic, where.partition, commit.offset, error)
            if begin <= commit.offset <= end:
                position = commit.offset
            else:
                said = CommittedLane(said.epoch, frozenset())
        lane = Lane(name, where, consumer, OffsetTracker(position, said.finished))
        # W7: the true end, as for control.
        lane.scan_end = end
        lane.scanned = not self._rules.w7
        return lane, said.epoch

    def _begin(self, assignment: Assignment) -> None:
        self._unopened.pop(assignment.number, None)
        self._by_number[assignment.number] = assignment
        self.read_from_tracker(assignment)
        self._due_now.add(assignment.due_now.where, assignment.due_now.tracker.position)

    def read_from_tracker(self, assignment: Assignment) -> None:
        """The group's consumer continues where the tracker stands."""
        self._group.seek(assignment.due.where, assignment.due.tracker.position)
        self._group.resume([assignment.due.where])

    # --- ending -------------------------------------------------------------------------------------------------------

    def end(self, numbers: Iterable[int]) -> list[Assignment]:
        """These partitions are no longer ours. Control stays assigned: executions may need it (W5)."""
        ended = []
        for number in numbers:
            self._unopened.pop(number, None)
            assignment = self._by_number.pop(number, None)
            if assignment is None:
                continue
            assignment.alive = False
            assignment.awaiting_commit.clear()
            assignment.parked.clear()
            self._due_now.remove(assignment.due_now.where)
            ended.append(assignment)
        return ended

    def release_control(self, number: int) -> None:
        """Nothing here needs the control of this partition any more."""
        where = TopicPartition(self._control_topic, number)
        if number not in self._by_number and where in self._control.assigned():
            self._control.remove(where)

    # --- gates --------------------------------------------------------------------------------------------------------

    def pass_gates(self) -> None:
        """Look which of the ends captured at the assignment have been reached."""
        for assignment in self._by_number.values():
            for lane in assignment.lanes:
                if not lane.scanned and lane.consumer.position(lane.where) >= lane.scan_end:
                    lane.scanned = True
            if not assignment.control_reading:
                self._start_control(assignment)
            elif not assignment.control_passed:
                self._pass_control(assignment)

    def _start_control(self, assignment: Assignment) -> None:
        """Control is read from the log time of the lowest unfinished due record on, with some slack."""
        if any(lane.first_ms is None and not lane.scanned for lane in assignment.lanes):
            return
        firsts = [lane.first_ms for lane in assignment.lanes if lane.first_ms is not None]
        oldest_ms = min([*firsts, self._clock.now_ms()]) - CONTROL_SLACK_MS
        where = assignment.control
        try:
            begin = self._log.begin_offset(where)
            by_time = self._log.offset_for_time(where, oldest_ms)
        except LogError as error:
            logger.warning("control of partition %d cannot be read yet: %s", assignment.number, error)
            return
        start = max(begin, min(by_time, assignment.control_end - CONTROL_SLACK_RECORDS))
        if where in self._control.assigned():
            self._control.seek(where, start)  # it was followed for executions of an earlier assignment
        else:
            self._control.add(where, start)
        assignment.control_reading = True

    def _pass_control(self, assignment: Assignment) -> None:
        where = assignment.control
        if self._control.position(where) >= assignment.control_end:
            assignment.control_passed = True
            return
        now_s = self._clock.monotonic_s()
        if now_s - assignment.gate_since_s > CONTROL_TIMEOUT_S:
            # W3: compaction may have taken what we have yet to read; its newer record lies above the new end.
            try:
                end, begin = self._log.end_offset(where, "uncommitted"), self._log.begin_offset(where)
            except LogError as error:
                logger.warning(
                    "control of partition %d cannot be read again yet: %s", assignment.number, error
                )
                return
            assignment.control_end = end
            assignment.gate_since_s = now_s
            self._control.seek(where, begin)

    def are_scanned(self) -> bool:
        return all(a.due.scanned and a.due_now.scanned for a in self._by_number.values())

    def are_opening(self) -> bool:
        """Whether a partition was assigned of which nothing may start yet, and the next pass may change that."""
        return any(not (a.gates_passed() and a.commits_accepted) for a in self._by_number.values())

    def forget_old_knowledge(self) -> None:
        """Drop what no record that can still be fetched is about."""
        for assignment in self._by_number.values():
            due, due_now = assignment.due, assignment.due_now
            if assignment.knowledge.may_forget((due.tracker.low(), due_now.tracker.low())):
                try:
                    ends = [self._log.end_offset(lane.where, "uncommitted") for lane in (due, due_now)]
                except LogError as error:
                    logger.info("nothing is forgotten now: %s", error)
                    return
                assignment.knowledge.rotate((ends[0], ends[1]))
