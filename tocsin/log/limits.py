"""What every adapter refuses before anything is sent."""

from collections.abc import Iterable
from typing import Final

from tocsin.log.port import OFFSET_METADATA_BYTES_MAX, RECORD_BYTES_MAX, Headers, OffsetCommit, RecordTooLarge

OFFSET_MAX: Final = 2**63 - 1

LOCAL_QUEUE_RECORDS_MAX: Final = 100_000
"""Records that a plain producer keeps before they are acknowledged; beyond, produce() raises LogUnavailable
(queue.buffering.max.messages of librdkafka has the same default)."""


def check_record(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The size of the record in bytes. Raises RecordTooLarge, or TypeError for what is no record at all.

    Types are looked at here, because a writer that finds out later has other threads' records in the same batch.
    """
    size = 0
    if key is not None:
        size = len(_bytes(topic, "key", key))
    if value is not None:
        size += len(_bytes(topic, "value", value))
    for name, content in headers:
        size += len(name.encode()) + len(_bytes(topic, "header", content))
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"a record for {topic} has {size} bytes in key, value and headers; at most {RECORD_BYTES_MAX} are "
            f"taken: keep large content elsewhere and send where it is"
        )
    return size


def _bytes(topic: str, what: str, content: bytes) -> bytes:
    if type(content) is not bytes:
        raise TypeError(f"the {what} of a record for {topic} is bytes, not {type(content).__name__}")
    return content


def check_key(topic: str, cleanup: str, key: bytes | None) -> None:
    """Raises ValueError for a record without a key on a compacted topic, which Kafka's broker refuses, too."""
    if key is None and "compact" in cleanup:
        raise ValueError(f"topic {topic} is compacted by key: every record of it needs a key")


def check_offsets(offsets: Iterable[OffsetCommit]) -> None:
    """Raises ValueError for an offset that no partition has, or for metadata that Kafka refuses."""
    for commit in offsets:
        if not 0 <= commit.offset <= OFFSET_MAX:
            raise ValueError(f"an offset to commit is at least 0, not {commit.offset}")
        size = len(commit.metadata.encode())
        if size > OFFSET_METADATA_BYTES_MAX:
            raise ValueError(
                f"the metadata of an offset commit has {size} bytes; at most {OFFSET_METADATA_BYTES_MAX} are taken"
            )
