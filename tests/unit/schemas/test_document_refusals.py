"""The job document: each wrong way to write it, and the answer that it gets."""

# ruff: noqa: E501 - a table reads by its rows

import re
from datetime import date, datetime
from typing import Any

import pytest

from tests.unit.schemas.documents import (
    HTTP,
    MINIMAL,
    with_,
    with_http,
    with_schedule,
)
from tocsin.schemas.document import parse
from tocsin.schemas.problems import problems

# field, rule, what the message holds, value; the document that has this one problem.
REFUSED: list[tuple[str, str, str, str, Any]] = [
    # --- the whole
    ("", "type", "expected an object with at least id and target, got a list", "[]", []),
    ("", "type", "got nothing (null)", "null", None),
    ("", "type", "got the text 'id: a'", "id: a", "id: a"),
    ("id", "required", "id is missing: the name of the job", "", {"target": {"http": HTTP}}),
    ("id", "required", "id is missing", "", with_(id=None)),
    ("target", "required", "target is missing: what the job does", "", {"id": "a"}),
    ("target", "required", "a job needs a target: http or function", "", with_(target={})),
    ("target", "one-of", "keep http or function", "http, function", with_(target={"http": HTTP, "function": {"name": "f"}})),
    ("target.http.url", "required", "url is missing: where the request goes", "", with_(target={"http": {}})),
    ("target.function.name", "required", "name is missing", "", with_(target={"function": {"arguments": {}}})),
    # --- unknown fields
    ("shedule", "unknown-field", "there is no field 'shedule' here: did you mean schedule?", "{}", with_(shedule={})),
    ("retry.max_attempt", "unknown-field", "did you mean max_attempts?", "3", with_(retry={"max_attempt": 3})),
    ("cron", "unknown-field", "it belongs to schedule.cron", "* * * * *", with_(cron="* * * * *")),
    ("target.url", "unknown-field", "it belongs to target.http.url", "x", with_(target={"http": HTTP, "url": "x"})),
    ("schedule.timeout", "unknown-field", "it belongs to target.http.timeout", "1s", with_schedule(timeout="1s")),
    ("catchup.zzz", "unknown-field", "the fields are mode, window, limit, grace", "1", with_(catchup={"zzz": 1})),
    ("target.http.body_text", "unknown-field", "did you mean", "x", with_http(body_text="x")),
    ("schedule.exclude[0].when", "unknown-field", "the fields are cron, from, to", "x", with_schedule(cron="* * * * *", exclude=[{"cron": "* * 1 * *", "when": "x"}])),
    ("True", "unknown-field", "there is no field 'True' here", "1", MINIMAL | {True: 1}),
    # --- what is not built yet
    ("limits", "not-available", "limits is not available yet: leave it out", '{"rate": "10/s"}', with_(limits={"rate": "10/s"})),
    ("on_success", "not-available", "leave it out", "{}", with_(on_success={})),
    ("on_failure", "not-available", "leave it out", "null", with_(on_failure=None)),
    ("schedule.after", "not-available", "after is not available yet", '{"job": "a/b"}', with_schedule(after={"job": "a/b"})),
    ("schedule.exclude[0].calendar", "not-available", "calendar is not available yet", "de", with_schedule(cron="* * * * *", exclude=[{"calendar": "de"}])),
    ("target.topic", "not-available", "topic is not available yet", '{"topic": "x"}', with_(target={"topic": {"topic": "x"}})),
    ("target.http.signing_secret", "secret", "expected {secret: NAME}, with the name of a secret", "", with_http(signing_secret="whsec_x")),
    ("target.http.signing_secret", "secret", "and nothing else", "", with_http(signing_secret={"secret": "x", "value": "y"})),
    ("target.http.headers.Authorization", "secret", "expected {secret: NAME}", "", with_http(headers={"Authorization": {"secret": "x", "prefix": "y"}})),
    ("target.http.headers.Authorization.secret", "type", 'write "7", in quotes', "7", with_http(headers={"Authorization": {"secret": 7}})),
    ("target.http.signing_secret.secret", "secret-name", "it is a file of the workers", "", with_http(signing_secret={"secret": "a secret!"})),
    ("target.http.headers.Authorization.secret", "secret-name", "this is no name of a secret", "", with_http(headers={"Authorization": {"secret": "Bearer abc"}})),
    ("target.http.headers.x-a", "header-duplicate", "are one header", "x-a", with_http(headers={"X-A": "1", "x-a": {"secret": "x"}})),
    ("target.http.headers.Webhook-Id", "header-reserved", "leave it out", "Webhook-Id", with_http(headers={"Webhook-Id": {"secret": "x"}})),
    # --- types
    ("id", "type", 'expected text: write "7", in quotes, got the number 7', "7", with_(id=7)),
    ("id", "type", 'write "2026-12-01", in quotes, got the date 2026-12-01', "2026-12-01", with_(id=date(2026, 12, 1))),
    ("description", "type", "expected text, got a list", '["x"]', with_(description=["x"])),
    ("description", "text", "half of a character", "'a\\ud800'", with_(description="a\ud800")),
    ("labels", "type", "expected an object of names and texts, got a list", '["a"]', with_(labels=["a"])),
    ("labels.tier", "type", 'write "1", in quotes', "1", with_(labels={"tier": 1})),
    ("labels.on", "type", 'write "true", in quotes, got true', "true", with_(labels={"on": True})),
    ("labels.1", "type", 'text as each name: write "1", in quotes', "1", with_(labels={1: "x"})),
    ("labels.a", "type", "expected text, got nothing (null)", "null", with_(labels={"a": None})),
    ("paused", "type", "expected true or false, got the text 'yes'", "yes", with_(paused="yes")),
    ("paused", "type", "expected true or false, got the number 1", "1", with_(paused=1)),
    ("priority", "choice", "'hihg' is none of normal, high: did you mean high?", "hihg", with_(priority="hihg")),
    ("priority", "choice", "'1' is none of normal, high", "1", with_(priority=1)),
    ("when_finished", "choice", "'remove' is none of delete, keep", "remove", with_(when_finished="remove")),
    ("auto_pause_after", "type", "a whole number: write 20, without quotes", "20", with_(auto_pause_after="20")),
    ("auto_pause_after", "type", "expected a whole number, got the text 'never'", "never", with_(auto_pause_after="never")),
    ("auto_pause_after", "type", "expected a whole number, got the number 2.5", "2.5", with_(auto_pause_after=2.5)),
    ("auto_pause_after", "type", "expected a whole number, got true", "true", with_(auto_pause_after=True)),
    ("auto_pause_after", "range", "the number is 1 to", str(2**63), with_(auto_pause_after=2**63)),
    ("retry.factor", "type", "a number: write 2, without quotes", "2", with_(retry={"factor": "2"})),
    ("retry.factor", "type", "expected a number", str(10**400)[:200], with_(retry={"factor": 10**400})),
    ("retry", "type", "expected an object such as {max_attempts: 5, base: 30s}, got the number 5", "5", with_(retry=5)),
    ("schedule", "type", "expected an object such as {cron: 0 9", "0 9 * * *", with_(schedule="0 9 * * *")),
    ("target", "type", "expected an object with http or function", "https://x", with_(target="https://x")),
    ("target.http", "type", "expected an object with a url", "https://x", with_(target={"http": "https://x"})),
    ("catchup", "type", "expected an object such as {mode: latest", "all", with_(catchup="all")),
    ("overlap", "choice", "'skp' is none of skip, allow", "skp", with_(overlap="skp")),
    ("overlap", "type", "expected skip, allow, buffer_one", "1", with_(overlap=1)),
    ("overlap.mode", "choice", "did you mean buffer_all?", "buffer-all", with_(overlap={"mode": "buffer-all"})),
    # --- durations
    ("lease", "duration-unit", "60 has no unit: write 60s for seconds", "60", with_(lease=60)),
    ("lease", "duration-unit", "60 has no unit", "60", with_(lease="60")),
    ("lease", "duration-fraction", "whole numbers", "1.5h", with_(lease="1.5h")),
    ("lease", "type", "a duration, for example 90s or 1h30m", "1.5", with_(lease=1.5)),
    ("lease", "type", "a duration", "true", with_(lease=True)),
    ("lease", "type", "a duration", "-60", with_(lease=-60)),
    ("lease", "duration-sign", "negative", "-60s", with_(lease="-60s")),
    ("schedule.every", "duration-unit", "'w' is no unit: use d, h, m, s or ms", "1w", with_schedule(every="1w")),
    ("schedule.spread", "duration-order", "largest first", "1s1h", with_schedule(every="1s", spread="1s1h")),
    ("retry.delays", "type", "a list of durations", "10s", with_(retry={"backoff": "list", "delays": "10s"})),
    ("retry.delays[1]", "duration-unit", "10 has no unit", "10", with_(retry={"backoff": "list", "delays": ["1s", 10]})),
    # --- instants
    ("schedule.at", "instant-offset", "or give schedule.timezone", "2026-12-01T09:00:00", with_schedule(at="2026-12-01T09:00:00")),
    ("schedule.at", "instant-offset", "has no offset", "2026-12-01T09:00:00", with_schedule(at=datetime(2026, 12, 1, 9))),  # noqa: DTZ001
    ("schedule.at", "instant-format", "is not an instant", "tomorrow", with_schedule(at="tomorrow")),
    ("schedule.at", "instant-range", "no date of the calendar", "2026-02-30", with_schedule(at="2026-02-30")),
    ("schedule.at", "type", "expected an instant, for example", "1796112000", with_schedule(at=1_796_112_000)),
    ("schedule.timezone", "timezone-unknown", "did you mean Europe/Berlin", "Europe/Berln", with_schedule(at="2026-12-01T09:00", starts_at="2026-11-01", timezone="Europe/Berln")),
    ("schedule.timezone", "type", "expected text", "1", with_schedule(every="1s", timezone=1)),
    # --- lists
    ("schedule.cron", "type", "a cron expression, or a list of them", '{"a": 1}', with_schedule(cron={"a": 1})),
    ("schedule.cron[1]", "type", "expected text", "5", with_schedule(cron=["* * * * *", 5])),
    ("schedule.cron[0]", "cron-minute", "minute 75 is outside 0-59", "75 * * * *", with_schedule(cron="75 * * * *", every=5)),
    ("schedule.exclude", "type", "a list of exclusions", '{"cron": "* * 1 * *"}', with_schedule(cron="* * * * *", exclude={"cron": "* * 1 * *"})),
    ("schedule.exclude[0]", "type", "an exclusion: {cron: ...}", "2026-12-31", with_schedule(cron="* * * * *", exclude=["2026-12-31"])),
    ("schedule.exclude[0].from", "instant-format", "is not an instant", "soon", with_schedule(cron="* * * * *", exclude=[{"from": "soon", "to": "2027-01-01"}])),
    # --- requests
    ("target.http.headers", "type", "an object of header names and values", '["X-A: 1"]', with_http(headers=["X-A: 1"])),
    ("target.http.headers.X-Count", "type", 'write "5", in quotes', "5", with_http(headers={"X-Count": 5})),
    ("target.http.success", "type", "for example [200-299, 404]", "200-299", with_http(success="200-299")),
    ("target.http.success[0]", "type", "a status code or a range", "2xx", with_http(success=["2xx"])),
    ("target.http.success[0]", "type", "a status code or a range", "true", with_http(success=[True])),
    ("target.http", "one-of", "keep body or body_base64", "body, body_base64", with_http(body="x", body_base64="eA==")),
    ("target.http.body", "type", "an object (sent as JSON), a list, or text", "5", with_http(body=5)),
    ("target.http.body", "json", "the name 1 is no text: write it in quotes", "", with_http(body={1: "a"})),
    ("target.http.body", "json", "2026-12-01 is a date to YAML, and JSON has none", "", with_http(body={"day": [date(2026, 12, 1)]})),
    ("target.http.body", "json", "not JSON compliant", "", with_http(body={"x": float("inf")})),
    ("target.http.body", "json", "a bytes is no JSON", "", with_http(body={"x": b"y"})),
    ("target.http.body", "text", "half of a character", "", with_http(body={"x": "\ud800"})),
    ("target.http.body", "text", "half of a character", "'\\ud800'", with_http(body="\ud800")),
    ("target.http.body_base64", "base64", "no base64", "a", with_http(body_base64="a")),
    ("target.http.body_base64", "base64", "no base64", "é===", with_http(body_base64="é===")),
    ("target.http.body_base64", "type", "text in base64", "5", with_http(body_base64=5)),
    ("target.function.arguments", "type", "an object: a name and a value", "[1]", with_(target={"function": {"name": "f", "arguments": [1]}})),
]  # fmt: skip


