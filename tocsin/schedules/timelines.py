"""What a clock change does to an expression, compiled once per zone and policy.

A timeline is a sequence of pieces of real time. On a piece, an expression fires at the instants whose local
reading (the instant plus the piece's offset) it names. A policy is only a choice of pieces:

* starred: the whole of every stretch between two changes. What is skipped has no instant; what is repeated
  has two.
* fixed, ``fold``: where readings are repeated, ``first`` begins the later stretch after them, ``second`` ends
  the earlier one before them, ``both`` keeps all.
* fixed, ``gap``: ``at_end`` adds one instant, the first after the gap, which fires if any skipped reading is
  named; ``shift`` adds a piece as long as the gap that starts at its end and goes on counting with the offset
  before it; ``skip`` adds nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from tocsin.schedules.zones import BEGINNING_S, END_S, Span, Zone

Gap = Literal["at_end", "skip", "shift"]
Fold = Literal["first", "second", "both"]
GAPS: Final[tuple[Gap, ...]] = ("at_end", "skip", "shift")
FOLDS: Final[tuple[Fold, ...]] = ("first", "second", "both")


class Timeline(NamedTuple):
    """Pieces in order of their start; parallel sequences, since a search touches two or three of them only."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]  # exclusive
    offsets: tuple[int, ...]
    windows: tuple[tuple[int, int] | None, ...]  # of an instant after a gap: the skipped readings [low, high)
    leads: tuple[int, ...]  # the earliest piece that has not ended when this one starts
    reaches: tuple[int, ...]  # the latest end of all earlier pieces
    alone_from: tuple[int, ...]  # from when on no other piece overlaps this one; END_S if a later one does
    search_until_s: int  # sixty years from any earlier instant are covered


@lru_cache(maxsize=8192)  # all zones in their usual forms
def timeline(zone: Zone, starred: bool, gap: Gap, fold: Fold, far: bool) -> Timeline:
    """The pieces for expressions of that kind in a zone."""
    span = zone.far if far else zone.near
    pieces = sorted(_pieces(span, starred, gap, fold))
    leads: list[int] = []
    reaches: list[int] = []
    reach = BEGINNING_S
    for index, piece in enumerate(pieces):
        reaches.append(reach)
        lead = index
        while reaches[lead] > piece.start:
            lead -= 1
        leads.append(lead)
        reach = max(reach, piece.end)
    return Timeline(
        starts=tuple(piece.start for piece in pieces),
        ends=tuple(piece.end for piece in pieces),
        offsets=tuple(piece.offset for piece in pieces),
        windows=tuple(piece.window for piece in pieces),
        leads=tuple(leads),
        reaches=tuple(reaches),
        alone_from=tuple(
            END_S if later is not None and later.start < piece.end else reach
            for piece, later, reach in zip(pieces, [*pieces[1:], None], reaches, strict=True)
        ),
        search_until_s=span.search_until_s,
    )


class _Piece(NamedTuple):
    start: int
    rank: int  # where starts are equal, what lasts longest comes last: a search looks there first
    end: int
    offset: int
    window: tuple[int, int] | None


def _pieces(span: Span, starred: bool, gap: Gap, fold: Fold) -> list[_Piece]:
    pieces: list[_Piece] = []
    edges = (BEGINNING_S, *span.transitions, END_S)
    read_until = BEGINNING_S  # every reading below this was read or skipped before
    for index, offset in enumerate(span.offsets):
        start, end = edges[index], edges[index + 1]
        first = start + offset if index else BEGINNING_S
        if index and read_until < first and not starred:
            if gap == "at_end":
                pieces.append(_Piece(start, 0, start + 1, offset, (read_until, first)))
            elif gap == "shift":
                pieces.append(_Piece(start, 1, start + first - read_until, read_until - start, None))
        piece_start, piece_end = start, end
        if not starred and fold == "first" and index:
            piece_start = max(start, read_until - offset)
        if not starred and fold == "second" and index + 1 < len(span.offsets):
            piece_end = min(end, end + span.offsets[index + 1] - offset)
        if piece_start < piece_end:
            pieces.append(_Piece(piece_start, 2, piece_end, offset, None))
        read_until = max(read_until, end + offset)
    return pieces
