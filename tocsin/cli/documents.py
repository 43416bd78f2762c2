"""Job documents from files: YAML (several to a file), JSON (one, or a list), NDJSON, standard input, folders of these.

YAML is read by the rules of its version 1.2: `on`, `no` and `12:30` are text, and a date stays as it was written, to be
understood in the zone of the schedule. A key that is given twice is an error, where PyYAML keeps the last in silence.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tocsin.cli.failures import EXIT_INPUT, Failure

YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})
JSON_SUFFIXES: Final = frozenset({".json"})
NDJSON_SUFFIXES: Final = frozenset({".ndjson", ".jsonl"})
SUFFIXES: Final = YAML_SUFFIXES | JSON_SUFFIXES | NDJSON_SUFFIXES
STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class Document:
    """One job document, and where it stands: `line` is its first."""

    source: str
    line: int
    value: Any
    node: Any = None
    """What YAML made the value of, with the place of each part."""

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}"

    def place_of(self, field: str) -> str:
        """Where a field such as `schedule.cron[0]` stands: as near as it is known, else the document."""
        line = self.line if self.node is None else _line_of(self.node, field)
        return f"{self.source}:{line}"


def _line_of(node: Any, field: str) -> int:
    line: int = node.start_mark.line + 1
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
        if name and node.id == "mapping":
            found = [(key, value) for key, value in node.value if key.value == name]
            if not found:
                break
            key, node = found[0]
            line = key.start_mark.line + 1
        elif index and node.id == "sequence" and int(index) < len(node.value):
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        else:
            break
    return line


class BadDocument(ValueError):
    """A file that cannot be read as documents. The message begins with the place."""


def read_all(arguments: Iterable[str]) -> Iterator[Document]:
    """Every document of the files and folders, in order. Raises BadDocument, and Failure for a file that is not there."""
    for argument in arguments:
        if argument == STDIN:
            yield from _sniffed("standard input", sys.stdin.buffer.read())
            continue
        path = Path(argument)
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not files:
                raise Failure(
                    f"{path}: no {', '.join(sorted(SUFFIXES))} files in this folder", exit_code=EXIT_INPUT
                )
            for file in files:
                yield from _file(file)
        else:
            yield from _file(path)


def _file(path: Path) -> Iterator[Document]:
    source = str(path)
    suffix = path.suffix.lower()
    try:
        if suffix in NDJSON_SUFFIXES:
            with path.open("rb") as lines:
                yield from _ndjson(source, lines)
            return
        data = path.read_bytes()
    except OSError as error:
        raise Failure(f"{source}: {error.strerror or error}", exit_code=EXIT_INPUT) from None
    if suffix in YAML_SUFFIXES:
        yield from _yaml(source, data)
    elif suffix in JSON_SUFFIXES:
        yield from _json(source, data)
    else:
        yield from _sniffed(source, data)


def _sniffed(source: str, data: bytes) -> Iterator[Document]:
    """By the first character: JSON, a JSON document on each line, or YAML."""
    text = data.lstrip()
    if text[:1] not in (b"{", b"["):
        yield from _yaml(source, data)
        return
    try:
        json.loads(data)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            yield from _ndjson(source, data.split(b"\n"))
            return
        # A flow mapping of YAML also begins with a brace.
        yield from _yaml(source, data)
        return
    yield from _json(source, data)


def _json(source: str, data: bytes) -> Iterator[Document]:
    try:
        value = _DECODER.decode(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise BadDocument(f"{source}:{error.lineno}: {error.msg} (column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"{source}: {error}") from None
    for item in value if isinstance(value, list) else [value]:
        yield Document(source, 1, item)


def _ndjson(source: str, lines: Iterable[bytes]) -> Iterator[Document]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Document(source, number, _DECODER.decode(line.decode()))
            except json.JSONDecodeError as error:
                raise BadDocument(f"{source}:{number}: {error.msg} (column {error.colno})") from None
            except (ValueError, RecursionError) as error:
                raise BadDocument(f"{source}:{number}: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return made


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once)


def _yaml(source: str, data: bytes) -> Iterator[Document]:
    import yaml

    loader = _loader_class()(data)
    try:
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            value = loader.construct_document(node)
            if value is None:
                continue  # nothing between two dashes
            if isinstance(value, list):
                for child, item in zip(node.value, value, strict=True):
                    yield Document(source, child.start_mark.line + 1, item, child)
            else:
                yield Document(source, line, value, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}" if mark else source
        hint = _hint(data, mark.line, mark.column) if mark else ""
        raise BadDocument(f"{place}: {hint or error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadDocument(f"{source}: {error}") from None
    finally:
        loader.dispose()


_BARE_CRON: Final = re.compile(r"""cron["']?\s*:\s+(?P<text>[^\s"'\[{].*?)\s*(?:,\s*\w+\s*:.*|\}.*|\s#.*)?""")


def _hint(data: bytes, line: int, column: int) -> str:
    """What to write instead, for the mistakes that people make; empty for any other."""
    lines = data.decode(errors="replace").splitlines()
    if line >= len(lines):
        return ""
    text = lines[line]
    if "\t" in text[: len(text) - len(text.lstrip())]:
        return "the line is indented by a tab; YAML takes spaces only"
    if cron := _BARE_CRON.search(text):
        whole = _BARE_CRON.fullmatch(text, cron.start())
        written = whole["text"] if whole else "* * * * *"
        return f'a cron expression must stand in quotes here: cron: "{written}"'
    # The mark of an anchor or alias stands after its sign, that of anything else before it.
    for sign in (text[column : column + 1], text[max(column - 1, 0) : column]):
        if sign in ("*", "@", "`", "%", "&"):
            return f"a text that begins with {sign} must stand in quotes"
    return ""


_made: list[Any] = []


def _loader_class() -> Callable[[bytes], Any]:
    """PyYAML's safe loader with the types of YAML 1.2's core schema; the C one where it was built."""
    import yaml

    if _made:
        loader: Callable[[bytes], Any] = _made[0]
        return loader
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc] # one of two classes, by how PyYAML was built
        yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own way

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key_node, _ in node.value:
                key = key_node.value
                if isinstance(key, str) and key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                if isinstance(key, str):
                    seen.add(key)
            made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return made

    tag = "tag:yaml.org,2002:"
    for name, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]+", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("null", r"~|null|Null|NULL|", "~nN\0"),
        ("merge", r"<<", "<"),
    ):
        characters = ["" if character == "\0" else character for character in first]
        Loader.add_implicit_resolver(tag + name, re.compile(f"^(?:{pattern})$"), characters)
    Loader.add_constructor(tag + "int", lambda made, node: int(made.construct_scalar(node)))
    Loader.add_constructor(tag + "timestamp", Loader.construct_yaml_str)
    _made.append(Loader)
    return Loader
