"""The directory of an embedded log: who has it open, which format it has, how much room is left."""

import fcntl
import os
from pathlib import Path
from typing import Final

from tocsin.log.port import LogCorrupt, LogLocked, LogUnavailable

FORMAT: Final = "tocsin embedded log, format 1\n"
"""Raised by one with each change of the layout that an older version cannot read."""

_FORMAT_FILE: Final = "FORMAT"
_LOCK_FILE: Final = "LOCK"


class Directory:
    """A directory that this process alone has open, until release()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "rocksdb"
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
            self._create(file)
            return
        if found != FORMAT:
            raise LogCorrupt(
                f"{file} says {found.strip()[:80]!r}; this version of Tocsin reads {FORMAT.strip()!r}: "
                f"start the version that wrote it, or give this one another directory"
            )

    def _create(self, file: Path) -> None:
        strangers = sorted(
            p.name for p in self.path.iterdir() if p.name not in (_LOCK_FILE, f"{_FORMAT_FILE}.new")
        )
        if strangers:
            raise LogCorrupt(
                f"{self.path} holds no log but other files ({', '.join(strangers[:3])}): name an empty directory"
            )
        draft = file.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as handle:
            handle.write(FORMAT)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(file)
        directory_fd = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory_fd)
        finally:
            os.close(directory_fd)
