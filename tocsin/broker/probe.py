"""Whether a broker answers, and as whose member: one Metadata request over a plain socket.

No client library is needed to ask, and the answer names the cluster: a listener that answers on the port is not
necessarily ours.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Final

METADATA: Final = 3
VERSION: Final = 4  # the oldest that Kafka 4 answers; without the compact encodings of the later ones
CORRELATION: Final = 7
CLIENT_ID: Final = b"tocsin-probe"
ANSWER_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    cluster_id: str
    brokers: frozenset[int]
    """The ids of the brokers that the cluster counts as alive."""


def ask(host: str, port: int, timeout_s: float) -> Answer | None:
    """What the broker at this address says of its cluster; None if nothing there answers as a broker does."""
    # No topics (an empty array), and none is to be created.
    body = (
        struct.pack(">hhih", METADATA, VERSION, CORRELATION, len(CLIENT_ID))
        + CLIENT_ID
        + struct.pack(">i?", 0, False)
    )
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 < size <= ANSWER_MAX:
                return None
            return _read(_exactly(connection, size))
    except (OSError, EOFError, struct.error, UnicodeDecodeError):
        return None


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)


def _read(answer: bytes) -> Answer | None:
    reader = _Reader(answer)
    if reader.number(">i") != CORRELATION:
        return None
    reader.number(">i")  # how long a quota holds us back
    ids = []
    for _ in range(reader.number(">i")):
        ids.append(reader.number(">i"))
        reader.text()  # host
        reader.number(">i")  # port
        reader.text()  # rack
    return Answer(cluster_id=reader.text(), brokers=frozenset(ids))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def text(self) -> str:
        length = self.number(">h")
        if length < 0:  # null
            return ""
        value = self._data[self._at : self._at + length]
        if len(value) < length:
            raise EOFError
        self._at += length
        return value.decode()
