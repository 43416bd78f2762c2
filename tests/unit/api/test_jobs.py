"""Definitions and commands through the HTTP API, as they arrive on the log and as they are answered."""

from typing import Any

import pytest

from tests.unit.api.fakes import HELLO, NAMES, PARTITIONS, START_MS, FakeNode, fake_node
from tocsin.log.partitioner import partition_for
from tocsin.schemas.records import JobDefinition, Pause, Resume, SkipNext, Trigger

CHANGED = {**HELLO, "schedule": {"every": "6s"}}


def errors_of(answer: Any) -> list[tuple[str, str]]:
    assert "application/problem+json" == answer.headers["content-type"]
    return [(error["field"], error["rule"]) for error in answer.json()["errors"]]


def test_a_put_is_answered_with_the_records_coordinates_once_the_log_has_it(node: FakeNode) -> None:
    answer = node.ask("PUT", "/v1/jobs/billing/invoices", json=HELLO, headers={"tocsin-actor": "anna"})
    assert 202 == answer.status_code
    assert {
        "key": "billing/invoices",
        "result": "acknowledged",
        "topic": "tocsin.jobs",
        "partition": partition_for(b"billing/invoices", PARTITIONS),
        "offset": 0,
    } == answer.json()
    [record] = node.records(NAMES.jobs)
    assert isinstance(record, JobDefinition)
    assert ("billing", "invoices", "anna", False) == (
        record.namespace,
        record.id,
        record.actor,
        record.deleted,
    )
    assert record.job is not None
    assert 5000 == record.job.schedule.every_ms


def test_waiting_for_applied_tells_created_from_unchanged_from_changed(node: FakeNode) -> None:
    answers = [node.put("default/a"), node.put("default/a"), node.put("default/a", CHANGED)]
    assert [(201, "created", 1), (200, "unchanged", 1), (200, "changed", 2)] == [
        (a.status_code, a.json()["result"], a.json()["revision"]) for a in answers
    ]
    assert "active" == answers[0].json()["state"]
    assert "2026-01-01T00:00:05.100Z" == answers[0].json()["next_due"]


def test_a_search_that_has_not_found_the_next_occurrence_yet_shows_none(node: FakeNode) -> None:
    node.put("default/a")
    row = node.state.jobs["default/a"].row
    row.armed, row.armed_nominal_ms, row.armed_due_ms = "continue", START_MS + 5000, START_MS + 5100
    seen = node.ask("GET", "/v1/jobs/default/a").json()
    assert (None, None) == (seen["next_nominal"], seen["next_due"])
    assert "2026-01-01T00:00:05.000Z" == seen["none_before"]
    [line] = node.ask("GET", "/v1/jobs").json()["items"]
    assert (None, seen["none_before"]) == (line["next_due"], line["none_before"])
    assert None is node.put("default/a").json()["next_due"]

    row.armed = "ahead"
    seen = node.ask("GET", "/v1/jobs/default/a").json()
    assert ("2026-01-01T00:00:05.100Z", None) == (seen["next_due"], seen["none_before"])


def test_a_job_that_is_created_again_after_its_deletion_is_created_and_counts_on(node: FakeNode) -> None:
    node.put("default/a")
    deleted = node.ask("DELETE", "/v1/jobs/default/a", params={"wait": "applied"})
    assert (200, "deleted") == (deleted.status_code, deleted.json()["result"])
    again = node.put("default/a")
    assert (201, "created", 2) == (again.status_code, again.json()["result"], again.json()["revision"])


def test_paused_in_a_document_is_outside_of_what_makes_a_revision(node: FakeNode) -> None:
    node.put("default/a")
    assert "unchanged" == node.put("default/a", {**HELLO, "paused": True}).json()["result"]


def test_all_that_is_wrong_with_a_document_is_reported_together(node: FakeNode) -> None:
    document = {
        "schedule": {"cron": "75 * * * *", "timezone": "Europe/Berln"},
        "target": {"http": {"url": "http://127.0.0.1:8790/ok"}},
        "retry": {"max_attempts": 0},
        "colour": "red",
    }
    answer = node.ask("PUT", "/v1/jobs/default/a", json=document)
    assert 422 == answer.status_code
    body = answer.json()
    assert ("urn:tocsin:problem:invalid-job", 422) == (body["type"], body["status"])
    fields = {error["field"] for error in body["errors"]}
    assert "colour" in fields
    assert [] == node.records(NAMES.jobs)


