"""`tocsin dead-letters`."""

from typing import Annotated

import typer

from tocsin.cli import output
from tocsin.cli.failures import EXIT_INPUT, Failure
from tocsin.cli.node import DEFAULT_URL, Json, Node, NoWait, Reason, Url, run_path, waiting

app = typer.Typer(no_args_is_help=True, help="Show runs that failed for good, and run them again.")

_Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Only this namespace.", show_default=False)
]


@app.command("list")
def list_dead_letters(
    *,
    namespace: _Namespace = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000)] = 100,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List them, with the error of the last attempt."""
    with Node(url, as_json=as_json) as node:
        letters = list(node.pages("/v1/dead-letters", {"namespace": namespace}, limit))
    if as_json:
        output.show_json(node.listed(letters))
        node.end()
        return
    if not letters:
        print("no dead letters")
        node.end()
        return
    rows = []
    for letter in letters:
        last = output.last_attempt(letter)
        why = output.one_line(last.get("error") or letter["reason"] or "-")
        rows.append((letter["run_id"], str(last.get("attempt", 0)), why))
    output.show_table(("RUN", "TRIES", "ERROR"), rows, whole="RUN", cut="ERROR")
    node.end()


@app.command("redrive")
def redrive(
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", show_default=False)] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All of them, or all of --namespace.")] = False,
    namespace: _Namespace = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="With --all: at most so many.")] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Run nothing; say which would be.")] = False,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Run dead letters again: the same run ids, attempts go on counting."""
    if bool(runs) == every:
        raise Failure(
            "Name run ids, or give --all (with --namespace for one namespace's).", exit_code=EXIT_INPUT
        )
    with Node(url, as_json=as_json) as node:
        if every:
            found = _redrive_all(node, namespace, limit, reason, dry_run=dry_run)
            # These are not waited for: the node answers when the log has them.
            done = dict.fromkeys(found, "would redrive" if dry_run else "acknowledged")
        elif dry_run:
            done = dict.fromkeys(_check_each(node, runs or [], as_json=as_json), "would redrive")
        else:
            done = _redrive_each(node, runs or [], reason, no_wait=no_wait)
    if as_json:
        output.show_json({"run_ids": list(done), "count": len(done), "dry_run": dry_run})
        return
    for run_id, word in done.items():
        print(f"{word} {run_id}")
    if every:
        print(f"{len(done)} dead letter{'' if len(done) == 1 else 's'}")


def _redrive_each(node: Node, runs: list[str], reason: str, *, no_wait: bool) -> dict[str, str]:
    """What is known of each afterwards: `redriven`, or `acknowledged`."""
    done: dict[str, str] = {}
    for run in runs:
        path = run_path("/v1/dead-letters", run, "/redrive")
        answer = node.ask("POST", path, params={"wait": waiting(no_wait)}, body={"reason": reason})
        done[run] = answer["result"]
    return done


def _check_each(node: Node, runs: list[str], *, as_json: bool) -> list[str]:
    """The runs, if each can be run again, by the rule that the node applies when it is asked to."""
    for run in runs:
        status = node.ask("GET", run_path("/v1/runs", run))["status"]
        if status != "failed":
            raise Failure(
                f"{run} is {status}; only a failed run can be run again.",
                exit_code=EXIT_INPUT,
                as_json=as_json,
            )
    return runs


def _redrive_all(node: Node, namespace: str, limit: int, reason: str, *, dry_run: bool) -> list[str]:
    done: list[str] = []
    cursor = ""
    while len(done) < limit:
        body = {
            "namespace": namespace,
            "cursor": cursor,
            "limit": min(limit - len(done), 1000),
            "dry_run": dry_run,
            "reason": reason,
        }
        answer = node.ask("POST", "/v1/dead-letters:redrive", body=body)
        done += answer["run_ids"]
        cursor = answer["next_cursor"] or ""
        if not cursor:
            break
    return done
