"""`tocsin jobs apply`: all documents are read and checked before the first is sent, so that a mistake in the last file does
not leave the first half of a change in force."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tocsin.cli import output
from tocsin.cli.documents import BadDocument, Document, read_all
from tocsin.cli.failures import EXIT_INPUT, Failure, error_line
from tocsin.cli.node import Node, json_lines
from tocsin.cli.queues import warn_of_idle

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tocsin.schemas.records import Queue

LINES_MAX: Final = 10_000
"""Of one batch, as the node takes them."""
BYTES_MAX: Final = 8 * 1024 * 1024
ERRORS_SHOWN_MAX: Final = 50
PROGRESS_FROM: Final = 1_000
"""On a terminal, so many documents show a bar instead of a line each."""
BAD: Final = frozenset({"invalid", "rejected", "failed", "skipped"})


@dataclass(slots=True)
class _Entry:
    """One document on its way. The document itself is kept as the bytes to send: a million of them fit in memory."""

    place: str
    key: str
    raw: bytes
    queue: str = ""
    result: str = ""
    errors: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True, kw_only=True)
class Options:
    files: Sequence[str]
    partial: bool = False
    dry_run: bool = False
    wait: bool = True
    quiet: bool = False
    as_json: bool = False


@dataclass(slots=True)
class _Outcome:
    entries: list[_Entry] = field(default_factory=list)
    refused: str = ""
    """Why nothing (more) was sent."""


def apply(node: Node, options: Options) -> int:
    """Apply the files and say what became of each document. Returns the exit code."""
    outcome = _Outcome()
    with _progress(options) as progress:
        outcome.entries = _read(node, options, progress)
        wrong = [entry for entry in outcome.entries if entry.errors]
        if wrong and not options.partial:
            for entry in outcome.entries:
                entry.result = entry.result or "skipped"
            outcome.refused = _refused(len(wrong), len(outcome.entries))
        else:
            _send(node, options, outcome, progress)
    _report(options, outcome)
    if not options.quiet:
        warn_of_idle(node, {entry.queue for entry in outcome.entries if entry.result not in BAD})
    return EXIT_INPUT if any(entry.result in BAD for entry in outcome.entries) else 0


def _refused(wrong: int, count: int) -> str:
    if count == 1:
        return "The document is not valid; nothing was applied."
    if wrong == count:
        return f"None of the {count} documents is valid; nothing was applied."
    return f"{wrong} of {count} documents are not valid; nothing was applied. --partial applies the others."


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(node: Node, options: Options, progress: "Progress | None") -> list[_Entry]:
    queues = _queues(node)
    entries: list[_Entry] = []
    places: dict[str, str] = {}
    task = None if progress is None else progress.add_task("checking", total=None)
    try:
        for document in read_all(options.files):
            entry = _check(document, queues)
            first = places.setdefault(entry.key, entry.place)
            if entry.key and first != entry.place and not entry.errors:
                entry.errors = [_error("id", "duplicate", f"{entry.key} is also defined at {first}")]
                entry.result = "invalid"
            entries.append(entry)
            if progress is not None and task is not None and len(entries) % 500 == 0:
                progress.update(task, completed=len(entries))
    except BadDocument as error:
        raise Failure(
            f"{error}\nNothing was applied.", exit_code=EXIT_INPUT, as_json=options.as_json
        ) from None
    if progress is not None and task is not None:
        progress.update(task, completed=len(entries), total=len(entries))
    if not entries:
        raise Failure(
            "There are no job documents in what was given.", exit_code=EXIT_INPUT, as_json=options.as_json
        )
    return entries


def _queues(node: Node) -> "dict[str, Queue]":
    from tocsin.schemas.records import Queue

    return {
        q["name"]: Queue(name=q["name"], kind=q["kind"], partitions=q["partitions"])
        for q in node.ask("GET", "/v1/queues")["items"]
    }


def _check(document: Document, queues: "Mapping[str, Queue]") -> _Entry:
    """What can be known here. The node checks again; it alone knows whether an instant that has passed is new to it."""
    from tocsin.api.admission import queue_problems
    from tocsin.schemas.document import parse
    from tocsin.schemas.problems import problems

    job, misread = parse(document.value)
    found = list(misread) if job is None else [*problems(job), *queue_problems(job, queues)]
    value = document.value
    named = isinstance(value, dict) and "id" in value
    key = f"{value.get('namespace', 'default')}/{value['id']}" if named else ""
    entry = _Entry(document.place, key, b"", "" if job is None else job.queue)
    if found:
        entry.errors = [
            {**_error(p.field, p.rule, p.message, p.value), "place": document.place_of(p.field)}
            for p in found
        ]
        entry.result = "invalid"
    else:
        entry.raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return entry


def _error(field_: str, rule: str, message: str, value: str = "") -> dict[str, str]:
    return {"field": field_, "rule": rule, "message": message, "value": value[:200]}


# --- sending ----------------------------------------------------------------------------------------------------------


def _send(node: Node, options: Options, outcome: _Outcome, progress: "Progress | None") -> None:
    params = {
        "wait": "applied" if options.wait else "acknowledged",
        "partial": "true" if options.partial else "false",
        "dry_run": "true" if options.dry_run else "false",
    }
    good = [entry for entry in outcome.entries if not entry.errors]
    task: TaskID | None = None if progress is None else progress.add_task("applying", total=len(good))
    done = 0
    for chunk in _chunks(good):
        try:
            response = node.send(
                "POST",
                "/v1/jobs:batch",
                params=params,
                content=b"\n".join([entry.raw for entry in chunk]) + b"\n",
                headers={"content-type": "application/x-ndjson"},
                patient=True,
            )
        except Failure as failure:
            if done:
                failure.message += (
                    f"\n{done} of {len(good)} documents were applied before; applying again goes on."
                )
            raise
        for entry, result in zip(chunk, json_lines(response.text), strict=True):
            entry.result, entry.errors = result["result"], result["errors"]
        if not response.is_success:
            for entry in good[done + len(chunk) :]:
                entry.result = "skipped"
            applied = f"{done} documents were applied before" if done else "nothing was applied"
            others = " --partial applies the others." if len(good) > 1 else ""
            outcome.refused = f"The node refused a document; {applied}.{others}"
            return
        done += len(chunk)
        if progress is not None and task is not None:
            progress.update(task, completed=done)


def _chunks(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    chunk: list[_Entry] = []
    size = 0
    for entry in entries:
        if chunk and (len(chunk) == LINES_MAX or size + len(entry.raw) > BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(entry.raw) + 1
    if chunk:
        yield chunk


# --- saying -----------------------------------------------------------------------------------------------------------


def _report(options: Options, outcome: _Outcome) -> None:
    entries = outcome.entries
    counts = Counter(entry.result for entry in entries)
    if options.as_json:
        items = [
            {"key": e.key, "result": e.result, "errors": list(e.errors), "place": e.place} for e in entries
        ]
        output.show_json({"items": items, "counts": dict(counts), "note": outcome.refused or None})
        return
    errors = output.console(stderr=True)
    shown = 0
    quiet = options.quiet or (len(entries) > PROGRESS_FROM and output.console().is_terminal)
    verb = "would be " if options.dry_run else ""
    for entry in entries:
        for error in entry.errors:
            shown += 1
            if shown <= ERRORS_SHOWN_MAX:
                errors.print(
                    f"{error.get('place', entry.place)}: {entry.key or '(no id)'}: {error_line(error)}",
                    soft_wrap=True,
                )
        if not entry.errors and not quiet and not (outcome.refused and entry.result == "skipped"):
            print(f"{verb}{entry.result} {entry.key}")
    if shown > ERRORS_SHOWN_MAX:
        errors.print(f"... and {shown - ERRORS_SHOWN_MAX} more errors; --json lists all")
    if outcome.refused:
        errors.print(outcome.refused, soft_wrap=True)
    elif len(entries) > 1:
        errors.print(f"{', '.join(f'{n} {verb}{result}' for result, n in sorted(counts.items()))}")


class _NoProgress:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _progress(options: Options) -> "Progress | _NoProgress":
    """A bar on a terminal; it appears only when the work takes a while."""
    console = output.console(stderr=True)
    if options.as_json or not console.is_terminal:
        return _NoProgress()
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
