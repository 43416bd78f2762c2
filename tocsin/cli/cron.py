"""``tocsin cron``: when does this expression fire, and what may surprise me? It needs no server.

Imports stay few: ``next --batch`` is also used by programs that start it and expect the first answer soon.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from tocsin.cli.failures import EXIT_INPUT, Failure, error_line
from tocsin.cli.output import show_json
from tocsin.clock import SystemClock
from tocsin.schedules import Cron, ScheduleError, format_instant, parse_instant, shared_cron, zone

if TYPE_CHECKING:
    from tocsin.schedules.explain import Explanation

COUNT_MAX: Final = 100_000  # fires in one answer: about 3 MB of text
LINE_BYTES_MAX: Final = 64 * 1024

app = typer.Typer(no_args_is_help=True, help="Say when a cron expression fires, and explain it.")

_Timezone = Annotated[str, typer.Option("--tz", "--timezone", help="The zone, an IANA name.", metavar="ZONE")]
_After = Annotated[
    str | None, typer.Option(help="Start strictly after this instant, ISO 8601 with offset. Default: now.")
]
_Gap = Annotated[str, typer.Option(help="A fixed time that the clocks skip: at_end, skip or shift.")]
_Fold = Annotated[str, typer.Option(help="A fixed time that comes twice: first, second or both.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("next")
def next_fires(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPR", help='In quotes: "0 9 * * MON-FRI".', show_default=False),
    ] = None,
    *,
    timezone: _Timezone = "UTC",
    after: _After = None,
    count: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="How many fires.")] = 5,
    gap: _Gap = "at_end",
    fold: _Fold = "first",
    as_json: _Json = False,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help='Answer JSON lines on standard input, {"expr", "tz", "start", "count"}, with one line each, in order.',
        ),
    ] = False,
) -> None:
    """Print the next fires of a cron expression."""
    if batch:
        _batch(sys.stdin.buffer, sys.stdout.buffer)
        return
    if not words:
        raise typer.BadParameter(
            'give an expression such as "0 9 * * MON-FRI", or --batch', param_hint="EXPR"
        )
    expression = _one(words, as_json=as_json)
    try:
        cron = _cron(expression, timezone, gap, fold)
        fires = list(islice(cron.fires(_after_ms(after)), count))
    except ScheduleError as error:
        raise _refused(error, as_json=as_json) from None
    if as_json:
        values = {
            "expression": expression,
            "timezone": timezone,
            "fires": [format_instant(each) for each in fires],
        }
        show_json(values)
        return
    for fire_ms in fires:
        print(_shown(fire_ms, timezone))
    if not fires:
        print(f"{expression} never fires", file=sys.stderr)


@app.command("explain")
def explain_expression(
    words: Annotated[list[str], typer.Argument(metavar="EXPR", help='In quotes: "0 9 * * MON-FRI".')],
    *,
    timezone: _Timezone = "UTC",
    after: _After = None,
    count: Annotated[int, typer.Option(min=0, max=1000, help="How many fires to show.")] = 5,
    gap: _Gap = "at_end",
    fold: _Fold = "first",
    as_json: _Json = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Ask croniter too, and show where it differs.")
    ] = False,
) -> None:
    """Say in words when a cron expression fires, and warn of what people often do not mean."""
    from tocsin.schedules.explain import explain

    expression = _one(words, as_json=as_json)
    try:
        after_ms = _after_ms(after)
        cron = _cron(expression, timezone, gap, fold)
        explanation = explain(
            expression, timezone, after_ms=after_ms, count=count, gap=cron.gap, fold=cron.fold
        )
    except ScheduleError as error:
        raise _refused(error, as_json=as_json) from None
    other = _croniter_says(cron, after_ms, count) if compare else None
    if as_json:
        show_json(_as_json(explanation, other))
    else:
        _show(explanation, other)


def _one(words: list[str], *, as_json: bool) -> str:
    """The expression. Several words are one that the shell took apart, and whose stars it made names of files."""
    if len(words) > 1:
        raise Failure(
            'Put the expression in quotes, so that the shell leaves it whole: "0 9 * * *"',
            exit_code=EXIT_INPUT,
            as_json=as_json,
        )
    return words[0]


def _after_ms(after: str | None) -> int:
    return SystemClock().now_ms() if after is None else parse_instant(after)


def _cron(expression: str, timezone: str, gap: Any, fold: Any) -> Cron:
    """The shared Cron; an unknown policy is refused by it, whatever its type."""
    return shared_cron(expression, timezone, gap, fold)


def _shown(fire_ms: int, timezone: str) -> str:
    """An instant in UTC and as the clocks of the zone show it."""
    text = format_instant(fire_ms)
    if timezone == "UTC":
        return text
    offset = zone(timezone).offset_at(fire_ms // 1000)
    local = format_instant(fire_ms + offset * 1000)[:19].replace("T", " ")
    sign, minutes = ("-" if offset < 0 else "+"), abs(offset) // 60
    return f"{text}  {local} {sign}{minutes // 60:02d}:{minutes % 60:02d}"


def _refused(error: ScheduleError, *, as_json: bool) -> Failure:
    problem = {"field": error.field, "rule": error.rule, "message": error.message, "value": error.value}
    return Failure(error_line(problem), exit_code=EXIT_INPUT, problem=problem, as_json=as_json)


def _as_json(explanation: Explanation, other: list[str] | None) -> dict[str, object]:
    values: dict[str, object] = {
        "expression": explanation.expression,
        "timezone": explanation.timezone,
        "reading": explanation.reading,
        "fires": [format_instant(each) for each in explanation.fires],
        "warnings": [{"rule": each.rule, "message": each.message} for each in explanation.warnings],
    }
    if other is not None:
        values["croniter"] = other
    return values


def _show(explanation: Explanation, other: list[str] | None) -> None:
    print(explanation.reading)
    if explanation.fires:
        print("\nNext:")
    for fire_ms in explanation.fires:
        print(f"  {_shown(fire_ms, explanation.timezone)}")
    if explanation.warnings:
        print("\nMind:")
    for warning in explanation.warnings:
        print(f"  - {warning.message}")
    if other is not None:
        same = other == [format_instant(each) for each in explanation.fires]
        print("\ncroniter agrees." if same else "\ncroniter says otherwise:")
        for text in [] if same else other:
            print(f"  {text}")


def _croniter_says(cron: Cron, after_ms: int, count: int) -> list[str]:
    """The same fires by croniter, or why it has none. A second opinion, on the same time-zone data."""
    import pkgutil
    from datetime import UTC, datetime, timedelta
    from io import BytesIO
    from zoneinfo import ZoneInfo

    from croniter import croniter

    data = pkgutil.get_data("tzdata", f"zoneinfo/{cron.timezone}") or b""
    place = ZoneInfo.from_file(BytesIO(data), key=cron.timezone)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    start = (epoch + timedelta(milliseconds=after_ms)).astimezone(place)
    try:
        asked = croniter(cron.expression, start, second_at_beginning=True)
        found = [asked.get_next(datetime).astimezone(UTC) for _ in range(count)]
    except ValueError as error:  # all of croniter's are
        return [f"refused: {error}"]
    return [format_instant((each - epoch) // timedelta(milliseconds=1)) for each in found]


# -- batch


def _batch(lines: BinaryIO, answers: BinaryIO) -> None:
    """One answer for each line, written before the next line is read."""
    try:
        while line := lines.readline(LINE_BYTES_MAX + 1):
            too_long = len(line) > LINE_BYTES_MAX
            while too_long and not line.endswith(b"\n") and (line := lines.readline(LINE_BYTES_MAX)):
                pass
            answer = {"error": f"a line has at most {LINE_BYTES_MAX} bytes"} if too_long else _answer(line)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()
    except BrokenPipeError:
        # Whoever asked has left. The interpreter must not fail on its own flush at exit.
        sys.stdout = None
        raise typer.Exit(0) from None


def _answer(line: bytes) -> dict[str, object]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"error": f"the line is no JSON: {error}"}
    if not isinstance(asked, dict):
        return {
            "error": 'the line is no JSON object: write {"expr": ..., "tz": ..., "start": ..., "count": ...}'
        }
    texts = {"tz": "UTC", "gap": "at_end", "fold": "first", **asked}
    for name in ("expr", "tz", "start", "gap", "fold"):
        if not isinstance(texts.get(name), str):
            return {"error": f"{name} is {'no text' if name in texts else 'missing'}"}
    count = asked.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= COUNT_MAX:
        return {"error": f"count is a whole number from 0 to {COUNT_MAX}"}
    try:
        cron = _cron(texts["expr"], texts["tz"], texts["gap"], texts["fold"])
        fires = islice(cron.fires(parse_instant(texts["start"])), count)
        return {"fires": [format_instant(each)[:19] + "+00:00" for each in fires]}
    except ScheduleError as error:
        return {"error": f"{error.field}: {error.message}"}