def test_a_wrong_cron_field_is_named_with_its_rule_and_the_value(node: FakeNode) -> None:
    document = {**HELLO, "schedule": {"cron": "75 * * * *"}}
    [error] = node.ask("PUT", "/v1/jobs/default/a", json=document).json()["errors"]
    assert ("schedule.cron[0]", "75 * * * *") == (error["field"], error["value"])
    assert "0-59" in error["message"]


def test_an_unknown_queue_names_the_existing_ones_and_the_command_that_creates_it(node: FakeNode) -> None:
    answer = node.put("default/a", {**HELLO, "queue": "reports"})
    assert (422, [("queue", "unknown-queue")]) == (answer.status_code, errors_of(answer))
    message = answer.json()["errors"][0]["message"]
    assert "default, functions" in message
    assert "tocsin queues create reports --kind http" in message


def test_a_queue_of_another_kind_is_refused_and_the_fitting_one_is_named(node: FakeNode) -> None:
    answer = node.put("default/a", {**HELLO, "queue": "functions"})
    assert [("queue", "queue-kind")] == errors_of(answer)
    assert "use default" in answer.json()["errors"][0]["message"]


def test_a_definition_that_the_processor_cannot_put_in_force_is_answered_as_rejected(node: FakeNode) -> None:
    # The queue is deleted between the API's look at the configuration and the processor's.
    fold = node.state._fold

    def without_queue(topic: str, partition: int, offset: int) -> None:
        queues = dict(node.config.queues)
        node.config.queues.clear()
        fold(topic, partition, offset)
        node.config.queues.update(queues)

    node.state._fold = without_queue  # type: ignore[method-assign]
    answer = node.put("default/a")
    assert (422, "urn:tocsin:problem:rejected") == (answer.status_code, answer.json()["type"])
    assert [("queue", "unknown-queue")] == errors_of(answer)


def test_a_processor_that_does_not_apply_leaves_a_note_instead_of_a_lie() -> None:
    with fake_node(within_s=0.5) as node:
        node.state.stuck = True
        answer = node.put("default/a")
    assert (202, "acknowledged") == (answer.status_code, answer.json()["result"])
    assert "/readyz" in answer.json()["note"]


@pytest.mark.parametrize("name, value", [("namespace", "other"), ("id", "b")])
def test_a_document_that_names_another_key_than_the_path_is_refused(
    node: FakeNode, name: str, value: str
) -> None:
    answer = node.put("default/a", {**HELLO, name: value})
    assert [(name, "differs-from-path")] == errors_of(answer)


@pytest.mark.parametrize(
    "body, status, slug",
    [
        (b"", 400, "invalid-json"),
        (b"{", 400, "invalid-json"),
        (b'{"a": NaN}', 400, "invalid-json"),
        (b"\xff", 400, "invalid-json"),
        (b"[" * 100_000, 400, "invalid-json"),
        (b"[]", 422, "invalid-job"),
        (b'{"x": "' + b"a" * 256 * 1024 + b'"}', 413, "too-large"),
    ],
    ids=["empty", "cut off", "NaN", "not UTF-8", "deep", "a list", "large"],
)
def test_a_body_that_is_no_document_is_a_problem(node: FakeNode, body: bytes, status: int, slug: str) -> None:
    answer = node.ask("PUT", "/v1/jobs/default/a", content=body)
    assert (status, f"urn:tocsin:problem:{slug}") == (answer.status_code, answer.json()["type"])


@pytest.mark.parametrize("path", ["-a/b", "a/b%20c", "a/" + "x" * 129, "a/%C3%A4"])
def test_a_key_outside_of_the_grammar_is_refused(node: FakeNode, path: str) -> None:
    answer = node.ask("PUT", f"/v1/jobs/{path}", json=HELLO)
    assert 422 == answer.status_code
    assert {"namespace", "id"} >= {field for field, _ in errors_of(answer)}


def test_a_job_shows_what_was_given_and_with_full_every_default(node: FakeNode) -> None:
    node.put("default/a", {**HELLO, "labels": {"team": "billing"}})
    given = node.ask("GET", "/v1/jobs/default/a").json()
    assert HELLO["schedule"] == given["definition"]["schedule"]
    assert "retry" not in given["definition"]
    assert ("every 5s", {"team": "billing"}, "api") == (
        given["schedule"],
        given["labels"],
        given["defined_by"],
    )
    full = node.ask("GET", "/v1/jobs/default/a", params={"full": "true"}).json()
    assert 5 == full["definition"]["retry"]["max_attempts"]


