"""Printing: tables that fit a terminal of 80 columns and are whole in a pipe, and JSON."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH: Final = 10_000
"""In a pipe nothing is wrapped: what reads it has no columns."""


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_json_line(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: str = "") -> None:
    """A table without lines. Cells of the column `whole` are never broken: they are there to be copied."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == whole)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def instant(value: Any) -> str:
    """An instant for a table: to the second, UTC."""
    return f"{str(value)[:19]}Z" if value else "-"


def one_line(text: str) -> str:
    """The text without line breaks and without what would steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def lateness(value: Any) -> str:
    return "-" if value is None else f"{value} ms"


def last_attempt(run: dict[str, Any]) -> dict[str, Any]:
    attempts = run.get("attempts") or [{}]
    found: dict[str, Any] = attempts[-1]
    return found
