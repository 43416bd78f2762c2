"""Questions to the committed state: what the API sees, from its own threads."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.streams.rows import (
    T0,
    commit,
    definition_row,
    empty_store,
    environment,
    job_row,
    run_event,
    run_row,
)
from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, PendingRow
from tocsin.streams.families import STATE
from tocsin.streams.reader import CHUNK
from tocsin.streams.rocks import Database
from tocsin.streams.store import PartitionStore, StoreClosed, StoreReader, View

A = JobKey("shop/a")
LIMIT_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    opened = empty_store(tmp_path / "p0")
    yield opened
    opened.close()


@pytest.fixture
def view(store: PartitionStore) -> View:
    return store.view(check=True)


@pytest.fixture
def reader(store: PartitionStore) -> StoreReader:
    return store.reader()


def test_only_what_was_committed_is_seen(view: View, reader: StoreReader) -> None:
    view.put_job(A, job_row(seq=1))
    assert None is reader.job(A)
    commit(view)
    view.put_job(A, job_row(seq=2))
    assert (job_row(seq=1), None) == reader.job(A)


def test_a_job_comes_with_the_definition_in_force(view: View, reader: StoreReader) -> None:
    view.put_job(A, job_row(revision=2))
    view.put_definition(A, definition_row(A, 1))
    view.put_definition(A, definition_row(A, 2))
    commit(view)
    assert (job_row(revision=2), definition_row(A, 2)) == reader.job(A)
    assert definition_row(A, 1) == reader.definition(A, 1)
    assert None is reader.definition(A, 3)


def test_a_commit_between_the_reads_of_a_row_and_its_definition_is_noticed(
    view: View, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.put_job(A, job_row(revision=1))
    view.put_definition(A, definition_row(A, 1))
    commit(view)
    read = Database.get
    commits = [2]

    def get(database: Database, name: str, key: bytes) -> bytes | None:
        found = read(database, name, key)
        if name == STATE.name and commits:
            revision = commits.pop()
            view.put_job(A, job_row(revision=revision))
            view.put_definition(A, definition_row(A, revision))
            view.delete_definition(A, revision - 1)
            commit(view)
        return found

    monkeypatch.setattr(Database, "get", get)
    assert (job_row(revision=2), definition_row(A, 2)) == reader.job(A)


def test_a_deleted_job_has_a_row_and_no_definition(view: View, reader: StoreReader) -> None:
    view.put_job(A, job_row(deleted_ms=T0))
    view.put_definition(A, definition_row(A, 1))
    commit(view)
    assert (job_row(deleted_ms=T0), None) == reader.job(A)


def test_open_runs_are_those_that_the_job_lists(view: View, reader: StoreReader) -> None:
    view.put_job(A, job_row(open=[3, 5]))
    for seq in (3, 4, 5):
        view.put_run(run_row(A, seq))
    commit(view)
    assert [run_row(A, 3), run_row(A, 5)] == reader.open_runs(A)
    assert run_row(A, 4) == reader.run(A, 4)
    assert [] == reader.open_runs(JobKey("shop/none"))
    assert None is reader.run(A, 6)


def test_all_open_runs_and_all_pending_rows_of_a_kind_are_found(view: View, reader: StoreReader) -> None:
    other = JobKey("shop/b")
    for key, seq in ((A, 1), (A, 2), (other, 1)):
        view.put_run(run_row(key, seq))
    for name in ("5", "7"):
        view.put_pending(A, name, PendingRow(kind="parked", until_ms=T0, offset=int(name)))
    view.put_pending(other, "6", PendingRow(kind="trigger", until_ms=T0))
    commit(view)
    assert [(A, 1), (A, 2), (other, 1)] == [(run.job_key, run.seq) for run in reader.all_runs()]
    assert [(A, "5", 5), (A, "7", 7)] == [
        (key, name, row.offset) for key, name, row in reader.all_pending("parked")
    ]
    assert [(other, "6")] == [(key, name) for key, name, _ in reader.all_pending("trigger")]


def test_jobs_are_listed_in_key_order_from_a_cursor_within_a_prefix(view: View, reader: StoreReader) -> None:
    keys = [JobKey(f"ns/job-{n:04}") for n in range(2 * CHUNK + 10)]
    for key in (JobKey("nr/x"), JobKey("ns.a/x"), JobKey("nt/x"), *reversed(keys)):
        view.put_job(key, job_row())
    commit(view)
    assert keys == [key for key, _ in reader.jobs_from("ns/")]
    assert keys[301:] == [key for key, _ in reader.jobs_from("ns/", after="ns/job-0300")]
    assert keys[20:30] == [key for key, _ in reader.jobs_from("ns/job-002")]
    assert ["nr/x", "ns.a/x", *keys, "nt/x"] == [key for key, _ in reader.jobs_from()]
    assert [] == list(reader.jobs_from("ns/", after="ns/job-9999"))


def test_dead_letters_are_listed_by_job_and_seq_from_a_cursor(view: View, reader: StoreReader) -> None:
    other = JobKey("shop/b")
    letters = [(A, 1), (A, 300), (other, 2)]
    for key, seq in letters:
        view.put_dead(DeadRow(run=run_row(key, seq), died_ms=seq, until_ms=T0))
    commit(view)
    assert letters == [(key, seq) for key, seq, _ in reader.dead_from()]
    assert letters[1:] == [(key, seq) for key, seq, _ in reader.dead_from(after=(A, 1))]
    assert letters[2:] == [(key, seq) for key, seq, _ in reader.dead_from("shop/b")]
    assert DeadRow(run=run_row(A, 300), died_ms=300, until_ms=T0) == reader.dead(A, 300)


def test_counts_are_exact(view: View, reader: StoreReader) -> None:
    for n in range(5):
        view.put_job(JobKey(f"ns/{n}"), job_row())
        view.put_run(run_row(JobKey(f"ns/{n}"), 1))
    commit(view)
    for n in range(3):
        view.put_job(JobKey(f"ns/{n}"), job_row(seq=1, deleted_ms=T0 if n == 0 else 0))
        view.delete_run(JobKey(f"ns/{n}"), 1)
    view.delete_job(JobKey("ns/4"))
    view.put_job(JobKey("ns/5"), job_row(revision=0, broken="never valid"))
    view.put_dead(DeadRow(run=run_row(A, 1), died_ms=1, until_ms=T0))
    view.put_pending(A, "x", PendingRow(kind="trigger", until_ms=T0))
    commit(view)
    assert {"state": 3, "runs": 2, "dead": 1, "pending": 1} == reader.counts()


def test_timers_ahead_are_counted_by_how_far_and_overdue_ones_by_themselves(
    view: View, reader: StoreReader
) -> None:
    dues = [-5_000, -1_001, -999, 500, 1_000, 30_000, 3_600_000, 80_000_000, 90_000_000]
    for n, ahead in enumerate(dues):
        view.put_job(JobKey(f"ns/{n}"), job_row(T0 + ahead, armed="exact" if n % 2 else "ahead"))
    view.put_job(JobKey("ns/deleted"), job_row(armed="none", delete_at_ms=T0 + 5))  # no work to come
    view.put_pending(A, "x", PendingRow(kind="trigger", until_ms=T0 + 5))
    commit(view)
    assert {"1s": 5, "1m": 1, "1h": 1, "1d": 1, "later": 1} == reader.pending_buckets(T0)
    assert 2 == reader.overdue(T0)
    assert 1 == reader.overdue(T0, limit=1)


def test_counting_timers_stops_at_its_limit(view: View, reader: StoreReader) -> None:
    for n in range(50):
        view.put_job(JobKey(f"ns/{n}"), job_row(T0 + n))
    commit(view)
    assert 10 == sum(reader.pending_buckets(T0, limit=10).values())


def test_history_is_empty_for_a_job_that_never_ran(reader: StoreReader) -> None:
    assert [] == reader.history("history", A)


# --- threads


def in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_readers_in_other_threads_see_whole_commits_while_the_owner_works(
    store: PartitionStore, view: View
) -> None:
    """Each commit replaces the job's revision, its definition and its event: a reader never meets a mixture."""
    stop = threading.Event()
    started = threading.Barrier(4 + 1)
    problems: list[str] = []
    seen: list[int] = []

    def put(revision: int) -> None:
        view.put_job(A, job_row(T0 + revision, revision=revision))
        view.put_definition(A, definition_row(A, revision))
        view.delete_definition(A, revision - 1)
        view.history_put("history", A, revision % 20, run_event(A, revision))
        commit(view, revision)

    def read(number: int) -> None:
        reader = store.reader()
        started.wait(LIMIT_S)
        last = 0
        while not stop.is_set():
            found = reader.job(A)
            if found is None or found[1] is None or found[0].revision != found[1].revision:
                problems.append(f"{found}")
                return
            if found[0].revision < last:
                problems.append(f"back from {last} to {found[0].revision}")
                return
            last = found[0].revision
            events = reader.history("history", A)
            if [event.history_no for event in events] != sorted(
                (event.history_no for event in events), reverse=True
            ):
                problems.append(f"{events}")
            list(reader.jobs_from())
            reader.pending_buckets(T0)
            seen.append(number)

    put(1)
    threads = in_threads(4, read)
    started.wait(LIMIT_S)
    revision = 1
    while revision < 300 or len(set(seen)) < 4:
        revision += 1
        put(revision)
        assert not problems
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert [] == problems


