"""What the embedded log knows of one partition in memory: where it begins and ends, and its newest records."""

from typing import Final

from tocsin.log.port import Record, TopicPartition, TopicSpec

TAIL_BYTES_TOTAL: Final = 48 * 1024 * 1024
"""Memory for the newest records of all partitions together. At 3,000 records/s of 500 bytes it is 20 s of the log, and a
consumer that follows is milliseconds behind; who is further behind reads from RocksDB."""

TAIL_BYTES_PARTITION_MIN: Final = 32 * 1024
RECORD_OVERHEAD_BYTES: Final = 300
"""What a Record costs in memory beyond its content (tuple, two bytes objects, two integers)."""


class Partition:
    """Written by the committer and the maintenance, under the log's state lock; read under it."""

    __slots__ = (
        "_tail_bytes",
        "begin",
        "end",
        "last_ms",
        "number",
        "spec",
        "tail",
        "tail_start",
        "topic",
        "topic_id",
        "where",
    )

    def __init__(self, spec: TopicSpec, topic_id: int, number: int) -> None:
        self.spec = spec
        self.topic = spec.name
        self.topic_id = topic_id
        self.number = number
        self.where = TopicPartition(spec.name, number)
        self.begin = 0
        self.end = 0
        self.last_ms = 0
        self.tail: list[Record] = []
        self.tail_start = 0
        self._tail_bytes = 0

    def reset(self, begin: int, end: int, last_ms: int) -> None:
        """Take what was read from the store, and an empty tail."""
        self.begin, self.end, self.last_ms = begin, end, last_ms
        self.tail, self.tail_start, self._tail_bytes = [], end, 0

    def append(self, records: list[Record], tail_bytes_max: int) -> None:
        """The records, which are durable, exist from now on. Offsets are dense here, so the tail is found by position."""
        assert records[0].offset == self.end, "a record is appended at the end"
        self.tail += records
        self.end = records[-1].offset + 1
        self.last_ms = records[-1].timestamp_ms
        self._tail_bytes += sum(map(_cost, records))
        if self._tail_bytes > tail_bytes_max:
            self._trim(tail_bytes_max // 2)

    def _trim(self, keep_bytes: int) -> None:
        # Down to half at once, so that the list is cut rarely and each record is counted twice in its life.
        dropped = 0
        for record in self.tail:
            if self._tail_bytes <= keep_bytes:
                break
            self._tail_bytes -= _cost(record)
            dropped += 1
        del self.tail[:dropped]
        self.tail_start += dropped


def _cost(record: Record) -> int:
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
