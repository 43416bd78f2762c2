"""TZif files made by hand (RFC 8536), for rules that the tz database does not have, or not any more."""

from __future__ import annotations

import struct


def tzif(offset: int, changes: list[tuple[int, int]], footer: str) -> bytes:
    """A file with a first offset, (instant, offset from then on) pairs, and the rule for what comes after them."""
    names = b"ABC\0"
    first = struct.pack(">lBB", offset, 0, 0)
    version_1 = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, len(names)) + first + names
    version_2 = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(changes), 1 + len(changes), len(names))
    version_2 += b"".join(struct.pack(">q", instant) for instant, _ in changes)
    version_2 += bytes(range(1, 1 + len(changes)))
    version_2 += first + b"".join(struct.pack(">lBB", later, 0, 0) for _, later in changes) + names
    return version_1 + version_2 + b"\n" + footer.encode() + b"\n"
