"""A store that is rebuilt or caught up from the log is byte for byte the store that was lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.owners import (
    DAY_MS,
    RETENTION_MS,
    STATE_TOPIC,
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
from tests.unit.streams.rows import definition_row, job_row
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import TopicSpec
from tocsin.schemas.codec import encode_row
from tocsin.schemas.job import JobKey
from tocsin.streams import replay
from tocsin.streams.families import (
    COLUMN_FAMILIES,
    META,
    STATE,
    UnknownFamily,
    changelog_key,
    state_key,
)
from tocsin.streams.meta import Meta
from tocsin.streams.restore import RestoreFailed, stale
from tocsin.streams.store import UnknownLayout


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
    old = shelf("old")
    restored(old, log, clock)
    other = MemoryLog(clock)
    other.create_topics(log.broker.specs.values())
    another = shelf("another")
    restored(another, other, clock)
    second = Owner(other, another, seed=2)
    second.view.put_job(A, job_row(seq=7))
    second.commit()
    restore = restored(old, other, clock)
    assert "the topic was made anew" in restore.wiped
    assert_equal_stores(second.store, old)


def test_a_store_is_not_wiped_if_there_is_nothing_to_rebuild_it_from(
    shelf: Shelf, log: MemoryLog, clock: FakeClock
) -> None:
    """The log is gone, and an empty one has taken its place: the store is the last copy of the jobs."""
    owner = owner_of_an_empty_log(shelf, log, clock)
    owner.work(5, clock)
    owner.store.close()
    other = MemoryLog(clock)
    other.create_topics(log.broker.specs.values())
    store = shelf("original")
    before = contents(store)
    for _ in range(2):
        with pytest.raises(
            RestoreFailed, match=r"state\[0\] is empty.*Restore the log.*remove the state directory"
        ):
            restored(store, other, clock)
    assert before == contents(store)
    assert before["state"]


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
