"""Every case of the specification, one by one. docs/attribution.md says where they come from."""

import json
from pathlib import Path
from typing import Any

import pytest

from tocsin.schedules import Cron, ScheduleError, format_instant, parse_instant

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "cron_cases.json").read_text(encoding="utf-8")
)
FIRING = [case for case in CASES if not case.get("invalid") and not case.get("never")]
NEVER = [case for case in CASES if case.get("never")]
INVALID = [case for case in CASES if case.get("invalid")]


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


def test_the_file_of_cases_is_whole() -> None:
    assert (1030, 16, 316) == (len(FIRING), len(NEVER), len(INVALID))


@pytest.mark.parametrize("case", FIRING, ids=by_id)
def test_an_expression_fires_when_the_specification_says(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], case["tz"])
    expected = [parse_instant(text) for text in case["expect"]]
    found = []
    after_ms = parse_instant(case["start"])
    for _ in expected:
        fire_ms = cron.next(after_ms)
        assert fire_ms is not None
        found.append(after_ms := fire_ms)
    assert case["expect"] == [format_instant(each)[:19] + "+00:00" for each in found]

    backwards = [cron.prev(each) for each in found[1:]]
    assert expected[:-1] == backwards
    assert (len(expected), False) == cron.count(parse_instant(case["start"]), expected[-1])


@pytest.mark.parametrize("case", NEVER, ids=by_id)
def test_an_expression_without_a_day_never_fires_and_says_so(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], case["tz"])
    start_ms = parse_instant(case["start"])
    assert cron.never
    assert cron.next(start_ms) is None
    assert cron.prev(start_ms) is None
    with pytest.raises(ScheduleError) as caught:
        cron.require_fires(start_ms)
    assert caught.value.rule == "cron-never"


@pytest.mark.parametrize("case", INVALID, ids=by_id)
def test_what_is_not_in_the_grammar_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError) as caught:
        Cron(case["expr"], case.get("tz", "UTC"))
    if "tz" in case:
        assert ("timezone", "timezone-unknown", case["tz"]) == (
            caught.value.field,
            caught.value.rule,
            caught.value.value,
        )
    else:
        assert caught.value.rule.startswith("cron-")