def test_what_the_api_shows_of_a_job_can_be_put_again_and_changes_nothing(node: FakeNode) -> None:
    node.put("default/a", {**HELLO, "description": "täglich", "retry": {"max_attempts": 2}})
    shown = node.ask("GET", "/v1/jobs/default/a").json()["definition"]
    assert "unchanged" == node.put("default/a", shown).json()["result"]


def test_an_unknown_job_is_404_for_every_operation(node: FakeNode) -> None:
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/runs"),
        ("POST", "/trigger"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/skip-next"),
    ]:
        answer = node.ask(method, f"/v1/jobs/default/nobody{path}")
        assert (404, "urn:tocsin:problem:unknown-job") == (answer.status_code, answer.json()["type"]), path
    assert [] == node.records(NAMES.commands)


def test_a_job_is_found_right_after_its_definition_was_acknowledged(node: FakeNode) -> None:
    node.ask("PUT", "/v1/jobs/default/a", json=HELLO)
    assert 200 == node.ask("GET", "/v1/jobs/default/a").status_code


def test_a_command_right_after_a_definition_names_its_offset(node: FakeNode) -> None:
    offset = node.ask("PUT", "/v1/jobs/default/a", json=HELLO).json()["offset"]
    node.ask("POST", "/v1/jobs/default/a/trigger")
    [command] = node.records(NAMES.commands)
    assert offset == command.after_jobs_offset


def test_an_instant_that_has_passed_is_refused_unless_it_is_what_holds_already(node: FakeNode) -> None:
    once = {**HELLO, "schedule": {"at": "2026-01-02T00:00:00Z"}}
    assert 201 == node.put("default/once", once).status_code
    node.clock.ahead_ms = 3 * 86_400_000
    again = node.put("default/once", once)
    assert (200, "unchanged") == (again.status_code, again.json()["result"])
    refused = node.put("default/again", once)
    assert (422, [("schedule.at", "at-too-old")]) == (refused.status_code, errors_of(refused))


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_goes_on_with_its_cursor_until_there_is_none(node: FakeNode) -> None:
    for name in "abcde":
        node.put(f"default/{name}")
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = node.ask("GET", "/v1/jobs", params={"limit": 2, "cursor": cursor}).json()
        assert len(page["items"]) <= 2
        seen += [job["key"] for job in page["items"]]
        cursor = page["next_cursor"]
    assert [f"default/{name}" for name in "abcde"] == seen


def test_a_list_is_narrowed_by_namespace_prefix_label_and_state(node: FakeNode) -> None:
    node.put("default/a", {**HELLO, "labels": {"team": "x", "tier": "1"}})
    node.put("default/b", {**HELLO, "labels": {"team": "x"}, "paused": True})
    node.put("other/a")

    def keys(**params: Any) -> list[str]:
        return [job["key"] for job in node.ask("GET", "/v1/jobs", params=params).json()["items"]]

    assert ["other/a"] == keys(namespace="other")
    assert ["default/a", "other/a"] == keys(id_prefix="a")
    assert ["default/a"] == keys(label=["team=x", "tier=1"])
    assert ["default/b"] == keys(state="paused")


@pytest.mark.parametrize(
    "params, field",
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"state": "sleepy"}, "state"),
        ({"label": "team"}, "label"),
        ({"cursor": "!"}, "cursor"),
        ({"namespace": "a b"}, "namespace"),
    ],
)
def test_a_wrong_parameter_is_named(node: FakeNode, params: dict[str, Any], field: str) -> None:
    answer = node.ask("GET", "/v1/jobs", params=params)
    assert 422 == answer.status_code
    assert [field] == [name for name, _ in errors_of(answer)]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_a_trigger_with_an_idempotency_key_is_one_run_however_often_it_comes(node: FakeNode) -> None:
    node.put("default/a")
    ask = {
        "headers": {"idempotency-key": "order-17"},
        "params": {"wait": "applied"},
        "json": {"body": {"n": 1}},
    }
    first = node.ask("POST", "/v1/jobs/default/a/trigger", **ask)
    second = node.ask("POST", "/v1/jobs/default/a/trigger", **ask)
    assert (201, "created") == (first.status_code, first.json()["result"])
    assert (200, "unchanged") == (second.status_code, second.json()["result"])
    assert "default/a!t.order-17" == first.json()["run_id"] == second.json()["run"]["run_id"]
    assert {("order-17", b'{"n":1}')} == {(c.trigger_id, c.body) for c in node.records(NAMES.commands)}


