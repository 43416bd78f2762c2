"""The view over a real store: what it hands out, what it tells the changelog, what it leaves on disk."""

import subprocess
import sys
import textwrap
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
from tocsin.streams.families import META, STATE, changelog_key, run_key, state_key
from tocsin.streams.meta import META_KEY, Meta, UnknownStoreLayout
from tocsin.streams.rocks import Database, translated
from tocsin.streams.store import (
    PartitionStore,
    Position,
    RowChangedInPlace,
    StoreClosed,
    StoreCorrupt,
    StoreEnvironment,
    StoreFull,
    StoreLocked,
    UnknownLayout,
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


# --- the directory


def test_a_second_store_on_the_same_directory_is_refused(store: PartitionStore) -> None:
    with pytest.raises(StoreLocked, match="another process, or twice"):
        PartitionStore.open(store.path, environment())
    with pytest.raises(StoreLocked):
        PartitionStore.wipe(store.path)


def test_another_process_may_not_open_or_wipe_a_store_that_is_open(store: PartitionStore) -> None:
    code = textwrap.dedent(
        f"""
        from pathlib import Path
        from tocsin.streams.store import PartitionStore, StoreEnvironment, StoreLocked
        for act in (lambda p: PartitionStore.open(p, StoreEnvironment()), PartitionStore.wipe):
            try:
                act(Path({str(store.path)!r}))
            except StoreLocked:
                print("locked")
        """
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert ["locked", "locked"] == done.stdout.split()
    assert [] == store.verify()


def test_closing_releases_the_directory_also_while_a_pass_and_a_scan_are_going_on(
    store: PartitionStore, view: View
) -> None:
    for n in range(600):
        view.put_job(JobKey(f"ns/job-{n:04}"), job_row(T0 + n))
    commit(view)
    running = view.due(AHEAD, T0 + 600, 600)
    next(running)
    rows = store.reader().jobs_from()
    next(rows)
    store.close()
    store.close()
    reopened = PartitionStore.open(store.path, environment())
    assert [] == list(running)
    with pytest.raises(StoreClosed):
        list(rows)
    reopened.close()


def test_a_closed_store_answers_nothing(store: PartitionStore, view: View) -> None:
    view.put_job(A, job_row())
    commit(view)
    reader = store.reader()
    store.close()
    for question in (
        lambda: view.job(A),
        lambda: view.put_job(A, job_row()),
        lambda: view.due(AHEAD, T0, 1),
        lambda: view.commit(Position(journal=b"", changelog_offset=1, changelog_time_ms=T0)),
        lambda: reader.job(A),
        store.verify,
        store.view,
    ):
        with pytest.raises(StoreClosed):
            question()


def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from tests.unit.streams.rows import Busy, commit, empty_store
        store = empty_store(Path({str(tmp_path / "p0")!r}))
        view = store.view()
        busy = Busy(1)
        for n in range(20):
            busy.work(view, 50)
            commit(view, n)
        busy.work(view, 50)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False)
    assert -9 == done.returncode, done.stderr
    store = PartitionStore.open(tmp_path / "p0", environment())
    assert store.restored
    assert 19 == store.meta.changelog_offset
    assert store.meta.counts["state"] > 0
    assert [] == store.verify()
    store.close()


def test_a_full_disk_refuses_the_batch_and_keeps_what_was_there(tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import resource, signal
        from pathlib import Path
        from tests.unit.streams.rows import Busy, commit, empty_store, job_row
        from tocsin.streams.store import StoreFull
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = empty_store(Path({str(tmp_path / "p0")!r}))
        view = store.view()
        view.put_job("ns/first", job_row())
        commit(view, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for n in range(2_000):
            view.put_job(f"ns/job-{{n}}", job_row(broken="x" * 1_000))
        try:
            commit(view, 2)
        except StoreFull as error:
            print("full")
        store.close()
        """
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert "full\n" == done.stdout, done.stderr
    store = PartitionStore.open(tmp_path / "p0", environment())
    assert 1 == store.meta.changelog_offset
    assert ["ns/first"] == [key for key, _ in store.reader().jobs_from()]
    assert [] == store.verify()
    store.close()


def test_a_store_of_a_newer_layout_is_refused_and_left_as_it_is(store: PartitionStore) -> None:
    database = store.database
    newer = b"\x02" + store.meta.encode()[1:]
    database._families[META].put(META_KEY, newer)
    with pytest.raises(UnknownLayout, match="layout 2 is unknown; this version knows layout 1"):
        again(store)
    left = Database(store.path, environment())
    assert newer == left.get(META, META_KEY)
    left.close()


def test_a_store_with_families_of_a_newer_version_is_refused(store: PartitionStore) -> None:
    store.database._db.create_column_family("novel", environment().options("novel"))
    with pytest.raises(UnknownLayout, match="novel"):
        again(store)


def test_a_damaged_store_is_refused_and_can_be_wiped(store: PartitionStore) -> None:
    store.close()
    (manifest,) = store.path.glob("MANIFEST-*")
    with manifest.open("r+b") as file:
        file.truncate(3)
    with pytest.raises(StoreCorrupt, match="rebuilt from the changelog"):
        PartitionStore.open(store.path, environment())
    PartitionStore.wipe(store.path)
    fresh = PartitionStore.open(store.path, environment())
    assert not fresh.restored
    assert None is fresh.position
    fresh.close()


def test_a_damaged_store_may_be_emptied_when_it_is_opened(store: PartitionStore) -> None:
    store.close()
    (manifest,) = store.path.glob("MANIFEST-*")
    with manifest.open("r+b") as file:
        file.truncate(3)
    fresh = PartitionStore.open(store.path, environment(), wipe_corrupt=True)
    assert "cannot be read" in fresh.wiped
    assert not fresh.restored
    fresh.close()
    again = PartitionStore.open(store.path, environment(), wipe_corrupt=True)
    assert "" == again.wiped
    with pytest.raises(StoreLocked):
        PartitionStore.open(store.path, environment(), wipe_corrupt=True)
    again.close()


def test_a_meta_row_that_was_cut_off_is_refused(store: PartitionStore) -> None:
    store.database._families[META].put(META_KEY, store.meta.encode()[:30])
    with pytest.raises(StoreCorrupt, match="cut off"):
        again(store)


def test_a_scan_over_a_damaged_file_raises_instead_of_ending_early(tmp_path: Path) -> None:
    store = empty_store(tmp_path / "p0")
    view = store.view()
    for n in range(20_000):
        view.put_job(JobKey(f"ns/job-{n:05}"), job_row(T0 + n, last_error=f"{n * 7919 % 99_991}"))
    commit(view)
    store.database.flush(wait=True)
    store.close()
    for file in (tmp_path / "p0").glob("*.sst"):
        size = file.stat().st_size
        if size > 100_000:
            with file.open("r+b") as opened:
                opened.seek(size // 2)
                opened.write(b"\xde\xad" * 2_000)
    store = PartitionStore.open(tmp_path / "p0", environment())
    with pytest.raises(StoreCorrupt, match="checksum"):
        for _ in store.view().due(AHEAD, T0 + 20_000, 1 << 20):
            pass
    with pytest.raises(StoreCorrupt, match="checksum"):
        list(store.reader().jobs_from())
    store.close()


def test_a_view_is_refused_while_the_store_is_not_restored(tmp_path: Path) -> None:
    store = PartitionStore.open(tmp_path / "p0", environment())
    with pytest.raises(AssertionError, match="step its Restore until ready"):
        store.view()
    store.close()


def test_there_is_one_writer(store: PartitionStore, view: View) -> None:
    with pytest.raises(AssertionError, match="one writer"):
        store.view()
    store.release_view()
    with pytest.raises(StoreClosed):
        view.job(A)
    assert None is store.view().job(A)


def test_a_checkpoint_is_a_store_of_its_own(store: PartitionStore, view: View, tmp_path: Path) -> None:
    view.put_job(A, job_row(seq=1))
    commit(view, 7)
    store.checkpoint(tmp_path / "copy")
    view.put_job(A, job_row(seq=2))
    commit(view, 8)
    copy = PartitionStore.open(tmp_path / "copy", environment())
    assert 7 == copy.meta.changelog_offset
    assert job_row(seq=1) == copy.view().job(A)
    assert job_row(seq=2) == view.job(A)
    copy.close()


def test_position_is_what_the_last_commit_reached(store: PartitionStore, view: View) -> None:
    reached = Position(journal=b"row", changelog_offset=5, changelog_time_ms=T0, runs_offset=9)
    view.commit(reached)
    assert reached == store.position
    view.commit(replace(reached, changelog_offset=6, runs_offset=-1))
    assert replace(reached, changelog_offset=6) == store.position


# --- what stores share


def test_a_store_that_idles_with_full_buffers_makes_room_for_a_busy_one(tmp_path: Path) -> None:
    shared = StoreEnvironment(cache_bytes=16 << 20, write_buffer_bytes=8 << 20, row_cache_bytes=1 << 20)
    stores = [PartitionStore.open(tmp_path / name, shared) for name in ("idle", "busy")]
    views = []
    for store in stores:
        store.start_empty()
        views.append(store.view())
    idle, busy = (store.database for store in stores)

    text = "x" * 1_000
    for n in range(900):  # four families, none of them full by itself
        key = JobKey(f"ns/job-{n}")
        views[0].put_job(key, job_row(last_error=text))
        views[0].put_run(run_row(key, reason=text))
        views[0].put_dead(DeadRow(run=run_row(key, reason=text), died_ms=1, until_ms=T0))
        views[0].put_pending(key, "1", PendingRow(kind="parked", until_ms=T0, command=text.encode()))
        if n % 100 == 99:
            commit(views[0])
    assert idle.buffered_bytes() > 3 << 20
    for n in range(2_000):
        views[1].put_job(JobKey(f"ns/job-{n}"), job_row(last_error=text))
        if n % 100 == 99:
            commit(views[1])
            assert idle.buffered_bytes() + busy.buffered_bytes() < 7 << 20
    assert idle.buffered_bytes() < 2 << 20
    for store in stores:
        store.close()


def test_the_rows_that_each_store_may_keep_grow_fewer_as_stores_are_opened(tmp_path: Path) -> None:
    shared = StoreEnvironment(row_cache_bytes=12 << 20)
    stores = []
    shares = []
    for name in ("a", "b", "c"):
        stores.append(PartitionStore.open(tmp_path / name, shared))
        shares.append(shared.row_cache_share >> 20)
    assert [12, 6, 4] == shares
    for store in stores:
        store.close()


def test_write_buffers_that_would_not_fit_the_cache_are_refused() -> None:
    with pytest.raises(ValueError, match="write_buffer_bytes"):
        StoreEnvironment(cache_bytes=1 << 20, write_buffer_bytes=2 << 20)


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
