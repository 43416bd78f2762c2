"""Which timers are due: those of the committed rows, in the store, and over them what the view has changed since.

Firing leaves a tombstone for each timer, and a scan from the start would wade through all of them. So each range has a
frontier: where the scan goes on, and the few timers behind it that were left in place. What the store keeps of it is one
key, the low-water: no stored timer of the range sorts below it. It is written with every batch, and so is every timer
that lies below it and lowers it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from tocsin.streams.timers import RANGES, Timer, TimerRange, due_of, end_of, first_key, first_of

KEPT_MAX: Final = 4_096
"""Timers behind the frontier that are remembered, per range: as many as one pass may leave in place. Beyond that the
frontier itself goes back, which costs time and nothing else."""

FIRED_PER_RANGE_DELETE: Final = 50_000
"""So many deletions later the fired part of a range is covered by one range tombstone, under which a compaction drops it
(measured: a seek over 200,000 fired timers takes 17 ms, 5 ms with the range tombstone, 0.05 ms once it is flushed)."""


class Cursor(Protocol):
    """An iterator over stored keys; rocks.Scan."""

    @property
    def next(self) -> Callable[[], None]: ...

    def key(self) -> bytes | None: ...


OpenScan = Callable[[bytes, bytes], Cursor]
"""Of the stored timers in [lower, upper)."""


class Delta(NamedTuple):
    """What a commit does to the stored timers. `cover`: a range [begin, end) to cover with a range tombstone."""

    puts: list[bytes]
    deletes: list[bytes]
    cover: list[tuple[bytes, bytes]]
    lows: Mapping[TimerRange, bytes]


class _Frontier(NamedTuple):
    """What is known of the stored timers of a range, without reading: all below `position` are in `kept`, and none lies
    in [position, floor). `exact`: floor is a stored timer itself."""

    position: bytes
    floor: bytes
    exact: bool
    kept: tuple[bytes, ...] = ()

    @property
    def low(self) -> bytes:
        return self.kept[0] if self.kept else self.floor


class _Lane:
    """One range: the frontier, and the changes since the last commit.

    A timer exists if it is in `added`, or stored and not in `removed`. One that was removed and came back is in both.
    """

    def __init__(self, lane: TimerRange, low: bytes) -> None:
        self.lane = lane
        self.end = end_of(lane)
        self.frontier = _Frontier(first_of(lane), low, False)
        self.committed = self.frontier
        self.fired = 0
        self.removed: set[bytes] = set()
        self.added: dict[bytes, int] = {}
        self.heap: list[tuple[bytes, int]] = []
        """Of `added`, with the number of the addition: an entry whose number is not the one in `added` is void."""
        self.additions = 0

    def add(self, key: bytes) -> None:
        self.additions += 1
        self.added[key] = self.additions
        heappush(self.heap, (key, self.additions))

    def remove(self, key: bytes) -> None:
        if self.added.pop(key, None) is None:
            self.removed.add(key)

    def exists(self, key: bytes) -> bool:
        """Of a key that is stored or in the heap."""
        return key in self.added or key not in self.removed

    def earliest_added(self) -> tuple[bytes, int] | None:
        heap, added = self.heap, self.added
        while heap and added.get(heap[0][0]) != heap[0][1]:
            heappop(heap)
        return heap[0] if heap else None

    def prepare(self) -> tuple[list[bytes], list[bytes], list[tuple[bytes, bytes]]]:
        """Move the frontier to where it stands after a commit: puts, deletes, and what to cover."""
        added, removed = self.added, self.removed
        puts = [key for key in added if key not in removed]
        deletes = [key for key in removed if key not in added]
        position, floor, exact, kept = self.frontier
        if removed and kept:
            kept = tuple(key for key in kept if key not in removed)
        behind = [key for key in added if key < position]
        if behind:
            kept = tuple(sorted((*kept, *behind)))
        if exact and floor in removed and floor not in added:
            exact = False
        ahead = min((key for key in puts if key >= position), default=floor)
        if ahead < floor:
            floor, exact = ahead, True
        if len(kept) > KEPT_MAX:
            position = floor = kept[KEPT_MAX]
            exact, kept = True, kept[:KEPT_MAX]
        self.frontier = self.committed = _Frontier(position, floor, exact, kept)
        self.fired += len(deletes)
        cover = []
        if self.fired >= FIRED_PER_RANGE_DELETE:
            self.fired = 0
            cover.append((first_of(self.lane), self.frontier.low))
        self._forget()
        return puts, deletes, cover

    def rollback(self) -> None:
        self.frontier = self.committed
        self._forget()

    def _forget(self) -> None:
        self.removed, self.added, self.heap = set(), {}, []


class TimerIndex:
    """The timers of one partition, for the one thread that changes them."""

    def __init__(self, scan: OpenScan, lows: Mapping[TimerRange, bytes]) -> None:
        self._scan = scan
        self._lanes = {lane[0]: _Lane(lane, lows[lane]) for lane in RANGES}
        self._pass: DuePass | None = None

    def change(self, before: tuple[bytes, ...], after: tuple[bytes, ...]) -> None:
        """A row had the timers `before`, and has those of `after` from now on."""
        lanes = self._lanes
        for key in before:
            if key not in after:
                lanes[key[0]].remove(key)
        for key in after:
            if key not in before:
                lanes[key[0]].add(key)

    def due(self, lane: TimerRange, bound_ms: int, limit: int, settle: Callable[[], None]) -> "DuePass":
        """See View.due. `settle` is called before each step: it reports by change() what the caller did to rows."""
        self.end_pass()
        self._pass = DuePass(self._lanes[lane[0]], self._scan, bound_ms, limit, settle)
        return self._pass

    def end_pass(self) -> None:
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    def drop_pass(self) -> None:
        """The store is being closed: let go of its iterator, also if nothing can be read any more."""
        if self._pass is not None:
            self._pass.drop()
            self._pass = None

    def next_due(self, lane: TimerRange, after_ms: int | None) -> int | None:
        """See View.next_due. No change may be unsettled."""
        self.end_pass()
        state = self._lanes[lane[0]]
        start = state.lane if after_ms is None else first_key(lane, after_ms + 1)
        candidates = (self._first_stored(state, start), _first_added(state, start))
        dues = [due_of(key) for key in candidates if key is not None]
        return min(dues, default=None)

    def _first_stored(self, state: _Lane, start: bytes) -> bytes | None:
        position, floor, exact, kept = state.frontier
        removed = state.removed
        for index in range(bisect_left(kept, start), len(kept)):
            if kept[index] not in removed:
                return kept[index]
        if exact and floor >= start and floor not in removed:
            return floor
        scan = self._scan(max(floor, start), state.end)
        if floor >= start:  # what it finds first is worth remembering
            found = scan.key()
            state.frontier = _Frontier(position, found or state.end, found is not None, kept)
        return next(_live(scan, removed), None)

    def prepare(self) -> Delta:
        """What to write. The index stands as after the commit from here on; a commit that fails ends its use."""
        self.end_pass()
        puts: list[bytes] = []
        deletes: list[bytes] = []
        cover: list[tuple[bytes, bytes]] = []
        for state in self._lanes.values():
            lane_puts, lane_deletes, lane_cover = state.prepare()
            puts += lane_puts
            deletes += lane_deletes
            cover += lane_cover
        return Delta(puts, deletes, cover, self.lows)

    @property
    def lows(self) -> dict[TimerRange, bytes]:
        """As of the last commit."""
        return {state.lane: state.committed.low for state in self._lanes.values()}

    def rollback(self) -> None:
        self.end_pass()
        for state in self._lanes.values():
            state.rollback()


class DuePass(Iterator[Timer]):
    """One pass over the due timers of a range; see View.due. It ends by itself, or by close()."""

    __slots__ = (
        "_at",
        "_bound",
        "_cursor",
        "_lane",
        "_left",
        "_limit",
        "_offered",
        "_open",
        "_passed",
        "_scan",
        "_settle",
        "full",
    )

    def __init__(
        self, lane: _Lane, scan: OpenScan, bound_ms: int, limit: int, settle: Callable[[], None]
    ) -> None:
        self.full = False
        """Whether it ended at its limit: more may be due."""
        self._lane = lane
        self._scan = scan
        self._bound = first_key(lane.lane, bound_ms + 1)
        self._limit = limit
        self._settle = settle
        self._open = True
        self._left = limit
        self._at = 0
        """How many of `kept` were looked at."""
        self._cursor: Cursor | None = None
        self._passed: list[bytes] = []
        """Stored timers that were yielded from the cursor."""
        self._offered: list[tuple[bytes, int]] = []
        """Entries that were taken from the heap and yielded."""

    def __iter__(self) -> "DuePass":
        return self

    def __next__(self) -> Timer:
        if not self._open:
            raise StopIteration
        self._settle()
        if self._left == 0:
            self.full = True
            self.close()
            raise StopIteration
        stored = self._stored()
        added = self._lane.earliest_added()
        if added is not None and added[0] < self._bound and (stored is None or added[0] < stored):
            heappop(self._lane.heap)
            self._offered.append(added)
            key = added[0]
        elif stored is not None:
            self._advance(stored)
            key = stored
        else:
            self.close()
            raise StopIteration
        self._left -= 1
        return Timer.decode(key)

    def drop(self) -> None:
        """End the pass, and of the index with it: nothing is noted of how far it came."""
        self._open = False
        self._cursor = None

    def close(self) -> None:
        """End the pass: the frontier moves up to the first timer that may still exist."""
        if not self._open:
            return
        self._open = False
        lane = self._lane
        for key, number in self._offered:
            if lane.added.get(key) == number:
                heappush(lane.heap, (key, number))
        position, floor, exact, kept = lane.frontier
        removed = lane.removed
        left = tuple(key for key in self._passed if key not in removed)
        if self._cursor is not None:
            found = self._cursor.key()
            floor, exact = (lane.end, False) if found is None else (found, True)
            position = max(position, min(floor, self._bound))
        self._cursor = None
        lane.frontier = _Frontier(position, floor, exact, kept + left)

    def _stored(self) -> bytes | None:
        """The next stored timer that exists, at or below the bound; not taken yet."""
        lane, bound = self._lane, self._bound
        kept, removed = lane.frontier.kept, lane.removed
        while self._at < len(kept):
            key = kept[self._at]
            if key >= bound:
                return None
            if key not in removed:
                return key
            self._at += 1
        if self._cursor is None:
            if lane.frontier.floor >= bound:
                return None
            self._cursor = self._scan(lane.frontier.floor, lane.end)
        cursor = self._cursor
        while True:
            found = cursor.key()
            if found is None or found >= bound:
                return None
            if found not in removed:
                return found
            cursor.next()

    def _advance(self, stored: bytes) -> None:
        if self._at < len(self._lane.frontier.kept):
            self._at += 1
            return
        assert self._cursor is not None
        self._passed.append(stored)
        self._cursor.next()


def _first_added(state: _Lane, start: bytes) -> bytes | None:
    """The earliest of `added` at or above `start`. Those below it are few: what a pass has left in place."""
    below: list[tuple[bytes, int]] = []
    found = state.earliest_added()
    while found is not None and found[0] < start:
        below.append(heappop(state.heap))
        found = state.earliest_added()
    if below:
        state.heap += below
        heapify(state.heap)
    return None if found is None else found[0]


def _live(scan: Cursor, removed: set[bytes]) -> Iterator[bytes]:
    while (key := scan.key()) is not None:
        if key not in removed:
            yield key
        scan.next()
