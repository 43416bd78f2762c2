"""The job document: what people may write, what is written back, and the schema that editors get."""

# ruff: noqa: E501 - a table reads by its rows

import json
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
import yaml

from tests.unit.schemas.documents import (
    MINIMAL,
    NEW_YEARS_EVE,
    NINE,
    WHOLE,
    good,
    with_,
    with_http,
    with_schedule,
)
from tocsin.schemas.document import json_schema, render
from tocsin.schemas.job import (
    CatchUp,
    Exclusion,
    FunctionTarget,
    HttpTarget,
    Job,
    Overlap,
    Retry,
    Schedule,
)
from tocsin.schemas.limits import DAY_MS, HOUR_MS
from tocsin.schemas.problems import problems

# --- what may be written -----------------------------------------------------------------------------------------------


def test_the_whole_document_of_the_manual_is_read() -> None:
    job = good(yaml.safe_load(WHOLE))
    expected = Job(
        namespace="billing",
        id="send-invoices",
        description="Sends yesterday's invoices",
        labels=(("team", "billing"), ("tier", "1")),
        schedule=Schedule(
            cron=("0 9 * * MON-FRI",),
            timezone="Europe/Berlin",
            exclude=(
                Exclusion(cron="* * 24 12 *"),
                Exclusion(from_ms=NEW_YEARS_EVE, to_ms=NEW_YEARS_EVE + DAY_MS),
            ),
            spread_ms=600_000,
            starts_at_ms=NINE - 9 * HOUR_MS,
            ends_at_ms=NINE - 9 * HOUR_MS + 365 * DAY_MS,
            max_runs=250,
        ),
        http=HttpTarget(
            url="https://api.example.com/hooks/invoices",
            headers=(("X-Team", "billing"),),
            body=b'{"day":"${nominal}"}',
            body_kind="json",
        ),
        auto_pause_after=20,
    )
    assert expected == job
    assert () == problems(job)


def test_an_id_and_a_target_are_all_that_is_needed() -> None:
    assert Job(id="a", http=HttpTarget(url="https://example.com/")) == good(MINIMAL)
    assert Job(id="a", function=FunctionTarget(name="f")) == good(
        {"id": "a", "target": {"function": {"name": "f"}}}
    )


SAME: list[tuple[str, dict[str, Any], Any]] = [
    ("one expression", with_schedule(cron="* * * * *"), Schedule(cron=("* * * * *",))),
    ("a list", with_schedule(cron=["0 * * * *", "@daily"]), Schedule(cron=("0 * * * *", "@daily"))),
    ("an interval", with_schedule(every="1m30s", after_completion=True), Schedule(every_ms=90_000, after_completion=True)),
    ("an anchor", with_schedule(every="1h", anchor="1970-01-01T00:00:01Z"), Schedule(every_ms=HOUR_MS, anchor_ms=1_000)),
    ("a delay", with_schedule(delay="0s"), Schedule(delay_ms=0)),
    ("an offset", with_schedule(at="2026-12-01T09:00:00+01:00"), Schedule(at_ms=NINE)),
    ("UTC", with_schedule(at="2026-12-01T08:00:00.000Z"), Schedule(at_ms=NINE)),
    ("local time", with_schedule(at="2026-12-01T09:00:00", timezone="Europe/Berlin"), Schedule(at_ms=NINE, timezone="Europe/Berlin")),
    ("an offset beats the zone", with_schedule(at="2026-12-01T08:00Z", timezone="Europe/Berlin"), Schedule(at_ms=NINE, timezone="Europe/Berlin")),
    ("a zone after the instant", with_schedule(timezone="Europe/Berlin", at="2026-12-01 09:00"), Schedule(at_ms=NINE, timezone="Europe/Berlin")),
    ("a YAML time", with_schedule(at=datetime(2026, 12, 1, 9), timezone="Europe/Berlin"), Schedule(at_ms=NINE, timezone="Europe/Berlin")),  # noqa: DTZ001
    ("a YAML time of UTC", with_schedule(at=datetime(2026, 12, 1, 8, tzinfo=UTC)), Schedule(at_ms=NINE)),
    ("a YAML time with an offset", with_schedule(at=datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=1)))), Schedule(at_ms=NINE)),
    ("a date, in UTC", with_schedule(at="2026-12-01"), Schedule(at_ms=NINE - 8 * HOUR_MS)),
    ("a YAML date, in the zone", with_schedule(at=date(2026, 12, 1), timezone="Europe/Berlin"), Schedule(at_ms=NINE - 9 * HOUR_MS, timezone="Europe/Berlin")),
    ("nothing, for null", with_schedule(cron=None, every=None), Schedule()),
]  # fmt: skip


