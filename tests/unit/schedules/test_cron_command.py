"""`tocsin cron`, run as users and programs run it."""

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tocsin.cli.cron import LINE_BYTES_MAX, _batch

LIMIT_S = 60


def tocsin(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "cron", *arguments],
        input=stdin.decode(),
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        timeout=LIMIT_S,
        check=False,
    )


def answers(*lines: object) -> list[dict[str, Any]]:
    """What the batch answers to lines, given as objects or as raw bytes."""
    asked = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    written = io.BytesIO()
    _batch(io.BytesIO(asked), written)
    return [json.loads(line) for line in written.getvalue().splitlines()]


NEW_YORK = ("--tz", "America/New_York", "--after", "2026-03-07T12:00:00Z", "--count", "2")


def test_the_next_fires_are_printed_in_utc_and_as_the_clocks_show_them() -> None:
    done = tocsin("next", "30 2 * * *", *NEW_YORK)
    assert 0 == done.returncode
    assert [
        "2026-03-08T07:00:00.000Z  2026-03-08 03:00:00 -04:00",
        "2026-03-09T06:30:00.000Z  2026-03-09 02:30:00 -04:00",
    ] == done.stdout.splitlines()


def test_the_next_fires_are_printed_as_json_under_a_policy() -> None:
    done = tocsin("next", "30 2 * * *", *NEW_YORK, "--gap", "shift", "--json")
    assert {
        "expression": "30 2 * * *",
        "timezone": "America/New_York",
        "fires": ["2026-03-08T07:30:00.000Z", "2026-03-09T06:30:00.000Z"],
    } == json.loads(done.stdout)


def test_without_an_instant_it_starts_now() -> None:
    done = tocsin("next", "* * * * *", "--count", "1")
    assert 0 == done.returncode
    assert done.stdout.endswith(":00.000Z\n")


def test_what_is_wrong_is_said_on_stderr_with_the_exit_code_for_input() -> None:
    done = tocsin("next", "75 * * * *")
    assert (2, "", "minute: minute 75 is outside 0-59\n") == (done.returncode, done.stdout, done.stderr)
    done = tocsin("explain", "0 9 * * *", "--tz", "Europe/Berln", "--json")
    assert 2 == done.returncode
    problem = json.loads(done.stdout)["error"]
    assert ("timezone", "timezone-unknown", "Europe/Berln") == (
        problem["field"],
        problem["rule"],
        problem["value"],
    )
    assert 2 == tocsin("next").returncode
    assert 2 == tocsin("next", "* * * * *", "--gap", "later").returncode


def test_an_expression_is_explained_and_compared() -> None:
    done = tocsin("explain", "30 2 * * *", *NEW_YORK, "--json", "--compare")
    assert 0 == done.returncode
    said = json.loads(done.stdout)
    assert "At 02:30, every day (America/New_York)" == said["reading"]
    assert ["2026-03-08T07:00:00.000Z", "2026-03-09T06:30:00.000Z"] == said["fires"]
    assert ["clock-change", "clock-change"] == [warning["rule"] for warning in said["warnings"]]
    assert 2 == len(said["croniter"])


def test_an_explanation_is_also_printed_for_people() -> None:
    done = tocsin("explain", "0 0 31 * *", "--after", "2026-01-31T00:00:00Z", "--count", "1", "--compare")
    assert [
        "At 00:00, on the 31st of the month (UTC)",
        "",
        "Next:",
        "  2026-03-31T00:00:00.000Z",
        "",
        "Mind:",
        (
            "  - There is no 31st in February, April, June, September and November: nothing fires for it. "
            "L is the last day of every month."
        ),
        "",
        "croniter agrees.",
    ] == done.stdout.splitlines()


def test_a_second_opinion_that_refuses_is_shown() -> None:
    done = tocsin("explain", "0 0 15W * *", "--count", "1", "--compare")
    assert 0 == done.returncode
    assert "croniter says otherwise:" in done.stdout
    assert "refused: " in done.stdout


# -- batch


