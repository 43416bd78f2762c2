"""Any value of any record or row, and the same value as fastavro holds it: what the tests of the codec are made of."""

from dataclasses import MISSING
from typing import Any

from hypothesis import strategies as st

from tocsin.schemas.shapes import (
    Choice,
    Composite,
    Items,
    Mapping,
    Optional,
    Positions,
    Primitive,
    Shape,
    record_shape,
)

# Around each length of a varint, and what records really hold: small counters and instants.
_LONGS = st.one_of(
    st.integers(-70, 300),
    st.integers(1_700_000_000_000, 1_900_000_000_000),
    st.builds(
        lambda bits, off, sign: max(-(2**63), min(2**63 - 1, sign * (2**bits) + off)),
        st.integers(5, 63),
        st.integers(-2, 2),
        st.sampled_from((1, -1)),
    ),
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT | st.sampled_from(("billing/send-invoices@20260309T080000.000Z", "ü" * 64, "x" * 9000)),
    "bytes": st.binary(max_size=12) | st.sampled_from((b"\0" * 64, b"\xff" * 70_000)),
    "long": _LONGS,
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
}


def values(cls: type) -> st.SearchStrategy[Any]:
    """Values of `cls` that its schema can hold, mappings in order."""
    return _strategy(record_shape(cls))


def _strategy(shape: Shape) -> st.SearchStrategy[Any]:
    match shape:
        case Primitive(name=name):
            return _PRIMITIVES[name]
        case Choice(symbols=symbols):
            return st.sampled_from(symbols)
        case Optional(of=of):
            return st.none() | _strategy(of)
        case Items(of=of, container=container):
            return st.lists(_strategy(of), max_size=3).map(container)
        case Mapping():
            return st.dictionaries(_TEXT, _TEXT, max_size=3).map(lambda found: tuple(sorted(found.items())))
        case Positions(of=parts):
            return st.tuples(*map(_strategy, parts))
        case Composite(cls=cls, fields=fields):
            # Often the default: it has ways of its own through the codec.
            own = {f.name: _strategy(f.shape) for f in fields}
            given_only = st.fixed_dictionaries(
                {f.name: own[f.name] for f in fields if not _has_default(cls, f.name)}
            ).map(lambda chosen: cls(**chosen))
            return st.fixed_dictionaries(own).map(lambda chosen: cls(**chosen)) | given_only


def _has_default(cls: type, name: str) -> bool:
    field = cls.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return bool(field.default is not MISSING or field.default_factory is not MISSING)


def plain(value: Any, shape: Shape) -> Any:
    """The value as fastavro writes and reads it: dicts, lists and primitives."""
    match shape:
        case Primitive(name="double"):
            return float(value) + 0.0
        case Primitive() | Choice():
            return value
        case Optional(of=of):
            return None if value is None else plain(value, of)
        case Items(of=Positions(of=parts)):
            names = ("first", "last")
            return [{n: plain(v, p) for n, v, p in zip(names, item, parts, strict=True)} for item in value]
        case Items(of=of):
            return [plain(item, of) for item in value]
        case Mapping():
            return dict(value)
        case Composite(fields=fields):
            return {f.name: plain(getattr(value, f.name), f.shape) for f in fields}
        case Positions():
            raise AssertionError("only in arrays")
