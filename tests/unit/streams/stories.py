"""The worked examples of docs/semantics.md, played on the processor's core.

A story is a job in YAML and a table of three columns: when, what happens, what Tocsin does. The first two are played, the
third is what must come of it. A worker that is well answers a withdrawal at once: dropped, if it has not begun.

`python -m tests.unit.streams.stories` writes the third column of every table anew, to be read before it is believed.
"""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from tests.unit.streams.driver import T0, Driver, driven
from tocsin.schemas.document import parse
from tocsin.schemas.records import (
    CancelRun,
    Command,
    Control,
    DeadLetter,
    DueRun,
    JobEvent,
    Pause,
    Redrive,
    Resume,
    RunEvent,
    SkipNext,
    Trigger,
)
from tocsin.streams.store import StoreEnvironment

PAGE: Final = Path(__file__).parents[3] / "docs" / "semantics.md"
DAY_MS: Final = 86_400_000
TARGET: Final = {"http": {"url": "https://api.example.com/hook"}}

_STORY = re.compile(
    r"```yaml\n(?P<job>(?:(?!```).*\n)*?)```\n\n(?P<table>\| when \|.*\n\|[-|]+\|\n(?:\|.*\n)+)"
)
_WHEN = re.compile(r"(?:day (\d+), )?(\d\d):(\d\d)(?::(\d\d))?")


@dataclass(slots=True)
class Row:
    when: str
    happens: str
    does: str


@dataclass(slots=True)
class Story:
    title: str
    job: str
    rows: list[Row]
    start: int
    end: int
    """Where its table's rows stand in the page."""


def stories(page: str) -> Iterator[Story]:
    for found in _STORY.finditer(page):
        before = page[: found.start()]
        heading = re.findall(r"^#+ (.*)$|^\*\*(.*?)\*\*", before, flags=re.MULTILINE)[-1]
        lines = found["table"].splitlines()[2:]
        rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]
        start = found.start("table") + len("\n".join(found["table"].splitlines()[:2])) + 1
        yield Story("".join(heading), found["job"], rows, start, found.end("table"))


