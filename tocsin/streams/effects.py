"""What a tick wants done, as values: records to append, in order, with a digest over them. No I/O happens here."""

from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from tocsin.log.port import Headers
from tocsin.schemas.records import RunEvent


class Emission(NamedTuple):
    """One record that the commit appends to an explicit partition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Counts:
    """What one tick did, for metrics and for tests."""

    reports: int = 0
    stale: int = 0
    commands: int = 0
    definitions: int = 0
    timers: int = 0
    dispatched: int = 0
    ended: int = 0
    skipped: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class Effects:
    """The records of one or more ticks, in the order in which they were decided."""

    emissions: list[Emission] = field(default_factory=list)
    run_events: list[RunEvent] = field(default_factory=list)
    urgent: bool = False
    """Something of it is due within a second, or somebody waits for it."""
    size: int = 0
    """Bytes of all emissions, roughly."""
    digest: int = 0
    """CRC-32 over topics, partitions, keys and values, in order."""
    counts: Counts = field(default_factory=Counts)

    def emit(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self.emissions.append(Emission(topic, partition, key, value, headers))
        head = b"%s/%d/" % (topic.encode(), partition)
        digest = crc32(value or b"", crc32(key or b"", crc32(head, self.digest)))
        for name, data in headers:
            digest = crc32(data, crc32(name.encode(), digest))
        self.digest = digest
        self.size += len(key or b"") + len(value or b"") + 32

    def reset(self) -> None:
        """Forget everything: it is committed. Counts go on."""
        self.emissions = []
        self.run_events = []
        self.urgent = False
        self.size = 0
