"""Answers the API's questions from the committed state of the partitions that this process owns. Any thread may ask."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from heapq import merge
from typing import Final

from tocsin.clock import Clock
from tocsin.log.partitioner import partition_for
from tocsin.log.port import LogUnavailable
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.schemas.rows import DeadRow, JobRow
from tocsin.streams import cursors
from tocsin.streams.ids import job_key_of
from tocsin.streams.partitions import OwnedPartition
from tocsin.streams.queries import JobFilter, JobView, Page, PartitionHealth
from tocsin.streams.reader import StoreReader
from tocsin.streams.restore import Progress
from tocsin.streams.rocks import StoreClosed
from tocsin.streams.runs import event_of
from tocsin.streams.topology import Topology

SCAN_S: Final = 0.05
"""A search stops after this long and returns a partial page with a cursor."""
RECENT_RUNS_MAX: Final = 10_000
"""Run events remembered for `runs tail` and `runs list`: about 10 MB."""
TIMERS_LOOKED_AT_MAX: Final = 10_000


class PartitionGone(LogUnavailable):
    """A partition was given up, or is opened again, while the question was answered. Ask again."""


@contextmanager
def asking() -> Iterator[None]:
    try:
        yield
    except StoreClosed as error:
        raise PartitionGone("the partition is just being opened again, or moves: ask again") from error


class Answers:
    """Implements queries.Queries over one topology. Methods raise PartitionGone."""

    def __init__(self, topology: Topology, clock: Clock) -> None:
        self._topology = topology
        self._clock = clock
        self._recent: deque[RunEvent] = deque(maxlen=RECENT_RUNS_MAX)
        topology.on_runs = self._recent.extend

    # --- jobs

    @asking()
    def get_job(self, key: JobKey) -> JobView | None:
        reader = self._reader_of(key)
        found = None if reader is None else reader.job(key)
        if found is None or found[1] is None:
            return None
        row, definition = found
        assert definition is not None
        return JobView(
            key=key,
            job=definition.job,
            row=row,
            definition_offset=definition.offset,
            defined_ms=definition.timestamp_ms,
            actor=definition.actor,
        )

    @asking()
    def list_jobs(self, where: JobFilter, *, cursor: str, limit: int) -> Page[JobView]:
        prefix = f"{where.namespace}/{where.id_prefix}" if where.namespace else ""
        if cursor:
            cursors.job_key(cursor)
        deadline_s = self._clock.monotonic_s() + SCAN_S
        rows = merge(
            *(reader.jobs_from(prefix, cursor) for reader in self._readers()), key=lambda found: found[0]
        )
        items: list[JobView] = []
        last = cursor
        for seen, (key, row) in enumerate(rows):
            if len(items) == limit or (seen % 64 == 63 and self._clock.monotonic_s() > deadline_s):
                return Page(items=items, next_cursor=last)
            last = key
            if row.deleted_ms or not _may_match(where, key, row):
                continue
            view = self.get_job(key)
            if view is not None and view.job is not None and _labels_match(where, view.job):
                items.append(view)
        return Page(items=items)

    # --- runs

    @asking()
    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        start = cursors.place(cursor) if cursor else 0
        reader = self._reader_of(key)
        if reader is None:
            return Page(items=())
        events = [event_of(run, run.opened_ms) for run in reversed(reader.open_runs(key))]
        seen = {event.run_id for event in events}
        events += [event for event in reader.history("history", key) if event.run_id not in seen]
        page = events[start : start + limit]
        more = start + limit < len(events)
        return Page(items=page, next_cursor=str(start + limit) if more else "")

    def recent_runs(self, *, namespace: str, status: str, limit: int) -> Sequence[RunEvent]:
        newest: list[RunEvent] = []
        seen: set[str] = set()
        for event in reversed(list(self._recent)):
            if event.run_id in seen or (namespace and event.namespace != namespace):
                continue
            seen.add(event.run_id)  # what it was before does not count
            if status and event.status != status:
                continue
            newest.append(event)
            if len(newest) == limit:
                break
        return newest

    @asking()
    def get_run(self, run_id: str) -> RunEvent | None:
        try:
            key = job_key_of(run_id)
        except ValueError:
            return None
        reader = self._reader_of(key)
        if reader is None:
            return None
        for run in reader.open_runs(key):
            if run.run_id == run_id:
                return event_of(run, run.opened_ms)
        for ring in ("history", "failures"):
            for event in reader.history(ring, key):
                if event.run_id == run_id:
                    return event
        for found, _, row in reader.dead_from(key):
            if found == key and row.run.run_id == run_id:
                return _letter(row).run
        # What has left the job's ring may still be in the memory of what was committed lately.
        return next((event for event in reversed(list(self._recent)) if event.run_id == run_id), None)

    @asking()
    def dead_letters(self, *, namespace: str, cursor: str, limit: int) -> Page[DeadLetter]:
        prefix = f"{namespace}/" if namespace else ""
        after = cursors.job_and_seq(cursor) if cursor else None
        rows = merge(*(reader.dead_from(prefix, after) for reader in self._readers()), key=lambda f: f[:2])
        items: list[DeadLetter] = []
        for key, seq, row in rows:
            if len(items) == limit:
                assert after is not None
                return Page(items=items, next_cursor=f"{after[0]}:{after[1]}")
            items.append(_letter(row))
            after = (key, seq)
        return Page(items=items)

    # --- health

    def health(self) -> Sequence[PartitionHealth]:
        now_ms = self._clock.now_ms()
        found = {number: _not_ready(number, None) for number in self._topology.unopened}
        for each in list(self._topology.partitions.values()):
            try:
                found[each.number] = self._health_of(each, now_ms)
            except StoreClosed:
                found[each.number] = _not_ready(each.number, None)
        if not found:  # nothing is assigned yet: whatever is asked for would look as if it did not exist
            partitions = self._topology.configuration.cluster.partitions
            found = {number: _not_ready(number, None) for number in range(partitions)}
        return tuple(found.values())

    def _health_of(self, each: OwnedPartition, now_ms: int) -> PartitionHealth:
        journal = each.committed_journal
        if not each.ready or journal is None:
            return _not_ready(each.number, each.progress)
        reader = each.store.reader()
        counts = reader.counts()
        return PartitionHealth(
            partition=each.number,
            ready=True,
            watermark_ms=journal.watermark_ms,
            tick_ms=journal.now_ms,
            jobs=counts["state"],
            open_runs=counts["runs"],
            dead_letters=counts["dead"],
            overdue=reader.overdue(now_ms, TIMERS_LOOKED_AT_MAX),
            pending=reader.pending_buckets(now_ms, TIMERS_LOOKED_AT_MAX),
        )

    def broken(self) -> str:
        topology = self._topology
        if topology.failed:
            return topology.failed
        if topology.reading.held:
            return topology.reading.held
        if topology.log_trouble:
            return f"the log did not take the last commit: {topology.log_trouble}"
        ready = {each.number: each.ready for each in list(topology.partitions.values())}
        ready |= dict.fromkeys(topology.unopened, False)
        if not ready:
            return "restoring: no partition is assigned to this process yet"
        restoring = sum(not each for each in ready.values())
        return f"restoring: {restoring} of {len(ready)} partitions are not ready yet" if restoring else ""

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        return self._topology.applied(topic, partition, offset)

    # --- partitions

    def _readers(self) -> Iterator[StoreReader]:
        for each in list(self._topology.partitions.values()):
            if each.ready:
                yield each.store.reader()

    def _reader_of(self, key: JobKey) -> StoreReader | None:
        number = partition_for(key.encode(), self._topology.configuration.cluster.partitions)
        each = self._topology.partitions.get(number)
        return each.store.reader() if each is not None and each.ready else None


def _not_ready(number: int, progress: Progress | None) -> PartitionHealth:
    return PartitionHealth(
        partition=number,
        ready=False,
        watermark_ms=0,
        tick_ms=0,
        jobs=0,
        open_runs=0,
        dead_letters=0,
        overdue=0,
        pending={},
        restore_done=0 if progress is None else progress.done,
        restore_total=0 if progress is None else progress.total,
    )


def _may_match(where: JobFilter, key: JobKey, row: JobRow) -> bool:
    if where.id_prefix and not key.partition("/")[2].startswith(where.id_prefix):
        return False
    if where.failing and not row.consecutive_failures:
        return False
    match where.state:
        case "":
            return True
        case "paused":
            return row.paused
        case "broken":
            return bool(row.broken)
        case "finished":
            return bool(row.finished_ms and not row.open)
        case _:
            return not (row.paused or row.broken or (row.finished_ms and not row.open))


def _labels_match(where: JobFilter, job: Job) -> bool:
    if not where.labels:
        return True
    labels = dict(job.labels)
    return all(labels.get(name) == value for name, value in where.labels.items())


def _letter(row: DeadRow) -> DeadLetter:
    return DeadLetter(run=event_of(row.run, row.died_ms), body=row.run.body, died_ms=row.died_ms)
