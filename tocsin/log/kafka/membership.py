"""The bytes in which confluent-kafka hands a member's metadata from the consumer to the producer.

There is no other way to learn the generation, nor to name another one than the consumer's own at this moment.
"""

import struct
from typing import Final

_MAGIC: Final = b"CGMDv2:"
_NO_INSTANCE: Final = b"\x01"
"""Not a static member."""


def parse_metadata(opaque: bytes) -> tuple[int, str]:
    """(generation, member id); the generation of who is no member is -1."""
    assert opaque.startswith(_MAGIC), f"another librdkafka than this adapter knows: {opaque[:8]!r}"
    (generation,) = struct.unpack_from("=i", opaque, len(_MAGIC))
    _, member, _ = opaque[len(_MAGIC) + 4 :].split(b"\0", 2)
    return generation, member.decode()


def write_metadata(group: str, member: str, generation: int) -> bytes:
    return b"".join(
        (_MAGIC, struct.pack("=i", generation), group.encode(), b"\0", member.encode(), b"\0", _NO_INSTANCE)
    )
