"""The timer index against a sorted list, over a store that counts the tombstones it is made to wade through."""

from bisect import bisect_left, insort

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tocsin.streams.timer_index import FIRED_PER_RANGE_DELETE, KEPT_MAX, Delta, TimerIndex
from tocsin.streams.timers import AHEAD, EXACT, RANGES, Kind, Timer, TimerRange, end_of, first_of

Timers = tuple[bytes, ...]


def timer(lane: TimerRange, due_ms: int, owner: int) -> bytes:
    return Timer(lane, due_ms, Kind.OCCURRENCE, b"ns/j%05d" % owner).encode()


class Stored:
    """A sorted list of keys, in which a deleted key stays behind as a tombstone, as in RocksDB."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.known: set[bytes] = set()
        self.live: set[bytes] = set()
        self.waded = 0

    def apply(self, delta: Delta) -> None:
        for key in delta.deletes:
            self.live.remove(key)
        for key in delta.puts:
            assert key not in self.live
            if key not in self.known:
                self.known.add(key)
                insort(self.keys, key)
            self.live.add(key)
        for begin, end in delta.cover:
            assert not any(begin <= key < end for key in self.live), "a range tombstone over a live timer"
            self.keys = [key for key in self.keys if not begin <= key < end]
            self.known = set(self.keys)

    def scan(self, lower: bytes, upper: bytes) -> "ListCursor":
        return ListCursor(self, lower, upper)


class ListCursor:
    def __init__(self, stored: Stored, lower: bytes, upper: bytes) -> None:
        self._stored = stored
        self._upper = upper
        self._at = bisect_left(stored.keys, lower)
        self._skip()

    def key(self) -> bytes | None:
        keys = self._stored.keys
        return keys[self._at] if self._at < len(keys) and keys[self._at] < self._upper else None

    def next(self) -> None:
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        while (key := self.key()) is not None and key not in self._stored.live:
            self._at += 1
            self._stored.waded += 1


class Owners:
    """Rows, reduced to the timers they have: as changed since the last commit, as told to the index, as committed."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.index = TimerIndex(self.stored.scan, {lane: first_of(lane) for lane in RANGES})
        self.committed: dict[int, Timers] = {}
        self.now: dict[int, Timers] = {}
        self.told: dict[int, Timers] = {}
        self.changed: set[int] = set()

    def put(self, owner: int, timers: Timers) -> None:
        self.now[owner] = timers
        self.changed.add(owner)

    def settle(self) -> None:
        for owner in self.changed:
            self.index.change(self.told.get(owner, ()), self.now[owner])
            self.told[owner] = self.now[owner]
        self.changed.clear()

    def existing(self, lane: TimerRange) -> list[bytes]:
        return sorted(key for timers in self.now.values() for key in timers if key[:1] == lane)

    def commit(self) -> None:
        self.settle()
        delta = self.index.prepare()
        self.stored.apply(delta)
        self.committed = dict(self.now)
        for lane, low in delta.lows.items():
            below = [key for key in self.stored.live if first_of(lane) <= key < low]
            assert not below, f"{below} below the low-water"

    def rollback(self) -> None:
        self.index.rollback()
        self.changed.clear()
        self.now = dict(self.committed)
        self.told = dict(self.committed)

    def reopen(self) -> None:
        self.changed.clear()
        self.now = dict(self.committed)
        self.told = dict(self.committed)
        self.index = TimerIndex(self.stored.scan, self.index.lows)


