"""Why a value does not fit its schema, in one sentence. Asked only after it was refused, so it may be slow."""

from dataclasses import is_dataclass
from typing import Any, assert_never

from tocsin.schemas.shapes import (
    Choice,
    Composite,
    Items,
    Mapping,
    Optional,
    Positions,
    Primitive,
    Shape,
)

_EXPECTED: dict[str, tuple[Any, str]] = {
    "string": (str, "text"),
    "bytes": (bytes, "bytes"),
    "long": (int, "an integer"),
    "double": (int | float, "a number"),
    "boolean": (bool, "true or false"),
}


def fault(value: Any, shape: Shape, where: str) -> str:
    """The first thing in `value` that is wrong, with its place; "" if nothing is."""
    match shape:
        case Primitive(name=name):
            return _primitive_fault(value, name, where)
        case Choice(symbols=symbols):
            return "" if value in symbols else f"{where}: {value!r} is none of {', '.join(symbols)}"
        case Optional(of=of):
            return "" if value is None else fault(value, of, where)
        case Items(of=of):
            if not isinstance(value, tuple | list):
                return _wrong(value, "a sequence", where)
            return _first(fault(item, of, f"{where}[{i}]") for i, item in enumerate(value))
        case Mapping():
            if not isinstance(value, tuple | list) or not all(
                isinstance(pair, tuple) and len(pair) == 2 for pair in value
            ):
                return _wrong(value, "pairs of key and value", where)
            if len({key for key, _ in value}) < len(value):
                return f"{where}: a key is there twice"
            return _first(
                _primitive_fault(text, "string", f"{where}[{key!r}]") for key, v in value for text in (key, v)
            )
        case Positions(of=parts):
            if not isinstance(value, tuple) or len(value) != len(parts):
                return _wrong(value, f"a tuple of {len(parts)}", where)
            return _first(
                fault(v, part, f"{where}[{i}]") for i, (v, part) in enumerate(zip(value, parts, strict=True))
            )
        case Composite(cls=cls, fields=fields):
            if not is_dataclass(value) or not isinstance(value, cls):
                return _wrong(value, f"a {cls.__name__}", where)
            return _first(fault(getattr(value, f.name), f.shape, f"{where}.{f.name}") for f in fields)
        case _:
            assert_never(shape)


def _primitive_fault(value: Any, name: str, where: str) -> str:
    kind, words = _EXPECTED[name]
    if not isinstance(value, kind):
        return _wrong(value, words, where)
    if name == "long" and not -(1 << 63) <= value < 1 << 63:
        return f"{where}: {value} does not fit in 64 bits"
    if name == "string":
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"{where}: {error.reason} (character {error.start})"
    return ""


def _wrong(value: Any, expected: str, where: str) -> str:
    return f"{where}: expected {expected}, got {type(value).__name__} {str(value)[:40]!r}"


def _first(faults: Any) -> str:
    return next(filter(None, faults), "")
