"""The .avsc files beside this module, resolved and fingerprinted: one schema for each record and each row.

`avro/` holds what is written now, one file for each named type; `history/<record>/<n>.avsc` holds every version that
was ever written, complete in itself and without the docs. Both are part of the package: records of past versions stay
readable as long as their topic keeps them.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, get_args

from fastavro.schema import fingerprint as _fingerprint
from fastavro.schema import to_parsing_canonical_form

from tocsin.schemas.records import (
    Backfill,
    CancelRun,
    Cluster,
    Control,
    DeadLetter,
    DueRun,
    JobDefinition,
    JobEvent,
    Journal,
    Pause,
    Quarantined,
    Queue,
    Redrive,
    Resume,
    RunEvent,
    RunReport,
    SkipNext,
    Switch,
    Trigger,
)
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow

Schema = dict[str, Any]

Record = (
    Cluster
    | Queue
    | Switch
    | JobDefinition
    | Trigger
    | CancelRun
    | Pause
    | Resume
    | SkipNext
    | Backfill
    | Redrive
    | DueRun
    | Control
    | RunReport
    | RunEvent
    | JobEvent
    | DeadLetter
    | Journal
    | Quarantined
)
"""Whatever stands on a topic by itself."""

Row = JobRow | DefinitionRow | RunRow | PendingRow | DeadRow
"""Whatever stands in a partition's state by itself."""

RECORDS: Final[tuple[type[Any], ...]] = get_args(Record)
ROWS: Final[tuple[type[Any], ...]] = get_args(Row)

_NAMESPACE: Final = "tocsin."
_HERE: Final = files("tocsin.schemas")


@cache
def named_types() -> Mapping[str, Schema]:
    """Every type as its file has it, by name without the namespace; references to others are names."""
    folders = (_HERE / "avro", _HERE / "avro" / "state")
    loaded = [_load(file) for folder in folders for file in folder.iterdir() if file.name.endswith(".avsc")]
    return {schema["name"]: schema for schema in loaded}


def schema_of(name: str) -> Schema:
    """The schema that is written now, complete: each type stands where it is first used, by name afterwards."""
    schema: Schema = _resolved(named_types()[name], {name})
    return schema


def recorded(name: str) -> Mapping[int, Schema]:
    """Every recorded version of a record or row, by number; the highest is what is written now."""
    folder = _HERE / "history" / name
    if not folder.is_dir():
        return {}
    numbered = {int(file.name.removesuffix(".avsc")): file for file in folder.iterdir()}
    return {number: _load(numbered[number]) for number in sorted(numbered)}


def fingerprint(schema: Schema) -> bytes:
    """CRC-64-AVRO of the parsing canonical form, 8 bytes, little-endian: as a single-object header carries it."""
    return bytes.fromhex(_fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def without_docs(schema: Any) -> Any:
    """The schema as its history keeps it: a better doc is no new version."""
    match schema:
        case dict():
            return {key: without_docs(value) for key, value in schema.items() if key != "doc"}
        case list():
            return [without_docs(item) for item in schema]
        case _:
            return schema


def _load(file: Traversable) -> Schema:
    loaded: Schema = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def _resolved(schema: Any, seen: set[str]) -> Any:
    match schema:
        case str() if schema.startswith(_NAMESPACE):
            name = schema.removeprefix(_NAMESPACE)
            if name in seen:
                return schema
            seen.add(name)
            return _resolved(named_types()[name], seen)
        case {"type": "array", "items": items}:
            return {**schema, "items": _resolved(items, seen)}
        case {"type": "record", "fields": list(fields)}:
            return {**schema, "fields": [{**f, "type": _resolved(f["type"], seen)} for f in fields]}
        case list():
            return [_resolved(branch, seen) for branch in schema]
        case _:
            return schema
