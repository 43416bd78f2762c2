"""The kinds of value that a document holds: how each is read, how it is written, and how JSON Schema describes it.

A kind reads a value as JSON or YAML gives it. What it cannot take it refuses with a Problem that names the place, says
what would be right, and repeats what was given; then it returns WRONG, and reading goes on with the next field.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from typing import Any, Final, Protocol

from tocsin.schedules import (
    ScheduleError,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    resolve_local,
)
from tocsin.schemas.bounds import problem
from tocsin.schemas.job import Problem

JsonSchema = dict[str, Any]


class Wrong:
    """What stands for a value that could not be read; the reason is among the problems."""


WRONG: Final = Wrong()

PROBLEMS_MAX: Final = 100
"""What one answer lists: more than anybody reads, and little enough to send."""


@dataclass(slots=True)
class Reading:
    """One document while it is read."""

    problems: list[Problem] = field(default_factory=list)
    timezone: str | None = None
    """The one that the schedule names: what instants without an offset are read in."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The fields of all sections, by name, for one that stands in the wrong section."""

    @property
    def is_enough(self) -> bool:
        """Whether so much is wrong that no more is said: a document of nothing but mistakes must not cost seconds."""
        return len(self.problems) >= PROBLEMS_MAX

    def refuse(self, where: str, rule: str, message: str, value: object = "") -> Wrong:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem(where, rule, message, shown(value)))
        return WRONG

    def mistyped(self, where: str, expected: str, value: object) -> Wrong:
        return self.refuse(where, "type", f"expected {expected}, got {named(value)}", value)


class Kind(Protocol):
    def read(self, value: Any, where: str, reading: Reading) -> Any:
        """What the value stands for, or WRONG."""
        ...

    def write(self, value: Any, full: bool, /) -> Any:
        """The JSON value that `read` reads as `value`; `full`: with what it does not need to say."""
        ...

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        """JSON Schema of what `read` takes; what has a name is added to `definitions` and referred to."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text as it is; its grammar is the business of `problems`."""

    pattern: str = ""
    longest: int = 0
    json_format: str = ""

    def read(self, value: Any, where: str, reading: Reading) -> str | Wrong:
        if value.__class__ is str:
            if value.isascii() or is_encodable(value):
                text: str = value
                return text
            return reading.refuse(
                where, "text", "the text holds half of a character (a lone surrogate)", ascii(value)
            )
        if isinstance(value, str):
            return str(value)
        is_scalar = isinstance(value, int | float | date)
        return reading.mistyped(
            where, f'text: write "{shown(value)}", in quotes' if is_scalar else "text", value
        )

    def write(self, value: str, _full: bool, /) -> str:
        return value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        made: JsonSchema = {"type": "string"}
        if self.pattern:
            made["pattern"] = f"^{self.pattern}$"
        if self.longest:
            made["maxLength"] = self.longest
        if self.json_format:
            made["format"] = self.json_format
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    def read(self, value: Any, where: str, reading: Reading) -> bool | Wrong:
        if value is True or value is False:
            return bool(value)
        return reading.mistyped(where, "true or false", value)

    def write(self, value: bool, _full: bool, /) -> bool:
        return value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number."""

    low: int
    high: int

    def read(self, value: Any, where: str, reading: Reading) -> int | Wrong:
        if value.__class__ is int:
            number: int = value
            if -(1 << 63) <= number < 1 << 63:
                return number
            return reading.refuse(where, "range", f"the number is {self.low:,} to {self.high:,}", value)
        return reading.mistyped(where, _number_hint("a whole number", value), value)

    def write(self, value: int, _full: bool, /) -> int:
        return value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    low: float
    high: float

    def read(self, value: Any, where: str, reading: Reading) -> float | Wrong:
        if value.__class__ is float or (value.__class__ is int and abs(value) < 1 << 53):
            return float(value)
        return reading.mistyped(where, _number_hint("a number", value), value)

    def write(self, value: float, _full: bool, /) -> float | int:
        return int(value) if value == int(value) else value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


def _number_hint(what: str, value: object) -> str:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return what
        return f"{what}: write {value}, without quotes"
    return what


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    names: tuple[str, ...]

    def read(self, value: Any, where: str, reading: Reading) -> str | Wrong:
        if value.__class__ is str and value in self.names:
            name: str = value
            return name
        message = f"{shown(value)[:40]!r} is none of {', '.join(self.names)}{near(value, self.names)}"
        return reading.refuse(where, "choice", message, value)

    def write(self, value: str, _full: bool, /) -> str:
        return value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"enum": list(self.names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """`1d2h3m4s500ms`; milliseconds in the job. A number has no unit, so it is refused."""

    def read(self, value: Any, where: str, reading: Reading) -> int | Wrong:
        if not isinstance(value, str) and (value.__class__ is not int or value < 0):
            return reading.mistyped(where, "a duration, for example 90s or 1h30m", value)
        try:
            return parse_duration(str(value))
        except ScheduleError as error:
            return reading.refuse(where, error.rule, error.message, error.value)

    def write(self, value: int, _full: bool, /) -> str:
        return format_duration(value)

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        pattern = "^(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
        return {"type": "string", "pattern": pattern, "examples": ["90s", "1h30m", "500ms"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """ISO 8601 with an offset, or without one where the schedule's timezone says which; a date is its midnight.

    YAML makes datetimes and dates of what is not in quotes.
    """

    def read(self, value: Any, where: str, reading: Reading) -> int | Wrong:
        if isinstance(value, date):  # or a datetime, which is one
            value = value.isoformat()
        if not isinstance(value, str):
            return reading.mistyped(where, "an instant, for example 2026-12-01T09:00:00+01:00", value)
        try:
            if reading.timezone is not None or len(value) == _DATE_LENGTH:
                return resolve_local(value, reading.timezone or "UTC")
            return parse_instant(value)
        except ScheduleError as error:
            if error.field == "timezone":
                return reading.refuse("schedule.timezone", error.rule, error.message, error.value)
            hint = ", or give schedule.timezone" if error.rule == "instant-offset" else ""
            return reading.refuse(where, error.rule, error.message + hint, error.value)

    def write(self, value: int, _full: bool, /) -> str:
        return format_instant(value)

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {
            "type": "string",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?)?"
            r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?$",
            "examples": ["2026-12-01T09:00:00+01:00", "2026-12-01T09:00:00"],
        }


_DATE_LENGTH: Final = len("2026-12-01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A list; with `alone`, one item may stand without the list."""

    of: Kind
    most: int
    least: int = 0
    alone: bool = False
    expected: str

    def read(self, value: Any, where: str, reading: Reading) -> tuple[Any, ...] | Wrong:
        if isinstance(value, str) or not isinstance(value, Sequence | Mapping):
            if not self.alone:
                return reading.mistyped(where, self.expected, value)
            value = (value,)
        elif isinstance(value, Mapping | bytes):
            return reading.mistyped(where, self.expected, value)
        if len(value) > self.most:
            return reading.refuse(
                where, "too-many", f"at most {self.most} items are allowed here, not {len(value)}"
            )
        if len(value) < self.least:
            return reading.refuse(
                where, "empty", f"the list is empty: give {self.expected}, or leave the field out"
            )
        read = [self.of.read(item, f"{where}[{i}]", reading) for i, item in enumerate(value)]
        return WRONG if WRONG in read else tuple(read)

    def write(self, value: tuple[Any, ...], full: bool, /) -> Any:
        written = [self.of.write(item, full) for item in value]
        return written[0] if self.alone and len(written) == 1 else written

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        item = self.of.schema(definitions)
        many: JsonSchema = {"type": "array", "items": item, "maxItems": self.most}
        if self.least:
            many["minItems"] = self.least
        return {"anyOf": [item, many]} if self.alone else many


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """An object whose values are texts; pairs, sorted by key, in the job."""

    of: Kind
    most: int
    expected: str

    def read(self, value: Any, where: str, reading: Reading) -> tuple[tuple[str, str], ...] | Wrong:
        if not isinstance(value, Mapping):
            return reading.mistyped(where, self.expected, value)
        if len(value) > self.most:
            return reading.refuse(
                where, "too-many", f"at most {self.most} entries are allowed here, not {len(value)}"
            )
        pairs = []
        wrong = False
        for key, item in value.items():
            read = self.of.read(item, f"{where}.{key}", reading)
            if key.__class__ is not str or not (key.isascii() or is_encodable(key)):
                reading.mistyped(f"{where}.{key}", f'text as each name: write "{key}", in quotes', key)
                wrong = True
            wrong = wrong or read is WRONG
            pairs.append((key, read))
        if wrong:
            return WRONG
        pairs.sort()
        return tuple(pairs)

    def write(self, value: tuple[tuple[str, str], ...], _full: bool, /) -> dict[str, str]:
        return dict(value)

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        values = self.of.schema(definitions)
        return {"type": "object", "additionalProperties": values, "maxProperties": self.most}


