"""RocksDB as the state stores use it: one set of options, errors with a name, and reads that cannot end in silence.

What one has to know of rocksdict (0.3.29; measured, and read in its source):
- A handle of a column family, and every iterator, keeps the database open, also after close() of it: the lock is released
  when the last of them is gone. So all of them live here, and close() drops them.
- Dropping the last handle closes without flushing (the write-ahead log has it); Rdict.close() syncs and flushes first.
- Iterators made by keys() and items() end in silence at a read error, as if there were nothing more. Only a raw iterator
  tells, by status(); so nothing else is used.
- Reads, iterators and writes may be used from any thread, and hold the GIL: a write that RocksDB stalls stops the process.
  So batches stay within a few MB, and the limits that would stall a write are set out of reach.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, Self, cast
from weakref import WeakSet

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ColumnFamily,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from tocsin.streams.families import COLUMN_FAMILIES, HISTORY

Getter = Callable[[bytes], bytes | None]

MEMTABLE_BYTES_MAX: Final = 16 << 20
"""Of one family of one partition."""

OPEN_FILES_MAX: Final = 64
"""Per partition: twelve of them and their sockets stay within the 1,024 files that a process may have by default."""

TOMBSTONES_WINDOW: Final = 10_000
TOMBSTONES_IN_WINDOW: Final = 5_000
"""A file in which half of some 10,000 neighbouring entries are tombstones is compacted soon: rows that come and go leave
one behind for each (measured: a scan over 200,000 of them takes 17-44 ms)."""


class StoreError(Exception):
    """The state store failed. The partition has to be closed; what to do next is said by the subclass."""


class StoreLocked(StoreError, RuntimeError):
    """Another process (or another store of this one) has the directory open. One owner at a time."""


class StoreCorrupt(StoreError, ValueError):
    """What is on disk cannot be read. Remove the directory: it is rebuilt from the changelog."""


class StoreFull(StoreError, OSError):
    """The disk is full. Nothing of the refused batch was kept. Free space, then open the store again."""


class StoreClosed(StoreError, RuntimeError):
    """The store was closed: the partition is no longer here."""


class UnknownLayout(StoreError, RuntimeError):
    """A newer version wrote this store. Start that version, or remove the directory: it is rebuilt from the changelog."""


_FULL: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def translated(error: Exception, path: Path) -> StoreError:
    """rocksdict raises bare Exception; its text says what happened."""
    text = str(error)
    if any(reason in text for reason in _FULL):
        return StoreFull(f"{path}: no space is left ({text}); free some, then open the store again")
    if "lock hold by current process" in text or "While lock file" in text:
        return StoreLocked(f"{path} is open in another process, or twice in this one ({text})")
    if "Column families not opened" in text:
        return UnknownLayout(
            f"{path}: a newer version wrote this store ({text}); start that one, or remove it"
        )
    if text.startswith(("Corruption", "Not implemented", "Invalid argument")) or "No such file" in text:
        return StoreCorrupt(
            f"{path}: cannot be read ({text}); remove it, and it is rebuilt from the changelog"
        )
    return StoreError(f"{path}: {text}")


class StoreEnvironment:
    """What all stores of a process share: one block cache (write buffers are charged to it), one budget of decoded rows.

    So memory does not grow with the partitions: cache_bytes + row_cache_bytes, and what lies in the views uncommitted.
    """

    def __init__(
        self,
        *,
        cache_bytes: int = 256 << 20,
        write_buffer_bytes: int = 96 << 20,
        row_cache_bytes: int = 128 << 20,
    ) -> None:
        if not 0 < write_buffer_bytes <= cache_bytes:
            raise ValueError(
                f"write_buffer_bytes ({write_buffer_bytes}) must be in 1..cache_bytes ({cache_bytes})"
            )
        self._cache = Cache(cache_bytes)
        self._write_buffer_bytes = write_buffer_bytes
        self._row_cache_bytes = row_cache_bytes
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            write_buffer_bytes, False, self._cache
        )
        self._open: WeakSet[Database] = WeakSet()
        self._written = 0

    @property
    def row_cache_share(self) -> int:
        """The bytes of decoded rows that each open store may keep."""
        return self._row_cache_bytes // max(1, len(self._open))

    @property
    def usage_bytes(self) -> int:
        """Blocks and write buffers of all stores."""
        return self._cache.get_usage()

    def options(self, name: str) -> Options:
        """Of the column family `name`, or ("") of the database."""
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
        table.set_format_version(5)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(min(MEMTABLE_BYTES_MAX, self._write_buffer_bytes // 4))
        options.set_arena_block_size(128 << 10)  # a memtable takes at least one, and there are over a hundred
        options.set_max_write_buffer_number(4)
        options.set_level_zero_slowdown_writes_trigger(64)
        options.set_level_zero_stop_writes_trigger(128)
        options.set_soft_pending_compaction_bytes_limit(0)
        options.set_hard_pending_compaction_bytes_limit(0)
        if name != HISTORY:  # rings are overwritten, never deleted
            options.add_compact_on_deletion_collector_factory(TOMBSTONES_WINDOW, TOMBSTONES_IN_WINDOW, 0.5)
        if not name:
            self._database(options)
        return options

    def _database(self, options: Options) -> None:
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_manager(self._buffers)
        options.set_max_background_jobs(2)
        options.set_max_open_files(OPEN_FILES_MAX)
        options.set_max_total_wal_size(2 * self._write_buffer_bytes)
        options.set_avoid_unnecessary_blocking_io(True)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)

    def opened(self, database: "Database") -> None:
        self._open.add(database)

    def wrote(self, size: int) -> None:
        """Flush the store with the largest write buffers before their common limit is reached.

        RocksDB keeps that limit by flushing whichever store writes next, so stores that idle with full buffers would
        make a busy one flush at every batch.
        """
        self._written += size
        if self._written < self._write_buffer_bytes // 16:
            return
        self._written = 0
        # Not what the manager counts: that holds buffers which are being flushed already, and flushing a store again
        # before it is done waits for it (measured: 70-285 ms in the loop).
        sizes = {database: database.buffered_bytes() for database in self._open}
        if sizes and sum(sizes.values()) > self._write_buffer_bytes * 3 // 4:
            max(sizes, key=sizes.__getitem__).flush()


class Scan:
    """A raw iterator over the keys of [lower, upper) of one family, which raises where it cannot read."""

    __slots__ = ("__weakref__", "_iterator", "_path", "next", "value")

    def __init__(self, iterator: RdictIter, path: Path) -> None:
        self._iterator: RdictIter | None = iterator
        self._path = path
        self.next: Callable[[], None] = iterator.next
        self.value: Callable[[], bytes] = iterator.value

    def key(self) -> bytes | None:
        """The key it stands at; None: it is past the end. Raises StoreCorrupt, or StoreClosed."""
        if self._iterator is None:
            self._closed()
        key: bytes | None = self._iterator.key()
        if key is None:
            try:
                self._iterator.status()
            except Exception as error:
                raise translated(error, self._path) from error
        return key

    def drop(self) -> None:
        """Let go of the database: whoever still asks is told that it was closed."""
        self._iterator = None
        self.next = self.value = self._closed

    def _closed(self) -> NoReturn:
        raise StoreClosed(f"{self._path} was closed")


class Database:
    """One partition's RocksDB: the only holder of its handles. Batches, reads and scans may come from any thread."""

    def __init__(self, path: Path, environment: StoreEnvironment) -> None:
        """Opens, or creates. Raises StoreError."""
        self.path = path
        self.environment = environment
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db: Any = Rdict(
                str(path),
                environment.options(""),
                column_families={name: environment.options(name) for name in COLUMN_FAMILIES},
            )
            self._families: dict[str, Rdict] = {
                name: self._db.get_column_family(name) for name in COLUMN_FAMILIES
            }
            self.handles: dict[str, ColumnFamily] = {
                name: self._db.get_column_family_handle(name) for name in COLUMN_FAMILIES
            }
        except Exception as error:
            raise translated(error, path) from error
        self._scans: WeakSet[Scan] = WeakSet()
        environment.opened(self)

    def _family(self, name: str) -> Rdict:
        try:
            return self._families[name]
        except KeyError:
            raise StoreClosed(f"{self.path} was closed") from None

    def getter(self, name: str) -> Getter:
        """A function that reads one key of a family. Whoever keeps it keeps the database open."""
        read = self._family(name).get
        path = self.path

        def get(key: bytes) -> bytes | None:
            try:
                value: bytes | None = read(key)
            except Exception as error:
                raise translated(error, path) from error
            return value

        return get

    def get(self, name: str, key: bytes) -> bytes | None:
        family = self._family(name)
        try:
            value: bytes | None = family.get(key)
        except Exception as error:
            raise translated(error, self.path) from error
        return value

    def get_all(self, name: str, keys: list[bytes]) -> list[bytes | None]:
        family = self._family(name)
        try:
            values: list[bytes | None] = family.get(cast(list[Any], keys))  # type: ignore[assignment]
        except Exception as error:
            raise translated(error, self.path) from error
        return values

    def scan(self, name: str, lower: bytes, upper: bytes) -> Scan:
        """Stands at the first key of [lower, upper). It sees what was committed when it was made."""
        options = ReadOptions()
        options.set_iterate_upper_bound(upper)
        iterator = self._family(name).iter(options)
        iterator.seek(lower)
        scan = Scan(iterator, self.path)
        self._scans.add(scan)
        return scan

    def items(
        self, name: str, lower: bytes = b"", upper: bytes = b"\xff" * 8
    ) -> Iterator[tuple[bytes, bytes]]:
        scan = self.scan(name, lower, upper)
        while (key := scan.key()) is not None:
            yield key, scan.value()
            scan.next()

    def write(self, batch: WriteBatch) -> None:
        """All of the batch or nothing. Raises StoreError."""
        size = batch.size_in_bytes()
        try:
            self._db.write(batch)
        except Exception as error:
            raise translated(error, self.path) from error
        self.environment.wrote(size)

    def number(self, name: str, what: str) -> int:
        """A property of a family, as RocksDB calls it."""
        return self._family(name).property_int_value(f"rocksdb.{what}") or 0

    def buffered_bytes(self) -> int:
        """In write buffers that are not being flushed yet."""
        return sum(self._buffered(name) for name in self._families)

    def _buffered(self, name: str) -> int:
        return self.number(name, "cur-size-active-mem-table")

    def flush(self, *, wait: bool = False) -> None:
        """Write the buffers out. Not needed for safety: it makes room, and the next start fast."""
        least = (
            self.buffered_bytes() // 16
        )  # a file for each family that holds next to nothing would be many files
        try:
            for name, family in self._families.items():
                if self._buffered(name) > least:
                    family.flush(wait)
        except Exception as error:
            raise translated(error, self.path) from error

    def checkpoint(self, path: Path) -> None:
        """The committed state as a database of its own, sharing the files that never change. `path` must not exist."""
        try:
            Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            raise translated(error, path) from error

    def close(self) -> None:
        """Drop every handle. The lock is released once no getter is left, either. Safe twice."""
        for scan in list(self._scans):
            scan.drop()
        self._families = {}
        self.handles = {}
        self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wipe(path: Path) -> None:
    """Remove a database, also a damaged one; nothing happens if there is none. Raises StoreLocked if it is open."""
    if not path.exists():
        return
    try:
        Rdict.destroy(str(path), Options(raw_mode=True))  # asks for the lock first
        shutil.rmtree(path, ignore_errors=True)
    except Exception as error:
        raise translated(error, path) from error
