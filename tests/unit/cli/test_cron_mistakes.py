"""`tocsin cron` and what people write that is no expression: each is answered with what to write instead."""

import json

import pytest

from tests.unit.cli.conftest import tocsin


@pytest.mark.parametrize("command", ["next", "explain"])
def test_an_expression_that_the_shell_took_apart_is_to_be_quoted(command: str) -> None:
    done = tocsin("cron", command, "0", "9", "README.md", "docs", "*")
    assert (2, "") == (done.code, done.out)
    assert "Put the expression in quotes" in done.err
    as_json = tocsin("cron", command, "0", "9", "*", "*", "*", "--json")
    assert (2, "error") == (as_json.code, next(iter(json.loads(as_json.out))))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("TZ=Europe/Berlin 0 9 * * *", "give it as timezone beside cron (--tz for `tocsin cron`)"),
        ("CRON_TZ=UTC 0 0 9 * * *", "give it as timezone beside cron (--tz for `tocsin cron`)"),
        ("@reboot", "give the job no schedule, and trigger it where the machine starts"),
        ("@every 5m", "give the schedule as every: 5m"),
        ("*/60 * * * *", "give the schedule as every: 60m instead of cron"),
        ("*/120 * * * *", "give the schedule as every: 120m instead of cron"),
        ("0 */24 * * *", "give the schedule as every: 24h instead of cron"),
    ],
)
def test_what_cron_does_not_have_is_told_as_what_tocsin_has(expression: str, said: str) -> None:
    done = tocsin("cron", "next", expression)
    assert (2, "") == (done.code, done.out)
    assert said in done.err
