"""The view over a real store: what it hands out, what it tells the changelog, what it leaves on disk."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.rows import (
    T0,
    Busy,
    commit,
    definition_row,
    empty_store,
    environment,
    job_row,
    run_event,
    run_row,
)
from tocsin.schemas.codec import decode_row, encode_row
from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, JobRow, PendingRow
from tocsin.streams import timer_index
from tocsin.streams.families import STATE, changelog_key, run_key, state_key
from tocsin.streams.meta import Meta, UnknownStoreLayout
from tocsin.streams.rocks import translated
from tocsin.streams.store import (
    PartitionStore,
    Position,
    RowChangedInPlace,
    StoreFull,
    View,
)
from tocsin.streams.timers import AHEAD, EXACT, Kind

A = JobKey("shop/a")
B = JobKey("shop/b")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    opened = empty_store(tmp_path / "p0")
    yield opened
    opened.close()


@pytest.fixture
def view(store: PartitionStore) -> View:
    return store.view(check=True)


def again(store: PartitionStore) -> PartitionStore:
    """The same directory, opened anew, as after a restart."""
    store.close()
    return PartitionStore.open(store.path, environment())


# --- rows


def test_a_row_that_was_put_is_seen_before_and_after_the_commit_and_after_a_restart(
    store: PartitionStore, view: View
) -> None:
    view.put_job(A, job_row(seq=4))
    assert job_row(seq=4) == view.job(A)
    commit(view)
    assert job_row(seq=4) == view.job(A)
    with_restart = again(store)
    assert job_row(seq=4) == with_restart.view().job(A)
    with_restart.close()


def test_every_family_keeps_its_rows_apart(view: View) -> None:
    view.put_job(A, job_row())
    view.put_definition(A, definition_row(A, 1))
    view.put_run(run_row(A, 1))
    view.put_dead(DeadRow(run=run_row(A, 1), died_ms=1, until_ms=T0))
    view.put_pending(A, "1", PendingRow(kind="trigger", until_ms=T0))
    view.put_pending(A, "1", PendingRow(kind="parked", until_ms=T0 + 1))
    commit(view)
    assert job_row() == view.job(A)
    assert definition_row(A, 1) == view.definition(A, 1)
    assert run_row(A, 1) == view.run(A, 1)
    assert DeadRow(run=run_row(A, 1), died_ms=1, until_ms=T0) == view.dead(A, 1)
    assert PendingRow(kind="trigger", until_ms=T0) == view.pending("trigger", A, "1")
    assert PendingRow(kind="parked", until_ms=T0 + 1) == view.pending("parked", A, "1")
    view.delete_definition(A, 1)
    view.delete_run(A, 1)
    view.delete_dead(A, 1)
    view.delete_pending("trigger", A, "1")
    commit(view)
    assert (None, None, None, None) == (
        view.definition(A, 1),
        view.run(A, 1),
        view.dead(A, 1),
        view.pending("trigger", A, "1"),
    )
    assert PendingRow(kind="parked", until_ms=T0 + 1) == view.pending("parked", A, "1")
    assert job_row() == view.job(A)


def test_a_rollback_drops_everything_since_the_last_commit(store: PartitionStore, view: View) -> None:
    view.put_job(A, job_row(seq=1))
    commit(view)
    view.put_job(A, job_row(T0 + 5, seq=2))
    view.put_job(B, job_row(seq=3))
    view.delete_job(A)
    view.rollback()
    assert job_row(seq=1) == view.job(A)
    assert None is view.job(B)
    assert 0 == view.changed
    assert [] == commit(view)
    assert [T0] == [timer.due_ms for timer in view.due(AHEAD, T0 + 100, 10)]
    assert [] == store.verify()


def test_a_deleted_row_is_gone_in_the_view_at_once(view: View) -> None:
    view.put_job(A, job_row())
    commit(view)
    view.delete_job(A)
    assert None is view.job(A)
    commit(view)
    assert None is view.job(A)


def test_rows_beyond_the_budget_of_the_cache_are_read_from_disk_again(tmp_path: Path) -> None:
    store = empty_store(tmp_path / "p0")
    view = store.view()
    keys = [JobKey(f"ns/job-{n}") for n in range(3_000)]  # 4.5 MB of decoded rows, in a cache of 1 MB
    for n, key in enumerate(keys):
        view.put_job(key, job_row(seq=n))
    commit(view)
    for n, key in enumerate(keys):
        row = view.job(key)
        assert row is not None
        assert n == row.seq
    assert sum(len(table.cache) for table in view._tables) < 1_000
    store.close()


# --- a row must not be changed in place


def test_a_row_that_was_changed_in_place_is_found_at_the_commit(view: View) -> None:
    view.put_job(A, job_row())
    commit(view)
    row = view.job(A)
    assert row is not None
    row.seq = 99
    view.put_job(B, job_row())
    with pytest.raises(RowChangedInPlace, match="without being put"):
        commit(view)


def test_a_row_that_was_changed_after_it_was_put_is_found_at_the_commit(view: View) -> None:
    row = job_row()
    view.put_job(A, row)
    row.open.append(5)
    with pytest.raises(RowChangedInPlace):
        commit(view)


def test_putting_the_very_row_that_was_handed_out_is_refused(view: View) -> None:
    view.put_job(A, job_row())
    commit(view)
    row = view.job(A)
    assert row is not None
    with pytest.raises(RowChangedInPlace, match="put a copy"):
        view.put_job(A, row)


# --- what the changelog is told


def test_the_changelog_is_told_each_changed_row_once_with_the_bytes_of_the_store(
    store: PartitionStore, view: View
) -> None:
    view.put_job(A, job_row(seq=1))
    view.put_run(run_row(A, 1))
    view.put_job(A, job_row(seq=2))
    changes = commit(view)
    assert [
        (changelog_key(STATE, state_key(A)), encode_row(job_row(seq=2))),
        (b"R" + run_key(A, 1), encode_row(run_row(A, 1))),
    ] == changes
    assert encode_row(job_row(seq=2)) == store.database.get("state", state_key(A))
    assert [] == commit(view)


def test_a_deletion_is_a_tombstone_but_what_came_and_went_in_between_is_not_mentioned(view: View) -> None:
    view.put_job(A, job_row())
    commit(view)
    view.delete_job(A)
    view.put_run(run_row(A, 1))
    view.delete_run(A, 1)
    view.delete_run(A, 2)
    assert [(b"Sshop/a", None)] == commit(view)


def test_a_row_that_was_put_back_as_it_was_is_not_written(view: View) -> None:
    view.put_job(A, job_row(seq=1))
    commit(view)
    view.put_job(A, job_row(seq=2))
    view.put_job(A, job_row(seq=1))
    assert [] == commit(view)
    assert job_row(seq=1) == view.job(A)


def test_the_same_changes_are_told_in_the_same_order(tmp_path: Path) -> None:
    told = []
    for name in ("one", "other"):
        store = empty_store(tmp_path / name)
        view = store.view()
        Busy(seed=5).work(view, 200)
        told.append(commit(view))
        store.close()
    assert len(told[0]) > 50
    assert told[0] == told[1]


def test_a_commit_of_rows_that_the_changelog_was_not_told_is_refused(view: View) -> None:
    view.put_job(A, job_row(seq=1))
    view.changes()
    view.put_job(A, job_row(seq=2))
    with pytest.raises(AssertionError, match=r"after changes\(\) listed them"):
        view.commit(Position(journal=b"", changelog_offset=1, changelog_time_ms=T0))


# --- timers


def test_a_timer_fires_before_and_after_the_row_was_committed(view: View) -> None:
    view.put_job(A, job_row(T0))
    assert [(A, T0)] == [(t.job_key, t.due_ms) for t in view.due(AHEAD, T0, 10)]
    commit(view)
    assert [(A, T0)] == [(t.job_key, t.due_ms) for t in view.due(AHEAD, T0, 10)]


def test_a_retry_set_while_timers_fire_fires_in_the_same_pass_and_in_order(view: View) -> None:
    view.put_job(A, job_row(T0))
    view.put_job(B, job_row(T0 + 9))
    commit(view)
    seen = []
    for timer in view.due(AHEAD, T0 + 20, 10):
        seen.append((timer.kind, timer.job_key, timer.due_ms))
        if timer.kind is Kind.OCCURRENCE and timer.job_key == A:
            view.put_job(A, job_row(T0 + 1_000))
            view.put_run(run_row(A, 1, attempt_due_ms=T0 + 3))
    assert [
        (Kind.OCCURRENCE, A, T0),
        (Kind.RETRY, A, T0 + 3),
        (Kind.OCCURRENCE, B, T0 + 9),
    ] == seen


def test_a_timer_whose_row_is_changed_before_its_turn_does_not_fire(view: View) -> None:
    view.put_job(A, job_row(T0))
    view.put_job(B, job_row(T0 + 1))
    commit(view)
    seen = []
    for timer in view.due(AHEAD, T0 + 20, 10):
        seen.append(timer.job_key)
        view.put_job(B, job_row(armed="none"))
    assert [A] == seen


def test_the_wait_of_the_loop_ends_at_the_next_timer_whether_committed_or_not(view: View) -> None:
    assert None is view.next_due(EXACT)
    view.put_job(A, job_row(T0 + 50, armed="exact"))
    assert T0 + 50 == view.next_due(EXACT)
    commit(view)
    assert T0 + 50 == view.next_due(EXACT)
    view.put_job(B, job_row(T0 + 20, armed="exact"))
    assert T0 + 20 == view.next_due(EXACT)
    assert T0 + 50 == view.next_due(EXACT, after_ms=T0 + 20)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_done_the_timers_are_those_of_the_rows(tmp_path: Path, seed: int) -> None:
    store = empty_store(tmp_path / "p0")
    view = store.view(check=True)
    busy = Busy(seed)
    for n in range(12):
        busy.work(view, 40)
        if n % 4 == 3:
            view.rollback()
        else:
            commit(view, n)
        assert [] == store.verify()
        if n % 5 == 4:
            store = again(store)
            view = store.view(check=True)
    assert store.meta.counts["state"] > 0
    store.close()


def test_fired_timers_covered_by_a_range_tombstone_do_not_take_others_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_index, "FIRED_PER_RANGE_DELETE", 20)
    store = empty_store(tmp_path / "p0")
    view = store.view(check=True)
    busy = Busy(3)
    for n in range(25):
        busy.work(view, 40)
        commit(view, n)
    assert [] == store.verify()
    assert [] == again(store).verify()


def test_a_store_whose_low_water_is_too_high_is_told_on(store: PartitionStore, view: View) -> None:
    view.put_job(A, job_row(T0))
    commit(view)
    store.meta = replace(store.meta, lows={AHEAD: b"b", EXACT: b"f"})
    assert ["lies below the low-water"] == [
        problem[problem.index("lies") : problem.index("low-water") + 9] for problem in store.verify()
    ]


# --- history


def test_a_ring_keeps_the_newest_events_newest_first(store: PartitionStore, view: View) -> None:
    for number in range(25):
        view.history_put("history", A, number % 20, run_event(A, number))
        commit(view)
    view.history_put("failures", A, 0, run_event(A, 3, failure_no=0))
    view.history_put("history", B, 0, run_event(B, 0))
    commit(view)
    reader = store.reader()
    assert list(range(24, 4, -1)) == [event.history_no for event in reader.history("history", A)]
    assert [run_event(A, 3, failure_no=0)] == reader.history("failures", A)
    assert [run_event(B, 0)] == reader.history("history", B)
    assert [] == reader.history("failures", B)


# --- small things


def test_the_meta_row_is_read_back_as_it_was_written() -> None:
    meta = Meta(
        phase="ready",
        journal=b"\0journal",
        changelog_offset=5,
        changelog_time_ms=T0,
        runs_offset=-1,
        lows={AHEAD: b"a" * 300, EXACT: b"e"},
        counts={"state": 1, "runs": 2, "pending": 3, "dead": 4},
    )
    assert meta == Meta.decode(meta.encode())
    with pytest.raises(UnknownStoreLayout):
        Meta.decode(b"")


@pytest.mark.parametrize(
    "text",
    [
        "IO error: No space left on device: While appending to file: p0/000012.log: No space left on device",
        "IO error: While open a file for appending: p0/000012.log: Disk quota exceeded",
    ],
)
def test_a_refusal_for_lack_of_space_says_so(text: str) -> None:
    assert StoreFull is type(translated(Exception(text), Path("p0")))


def test_rows_are_decoded_to_what_was_encoded() -> None:
    assert job_row(open=[1, 2]) == decode_row(JobRow, encode_row(job_row(open=[1, 2])))
