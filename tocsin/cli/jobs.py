"""`tocsin jobs`."""

import sys
from typing import Annotated, Any, Final

import typer

from tocsin.cli import output
from tocsin.cli.failures import EXIT_INPUT, Failure
from tocsin.cli.node import DEFAULT_URL, JobArgument, Json, Node, NoWait, Reason, Url, job_path, waiting
from tocsin.cli.queues import warn_of_idle
from tocsin.cli.runs import OPEN

OPEN_RUNS_MAX: Final = 1_000
"""So many open runs a job has at most."""

app = typer.Typer(no_args_is_help=True, help="Define, show and steer jobs.")


@app.command("apply")
def apply_files(
    *,
    files: Annotated[
        list[str],
        typer.Option(
            "--file", "-f", help="YAML, JSON or NDJSON; a folder of these; - is standard input. Repeatable."
        ),
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Apply the valid documents although others are not.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and the summary.")] = False,
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Define every job of the files: created, changed or unchanged. If one is wrong, none is applied."""
    from tocsin.cli.apply import Options, apply

    options = Options(
        files=files, partial=partial, dry_run=dry_run, wait=not no_wait, quiet=quiet, as_json=as_json
    )
    with Node(url, as_json=as_json) as node:
        code = apply(node, options)
    raise typer.Exit(code)


@app.command("list")
def list_jobs(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", show_default=False)] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="name=value; several: all of them.", show_default=False),
    ] = None,
    state: Annotated[
        str, typer.Option("--state", help="active, paused, broken or finished.", show_default=False)
    ] = "",
    prefix: Annotated[str, typer.Option("--prefix", help="Ids that begin so.", show_default=False)] = "",
    failing: Annotated[bool, typer.Option("--failing", help="Only jobs whose last run failed.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000)] = 100,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List jobs in the order of their keys."""
    params: dict[str, Any] = {
        "namespace": namespace,
        "label": label or [],
        "state": state,
        "id_prefix": prefix,
    }
    if failing:
        params["failing"] = "true"
    with Node(url, as_json=as_json) as node:
        jobs = list(node.pages("/v1/jobs", params, limit + 1))
    more = len(jobs) > limit
    del jobs[limit:]
    if as_json:
        output.show_json(node.listed(jobs))
        node.end()
        return
    if not jobs:
        print("no jobs")
        node.end()
        return
    rows = [
        (
            job["key"],
            job["state"],
            job["schedule"] or "-",
            output.instant(job["next_due"]),
            job["last_run"]["status"] if job["last_run"] else "-",
        )
        for job in jobs
    ]
    output.show_table(("JOB", "STATE", "SCHEDULE", "NEXT", "LAST"), rows, whole="NEXT")
    if more:
        print(f"... and more; --limit {limit * 10} shows more of them", file=sys.stderr)
    node.end()


@app.command("get")
def get_job(
    job: JobArgument,
    *,
    full: Annotated[bool, typer.Option("--full", help="With every default written out.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Print a job's document, as it can be applied again, with its state as comments."""
    with Node(url, as_json=as_json) as node:
        found = node.ask("GET", job_path(job), params={"full": "true" if full else ""})
    if as_json:
        output.show_json(found)
        return
    import yaml

    for line in _comments(found):
        print(f"# {output.one_line(line)}")
    if found["definition"] is not None:
        print(yaml.safe_dump(found["definition"], sort_keys=False, allow_unicode=True, width=100), end="")


def _comments(job: dict[str, Any]) -> list[str]:
    lines = [
        f"revision {job['revision']}, {job['state']}, defined {job['defined_at']} by {job['defined_by'] or '?'}"
    ]
    if job["broken"]:
        lines.append(f"broken: {job['broken']}")
    if job["pause"]:
        pause = job["pause"]
        until = f" until {pause['until']}" if pause["until"] else ""
        lines.append(
            f"paused{until} by {pause['by'] or '?'}" + (f": {pause['reason']}" if pause["reason"] else "")
        )
    if job["skip_next"]:
        lines.append(f"the next {job['skip_next']} are skipped")
    coming = job["next_due"] or "-"
    if job["none_before"]:
        coming = f"not known yet: none before {job['none_before']}, where the search goes on"
    lines.append(f"next {coming}")
    lines.append(f"open runs {job['open_runs']}")
    if job["last_run"]:
        lines.append(f"last run {job['last_run']['run_id']}: {job['last_run']['status']}")
    if job["last_failure"]:
        lines.append(f"last failure {job['last_failure']['at']}: {job['last_failure']['error']}")
    return lines


@app.command("delete")
def delete_job(
    job: JobArgument, *, no_wait: NoWait = False, url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Delete a job. What is scheduled is withdrawn; a run that has begun ends by itself."""
    with Node(url, as_json=as_json) as node:
        answer = node.ask("DELETE", job_path(job), params={"wait": waiting(no_wait)})
    _said(answer, as_json, f"{_word(answer, 'deleted')} {answer['key']}")


@app.command("trigger")
def trigger_job(
    job: JobArgument,
    *,
    body: Annotated[
        str | None,
        typer.Option("--body", help="In place of the target's: JSON, text, or @FILE.", show_default=False),
    ] = None,
    trigger_id: Annotated[
        str | None,
        typer.Option("--id", help="A second trigger with the same id is the same run.", show_default=False),
    ] = None,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Run a job now, once, beside its schedule. While a run of it is open it waits for that one, unless overlap: allow."""
    fields = {"reason": reason, **_body(body)}
    headers = {} if trigger_id is None else {"idempotency-key": trigger_id}
    with Node(url, as_json=as_json) as node:
        answer = node.ask(
            "POST",
            f"{job_path(job)}/trigger",
            params={"wait": waiting(no_wait)},
            body=fields,
            headers=headers,
        )
        word = {"unchanged": "already triggered", "acknowledged": "acknowledged"}.get(
            answer["result"], "triggered"
        )
        _said(answer, as_json, f"{word} {answer['run_id']}{_waits(node, job, answer)}")
        warn_of_idle(node, _queue_of(node, job))


def _waits(node: Node, job: str, answer: dict[str, Any]) -> str:
    """What it waits for, if it was not dispatched: `, waits for RUN`."""
    if answer.get("run", {}).get("status") != "buffered":
        return ""
    try:
        runs = list(node.pages(f"{job_path(job)}/runs", {}, OPEN_RUNS_MAX))
    except Failure:
        runs = []
    # The newest one comes first, and they end one after the other.
    before = [run["run_id"] for run in runs if run["status"] in OPEN and run["run_id"] != answer["run_id"]]
    others = f" and {len(before) - 1} more" if len(before) > 1 else ""
    return f", waits for {before[-1]}{others}" if before else ", waits for an earlier run to end"


def _queue_of(node: Node, job: str) -> set[str]:
    try:
        definition = node.ask("GET", job_path(job), params={"full": "true"})["definition"]
    except Failure:
        return set()
    return {definition["queue"]} if definition else set()


def _body(body: str | None) -> dict[str, Any]:
    import base64
    import json
    from pathlib import Path

    if body is None:
        return {}
    if body.startswith("@"):
        try:
            return {"body_base64": base64.b64encode(Path(body[1:]).read_bytes()).decode()}
        except OSError as error:
            raise Failure(f"{body[1:]}: {error.strerror or error}", exit_code=EXIT_INPUT) from None
    try:
        return {"body": json.loads(body)}
    except ValueError:
        return {"body": body}


@app.command("pause")
def pause_job(
    job: JobArgument,
    *,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Resume by itself then: ISO 8601 with offset.", show_default=False),
    ] = None,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Skip a job's occurrences until it is resumed."""
    body = {"reason": reason} | ({} if until is None else {"until": until})
    answer = _post(url, f"{job_path(job)}/pause", body, no_wait, as_json)
    _said(answer, as_json, f"{_word(answer, 'paused')} {answer['key']}")


@app.command("resume")
def resume_job(
    job: JobArgument,
    *,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Go on with the job's next occurrence."""
    answer = _post(url, f"{job_path(job)}/resume", {"reason": reason}, no_wait, as_json)
    _said(answer, as_json, f"{_word(answer, 'resumed')} {answer['key']}")


@app.command("skip-next")
def skip_next(
    job: JobArgument,
    count: Annotated[int, typer.Argument(min=0, help="How many; 0 takes an earlier request back.")] = 1,
    *,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Skip the job's next occurrences."""
    answer = _post(url, f"{job_path(job)}/skip-next", {"count": count, "reason": reason}, no_wait, as_json)
    _said(answer, as_json, f"{_word(answer, f'will skip {count} of')} {answer['key']}")


def _post(url: str, path: str, body: dict[str, Any], no_wait: bool, as_json: bool) -> dict[str, Any]:
    with Node(url, as_json=as_json) as node:
        return node.ask("POST", path, params={"wait": waiting(no_wait)}, body=body)


def _word(answer: dict[str, Any], done: str) -> str:
    match answer["result"]:
        case "acknowledged":
            return "acknowledged"
        case "unchanged":
            return "unchanged"
        case "superseded":
            return "superseded by a later definition:"
        case _:
            return done


def _said(answer: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        output.show_json(answer)
        return
    print(line)
    if "note" in answer:
        print(answer["note"], file=sys.stderr)
