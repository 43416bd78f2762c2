"""What happens when partitions move away: in order (W6, revoke) or by surprise (W5, lost)."""

from collections.abc import Callable, Sequence
from typing import Final

from tocsin.clock import Clock
from tocsin.worker.assignments import Assignment, Assignments
from tocsin.worker.commits import Commits
from tocsin.worker.config import CoreConfig
from tocsin.worker.endings import Endings
from tocsin.worker.executions import Executions
from tocsin.worker.holding import Holding
from tocsin.worker.reports import Reports
from tocsin.worker.rules import WorkerRules
from tocsin.worker.running import Running

ROUND_S: Final = 0.02
"""How long one wait for a claim to come back through control is."""

COMMIT_S_MIN: Final = 0.1
"""What is left for the commit even if the claims have taken all the time: without it they were for nothing."""


class Handover:
    """Lets partitions go."""

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        rules: WorkerRules,
        assignments: Assignments,
        holding: Holding,
        executions: Executions,
        endings: Endings,
        reports: Reports,
        commits: Commits,
        read_control: Callable[[], int],
        wait: Callable[[float], None],
    ) -> None:
        self._revoke_s = config.revoke_s
        self._clock = clock
        self._rules = rules
        self._assignments = assignments
        self._holding = holding
        self._executions = executions
        self._endings = endings
        self._reports = reports
        self._commits = commits
        self._read_control = read_control
        self._wait = wait

    def lost(self, numbers: Sequence[int]) -> None:
        """W5: somebody else may own them already. Held records are dropped, and what is not confirmed is aborted."""
        self._let_go(self._assignments.end(numbers), abort=self._rules.w5)

    def revoke(self, numbers: Sequence[int]) -> None:
        """W6: claim all that executes, wait for the confirmations for a second at most, commit, and let go."""
        going = [a for number in numbers if (a := self._assignments.get(number)) is not None]
        if not going:
            self._assignments.end(numbers)
            return
        deadline_s = self._clock.monotonic_s() + self._revoke_s
        for assignment in going:
            self._drop_unbegun(assignment)
        self._executions.fold_ended()
        if self._rules.w6:
            self._confirm_executing(going, deadline_s)
        self._commits.commit_now(going, max(deadline_s - self._clock.monotonic_s(), COMMIT_S_MIN))
        self._let_go(self._assignments.end(numbers), abort=self._rules.w6)

    def _drop_unbegun(self, assignment: Assignment) -> None:
        """What is held, and what waits for a commit before it may say that it was dropped: the next owner's business."""
        assignment.awaiting_commit.clear()
        for held in self._holding.of_assignment(assignment):
            if held.state in ("held", "yielded"):
                self._endings.forget(held)

    def _confirm_executing(self, going: list[Assignment], deadline_s: float) -> None:
        for running in self._executing(going):
            self._executions.claim(running)
        self._reports.flush(deadline_s - self._clock.monotonic_s())
        # Bounded by count, too: a clock that is stepped by hand does not move while we wait.
        for _ in range(round(self._revoke_s / ROUND_S)):
            self._read_control()
            self._executions.fold_ended()
            self._reports.poll()
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or all(running.confirmed for running in self._executing(going)):
                return
            self._wait(min(left_s, ROUND_S))

    def _executing(self, going: list[Assignment]) -> list[Running]:
        """What of these partitions still executes and is meant to."""
        return [
            running
            for running in self._executions.all()
            if running.held.assignment in going and not running.is_given_up
        ]

    def _let_go(self, ended: list[Assignment], *, abort: bool) -> None:
        for running in self._executions.all():
            if abort and running.held.assignment in ended and not running.outlives_partition:
                self._executions.abort(running, "lost")
        for assignment in ended:
            for held in self._holding.of_assignment(assignment):
                if held.running is None and not held.outlived:
                    self._endings.forget(held)
            if not self._executions.of_partition(assignment.number):
                self._assignments.release_control(assignment.number)