@pytest.mark.parametrize("document, expected", [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_a_schedule_may_be_written_in_several_ways(document: dict[str, Any], expected: Schedule) -> None:
    assert expected == good(document).schedule


@pytest.mark.parametrize(
    "given, body, kind",
    [
        ({"body": {"b": 1, "a": "ü"}}, '{"b":1,"a":"ü"}'.encode(), "json"),
        ({"body": [1, 2.5, None, True]}, b"[1,2.5,null,true]", "json"),
        ({"body": {}}, b"{}", "json"),
        ({"body": "plain ü"}, "plain ü".encode(), "text"),
        ({"body": ""}, b"", "text"),
        ({"body_base64": "/wAB\n AgM="}, b"\xff\x00\x01\x02\x03", "base64"),
        ({"body_base64": ""}, b"", "base64"),
        ({}, b"", "none"),
        ({"body": None}, b"", "none"),
    ],
)
def test_a_body_is_json_text_or_bytes(given: dict[str, Any], body: bytes, kind: str) -> None:
    http = good(with_http(**given)).http
    assert http is not None
    assert (body, kind) == (http.body, http.body_kind)


def test_status_codes_are_numbers_or_ranges() -> None:
    http = good(with_http(success=["200-299", 404, "409", "500 - 502"])).http
    assert http is not None
    assert ((200, 299), (404, 404), (409, 409), (500, 502)) == http.success


def test_mappings_are_sorted_by_their_keys() -> None:
    job = good({**with_http(headers={"b": "2", "a": "1"}), "labels": {"z": "", "y": "x"}})
    assert job.http is not None
    assert (("a", "1"), ("b", "2")) == job.http.headers
    assert (("y", "x"), ("z", "")) == job.labels


def test_an_overlap_is_a_word_or_an_object() -> None:
    assert Overlap(mode="replace") == good(with_(overlap="replace")).overlap
    assert (
        Overlap(mode="buffer_all", limit=3) == good(with_(overlap={"mode": "buffer_all", "limit": 3})).overlap
    )


def test_policies_are_read_with_their_defaults() -> None:
    job = good(
        with_(
            retry={"backoff": "list", "delays": ["10s", "1m"], "factor": 2, "jitter": 0},
            catchup={"mode": "none"},
            lease="2m",
        )
    )
    assert Retry(backoff="list", delays_ms=(10_000, 60_000), factor=2.0, jitter=0.0) == job.retry
    assert CatchUp(mode="none") == job.catchup
    assert 120_000 == job.lease_ms
    assert float is type(job.retry.factor)


def test_arguments_of_a_function_are_kept_as_the_shortest_json() -> None:
    job = good(
        {"id": "a", "target": {"function": {"name": "f", "arguments": {"b": [1, {"c": None}], "a": 1.0}}}}
    )
    assert FunctionTarget(name="f", arguments=b'{"b":[1,{"c":null}],"a":1.0}') == job.function


# --- what is written back ----------------------------------------------------------------------------------------------


def test_a_job_is_written_as_it_was_given_and_with_its_defaults_if_asked() -> None:
    given = with_(schedule={"every": "1m30s"}, overlap="allow", retry={"base": "10s"})
    assert given == render(good(given))
    assert {
        "namespace": "default",
        "id": "a",
        "description": "",
        "paused": False,
        "queue": "default",
        "priority": "normal",
        "schedule": {
            "every": "1m30s",
            "timezone": "UTC",
            "gap": "at_end",
            "fold": "first",
            "after_completion": False,
            "spread": "0s",
        },
        "target": {
            "http": {
                "url": "https://example.com/",
                "method": "POST",
                "timeout": "30s",
                "success": ["200-299"],
            }
        },
        "retry": {
            "max_attempts": 5,
            "backoff": "exponential",
            "base": "10s",
            "factor": 4,
            "max": "1h",
            "jitter": 0.2,
            "max_age": "1d",
            "until_next": True,
        },
        "lease": "1m",
        "overlap": {"mode": "allow", "limit": 100},
        "catchup": {"mode": "latest", "window": "1d", "limit": 100, "grace": "30s"},
        "when_finished": "delete",
    } == render(good(given), full=True)


# --- the schema --------------------------------------------------------------------------------------------------------


def _properties(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    resolved = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    properties: dict[str, Any] = resolved["properties"]
    return properties


def test_the_json_schema_has_every_field_and_says_what_it_is() -> None:
    schema = json_schema()
    assert "https://json-schema.org/draft/2020-12/schema" == schema["$schema"]
    definitions = schema["$defs"]
    assert {
        "Schedule",
        "Exclusion",
        "Target",
        "HttpTarget",
        "FunctionTarget",
        "Retry",
        "Overlap",
        "CatchUp",
    } == set(definitions)
    for part in (schema, *definitions.values()):
        assert part["additionalProperties"] is False
        for name, each in part["properties"].items():
            assert re.fullmatch(r"\S.*\.", each["description"]), name
    assert ["id", "target"] == schema["required"]
    assert "limits" not in schema["properties"]
    retry = _properties(schema["properties"]["retry"], definitions)
    assert {"type": "integer", "minimum": 1, "maximum": 100, "default": 5} == {
        key: value for key, value in retry["max_attempts"].items() if key != "description"
    }
    assert "30s" == retry["base"]["default"]
    assert "skip" == schema["properties"]["overlap"]["default"]
    assert json.loads(json.dumps(schema)) == schema
    json_schema()["title"] = "changed"
    assert "Tocsin job" == json_schema()["title"]


def test_the_patterns_of_the_json_schema_take_what_is_taken() -> None:
    properties = json_schema()["$defs"]["Schedule"]["properties"]
    duration, instant = properties["every"]["pattern"], properties["at"]["pattern"]
    for text in ("90s", "1d2h3m4s500ms", "0s", "1h"):
        assert re.search(duration, text), text
    for text in ("", "90", "1s1h", "-1s", "1.5h", "1w"):
        assert not re.search(duration, text), text
    for text in ("2026-12-01", "2026-12-01T09:00", "2026-12-01T09:00:00.5Z", "2026-12-01 09:00:00+01:00"):
        assert re.search(instant, text), text
    for text in ("", "tomorrow", "2026-12", "2026-12-01T9"):
        assert not re.search(instant, text), text
