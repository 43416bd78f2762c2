"""What the state store and its timer index cost: firing, the scan over fired timers, and restoring.

    python -m benchmarks.bench_timers [--armed 200000] [--fired 200000]

Claims (docs/decisions/008-state-store.md): firing does not cost more with more armed jobs; the scan does not wade through
what has fired, also after a restart; a cold restore brings more than 60,000 rows a second.
"""

import argparse
import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tocsin.clock import SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import TopicSpec
from tocsin.schemas.codec import encode, encode_row
from tocsin.schemas.job import HttpTarget, Job, JobKey, Schedule
from tocsin.schemas.records import Journal, RunEvent
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow
from tocsin.streams.families import (
    DEFINITIONS,
    JOURNAL_KEY,
    STATE,
    changelog_key,
    definition_key,
    state_key,
)
from tocsin.streams.restore import Restore
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View
from tocsin.streams.timers import AHEAD, first_of

T0 = 1_767_225_600_000
DAY_MS = 86_400_000
PER_MS = 10
"""Jobs due in each millisecond."""

COMMIT = 2_000
POSITION = Position(journal=b"j" * 100, changelog_offset=1, changelog_time_ms=T0)


def key_of(number: int) -> JobKey:
    return JobKey(f"namespace/job-{number:08d}")


def job_row(number: int) -> JobRow:
    key = key_of(number)
    return JobRow(
        revision=1,
        digest=b"0123456789abcdef",
        created_ms=T0,
        schedule_since_ms=T0,
        definition_offset=number,
        armed="ahead",
        armed_nominal_ms=T0 + number // PER_MS,
        armed_due_ms=T0 + number // PER_MS,
        decided_ms=T0,
        highest_ms=T0,
        seq=T0,
        last_run_id=f"{key}@20260101T000000.000Z",
        last_status="succeeded",
        last_ended_ms=T0,
    )


def definition_row(number: int) -> DefinitionRow:
    job = Job(
        namespace="namespace",
        id=f"job-{number:08d}",
        schedule=Schedule(cron=("0 9 * * *",), timezone="Europe/Berlin"),
        http=HttpTarget(url=f"https://example.com/hooks/{number}", body=b"{}", body_kind="json"),
    )
    return DefinitionRow(
        revision=1, effective_ms=T0, offset=number, timestamp_ms=T0, actor="ci", source="git", job=job
    )


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def say(what: str, figure: str) -> None:
    print(f"{what:<64}{figure:>18}")


def load(view: View, jobs: int) -> None:
    for number in range(jobs):
        view.put_job(key_of(number), job_row(number))
        if number % COMMIT == COMMIT - 1:
            commit(view)
    commit(view)


def commit(view: View) -> None:
    view.changes()
    view.commit(POSITION)


def fire(view: View, jobs: int, from_ms: int) -> None:
    """As the core: each job's occurrence becomes a run, and the job is armed for the next day."""
    fired, bound_ms = 0, from_ms
    while fired < jobs:
        bound_ms += COMMIT // PER_MS
        for timer in view.due(AHEAD, bound_ms, 2 * COMMIT):
            key = timer.job_key
            stored = view.job(key)
            assert stored is not None
            row = stored.copy()
            row.armed_nominal_ms += DAY_MS
            row.armed_due_ms += DAY_MS
            row.decided_ms = timer.due_ms
            row.seq += 1
            row.open.append(row.seq)
            view.put_run(
                RunRow(
                    run_id=f"{key}@20260101T000000.000Z",
                    job_key=key,
                    seq=row.seq,
                    revision=1,
                    cause="schedule",
                    nominal_ms=timer.due_ms,
                    due_ms=timer.due_ms,
                    status="scheduled",
                    outstanding=True,
                    start_deadline_ms=timer.due_ms + DAY_MS,
                )
            )
            view.put_job(key, row)
            fired += 1
        commit(view)


