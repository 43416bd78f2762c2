"""Which log the state in a directory was made from.

Offsets cannot tell: with another log the stores would look as if theirs had been lost, or cut off, or made anew, and would
be wiped, or refused for a reason that is none. So the log's id is noted beside them, and no other log is let at them.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tocsin.streams.rocks import StoreError

FILE: Final = "ORIGIN"


class ForeignState(StoreError, RuntimeError):
    """The directory holds the state of another log. Choose another directory, or remove it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A log."""

    cluster: str
    """Its id, as in the cluster record."""
    where: str
    """What to call it."""


class StateDirectory:
    """The directory of the stores of one process, which works on the log called `where`."""

    def __init__(self, path: Path, *, where: str) -> None:
        self._path = path
        self._where = where
        self._cluster = ""

    def claim(self, cluster: str) -> None:
        """The directory is that log's from now on. Raises ForeignState if there are stores in it that are another's."""
        found = self.origin(self._path)
        if cluster and found is not None and found.cluster != cluster and has_stores(self._path):
            raise ForeignState(self._refusal(found))
        self._cluster = "" if found is None or found.where != self._where else found.cluster
        self.follow(cluster)

    def follow(self, cluster: str) -> None:
        """The log's id is this now: of two processes that made the cluster at the same time, the later one's id stays."""
        if not cluster or cluster == self._cluster:
            return
        self._note(Origin(cluster=cluster, where=self._where))
        self._cluster = cluster

    @staticmethod
    def origin(path: Path) -> Origin | None:
        """What was noted; None: nothing that could be read, so that nothing speaks against any log."""
        try:
            noted = json.loads((path / FILE).read_bytes())
            cluster, where = noted["cluster"], noted["where"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return Origin(cluster=cluster, where=where) if isinstance(cluster, str) else None

    def _note(self, origin: Origin) -> None:
        """Never half of it; not synced, as the stores are not."""
        new = self._path / f"{FILE}.new"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(asdict(origin)) + "\n")
            new.replace(self._path / FILE)
        except OSError as error:
            raise StoreError(f"{self._path} cannot hold the state: {error.strerror or error}") from error

    def _refusal(self, found: Origin) -> str:
        if found.where == self._where:
            return (
                f"{self._where} is not the one that the state in {self._path} was made from: restore that one from a backup, "
                f"or remove {self._path} to go on without its jobs. Nothing was changed"
            )
        return foreign(self._path, found.where, self._where)


def foreign(path: Path, theirs: str, ours: str) -> str:
    """What to do about state of one log where that of another is to be."""
    return (
        f"{path} holds the state of another log ({theirs}), and this is {ours}: choose another folder with --data, or "
        f"remove {path} if that log is not used any more. Nothing was changed"
    )


def has_stores(path: Path) -> bool:
    """Whether any partition's store was ever made in the directory."""
    return any(path.glob("*/CURRENT"))
