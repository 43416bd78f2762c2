"""Avro's integers, text and maps: the parts of the encoding that the generated functions call or look up.

Avro writes an integer as a zigzag varint, 7 bits in a byte, the lowest first. Instants take 6 bytes and are most of
what a record holds, so their loop is unrolled. Bounds are not checked where an IndexError, a ValueError or a position
behind the end says the same: the caller turns every one of them into one error.
"""

from collections.abc import Sequence
from typing import Final

LONG_BITS: Final = 64

_PAIRS: Final = 1 << 14
LAST: Final = tuple(bytes((i,)) if i < 128 else bytes((i & 127 | 128, i >> 7)) for i in range(_PAIRS))
"""14 bits as the last bytes of a varint, and as two bytes that more follow."""
GOES_ON: Final = tuple(bytes((i & 127 | 128, i >> 7 | 128)) for i in range(_PAIRS))

SMALL_MIN: Final = -_PAIRS // 2
SMALL_END: Final = _PAIRS // 2
SMALL: Final = tuple(LAST[2 * i] for i in range(SMALL_END)) + tuple(
    LAST[-2 * i - 1] for i in range(SMALL_MIN, 0)
)
"""SMALL[n] is the encoding of n for SMALL_MIN <= n < SMALL_END: an index below 0 counts from the end."""

ZIGZAG: Final = tuple((i >> 1) ^ -(i & 1) for i in range(128))
"""The integer that one byte below 128 stands for."""


def write_long(n: int) -> bytes:
    """The encoding of any long that SMALL does not hold."""
    zigzag = n << 1 if n >= 0 else ~(n << 1)
    if zigzag < 1 << 28:
        return GOES_ON[zigzag & 16383] + LAST[zigzag >> 14]
    if zigzag < 1 << 42:
        return GOES_ON[zigzag & 16383] + GOES_ON[zigzag >> 14 & 16383] + LAST[zigzag >> 28]
    if zigzag >> LONG_BITS:
        raise OverflowError(f"{n} does not fit in 64 bits")
    written = bytearray()
    while zigzag > 127:
        written.append(zigzag & 127 | 128)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """The long at pos, and the position behind it."""
    zigzag = data[pos]
    if zigzag < 128:
        return (zigzag >> 1) ^ -(zigzag & 1), pos + 1
    byte = data[pos + 1]
    zigzag += (byte << 7) - 128
    if byte < 128:
        return (zigzag >> 1) ^ -(zigzag & 1), pos + 2
    zigzag &= 16383
    byte = data[pos + 2]
    zigzag |= (byte & 127) << 14
    if byte < 128:
        return (zigzag >> 1) ^ -(zigzag & 1), pos + 3
    shift = 21
    end = pos + 3
    while True:
        byte = data[end]
        end += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= 70:
            raise ValueError("an integer takes more than ten bytes")
    if zigzag >> LONG_BITS:
        raise ValueError("an integer takes more than 64 bits")
    if end == pos + 6:
        if len(HIGH) >= HIGH_MAX:
            HIGH.clear()
        HIGH[data[pos + 2 : end]] = zigzag >> 14 << 13
    return (zigzag >> 1) ^ -(zigzag & 1), end


# An instant of our days takes 6 bytes. Read byte by byte that costs 0.4 us, and a row holds ten of them; looked up in
# two parts, 0.13 us. The upper four bytes change every 8.2 s, so few are met in a day; the lower two are all here.
HIGH: Final[dict[bytes, int]] = {}
"""The last four of six bytes -> what they stand for, as far as they were met. Only of integers that take six bytes."""
HIGH_MAX: Final = 16_384  # 1.5 MB, and a day and a half of instants
LOW: Final = {GOES_ON[2 * i]: i for i in range(_PAIRS // 2)}
"""The first two of six bytes -> what they stand for. Not of negative integers."""


def read_length(data: bytes, pos: int) -> tuple[int, int]:
    """The length of text or bytes, never negative."""
    length, pos = read_long(data, pos)
    if length < 0:
        raise ValueError(f"a length is negative: {length}")
    return length, pos


def read_count(data: bytes, pos: int) -> tuple[int, int]:
    """The number of items in a block of an array or map; a negative one is followed by the block's size in bytes."""
    count, pos = read_long(data, pos)
    if count < 0:
        _, pos = read_length(data, pos)
        return -count, pos
    return count, pos


def write_pairs(pairs: Sequence[tuple[str, str]]) -> bytes:
    """A map, in the order of its keys, so that equal mappings have one encoding."""
    n = len(pairs)
    parts = [SMALL[n] if n < SMALL_END else write_long(n)]
    last = ""
    for key, value in pairs:
        if key <= last and len(parts) > 1:
            if len(dict(pairs)) < len(pairs):
                raise ValueError("a key is there twice")
            return write_pairs(sorted(pairs))
        last = key
        for text in (key, value):
            raw = text.encode()
            n = len(raw)
            parts += (SMALL[n] if n < SMALL_END else write_long(n), raw)
    parts.append(b"\0")
    return b"".join(parts)


def read_pairs(data: bytes, pos: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """A map as pairs, sorted by key: another writer may have had another order."""
    pairs: list[tuple[str, str]] = []
    last = ""
    in_order = True
    count, pos = read_count(data, pos)
    while count:
        for _ in range(count):
            n = data[pos]
            if n & 129:
                n, pos = read_length(data, pos)
                end = pos + n
            else:
                pos += 1
                end = pos + (n >> 1)
            key = data[pos:end].decode()
            n = data[end]
            if n & 129:
                n, pos = read_length(data, end)
                end = pos + n
            else:
                pos = end + 1
                end = pos + (n >> 1)
            pairs.append((key, data[pos:end].decode()))
            pos = end
            if key <= last and len(pairs) > 1:
                in_order = False
            last = key
        count, pos = read_count(data, pos) if data[pos] else (0, pos + 1)
    if not in_order:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a map has a key twice")
        pairs.sort()
    return tuple(pairs), pos
