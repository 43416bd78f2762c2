"""How records and rows are laid out in RocksDB. A change here is a new format version (store.FORMAT).

Families: `records` holds topic id, partition, offset -> record; `index` what compaction knows: topic id, partition, key ->
offset of the newest compacted record, and the tombstones that wait for their end; the default one all other rows.
"""

import json
import struct
from dataclasses import asdict, fields
from typing import Final

from tocsin.log.port import Headers, LogCorrupt, OffsetCommit, Record, TopicSpec

LAYOUT: Final = 1
"""The upper half of each record's first byte."""

_HAS_KEY: Final = 1
_HAS_VALUE: Final = 2
_HAS_HEADERS: Final = 4

_WHERE: Final = struct.Struct(">HH")
_RECORD_KEY: Final = struct.Struct(">HHQ")
_HEAD: Final = struct.Struct(">BQI")  # layout and flags, timestamp, length of the key
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_FLOOR: Final = struct.Struct(">QQQ")

record_key = _RECORD_KEY.pack
"""(topic id, partition, offset) -> key in the family `records`; sorts by all three."""


def offset_of(key: bytes) -> int:
    """The offset in a key of the family `records`."""
    return int.from_bytes(key[4:], "big")


# --- records ----------------------------------------------------------------------------------------------------------


def encode(timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """17 bytes more than the content at most, headers aside."""
    flags = LAYOUT << 4
    if key is None:
        key = b""
    else:
        flags |= _HAS_KEY
    if value is None:
        value = b""
    else:
        flags |= _HAS_VALUE
    if not headers:
        return _HEAD.pack(flags, timestamp_ms, len(key)) + key + value
    parts: list[bytes] = []
    for name, content in headers:
        encoded = name.encode()
        parts += (_U32.pack(len(encoded)), encoded, _U32.pack(len(content)), content)
    block = b"".join(parts)
    head = _HEAD.pack(flags | _HAS_HEADERS, timestamp_ms, len(key))
    return b"".join((head, _U32.pack(len(block)), block, key, value))


def decode(topic: str, partition: int, offset: int, data: bytes) -> Record:
    """Raises LogCorrupt."""
    flags, timestamp_ms, key_length = _head(data)
    at = _HEAD.size
    headers: Headers = ()
    if flags & _HAS_HEADERS:
        (length,) = _U32.unpack_from(data, at)
        at += 4
        headers = _decode_headers(data[at : at + length])
        at += length
    end = at + key_length
    key = data[at:end] if flags & _HAS_KEY else None
    value = data[end:] if flags & _HAS_VALUE else None
    return Record(topic, partition, offset, timestamp_ms, key, value, headers)


def timestamp_of(data: bytes) -> int:
    return _head(data)[1]


def key_and_liveness(data: bytes) -> tuple[bytes, bool]:
    """The key, and whether the record has a value (is no tombstone): all that compaction asks."""
    flags, _, key_length = _head(data)
    at = _HEAD.size
    if flags & _HAS_HEADERS:
        at += 4 + _U32.unpack_from(data, at)[0]
    return data[at : at + key_length], bool(flags & _HAS_VALUE)


def _head(data: bytes) -> tuple[int, int, int]:
    if len(data) < _HEAD.size or data[0] >> 4 != LAYOUT:
        raise LogCorrupt(f"a stored record begins with {data[:1].hex() or 'nothing'}, which no layout has")
    head: tuple[int, int, int] = _HEAD.unpack_from(data)
    return head


def _decode_headers(block: bytes) -> Headers:
    headers: list[tuple[str, bytes]] = []
    at = 0
    while at < len(block):
        (length,) = _U32.unpack_from(block, at)
        at += 4
        name = block[at : at + length].decode()
        at += length
        (length,) = _U32.unpack_from(block, at)
        at += 4
        headers.append((name, block[at : at + length]))
        at += length
    return tuple(headers)


# --- rows of the default family ---------------------------------------------------------------------------------------

TOPIC_ROWS: Final = b"t"
GROUP_ROWS: Final = b"g"
FLOOR_ROWS: Final = b"f"
CLEAN_ROWS: Final = b"c"


def topic_row(spec: TopicSpec, topic_id: int) -> tuple[bytes, bytes]:
    return TOPIC_ROWS + spec.name.encode(), json.dumps({"id": topic_id, **asdict(spec)}).encode()


def read_topic_row(value: bytes) -> tuple[TopicSpec, int]:
    row = json.loads(value)
    topic_id: int = row.pop("id")
    # Settings that this version does not know were written by one that has the same format: they are left alone.
    known = {field.name for field in fields(TopicSpec)}
    return TopicSpec(**{name: content for name, content in row.items() if name in known}), topic_id


def group_row(group: str, topic_id: int, partition: int, commit: OffsetCommit) -> tuple[bytes, bytes]:
    name = group.encode()
    key = GROUP_ROWS + _U16.pack(len(name)) + name + _WHERE.pack(topic_id, partition)
    return key, _U64.pack(commit.offset) + commit.metadata.encode()


def read_group_row(key: bytes, value: bytes) -> tuple[str, int, int, OffsetCommit]:
    (length,) = _U16.unpack_from(key, 1)
    topic_id, partition = _WHERE.unpack_from(key, 3 + length)
    commit = OffsetCommit(_U64.unpack_from(value)[0], value[8:].decode())
    return key[3 : 3 + length].decode(), topic_id, partition, commit


def floor_row(topic_id: int, partition: int, begin: int, end: int, last_ms: int) -> tuple[bytes, bytes]:
    """What holds although the records that showed it may be gone: the first offset kept, the least end, its timestamp."""
    return FLOOR_ROWS + _WHERE.pack(topic_id, partition), _FLOOR.pack(begin, end, last_ms)


def read_floor_row(value: bytes) -> tuple[int, int, int]:
    floor: tuple[int, int, int] = _FLOOR.unpack(value)
    return floor


def clean_row_key(topic_id: int, partition: int) -> bytes:
    return CLEAN_ROWS + _WHERE.pack(topic_id, partition)


def u64(number: int) -> bytes:
    return _U64.pack(number)


def read_u64(data: bytes) -> int:
    return int.from_bytes(data, "big")


# --- rows of the family `index` ---------------------------------------------------------------------------------------

_NEWEST_ROWS: Final = b"k"
_HORIZON_ROWS: Final = b"h"


def newest_key(topic_id: int, partition: int, key: bytes) -> bytes:
    """-> the offset of the newest compacted record of `key`."""
    return _NEWEST_ROWS + _WHERE.pack(topic_id, partition) + key


def horizon_key(topic_id: int, partition: int, horizon_ms: int, offset: int) -> bytes:
    """-> the key whose tombstone at `offset` may go at `horizon_ms`."""
    return _HORIZON_ROWS + _WHERE.pack(topic_id, partition) + _U64.pack(horizon_ms) + _U64.pack(offset)


def read_horizon_key(key: bytes) -> tuple[int, int]:
    """(horizon_ms, offset)"""
    return _U64.unpack_from(key, 5)[0], _U64.unpack_from(key, 13)[0]