def test_a_batch_answers_each_line_in_order() -> None:
    asked = (
        b'{"expr": "30 2 * * *", "tz": "America/New_York", "start": "2026-03-07T12:00:00+00:00", "count": 2}\n'
        b'{"expr": "0 0 31 4 *", "tz": "UTC", "start": "2026-03-07T12:00:00+00:00", "count": 2}\n'
        b'{"expr": "61 * * * *", "tz": "UTC", "start": "2026-03-07T12:00:00+00:00", "count": 2}'
    )
    done = tocsin("next", "--batch", stdin=asked)
    assert (0, "") == (done.returncode, done.stderr)
    assert [
        '{"fires": ["2026-03-08T07:00:00+00:00", "2026-03-09T06:30:00+00:00"]}',
        '{"fires": []}',
        '{"error": "minute: minute 61 is outside 0-59"}',
    ] == done.stdout.splitlines()


def test_an_answer_is_written_before_the_next_line_is_read() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tocsin.cli", "cron", "next", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        for minute in (5, 10):
            line = {"expr": f"{minute} * * * *", "start": "2026-01-01T00:00:00Z", "count": 1}
            child.stdin.write(json.dumps(line).encode() + b"\n")
            child.stdin.flush()
            assert {"fires": [f"2026-01-01T00:{minute:02d}:00+00:00"]} == json.loads(child.stdout.readline())
        child.stdin.close()
        assert 0 == child.wait(LIMIT_S)


def test_a_reader_that_leaves_ends_a_batch_in_silence() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tocsin.cli", "cron", "next", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.close()
    _, complaints = child.communicate(
        b'{"expr": "* * * * *", "start": "2026-01-01T00:00:00Z", "count": 1000}\n' * 50, timeout=LIMIT_S
    )
    assert (0, b"") == (child.returncode, complaints)


START = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "the line is no JSON"),
        (b"{\n", "the line is no JSON"),
        (b"\xff\xfe{}\n", "the line is no JSON"),
        (b"[" * 50_000 + b"\n", "the line is no JSON"),
        (b"[]\n", "no JSON object"),
        (b"null\n", "no JSON object"),
        ({"start": START}, "expr is missing"),
        ({"expr": None, "start": START}, "expr is no text"),
        ({"expr": 5, "start": START}, "expr is no text"),
        ({"expr": "* * * * *"}, "start is missing"),
        ({"expr": "* * * * *", "start": 0}, "start is no text"),
        ({"expr": "* * * * *", "start": "2026-01-01T00:00:00"}, "has no offset"),
        ({"expr": "* * * * *", "start": START, "tz": None}, "tz is no text"),
        ({"expr": "* * * * *", "start": START, "tz": "Nowhere"}, "timezone: 'Nowhere' is not a zone"),
        ({"expr": "* * * * *", "start": START, "gap": "later"}, "gap: 'later' is no gap policy"),
        ({"expr": "* * * * *", "start": START, "count": True}, "count is a whole number"),
        ({"expr": "* * * * *", "start": START, "count": "3"}, "count is a whole number"),
        ({"expr": "* * * * *", "start": START, "count": -1}, "count is a whole number"),
        ({"expr": "* * * * *", "start": START, "count": 10**9}, "count is a whole number"),
        (b" " * (LINE_BYTES_MAX + 1) + b"{}\n", "a line has at most"),
        (b" " * LINE_BYTES_MAX + b"\n", "a line has at most"),
        (b" " * (3 * LINE_BYTES_MAX) + b"\n", "a line has at most"),
    ],
)
def test_a_line_that_makes_no_sense_gets_an_error_and_the_batch_goes_on(line: object, words: str) -> None:
    good = {"expr": "0 9 * * *", "start": START}
    before, wrong, after = answers(good, line, good)
    assert before == after == {"fires": ["2026-01-01T09:00:00+00:00"]}
    assert ["error"] == list(wrong)
    assert words in wrong["error"]


def test_a_batch_knows_the_policies_and_a_default_for_all_but_two() -> None:
    asked = {"expr": "30 1 * * *", "tz": "America/New_York", "start": "2026-10-31T12:00:00-04:00", "count": 2}
    assert [
        {"fires": ["2026-11-01T05:30:00+00:00", "2026-11-01T06:30:00+00:00"]},
        {"fires": ["2026-11-01T06:30:00+00:00", "2026-11-02T06:30:00+00:00"]},
        {"fires": []},
    ] == answers({**asked, "fold": "both"}, {**asked, "fold": "second"}, {**asked, "count": 0})


def test_a_line_without_an_end_is_answered_too() -> None:
    assert [{"fires": ["2026-01-01T09:00:00+00:00"]}] == answers(
        json.dumps({"expr": "0 9 * * *", "start": START}).encode()
    )
