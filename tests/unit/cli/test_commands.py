"""The other commands, each as a process of its own against a node that listens."""

import json
import os
import pwd
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.api.fakes import HELLO, NAMES, START_MS
from tests.unit.cli.conftest import LIMIT_S, RUN, Served, environment, line_of, started, tocsin
from tocsin.cli.app import COMMANDS
from tocsin.cli.runs import HISTORY_RUNS
from tocsin.log.partitioner import partition_for
from tocsin.streams.families import RING_SIZES


@pytest.fixture
def job(served: Served) -> Served:
    served.node.put("default/a", {**HELLO, "labels": {"team": "x"}})
    return served


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_in_lines_of_80_columns(job: Served) -> None:
    job.node.put(
        "billing/send-invoices",
        {**HELLO, "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"}},
    )
    done = job.run("jobs", "list")
    assert 0 == done.code
    header, *rows = done.out.splitlines()
    assert ["JOB", "STATE", "SCHEDULE", "NEXT", "LAST"] == header.split()
    assert ["billing/send-invoices", "default/a"] == [row.split()[0] for row in rows]
    assert "2026-01-01T00:00:05Z" in rows[1]


def test_jobs_are_listed_by_label_and_page_after_page(job: Served) -> None:
    job.node.put("default/b")
    assert ["default/a"] == [
        j["key"] for j in job.run("jobs", "list", "-l", "team=x", "--json").json["items"]
    ]
    limited = job.run("jobs", "list", "--limit", "1")
    assert 2 == len(limited.out.splitlines())
    assert "--limit" in limited.err
    assert "no jobs\n" == job.run("jobs", "list", "-n", "nowhere").out


@pytest.fixture
def partial(job: Served) -> Served:
    """A part of the state cannot be asked, and default/a does not lie in it."""
    number = (partition_for(b"default/a", 4) + 1) % 4
    state = job.node.state
    state.partitions[number] = replace(
        state.partitions[number], ready=False, restore_done=12, restore_total=50, restore_eta_s=6.3
    )
    return job


@pytest.mark.parametrize("what", ["jobs", "runs", "dead-letters"])
def test_a_list_that_is_not_whole_says_so_and_ends_with_1(partial: Served, what: str) -> None:
    done = partial.run(what, "list")
    assert 1 == done.code
    assert "incomplete:" in done.err
    assert "is being restored: 12 of 50, about 6 s left" in done.err
    as_json = partial.run(what, "list", "--json")
    assert 1 == as_json.code
    assert ["restoring"] == [each["reason"] for each in as_json.json["missing_partitions"]]
    assert as_json.json["items"] or what != "jobs", "what could be asked is shown"


def test_a_list_that_is_whole_says_nothing_about_it(job: Served) -> None:
    done = job.run("jobs", "list")
    assert (0, "") == (done.code, done.err)


def test_a_job_is_printed_so_that_it_can_be_applied_again(job: Served) -> None:
    shown = job.run("jobs", "get", "a")
    assert "# revision 1, active" in shown.out
    again = job.spawned("jobs", "apply", "-f", "-", stdin=shown.out)
    assert (0, "unchanged default/a\n") == (again.code, again.out)
    assert "max_attempts" in job.run("jobs", "get", "a", "--full").out
    assert "default/a" == job.run("jobs", "get", "default/a", "--json").json["key"]


def test_a_next_occurrence_that_is_not_found_yet_is_not_made_up(job: Served) -> None:
    row = job.node.state.jobs["default/a"].row
    row.armed, row.armed_nominal_ms, row.armed_due_ms = "continue", 2_658_787_199_999, 2_658_787_199_999
    shown = job.run("jobs", "get", "a").out
    assert "# next not known yet: none before 2054-04-02T23:59:59.999Z, where the search goes on" in shown
    assert "2054" not in job.run("jobs", "list").out


def test_what_others_said_about_a_job_stays_inside_the_comments(job: Served) -> None:
    row = job.node.state.jobs["default/a"].row
    row.last_failure_ms, row.last_error = 1_767_225_600_000, "ValueError: no such day\nid: another\x1b[2J"
    row.paused, row.paused_by, row.paused_reason = True, "anna", "two\nlines"
    shown = job.run("jobs", "get", "a").out
    assert ["id: a"] == [line for line in shown.splitlines() if line.startswith("id:")]
    assert "# paused by anna: two lines" in shown
    assert "\x1b" not in shown


