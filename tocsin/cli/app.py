"""The tree of commands, each imported when it is called: `tocsin cron next` needs no HTTP client and `tocsin --help` nothing.

Exit codes: 0 done; 1 the environment (no node there, not ready, no key, the log is away); 2 the input (usage, an invalid
document, something that does not exist); 130 interrupted.
"""

import importlib
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from tocsin.cli.failures import EXIT_ENVIRONMENT, Failure


@dataclass(frozen=True, slots=True)
class _Lazy:
    """Where a command lives: `attribute` of `module` is a Typer app, or the function of a single command."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "up": _Lazy("tocsin.cli.up", "up", "Run a whole Tocsin, on its own log or on a Kafka."),
    "streams": _Lazy("tocsin.cli.streams", "streams", "On a Kafka: the processors, which decide what runs."),
    "worker": _Lazy("tocsin.cli.worker", "worker", "On a Kafka: execute due runs."),
    "api": _Lazy("tocsin.cli.api", "api", "On a Kafka: serve the HTTP API."),
    "kafka": _Lazy("tocsin.cli.kafka", "app", "Run a Kafka on this machine, for trying and for tests."),
    "topics": _Lazy("tocsin.cli.topics", "app", "Create, verify and plan the topics on a Kafka."),
    "jobs": _Lazy("tocsin.cli.jobs", "app", "Define, show and steer jobs."),
    "runs": _Lazy("tocsin.cli.runs", "app", "Show, follow and cancel runs."),
    "dead-letters": _Lazy(
        "tocsin.cli.dead_letters", "app", "Show runs that failed for good, and run them again."
    ),
    "queues": _Lazy("tocsin.cli.queues", "app", "Create and list queues."),
    "cron": _Lazy("tocsin.cli.cron", "app", "Say when a cron expression fires."),
    "secrets": _Lazy("tocsin.cli.secrets", "app", "Make signing secrets."),
    "sink": _Lazy("tocsin.cli.sink", "sink", "Receive runs and print them, for demos and tests."),
}


class _LazyGroup(TyperGroup):
    """Looks its commands up in COMMANDS; the list of them costs no import."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the context is of typer's own copy of click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        return TyperCommand(cmd_name, help=lazy.help) if self._listing else _load(cmd_name, lazy)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        near = get_close_matches(args[0], COMMANDS, n=1) if args and args[0] not in COMMANDS else ()
        if near and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def _load(name: str, lazy: _Lazy) -> Any:
    try:
        found = getattr(importlib.import_module(lazy.module), lazy.attribute)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == lazy.module:
            raise Failure(f"`tocsin {name}` is not part of this installation.") from None
        if missing.split(".")[0] == "tocsin":
            raise
        raise _missing(f"`tocsin {name}`", missing) from None
    command: Any
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
    else:
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        command = typer.main.get_command(single)
    command.name = name
    return command


def _missing(command: str, package: str) -> Failure:
    return Failure(
        f"{command} needs the package {package}, which is not installed: pip install 'tocsin[server]'"
    )


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tocsin: cron at scale, on a log. `tocsin up` runs a node; the other commands talk to it "
    "(--url or TOCSIN_URL, default http://127.0.0.1:8787).",
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            known = version("tocsin")
        except PackageNotFoundError:
            known = "(not installed)"
        print(f"tocsin {known}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Also needed, so that typer makes a group of an app without commands of its own."""


def run() -> None:
    """Run the command line; never returns."""
    try:
        app()
    except Failure as failure:
        # Wherever it was raised: what reads a file or a word of the command line does not know of the option.
        failure.show(as_json="--json" in sys.argv[1:])
        sys.exit(failure.exit_code)
    except ModuleNotFoundError as error:  # what a command imports only when it comes to need it
        package = (error.name or "").split(".")[0]
        if package in ("", "tocsin"):
            raise
        _missing("This command", package).show()
        sys.exit(EXIT_ENVIRONMENT)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). What is still buffered goes nowhere, quietly.
        sys.stderr.close()
        sys.exit(1)
