"""Bounds that all records of ours keep; what lies beyond them was written by somebody else, and goes to quarantine.

A number that no key of the store can hold, or a text that makes the effects larger than a record of the log, would end
the process, and again whoever reads the record after it: for good.
"""

import re
from dataclasses import fields
from typing import Final

from tocsin.schedules.instants import INSTANT_MAX_MS
from tocsin.schemas.limits import BODY_BYTES_MAX, DOCUMENT_BYTES_MAX, ID_PATTERN, LEASE_MS_MAX
from tocsin.schemas.records import (
    CALLBACK_EPOCH,
    Backfill,
    CancelRun,
    Command,
    JobDefinition,
    Pause,
    Redrive,
    Resume,
    RunReport,
    SkipNext,
    Trigger,
)

TEXT_BYTES_MAX: Final = 16 * 1024
"""Of a report (4 KiB of response, 1,000 characters of error), and of who wrote a command and why."""
_BYTES_MAX: Final[dict[type, int]] = {
    RunReport: TEXT_BYTES_MAX,
    JobDefinition: DOCUMENT_BYTES_MAX + TEXT_BYTES_MAX,
    Trigger: BODY_BYTES_MAX + TEXT_BYTES_MAX,
    CancelRun: TEXT_BYTES_MAX,
    Pause: TEXT_BYTES_MAX,
    Resume: TEXT_BYTES_MAX,
    SkipNext: TEXT_BYTES_MAX,
    Backfill: TEXT_BYTES_MAX,
    Redrive: TEXT_BYTES_MAX,
}
"""Of a whole record. A run's row, with twenty attempts and a body, stays below what a record of the log may have."""
_INSTANT: Final = (0, INSTANT_MAX_MS)
_COUNT: Final = (0, 2**53 - 1)
_DIFFERENCE: Final = (-INSTANT_MAX_MS, INSTANT_MAX_MS)
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "seq": _COUNT,
    "dispatch": _COUNT,
    "attempt": _COUNT,
    "epoch": (CALLBACK_EPOCH, 2**53 - 1),
    "count": _COUNT,
    "parallelism": _COUNT,
    "http_status": (0, 999),
    "nominal_ms": _INSTANT,
    "until_ms": _INSTANT,
    "from_ms": _INSTANT,
    "to_ms": _INSTANT,
    "started_ms": _INSTANT,
    "ended_ms": _INSTANT,
    "retry_after_ms": (-1, INSTANT_MAX_MS),
    "lease_ms": (0, LEASE_MS_MAX),
    "lateness_ms": _DIFFERENCE,
    "clock_offset_ms": _DIFFERENCE,
    "after_jobs_offset": (-1, 2**63 - 1),
}
_CHECKED: Final = {
    kind: tuple((each.name, *_RANGES[each.name]) for each in fields(kind) if each.type is int)
    for kind in _BYTES_MAX
}
_ID: Final = re.compile(ID_PATTERN)
_KEY: Final = re.compile(f"{ID_PATTERN}/{ID_PATTERN}".encode())


def beyond_bounds(value: RunReport | Command | JobDefinition, key: bytes, size: int) -> str:
    """Why the record of `size` bytes cannot be one of ours; "": it can."""
    if not _KEY.fullmatch(key):
        return f"its key {key[:300]!r} is no namespace/id"
    if size > _BYTES_MAX[type(value)]:
        return f"a {type(value).__name__} has at most {_BYTES_MAX[type(value)]} bytes, this one {size}"
    for name, low, high in _CHECKED[type(value)]:
        number = getattr(value, name)
        if not low <= number <= high:
            return f"its {name} {number} is outside {low} to {high}"
    if isinstance(value, Trigger) and not _ID.fullmatch(value.trigger_id):
        return f"its trigger_id {value.trigger_id[:300]!r} does not follow the grammar of ids"
    return ""