@pytest.mark.parametrize(
    "field, rule, message, value, document",
    REFUSED,
    ids=[f"{row[0] or 'whole'}-{row[1]}-{i}" for i, row in enumerate(REFUSED)],
)
def test_each_wrong_way_is_refused_with_the_field_and_what_to_write(
    field: str, rule: str, message: str, value: str, document: Any
) -> None:
    job, found = parse(document)
    if job is not None:  # well formed, and wrong
        found = problems(job)
    named = [each for each in found if each.field == field]
    assert [rule] == [each.rule for each in named]
    assert message in named[0].message
    assert value == named[0].value
    others = {each.field for each in found} - {field}
    assert others <= {"schedule.every"}, "one mistake, one problem"


def test_every_problem_of_a_document_is_said_at_once_those_of_form_and_those_of_meaning() -> None:
    document = {
        "id": "a b",
        "shedule": {},
        "labels": {"tier": 1},
        "schedule": {"cron": ["75 * * * *", "0 0 31 4 *"], "timezone": "Europe/Berln", "spread": 10},
        "target": {"http": {"url": "ftp://x", "timeout": 30, "headers": {"Host": "x"}}},
        "retry": {"base": 30, "max_attempts": -1, "jitter": 2},
        "limits": {},
    }
    job, found = parse(document)
    assert job is None
    assert {
        ("id", "id-grammar"),
        ("shedule", "unknown-field"),
        ("labels.tier", "type"),
        ("schedule.cron[0]", "cron-minute"),
        ("schedule.cron[1]", "cron-never"),
        ("schedule.timezone", "timezone-unknown"),
        ("schedule.spread", "duration-unit"),
        ("target.http.url", "url-scheme"),
        ("target.http.timeout", "duration-unit"),
        ("target.http.headers.Host", "header-reserved"),
        ("retry.base", "duration-unit"),
        ("retry.max_attempts", "range"),
        ("retry.jitter", "range"),
        ("limits", "not-available"),
    } == {(each.field, each.rule) for each in found}
    assert len(found) == 14


