"""The one row that says what a store holds: written with every batch, so that it is true whatever was lost."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from tocsin.schemas.rows import JobRow
from tocsin.streams.families import Row
from tocsin.streams.timers import RANGES, TIMED, TimerRange, first_of

LAYOUT: Final = 1
"""Of the store as a whole: its families, its keys and this row. Rows have a layout byte of their own."""

META_KEY: Final = b"meta"

Phase = Literal["replaying", "ready"]
"""replaying: the rows are those of some point of the changelog, and have no timers yet. ready: they have."""

_PHASES: Final[tuple[Phase, ...]] = ("replaying", "ready")
_FIXED: Final = struct.Struct(">BBqqq")


class UnknownStoreLayout(ValueError):
    """The row begins with a layout that this version does not know."""

    def __init__(self, layout: int) -> None:
        self.layout = layout
        super().__init__(f"layout {layout} is unknown; this version knows layout {LAYOUT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a commit has reached on the log."""

    journal: bytes
    """The newest journal row, as it stands on the log."""
    changelog_offset: int
    """The next offset of the partition's `state` to read."""
    changelog_time_ms: int
    """The log timestamp of the last record below it."""
    runs_offset: int = -1
    """The next offset of the partition's `runs`: every event below it is in the rings. -1: this commit wrote none."""


def _lows() -> dict[TimerRange, bytes]:
    return {lane: first_of(lane) for lane in RANGES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """As of the last batch."""

    phase: Phase
    journal: bytes = b""
    changelog_offset: int = -1
    """-1: nothing was read of it."""
    changelog_time_ms: int = 0
    runs_offset: int = -1
    """-1: nothing was read of it."""
    lows: Mapping[TimerRange, bytes] = field(default_factory=_lows)
    """No stored timer of the range sorts below this key."""
    counts: Mapping[str, int] = field(default_factory=lambda: {family.name: 0 for family in TIMED})
    """Rows by family; of `state`, the jobs that are defined."""

    @property
    def position(self) -> Position:
        return Position(
            journal=self.journal,
            changelog_offset=self.changelog_offset,
            changelog_time_ms=self.changelog_time_ms,
            runs_offset=self.runs_offset,
        )

    def after(
        self,
        position: Position,
        grown: Mapping[str, int],
        lows: Mapping[TimerRange, bytes],
        *,
        runs_offset: int,
    ) -> "Meta":
        """After a commit that reached `position`."""
        return Meta(
            phase=self.phase,
            journal=position.journal,
            changelog_offset=position.changelog_offset,
            changelog_time_ms=position.changelog_time_ms,
            runs_offset=runs_offset,
            lows=lows,
            counts={name: count + grown.get(name, 0) for name, count in self.counts.items()},
        )

    def encode(self) -> bytes:
        fixed = _FIXED.pack(
            LAYOUT,
            _PHASES.index(self.phase),
            self.changelog_offset,
            self.changelog_time_ms,
            self.runs_offset,
        )
        counts = b"".join(self.counts[family.name].to_bytes(8) for family in TIMED)
        sized = (self.lows[lane] for lane in RANGES)
        return b"".join((fixed, counts, *(len(low).to_bytes(4) + low for low in sized), self.journal))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises UnknownStoreLayout, or ValueError for what was cut off."""
        if data[:1] != bytes((LAYOUT,)):
            raise UnknownStoreLayout(data[0] if data else -1)
        try:
            _, phase, changelog_offset, changelog_time_ms, runs_offset = _FIXED.unpack_from(data)
        except struct.error as error:
            raise ValueError(f"the row of {len(data)} bytes was cut off") from error
        at = _FIXED.size
        counts = {}
        for family in TIMED:
            counts[family.name] = int.from_bytes(data[at : at + 8])
            at += 8
        lows: dict[TimerRange, bytes] = {}
        for lane in RANGES:
            size = int.from_bytes(data[at : at + 4])
            at += 4 + size
            lows[lane] = data[at - size : at]
        if at > len(data):
            raise ValueError(f"the row of {len(data)} bytes was cut off")
        return cls(
            phase=_PHASES[phase],
            journal=data[at:],
            changelog_offset=changelog_offset,
            changelog_time_ms=changelog_time_ms,
            runs_offset=runs_offset,
            lows=lows,
            counts=counts,
        )


def counts_as_one(row: Row | None) -> bool:
    """Whether the row is one of those that Meta.counts counts: of jobs, only those with a definition in force."""
    match row:
        case None:
            return False
        case JobRow():
            return row.revision > 0 and row.deleted_ms == 0
        case _:
            return True
