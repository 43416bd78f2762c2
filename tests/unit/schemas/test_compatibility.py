"""Every schema against its recorded history, so that what was once written stays readable, both ways."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas import record_versions
from tests.unit.schemas.evolution import breaks
from tests.unit.schemas.record_versions import COMMAND, NAMES
from tests.unit.schemas.values import plain, values
from tocsin.schemas import codec, registry
from tocsin.schemas.codec import LAYOUT, decode, past_decoder
from tocsin.schemas.registry import RECORDS, ROWS, fingerprint, named_types, recorded, schema_of, without_docs
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

SOME = settings(max_examples=max(15, settings().max_examples // 6))
BY_NAME: dict[str, type] = {cls.__name__: cls for cls in (*RECORDS, *ROWS)}
HERE = Path(registry.__file__).parent


# --- the schemas themselves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(named_types()))
def test_every_type_and_every_field_says_what_it_is(name: str) -> None:
    schema = named_types()[name]
    assert "tocsin" == schema["namespace"]
    for place, doc in [
        (name, schema.get("doc")),
        *((f["name"], f.get("doc")) for f in schema.get("fields", ())),
    ]:
        assert doc, f"{name}: {place} has no doc"
        assert re.fullmatch(r"\S.*\.", doc), f"{name}: {place}: a doc is a sentence: {doc!r}"


def test_every_file_is_named_for_its_type_and_every_type_is_used() -> None:
    found = {path.stem for path in (HERE / "avro").rglob("*.avsc")}
    assert set(named_types()) == found
    used = set()
    for name in NAMES:
        used |= {name} | set(re.findall(r"'name': '([A-Z]\w+)'", str(schema_of(name))))
    assert found == used


@pytest.mark.parametrize("name", NAMES)
def test_a_default_in_the_schema_is_the_default_of_the_dataclass(name: str) -> None:
    for type_name in {name} | set(re.findall(r"'name': '([A-Z]\w+)'", str(schema_of(name)))):
        schema = named_types()[type_name]
        shape = {f.name: f for f in COMPOSITES[type_name].fields} if type_name in COMPOSITES else {}
        for field in schema["fields"] if shape else ():
            if "default" in field:
                default = shape[field["name"]].default
                assert default is not MISSING
                value = plain(default, shape[field["name"]].shape)
                assert field["default"] == (value.decode("latin-1") if isinstance(value, bytes) else value)


def _composites(shape: Shape) -> Iterator[Composite]:
    match shape:
        case Composite(fields=parts):
            yield shape
            for part in parts:
                yield from _composites(part.shape)
        case Items(of=of) | Optional(of=of):
            yield from _composites(of)
        case Primitive() | Choice() | Mapping() | Positions():
            pass


COMPOSITES = {
    found.cls.__name__: found for cls in BY_NAME.values() for found in _composites(record_shape(cls))
}


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_has_the_fields_of_the_dataclass(name: str) -> None:
    assert [f.name for f in fields(BY_NAME[name])] == [f["name"] for f in schema_of(name)["fields"]]


def test_a_schema_that_disagrees_with_its_dataclass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: tuple[tuple[Callable[[Any], object], str], ...] = (
        (lambda s: s["fields"].pop(), "has the fields"),
        (lambda s: s["fields"][0].update(type="long"), "Pause.namespace: the schema says long"),
        (lambda s: s["fields"][2].update(type=["null", "long"]), "Pause.until_ms: the schema says"),
        (lambda s: s["fields"][2].update(type="tocsin.Cause"), "Pause.until_ms: the schema says Cause"),
    )
    for change, message in changes:
        changed = copy.deepcopy(dict(named_types()))
        change(changed["Pause"])
        monkeypatch.setattr("tocsin.schemas.shapes.named_types", partial(dict, changed))
        with pytest.raises(TypeError, match=message):
            record_shape.__wrapped__(BY_NAME["Pause"])


# --- the history -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [cls.__name__ for cls in RECORDS])
def test_what_is_written_now_is_the_newest_recorded_version(name: str) -> None:
    versions = recorded(name)
    assert list(range(1, len(versions) + 1)) == list(versions)
    assert versions[max(versions)] == without_docs(schema_of(name)), (
        f"{name}.avsc changed. Record it as a version with `{COMMAND}` "
        f"(if the newest version was never part of a release: with --amend), and raise SCHEMA_LEVEL with a new version."
    )


@pytest.mark.parametrize("name", [cls.__name__ for cls in ROWS])
def test_what_a_row_holds_is_what_its_layout_says(name: str) -> None:
    versions = recorded(name)
    assert max(versions) <= LAYOUT
    assert versions[max(versions)] == without_docs(schema_of(name)), (
        f"{name}.avsc changed. A row has no fingerprint: another layout is another LAYOUT, with a reader for this one. "
        f"If layout {LAYOUT} was never part of a release: `{COMMAND} --amend`."
    )


def _pairs() -> Iterator[tuple[str, int, int]]:
    for name in NAMES:
        numbers = list(recorded(name))
        yield from ((name, older, newer) for older in numbers for newer in numbers if older < newer)


def test_every_version_may_follow_the_ones_before_it() -> None:
    for name, older, newer in _pairs():
        assert [] == breaks(recorded(name)[older], recorded(name)[newer])


def test_the_versions_of_a_record_have_different_fingerprints() -> None:
    # Else a reader could not tell them apart; defaults alone make no version.
    for name in NAMES:
        assert len(recorded(name)) == len({fingerprint(schema) for schema in recorded(name).values()})


def _older(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that this one may follow: the same without its last fields that have a default."""
    older = copy.deepcopy(schema)
    while len(older["fields"]) > 1 and "default" in older["fields"][-1]:
        older["fields"].pop()
    return older


