"""What every adapter refuses before anything is sent."""

from collections.abc import Iterable
from typing import Final

from tocsin.log.port import OFFSET_METADATA_BYTES_MAX, RECORD_BYTES_MAX, Headers, OffsetCommit, RecordTooLarge

LOCAL_QUEUE_RECORDS_MAX: Final = 100_000
"""Records that a plain producer keeps before they are acknowledged; beyond, produce() raises LogUnavailable
(queue.buffering.max.messages of librdkafka has the same default)."""


def check_record_size(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The size of the record in bytes. Raises RecordTooLarge."""
    size = (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += len(name) + len(content)
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"a record for {topic} has {size} bytes in key, value and headers; at most {RECORD_BYTES_MAX} are "
            f"taken: keep large content elsewhere and send where it is"
        )
    return size


def check_key(topic: str, cleanup: str, key: bytes | None) -> None:
    """Raises ValueError for a record without a key on a compacted topic, which Kafka's broker refuses, too."""
    if key is None and "compact" in cleanup:
        raise ValueError(f"topic {topic} is compacted by key: every record of it needs a key")


def check_offsets(offsets: Iterable[OffsetCommit]) -> None:
    """Raises ValueError for a negative offset or for metadata that Kafka refuses."""
    for commit in offsets:
        if commit.offset < 0:
            raise ValueError(f"an offset to commit is at least 0, not {commit.offset}")
        size = len(commit.metadata.encode())
        if size > OFFSET_METADATA_BYTES_MAX:
            raise ValueError(
                f"the metadata of an offset commit has {size} bytes; at most {OFFSET_METADATA_BYTES_MAX} are taken"
            )
