"""The due records that this worker has fetched: held until due, then ready in a fair order, then executing.

One class per store: Held is one record, Holding all of them, by run, by job, by time and by turn.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from tocsin.schemas.records import DueRun, Lane

if TYPE_CHECKING:
    from tocsin.worker.assignments import Assignment
    from tocsin.worker.running import Running

HELD_OVERHEAD_BYTES: Final = 2_000
"""What a held record costs beside its encoded bytes: the decoded run, its place in the heap and in two indexes."""

SURVEYED_MAX: Final = 10_000
"""Overdue records among which the oldest is looked for: a millisecond of work, and they came in the order of their dues."""

HeldState = Literal[
    "held",  # waits for its instant, or for a slot
    "executing",
    "reporting",  # its final report waits for the log's acknowledgement, or for an offset commit first (W4)
    "yielded",  # a higher epoch holds its dispatch: neither started nor finished here
    "done",  # finished, or forgotten with its partition
]


class Held:
    """One due record fetched by this worker."""

    __slots__ = ("assignment", "bytes", "job", "lane", "offset", "outlived", "run", "running", "state")

    def __init__(self, run: DueRun, assignment: "Assignment", lane: Lane, offset: int, size: int) -> None:
        self.run = run
        self.job = f"{run.namespace}/{run.job_id}"
        self.assignment = assignment
        self.lane: Lane = lane
        self.offset = offset
        self.bytes = size + HELD_OVERHEAD_BYTES
        self.state: HeldState = "held"
        self.running: Running | None = None
        self.outlived = False
        """Its execution had been claimed and committed, so its report is sent even if the partition is lost."""


class FairQueue:
    """First come, first served within a namespace; the namespaces take turns."""

    __slots__ = ("_by_namespace", "_turns")

    def __init__(self) -> None:
        self._by_namespace: dict[str, deque[Held]] = {}
        self._turns: deque[str] = deque()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def push(self, held: Held) -> None:
        namespace = held.run.namespace
        queue = self._by_namespace.get(namespace)
        if queue is None:
            queue = self._by_namespace[namespace] = deque()
            self._turns.append(namespace)
        queue.append(held)

    def pop(self) -> Held:
        namespace = self._turns.popleft()
        queue = self._by_namespace[namespace]
        held = queue.popleft()
        if queue:
            self._turns.append(namespace)
        else:
            del self._by_namespace[namespace]
        return held


class Holding:
    """All records that are held or executing. Owns their state and the bytes that they take."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Held]] = []
        self._pushes = 0
        self._high = FairQueue()
        self._normal = FairQueue()
        self._by_run: dict[str, list[Held]] = {}
        self._by_job: dict[str, dict[int, Held]] = {}
        self._overdue: dict[int, Held] = {}
        """Held, and their instant has come: a few while there are slots, and what waits for them otherwise."""
        self.held_bytes: dict[Lane, int] = {"due": 0, "due-now": 0}
        self.held_count = 0

    # --- what is there ------------------------------------------------------------------------------------------------

    def of_run(self, run_id: str) -> tuple[Held, ...]:
        found = self._by_run.get(run_id)
        return tuple(found) if found else ()

    def of_job(self, job: str) -> tuple[Held, ...]:
        found = self._by_job.get(job)
        return tuple(found.values()) if found else ()

    def of_assignment(self, assignment: "Assignment") -> list[Held]:
        return [held for held in self.all() if held.assignment is assignment]

    def all(self) -> Iterator[Held]:
        for of_run in self._by_run.values():
            yield from of_run

    def __len__(self) -> int:
        return sum(len(of_run) for of_run in self._by_run.values())

    # --- coming and going ---------------------------------------------------------------------------------------------

    def hold(self, held: Held) -> None:
        """It waits for its instant from now on."""
        self._by_run.setdefault(held.run.run_id, []).append(held)
        self._by_job.setdefault(held.job, {})[id(held)] = held
        self._enter(held)

    def hold_again(self, held: Held) -> None:
        """What was taken for a start could not begin, and waits again."""
        self._enter(held)

    def _enter(self, held: Held) -> None:
        held.state = "held"
        self.held_bytes[held.lane] += held.bytes
        self.held_count += 1
        held.assignment.lane(held.lane).held += 1
        self.put_back(held)

    def take(self, held: Held, state: HeldState) -> None:
        """It is no longer held: it executes, is reported, ..."""
        if held.state == "held":
            self.held_bytes[held.lane] -= held.bytes
            self.held_count -= 1
            self._overdue.pop(id(held), None)
            held.assignment.lane(held.lane).held -= 1
        held.state = state

    def remove(self, held: Held) -> None:
        """Nothing is left to be done here for it."""
        if held.state == "done":
            return
        self.take(held, "done")
        of_run = self._by_run[held.run.run_id]
        of_run.remove(held)
        if not of_run:
            del self._by_run[held.run.run_id]
        of_job = self._by_job[held.job]
        del of_job[id(held)]
        if not of_job:
            del self._by_job[held.job]

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def put_back(self, held: Held) -> None:
        """A held record waits for its instant (again)."""
        self._overdue.pop(id(held), None)
        self.put_back_until(held, held.run.due_ms)

    def put_back_until(self, held: Held, instant_ms: int) -> None:
        self._pushes += 1
        heapq.heappush(self._heap, (instant_ms, self._pushes, held))

    def make_ready(self, held: Held) -> None:
        """Its instant has come; it waits for its turn."""
        (self._high if held.run.priority == "high" else self._normal).push(held)

    def release(self, now_ms: int) -> None:
        """Everything held whose instant has come becomes ready."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            held = heapq.heappop(heap)[2]
            if held.state == "held":
                self._overdue[id(held)] = held
                self.make_ready(held)

    def overdue_count(self) -> int:
        """Held although their instant has passed."""
        return len(self._overdue)

    def overdue_since_ms(self) -> int:
        """The due instant of the oldest of them; 0: there is none."""
        return min((held.run.due_ms for held in islice(self._overdue.values(), SURVEYED_MAX)), default=0)

    def next_due_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].state != "held":
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_ready(self) -> Held | None:
        """The next ready record: priority high first, then the namespaces in turn."""
        for queue in (self._high, self._normal):
            while queue:
                held = queue.pop()
                if held.state == "held":
                    return held
        return None

    def has_ready(self) -> bool:
        return bool(self._high) or bool(self._normal)
