"""A store that is rebuilt or caught up from the log is byte for byte the store that was lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.rows import Busy, definition_row, environment, job_row, run_event
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, TopicPartition, TopicSpec
from tocsin.schemas.codec import encode, encode_row
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import Journal
from tocsin.streams import replay
from tocsin.streams.families import (
    COLUMN_FAMILIES,
    JOURNAL_KEY,
    META,
    STATE,
    UnknownFamily,
    changelog_key,
    state_key,
)
from tocsin.streams.meta import Meta
from tocsin.streams.restore import Restore, RestoreFailed, stale
from tocsin.streams.store import PartitionStore, Position, UnknownLayout, View
from tocsin.streams.timers import AHEAD

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
STATE_TOPIC = TopicPartition("state", 0)
RUNS_TOPIC = TopicPartition("runs", 0)
A = JobKey("shop/a")


class Owner:
    """What owns the partition: a view, and a producer for what it changes, as the loop commits it."""

    def __init__(self, log: EventLog, store: PartitionStore, *, seed: int = 0, tick: int = 0) -> None:
        self.store = store
        self.view: View = store.view(check=True)
        self.busy = Busy(seed)
        self.tick = tick
        self._producer = log.transactional_producer("owner")
        self._producer.init()

    def commit(self, events: tuple[object, ...] = (), *, abort: bool = False) -> None:
        producer, view = self._producer, self.view
        self.tick += 1
        journal = encode(Journal(tick=self.tick, now_ms=0, transactional_id="owner"))
        producer.begin()
        for key, value in view.changes():
            producer.produce("state", partition=0, key=key, value=value)
        producer.produce("state", partition=0, key=JOURNAL_KEY, value=journal)
        for event in events:
            producer.produce("runs", partition=0, key=event.run_id.encode(), value=encode(event))  # type: ignore[attr-defined, arg-type]
        if abort:
            producer.abort()
            view.rollback()
            return
        last = producer.commit().last
        offset, time_ms = last[STATE_TOPIC]
        runs = last.get(RUNS_TOPIC)
        view.commit(
            Position(
                journal=journal,
                changelog_offset=offset + 1,
                changelog_time_ms=time_ms,
                runs_offset=-1 if runs is None else runs[0] + 1,
            )
        )

    def work(self, commits: int, clock: FakeClock, *, abort_every: int = 5) -> None:
        for n in range(commits):
            events = self.busy.work(self.view, 30)
            self.commit(tuple(events), abort=n % abort_every == abort_every - 1)
            clock.advance(1_000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(clock: FakeClock) -> MemoryLog:
    made = MemoryLog(clock)
    made.create_topics(
        [
            TopicSpec(name="state", partitions=1, cleanup="compact", delete_retention_ms=RETENTION_MS),
            TopicSpec(name="runs", partitions=1, cleanup="compact,delete", retention_ms=30 * DAY_MS),
        ]
    )
    return made


class Shelf:
    """Stores by name; closed at the end of the test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._environment = environment()
        self._open: list[PartitionStore] = []

    def __call__(self, name: str) -> PartitionStore:
        store = PartitionStore.open(self._path / name, self._environment)
        self._open.append(store)
        return store

    def close(self) -> None:
        for store in self._open:
            store.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    made.close()


def restore_of(store: PartitionStore, log: EventLog, clock: FakeClock) -> Restore:
    return Restore(
        store,
        log,
        clock,
        partition=0,
        state_topic="state",
        runs_topic="runs",
        delete_retention_ms=RETENTION_MS,
    )


def restored(store: PartitionStore, log: EventLog, clock: FakeClock, max_records: int = 2_000) -> Restore:
    restore = restore_of(store, log, clock)
    for _ in range(100_000):
        if restore.done:
            restore.close()
            return restore
        restore.step(max_records, 0.0)
    raise AssertionError(f"not done: {restore.progress()}")


def owner_of_an_empty_log(shelf: Shelf, log: EventLog, clock: FakeClock, seed: int = 0) -> Owner:
    store = shelf("original")
    restored(store, log, clock)
    return Owner(log, store, seed=seed)


