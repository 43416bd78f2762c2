"""Answers the API's questions from the committed state of the partitions that this process owns. Any thread may ask."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from heapq import merge
from typing import Final, TypeVar

from tocsin.clock import Clock
from tocsin.log.partitioner import partition_for
from tocsin.schemas.job import Job, JobKey
from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.schemas.rows import DeadRow, JobRow
from tocsin.streams import cursors
from tocsin.streams.families import Ring
from tocsin.streams.ids import job_key_of
from tocsin.streams.partitions import OwnedPartition
from tocsin.streams.queries import (
    JobFilter,
    JobView,
    MissingPartition,
    Page,
    PartitionHealth,
    PartitionsMissing,
    not_ready,
)
from tocsin.streams.reader import StoreReader
from tocsin.streams.rocks import StoreClosed
from tocsin.streams.runs import event_of
from tocsin.streams.topology import Topology

SCAN_S: Final = 0.05
"""A search stops after this long and returns a partial page with a cursor."""
RECENT_RUNS_MAX: Final = 10_000
RECENT_BYTES_MAX: Final = 32 << 20
"""Run events remembered for `runs tail` and `runs list`: usually about 10 MB. One may have twenty attempts with 4 KiB of an
endpoint's answer each, so that their size is bounded as well."""
PAGE_BYTES_MAX: Final = 8 << 20
"""A page ends beyond this: a thousand jobs may have payloads of 200 KiB each."""
TIMERS_LOOKED_AT_MAX: Final = 10_000
RINGS: Final[tuple[Ring, ...]] = ("history", "failures")

R = TypeVar("R")


