"""`tocsin queues`."""

import sys
import threading
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

import typer

from tocsin.cli import output
from tocsin.cli.failures import Failure, called
from tocsin.cli.node import DEFAULT_URL, Json, Node, Url

LOOKS_MAX: Final = 8
LOOK_EVERY_S: Final = 0.5
"""Together more than an API takes between two counts of the workers."""

app = typer.Typer(no_args_is_help=True, help="Create and list queues.")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    kind: Annotated[
        str, typer.Option("--kind", help="What it holds: http, function or topic targets.")
    ] = "http",
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Default: as the node's others.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Create a queue, with its topics. The same again changes nothing."""
    from urllib.parse import quote

    body = {"kind": kind} | ({} if partitions is None else {"partitions": partitions})
    with Node(url, as_json=as_json) as node:
        response = node.send("PUT", f"/v1/queues/{quote(name, safe='')}", json_body=body)
    if as_json:
        output.show_json(response.json())
    else:
        print(f"{'created' if response.status_code == 201 else 'unchanged'} queue {name}")


@app.command("list")
def list_queues(*, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List the queues, and how many workers of the node read each."""
    with Node(url, as_json=as_json) as node:
        answer = node.ask("GET", "/v1/queues")
    if as_json:
        output.show_json(answer)
        return
    rows = [(q["name"], q["kind"], str(q["partitions"]), str(q["live_workers"])) for q in answer["items"]]
    output.show_table(("QUEUE", "KIND", "PARTITIONS", "WORKERS"), rows)


def warn_of_idle(node: Node, names: Collection[str]) -> None:
    """Say which of these queues nobody reads: their runs would wait in silence. The command itself is done by now, so
    that nothing is said where the node does not answer."""
    idle = _idle(node, names)
    for _ in range(LOOKS_MAX - 1):
        # On a Kafka the workers are counted now and then: one that has just come is no reason to alarm anybody.
        if not any(queue["served_by"] == "workers" for queue in idle):
            break
        threading.Event().wait(LOOK_EVERY_S)
        idle = _idle(node, names)
    for queue in idle:
        print(f"queue {queue['name']} has no worker here{_start(queue)}", file=sys.stderr)


def _idle(node: Node, names: Collection[str]) -> list[dict[str, Any]]:
    if not names:
        return []
    try:
        queues = node.ask("GET", "/v1/queues")["items"]
    except Failure:
        return []
    return [queue for queue in queues if queue["name"] in names and not queue["live_workers"]]


def _start(queue: Mapping[str, Any]) -> str:
    """What to start for it."""
    if queue["served_by"] == "workers":
        options = "--functions MODULE" if queue["kind"] == "function" else ""
        if queue["name"] not in ("default", "functions"):  # what a worker serves by itself
            options = f"--queue {queue['name']} {options}".rstrip()
        return f": start `{called()} worker {options}".rstrip() + "`"
    return f": start `{called()} up --functions MODULE`" if queue["kind"] == "function" else " yet"
