"""Records and rows as bytes.

A record is an Avro single object: C3 01, the fingerprint of its schema, the body. It says by itself what it is, so no
registry of schemas is needed beside the log. A row is one layout byte and the body.

Equal values have equal bytes. Every function may be called from any thread.
"""

import struct
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeVar, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from tocsin.schemas.compiler import Decoder, Encoder, decoder, encoder
from tocsin.schemas.digests import digest
from tocsin.schemas.faults import fault
from tocsin.schemas.registry import RECORDS, ROWS, Record, Row, Schema, fingerprint, recorded, schema_of
from tocsin.schemas.shapes import record_shape

SCHEMA_LEVEL: Final = 1
"""The newest level this process can write at; Cluster.schema_level says at which all of them do."""

LAYOUT: Final = 1
"""The first byte of every row. Another layout of a row is another number, never another meaning of this one."""

__all__ = [
    "LAYOUT",
    "SCHEMA_LEVEL",
    "CodecError",
    "Record",
    "Row",
    "Undecodable",
    "Unencodable",
    "UnknownLayout",
    "UnknownSchema",
    "decode",
    "decode_as",
    "decode_row",
    "digest",
    "encode",
    "encode_row",
    "past_decoder",
]

R = TypeVar("R", bound=Record)
W = TypeVar("W", bound=Row)

_MARKER: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_LAYOUT_BYTE: Final = bytes((LAYOUT,))


class CodecError(ValueError):
    """Bytes that are no record or row that this process knows, or a value that its schema cannot hold."""


class UnknownSchema(CodecError):
    """The record names a schema that this process does not know: a newer process wrote it, or it is not ours.

    Records are written at the cluster's schema level, so this does not happen while every process knows that level.
    """

    def __init__(self, header: bytes) -> None:
        self.fingerprint = header[2:][::-1].hex()
        super().__init__(f"no schema that this process knows has the fingerprint {self.fingerprint}")


class Undecodable(CodecError):
    """The bytes are not what their schema says: cut off, followed by more, or damaged."""


class UnknownLayout(CodecError):
    """A row begins with a layout byte that this process does not know: a newer process wrote it.

    Start the version that wrote it, or let the state be rebuilt from the log.
    """

    def __init__(self, cls: type, layout: int) -> None:
        self.layout = layout
        super().__init__(f"{cls.__name__}: layout {layout} is unknown; this process knows layout {LAYOUT}")


class Unencodable(CodecError):
    """A value holds something that its schema cannot: our own bug, or a value that was never checked."""


# --- records ----------------------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The record as an Avro single object. Raises Unencodable, naming the field."""
    try:
        head, write = _WRITERS[record.__class__]
        return write(record, head)
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, struct.error) as error:
        raise _unencodable(record, error) from error


def decode(data: bytes) -> Record:
    """The record that these bytes are, in whatever known version it was written.

    Raises UnknownSchema or Undecodable; the caller knows the coordinates and quarantines.
    """
    cls, read = _READERS[data[:_HEADER_BYTES]]
    try:
        record, end = read(data, _HEADER_BYTES)
    except (LookupError, ValueError, struct.error) as error:
        raise _undecodable(cls, error) from error
    if end != len(data):
        raise _wrong_length(cls, end, data)
    return cast(Record, record)


def decode_as(cls: type[R], data: bytes) -> R:
    """As decode, of a record that must be a `cls`."""
    record = decode(data)
    if record.__class__ is not cls:
        raise Undecodable(f"a {type(record).__name__} stands where a {cls.__name__} belongs")
    return cast(R, record)


# --- rows -------------------------------------------------------------------------------------------------------------


def encode_row(row: Row) -> bytes:
    """The layout byte and the row. Raises Unencodable, naming the field."""
    try:
        return _ROW_WRITERS[row.__class__](row, _LAYOUT_BYTE)
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, struct.error) as error:
        raise _unencodable(row, error) from error


def decode_row(cls: type[W], data: bytes) -> W:
    """The row of class `cls` that these bytes are. Raises UnknownLayout or Undecodable."""
    if data[:1] != _LAYOUT_BYTE:
        if not data:
            raise Undecodable(f"{cls.__name__}: there are no bytes at all")
        raise UnknownLayout(cls, data[0])
    try:
        row, end = _ROW_READERS[cls](data, 1)
    except (LookupError, ValueError, struct.error) as error:
        raise _undecodable(cls, error) from error
    if end != len(data):
        raise _wrong_length(cls, end, data)
    return cast(W, row)


