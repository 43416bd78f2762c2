"""What a schedule would do."""

from typing import Any

import pytest

from tests.unit.api.fakes import HELLO, FakeNode


def preview(node: FakeNode, **body: Any) -> dict[str, Any]:
    answer = node.ask("POST", "/v1/jobs:preview", json={"after": "2026-03-27T12:00:00Z", **body})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_preview_shows_the_next_instants_as_the_clocks_of_the_zone_do(node: FakeNode) -> None:
    found = preview(node, schedule={"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, count=3)
    assert [
        ("2026-03-28T01:30:00.000Z", "2026-03-28T02:30:00+01:00"),
        ("2026-03-29T01:00:00.000Z", "2026-03-29T03:00:00+02:00"),
        ("2026-03-30T00:30:00.000Z", "2026-03-30T02:30:00+02:00"),
    ] == [(each["nominal"], each["local"]) for each in found["next"]]
    assert "Europe/Berlin" in found["reading"]
    assert any("2026-03-29" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    "schedule, kind, reading, first",
    [
        ({"every": "90s"}, "every", "every 1m30s, at a fixed rate", "2026-03-27T12:01:30.000Z"),
        ({"delay": "30s"}, "delay", "once, 30s after it is defined", "2026-03-27T12:00:30.000Z"),
        (
            {"at": "2026-12-01T09:00:00Z"},
            "at",
            "once, at 2026-12-01T09:00:00.000Z",
            "2026-12-01T09:00:00.000Z",
        ),
        ({}, "manual", "only when it is triggered", None),
    ],
)
def test_a_preview_knows_every_kind_of_schedule(
    node: FakeNode, schedule: dict[str, Any], kind: str, reading: str, first: str | None
) -> None:
    found = preview(node, schedule=schedule, count=1)
    assert (kind, reading) == (found["kind"], found["reading"])
    assert ([] if first is None else [first]) == [each["nominal"] for each in found["next"]]


def test_a_preview_of_a_document_shows_the_due_instants_of_that_job(node: FakeNode) -> None:
    document = {"id": "a", **HELLO, "schedule": {"cron": "0 0 * * *", "spread": "10m"}}
    [one] = preview(node, document=document, count=1)["next"]
    [other] = preview(node, document={**document, "id": "b"}, count=1)["next"]
    assert one["nominal"] == other["nominal"]
    assert one["nominal"] <= one["due"] < "2026-03-28T00:10:00.000Z"
    assert one["due"] != other["due"]


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "schedule"),
        ({"schedule": {}, "document": {}}, "document"),
        ({"schedule": {"cron": "75 * * * *"}}, "schedule.cron[0]"),
        ({"schedule": {"cron": "* * * * *"}, "count": 0}, "count"),
        ({"schedule": {"cron": "* * * * *"}, "after": "now"}, "after"),
    ],
)
def test_a_preview_of_nothing_sensible_names_the_field(
    node: FakeNode, body: dict[str, Any], field: str
) -> None:
    answer = node.ask("POST", "/v1/jobs:preview", json=body)
    assert (422, [field]) == (answer.status_code, [e["field"] for e in answer.json()["errors"]])


def test_exclusions_that_leave_out_years_end_the_search_soon_and_are_named(node: FakeNode) -> None:
    halves = [{"cron": "*/15 0-11 * * *"}, {"cron": "*/15 12-23 * * *"}]
    found = preview(node, schedule={"cron": "*/15 * * * *", "exclude": halves})
    assert found["next"] == []
    assert any("exclude leaves out all" in warning for warning in found["warnings"])


def test_exclusions_that_leave_nothing_are_refused_as_in_a_definition(node: FakeNode) -> None:
    body = {"schedule": {"cron": "0 9 * * *", "exclude": [{"cron": "* 9 * * *"}]}}
    answer = node.ask("POST", "/v1/jobs:preview", json=body)
    assert (422, ["schedule.exclude"]) == (answer.status_code, [e["field"] for e in answer.json()["errors"]])