def _read_both_ways(cls: type, older: dict[str, Any], now: dict[str, Any], value: Any) -> None:
    shape = record_shape(cls)
    everything = plain(value, shape)
    kept = {f["name"] for f in older["fields"]}

    # The newest reads what is older: what was not written yet has its default.
    written = BytesIO()
    schemaless_writer(written, parse_schema(older), {name: everything[name] for name in kept})
    read, end = past_decoder(cls, written=older, now=now)(b"head" + written.getvalue() + b"tail", 4)
    assert 4 + len(written.getvalue()) == end
    for field in shape.fields:
        expected = getattr(value, field.name) if field.name in kept else field.default
        assert expected == getattr(read, field.name)

    # What is older reads the newest, and does not see what it does not know.
    written = BytesIO()
    schemaless_writer(written, parse_schema(now), everything)
    written.seek(0)
    seen = schemaless_reader(written, parse_schema(now), parse_schema(older))
    assert {name: everything[name] for name in kept} == seen


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_a_reader_of_before_a_field_and_one_of_after_it_read_each_other(
    name: str, data: st.DataObject
) -> None:
    now = without_docs(schema_of(name))
    older = _older(now)
    assert [] == breaks(older, now)
    _read_both_ways(BY_NAME[name], older, now, data.draw(values(BY_NAME[name])))


@SOME
@given(data=st.data())
def test_the_newest_version_and_every_recorded_one_read_each_other(data: st.DataObject) -> None:
    for name, older, newer in _pairs():
        if newer != max(recorded(name)):
            continue
        value = data.draw(values(BY_NAME[name]))
        if not _new_symbols(recorded(name)[older], BY_NAME[name]):
            _read_both_ways(BY_NAME[name], recorded(name)[older], recorded(name)[newer], value)


def _new_symbols(older: dict[str, Any], cls: type) -> bool:
    """Whether the schema level keeps the newest from the older reader, since an enum has grown."""
    now = [f.shape.symbols for f in record_shape(cls).fields if isinstance(f.shape, Choice)]
    return any(str(list(symbols)) not in str(older) for symbols in now)


def test_a_record_of_a_past_version_is_decoded_by_its_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    past = _older(without_docs(schema_of("Pause")))
    assert ["namespace", "id"] == [f["name"] for f in past["fields"]]
    both = {1: past, 2: without_docs(schema_of("Pause"))}
    monkeypatch.setattr(codec, "recorded", lambda name: both if name == "Pause" else {})
    monkeypatch.setattr(codec, "_READERS", codec._Readers())
    codec._past.cache_clear()
    data = b"\xc3\x01" + fingerprint(past) + b"\x02a\x02b"
    assert BY_NAME["Pause"](namespace="a", id="b") == decode(data)
    for damaged in (data[:-1], data[:10]):
        with pytest.raises(codec.Undecodable, match="Pause"):
            decode(damaged)
    with pytest.raises(codec.Undecodable, match="1 bytes follow"):
        decode(data + b"\0")
    codec._past.cache_clear()


