"""Timers are a pure function of the rows: this module says which timers a row has, and how one is spelled.

Nobody sets or cancels a timer by hand. Whoever changes a row changes its timers with it; the store derives both lists
and writes the difference. So a timer cannot be forgotten, and cannot outlive its reason.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal, NamedTuple, Self, assert_never

from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, JobRow, PendingRow, RunRow
from tocsin.streams.families import (
    DEAD,
    DEFINITIONS,
    PENDING,
    RUNS,
    STATE,
    Family,
    PendingKind,
    Row,
    split_pending,
)

TimerRange = Literal[b"a", b"e"]
"""b"a": ahead, scanned to now + horizon. b"e": exact, scanned to now (or to what the reports have reached)."""

AHEAD: Final[TimerRange] = b"a"
EXACT: Final[TimerRange] = b"e"
RANGES: Final[tuple[TimerRange, ...]] = (AHEAD, EXACT)

START_DEADLINE_GRACE_MS: Final = 60_000
"""P13: a dispatch without any report is closed this long after its start deadline."""

DUE_MS_MAX: Final = (1 << 62) - 1
_BIAS: Final = 1 << 63
"""Added to due_ms, so that instants before 1970 sort before those after it."""

_HEAD: Final = struct.Struct(">cQB")


class Kind(IntEnum):
    """What a timer is for. Timers of one instant fire in this order."""

    OCCURRENCE = 1
    DECIDE = 2
    RETRY = 3
    LEASE = 4
    START_DEADLINE = 5
    RESUME = 6
    DELETE = 7
    PENDING = 8
    DEAD = 9


class Timer(NamedTuple):
    """One timer. Its encoding sorts by range, instant, kind, job and discriminator, and is its key in the store."""

    range: TimerRange
    due_ms: int
    kind: Kind
    key: bytes
    """The job key."""
    disc: bytes = b""
    """Of a run or dead letter: its seq, 8 bytes. Of a pending row: the letter of its kind, then its name."""

    @property
    def job_key(self) -> JobKey:
        return JobKey(self.key.decode())

    @property
    def seq(self) -> int:
        """Of the run or dead letter that this timer belongs to."""
        return int.from_bytes(self.disc)

    @property
    def pending(self) -> tuple[PendingKind, JobKey, str]:
        """Kind, job and name of the pending row that this timer belongs to."""
        return split_pending(b"%b%b\0%b" % (self.disc[:1], self.key, self.disc[1:]))

    def encode(self) -> bytes:
        return _HEAD.pack(self.range, self.due_ms + _BIAS, self.kind) + self.key + b"\0" + self.disc

    @classmethod
    def decode(cls, data: bytes) -> Self:
        lane, due, kind = _HEAD.unpack_from(data)
        key, _, disc = data[_HEAD.size :].partition(b"\0")
        return cls(lane, due - _BIAS, _KINDS[kind], key, disc)


_KINDS: Final = {int(kind): kind for kind in Kind}


def first_of(lane: TimerRange) -> bytes:
    """Where a range begins: at or below every timer of it."""
    return lane


def end_of(lane: TimerRange) -> bytes:
    """Where a range ends: above every timer of it."""
    return bytes((lane[0] + 1,))


def first_key(lane: TimerRange, due_ms: int) -> bytes:
    """A key at or below every timer of `lane` with that instant or a later one, and above every earlier one."""
    return _HEAD.pack(lane, min(max(due_ms, -DUE_MS_MAX), DUE_MS_MAX) + _BIAS, 0)


def due_of(data: bytes) -> int:
    """The instant of an encoded timer, without decoding the rest."""
    return int.from_bytes(data[1:9]) - _BIAS


def range_of(data: bytes) -> TimerRange:
    """The range of an encoded timer."""
    return AHEAD if data[0] == AHEAD[0] else EXACT


def kind_of(data: bytes) -> int:
    """The kind of an encoded timer."""
    return data[9]


def timers_of(family: Family, key: bytes, row: Row | None) -> tuple[Timer, ...]:
    """Every timer of the row under `key` (its key in the store). None: there is no such row, so it has none."""
    derive = _DERIVE[family.name]
    return () if row is None or derive is None else derive(key, row)


def timer_keys(family: Family, key: bytes, row: Row | None) -> tuple[bytes, ...]:
    """timers_of, encoded."""
    return tuple(map(Timer.encode, timers_of(family, key, row)))


def _of_job(key: bytes, row: JobRow) -> tuple[Timer, ...]:
    timers: tuple[Timer, ...] = ()
    match row.armed:
        case "ahead" | "continue":
            timers = (Timer(AHEAD, row.armed_due_ms, Kind.OCCURRENCE, key),)
        case "exact":
            timers = (Timer(EXACT, row.armed_due_ms, Kind.OCCURRENCE, key),)
        case "none" | "blocked":
            pass
        case _:
            assert_never(row.armed)
    if row.paused and row.paused_until_ms > 0:
        timers += (Timer(EXACT, row.paused_until_ms, Kind.RESUME, key),)
    if row.delete_at_ms > 0:
        timers += (Timer(EXACT, row.delete_at_ms, Kind.DELETE, key),)
    return timers


def _of_run(key: bytes, row: RunRow) -> tuple[Timer, ...]:
    """At most one: a run waits for one thing at a time."""
    job, _, seq = key.partition(b"\0")
    if row.outstanding:
        if row.lease_until_ms > 0:
            return (Timer(EXACT, row.lease_until_ms, Kind.LEASE, job, seq),)
        return (Timer(EXACT, row.start_deadline_ms + START_DEADLINE_GRACE_MS, Kind.START_DEADLINE, job, seq),)
    if row.status == "undecided":
        return (Timer(EXACT, row.due_ms, Kind.DECIDE, job, seq),)
    if row.status == "retrying" and not row.parked:
        return (Timer(AHEAD, row.attempt_due_ms, Kind.RETRY, job, seq),)
    return ()


def _of_pending(key: bytes, row: PendingRow) -> tuple[Timer, ...]:
    job, _, name = key[1:].partition(b"\0")
    return (Timer(EXACT, row.until_ms, Kind.PENDING, job, key[:1] + name),)


def _of_dead(key: bytes, row: DeadRow) -> tuple[Timer, ...]:
    job, _, seq = key.partition(b"\0")
    return (Timer(EXACT, row.until_ms, Kind.DEAD, job, seq),)


# By family, since a definition row of a million jobs must not even be decoded to learn that it has no timers.
_DERIVE: Final[dict[str, Callable[[bytes, "Row"], tuple[Timer, ...]] | None]] = {
    STATE.name: _of_job,  # type: ignore[dict-item]  # a family holds rows of one class
    RUNS.name: _of_run,  # type: ignore[dict-item]
    PENDING.name: _of_pending,  # type: ignore[dict-item]
    DEAD.name: _of_dead,  # type: ignore[dict-item]
    DEFINITIONS.name: None,
}
TIMED: Final = tuple(family for family in (STATE, RUNS, PENDING, DEAD))
"""The families whose rows have timers."""