def test_an_error_of_several_lines_is_one_and_steers_no_terminal(job: Served) -> None:
    job.node.state.put_dead(RUN, "Traceback:\n  line 1\x1b[2J\x07")
    for arguments in (("runs", "get", RUN), ("dead-letters", "list")):
        shown = job.run(*arguments).out
        assert "Traceback: line 1\N{REPLACEMENT CHARACTER}[2J" in shown
        assert "\x1b" not in shown


def test_a_trigger_pause_resume_skip_and_delete_say_what_they_did(job: Served) -> None:
    lines = [
        job.run("jobs", "trigger", "a", "--id", "t1", "--body", '{"n": 1}', "--reason", "by hand"),
        job.run("jobs", "trigger", "a", "--id", "t1"),
        job.run("jobs", "pause", "a", "--reason", "holiday", "--until", "2026-02-01T00:00:00Z"),
        job.run("jobs", "pause", "a", "--reason", "holiday", "--until", "2026-02-01T00:00:00Z"),
        job.run("jobs", "resume", "a"),
        job.run("jobs", "skip-next", "a", "2"),
        job.run("jobs", "delete", "a"),
    ]
    assert [0] * 7 == [done.code for done in lines], [done.err for done in lines]
    assert [
        "triggered default/a!t.t1",
        "already triggered default/a!t.t1",
        "paused default/a",
        "unchanged default/a",
        "resumed default/a",
        "will skip 2 of default/a",
        "deleted default/a",
    ] == [done.out.strip() for done in lines]
    first = job.node.records(NAMES.commands)[0]
    assert ("cli:anna", "by hand", b'{"n":1}') == (first.actor, first.reason, first.body)


def test_without_waiting_a_command_returns_when_the_log_has_it(job: Served) -> None:
    job.node.state.stuck = True
    done = job.run("jobs", "pause", "a", "--no-wait", "--json")
    assert (0, "acknowledged") == (done.code, done.json["result"])


def test_without_waiting_no_more_is_said_than_that_the_log_has_it(job: Served) -> None:
    job.node.state.put_dead(RUN)
    for arguments, said in (
        (("jobs", "pause", "a"), "default/a"),
        (("jobs", "skip-next", "a"), "default/a"),
        (("jobs", "trigger", "a", "--id", "t"), "default/a!t.t"),
        (("dead-letters", "redrive", RUN), RUN),
    ):
        done = job.run(*arguments, "--no-wait")
        assert (0, f"acknowledged {said}\n") == (done.code, done.out)


def test_a_job_that_is_not_there_is_answered_with_one_that_is_nearly_it(job: Served) -> None:
    job.node.put("billing/send-invoices")
    for arguments in (("jobs", "get"), ("jobs", "trigger"), ("runs", "list")):
        done = job.run(*arguments, "billing/send-invoice")
        assert (2, "") == (done.code, done.out)
        assert done.err.endswith("Did you mean billing/send-invoices?\n")
    assert "`tocsin jobs list` shows what there is." in job.run("jobs", "get", "nobody").err
    as_json = job.run("jobs", "get", "billing/send-invoice", "--json")
    assert "Did you mean billing/send-invoices?" in as_json.json["error"]["detail"]