# --- the rules ---------------------------------------------------------------------------------------------------------

_BEFORE = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": "string", "default": ""},
        {"name": "c", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        {
            "name": "d",
            "type": ["null", {"type": "record", "name": "S", "fields": [{"name": "s", "type": "long"}]}],
        },
        {"name": "e", "type": {"type": "array", "items": "tocsin.S"}},
    ],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop(1), "R.b is gone"),
        (lambda f: f.append({"name": "n", "type": "long"}), "R.n is new and has no default"),
        (lambda f: f[0].update(type="string"), "R.a: the type changed from long to string"),
        (lambda f: f[0].update(type=["null", "long"]), "R.a: the type changed from long to"),
        (lambda f: f[1].update(default="x"), "R.b: the default changed"),
        (lambda f: f[1].pop("default"), "R.b: the default changed"),
        (lambda f: f[2]["type"]["symbols"].remove("x"), "R.c: the symbols"),
        (lambda f: f[2]["type"]["symbols"].insert(0, "z"), "R.c: the symbols"),
        (lambda f: f[2]["type"].update(name="F"), "R.c: E became F"),
        (
            lambda f: f[3]["type"][1]["fields"].append({"name": "t", "type": "long"}),
            "R.d.t is new and has no default",
        ),
        (lambda f: f[3].update(type=["null", "long"]), "R.d: the type changed from S to long"),
        (lambda f: f[4]["type"].update(items="long"), "R.e: the type changed from S to long"),
        (
            lambda f: f[4].update(type={"type": "map", "values": "string"}),
            "R.e: the type changed from array to map",
        ),
    ],
)
def test_a_change_that_would_lose_or_misread_records_is_found(change: Any, message: str) -> None:
    after = copy.deepcopy(_BEFORE)
    change(after["fields"])
    assert message in "; ".join(breaks(_BEFORE, after))


def test_a_field_with_a_default_and_a_symbol_at_the_end_may_be_added() -> None:
    after: dict[str, Any] = copy.deepcopy(_BEFORE)
    after["fields"].insert(1, {"name": "n", "type": "long", "default": 0})
    after["fields"][3]["type"]["symbols"].append("z")
    assert [] == breaks(_BEFORE, after)
    assert [] == breaks(_BEFORE, _BEFORE)


# --- recording ---------------------------------------------------------------------------------------------------------


def test_a_schema_that_changed_is_recorded_as_a_new_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = without_docs(schema_of("Pause"))
    monkeypatch.setattr(record_versions, "HISTORY", tmp_path)
    monkeypatch.setattr(record_versions, "NAMES", ("Pause",))

    monkeypatch.setattr(registry, "recorded", lambda _: {1: _older(now)})
    assert 0 == record_versions.main([])
    assert now == json.loads((tmp_path / "Pause" / "2.avsc").read_text())
    assert 0 == record_versions.main(["--amend"])
    assert now == json.loads((tmp_path / "Pause" / "1.avsc").read_text())
    assert "Pause: version 2\nPause: version 1\n" == capsys.readouterr().out

    monkeypatch.setattr(registry, "recorded", lambda _: {1: now})
    assert 0 == record_versions.main([])
    assert "" == capsys.readouterr().out
    assert 2 == record_versions.main(["--force"])


def test_a_change_that_would_lose_records_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = without_docs(schema_of("Pause"))
    before["fields"].append({"name": "gone", "type": "long"})
    monkeypatch.setattr(record_versions, "HISTORY", tmp_path)
    monkeypatch.setattr(record_versions, "NAMES", ("Pause",))
    monkeypatch.setattr(registry, "recorded", lambda _: {1: before})
    assert 1 == record_versions.main([])
    assert [] == list(tmp_path.iterdir())
    assert "Pause: not recorded: Pause.gone is gone" in capsys.readouterr().err
