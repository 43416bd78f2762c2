"""`tocsin queues`."""

import sys
from collections.abc import Collection
from typing import Annotated

import typer

from tocsin.cli import output
from tocsin.cli.failures import Failure, called
from tocsin.cli.node import DEFAULT_URL, Json, Node, Url

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
    if not names:
        return
    try:
        queues = node.ask("GET", "/v1/queues")["items"]
    except Failure:
        return
    for queue in queues:
        if queue["name"] in names and not queue["live_workers"]:
            start = f": start `{called()} up --functions MODULE`" if queue["kind"] == "function" else " yet"
            print(f"queue {queue['name']} has no worker here{start}", file=sys.stderr)
