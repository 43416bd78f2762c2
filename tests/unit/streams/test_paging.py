"""Answers in pages: they go on where one ended, and a cursor that no page gave is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.streams.driver import job
from tests.unit.streams.process import Process, process_in
from tocsin.schemas.job import JobKey, Schedule
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.queries import JobFilter, Page
from tocsin.streams.store import StoreEnvironment


@pytest.fixture
def process(tmp_path: Path, environment: StoreEnvironment) -> Iterator[Process]:
    with process_in(tmp_path, environment) as made:
        made.start()
        for name in "abc":
            made.define(job(Schedule(every_ms=3_600_000), id=name))
        made.run(500)
        yield made


def jobs(process: Process, cursor: str, namespace: str = "") -> Page[object]:
    return process.answers.list_jobs(JobFilter(namespace=namespace), cursor=cursor, limit=2)  # type: ignore[return-value]


def runs(process: Process, cursor: str) -> Page[object]:
    return process.answers.runs_of(JobKey("default/a"), cursor=cursor, limit=2)  # type: ignore[return-value]


def letters(process: Process, cursor: str) -> Page[object]:
    return process.answers.dead_letters(namespace="", cursor=cursor, limit=2)  # type: ignore[return-value]


def test_the_next_page_begins_behind_the_last_item(process: Process) -> None:
    first = jobs(process, "")
    second = jobs(process, first.next_cursor)
    assert [["default/a", "default/b"], ["default/c"]] == [
        [view.key for view in page.items]  # type: ignore[attr-defined]
        for page in (first, second)
    ]
    assert "" == second.next_cursor


def test_a_cursor_of_another_namespace_finds_nothing_or_all(process: Process) -> None:
    assert [] == list(jobs(process, "zzz/a", namespace="default").items)
    assert 2 == len(jobs(process, "aaa/a", namespace="default").items)


@pytest.mark.parametrize("ask", [jobs, runs, letters])
@pytest.mark.parametrize(
    "cursor", ["-1", "9" * 900, "garbage", "²", "\0", "default/a:-1", "default/a:" + "9" * 900]
)
def test_a_cursor_that_no_page_gave_is_refused(
    process: Process, ask: Callable[[Process, str], Page[object]], cursor: str
) -> None:
    with pytest.raises(InvalidCursor, match="no `next_cursor`"):
        ask(process, cursor)