owners = st.integers(0, 7)
lanes = st.sampled_from(RANGES)
dues = st.integers(0, 30)
timer_sets = st.lists(st.tuples(lanes, dues), max_size=2, unique=True)
# What the caller does with a timer that was yielded: leave it, drop it, move it (perhaps back), or change another owner.
reactions = st.one_of(
    st.none(),
    st.just("drop"),
    st.integers(-3, 6),
    st.tuples(owners, timer_sets),
    st.just("drop and put back"),
)


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.owners = Owners()

    @rule(owner=owners, timers=timer_sets)
    def put(self, owner: int, timers: list[tuple[TimerRange, int]]) -> None:
        self.owners.put(owner, tuple(timer(lane, due, owner) for lane, due in timers))

    @rule(lane=lanes, bound=dues, limit=st.integers(0, 12), todo=st.lists(reactions, max_size=20))
    def due(self, lane: TimerRange, bound: int, limit: int, todo: list[object]) -> None:
        owners, end = self.owners, timer(lane, bound + 1, 0)[:9]
        todo = list(todo)
        yielded: set[bytes] = set()
        count = 0
        running = owners.index.due(lane, bound, limit, owners.settle)
        while True:
            due = [key for key in owners.existing(lane) if key < end]
            yielded &= set(due)
            expected = next((key for key in due if key not in yielded), None) if count < limit else None
            found = next(running, None)
            assert (None if found is None else found.encode()) == expected
            if found is None or expected is None:
                break
            yielded.add(expected)
            count += 1
            self.react(found, todo.pop() if todo else None)
        assert running.full == (count == limit)

    def react(self, found: Timer, reaction: object) -> None:
        owner = int(found.key[-5:])
        others = tuple(key for key in self.owners.now[owner] if key != found.encode())
        match reaction:
            case None:
                pass
            case "drop":
                self.owners.put(owner, others)
            case "drop and put back":
                self.owners.put(owner, others)
                self.owners.put(owner, (*others, found.encode()))
            case int(delta):
                self.owners.put(owner, (*others, timer(found.range, max(0, found.due_ms + delta), owner)))
            case (int(other), list(timers)):
                self.owners.put(other, tuple(timer(lane, due, other) for lane, due in timers))
            case _:
                raise AssertionError(reaction)

    @rule(lane=lanes, after=st.none() | dues)
    def next_due(self, lane: TimerRange, after: int | None) -> None:
        self.owners.settle()
        dues = [Timer.decode(key).due_ms for key in self.owners.existing(lane)]
        expected = min((due for due in dues if after is None or due > after), default=None)
        assert expected == self.owners.index.next_due(lane, after)

    @rule()
    def commit(self) -> None:
        self.owners.commit()

    @rule()
    def rollback(self) -> None:
        self.owners.rollback()

    @rule()
    def reopen(self) -> None:
        self.owners.reopen()

    @invariant()
    def what_is_stored_is_what_was_committed(self) -> None:
        expected = {key for timers in self.owners.committed.values() for key in timers}
        assert expected == self.owners.stored.live


TestIndexAgainstASortedList = IndexMachine.TestCase
TestIndexAgainstASortedList.settings = settings(max_examples=300, stateful_step_count=40)


# --- what a sorted list does not show


def armed(count: int, lane: TimerRange = AHEAD) -> Owners:
    """`count` owners with one committed timer each, due at 0, 1, 2 ..."""
    owners = Owners()
    for owner in range(count):
        owners.put(owner, (timer(lane, owner, owner),))
    owners.commit()
    return owners


def fire(owners: Owners, lane: TimerRange, bound: int, limit: int) -> int:
    fired = 0
    for found in owners.index.due(lane, bound, limit, owners.settle):
        owners.put(int(found.key[-5:]), ())
        fired += 1
    return fired


def test_what_has_fired_is_not_waded_through_again() -> None:
    owners = armed(2_000)
    for bound in range(99, 2_000, 100):
        assert 100 == fire(owners, AHEAD, bound, 4_000)
        owners.commit()
    assert None is owners.index.next_due(AHEAD, None)
    assert 0 == owners.stored.waded


def test_a_timer_left_in_place_does_not_make_later_passes_wade_through_what_fired_behind_it() -> None:
    owners = armed(1_000)
    blocked = timer(AHEAD, 0, 0)
    for bound in range(9, 1_000, 10):
        for found in owners.index.due(AHEAD, bound, 4_000, owners.settle):
            if found.encode() != blocked:
                owners.put(int(found.key[-5:]), ())
        owners.commit()
    assert blocked == owners.index.lows[AHEAD]
    assert 0 == owners.stored.waded