def test_a_body_that_is_deeper_than_json_allows_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert [("target.http.body", "json")] == [
        (each.field, each.rule) for each in parse(with_http(body=deep))[1]
    ]


def test_a_body_of_too_many_values_is_refused_before_it_is_walked() -> None:
    many: Any = [0]
    for _ in range(20):
        many = [many, many]
    [found] = parse(with_http(body=many))[1]
    assert "more than 204,800 values" in found.message


@pytest.mark.parametrize(
    "name",
    ["limits", "on_success", "on_failure", "schedule.after", "schedule.exclude[0].calendar", "target.topic"],
)
def test_what_is_not_built_yet_is_refused_whatever_it_holds(name: str) -> None:
    held: tuple[Any, ...] = (None, {}, "x", 5, [1])
    for value in held:
        document: dict[str, Any] = {
            "id": "a",
            "target": {"http": HTTP},
            "schedule": {"cron": "* * * * *", "exclude": [{}]},
        }
        place: Any = document
        *path, last = re.findall(r"\w+", name)
        for part in path:
            place = place[int(part) if part.isdigit() else part]
        place[last] = value
        assert (name, "not-available") in [(each.field, each.rule) for each in parse(document)[1]]


def test_a_document_of_nothing_but_mistakes_is_answered_with_the_first_hundred() -> None:
    unknown = {f"field-{i}": i for i in range(30_000)}
    for document in (MINIMAL | unknown, with_(labels={"a": "b"}, schedule=unknown)):
        job, found = parse(document)
        assert job is None
        assert 101 == len(found)
        assert ("", "too-many-problems") == (found[-1].field, found[-1].rule)


