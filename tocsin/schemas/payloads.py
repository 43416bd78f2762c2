"""The kinds of value that make a request: headers, status codes, bodies as JSON, text or bytes."""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from tocsin.schemas.job import BodyKind, Pairs
from tocsin.schemas.kinds import JsonSchema, Reading, Text, Texts, Wrong
from tocsin.schemas.limits import (
    BODY_BYTES_MAX,
    HEADER_VALUE_LENGTH_MAX,
    HEADERS_MAX,
    ID_PATTERN,
    STATUS_MAX,
    STATUS_MIN,
)


class SecretName:
    """`{secret: NAME}`: the name of a secret, which the worker knows."""

    _name: Final = Text(pattern=ID_PATTERN)

    def read(self, value: Any, where: str, reading: Reading) -> str | Wrong:
        if not isinstance(value, Mapping) or list(value) != ["secret"]:
            # What was given is not repeated: it may be the secret itself.
            message = (
                "expected {secret: NAME}, with the name of a secret that the workers have, and nothing else"
            )
            return reading.refuse(where, "secret", message)
        return self._name.read(value["secret"], f"{where}.secret", reading)

    def write(self, value: str, _full: bool, /) -> dict[str, str]:
        return {"secret": value}

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        name = self._name.schema({})
        return {
            "type": "object",
            "properties": {"secret": name},
            "required": ["secret"],
            "additionalProperties": False,
        }


class HeaderValue:
    """Text, or `{secret: NAME}`, which is read as a SecretValue."""

    _text: Final = Text(longest=HEADER_VALUE_LENGTH_MAX)
    _secret: Final = SecretName()

    def read(self, value: Any, where: str, reading: Reading) -> "str | SecretValue | Wrong":
        if isinstance(value, Mapping) and "secret" in value:
            name = self._secret.read(value, where, reading)
            return name if isinstance(name, Wrong) else SecretValue(name)
        return self._text.read(value, where, reading)

    def write(self, value: "str | SecretValue", full: bool, /) -> Any:
        return self._secret.write(value, full) if isinstance(value, SecretValue) else value

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"anyOf": [self._text.schema({}), self._secret.schema({})]}


class SecretValue(str):
    """The name of a secret where a text may stand."""

    __slots__ = ()


class Headers:
    """Headers by name, as two tuples of pairs: those with text, and those whose value is a secret."""

    _all: Final = Texts(of=HeaderValue(), most=HEADERS_MAX, expected="an object of header names and values")

    def read(self, value: Any, where: str, reading: Reading) -> tuple[Pairs, Pairs] | Wrong:
        read = self._all.read(value, where, reading)
        if isinstance(read, Wrong):
            return read
        texts = tuple((name, text) for name, text in read if not isinstance(text, SecretValue))
        secrets = tuple((name, str(secret)) for name, secret in read if isinstance(secret, SecretValue))
        return texts, secrets

    def write(self, value: tuple[Pairs, Pairs], _full: bool, /) -> dict[str, Any]:
        texts, secrets = value
        written: dict[str, Any] = dict(texts)
        written |= {name: {"secret": secret} for name, secret in secrets}
        return dict(sorted(written.items()))

    def schema(self, definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return self._all.schema(definitions)


class StatusCodes:
    """One status code, or a range of them: 204, 200-299."""

    _range: Final = re.compile(r"\s*([0-9]{3})\s*(?:-\s*([0-9]{3})\s*)?")

    def read(self, value: Any, where: str, reading: Reading) -> tuple[int, int] | Wrong:
        if value.__class__ is int:
            return value, value
        found = self._range.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return reading.mistyped(where, "a status code or a range, for example 204 or 200-299", value)
        return int(found[1]), int(found[2] or found[1])

    def write(self, value: tuple[int, int], _full: bool, /) -> int | str:
        first, last = value
        return first if first == last else f"{first}-{last}"

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        code: JsonSchema = {"type": "integer", "minimum": STATUS_MIN, "maximum": STATUS_MAX}
        return {"anyOf": [code, {"type": "string", "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$"}]}


@dataclass(frozen=True, slots=True)
class Json:
    """JSON as bytes, in its shortest form, so that equal values are equal bytes. `objects`: nothing but an object."""

    objects: bool

    def read(self, value: Any, where: str, reading: Reading) -> bytes | Wrong:
        if self.objects and not isinstance(value, Mapping):
            return reading.mistyped(where, "an object: a name and a value for each parameter", value)
        fault = _json_fault(value)
        if fault:
            return reading.refuse(where, "json", fault)
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return text.encode()
        except UnicodeEncodeError:
            return reading.refuse(where, "text", "a text in it holds half of a character (a lone surrogate)")
        except (TypeError, ValueError, RecursionError) as error:
            return reading.refuse(where, "json", f"this cannot be written as JSON: {error}")

    def write(self, value: bytes, _full: bool, /) -> Any:
        return json.loads(value)

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": "object"}


def _json_fault(value: Any) -> str:
    """What YAML can hold and JSON cannot; "" if there is nothing of the kind. Bounded by json.dumps for its depth."""
    todo = [value]
    for item in todo:
        if len(todo) > BODY_BYTES_MAX:
            return f"it holds more than {BODY_BYTES_MAX:,} values"
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    return f"the name {key!r} is no text: write it in quotes"
            todo += item.values()
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, date):
            return f"{item.isoformat()} is a date to YAML, and JSON has none: write it in quotes"
        elif isinstance(item, bytes | set):
            return f"a {type(item).__name__} is no JSON: give text, or the whole body as body_base64"
    return ""


class Body:
    """The bytes of a body and their kind: an object or a list is sent as JSON, text as it is."""

    def read(self, value: Any, where: str, reading: Reading) -> tuple[bytes, BodyKind] | Wrong:
        if isinstance(value, str):
            text = Text().read(value, where, reading)
            return text if isinstance(text, Wrong) else (text.encode(), "text")
        if not isinstance(value, dict | list):
            return reading.mistyped(where, "an object (sent as JSON), a list, or text", value)
        made = Json(objects=False).read(value, where, reading)
        return made if isinstance(made, Wrong) else (made, "json")

    def write(self, value: tuple[bytes, BodyKind], _full: bool, /) -> Any:
        body, kind = value
        return json.loads(body) if kind == "json" else body.decode()

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": ["object", "array", "string"]}


class Base64:
    def read(self, value: Any, where: str, reading: Reading) -> tuple[bytes, BodyKind] | Wrong:
        if not isinstance(value, str):
            return reading.mistyped(where, "text in base64", value)
        try:
            return b64decode("".join(value.split()), validate=True), "base64"
        except (Base64Error, ValueError) as error:
            return reading.refuse(
                where,
                "base64",
                f"this is no base64 ({error}): encode the bytes with the usual alphabet",
                value,
            )

    def write(self, value: tuple[bytes, BodyKind], _full: bool, /) -> str:
        return b64encode(value[0]).decode()

    def schema(self, _definitions: dict[str, JsonSchema], /) -> JsonSchema:
        return {"type": "string", "contentEncoding": "base64"}
