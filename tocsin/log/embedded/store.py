"""RocksDB below the embedded log: opened, written durably, read in ranges, and opened again after an I/O error.

All reads of ranges use raw iterators: those that rocksdict makes by items() and keys() end in silence at what they cannot
read, as if there were nothing more (0.3.29; measured). Only status() tells an end from damage.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

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

WHAT_TO_DO: Final = "Keep a copy of the directory, and restore it from a backup"

_WITHOUT_SPACE: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

Rows = list[tuple[bytes, bytes]]

logger = logging.getLogger(__name__)


class Store:
    """Thread-safe. Readers go on through a failed write; reopen() waits for them.

    Every method raises LogCorrupt when it meets damage. From then on what is sound can still be read, and nothing is
    written: it would be lost with the backup that has to be restored.
    """

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
        self.damage: LogCorrupt | None = None
        """The first damage that was met. Nothing clears it."""
        self.is_open = False
        """Whether all that an opening reads was read. Damage is told in the process's log from then on: before that, to
        whoever opens."""
        self._open()

    def write(self, fill: Callable[["Batch"], None], *, sync: bool) -> None:
        """Fill one batch and write it: all of it or nothing. With `sync` it is durable when this returns.

        Raises LogFull or LogCorrupt (before anything was written), or whatever `failed` is afterwards: then the outcome
        is unknown until reopen().
        """
        with self._use() as handles:
            self.check()
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
                if is_damage(error):  # met by RocksDB's own compaction, which then refuses all writes
                    self.failed = self.met(error)
                    raise self.failed from error
                why = f"no space is left, free some ({error})" if is_without_space(error) else str(error)
                self.failed = LogUnavailable(f"a write to {self._directory.path} failed: {why}")
                logger.error("%s; the log is opened again with the next write", self.failed)
                raise self.failed from error

    def read(self, family: str, first: bytes, stop: bytes, rows_max: int) -> Rows:
        """The first rows with first <= key < stop; fewer than rows_max also at READ_BYTES_MAX."""
        with self._use() as handles:
            try:
                return _rows(handles.families[family], first, stop, rows_max)
            except Exception as error:
                raise self._meaning(error) from error

    def last(self, family: str, first: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The last row with first <= key < stop."""
        with self._use() as handles:
            try:
                return _last_row(handles.families[family], first, stop)
            except Exception as error:
                raise self._meaning(error) from error

    def get(self, family: str, key: bytes) -> bytes | None:
        with self._use() as handles:
            try:
                value: bytes | None = handles.families[family].get(key)
            except Exception as error:
                raise self._meaning(error) from error
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
            try:
                handles.families["records"].compact_range(first, stop)
            except Exception as error:
                raise self._meaning(error) from error

    def reopen(self) -> None:
        """Close RocksDB, which refuses all writes after an I/O error, and open it again as it is on the disk.

        Raises LogFull or LogUnavailable if that is not possible yet; then nothing can be read either. A damaged log is
        not opened again.
        """
        self.check()
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

    def check(self) -> None:
        """Raises LogCorrupt if damage was met before."""
        if self.damage is not None:
            # A new one each time: one that is raised again and again grows by a traceback each time.
            raise LogCorrupt(str(self.damage))

    def met(self, error: Exception) -> LogCorrupt:
        """Remember the damage that `error` tells of, unless some was met before, and return what to raise."""
        where = self._directory.path
        told = (
            error
            if isinstance(error, LogCorrupt) and str(where) in str(error)
            else LogCorrupt(f"the log in {where} is damaged: {str(error).rstrip('. ')}. {WHAT_TO_DO}")
        )
        if self.damage is None:
            self.damage = LogCorrupt(str(told))
            if self.is_open:
                logger.error("%s", told)
        return told

    def _open(self) -> None:
        # What an empty directory may be told to create must not replace what another one has lost.
        is_new = self._directory.is_new
        try:
            if not is_new:
                self._directory.check_database()
            self._handles = _Handles(self._directory, self._cache, self._write_buffers, create=is_new)
            if is_new:
                self._directory.created()
        except Exception as error:
            self._close_handles()
            if str(error).startswith("Invalid argument"):  # a database, but not one of ours
                raise self.met(error) from error
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> LogError:
        """What to raise for what rocksdict raised; damage is remembered."""
        # An iterator in a frame of the traceback would hold the database open for as long as somebody keeps the error.
        error = error.with_traceback(None)
        return self.met(error) if is_damage(error) else _explained(error, self._directory)

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

    def __init__(
        self, directory: Directory, cache: Cache, write_buffers: WriteBufferManager, *, create: bool
    ) -> None:
        options = _options(cache, write_buffers)
        options.create_if_missing(create)
        options.create_missing_column_families(create)
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
    # RocksDB's default, and what all of this stands on: files are checked to be there when it opens, and what its own
    # compaction cannot read stops all writes instead of being left out.
    options.set_paranoid_checks(True)
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_max_open_files(256)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(4 * 1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _rows(family: Rdict, first: bytes, stop: bytes, rows_max: int) -> Rows:
    iterator = family.iter(_below(stop))
    iterator.seek(first)
    # Bound methods and no call in between: 0.4 us per row, and a bulk read is made of these.
    key_here, value_here, go_on = iterator.key, iterator.value, iterator.next
    rows: Rows = []
    size = 0
    while (key := key_here()) is not None:
        value: bytes = value_here()
        rows.append((key, value))
        size += len(value)
        if len(rows) >= rows_max or size >= READ_BYTES_MAX:
            return rows
        go_on()
    iterator.status()
    return rows


def _last_row(family: Rdict, first: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
    iterator = family.iter(_below(stop))
    iterator.seek_for_prev(stop)
    key: bytes | None = iterator.key()
    if key is None:
        iterator.status()
        return None
    return (key, iterator.value()) if key >= first else None


def _below(stop: bytes) -> ReadOptions:
    """Without a lower bound: what rocksdict calls set_iterate_lower_bound sets the upper one (0.3.29; measured)."""
    options = ReadOptions()
    options.set_iterate_upper_bound(stop)
    options.set_verify_checksums(True)  # of each block that comes from the disk; the default, too
    return options


def is_damage(error: Exception) -> bool:
    """Whether what is stored is not what was written. RocksDB's errors have no class of their own, but a text."""
    if isinstance(error, LogError):
        return isinstance(error, LogCorrupt)
    text = str(error)
    return text.startswith(("Corruption", "Not implemented")) or "No such file" in text


def is_without_space(error: Exception) -> bool:
    """Whether the disk is full, or a quota or a limit of the process is reached."""
    return any(reason in str(error) for reason in _WITHOUT_SPACE)


def _explained(error: Exception, directory: Directory) -> LogError:
    """What is no damage."""
    text = str(error)
    where = directory.path
    if isinstance(error, LogError):
        return error
    if "lock hold by current process" in text or "While lock file" in text:
        return LogLocked(f"the database in {where} is held open by something that is no Tocsin node: {text}")
    if is_without_space(error):
        return LogFull(f"{where} is full, so the log cannot be opened: free some space and go on ({text})")
    return LogUnavailable(f"the log in {where} cannot be read or written: {text}")