@dataclass
class Player:
    """Plays one story, row by row."""

    drive: Driver
    document: dict[str, object]
    dues: dict[str, DueRun] = field(default_factory=dict)
    """The newest dispatch of each run, by how the table names the run."""
    begun: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    letters: dict[str, DeadLetter] = field(default_factory=dict)
    withdrawn: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    """Whether workers send heartbeats."""

    def play(self, row: Row) -> str:
        """What Tocsin does up to that moment, and because of what happens then."""
        said: list[str] = []
        at_ms = _instant(row.when)
        if row.happens == "Tocsin is back":
            self.drive.jump(at_ms - self.drive.now_ms)
        else:
            while self.drive.now_ms < at_ms:
                step_ms = 1_000 if at_ms - self.drive.now_ms <= 2 * 3_600_000 else 60_000
                self.drive.advance(min(step_ms, at_ms - self.drive.now_ms), step_ms)
                if self.alive and (self.drive.now_ms // 1_000) % 20 == 0:
                    for name in self.begun & self.open:
                        self.drive.report(self.dues[name], "heartbeat")
                self._answer(said)
        self._answer(said)
        if row.happens and row.happens != "Tocsin is back":
            for each in row.happens.split("; "):
                self._act(each)
                self._answer(said)
        return "; ".join(_summed(said))

    def _act(self, text: str) -> None:
        names: dict[str, Any] = {"namespace": "default", "id": "a"}
        match text.split(" ", 1):
            case [_, "is still executing"]:
                pass
            case ["no", "heartbeat comes"]:
                self.alive = False
            case ["trigger", name] if " " not in name:
                self._send(Trigger(**names, trigger_id=name))
            case ["defined"]:
                self._define(self.document)
            case ["edit", change]:
                self.document = self.document | yaml.safe_load(change)
                self._define(self.document)
            case ["deleted"]:
                self.drive.delete()
            case ["created", "again"]:
                self._define(self.document)
            case ["paused"]:
                self._send(Pause(**names))
            case ["paused", until]:
                self._send(Pause(**names, until_ms=_instant(until.removeprefix("until "))))
            case ["resumed"]:
                self._send(Resume(**names))
            case ["skip", count]:
                self._send(SkipNext(**names, count=int(count.removeprefix("next "))))
            case ["cancel", "all"]:
                self._send(CancelRun(**names))
            case ["cancel", name]:
                self._send(CancelRun(**names, run_id=self.dues[name].run_id))
            case ["redrive", name]:
                run = self.letters[name].run
                self._send(Redrive(**names, run_id=run.run_id, seq=run.seq))
            case _:
                name, _, what = text.rpartition(" ")
                self._report(name, what)

    def _report(self, text: str, last: str) -> None:
        """`10:00 starts`, `10:00 fails`, `10:00 answers 400`, `10:00 answers 503, Retry-After 90`."""
        name, _, middle = text.partition(" answers")
        what = f"{middle} {last}".strip() if middle else last
        due = self.dues[name.removesuffix(" answers")]
        match what.split():
            case ["starts"]:
                self.begun.add(name)
                self.drive.report(due, "started")
            case ["succeeds"]:
                self.drive.report(due, "succeeded", http_status=200)
            case ["fails"]:
                self.drive.report(due, "failed", retryable=True, http_status=503)
            case [status]:
                code = int(status)
                retryable = code in (408, 425, 429) or code >= 500
                self.drive.report(due, "failed", retryable=retryable, http_status=code)
            case [status, "Retry-After", seconds]:
                self.drive.report(due, "failed", retryable=True, retry_after_ms=int(seconds) * 1000)
            case _:
                raise AssertionError(f"{text} {last}: nobody knows what that is")

    def _define(self, document: dict[str, object]) -> None:
        job, problems = parse({"id": "a", "target": TARGET} | document)
        assert job is not None, problems
        self.drive.define(job)

    def _send(self, command: Command) -> None:
        self.drive.command(command)

    def _answer(self, said: list[str]) -> None:
        """Tell what came out, and let the worker answer withdrawals; until nothing more comes."""
        while self.drive.out:
            out, self.drive.out = self.drive.out, []
            controls = [each for each in out if isinstance(each, Control)]
            told = [text for each in out for text in self._told(each)]
            said += told
            for control in controls:
                self._obey(control)

    def _obey(self, control: Control) -> None:
        for name, due in list(self.dues.items()):
            if due.run_id != control.run_id or control.withdrawn_upto < due.dispatch or name not in self.open:
                continue
            if control.settled_upto >= due.dispatch:
                continue
            if name not in self.begun:
                self.drive.report(due, "dropped")
            elif control.withdrawn_how == "cancel":
                self.drive.report(due, "cancelled")

    def _told(self, each: object) -> list[str]:
        match each:
            case DueRun():
                name = _name(each.run_id)
                self.dues[name] = each
                self.open.add(name)
                self.begun.discard(name)
                again = " again" if each.dispatch > each.attempt else ""
                attempt = f", attempt {each.attempt}" if each.attempt > 1 else ""
                late = each.due_ms - each.nominal_ms
                due = f" for {_clock(each.due_ms)}" if late and each.cause == "schedule" else ""
                return [f"{name} is dispatched{again}{due}{attempt}"]
            case Control(withdrawn_how="withdraw" | "cancel"):
                name, how = _name(each.run_id), each.withdrawn_how
                if each.settled_upto >= each.withdrawn_upto or self.withdrawn.get(name) == how:
                    return []
                self.withdrawn[name] = how
                return [
                    f"{name} is asked back" if how == "withdraw" else f"the worker is told to cancel {name}"
                ]
            case RunEvent(status="skipped"):
                count = f"{'at least ' if each.count_at_least else ''}{each.count:,}"
                ends = f"{each.nominal_ms}\0{each.last_nominal_ms}"
                return [f"skip\0{each.run_id}\0{ends}\0{count}\0{each.reason}"]
            case RunEvent(status="succeeded" | "failed" | "cancelled" | "superseded"):
                name = _name(each.run_id)
                self.open.discard(name)
                reason = f" ({each.reason})" if each.reason and each.reason != each.status else ""
                return [f"{name} {each.status}{reason}"]
            case RunEvent(status="retrying"):
                self.open.discard(_name(each.run_id))
                return [f"{_name(each.run_id)} is tried again at {_clock(each.attempts[-1].next_attempt_ms)}"]
            case RunEvent(status="buffered" | "waiting"):
                return [f"{_name(each.run_id)} waits"]
            case DeadLetter():
                self.letters[_name(each.run.run_id)] = each
                return []
            case JobEvent(kind="auto_paused"):
                return ["the job is paused"]
            case JobEvent(kind="command_rejected"):
                return [f"rejected ({each.reason})"]
            case _:
                return []


def _summed(said: list[str]) -> list[str]:
    """A series of skips is told once, by its last word."""
    last = {each.split("\0")[1]: at for at, each in enumerate(said) if each.startswith("skip\0")}
    return [
        _skip(each) if each.startswith("skip\0") else each
        for at, each in enumerate(said)
        if not each.startswith("skip\0") or last[each.split("\0")[1]] == at
    ]


def _skip(told: str) -> str:
    _, _, first, last, count, reason = told.split("\0")
    if count == "1":
        return f"{_clock(int(first))} is skipped ({reason})"
    return f"{_clock(int(first))} to {_clock(int(last))} are skipped ({reason}, {count} of them)"


def _name(run_id: str) -> str:
    """A run as the table calls it: the clock time of its nominal, or its trigger."""
    if "!t." in run_id:
        return "trigger " + run_id.partition("!t.")[2]
    found = re.fullmatch(r".*@(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)\.(\d{3})Z", run_id)
    assert found is not None, run_id
    day, hour, minute, second = int(found[3]) - 1, found[4], found[5], found[6]
    return _written(day, hour, minute, second)


def _clock(ms: int) -> str:
    seconds = round((ms - T0) / 1000)
    day, rest = divmod(seconds, 86_400)
    return _written(day, f"{rest // 3_600:02}", f"{rest // 60 % 60:02}", f"{rest % 60:02}")


def _written(day: int, hour: str, minute: str, second: str) -> str:
    text = f"{hour}:{minute}" + ("" if second == "00" else f":{second}")
    return f"day {day + 1}, {text}" if day else text


def _instant(text: str) -> int:
    found = _WHEN.fullmatch(text)
    assert found is not None, f"{text!r} is no time of a story: 09:59:50, or day 2, 09:59:50"
    day = int(found[1] or 1) - 1
    return T0 + day * DAY_MS + ((int(found[2]) * 60 + int(found[3])) * 60 + int(found[4] or 0)) * 1000


def play(story: Story) -> list[str]:
    """What the third column says, row by row, if the page is right."""
    document = yaml.safe_load(story.job)
    begin_ms = _instant(story.rows[0].when)
    environment = StoreEnvironment(cache_bytes=8 << 20, write_buffer_bytes=8 << 20, row_cache_bytes=4 << 20)
    with tempfile.TemporaryDirectory() as directory, driven(Path(directory) / "store", environment) as drive:
        drive.now_ms = begin_ms
        player = Player(drive, document)
        return [player.play(row) for row in story.rows]


def rewritten(page: str) -> str:
    for story in reversed(list(stories(page))):
        rows = [replace(row, does=does) for row, does in zip(story.rows, play(story), strict=True)]
        lines = "".join(f"| {row.when} | {row.happens} | {row.does} |\n" for row in rows)
        page = page[: story.start] + lines + page[story.end :]
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
