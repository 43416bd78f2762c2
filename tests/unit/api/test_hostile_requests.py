"""Requests that nobody sends by accident: each is refused with a reason; none is a defect of ours."""

import json
from typing import Any

import pytest

from tests.unit.api.fakes import HELLO, NAMES, FakeNode

LONE = r"\ud800"
"""Half of a character, as JSON can spell it; no UTF-8 can hold it."""
DIGITS = "9" * 900
TARGET = '"target": {"http": {"url": "http://a/"}}'


def refused(answer: Any) -> dict[str, Any]:
    """The problem that the answer is; it can be read by everybody."""
    assert 400 <= answer.status_code < 500, answer.text
    assert "application/problem+json" == answer.headers["content-type"]
    body: dict[str, Any] = json.loads(answer.content.decode("utf-8"))
    json.dumps(body, ensure_ascii=False).encode()  # no lone surrogate, spelled out or not
    return body


def fields_of(problem: dict[str, Any]) -> list[str]:
    return [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    "document",
    [
        f'{{"{LONE}": 1, {TARGET}}}',
        f'{{"id": "{LONE}", {TARGET}}}',
        f'{{"namespace": "{LONE}", {TARGET}}}',
        f'{{"schedule": {{"cron": "{LONE}"}}, {TARGET}}}',
        f'{{"schedule": {{"{LONE}": 1}}, {TARGET}}}',
        f'{{"schedule": {{"every": "{LONE}"}}, {TARGET}}}',
        f'{{"schedule": {{"at": "{LONE}"}}, {TARGET}}}',
        f'{{"schedule": {{"at": "2026-01-01", "timezone": "{LONE}"}}, {TARGET}}}',
        f'{{"labels": {{"{LONE}": "a"}}, {TARGET}}}',
        f'{{"overlap": "{LONE}", {TARGET}}}',
        f'{{"retry": {{"max_attempts": {DIGITS}}}, {TARGET}}}',
        f'{{"target": {{"http": {{"url": "http://a/", "body": {{"{LONE}": 1}}}}}}}}',
        f'{{"target": {{"http": {{"url": "http://a/", "headers": {{"{LONE}": "{LONE}"}}}}}}}}',
        f'{{"target": {{"http": {{"url": "http://a/", "body": {"[" * 900}{"]" * 900}, "x": 1}}}}}}',
    ],
)
def test_no_document_is_too_odd_to_be_refused(node: FakeNode, document: str) -> None:
    named = document if document.startswith('{"id"') else f'{{"id": "a", {document[1:]}'
    refused(node.ask("PUT", "/v1/jobs/default/a", content=document))
    refused(node.ask("POST", "/v1/jobs:preview", content=f'{{"document": {document}}}'))
    answer = node.ask("POST", "/v1/jobs:batch", content=named)
    [line] = [json.loads(text) for text in answer.text.splitlines()]
    assert (200, "invalid") == (answer.status_code, line["result"])
    json.dumps(line, ensure_ascii=False).encode()
    assert [] == node.records(NAMES.jobs)