def test_a_timer_put_behind_the_scan_is_found_without_wading() -> None:
    owners = armed(1_000)
    fire(owners, AHEAD, 999, 4_000)
    owners.commit()
    owners.put(3, (timer(AHEAD, 3, 3),))
    owners.commit()
    assert timer(AHEAD, 3, 3) == owners.index.lows[AHEAD]
    assert 1 == fire(owners, AHEAD, 999, 4_000)
    assert 0 == owners.stored.waded


def test_after_a_restart_the_scan_begins_at_the_low_water() -> None:
    owners = armed(1_000)
    fire(owners, AHEAD, 899, 4_000)
    owners.commit()
    owners.reopen()
    assert 900 == owners.index.next_due(AHEAD, None)
    assert 0 == owners.stored.waded


def test_cancelled_timers_far_ahead_are_waded_through_once() -> None:
    owners = armed(1_000)
    for owner in range(990):
        owners.put(owner, ())
        if owner % 10 == 9:
            owners.commit()
            assert owner + 1 == owners.index.next_due(AHEAD, None)
    assert owners.stored.waded <= 990


def test_more_timers_behind_the_scan_than_are_remembered_are_all_found_again() -> None:
    count = KEPT_MAX + 500
    owners = armed(count)
    assert count == sum(1 for _ in owners.index.due(AHEAD, count, 10 * count, owners.settle))
    owners.commit()
    assert KEPT_MAX == len(owners.index._lanes[AHEAD[0]].frontier.kept)
    assert count == fire(owners, AHEAD, count, 10 * count)


def test_a_pass_that_is_full_says_so_and_the_next_one_goes_on() -> None:
    owners = armed(10)
    first = owners.index.due(AHEAD, 100, 4, owners.settle)
    assert [0, 1, 2, 3] == [found.due_ms for found in first]
    assert first.full
    for owner in range(4):
        owners.put(owner, ())
    second = owners.index.due(AHEAD, 100, 40, owners.settle)
    assert [4, 5, 6, 7, 8, 9] == [found.due_ms for found in second]
    assert not second.full


def test_a_timer_that_was_never_committed_and_left_in_place_is_yielded_by_the_next_pass() -> None:
    owners = Owners()
    owners.put(1, (timer(AHEAD, 5, 1),))
    for _ in range(3):
        assert [5] == [found.due_ms for found in owners.index.due(AHEAD, 10, 10, owners.settle)]


def test_a_second_pass_ends_the_first() -> None:
    owners = armed(4)
    first = owners.index.due(AHEAD, 100, 40, owners.settle)
    next(first)
    owners.index.due(AHEAD, 100, 40, owners.settle)
    assert [] == list(first)


def test_the_ranges_do_not_see_each_other() -> None:
    owners = Owners()
    owners.put(1, (timer(AHEAD, 5, 1),))
    owners.put(2, (timer(EXACT, 3, 2),))
    owners.commit()
    assert [5] == [found.due_ms for found in owners.index.due(AHEAD, 10, 10, owners.settle)]
    assert [3] == [found.due_ms for found in owners.index.due(EXACT, 10, 10, owners.settle)]
    assert (5, 3) == (owners.index.next_due(AHEAD, None), owners.index.next_due(EXACT, None))


def test_what_has_fired_is_covered_by_a_range_tombstone_now_and_then() -> None:
    owners = armed(FIRED_PER_RANGE_DELETE + 1)
    assert FIRED_PER_RANGE_DELETE == fire(owners, AHEAD, FIRED_PER_RANGE_DELETE - 1, 1 << 20)
    owners.settle()
    delta = owners.index.prepare()
    last = timer(AHEAD, FIRED_PER_RANGE_DELETE, FIRED_PER_RANGE_DELETE)
    assert [(first_of(AHEAD), last)] == delta.cover


def test_a_range_without_timers_has_its_low_water_at_its_end() -> None:
    owners = armed(3)
    fire(owners, AHEAD, 10, 10)
    owners.commit()
    assert end_of(AHEAD) == owners.index.lows[AHEAD]
    owners.put(1, (timer(AHEAD, 1, 1),))
    owners.commit()
    assert timer(AHEAD, 1, 1) == owners.index.lows[AHEAD]
