"""The parts of a document that are objects of named fields, each read into a dataclass and written from it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from tocsin.schemas.kinds import WRONG, JsonSchema, Kind, Reading, Wrong, near

Given = dict[str, Any]
"""Attributes of the dataclass that the document gives."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a document. `attribute` is its name in the dataclass, or one that the section's hooks know."""

    name: str
    attribute: str
    kind: Kind
    says: str
    examples: tuple[Any, ...] = ()
    required: bool = False


def _no_preparation(_document: Mapping[Any, Any], _reading: Reading) -> None: ...


def _no_change(_given: Given, _where: str, _reading: Reading) -> None: ...


def _no_extra(_value: Any) -> Given:
    return {}


class Section:
    """An object of named fields.

    `prepare` looks at the object before its fields are read; `complete` adjusts what was read before the dataclass is
    made of it; `spread` gives what is written beyond the attributes of the dataclass. `unavailable` are fields that are
    known and not built yet: refused, never ignored. `terse`: what is at its default is never written.
    """

    def __init__(
        self,
        cls: type,
        *members: Field,
        expected: str,
        unavailable: Sequence[str] = (),
        terse: bool = False,
        prepare: Callable[[Mapping[Any, Any], Reading], None] = _no_preparation,
        complete: Callable[[Given, str, Reading], None] = _no_change,
        spread: Callable[[Any], Given] = _no_extra,
        rules: JsonSchema | None = None,
    ) -> None:
        self.cls: Final = cls
        self.rules: Final = rules or {}
        self._fields = members
        self._by_name = {member.name: member for member in members}
        self._expected = expected
        self._unavailable = frozenset(unavailable)
        self._terse = terse
        self._prepare = prepare
        self._complete = complete
        self._spread = spread
        self._defaults: Given = {
            f.name: f.default_factory() if f.default_factory is not MISSING else f.default
            for f in fields(cls)
        }
        # So that what else is wrong can be said although a field is missing; nobody gets to see the value.
        self._placeholders = {name: "" for name, default in self._defaults.items() if default is MISSING}

    def read(self, value: Any, where: str, reading: Reading) -> Any:
        """The dataclass, with its defaults for what is missing or wrong; WRONG if the value is no object."""
        if not isinstance(value, Mapping):
            return reading.mistyped(where, self._expected, value)
        self._prepare(value, reading)
        prefix = f"{where}." if where else ""
        by_name = self._by_name
        given: Given = {}
        for name, item in value.items():
            member = by_name.get(name)
            if member is None:
                self._refuse(name, prefix + str(name), item, reading)
            elif item is not None:  # null is "not given"
                read = member.kind.read(item, prefix + name, reading)
                if read is not WRONG:
                    given[member.attribute] = read
        for member in self._fields:
            if member.required and value.get(member.name) is None:
                message = f"{member.name} is missing: {member.says[0].lower()}{member.says[1:]}"
                reading.refuse(prefix + member.name, "required", message)
        self._complete(given, where, reading)
        if self._placeholders:
            given = self._placeholders | given
        return self.cls(**given)

    def write(self, value: Any, full: bool, /) -> dict[str, Any]:
        """What differs from the defaults; `full`: the defaults, too, but for what is empty."""
        written: dict[str, Any] = {}
        extra = self._spread(value)
        for member in self._fields:
            attribute = member.attribute
            if attribute in extra:
                own, default = extra[attribute], None
            elif attribute in self._defaults:
                own, default = getattr(value, attribute), self._defaults[attribute]
            else:
                continue
            if own is None or (own == default and (self._terse or not full or own == ())):
                continue
            written[member.name] = member.kind.write(own, full)
        return written

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        """A reference to this section, whose schema is added to `definitions`."""
        name = self.cls.__name__
        if name not in definitions:
            definitions[name] = {}  # its place, before those that it refers to
            definitions[name] = self.full_schema(definitions)
        return {"$ref": f"#/$defs/{name}"}

    def full_schema(self, definitions: dict[str, JsonSchema]) -> JsonSchema:
        properties = {member.name: self._property(member, definitions) for member in self._fields}
        made: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [member.name for member in self._fields if member.required]
        if required:
            made["required"] = required
        return made | self.rules

    def _property(self, member: Field, definitions: dict[str, JsonSchema]) -> JsonSchema:
        made = {**member.kind.schema(definitions), "description": member.says}
        default = self._defaults.get(member.attribute)
        if default not in (None, (), MISSING) and not isinstance(
            member.kind, Section
        ):  # its fields say their own
            made["default"] = member.kind.write(default, False)
        if member.examples:
            made["examples"] = list(member.examples)
        return made

    def places(self, where: str = "") -> dict[str, str]:
        """Every field's name -> where it stands in the document; the first place, if there are several."""
        found: dict[str, str] = {}
        for member in self._fields:
            found.setdefault(member.name, where + member.name)
        for member in self._fields:
            inner = member.kind.section if isinstance(member.kind, Short) else member.kind
            if isinstance(inner, Section):
                found = inner.places(f"{where}{member.name}.") | found
        return found

    def _refuse(self, name: Any, where: str, value: Any, reading: Reading) -> None:
        if reading.is_enough:
            return
        if name in self._unavailable:
            reading.refuse(where, "not-available", f"{name} is not available yet: leave it out", value)
            return
        hint = ""
        elsewhere = reading.places.get(name, "") if isinstance(name, str) else ""
        if elsewhere and elsewhere != where:
            hint = f": it belongs to {elsewhere}"
        else:
            hint = near(name, tuple(self._by_name)) or f": the fields are {', '.join(self._by_name)}"
        reading.refuse(where, "unknown-field", f"there is no field {str(name)[:64]!r} here{hint}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A section that may be given as the value of one of its fields alone: `skip` for `{mode: skip}`."""

    section: Section
    name: str
    attribute: str
    kind: Kind

    def read(self, value: Any, where: str, reading: Reading) -> Any | Wrong:
        if not isinstance(value, str):
            return self.section.read(value, where, reading)
        read = self.kind.read(value, where, reading)
        return WRONG if read is WRONG else self.section.cls(**{self.attribute: read})

    def write(self, value: Any, full: bool, /) -> Any:
        written = self.section.write(value, True)
        if not full and value == self.section.cls(**{self.attribute: getattr(value, self.attribute)}):
            return written[self.name]
        return written

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"anyOf": [self.kind.schema(definitions), self.section.schema(definitions)]}