def test_a_store_that_is_closed_under_its_readers_releases_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "p0"
    store = empty_store(path)
    view = store.view()
    for n in range(1_000):
        view.put_job(JobKey(f"ns/job-{n:04}"), job_row(T0 + n))
    commit(view)
    started = threading.Barrier(4 + 1)
    ended: list[int] = []

    def read(number: int) -> None:
        reader = store.reader()
        started.wait(LIMIT_S)
        try:
            while True:
                assert sum(1 for _ in reader.jobs_from()) == 1_000
        except StoreClosed:
            ended.append(number)

    threads = in_threads(4, read)
    started.wait(LIMIT_S)
    store.close()
    for thread in threads:
        thread.join(LIMIT_S)
    assert [0, 1, 2, 3] == sorted(ended)
    again = PartitionStore.open(path, environment())
    assert 1_000 == again.meta.counts["state"]
    again.close()


def test_a_read_that_hangs_does_not_keep_a_partition_from_being_given_up(
    store: PartitionStore, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.streams.store.READERS_GONE_S", 0.0)
    view.put_job(A, job_row())
    commit(view)
    with store.reading() as database:
        scan = database.scan(STATE.name, b"", b"\xff")
        store.close()
        for ask in (scan.key, scan.next, scan.value, lambda: database.get(STATE.name, b"shop/a")):
            with pytest.raises(StoreClosed):
                ask()
    again = PartitionStore.open(store.path, environment())
    assert 1 == again.meta.counts["state"]
    again.close()