@pytest.mark.parametrize(
    "document, said",
    [
        ("9" * 5000, "digits"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ("[" * 100_000, "nested"),
    ],
    ids=["number", "number inside", "depth"],
)
def test_what_python_cannot_read_is_refused_in_words_about_the_document(
    node: FakeNode, document: str, said: str
) -> None:
    problem = refused(node.ask("PUT", "/v1/jobs/default/a", content=document))
    assert "urn:tocsin:problem:invalid-json" == problem["type"]
    assert said in problem["detail"]
    assert "sys." not in problem["detail"]


@pytest.mark.parametrize(
    "document, key",
    [
        (f'{{"queue": "a", "queue": "default", {TARGET}}}', "'queue'"),
        (f'{{"schedule": {{"every": "1h", "every": "5s"}}, {TARGET}}}', "'every'"),
        (f'{{"{LONE}": 1, "{LONE}": 1, {TARGET}}}', r"'\ud800'"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_as_it_is_in_yaml(
    node: FakeNode, document: str, key: str
) -> None:
    problem = refused(node.ask("PUT", "/v1/jobs/default/a", content=document))
    assert "urn:tocsin:problem:invalid-json" == problem["type"]
    assert f"the key {key} is given twice" == problem["detail"]
    answer = node.ask("POST", "/v1/jobs:batch", content=f'{{"id": "a", {document[1:]}')
    [line] = [json.loads(text) for text in answer.text.splitlines()]
    assert ("invalid", "json") == (line["result"], line["errors"][0]["rule"])
    refused(node.ask("POST", "/v1/jobs/default/a/trigger", content='{"reason": "a", "reason": "b"}'))
    assert [] == node.records(NAMES.jobs)


COMMANDS = [
    ("POST", "/v1/jobs/default/a/trigger", "reason"),
    ("POST", "/v1/jobs/default/a/trigger", "body"),
    ("POST", "/v1/jobs/default/a/trigger", "body_base64"),
    ("POST", "/v1/jobs/default/a/pause", "reason"),
    ("POST", "/v1/jobs/default/a/pause", "until"),
    ("POST", "/v1/jobs/default/a/resume", "reason"),
    ("POST", "/v1/jobs/default/a/skip-next", "reason"),
    ("PUT", "/v1/queues/reports", "kind"),
    ("POST", "/v1/runs/default/a!t.x/cancel", "reason"),
    ("POST", "/v1/dead-letters/default/a!t.y/redrive", "reason"),
    ("POST", "/v1/dead-letters:redrive", "reason"),
    ("POST", "/v1/dead-letters:redrive", "namespace"),
    ("POST", "/v1/dead-letters:redrive", "cursor"),
]


@pytest.mark.parametrize("method, path, field", COMMANDS)
def test_half_a_character_in_a_command_is_refused_and_its_field_named(
    node: FakeNode, method: str, path: str, field: str
) -> None:
    node.put("default/a")
    node.state.put_run("default/a!t.x", "running")
    node.state.put_dead("default/a!t.y")
    problem = refused(node.ask(method, path, content=f'{{"{field}": "{LONE}"}}'))
    assert [field] == fields_of(problem)
    refused(node.ask(method, path, content=f'{{"{LONE}": 1}}'))
    assert [] == node.records(NAMES.commands)


@pytest.mark.parametrize(
    "body, field",
    [
        (f'{{"body": {{"{LONE}": 1}}}}', "body"),
        (f'{{"body": ["{LONE}"]}}', "body"),
        ('{"body_base64": "é"}', "body_base64"),
        (f'{{"reason": {"[" * 900}{"]" * 900}}}', "reason"),
    ],
)
def test_a_payload_that_cannot_be_sent_is_refused(node: FakeNode, body: str, field: str) -> None:
    node.put("default/a")
    problem = refused(node.ask("POST", "/v1/jobs/default/a/trigger", content=body.encode()))
    assert [field] == fields_of(problem)


def test_a_reason_that_would_steer_a_terminal_is_refused(node: FakeNode) -> None:
    node.put("default/a")
    problem = refused(node.ask("POST", "/v1/jobs/default/a/pause", json={"reason": "a\x1b[2J"}))
    assert (["reason"], "control-character") == (fields_of(problem), problem["errors"][0]["rule"])
    assert 202 == node.ask("POST", "/v1/jobs/default/a/pause", json={"reason": "two\nlines"}).status_code


@pytest.mark.parametrize("host", [b"[", b"[::1", b"]", b"[v1.x]", b"\xff", b"", b"@", b"a" * 9000])
def test_a_host_that_is_none_is_foreign(node: FakeNode, host: bytes) -> None:
    answer = node.ask("POST", "/v1/jobs/default/a/trigger", headers={"host": host})
    assert "urn:tocsin:problem:foreign-origin" == refused(answer)["type"]


@pytest.mark.parametrize("header", ["origin", "idempotency-key"])
@pytest.mark.parametrize("value", [b"[", b"\xff\xfe", b"\xed\xa0\x80", DIGITS.encode()])
def test_odd_headers_are_refused(node: FakeNode, header: str, value: bytes) -> None:
    node.put("default/a")
    refused(node.ask("POST", "/v1/jobs/default/a/trigger", headers={header: value}))


LISTS = ["/v1/jobs", "/v1/jobs/default/a/runs", "/v1/dead-letters"]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("cursor", ["-1", DIGITS, "garbage", "%C2%B2", "%00"])
def test_every_list_refuses_a_cursor_that_is_none_in_the_same_words(
    node: FakeNode, path: str, cursor: str
) -> None:
    node.put("default/a", HELLO)
    problem = refused(node.ask("GET", f"{path}?cursor={cursor}"))
    [error] = problem["errors"]
    assert ("cursor", "cursor") == (error["field"], error["rule"])
    assert (
        error["message"]
        == "this is no `next_cursor` of a page of this list: leave it out to begin at the start"
    )


@pytest.mark.parametrize("path", [*LISTS, "/v1/runs"])
@pytest.mark.parametrize("name", ["limit", "namespace"])
@pytest.mark.parametrize("value", ["%00", "%ED%A0%80", DIGITS, "9" * 5000, "-1", "%C2%B2"])
def test_odd_parameters_are_refused_or_ignored(node: FakeNode, path: str, name: str, value: str) -> None:
    node.put("default/a", HELLO)
    answer = node.ask("GET", f"{path}?{name}={value}")
    if name == "namespace" and path.endswith("/a/runs"):
        assert 200 == answer.status_code  # it has no such parameter
    else:
        assert [name] == fields_of(refused(answer))
