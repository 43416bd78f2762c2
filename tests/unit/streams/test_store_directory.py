"""A store and its directory: locks, damage, a full disk, kill -9, and what stores of one process share."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.rows import (
    T0,
    commit,
    empty_store,
    environment,
    job_row,
    run_row,
)
from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, PendingRow
from tocsin.streams.families import META
from tocsin.streams.meta import META_KEY
from tocsin.streams.rocks import Database, Scan
from tocsin.streams.store import (
    PartitionStore,
    Position,
    StoreClosed,
    StoreCorrupt,
    StoreEnvironment,
    StoreLocked,
    UnknownLayout,
    View,
)
from tocsin.streams.timers import AHEAD

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


def test_a_store_that_cannot_be_read_is_closed_all_the_same_in_the_middle_of_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = empty_store(tmp_path / "p0")
    view = store.view()
    for n in range(10):
        view.put_job(JobKey(f"ns/job-{n}"), job_row(T0 + n))
    commit(view)
    timers = view.due(AHEAD, T0 + 20, 1 << 20)
    next(iter(timers))

    def damaged(_: Scan) -> bytes:
        raise StoreCorrupt("cannot be read")

    monkeypatch.setattr(Scan, "key", damaged)
    store.close()
    PartitionStore.open(tmp_path / "p0", environment()).close()  # its directory was let go of


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