def test_triggers_without_a_key_are_runs_of_their_own(node: FakeNode) -> None:
    node.put("default/a")
    answers = [node.ask("POST", "/v1/jobs/default/a/trigger") for _ in range(2)]
    assert [202, 202] == [a.status_code for a in answers]
    assert 2 == len({a.json()["run_id"] for a in answers})


@pytest.mark.parametrize(
    "body, expected",
    [
        ({}, None),
        ({"body": "text"}, b"text"),
        ({"body": {"ä": [1]}}, '{"ä":[1]}'.encode()),
        ({"body_base64": "AP8="}, b"\x00\xff"),
    ],
    ids=["none", "text", "JSON", "bytes"],
)
def test_a_trigger_may_bring_its_body(node: FakeNode, body: dict[str, Any], expected: bytes | None) -> None:
    node.put("default/a")
    node.ask("POST", "/v1/jobs/default/a/trigger", json=body)
    [command] = node.records(NAMES.commands)
    assert isinstance(command, Trigger)
    assert expected == command.body


@pytest.mark.parametrize(
    "request_, field",
    [
        ({"headers": {"idempotency-key": "a b"}}, "Idempotency-Key"),
        ({"headers": {"idempotency-key": "x" * 129}}, "Idempotency-Key"),
        ({"json": {"body": "a", "body_base64": "YQ=="}}, "body_base64"),
        ({"json": {"body_base64": "?"}}, "body_base64"),
        ({"json": {"body": "x" * (200 * 1024 + 1)}}, "body"),
        ({"json": {"boddy": 1}}, "boddy"),
        ({"json": {"reason": 7}}, "reason"),
        ({"json": {"reason": "x" * 1001}}, "reason"),
        ({"json": []}, ""),
    ],
)
def test_a_wrong_trigger_writes_nothing(node: FakeNode, request_: dict[str, Any], field: str) -> None:
    node.put("default/a")
    answer = node.ask("POST", "/v1/jobs/default/a/trigger", **request_)
    assert (422, [field]) == (answer.status_code, [name for name, _ in errors_of(answer)])
    assert [] == node.records(NAMES.commands)


def test_pause_and_resume_say_whether_they_changed_anything(node: FakeNode) -> None:
    node.put("default/a")
    wait = {"wait": "applied"}
    body = {"reason": "maintenance", "until": "2026-02-01T00:00:00+01:00"}
    paused = node.ask("POST", "/v1/jobs/default/a/pause", params=wait, json=body)
    assert (200, "changed", "paused") == (
        paused.status_code,
        paused.json()["result"],
        paused.json()["job"]["state"],
    )
    assert {"by": "api", "reason": "maintenance", "until": "2026-01-31T23:00:00.000Z"} == paused.json()[
        "job"
    ]["pause"]
    assert (
        "unchanged" == node.ask("POST", "/v1/jobs/default/a/pause", params=wait, json=body).json()["result"]
    )
    resumed = node.ask("POST", "/v1/jobs/default/a/resume", params=wait)
    assert ("changed", "active", None) == (
        resumed.json()["result"],
        resumed.json()["job"]["state"],
        resumed.json()["job"]["pause"],
    )
    assert [Pause, Pause, Resume] == [type(command) for command in node.records(NAMES.commands)]


@pytest.mark.parametrize(
    "until, rule",
    [
        ("2025-12-31T00:00:00Z", "past"),
        ("tomorrow", "instant-format"),
        ("2026-02-01T00:00", "instant-offset"),
    ],
)
def test_a_pause_needs_an_instant_that_is_one_and_is_ahead(node: FakeNode, until: str, rule: str) -> None:
    node.put("default/a")
    answer = node.ask("POST", "/v1/jobs/default/a/pause", json={"until": until})
    assert (422, [("until", rule)]) == (answer.status_code, errors_of(answer))


def test_skip_next_takes_one_unless_told_otherwise(node: FakeNode) -> None:
    node.put("default/a")
    node.ask("POST", "/v1/jobs/default/a/skip-next")
    node.ask("POST", "/v1/jobs/default/a/skip-next", json={"count": 3, "reason": "inventory"})
    commands = node.records(NAMES.commands)
    assert [(1, ""), (3, "inventory")] == [(c.count, c.reason) for c in commands if isinstance(c, SkipNext)]
    for count in (-1, 10_001, True, "2"):
        answer = node.ask("POST", "/v1/jobs/default/a/skip-next", json={"count": count})
        assert 422 == answer.status_code, count
