"""What a schema and the type hints of its dataclass say together: the one description that the codec, the digest and the
messages about wrong values are made from.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from tocsin.schemas.registry import Schema, named_types


@dataclass(frozen=True, slots=True)
class Primitive:
    """string, bytes, long, double or boolean."""

    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """An enum; the value is the symbol."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optional:
    """A union with null; the value may be None."""

    of: "Shape"


@dataclass(frozen=True, slots=True)
class Items:
    """An array; the value is a tuple or a list."""

    of: "Shape"
    container: type


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map of strings; the value is pairs, sorted by key."""


@dataclass(frozen=True, slots=True)
class Positions:
    """A record whose value is a tuple, one item for each field."""

    of: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    shape: "Shape"
    default: Any
    """MISSING: there is none."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A record; the value is a dataclass of the same field names."""

    cls: type
    fields: tuple[Field, ...]


Shape = Primitive | Choice | Optional | Items | Mapping | Positions | Composite

_PRIMITIVES: Final = {"string": str, "bytes": bytes, "long": int, "double": float, "boolean": bool}


@cache
def record_shape(cls: type) -> Composite:
    """The shape of a dataclass that has a schema of its name. Raises TypeError where the two disagree."""
    schema = named_types()[cls.__name__]
    hints = get_type_hints(cls)
    defaults = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(cls)
    }
    names = [field["name"] for field in schema["fields"]]
    if names != list(defaults):
        raise TypeError(f"{cls.__name__} has the fields {list(defaults)}, its schema has {names}")
    return Composite(
        cls,
        tuple(
            Field(
                f["name"],
                _shape(f["type"], hints[f["name"]], f"{cls.__name__}.{f['name']}"),
                defaults[f["name"]],
            )
            for f in schema["fields"]
        ),
    )


def _shape(schema: Any, hint: Any, where: str) -> Shape:
    hint = getattr(hint, "__supertype__", hint)
    arguments = get_args(hint)
    match schema:
        case str() if _PRIMITIVES.get(schema) is hint:
            return Primitive(schema)
        case ["null", of] if get_origin(hint) in (UnionType, Union) and arguments[1:] == (type(None),):
            return Optional(_shape(of, arguments[0], where))
        case {"type": "array", "items": items} if get_origin(hint) is list or arguments[1:] == (...,):
            return Items(_shape(items, arguments[0], where), get_origin(hint) or tuple)
        case {"type": "map", "values": "string"} if hint == tuple[tuple[str, str], ...]:
            return Mapping()
        case str() if schema.startswith("tocsin."):
            return _named(named_types()[schema.removeprefix("tocsin.")], hint, where)
        case _:
            raise TypeError(f"{where}: the schema says {schema}, the dataclass {hint}")


def _named(schema: Schema, hint: Any, where: str) -> Shape:
    match schema:
        case {"type": "enum", "symbols": symbols} if get_args(hint) == tuple(symbols):
            return Choice(tuple(symbols))
        case {"type": "record", "name": name} if (
            is_dataclass(hint) and isinstance(hint, type) and hint.__name__ == name
        ):
            return record_shape(hint)
        case {"type": "record", "fields": list(parts)} if len(parts) == len(get_args(hint)):
            pairs = zip(parts, get_args(hint), strict=True)
            return Positions(tuple(_shape(part["type"], of, where) for part, of in pairs))
        case _:
            raise TypeError(f"{where}: the schema says {schema['name']}, the dataclass {hint}")