# --- words ------------------------------------------------------------------------------------------------------------


def is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def named(value: object) -> str:
    """What kind of thing a value is, in the words of JSON and YAML."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}"
        case datetime():
            return f"the time {value.isoformat()}"
        case date():
            return f"the date {value.isoformat()}"
        case Mapping():
            return "an object"
        case Sequence():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def shown(value: object) -> str:
    """The value as the document has it, near enough."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case date():
            return value.isoformat()
        case Mapping() | list() | tuple():
            return _excerpt(value, 3)
        case _:
            return repr(value)


_EXCERPT_ITEMS: Final = 5


def _excerpt(value: object, depth: int) -> str:
    """Like JSON, cut off: what YAML's aliases make of a few lines may be endless when it is written out."""
    match value:
        case Mapping() | list() | tuple() if not depth:
            return "..."
        case Mapping():
            parts = [
                f"{_excerpt(key, 1)}: {_excerpt(item, depth - 1)}"
                for key, item in islice(value.items(), _EXCERPT_ITEMS)
            ]
            return f"{{{', '.join(parts)}{', ...' if len(value) > _EXCERPT_ITEMS else ''}}}"
        case list() | tuple():
            parts = [_excerpt(item, depth - 1) for item in value[:_EXCERPT_ITEMS]]
            return f"[{', '.join(parts)}{', ...' if len(value) > _EXCERPT_ITEMS else ''}]"
        case str():
            return json.dumps(value[:200], ensure_ascii=False)
        case _:
            return shown(value)


def near(name: object, known: Sequence[str]) -> str:
    """`: did you mean ...?`, if a known name is near."""
    if not isinstance(name, str):
        return ""
    # Imported when something is wrong: it is not needed to read a document that is right.
    from difflib import get_close_matches

    found = get_close_matches(name.lower()[:64], known, n=1)
    return f": did you mean {found[0]}?" if found else ""
