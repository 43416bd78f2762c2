"""Offset commits: what makes progress durable (W2), proves ownership (W4, W8) and announces the epoch (W10)."""

import logging
from functools import partial
from typing import Final, NamedTuple

from tocsin.clock import Clock
from tocsin.log.port import GroupConsumer, LogError, OffsetCommit, TopicPartition
from tocsin.worker.assignments import Assignment, Assignments
from tocsin.worker.config import CoreConfig
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.rules import WorkerRules
from tocsin.worker.running import Running

logger = logging.getLogger(__name__)

AGAIN_AFTER_S: Final = 0.1
"""After a refused commit. Around a rebalance a healthy member is refused, too, until its next poll."""


class _Ticket(NamedTuple):
    """What one request says of one assignment."""

    assignment: Assignment
    number: int
    sent_s: float
    confirmed: list[Running]


class Commits:
    """One request in flight for each partition; both lanes of a partition always travel together."""

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        rules: WorkerRules,
        group: GroupConsumer,
        assignments: Assignments,
        metrics: WorkerMetrics,
    ) -> None:
        self._every_s = config.commit_every_s
        self._clock = clock
        self._rules = rules
        self._group = group
        self._assignments = assignments
        self._metrics = metrics

    def send_due(self) -> int:
        """Commit for every partition whose turn it is, unchanged offsets too (W8). Returns for how many."""
        now_s = self._clock.monotonic_s()
        offsets: dict[TopicPartition, OffsetCommit] = {}
        tickets: list[_Ticket] = []
        for assignment in self._assignments:
            if assignment.commit_in_flight or not (
                assignment.commit_wanted or now_s >= assignment.commit_due_s
            ):
                continue
            self._pass_holes(assignment)
            offsets.update(self._offsets(assignment))
            tickets.append(self._ticket(assignment, now_s))
            assignment.commit_in_flight = True
            assignment.commit_due_s = now_s + self._every_s
        if tickets:
            self._metrics.commits += 1
            self._group.commit(offsets, partial(self._answered, tickets))
        return len(tickets)

    def next_due_s(self) -> float | None:
        due = [a.commit_due_s for a in self._assignments if not a.commit_in_flight]
        return min(due) if due else None

    def in_flight(self) -> bool:
        return any(assignment.commit_in_flight for assignment in self._assignments)

    def commit_now(self, assignments: list[Assignment], timeout_s: float) -> bool:
        """Commit and wait for the answer (W6). Offsets that the consumer has passed but not returned yet stay open."""
        now_s = self._clock.monotonic_s()
        offsets: dict[TopicPartition, OffsetCommit] = {}
        tickets = []
        for assignment in assignments:
            offsets.update(assignment.offsets())
            tickets.append(self._ticket(assignment, now_s))
        self._metrics.commits += 1
        try:
            self._group.commit_sync(offsets, timeout_s)
        except LogError as error:
            logger.warning("the last commit of partitions that move away failed: %s", error)
            self._metrics.commits_failed += 1
            return False
        for ticket in tickets:
            self._accepted(ticket)
        return True

    def _ticket(self, assignment: Assignment, now_s: float) -> _Ticket:
        assignment.commits_sent += 1
        assignment.commit_wanted = False
        confirmed, assignment.to_commit = assignment.to_commit, []
        return _Ticket(assignment, assignment.commits_sent, now_s, confirmed)

    def _offsets(self, assignment: Assignment) -> dict[TopicPartition, OffsetCommit]:
        offsets = assignment.offsets()
        if not self._rules.w2:
            # Without the rule the lanes are committed one by one.
            lane = assignment.lanes[assignment.commits_sent % 2]
            return {lane.where: offsets[lane.where]}
        return offsets

    def _pass_holes(self, assignment: Assignment) -> None:
        """Offsets that are never delivered, as far as the consumers have passed them, count as finished (W2).

        Only outside of poll(), when every record that they have passed was also taken.
        """
        for lane in assignment.lanes:
            if not lane.skimming and not lane.rewound:
                lane.tracker.advance(lane.consumer.position(lane.where))

    def _answered(self, tickets: list[_Ticket], error: LogError | None) -> None:
        if error is not None:
            self._metrics.commits_failed += 1
            logger.info("an offset commit was not accepted: %s", error)
        for ticket in tickets:
            assignment = ticket.assignment
            assignment.commit_in_flight = False
            if error is None:
                self._accepted(ticket)
            else:
                assignment.to_commit[:0] = ticket.confirmed
                assignment.commit_due_s = self._clock.monotonic_s() + AGAIN_AFTER_S

    def _accepted(self, ticket: _Ticket) -> None:
        assignment = ticket.assignment
        if not assignment.alive:
            return
        assignment.commits_accepted = max(assignment.commits_accepted, ticket.number)
        assignment.accepted_sent_s = max(assignment.accepted_sent_s or ticket.sent_s, ticket.sent_s)
        for running in ticket.confirmed:
            running.committed = True
        # W4: what was waiting for a commit sent after its reason was read.
        waiting, assignment.awaiting_commit = assignment.awaiting_commit, []
        for entry in waiting:
            if entry.commit <= assignment.commits_accepted:
                entry.send()
            else:
                assignment.awaiting_commit.append(entry)
