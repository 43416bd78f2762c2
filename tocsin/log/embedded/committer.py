"""Group commit: what several threads want to write at one time becomes one durable write.

A thread that commits and finds nobody writing leads: it writes what has queued up, its own included, and wakes the
others. So one thread alone pays no hand-over between threads, and many share one fsync. Plain records, whose producer
does not wait, are led by a thread of the log.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tocsin.clock import Clock
from tocsin.log.embedded.framing import encode, group_row, record_key
from tocsin.log.embedded.groups import Groups
from tocsin.log.embedded.partition import Partition
from tocsin.log.embedded.store import Batch, Store
from tocsin.log.limits import check_record
from tocsin.log.port import Headers, LogError, LogUnavailable, OffsetCommit, Record

GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""Requests are joined up to this size; RocksDB slows down with batches much larger. One request is never split."""

logger = logging.getLogger(__name__)

Item = tuple[Partition, bytes | None, bytes | None, Headers]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """Records and offsets that become durable and visible together, or not at all."""

    items: list[Item] = field(default_factory=list)
    size: int = 0
    offsets: dict[tuple[str, Partition], OffsetCommit] = field(default_factory=dict)
    check: Callable[[], None] | None = None
    """Called by the leader before anything is placed; raises a LogError if the request may not be written any more."""
    on_done: Callable[[], None] | None = None
    """Called by the leader once the request is done; must be short and never block."""
    placed: list[tuple[int, int]] = field(default_factory=list)
    """Afterwards: offset and timestamp of each item."""
    error: LogError | None = None
    is_unknown: bool = False
    """With an error: whether what was asked for may stand all the same."""
    done: bool = False
    taken: bool = False
    """A leader has it: nothing may be added any more."""

    def add(self, item: Item) -> None:
        """Raises RecordTooLarge."""
        partition, key, value, headers = item
        self.size += check_record(partition.topic, key, value, headers)
        self.items.append(item)


class Committer:
    """Thread-safe. `publish` is called by the leader with all records of one durable write."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        groups: Groups,
        publish: Callable[[dict[Partition, list[Record]]], None],
        recover: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._groups = groups
        self._publish = publish
        self._recover = recover
        self._queue: deque[Request] = deque()
        self._leading = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._lead_for_others, name="tocsin-log-commit", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue the request; the log's own thread, or whoever commits next, writes it."""
        with self._changed:
            self._enqueue(request)
            self._changed.notify_all()

    def add(self, request: Request, item: Item) -> bool:
        """Add one record to a queued request. False if it is on its way already, or has become large enough."""
        with self._changed:
            if request.taken or request.size > GROUP_BYTES_MAX:
                return False
            request.add(item)
            return True

    def commit(self, request: Request) -> None:
        """Queue the request and return when it is done."""
        with self._changed:
            self._enqueue(request)
        self.wait(request, None)

    def wait(self, request: Request, timeout_s: float | None) -> bool:
        """Return when the request is done, leading if nobody does. False if the time is up before that."""
        while True:
            with self._changed:
                if not request.done and self._leading:
                    self._changed.wait_for(lambda: request.done or not self._leading, timeout_s)
                if request.done:
                    return True
                if self._leading:
                    return False
                group = self._take()
            self._lead(group)

    def close(self) -> None:
        """Write what is queued, then refuse everything."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _enqueue(self, request: Request) -> None:
        if self._closed:
            raise LogUnavailable("the log is closed")
        self._queue.append(request)

    def _take(self) -> list[Request]:
        """The next group, in the order of arrival. Call with the lock held; the caller leads."""
        group: list[Request] = []
        size = 0
        while self._queue and (not group or size + self._queue[0].size <= GROUP_BYTES_MAX):
            request = self._queue.popleft()
            request.taken = True
            size += request.size
            group.append(request)
        self._leading = True
        return group

    def _lead(self, group: list[Request]) -> None:
        try:
            self._write(group)
        except LogError as error:
            for request in group:
                if request.items or request.offsets:
                    _fail(request, error, is_unknown=error is self._store.failed)
        except BaseException as error:
            # Memory and disk may differ now; the next write begins by reading what is true.
            self._store.failed = LogUnavailable(f"the log failed: {error!r}")
            for request in group:
                _fail(request, self._store.failed, is_unknown=True)
            raise
        finally:
            for request in group:
                request.done = True
                if request.on_done is not None:
                    request.on_done()
            with self._changed:
                self._leading = False
                self._changed.notify_all()

    def _write(self, group: list[Request]) -> None:
        accepted = [request for request in group if self._is_accepted(request)]
        if not any(request.items or request.offsets for request in accepted):
            return
        if self._store.failed is not None:
            self._recover()
        fresh: dict[Partition, list[Record]] = {}
        self._store.write(lambda batch: self._fill(batch, accepted, fresh), sync=True)
        for request in accepted:
            self._groups.keep(request.offsets)
        if fresh:
            self._publish(fresh)

    def _is_accepted(self, request: Request) -> bool:
        if request.check is not None:
            try:
                request.check()
            except LogError as refusal:
                request.error = refusal
                return False
        return True

    def _fill(self, batch: Batch, accepted: list[Request], fresh: dict[Partition, list[Record]]) -> None:
        """Give out offsets and timestamps, and put the rows. At most 5 us per record, of which 1 us is RocksDB's."""
        now_ms = self._clock.now_ms()
        put = batch.put
        for request in accepted:
            placed = request.placed
            for partition, key, value, headers in request.items:
                records = fresh.get(partition)
                if records is None:
                    records = fresh[partition] = []
                offset = partition.end + len(records)
                # The log's time never runs backwards within a partition, whatever the wall clock does.
                timestamp_ms = max(partition.last_ms, now_ms)
                put(
                    "records",
                    record_key(partition.topic_id, partition.number, offset),
                    encode(timestamp_ms, key, value, headers),
                )
                records.append(
                    Record(partition.topic, partition.number, offset, timestamp_ms, key, value, headers)
                )
                placed.append((offset, timestamp_ms))
            for (group, partition), commit in request.offsets.items():
                put("default", *group_row(group, partition.topic_id, partition.number, commit))

    def _lead_for_others(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._leading and (self._queue or self._closed))
                if not self._queue:
                    return
                group = self._take()
            try:
                self._lead(group)
            except Exception:
                logger.exception("the log's commit thread met an error of its own")


def _fail(request: Request, error: LogError, *, is_unknown: bool) -> None:
    if request.error is None:
        request.placed.clear()
        request.error, request.is_unknown = error, is_unknown