def bench_fire(path: Path, armed: int) -> None:
    """With a row cache that holds the rows of neither, as with ten million."""
    for count in (armed // 10, armed):
        environment = StoreEnvironment(row_cache_bytes=4 << 20)
        store = PartitionStore.open(path / f"fire-{count}", environment)
        store.start_empty()
        view = store.view()
        load(view, count)
        jobs = armed // 10
        elapsed = timed(lambda view=view, jobs=jobs: fire(view, jobs, T0))  # type: ignore[misc]
        say(f"fire {jobs:,} of {count:,} armed jobs", f"{jobs / elapsed:,.0f} /s")
        store.close()


def bench_scan(path: Path, fired: int) -> None:
    """Only timers move here, so that the figures are those of the scan."""
    store = PartitionStore.open(path / "scan", StoreEnvironment())
    store.start_empty()
    view = store.view()
    load(view, fired + COMMIT)
    store.database.flush(wait=True)
    bound_ms = T0
    left = fired
    while left:
        bound_ms += COMMIT // PER_MS
        for timer in view.due(AHEAD, bound_ms, left):
            view.delete_job(timer.job_key)
            left -= 1
        commit(view)
    naive = timed(lambda: store.scan_timers(first_of(AHEAD), b"b").key())
    seek = timed(lambda: store.scan_timers(store.meta.lows[AHEAD], b"b").key())
    say(f"first timer after {fired:,} fired: from the start", f"{naive * 1e3:.3f} ms")
    say("the same from the low-water", f"{seek * 1e3:.3f} ms")
    begun = time.perf_counter()
    first = next(view.due(AHEAD, T0 + fired, 1))
    say("the same as a pass of the view", f"{(time.perf_counter() - begun) * 1e3:.3f} ms")
    store.close()
    begun = time.perf_counter()
    store = PartitionStore.open(path / "scan", StoreEnvironment())
    say("opening the store again", f"{(time.perf_counter() - begun) * 1e3:.0f} ms")
    view = store.view()
    begun = time.perf_counter()
    assert first == next(view.due(AHEAD, T0 + fired, 1))
    say("the same after a restart", f"{(time.perf_counter() - begun) * 1e3:.3f} ms")
    store.close()


def bench_restore(path: Path, jobs: int) -> None:
    clock = SystemClock()
    log = MemoryLog(clock)
    log.create_topics(
        [TopicSpec(name="state", partitions=1, cleanup="compact"), TopicSpec(name="runs", partitions=1)]
    )
    producer = log.producer()

    def produce(topic: str, key: bytes, value: bytes) -> None:
        producer.produce(topic, partition=0, key=key, value=value)
        producer.poll()

    for number in range(jobs):
        key = key_of(number)
        produce(
            "state", changelog_key(DEFINITIONS, definition_key(key, 1)), encode_row(definition_row(number))
        )
        produce("state", changelog_key(STATE, state_key(key)), encode_row(job_row(number)))
    journal = encode(Journal(tick=1, now_ms=T0, transactional_id="bench"))
    produce("state", JOURNAL_KEY, journal)
    for number in range(jobs // 4):
        event = RunEvent(
            run_id=f"{key_of(number)}@20260101T000000.000Z",
            namespace="namespace",
            job_id=f"job-{number:08d}",
            seq=T0,
            revision=1,
            cause="schedule",
            nominal_ms=T0,
            due_ms=T0,
            status="succeeded",
            event_ms=T0,
            history_no=0,
        )
        produce("runs", event.run_id.encode(), encode(event))
    producer.flush(60.0)
    store = PartitionStore.open(path / "restore", StoreEnvironment())

    def restore() -> Restore:
        return Restore(
            store,
            log,
            clock,
            partition=0,
            state_topic="state",
            runs_topic="runs",
            delete_retention_ms=7 * DAY_MS,
        )

    def until(ready: Callable[[], bool], step: Callable[..., object]) -> None:
        while not ready():
            step(2_000, 0.0)

    cold = restore()
    rows = 2 * jobs
    elapsed = timed(lambda: until(lambda: cold.ready, cold.step))
    say(f"cold restore of {rows:,} rows, until firing may begin", f"{rows / elapsed:,.0f} rows/s")
    elapsed = timed(lambda: until(lambda: cold.done, cold.step))
    say(f"history rings from {jobs // 4:,} events", f"{jobs / 4 / elapsed:,.0f} events/s")
    cold.close()
    for number in range(jobs):
        row = job_row(number)
        row.armed_due_ms += DAY_MS
        produce("state", changelog_key(STATE, state_key(key_of(number))), encode_row(row))
    producer.flush(60.0)
    warm = restore()
    elapsed = timed(lambda: until(lambda: warm.done, warm.step))
    say(f"warm restore, {jobs:,} changed rows", f"{jobs / elapsed:,.0f} rows/s")
    warm.close()
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--armed", type=int, default=100_000, help="jobs to arm")
    parser.add_argument(
        "--fired", type=int, default=200_000, help="timers to fire before the scan is measured"
    )
    arguments = parser.parse_args()
    gc.set_threshold(10_000, 20, 50)  # as the roles do: a cache of rows is many objects that live long
    path = Path(tempfile.mkdtemp(prefix="tocsin-bench-"))
    try:
        bench_fire(path, arguments.armed)
        bench_scan(path, arguments.fired)
        bench_restore(path, arguments.armed)
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
