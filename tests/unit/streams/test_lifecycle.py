"""The table of transitions, and the page that is drawn from it."""

import runpy
from pathlib import Path
from typing import get_args

from tocsin.schemas.records import RunStatus
from tocsin.streams.lifecycle import FINAL, TRANSITIONS, Event, step

ROOT = Path(__file__).parents[3]


def test_every_status_is_reached_and_every_status_that_is_not_final_is_left() -> None:
    reached = {"undecided"} | set(TRANSITIONS.values())
    left = {before for before, _ in TRANSITIONS}
    assert set(get_args(RunStatus)) == reached
    assert set(get_args(RunStatus)) - FINAL == left


def test_a_run_that_is_over_stays_over() -> None:
    assert [step(status, event) for status in FINAL for event in get_args(Event)] == [None] * (
        len(FINAL) * len(get_args(Event))
    )


def test_every_run_that_waits_for_nobody_can_be_cancelled() -> None:
    assert {step(status, "cancel") for status in set(get_args(RunStatus)) - FINAL} == {"cancelled"}


def test_the_generated_pages_are_up_to_date() -> None:
    generated = runpy.run_path(str(ROOT / "docs" / "generate.py"))["generated"]()
    for path, text in generated.items():
        assert path.read_text() == text, f"{path.name} is stale: run `make docs`"