def test_an_error_is_json_when_asked_wherever_it_is_found(job: Served, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    for arguments in (
        ("jobs", "apply", "-f", nowhere),
        ("jobs", "trigger", "a", "--body", f"@{nowhere}"),
        ("jobs", "get", "a/b/c"),
        ("runs", "get", "a"),
        ("dead-letters", "redrive"),
        ("sink", "--delay", "soon"),
    ):
        done = job.run(*arguments, "--json")
        assert (2, "") == (done.code, done.err)
        assert ["error"] == list(done.json)


def test_what_does_not_exist_is_exit_code_2_and_named(job: Served) -> None:
    for arguments in (
        ("jobs", "get", "nobody"),
        ("jobs", "trigger", "nobody"),
        ("runs", "get", "default/nobody@20260101T000000.000Z"),
        ("dead-letters", "redrive", "default/nobody@20260101T000000.000Z"),
    ):
        done = job.run(*arguments)
        assert (2, "") == (done.code, done.out)
        assert "default/nobody" in done.err


def test_a_problem_is_printed_field_by_field_and_as_json_when_asked(job: Served) -> None:
    done = job.run("jobs", "pause", "a", "--until", "tomorrow")
    assert 2 == done.code
    assert done.err.startswith("until: ")
    as_json = job.run("jobs", "pause", "a", "--until", "tomorrow", "--json")
    assert ("urn:tocsin:problem:invalid-request", "until") == (
        as_json.json["error"]["type"],
        as_json.json["error"]["errors"][0]["field"],
    )


# --- runs and dead letters --------------------------------------------------------------------------------------------


def test_runs_are_listed_shown_and_cancelled(job: Served) -> None:
    job.node.state.put_run(RUN, "succeeded")
    job.node.state.put_run("default/a!t.x", "running")
    listed = job.run("runs", "list")
    assert ["default/a!t.x", "running", "1", "4", "ms"] == listed.out.splitlines()[1].split()
    assert [RUN] == [
        r["run_id"] for r in job.run("runs", "list", "a", "--status", "succeeded", "--json").json["items"]
    ]
    shown = job.run("runs", "get", RUN)
    assert (
        "attempt 1: succeeded, HTTP 200, started 2026-01-01T00:00:00.004Z, 4 ms late, on worker-1"
        in shown.out
    )
    assert "cancelled default/a!t.x\n" == job.run("runs", "cancel", "default/a!t.x").out
    ended = job.run("runs", "cancel", RUN)
    assert 2 == ended.code
    assert "succeeded" in ended.err
    assert "no runs\n" == job.run("runs", "list", "-n", "nowhere").out


def test_the_runs_of_a_job_are_listed_by_what_is_newest_with_the_reason_of_a_skip(job: Served) -> None:
    state = job.node.state
    running = state.put_run("default/a@20260101T100000.000Z", "running")
    skipped = state.put_run("default/a@20260101T100500.000Z", "skipped")
    state.runs[running.run_id] = replace(running, nominal_ms=START_MS + 36_000_000)
    state.runs[skipped.run_id] = replace(
        skipped,
        reason="overlap",
        nominal_ms=START_MS + 36_300_000,
        last_nominal_ms=START_MS + 36_600_000,
        count=2,
    )
    state.runs = dict(reversed(state.runs.items()))  # the open one first, as a node lists them
    first, second = job.run("runs", "list", "a").out.splitlines()[1:]
    assert [skipped.run_id, "skipped", "x2", "0", "-", "overlap"] == first.split()
    assert [running.run_id, "running", "1", "4", "ms"] == second.split()


def test_a_history_that_is_full_says_where_the_older_runs_are(job: Served) -> None:
    for second in range(HISTORY_RUNS - 1):
        job.node.state.put_run(f"default/a@20260101T0000{second:02}.000Z", "succeeded")
    job.node.state.put_run("default/a!t.open", "running")
    assert "" == job.run("runs", "list", "a").err
    job.node.state.put_run("default/a@20260101T000059.000Z", "failed")
    full = job.run("runs", "list", "a", "--status", "failed")
    assert 2 == len(full.out.splitlines())
    assert "the newest 20 are kept here; the log has those of 30 days, in the topic `runs`" in full.err
    assert "" == job.run("runs", "list").err
    assert "" == job.run("runs", "list", "a", "--json").err
    assert RING_SIZES["history"] == HISTORY_RUNS


@pytest.mark.parametrize("command", [("list",), ("list", "a"), ("tail",)])
def test_a_status_that_there_is_none_of_is_refused(job: Served, command: tuple[str, ...]) -> None:
    done = job.run("runs", *command, "--status", "faild")
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith("--status is scheduled, running, ")
    assert done.err.endswith(" or skipped, not 'faild'\n")


def test_a_trigger_that_waits_says_for_which_run(job: Served) -> None:
    job.node.state.buffers = True
    first = job.node.state.put_run(RUN, "running").run_id
    job.node.state.put_run("default/a@20250101T000000.000Z", "succeeded")
    assert f"triggered default/a!t.x, waits for {first}\n" == job.run("jobs", "trigger", "a", "--id", "x").out
    second = job.run("jobs", "trigger", "a", "--id", "y").out
    assert f"triggered default/a!t.y, waits for {first} and 1 more\n" == second
    assert "unless overlap: allow" in " ".join(tocsin("jobs", "trigger", "--help").out.split())


def test_tail_prints_each_change_of_a_run_once(job: Served) -> None:
    job.node.state.put_run(RUN, "running")
    with started("runs", "tail", "--interval", "0.1", TOCSIN_URL=job.url) as tail:
        assert "running" in line_of(tail)
        job.node.state.put_run(RUN, "failed", error="the endpoint answered 503")
        failed = line_of(tail)
        assert "failed" in failed
        assert "the endpoint answered 503" in failed
        job.node.state.put_run("default/a!t.y", "succeeded")
        assert "default/a!t.y" in line_of(tail)
        tail.send_signal(signal.SIGINT)
        assert 130 == tail.wait(LIMIT_S)


def test_tail_prints_json_lines_when_asked(job: Served) -> None:
    job.node.state.put_run(RUN, "succeeded")
    with started("runs", "tail", "a", "--json", TOCSIN_URL=job.url) as tail:
        assert RUN == json.loads(line_of(tail))["run_id"]


def test_dead_letters_are_listed_and_run_again(job: Served) -> None:
    runs = [f"default/a@20260101T00000{second}.000Z" for second in range(3)]
    for run in runs:
        job.node.state.put_dead(run)
    listed = job.run("dead-letters", "list")
    assert [(run, "1", "the endpoint answered 503") for run in runs] == [
        tuple(line.split(maxsplit=2)) for line in listed.out.splitlines()[1:]
    ]
    assert f"redriven {runs[0]}\n" == job.run("dead-letters", "redrive", runs[0], "--reason", "mended").out
    foreseen = job.run("dead-letters", "redrive", "--all", "--dry-run")
    assert [f"would redrive {run}" for run in runs[1:]] == foreseen.out.splitlines()[:2]
    done = job.run("dead-letters", "redrive", "--all", "-n", "default")
    assert "2 dead letters" in done.out
    job.node.state.catch_up()
    assert "no dead letters\n" == job.run("dead-letters", "list").out
    assert 2 == job.run("dead-letters", "redrive").code
    assert 2 == job.run("dead-letters", "redrive", runs[0], "--all").code


def test_a_long_error_ends_where_the_terminal_does(job: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    job.node.state.put_dead(RUN, "the endpoint answered 503: " + "x" * 4000)
    assert "x" * 4000 in job.run("dead-letters", "list").out
    monkeypatch.setattr("tocsin.cli.output.PIPE_WIDTH", 80)
    header, line = job.run("dead-letters", "list").out.splitlines()
    assert ["RUN", "TRIES", "ERROR"] == header.split()
    assert line.startswith(RUN)
    assert "the endpoint answered" in line
    assert line.rstrip().endswith("\N{HORIZONTAL ELLIPSIS}")


def test_a_dry_run_of_a_redrive_checks_the_named_runs_and_runs_none(job: Served) -> None:
    job.node.state.put_dead(RUN)
    before = len(job.node.records(NAMES.commands))
    foreseen = job.run("dead-letters", "redrive", RUN, "--dry-run")
    assert (0, f"would redrive {RUN}\n") == (foreseen.code, foreseen.out)
    job.node.state.put_run("default/a!t.x", "succeeded")
    refused = job.run("dead-letters", "redrive", RUN, "default/a!t.x", "--dry-run")
    assert (2, "") == (refused.code, refused.out)
    assert "default/a!t.x is succeeded" in refused.err
    assert 2 == job.run("dead-letters", "redrive", "default/nobody@20260101T000000.000Z", "--dry-run").code
    assert before == len(job.node.records(NAMES.commands))


# --- queues -----------------------------------------------------------------------------------------------------------


def test_queues_are_created_once_and_listed(served: Served) -> None:
    assert "created queue reports\n" == served.run("queues", "create", "reports").out
    assert "unchanged queue reports\n" == served.run("queues", "create", "reports").out
    assert 2 == served.run("queues", "create", "reports", "--kind", "function").code
    listed = served.run("queues", "list")
    assert ["reports", "http", "4", "0"] == listed.out.splitlines()[-1].split()
    assert 3 == len(served.run("queues", "list", "--json").json["items"])


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("jobs", "list"), ("runs", "list"), ("runs", "tail"), ("queues", "list"), ("dead-letters", "list")],
)
def test_without_a_node_every_command_says_so_and_exits_with_1(arguments: tuple[str, ...]) -> None:
    done = tocsin(*arguments, TOCSIN_URL="http://127.0.0.1:1")
    assert (1, "") == (done.code, done.out)
    assert "http://127.0.0.1:1" in done.err
    assert "tocsin up" in done.err
    assert "error" in tocsin(*arguments, "--json", TOCSIN_URL="http://127.0.0.1:1").json


