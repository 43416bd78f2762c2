"""`tocsin secrets`: what a signing secret looks like, made here."""

import typer

from tocsin.clock import new_id
from tocsin.signing import format_secret

app = typer.Typer(no_args_is_help=True, help="Make signing secrets.")


@app.callback()
def _root() -> None:
    """Also needed, so that typer makes a group of an app with one command."""


@app.command()
def new() -> None:
    """Print a new signing secret. Write it into DIR/NAMESPACE/NAME of the workers, and give it to the receiver."""
    print(format_secret(bytes.fromhex(new_id() + new_id())))