@pytest.mark.parametrize(
    "field, document",
    [
        ("labels", with_(labels={str(i): "" for i in range(30_000)})),
        ("target.http.headers", with_http(headers={f"X-{i}": "" for i in range(65)})),
        ("target.http.success", with_http(success=[200] * 33)),
        ("schedule.cron", with_schedule(cron=["x"] * 65)),
        ("schedule.exclude", with_schedule(cron="* * * * *", exclude=[{}] * 401)),
        ("retry.delays", with_(retry={"backoff": "list", "delays": ["1s"] * 100})),
    ],
)
def test_a_list_that_is_too_long_is_refused_as_a_whole(field: str, document: dict[str, Any]) -> None:
    [found] = parse(document)[1]
    assert (field, "too-many") == (found.field, found.rule)
    assert "are allowed here, not" in found.message


def test_a_value_without_end_is_shown_by_its_beginning() -> None:
    endless: list[Any] = []
    endless.append(endless)
    laughs: Any = "ha"
    for _ in range(60):
        laughs = [laughs, laughs]
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for value in (endless, laughs, deep):
        for document in (with_(color=value), with_(lease=value), with_http(headers={"X-A": value})):
            [found] = parse(document)[1]
            assert "..." in found.value
        assert parse(with_http(body=value))[0] is None


def test_an_empty_list_of_expressions_is_no_schedule() -> None:
    job, (found,) = parse({"id": "a", "target": {"http": {"url": "http://x/"}}, "schedule": {"cron": []}})
    assert job is None
    assert (found.field, found.rule) == ("schedule.cron", "empty")