def test_the_key_comes_from_the_environment_and_a_missing_one_is_explained(guarded: Served) -> None:
    missing, wrong = guarded.run("jobs", "list"), guarded.run("jobs", "list", TOCSIN_API_KEY="guess")
    assert [1, 1] == [missing.code, wrong.code]
    assert "This node asks for a key: set TOCSIN_API_KEY to the one that it was given.\n" == missing.err
    assert wrong.err.startswith("The key in TOCSIN_API_KEY is not this node's: ")
    taken = guarded.run("jobs", "list", TOCSIN_API_KEY="s3cret")
    assert (0, "no jobs\n") == (taken.code, taken.out)


@pytest.mark.parametrize(
    ("given", "actor"),
    [
        ({"TOCSIN_ACTOR": "deploy"}, "cli:deploy"),
        ({}, "cli:anna"),
        ({"USER": "", "LOGNAME": ""}, f"cli:{pwd.getpwuid(os.getuid()).pw_name}"),
    ],
)
def test_who_asked_is_recorded_by_the_name_that_is_known(
    job: Served, given: dict[str, str], actor: str
) -> None:
    assert 0 == job.run("jobs", "pause", "a", **given).code
    assert actor == job.node.records(NAMES.commands)[-1].actor


def test_the_url_option_wins_over_the_environment(served: Served) -> None:
    assert 0 == tocsin("jobs", "list", "--url", served.url + "/", TOCSIN_URL="http://127.0.0.1:1").code


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(served: Served) -> None:
    assert (
        0 == served.run("jobs", "list", HTTP_PROXY="http://127.0.0.1:1", ALL_PROXY="http://127.0.0.1:1").code
    )