class Answers:
    """Implements queries.Queries over one topology."""

    def __init__(self, topology: Topology, clock: Clock) -> None:
        self._topology = topology
        self._clock = clock
        self._recent: deque[tuple[int, int, RunEvent]] = deque()
        """Partition, its takeover, event."""
        self._recent_bytes = 0
        self._takeovers: dict[int, tuple[OwnedPartition, int]] = {}
        topology.on_runs = self._remember

    # --- jobs

    def get_job(self, key: JobKey) -> JobView | None:
        number = self._number_of(key)
        with _asking(number):
            return _view(self._reader(number), key)

    def get_jobs(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobView]:
        found = ((key, self.get_job(key)) for key in keys)
        return {key: view for key, view in found if view is not None}

    def list_jobs(
        self, where: JobFilter, *, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[JobView]:
        prefix = f"{where.namespace}/{where.id_prefix}" if where.namespace else ""
        if cursor:
            cursors.job_key(cursor)
        deadline_s = self._clock.monotonic_s() + SCAN_S
        readers, missing = self._readers(partitions)
        scans = [
            _scan(number, missing, _jobs(reader, prefix, cursor, where)) for number, reader in readers.items()
        ]
        items: list[JobView] = []
        size = 0
        last = cursor
        for seen, (key, view) in enumerate(merge(*scans, key=lambda found: found[0])):
            is_late = seen % 64 == 63 and self._clock.monotonic_s() > deadline_s
            if len(items) == limit or size >= PAGE_BYTES_MAX or is_late:
                return Page(items=items, next_cursor=last, missing=missing)
            last = key
            if view is not None:
                items.append(view)
                size += _job_size(view)
        return Page(items=items, missing=missing)

    # --- runs

    def runs_of(self, key: JobKey, *, cursor: str, limit: int) -> Page[RunEvent]:
        start = cursors.place(cursor) if cursor else 0
        number = self._number_of(key)
        with _asking(number):
            reader = self._reader(number)
            events = [event_of(run, run.opened_ms) for run in reversed(reader.open_runs(key))]
            seen = {event.run_id for event in events}
            events += [event for event in reader.history("history", key) if event.run_id not in seen]
        page = events[start : start + limit]
        more = start + limit < len(events)
        return Page(
            items=page,
            next_cursor=str(start + limit) if more else "",
            missing=self._history_missing(number),
        )

    def recent_runs(
        self, *, namespace: str, status: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[RunEvent]:
        ready, missing = self._readers(partitions)
        newest: list[RunEvent] = []
        seen: set[str] = set()
        for number, event in self._remembered():
            if event.run_id in seen or (namespace and event.namespace != namespace) or number not in ready:
                continue
            seen.add(event.run_id)  # what it was before does not count
            if status and event.status != status:
                continue
            newest.append(event)
            if len(newest) == limit:
                break
        return Page(items=newest, missing=missing)

    def get_run(self, run_id: str) -> RunEvent | None:
        try:
            key = job_key_of(run_id)
        except ValueError:
            return None
        number = self._number_of(key)
        with _asking(number):
            found = _stored_run(self._reader(number), key, run_id)
        if found is not None:
            return found
        # What has left the job's ring may still be in the memory of what was committed lately.
        remembered = next((event for _, event in self._remembered() if event.run_id == run_id), None)
        if remembered is None and (missing := self._history_missing(number)):
            raise PartitionsMissing(missing)
        return remembered

    def _remember(self, events: Sequence[RunEvent]) -> None:
        """What one partition has committed. On the loop's thread."""
        if not events:
            return
        number = self._number_of(f"{events[0].namespace}/{events[0].job_id}")
        owned = self._topology.partitions[number]
        known, takeover = self._takeovers.get(number, (None, 0))
        if known is not owned:
            takeover += 1
            self._takeovers[number] = owned, takeover
        self._recent.extend([(number, takeover, event) for event in events])
        self._recent_bytes += sum(map(_run_size, events))
        while len(self._recent) > RECENT_RUNS_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= _run_size(self._recent.popleft()[2])

    def _remembered(self) -> Iterator[tuple[int, RunEvent]]:
        """Newest first, with the partition. What was committed before a partition was given up and came back is left out:
        another process has gone on with it, and how its runs stand by now is not known from here."""
        partitions = dict(self._topology.partitions)
        current = {
            number: takeover
            for number, (owned, takeover) in list(self._takeovers.items())
            if partitions.get(number) is owned
        }
        for number, takeover, event in reversed(list(self._recent)):
            if current.get(number) == takeover:
                yield number, event

    def dead_letters(
        self, *, namespace: str, cursor: str, limit: int, partitions: Collection[int] | None = None
    ) -> Page[DeadLetter]:
        prefix = f"{namespace}/" if namespace else ""
        after = cursors.job_and_seq(cursor) if cursor else None
        readers, missing = self._readers(partitions)
        scans = [_scan(number, missing, each.dead_from(prefix, after)) for number, each in readers.items()]
        items: list[DeadLetter] = []
        size = 0
        for key, seq, row in merge(*scans, key=lambda f: f[:2]):
            if len(items) == limit or size >= PAGE_BYTES_MAX:
                assert after is not None
                return Page(items=items, next_cursor=f"{after[0]}:{after[1]}", missing=missing)
            items.append(_letter(row))
            size += len(row.run.body or b"") + _run_size(items[-1].run)
            after = (key, seq)
        return Page(items=items, missing=missing)

    # --- health

    def health(self, *, figures: bool = True) -> Sequence[PartitionHealth]:
        now_ms = self._clock.now_ms()
        found = {number: not_ready(self._missing(number)) for number in self._topology.unopened}
        for each in list(self._topology.partitions.values()):
            try:
                found[each.number] = self._health_of(each, now_ms, figures=figures)
            except StoreClosed:
                found[each.number] = not_ready(_moving(each.number))
        if not found:  # nothing is assigned yet: whatever is asked for would look as if it did not exist
            found = {number: not_ready(self._missing(number)) for number in self._all()}
        return tuple(found.values())

    def _health_of(self, each: OwnedPartition, now_ms: int, *, figures: bool) -> PartitionHealth:
        journal = each.committed_journal
        if not each.ready or journal is None:
            return not_ready(self._missing(each.number))
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
            overdue=reader.overdue(now_ms, TIMERS_LOOKED_AT_MAX) if figures else 0,
            pending=reader.pending_buckets(now_ms, TIMERS_LOOKED_AT_MAX) if figures else {},
        )

    def broken(self) -> str:
        topology = self._topology
        if topology.failed:
            return topology.failed
        if topology.held:
            return topology.held
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

    def _number_of(self, key: str) -> int:
        return partition_for(key.encode(), self._topology.configuration.cluster.partitions)

    def _all(self) -> range:
        return range(self._topology.configuration.cluster.partitions)

    def _reader(self, number: int) -> StoreReader:
        each = self._topology.partitions.get(number)
        if each is None or not each.ready:
            raise PartitionsMissing((self._missing(number),))
        return each.store.reader()

    def _readers(
        self, wanted: Collection[int] | None
    ) -> tuple[dict[int, StoreReader], list[MissingPartition]]:
        """Of the wanted partitions (None: of all that are assigned here) the readers, and what cannot be read."""
        if wanted is None:
            wanted = {*self._topology.unopened, *list(self._topology.partitions)} or self._all()
        readers: dict[int, StoreReader] = {}
        missing: list[MissingPartition] = []
        for number in sorted(wanted):
            try:
                readers[number] = self._reader(number)
            except PartitionsMissing as error:
                missing += error.missing
        return readers, missing

    def _history_missing(self, number: int) -> Sequence[MissingPartition]:
        """Firing begins before the history rings are filled again, and what is not in them yet looks as if it never was."""
        each = self._topology.partitions.get(number)
        if each is None or not each.store.rings_behind:
            return ()
        return (replace(self._missing(number), detail="its history; it works already"),)

    def _missing(self, number: int) -> MissingPartition:
        """Why the partition cannot be asked here."""
        each = self._topology.partitions.get(number)
        progress = None if each is None else each.progress
        if progress is not None:
            return MissingPartition(
                partition=number,
                reason="restoring",
                restore_done=progress.done,
                restore_total=progress.total,
                restore_eta_s=progress.eta_s,
            )
        if each is not None or number in self._topology.unopened:
            return MissingPartition(partition=number, reason="restoring")
        return MissingPartition(partition=number, reason="no-owner", detail="it is not assigned here")


@contextmanager
def _asking(number: int) -> Iterator[None]:
    try:
        yield
    except StoreClosed as error:
        raise PartitionsMissing((_moving(number),)) from error


def _scan(number: int, missing: list[MissingPartition], rows: Iterator[R]) -> Iterator[R]:
    """The rows, up to where the store is closed; then the partition is missing, since there may have been more."""
    try:
        yield from rows
    except StoreClosed:
        missing.append(_moving(number))


def _moving(number: int) -> MissingPartition:
    return MissingPartition(partition=number, reason="moving")


def _view(reader: StoreReader, key: JobKey) -> JobView | None:
    found = reader.job(key)
    if found is None:
        return None
    row, definition = found
    if definition is None:
        return None
    return JobView(
        key=key,
        job=definition.job,
        row=row,
        definition_offset=definition.offset,
        defined_ms=definition.timestamp_ms,
        actor=definition.actor,
    )


def _jobs(
    reader: StoreReader, prefix: str, after: str, where: JobFilter
) -> Iterator[tuple[JobKey, JobView | None]]:
    """Every job behind `after`, with its view if it is wanted."""
    for key, row in reader.jobs_from(prefix, after):
        view = None
        if not row.deleted_ms and _may_match(where, key, row):
            view = _view(reader, key)
            if view is not None and (view.job is None or not _labels_match(where, view.job)):
                view = None
        yield key, view


def _job_size(view: JobView) -> int:
    """About how many bytes it holds."""
    job = view.job
    if job is None:
        return 0
    if job.function is not None:
        return len(job.function.arguments) + len(job.description)
    assert job.http is not None
    headers = sum(len(name) + len(value) for name, value in job.http.headers)
    return len(job.http.body) + len(job.http.url) + headers + len(job.description)


def _run_size(run: RunEvent) -> int:
    """About how many bytes it holds."""
    return 500 + sum(200 + len(attempt.error) + len(attempt.response) for attempt in run.attempts)


def _stored_run(reader: StoreReader, key: JobKey, run_id: str) -> RunEvent | None:
    for run in reader.open_runs(key):
        if run.run_id == run_id:
            return event_of(run, run.opened_ms)
    for ring in RINGS:
        for event in reader.history(ring, key):
            if event.run_id == run_id:
                return event
    for found, _, row in reader.dead_from(key):
        if found == key and row.run.run_id == run_id:
            return _letter(row).run
    return None


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
