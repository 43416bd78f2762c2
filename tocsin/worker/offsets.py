"""Which offsets of one lane are finished, and how that is written into an offset commit (W2, W9).

Runs end in any order, while Kafka commits one number: the lowest unfinished offset. The finished offsets above it
travel in the metadata of the same commit, as a bit set in base64 (Confluent's Parallel Consumer does it, too), so that
the next owner does not execute them again.
"""

import base64
import binascii
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tocsin.log.port import OFFSET_METADATA_BYTES_MAX

WINDOW_MAX: Final = 20_000
"""Highest fetched minus lowest unfinished offset (W9): 20,000 bits are 2,500 bytes are 3,336 characters of base64."""

_LAYOUT: Final = "1"
_BITS_BYTES_MAX: Final = (OFFSET_METADATA_BYTES_MAX - 40) // 4 * 3
"""With 40 characters for layout and epoch. Never reached while W9 holds."""


class CommittedLane(NamedTuple):
    """What a commit says of one lane, besides its offset."""

    epoch: int
    finished: frozenset[int]
    """Offsets above the committed one."""


class ForeignMetadata(ValueError):
    """The committed metadata was not written by a worker of a known layout (a tool has set the group's offsets, say).

    Nothing is known of the offsets above the committed one, so they are all fetched again.
    """


def write_metadata(epoch: int, bits: bytes) -> str:
    return f"{_LAYOUT}:{epoch}:{base64.b64encode(bits[:_BITS_BYTES_MAX]).decode()}"


def read_metadata(offset: int, metadata: str) -> CommittedLane:
    """What was written by write_metadata with `offset`. Raises ForeignMetadata."""
    parts = metadata.split(":")
    if len(parts) != 3 or parts[0] != _LAYOUT or not parts[1].isdecimal():
        raise ForeignMetadata(f"not metadata of a worker: {metadata[:80]!r}")
    try:
        bits = base64.b64decode(parts[2], validate=True)
    except binascii.Error as error:
        raise ForeignMetadata(f"not a bit set in base64: {metadata[:80]!r}") from error
    finished = (
        offset + 8 * index + bit
        for index, byte in enumerate(bits)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    )
    return CommittedLane(int(parts[1]), frozenset(finished))


class OffsetTracker:
    """The offsets of one lane, from the lowest unfinished one on.

    Everything below `position` was fetched: it is unfinished, or it is finished. Offsets that were never delivered
    (transaction markers, aborted records) are finished as soon as the position has passed them.
    """

    __slots__ = ("_ahead", "_bits", "_order", "_unfinished", "position")

    def __init__(self, position: int, finished_ahead: Iterable[int] = ()) -> None:
        self.position = position
        self._ahead = {offset for offset in finished_ahead if offset >= position}
        self._unfinished: set[int] = set()
        # The order of delivery. Its head is dropped when it is found to be finished, so finding the lowest unfinished
        # offset costs one step for each record, whatever the order in which they end.
        self._order: deque[int] = deque()
        self._bits: bytes | None = None

    def is_finished(self, offset: int) -> bool:
        """Whether a record at or above the position is known to be finished by an earlier owner."""
        return offset in self._ahead

    def deliver(self, offset: int) -> bool:
        """The record at `offset` was fetched. Returns whether it is unfinished, and is then to be finished."""
        assert offset >= self.position, f"{offset} was delivered after {self.position - 1}"
        self.position = offset + 1
        self._bits = None
        if offset in self._ahead:
            self._ahead.discard(offset)
            return False
        self._unfinished.add(offset)
        self._order.append(offset)
        return True

    def advance(self, position: int) -> None:
        """Everything below `position` that can be delivered was delivered."""
        if position > self.position:
            self.position = position
            self._bits = None

    def finish(self, offset: int) -> None:
        """Nothing remains to be done for the record at `offset`. Safe twice."""
        if offset in self._unfinished:
            self._unfinished.discard(offset)
            self._bits = None

    def low(self) -> int:
        """The lowest unfinished offset: what is committed."""
        order, unfinished = self._order, self._unfinished
        while order and order[0] not in unfinished:
            order.popleft()
        return order[0] if order else self.position

    def unfinished(self) -> int:
        return len(self._unfinished)

    def bits(self) -> bytes:
        """The finished offsets above low(): bit i of the set is offset low() + i. Empty if there is none."""
        if self._bits is None:
            self._bits = self._make_bits()
        return self._bits

    def _make_bits(self) -> bytes:
        low, fetched = self.low(), self.position
        # An earlier owner's holes are holes for us, too: never delivered, and below the position by now.
        self._ahead = {offset for offset in self._ahead if offset >= fetched}
        if not self._ahead and len(self._unfinished) == fetched - low:
            return b""
        end = max(fetched, max(self._ahead) + 1) if self._ahead else fetched
        bits = bytearray(((1 << (fetched - low)) - 1).to_bytes((end - low + 7) // 8, "little"))
        for offset in self._unfinished:
            at = offset - low
            bits[at >> 3] &= ~(1 << (at & 7))
        for offset in self._ahead:
            at = offset - low
            bits[at >> 3] |= 1 << (at & 7)
        return bytes(bits).rstrip(b"\0")
