"""RocksDB below the embedded log: opened, written durably, read in ranges, and opened again after an I/O error."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from tocsin.log.embedded.directory import Directory
from tocsin.log.port import LogCorrupt, LogError, LogFull, LogLocked, LogUnavailable

WRITE_BUFFER_BYTES: Final = 64 * 1024 * 1024
BLOCK_CACHE_BYTES: Final = 64 * 1024 * 1024
WAL_BYTES_MAX: Final = 128 * 1024 * 1024
"""What is read again when a node starts after a crash: one to two seconds."""

FREE_BYTES_MIN: Final = 128 * 1024 * 1024
"""Below this nothing more is appended: RocksDB still has to flush and compact what it has taken, and a write that meets
a full disk half-way leaves an outcome that nobody knows until the next start."""

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""What one read of a range returns at most, however many records were asked for."""

Rows = list[tuple[bytes, bytes]]

logger = logging.getLogger(__name__)


class Store:
    """Thread-safe. Readers go on through a failed write; reopen() waits for them."""

    def __init__(
        self, directory: Directory, *, cache: Cache | None, write_buffers: WriteBufferManager | None
    ) -> None:
        self._directory = directory
        self._cache = cache or Cache(BLOCK_CACHE_BYTES)
        self._write_buffers = write_buffers or WriteBufferManager(WRITE_BUFFER_BYTES, False)
        self._idle = threading.Condition()
        self._using = 0
        self._handles: _Handles | None = None
        self.failed: LogError | None = None
        """Set by a write whose outcome is unknown; only reopen() clears it."""
        self._open()

    def write(self, fill: Callable[["Batch"], None], *, sync: bool) -> None:
        """Fill one batch and write it: all of it or nothing. With `sync` it is durable when this returns.

        Raises LogFull (before anything was written) or LogUnavailable (the outcome is unknown until reopen()).
        """
        with self._use() as handles:
            if self.failed is not None:
                raise self.failed
            batch = Batch(handles)
            fill(batch)
            self._check_room(batch.rows.size_in_bytes())
            try:
                # Two calls, because write(sync=True) of rocksdict holds the GIL while the disk works, and flush_wal does
                # not. Nothing shows what was written before the second one has returned.
                handles.database.write(batch.rows)
                if sync:
                    handles.database.flush_wal(sync=True)
            except Exception as error:
                self.failed = LogUnavailable(f"a write to {self._directory.path} failed: {error}")
                logger.error("%s; the log is opened again with the next write", self.failed)
                raise self.failed from error

    def read(self, family: str, first: bytes, stop: bytes, rows_max: int) -> Rows:
        """The first rows with first <= key < stop; fewer than rows_max also at READ_BYTES_MAX."""
        with self._use() as handles:
            options = ReadOptions()
            options.set_iterate_upper_bound(stop)
            rows: Rows = []
            size = 0
            try:
                row: Any
                for row in handles.families[family].items(from_key=first, read_opt=options):
                    rows.append(row)
                    size += len(row[1])
                    if len(rows) >= rows_max or size >= READ_BYTES_MAX:
                        break
            except Exception as error:
                raise _explained(error, self._directory) from error
            return rows

    def last(self, family: str, first: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The last row with first <= key < stop."""
        with self._use() as handles:
            options = ReadOptions()
            options.set_iterate_lower_bound(first)
            options.set_iterate_upper_bound(stop)
            row: Any = next(
                handles.families[family].items(backwards=True, from_key=stop, read_opt=options), None
            )
            return None if row is None else (row[0], row[1])

    def get(self, family: str, key: bytes) -> bytes | None:
        with self._use() as handles:
            value: bytes | None = handles.families[family].get(key)
            return value

    def prefix(self, prefix: bytes) -> Rows:
        """All rows of the default family that begin with `prefix`."""
        stop = prefix[:-1] + bytes([prefix[-1] + 1])
        rows: Rows = []
        first = prefix
        while True:
            page = self.read("default", first, stop, 10_000)
            rows += page
            if not page:
                return rows
            first = page[-1][0] + b"\0"

    def reclaim(self, first: bytes, stop: bytes) -> None:
        """Give the disk space of a range of records that were deleted back. Slow; releases the GIL."""
        with self._use() as handles:
            handles.families["records"].compact_range(first, stop)

    def reopen(self) -> None:
        """Close RocksDB, which refuses all writes after an I/O error, and open it again as it is on the disk.

        Raises LogFull or LogUnavailable if that is not possible yet; then nothing can be read either.
        """
        self._check_room(0)
        with self._idle:
            self._idle.wait_for(lambda: self._using == 0)
            self._close_handles()
            self._open()
            self.failed = None

    def close(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._using == 0)
            self._close_handles()

    def _open(self) -> None:
        try:
            self._handles = _Handles(self._directory, self._cache, self._write_buffers)
        except Exception as error:
            raise _explained(error, self._directory) from error

    def _close_handles(self) -> None:
        handles, self._handles = self._handles, None
        if handles is not None:
            handles.close()

    def _check_room(self, size: int) -> None:
        free = self._directory.free_bytes()
        if free < FREE_BYTES_MIN + 2 * size:
            raise LogFull(
                f"{self._directory.path} has {free >> 20} MiB left, and the log keeps {FREE_BYTES_MIN >> 20} MiB free: "
                f"nothing was written; free some space and go on"
            )

    @contextmanager
    def _use(self) -> Iterator["_Handles"]:
        with self._idle:
            handles = self._handles
            if handles is None:
                raise self.failed or LogUnavailable(f"the log in {self._directory.path} is closed")
            self._using += 1
        try:
            yield handles
        finally:
            with self._idle:
                self._using -= 1
                if self._using == 0:
                    self._idle.notify_all()


class Batch:
    """Rows that are written together."""

    __slots__ = ("_families", "rows")

    def __init__(self, handles: "_Handles") -> None:
        self._families = handles.column_families
        self.rows = WriteBatch(raw_mode=True)

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.rows.put(key, value, self._families[family])

    def delete(self, family: str, key: bytes) -> None:
        self.rows.delete(key, self._families[family])

    def delete_range(self, family: str, first: bytes, stop: bytes) -> None:
        self.rows.delete_range(first, stop, self._families[family])


class _Handles:
    """Everything that keeps one opening of the database alive."""

    def __init__(self, directory: Directory, cache: Cache, write_buffers: WriteBufferManager) -> None:
        options = _options(cache, write_buffers)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        self.database = Rdict(
            str(directory.database),
            options,
            column_families={name: _options(cache, write_buffers) for name in ("records", "index")},
        )
        self.families = {
            "default": self.database,
            "records": self.database.get_column_family("records"),
            "index": self.database.get_column_family("index"),
        }
        self.column_families = {name: self.database.get_column_family_handle(name) for name in self.families}

    def close(self) -> None:
        # RocksDB lets go of its lock with the last reference to any of these.
        self.column_families.clear()
        del self.database
        for name in ("records", "index", "default"):
            try:
                self.families.pop(name).close()
            except Exception as error:  # noqa: BLE001 - RocksDB's errors have no class of their own
                # It cannot flush, for want of room perhaps. What was acknowledged is in the write-ahead log all the same.
                logger.warning("RocksDB closed with an error: %s", error)


def _options(cache: Cache, write_buffers: WriteBufferManager) -> Options:
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(16 * 1024)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(write_buffers)
    options.set_write_buffer_size(16 * 1024 * 1024)
    options.set_max_write_buffer_number(4)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    options.set_level_compaction_dynamic_level_bytes(True)
    # Compaction deletes single records all over a range; a table that is mostly tombstones is rewritten early.
    options.add_compact_on_deletion_collector_factory(10_000, 5_000, 0.5)
    # A torn end is what a crash leaves and was never acknowledged. Anything else that is broken must not be skipped over.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_max_open_files(256)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(4 * 1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _explained(error: Exception, directory: Directory) -> LogError:
    text = str(error)
    where = directory.path
    if isinstance(error, LogError):
        return error
    if "lock" in text.lower() and text.startswith("IO error"):
        return LogLocked(f"the database in {where} is held open by something that is no Tocsin node: {text}")
    if "No space left" in text:
        return LogFull(f"{where} is full, so the log cannot be opened: free some space and go on ({text})")
    if text.startswith("IO error"):
        return LogUnavailable(f"the log in {where} cannot be read or written: {text}")
    return LogCorrupt(f"the log in {where} is damaged: {text}. Keep a copy, then restore it from a backup")