# --- how ---------------------------------------------------------------------------------------------------------------

# Functions are generated when they are first needed: all of them would cost a command line 60 ms. Two threads that
# need the same one at once make it twice, which does no harm.


class _Writers(dict[type, tuple[bytes, Encoder]]):
    def __missing__(self, cls: type) -> tuple[bytes, Encoder]:
        _check(cls, RECORDS, "record")
        made = self[cls] = (_header(schema_of(cls.__name__)), encoder(cls))
        return made


class _Readers(dict[bytes, tuple[type, Decoder]]):
    def __missing__(self, header: bytes) -> tuple[type, Decoder]:
        if header[:2] != _MARKER or len(header) < _HEADER_BYTES:
            raise Undecodable(f"not an Avro single object: it begins with {header.hex(' ') or 'nothing'}")
        cls = _current().get(header)
        if cls is not None:
            made = self[header] = (cls, decoder(cls))
        elif header in _past():
            made = self[header] = _past()[header]
        else:
            raise UnknownSchema(header)
        return made


class _RowWriters(dict[type, Encoder]):
    def __missing__(self, cls: type) -> Encoder:
        _check(cls, ROWS, "row")
        made = self[cls] = encoder(cls)
        return made


class _RowReaders(dict[type, Decoder]):
    def __missing__(self, cls: type) -> Decoder:
        _check(cls, ROWS, "row")
        made = self[cls] = decoder(cls)
        return made


def _check(cls: type, known: tuple[type, ...], what: str) -> None:
    if cls not in known:
        raise TypeError(f"{cls.__name__} is no {what}")


_WRITERS: Final = _Writers()
_READERS: Final = _Readers()
_ROW_WRITERS: Final = _RowWriters()
_ROW_READERS: Final = _RowReaders()


@cache
def _current() -> Mapping[bytes, type]:
    return {_header(schema_of(cls.__name__)): cls for cls in RECORDS}


@cache
def _past() -> Mapping[bytes, tuple[type, Decoder]]:
    found = {}
    for cls in RECORDS:
        now = schema_of(cls.__name__)
        for schema in recorded(cls.__name__).values():
            if (header := _header(schema)) != _header(now):
                found[header] = (cls, past_decoder(cls, written=schema, now=now))
    return found


def past_decoder(cls: type, *, written: Schema, now: Schema) -> Decoder:
    """A reader of what was written with an older (or newer) schema, by Avro's rules of resolution.

    fastavro resolves; what it makes is written once more, as of now, for the one reader that makes our values.
    """
    writer, reader = parse_schema(written), _with_bytes_as_defaults(parse_schema(now))
    read_now = decoder(cls)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        source, resolved = BytesIO(data), BytesIO()
        source.seek(pos)
        try:
            schemaless_writer(resolved, reader, schemaless_reader(source, writer, reader))
        except (EOFError, TypeError) as error:  # how fastavro says that the data ends early
            raise ValueError(str(error) or "the data ends early") from error
        value, _ = read_now(resolved.getvalue(), 0)
        return value, source.tell()

    return read


def _with_bytes_as_defaults(schema: Any) -> Any:
    """As fastavro needs it: it takes the text that stands for bytes in a default for the value itself."""
    match schema:
        case {"type": "bytes", "default": str(text)}:
            return {**schema, "default": text.encode("latin-1")}
        case dict():
            return {key: _with_bytes_as_defaults(value) for key, value in schema.items()}
        case list():
            return [_with_bytes_as_defaults(item) for item in schema]
        case _:
            return schema


def _header(schema: Schema) -> bytes:
    return _MARKER + fingerprint(schema)


def _unencodable(value: Any, error: Exception) -> Unencodable:
    cls: type = value.__class__
    name = cls.__name__
    known = cls in RECORDS or cls in ROWS
    return Unencodable((fault(value, record_shape(cls), name) if known else "") or f"{name}: {error}")


def _undecodable(cls: type, error: Exception) -> Undecodable:
    reason = "the data ends early" if isinstance(error, IndexError | struct.error) else str(error)
    return Undecodable(f"{cls.__name__}: {reason}")


def _wrong_length(cls: type, end: int, data: bytes) -> Undecodable:
    what = "the data ends early" if end > len(data) else f"{len(data) - end} bytes follow the value"
    return Undecodable(f"{cls.__name__}: {what}")
