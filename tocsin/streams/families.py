"""The families of rows that a partition's state is made of, and how their keys are spelled.

A family is a column family of the store; the five that are not derived also stand on the `state` topic (the changelog),
under one byte for the family and then the same key. Job keys hold no zero byte, so a key can be taken apart again.
"""

from dataclasses import dataclass
from typing import Final, Literal

from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow

Row = JobRow | DefinitionRow | RunRow | PendingRow | DeadRow
PendingKind = Literal["trigger", "parked"]
Ring = Literal["history", "failures"]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A family of rows that the changelog carries. `name` is the column family, `letter` its byte on the changelog."""

    name: str
    letter: bytes
    row: type[Row]


DEFINITIONS: Final = Family("jobs", b"D", DefinitionRow)
STATE: Final = Family("state", b"S", JobRow)
RUNS: Final = Family("runs", b"R", RunRow)
DEAD: Final = Family("dead", b"X", DeadRow)
PENDING: Final = Family("pending", b"P", PendingRow)
FAMILIES: Final = (DEFINITIONS, STATE, RUNS, DEAD, PENDING)

HISTORY: Final = "history"
TIMERS: Final = "timers"
INDEX: Final = "index"
META: Final = "meta"
DERIVED: Final = (HISTORY, TIMERS, INDEX)
COLUMN_FAMILIES: Final = (*(family.name for family in FAMILIES), *DERIVED, META)

JOURNAL_KEY: Final = b"J"
"""The changelog key of the newest journal row."""

RING_SIZES: Final[dict[Ring, int]] = {"history": 20, "failures": 5}
"""Slots per job, unless the cluster says otherwise (Cluster.history_size)."""

_BY_LETTER: Final = {family.letter[0]: family for family in FAMILIES}
_PENDING_LETTERS: Final[dict[str, bytes]] = {"trigger": b"t", "parked": b"p"}
_PENDING_KINDS: Final[dict[int, PendingKind]] = {ord("t"): "trigger", ord("p"): "parked"}
_RING_LETTERS: Final[dict[Ring, bytes]] = {"history": b"h", "failures": b"f"}


class UnknownFamily(ValueError):
    """A changelog key names a family that this version does not know: a newer one wrote it. Upgrade this process."""


# --- keys of rows -----------------------------------------------------------------------------------------------


def state_key(key: JobKey) -> bytes:
    return key.encode()


def definition_key(key: JobKey, revision: int) -> bytes:
    return b"%b\0%b" % (key.encode(), revision.to_bytes(8))


def run_key(key: JobKey, seq: int) -> bytes:
    """Of an open run, and of a dead letter."""
    return b"%b\0%b" % (key.encode(), seq.to_bytes(8))


def pending_key(kind: PendingKind, key: JobKey, name: str) -> bytes:
    """`name` tells the pending rows of one job apart: the trigger id, or the offset of a parked command."""
    return b"%b%b\0%b" % (_PENDING_LETTERS[kind], key.encode(), name.encode())


def split_numbered(key: bytes) -> tuple[JobKey, int]:
    """The job key and the revision or seq of a definition, run or dead letter."""
    job, _, number = key.partition(b"\0")
    return JobKey(job.decode()), int.from_bytes(number)


def split_pending(key: bytes) -> tuple[PendingKind, JobKey, str]:
    job, _, name = key[1:].partition(b"\0")
    return _PENDING_KINDS[key[0]], JobKey(job.decode()), name.decode()


def history_key(ring: Ring, key: JobKey, slot: int) -> bytes:
    """`slot` is the event's counter modulo the size of the ring."""
    return b"%b%b\0%b" % (_RING_LETTERS[ring], key.encode(), slot.to_bytes(4))


def history_prefix(ring: Ring, key: JobKey) -> bytes:
    return b"%b%b\0" % (_RING_LETTERS[ring], key.encode())


def ring_value(counter: int, event: bytes) -> bytes:
    """What a slot holds: the event's counter (so that rings are sorted without decoding them), and the event."""
    return counter.to_bytes(8) + event


def split_ring_value(data: bytes) -> tuple[int, bytes]:
    return int.from_bytes(data[:8]), data[8:]


# --- keys on the changelog --------------------------------------------------------------------------------------


def changelog_key(family: Family, key: bytes) -> bytes:
    return family.letter + key


def split_changelog_key(data: bytes) -> tuple[Family, bytes]:
    """The inverse of changelog_key. Raises UnknownFamily (JOURNAL_KEY is no family's: look for it first)."""
    family = _BY_LETTER.get(data[0]) if len(data) > 1 else None
    if family is None:
        raise UnknownFamily(
            f"changelog key {data[:64]!r} names no family of {', '.join(f.name for f in FAMILIES)}: "
            "a newer version wrote it; upgrade this process"
        )
    return family, data[1:]
