"""Which member we are. confluent-kafka tells it only in the bytes that it hands from the consumer to the producer.

There is no other way to learn the generation, nor to name another one than the consumer's own at this moment.
"""

import struct
from collections.abc import Callable
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


NO_MEMBER: Final = write_metadata("", "", -1)


class Membership:
    """The member id under which what is held was assigned, and whether we are still that member."""

    def __init__(self, metadata: Callable[[], bytes]) -> None:
        self._metadata = metadata
        self._member = ""
        self.losses = 0
        """How often it was lost: an answer from before the last one is worth nothing."""
        self.is_suspect = False
        """Whether somebody found, since the last look, that we are not that member any more."""

    def place(self) -> tuple[int, str] | None:
        """(generation, member id), as long as we are the member that was given what is held."""
        generation, member = parse_metadata(self._metadata())
        if generation < 0 or member != self._member:
            # Who is no member has nothing to lose. To look at that again and again would be a busy loop while a broker is
            # away, since each look asks for another one.
            self.is_suspect = bool(self._member)
            return None
        return generation, member

    def renew(self) -> None:
        """What is assigned from now on is assigned to whoever we are now."""
        _, self._member = parse_metadata(self._metadata())

    def lose(self) -> None:
        self.losses += 1
        self._member = ""