def contents(store: PartitionStore) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: list(store.database.items(name)) for name in COLUMN_FAMILIES if name != META}


def assert_equal_stores(expected: PartitionStore, found: PartitionStore) -> None:
    assert contents(expected) == contents(found)
    assert expected.meta.counts == found.meta.counts
    assert expected.meta.journal == found.meta.journal
    assert [] == expected.verify()
    assert [] == found.verify()


# --- from nothing


@pytest.mark.parametrize("seed", range(6))
def test_a_store_restored_from_nothing_is_the_store_that_was_lost(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, seed: int
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock, seed)
    owner.work(12, clock)
    if seed % 2:
        log.run_maintenance_once()  # compacted: a tombstone or a put may be all that is left of a key
    owner.work(6, clock)
    assert all(contents(owner.store)[name] for name in COLUMN_FAMILIES if name not in (META, "index"))
    fresh = shelf("fresh")
    restored(fresh, log, clock, max_records=(7, 100, 2_000)[seed % 3])
    assert_equal_stores(owner.store, fresh)


def test_an_empty_log_makes_an_empty_store_that_is_ready(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    store = shelf("fresh")
    restored(store, log, clock)
    assert store.restored
    assert None is store.view().job(A)
    assert [] == store.verify()


def test_records_of_an_aborted_transaction_are_not_restored(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.view.put_job(A, job_row(seq=1))
    owner.commit()
    owner.view.put_job(A, job_row(seq=2))
    owner.commit(abort=True)
    fresh = shelf("fresh")
    restored(fresh, log, clock)
    assert job_row(seq=1) == fresh.view().job(A)


def test_definitions_larger_than_a_batch_are_restored(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH_BYTES_MAX", 10_000)
    owner = owner_of_an_empty_log(shelf, log, clock)
    for n in range(30):
        key = JobKey(f"ns/large-{n}")
        owner.view.put_definition(key, definition_row(key, url="https://example.com/" + "x" * 3_000))
        owner.view.put_job(key, job_row(broken="y" * 3_000))
    owner.commit()
    fresh = shelf("fresh")
    restored(fresh, log, clock)
    assert_equal_stores(owner.store, fresh)


# --- from where it was


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_was_away_is_caught_up(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, seed: int
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock, seed)
    owner.work(8, clock)
    old = shelf("old")
    restored(old, log, clock)
    old.close()
    owner.work(8, clock)
    log.run_maintenance_once()
    owner.work(3, clock)
    old = shelf("old")
    restore = restored(old, log, clock, max_records=(7, 100, 2_000)[seed % 3])
    assert "" == restore.wiped
    assert_equal_stores(owner.store, old)


def test_definitions_larger_than_a_batch_are_caught_up(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH_BYTES_MAX", 10_000)
    old = shelf("old")
    restored(old, log, clock)
    owner = owner_of_an_empty_log(shelf, log, clock)
    for n in range(30):
        owner.view.put_job(JobKey(f"ns/large-{n}"), job_row(broken="y" * 3_000))
    owner.commit()
    restored(old, log, clock)
    assert_equal_stores(owner.store, old)


def test_a_commit_that_the_store_missed_is_caught_up(shelf: Shelf, log: MemoryLog, clock: FakeClock) -> None:
    """The log committed, and the process died before it wrote its own store."""
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(4, clock)
    behind = shelf("behind")
    restored(behind, log, clock)
    owner.work(1, clock)
    restored(behind, log, clock)
    assert_equal_stores(owner.store, behind)


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 40, 60, 80])
def test_a_restore_that_was_broken_off_goes_on_where_it_was(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, steps: int
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(8, clock)
    store = shelf("partial")
    restore = restore_of(store, log, clock)
    for _ in range(steps):
        restore.step(5, 0.0)
    reached = store.meta.changelog_offset
    store.close()
    owner.work(3, clock)
    store = shelf("partial")
    assert reached == store.meta.changelog_offset
    again = restored(store, log, clock, max_records=50)
    assert "" == again.wiped
    assert_equal_stores(owner.store, store)


def test_a_restore_that_was_broken_off_goes_on_though_the_records_it_has_read_are_old(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.view.put_job(A, job_row())
    owner.commit()
    clock.advance(40 * DAY_MS)
    owner.work(4, clock)
    store = shelf("partial")
    restore_of(store, log, clock).step(1, 0.0)
    assert 0 < store.meta.changelog_offset
    store.close()
    store = shelf("partial")
    assert "" == restored(store, log, clock).wiped
    assert_equal_stores(owner.store, store)


# --- what is not trusted


def test_a_store_that_may_have_missed_a_deletion_is_wiped(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    """The job was deleted, and its tombstone compacted away, while this store was not looking: it must not fire."""
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.view.put_job(A, job_row())
    owner.commit()
    away = shelf("away")
    restored(away, log, clock)
    away.close()
    owner.view.delete_job(A)
    owner.commit()
    log.run_maintenance_once()
    clock.advance(RETENTION_MS + 1)
    log.run_maintenance_once()
    owner.view.put_job(JobKey("shop/other"), job_row())
    owner.commit()
    assert not any(stored.record.key == b"Sshop/a" for stored in log.records("state", 0))

    away = shelf("away")
    restore = restored(away, log, clock)
    assert "its newest record is 168 h old" in restore.wiped
    assert_equal_stores(owner.store, away)
    assert None is away.view().job(A)


def test_a_store_of_another_log_is_wiped(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, tmp_path: Path
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(5, clock)
    owner.store.close()
    other = MemoryLog(clock)
    other.create_topics(log.broker.specs.values())
    store = shelf("original")
    restore = restored(store, other, clock)
    assert "the topic was made anew" in restore.wiped
    assert {name: [] for name in contents(store)} == contents(store)


def test_a_store_of_another_log_is_wiped_also_if_that_log_has_grown_past_its_offset(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock, seed=1)
    owner.work(5, clock)
    old = shelf("old")
    restored(old, log, clock)
    owner.store.close()
    other = MemoryLog(clock)
    other.create_topics(log.broker.specs.values())
    store = shelf("another")
    restored(store, other, clock)
    second = Owner(other, store, seed=2)
    second.tick = 0
    while other.end_offset(STATE_TOPIC, "uncommitted") < 2 * old.meta.changelog_offset:
        events = second.busy.work(second.view, 300)
        second.commit(tuple(events))
    assert second.tick < 5
    restore = restored(old, other, clock)
    assert "ticks begin anew" in restore.wiped
    assert_equal_stores(second.store, old)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (Meta(phase="replaying"), ""),
        (Meta(phase="ready", changelog_offset=100, changelog_time_ms=DAY_MS), ""),
        (Meta(phase="ready", changelog_offset=50, changelog_time_ms=DAY_MS), ""),
        (Meta(phase="ready", changelog_offset=101, changelog_time_ms=DAY_MS), "the topic was made anew"),
        (Meta(phase="ready", changelog_offset=49, changelog_time_ms=DAY_MS), "deletions are missed"),
        (Meta(phase="ready", changelog_offset=70, changelog_time_ms=DAY_MS - 1), "some may be missed"),
        (Meta(phase="replaying", changelog_offset=70, changelog_time_ms=DAY_MS - 1), "some may be missed"),
        (Meta(phase="ready", changelog_offset=70, changelog_time_ms=0), ""),
    ],
)
def test_what_makes_a_store_stale(meta: Meta, reason: str) -> None:
    found = stale(
        meta, begin=50, end=100, now_ms=DAY_MS + RETENTION_MS // 2, delete_retention_ms=RETENTION_MS
    )
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_log_that_is_cut_off_before_what_is_to_be_read_next_is_read_from_its_new_beginning(
    shelf: Shelf, clock: FakeClock
) -> None:
    log = MemoryLog(clock)
    log.create_topics(
        [
            TopicSpec(name="state", partitions=1, cleanup="compact,delete", retention_ms=DAY_MS),
            TopicSpec(name="runs", partitions=1),
        ]
    )
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(5, clock)
    store = shelf("slow")
    restore = restore_of(store, log, clock)
    restore.step(3, 0.0)
    clock.advance(DAY_MS + 1)
    log.run_maintenance_once()
    owner.view.put_job(A, job_row(seq=3))
    owner.commit()
    while not restore.done:
        restore.step(100, 0.0)
    assert "what was to be read next is gone" in restore.wiped
    assert [A] == [key for key, _ in store.reader().jobs_from()]


def test_a_changelog_row_of_an_unknown_family_stops_the_restore(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    producer = log.producer()
    producer.produce("state", key=b"Zkey", value=b"row", partition=0)
    producer.flush(1.0)
    with pytest.raises(UnknownFamily, match="upgrade this process"):
        restored(shelf("fresh"), log, clock)


def test_a_row_of_an_unknown_layout_stops_the_restore_and_names_the_row(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    producer = log.producer()
    row = b"\x7f" + encode_row(job_row())[1:]
    producer.produce("state", key=changelog_key(STATE, state_key(A)), value=row, partition=0)
    producer.flush(1.0)
    with pytest.raises(UnknownLayout, match=r"state row b'shop/a'.*layout 127"):
        restored(shelf("fresh"), log, clock)


# --- taking over


def test_what_an_open_transaction_holds_back_is_awaited_until_it_is_fenced(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.view.put_job(A, job_row(seq=1))
    owner.commit()
    dead = log.transactional_producer("dead")
    dead.init()
    dead.begin()
    dead.produce("state", partition=0, key=b"Sshop/a", value=encode_row(job_row(seq=66)))
    owner.view.put_job(A, job_row(seq=2))
    owner.commit()
    owner.store.close()

    store = shelf("next")
    restore = restore_of(store, log, clock)
    for _ in range(20):
        restore.step(100, 0.0)
    assert not restore.ready
    log.transactional_producer("dead").init()
    restore.retarget()
    while not restore.done:
        restore.step(100, 0.0)
    assert job_row(seq=2) == store.view().job(A)


def test_a_standby_follows_and_takes_over(shelf: Shelf, log: MemoryLog, clock: FakeClock) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    standby = shelf("standby")
    follower = restore_of(standby, log, clock)
    for _ in range(6):
        owner.work(3, clock)
        for _ in range(40):
            follower.step(20, 0.0)
    assert_equal_stores(owner.store, standby)
    owner.work(4, clock)
    owner_contents = contents(owner.store)
    owner.store.close()
    follower.retarget()
    assert not follower.ready
    assert follower.behind > 0
    while not follower.done:
        follower.step(2, 0.0)
    assert 0 == follower.behind
    assert owner_contents == contents(standby)
    successor = Owner(log, standby, seed=9, tick=owner.tick)
    successor.work(4, clock)
    follower.step(20, 0.0)
    fresh = shelf("fresh")
    restored(fresh, log, clock)
    assert_equal_stores(successor.store, fresh)


def test_firing_may_begin_before_the_rings_are_full_again(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(20, clock)
    owner.store.close()
    store = shelf("fresh")
    restore = restore_of(store, log, clock)
    while not restore.ready:
        restore.step(10, 0.0)
    assert "history" == restore.progress().phase
    early = store.meta.runs_offset
    successor = Owner(log, store, seed=3, tick=owner.tick)
    for _ in range(3):
        successor.work(1, clock)
        restore.step(2, 0.0)
        assert early <= store.meta.runs_offset < log.end_offset(RUNS_TOPIC, "uncommitted")
    while not restore.done:
        restore.step(10, 0.0)
        successor.work(1, clock)
    successor.work(3, clock)
    assert "done" == restore.progress().phase
    assert log.end_offset(RUNS_TOPIC, "uncommitted") - 1 <= store.meta.runs_offset
    other = shelf("other")
    restored(other, log, clock)
    assert_equal_stores(store, other)


def test_rings_that_were_not_full_when_the_process_died_are_filled_by_the_next(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(20, clock)
    owner.store.close()
    store = shelf("fresh")
    restore = restore_of(store, log, clock)
    while not restore.ready:
        restore.step(10, 0.0)
    successor = Owner(log, store, seed=3, tick=owner.tick)
    successor.work(3, clock)
    store.close()
    store = shelf("fresh")
    restored(store, log, clock)
    other = shelf("other")
    restored(other, log, clock)
    assert_equal_stores(store, other)


@pytest.mark.parametrize("max_records", [1, 2_000])
def test_an_older_event_does_not_take_the_slot_of_a_newer_one(
    shelf: Shelf, log: MemoryLog, clock: FakeClock, max_records: int
) -> None:
    """A long run that ends after its slot went to a later run is written late, and must not come back."""
    producer = log.producer()
    for number, text in ((4, "early"), (24, "later"), (4, "the end of the early one"), (5, "next")):
        event = run_event(A, number, reason=text)
        producer.produce("runs", key=event.run_id.encode(), value=encode(event), partition=0)
    producer.flush(1.0)
    store = shelf("fresh")
    restored(store, log, clock, max_records)
    assert ["later", "next"] == [event.reason for event in store.reader().history("history", A)]


def test_an_event_that_cannot_be_read_is_counted_and_left_out(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    producer = log.producer()
    producer.produce("runs", key=b"shop/a@1", value=b"\xc3\x01 of a newer version", partition=0)
    event = run_event(A, 0)
    producer.produce("runs", key=event.run_id.encode(), value=encode(event), partition=0)
    producer.produce("runs", key=b"shop/a#1", value=b"a JobEvent is not even decoded", partition=0)
    producer.produce("runs", key=b"shop/a@1", value=None, partition=0)
    producer.flush(1.0)
    store = shelf("fresh")
    restore = restored(store, log, clock)
    assert 1 == restore.unreadable_events
    assert [event] == store.reader().history("history", A)


# --- how far it is


def test_progress_says_how_far_and_how_long(shelf: Shelf, log: MemoryLog, clock: FakeClock) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    for n in range(99):
        owner.view.put_job(JobKey(f"ns/job-{n}"), job_row())
    owner.commit()
    store = shelf("fresh")
    restore = restore_of(store, log, clock)
    first = restore.step(20, 0.0)
    assert ("changelog", 20, 101) == (first.phase, first.done, first.total)
    assert None is first.eta_s
    clock.advance(2_000)
    second = restore.step(20, 0.0)
    assert (40, 10.0) == (second.done, second.per_second)
    assert 6.1 == pytest.approx(second.eta_s)
    phases = [second.phase]
    while not restore.done:
        phase = restore.step(20, 0.0).phase
        if phase != phases[-1]:
            phases.append(phase)
    assert ["changelog", "timers", "done"] == phases
    restore.close()


def test_a_log_that_is_cut_off_again_and_again_is_given_up(shelf: Shelf, clock: FakeClock) -> None:
    log = MemoryLog(clock)
    log.create_topics(
        [
            TopicSpec(name="state", partitions=1, cleanup="delete", retention_ms=DAY_MS),
            TopicSpec(name="runs", partitions=1),
        ]
    )
    producer = log.producer()
    restore = restore_of(shelf("slow"), log, clock)

    def cut_off() -> None:
        for n in range(10):
            producer.produce("state", key=b"Sns/job-%d" % n, value=encode_row(job_row()), partition=0)
        producer.flush(1.0)
        restore.step(1, 0.0)
        clock.advance(DAY_MS + 1)
        log.run_maintenance_once()

    def cut_off_for_ever() -> None:
        for _ in range(100):
            cut_off()

    with pytest.raises(RestoreFailed, match=r"state\[0\]: begun 4 times"):
        cut_off_for_ever()


def test_restoring_is_told_from_ready(shelf: Shelf, log: MemoryLog, clock: FakeClock) -> None:
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(3, clock)
    store = shelf("fresh")
    restore = restore_of(store, log, clock)
    restore.step(1, 0.0)
    assert not store.restored
    with pytest.raises(AssertionError, match="step its Restore"):
        store.view()
    while not restore.ready:
        restore.step(100, 0.0)
    view = store.view()
    assert list(owner.view.due(AHEAD, 1 << 60, 1_000)) == list(view.due(AHEAD, 1 << 60, 1_000))
