"""The directory of an embedded log: who has it open, which format it has, how much room is left."""

import fcntl
import os
from pathlib import Path
from typing import Final

from tocsin.log.port import LogCorrupt, LogLocked, LogUnavailable

FORMAT: Final = "tocsin embedded log, format 1\n"
"""Raised by one with each change of the layout that an older version cannot read."""

_FORMAT_FILE: Final = "FORMAT"
_DRAFT_FILE: Final = "FORMAT.new"
_DATABASE: Final = "rocksdb"
_LOCK_FILE: Final = "LOCK"


class Directory:
    """A directory that this process alone has open, until release().

    FORMAT stands for a database that was created: it gets its name last, from a draft that is written first. So where it
    is, a missing database is a lost one, and where only the draft is, nothing was ever acknowledged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / _DATABASE
        self.is_new = False
        """Whether a database may be created here. Only until created()."""
        self._lock_fd = -1

    @classmethod
    def acquire(cls, path: Path) -> "Directory":
        """Lock the directory, which is created if missing, and check its format.

        Raises LogLocked, LogCorrupt, or LogUnavailable if the path cannot be used as a directory.
        """
        directory = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            directory._lock()
            directory._check_format()
        except FileExistsError:
            raise LogUnavailable(f"{path} is not a directory: name one for the log's data") from None
        except OSError as error:
            directory.release()
            if isinstance(error, LogUnavailable):
                raise
            raise LogUnavailable(f"the log's directory {path} cannot be used: {error.strerror}") from error
        except BaseException:
            directory.release()
            raise
        return directory

    @staticmethod
    def holds_log(path: Path) -> bool:
        """Whether a log was ever created here, whatever became of it."""
        return (path / _FORMAT_FILE).exists() or (path / _DATABASE).exists()

    def created(self) -> None:
        """The database stands: from now on it must be there."""
        (self.path / _DRAFT_FILE).replace(self.path / _FORMAT_FILE)
        for entry_of in (self.path, self.path.parent):
            _sync(entry_of)
        self.is_new = False

    def check_database(self) -> None:
        """Raises LogCorrupt if the database, or a part that RocksDB would not miss, was taken away."""
        if not (self.database / "CURRENT").exists():
            what = (
                f"{self.database} holds no database" if self.database.exists() else f"{self.database} is gone"
            )
            raise LogCorrupt(
                f"the log in {self.path} is lost: {what}, though {_FORMAT_FILE} says that there was one. Restore the "
                f"directory from a backup; or, to start anew without any job, remove it, and the state directory with it"
            )
        # RocksDB always has one, and opens without: what was acknowledged last would be missing without a word.
        if not any(self.database.glob("*.log")):
            raise LogCorrupt(
                f"the log in {self.path} is damaged: the write-ahead log ({self.database}/*.log) is gone, and with it "
                f"what was written last. These are no log files to be cleaned up. Keep a copy of the directory, and "
                f"restore it from a backup"
            )

    def release(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def free_bytes(self) -> int:
        """Bytes that this process may still write where the log lives."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _lock(self) -> None:
        # flock belongs to the open file: it also keeps a second log of this process out, and ends with the process.
        fd = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip()
            os.close(fd)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise LogLocked(
                f"the log in {self.path} is open in {who}: one node owns one directory; "
                f"stop that node, or give this one a directory of its own"
            ) from None
        self._lock_fd = fd
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)

    def _check_format(self) -> None:
        file = self.path / _FORMAT_FILE
        try:
            found = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self._prepare()
            return
        if found != FORMAT:
            raise LogCorrupt(
                f"{file} says {found.strip()[:80]!r}; this version of Tocsin reads {FORMAT.strip()!r}: "
                f"start the version that wrote it, or give this one another directory"
            )

    def _prepare(self) -> None:
        """Write the draft of FORMAT, if there is nothing here but what an interrupted creation leaves."""
        draft = self.path / _DRAFT_FILE
        ours = {_LOCK_FILE, _DRAFT_FILE}
        if draft.exists():
            ours.add(_DATABASE)
        elif self.database.exists():
            raise LogCorrupt(
                f"the log in {self.path} is damaged: {_FORMAT_FILE} is gone, and {self.database} is still there. "
                f"Restore the directory from a backup"
            )
        strangers = sorted(p.name for p in self.path.iterdir() if p.name not in ours)
        if strangers:
            raise LogCorrupt(
                f"{self.path} holds no log but other files ({', '.join(strangers[:3])}): name an empty directory"
            )
        with draft.open("w", encoding="utf-8") as handle:
            handle.write(FORMAT)
            handle.flush()
            os.fsync(handle.fileno())
        _sync(self.path)
        self.is_new = True


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
