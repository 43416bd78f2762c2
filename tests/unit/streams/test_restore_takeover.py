"""A restore within a takeover: fencing, standbys, firing before the rings are full, and how far it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.owners import (
    DAY_MS,
    RUNS_TOPIC,
    A,
    Owner,
    Shelf,
    assert_equal_stores,
    contents,
    log_of,
    owner_of_an_empty_log,
    restore_of,
    restored,
)
from tests.unit.streams.rows import job_row, run_event
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import TopicSpec
from tocsin.schemas.codec import encode, encode_row
from tocsin.schemas.job import JobKey
from tocsin.streams.restore import RestoreFailed
from tocsin.streams.timers import AHEAD


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(clock: FakeClock) -> MemoryLog:
    return log_of(clock)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    made.close()


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
