"""On which partition a key lives: murmur2, bit for bit as Kafka's Java client computes it.

librdkafka's own default partitioner is another one (CRC32), so every writer names the partition from here; a reader
that finds a key elsewhere knows that a foreign writer was at work.
"""

import struct
from functools import lru_cache
from typing import Final

KEYS_REMEMBERED_MAX: Final = 65_536
"""Keys whose hash is remembered: about 10 MB. The keys of hot jobs come again and again, and a hit costs 0.1 us
where the hash of a key of 30 bytes costs 3 us."""

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number of 32 bits (Java shows the same bits as a signed one)."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=KEYS_REMEMBERED_MAX)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFF_FFFF


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key` among `partitions`, as the Java client's default partitioner chooses it."""
    return _positive_hash(key) % partitions
