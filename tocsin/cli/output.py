"""Printing: tables that fit a terminal of 80 columns and are whole in a pipe, and JSON."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH: Final = 10_000
"""In a pipe nothing is wrapped: what reads it has no columns."""


CUT_LEAST: Final = 20
"""So much is left of a cell that is cut, however narrow the terminal."""


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_json_line(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: str = "", cut: str = ""
) -> None:
    """A table without lines. Cells of the column `whole` are never broken: they are there to be copied. Those of `cut` end
    where the terminal does, however long they are; in a pipe they are whole."""
    from rich.table import Table

    shown = console()
    lines = list(rows)
    if cut:
        at = columns.index(cut)
        others = [max(len(cell) for cell in column) for column in zip(columns, *lines, strict=True)]
        left = max(CUT_LEAST, shown.width - sum(others) + others[at] - 2 * (len(columns) - 1))
        lines = [(*row[:at], _cut(row[at], left), *row[at + 1 :]) for row in lines]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == whole)
    for row in lines:
        table.add_row(*row)
    shown.print(table)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"


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
