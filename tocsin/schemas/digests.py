"""The digest of a definition: equal definitions have equal digests, and another digest is another revision."""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from typing import Any

from tocsin.schemas.job import Job
from tocsin.schemas.shapes import Composite, Items, Mapping, Optional, Primitive, Shape, record_shape


def digest(job: Job) -> bytes:
    """16 bytes that depend on everything in the definition but `paused`.

    Hashed is what differs from the defaults, by name, not the Avro encoding: so a field that a later version adds (with
    a default, as all additions) leaves the digests of all definitions that do not use it as they are, and an upgrade
    makes no revisions. `ascii` rather than `repr`, whose escapes follow Python's version of Unicode.
    """
    given = tuple(pair for pair in _given(job, Job) if pair[0] != "paused")
    return blake2b(ascii(given).encode("ascii"), digest_size=16).digest()


def _given(value: Any, cls: type) -> tuple[tuple[str, Any], ...]:
    """The fields that differ from their defaults, in the order of their names."""
    return tuple(
        [
            (name, found if plain is None else plain(found))
            for name, default, plain in _parts(cls)
            if (found := getattr(value, name)) != default
        ]
    )


@cache
def _parts(cls: type) -> tuple[tuple[str, Any, Callable[[Any], Any] | None], ...]:
    shape = record_shape(cls)
    return tuple(
        sorted([(f.name, f.default, _plain(f.shape)) for f in shape.fields], key=lambda part: part[0])
    )


def _plain(shape: Shape) -> Callable[[Any], Any] | None:
    """What makes equal values of this shape print alike; None if they do."""
    match shape:
        case Primitive(name="double"):
            return lambda value: float(value) + 0.0  # 4 and 4.0, -0.0 and 0.0
        case Optional(of=of):
            inner = _plain(of)
            return None if inner is None else lambda value: None if value is None else inner(value)
        case Items(of=of):
            each = _plain(of)
            return None if each is None else lambda value: tuple([each(item) for item in value])
        case Mapping():
            return lambda value: tuple(sorted(value))
        case Composite(cls=cls):
            return lambda value: _given(value, cls)
        case _:
            return None