@pytest.mark.parametrize("url", ["nowhere", "http://", "ftp://127.0.0.1"])
def test_a_url_that_is_none_is_a_matter_of_the_input(url: str) -> None:
    done = tocsin("jobs", "list", "--url", url)
    assert 2 == done.code
    assert "Traceback" not in done.err


def test_something_else_at_the_address_is_recognised(receiver: str) -> None:
    done = tocsin("jobs", "list", "--url", receiver)
    assert 1 == done.code
    assert "is this the right address" in done.err


# --- help -------------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_without_importing_any() -> None:
    code = "import sys; from tocsin.cli.app import run; sys.argv = ['tocsin', '--help']\ntry: run()\nexcept SystemExit: pass\n"
    code += "print(sorted({name.split('.')[0] for name in sys.modules} & {'httpx', 'aiohttp', 'yaml', 'fastapi', 'uvicorn'}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment({})
    )
    assert done.stdout.endswith("[]\n")
    for name in COMMANDS:
        assert name in done.stdout


def test_a_command_that_is_nearly_one_is_answered_with_it() -> None:
    done = tocsin("job", "list")
    assert 2 == done.code
    assert "No such command 'job'. Did you mean 'jobs'?" in done.err


def test_the_version_is_told() -> None:
    done = tocsin("--version")
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    known = {pyproject["project"]["version"], "(not installed)"}
    assert done.code == 0
    assert done.out.removeprefix("tocsin ").strip() in known


def test_what_is_no_command_is_a_matter_of_usage() -> None:
    for arguments in (("nonsense",), ("jobs", "nonsense"), ("jobs", "get"), ("jobs", "list", "--limit", "0")):
        assert 2 == tocsin(*arguments).code
