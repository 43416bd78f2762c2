"""How a question and its answer look between an API process and a streams process.

A question is `POST /cluster/<version>/<name>` with a small JSON object. An answer is a head, which is JSON as well, and
after it the records and rows themselves as the log and the stores have them (tocsin.schemas.codec), so that nothing is
rounded, renamed or decoded by halves:

    "TQ", version (1 byte), length of the head (4 bytes, big-endian), head, then for each blob its length (4) and the blob

What a later release adds to a head, an earlier one passes over. A change that an earlier one would misunderstand is
another VERSION; a process that is asked in a version which it does not speak says so (501), and so does one that meets a
record or a row of a schema that it does not know.
"""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar, get_args

from tocsin.schemas.codec import CodecError, decode_as, decode_row, encode, encode_row
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import DeadLetter, JobDefinition, RunEvent
from tocsin.schemas.rows import JobRow
from tocsin.streams.queries import JobView, MissingPartition, MissingReason, Page, PartitionHealth

VERSION: Final = 1
SECRET_HEADER: Final = "tocsin-cluster-secret"  # noqa: S105 - its name
CONTENT_TYPE: Final = "application/x-tocsin-answer"

QUESTION_BYTES_MAX: Final = 512 * 1024  # the keys of a bulk question, five times over
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A page ends behind the item that goes beyond this: the largest item is about 1 MiB."""
KEYS_MAX: Final = 500  # of one bulk question: about 30 ms of reading
ITEMS_MAX: Final = 1_000
OFFSETS_MAX: Final = 64
"""Of one long poll. Whatever is applied is so up to an offset, so that a few of many are enough."""

_MAGIC: Final = b"TQ"
_HEAD: Final = struct.Struct(">2sBI")
_LENGTH: Final = struct.Struct(">I")
_REASONS: Final = frozenset(get_args(MissingReason))

T = TypeVar("T")


class WireError(ValueError):
    """The bytes are no answer that this release understands: the other side is of another one, or is not ours at all."""


# --- the envelope ------------------------------------------------------------------------------------------------------


def pack(head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    raw = json.dumps(head, separators=(",", ":")).encode()
    parts = [_HEAD.pack(_MAGIC, VERSION, len(raw)), raw]
    for blob in blobs:
        parts += (_LENGTH.pack(len(blob)), blob)
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The head and the blobs. Raises WireError."""
    try:
        magic, version, length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise WireError("it does not begin as an answer of Tocsin does")
        if version != VERSION:
            raise WireError(f"it is of version {version}; this process knows {VERSION}")
        at = _HEAD.size + length
        head = json.loads(data[_HEAD.size : at])
        blobs = []
        while at < len(data):
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + size
            if at > len(data):
                raise WireError("it ends early")
            blobs.append(data[at - size : at])
    except (struct.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise WireError(f"it is damaged: {error}") from None
    if not isinstance(head, dict):
        raise WireError("its head is no object")
    return head, blobs


# --- pages ---------------------------------------------------------------------------------------------------------------


def pack_page(page: Page[T], show: Callable[[T], bytes], place: Callable[[T, int], str]) -> bytes:
    """The page, or as much of it as fits. `place`: the cursor of a page that ends with this item, the n-th."""
    blobs: list[bytes] = []
    size = 0
    following = page.next_cursor
    for number, item in enumerate(page.items, 1):
        blobs.append(show(item))
        size += len(blobs[-1])
        if size >= PAGE_BYTES_MAX and number < len(page.items):
            following = place(item, number)
            break
    return pack({"next": following, "missing": [missing_fields(each) for each in page.missing]}, blobs)


def unpack_page(data: bytes, read: Callable[[bytes], T]) -> Page[T]:
    """Raises WireError."""
    head, blobs = unpack(data)
    return Page(
        items=[read(blob) for blob in blobs],
        next_cursor=_text(head.get("next", "")),
        missing=missing_of(head.get("missing", [])),
    )


def missing_fields(missing: MissingPartition) -> dict[str, Any]:
    return asdict(missing)


def missing_of(given: Any) -> list[MissingPartition]:
    """Raises WireError. A reason that a later release made up is not known here, and still one not to be answered."""
    if not isinstance(given, list):
        raise WireError("its missing partitions are no list")
    return [_missing_of(each) for each in given]


def _missing_of(given: Any) -> MissingPartition:
    known = _known(MissingPartition, given)
    if known.get("reason") not in _REASONS:
        known["reason"] = "unreachable"
    return MissingPartition(**known)


# --- items ---------------------------------------------------------------------------------------------------------------


def job_bytes(view: JobView) -> bytes:
    """Three parts: what only the view has (JSON), the row, the definition ("" if there is none)."""
    namespace, _, job_id = view.key.partition("/")
    about = json.dumps([view.key, view.definition_offset, view.defined_ms, view.actor]).encode()
    row = encode_row(view.row)
    definition = (
        b"" if view.job is None else encode(JobDefinition(namespace=namespace, id=job_id, job=view.job))
    )
    return b"".join((_LENGTH.pack(len(about)), about, _LENGTH.pack(len(row)), row, definition))


def job_of(data: bytes) -> JobView:
    """Raises WireError."""
    try:
        (size,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + size
        key, offset, defined_ms, actor = json.loads(data[_LENGTH.size : at])
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        row = decode_row(JobRow, data[at : at + size])
        definition = data[at + size :]
        job = decode_as(JobDefinition, definition).job if definition else None
    except (struct.error, CodecError, ValueError, TypeError) as error:
        raise WireError(f"a job in it cannot be read: {error}") from None
    return JobView(
        key=JobKey(key),
        job=job,
        row=row,
        definition_offset=offset,
        defined_ms=defined_ms,
        actor=actor,
    )


def run_of(data: bytes) -> RunEvent:
    """Raises WireError."""
    try:
        return decode_as(RunEvent, data)
    except CodecError as error:
        raise WireError(f"a run in it cannot be read: {error}") from None


def letter_of(data: bytes) -> DeadLetter:
    """Raises WireError."""
    try:
        return decode_as(DeadLetter, data)
    except CodecError as error:
        raise WireError(f"a dead letter in it cannot be read: {error}") from None


def health_fields(health: Iterable[PartitionHealth]) -> list[dict[str, Any]]:
    return [asdict(each) for each in health]


def health_of(given: Any) -> list[PartitionHealth]:
    """Raises WireError."""
    if not isinstance(given, list):
        raise WireError("its health is no list")
    try:
        return [PartitionHealth(**_known(PartitionHealth, each)) for each in given]
    except TypeError as error:
        raise WireError(f"its health cannot be read: {error}") from None


def _known(cls: type, given: Any) -> dict[str, Any]:
    """Of an object the fields that this release knows."""
    if not isinstance(given, dict) or not isinstance(given.get("partition"), int):
        raise WireError(f"a {cls.__name__} in it cannot be read")
    names = {f.name for f in fields(cls)}
    return {name: value for name, value in given.items() if name in names}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WireError("its cursor is no text")
    return value
