"""Traces V15 to V18: no lease fires over an unread report (I9), nothing is skipped for a run that does not run (I10,
I11), and nothing reported is forgotten by the committed bit set (I4).

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen.
"""

from dataclasses import replace
from itertools import chain, repeat
from typing import Final

import pytest

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import (
    JOB,
    controls,
    dues,
    open_world,
    reports,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.schemas.job import Exclusion, Job, Retry, Schedule
from tocsin.worker import offsets

EVERY: Final = Schedule(every_ms=6_000, anchor_ms=START_MS, ends_at_ms=START_MS + 12_500)
"""A is due at 6 s, B at 12 s."""


def _until(world: World, ms: int) -> None:
    world.run_until(lambda: world.now_ms() >= ms)


# --- V15 ----------------------------------------------------------------------------------------------------------------


def _v15(world: World) -> None:
    """A claimed execution ends well after its lease would be over without its heartbeats; the processor reads neither
    these nor the success."""
    world.script(Script(duration_ms=14_000))
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(reports(world, "started")) == 1)
    world.run(500)
    world.log.faults.lag("s0", world.names.outcomes)
    world.run(JOB.lease_ms + 3_000, every_ms=50)
    world.script(Script())
    world.log.faults.release("s0", world.names.outcomes)


def test_v15_no_lease_is_over_before_the_reports_up_to_its_end_were_read() -> None:
    with World() as world:
        _v15(world)
        settled(world)
        assert ["succeeded"] == statuses(world)
        assert 1 == len(world.endpoint.all)
    with World(**without("p9")) as world:
        _v15(world)
        violated(world, "I9", r"sim/a@\S+ d1 is lost at \d+, over .*kind='heartbeat'", judgement=settled)
        assert 2 == len(world.endpoint.all)


# --- V16 ----------------------------------------------------------------------------------------------------------------


def _v16(world: World) -> None:
    """An edit asks A back; the worker that should answer is frozen until after B's instant."""
    open_world(world)
    world.define(replace(JOB, schedule=EVERY))
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    world.freeze("w0")
    without_a = replace(EVERY, exclude=(Exclusion(from_ms=START_MS + 5_500, to_ms=START_MS + 6_500),))
    world.define(replace(JOB, schedule=without_a))
    world.run_until(lambda: len(controls(world)) == 1)
    _until(world, 12_500)
    world.thaw("w0")


def test_v16_a_run_under_withdrawal_that_never_began_skips_no_occurrence() -> None:
    with World() as world:
        _v16(world)
        settled(world)
        assert ["skipped edited", "succeeded"] == statuses(world)
    with World(**without("p10")) as world:
        _v16(world)
        assert [] == world.endpoint.all
        violated(
            world, "I10/I11", r"due 1767225612000 is skipped for \['sim/a@\S+ was scheduled \(.*withdrawn 1\)"
        )


# --- V17 ----------------------------------------------------------------------------------------------------------------


def _v17(world: World) -> None:
    """A's attempt fails; its retry is due after B, and within the horizon."""
    world.script(Script(ending="failed"))
    open_world(world)
    late = Retry(backoff="fixed", base_ms=8_000, jitter=0.0, max_age_ms=20_000)
    world.define(replace(JOB, schedule=EVERY, retry=late))
    world.run_until(lambda: len(reports(world, "failed")) == 1)
    world.script(Script())
    _until(world, 15_000)


def test_v17_a_retry_that_is_due_after_the_next_occurrence_is_superseded_by_it() -> None:
    with World() as world:
        _v17(world)
        settled(world)
        assert ["superseded next_occurrence", "succeeded"] == statuses(world)
    with World(**without("p11")) as world:
        _v17(world)
        violated(
            world,
            "I10/I11",
            r"due 1767225612000 is skipped for \['sim/a@\S+ was scheduled \(due 176722561404\d",
        )


# --- V18 ----------------------------------------------------------------------------------------------------------------

FILLERS: Final = 10


def _dispatch(world: World, job: Job, in_ms: int) -> None:
    """Each in a transaction of its own, so it takes two offsets: of its record, and of the commit's marker."""
    before = len(dues(world))
    world.define(replace(job, schedule=Schedule(at_ms=world.wall_ms + in_ms)))
    world.run_until(lambda: len(dues(world)) == before + 1)


def _v18(world: World) -> None:
    """The first record of the lane is not finished yet; attempt 1 of a run far behind it has failed, is reported and
    committed; attempt 2 is dispatched; w0 dies; w1 goes on from what is committed."""
    outcomes = chain([Script(ending="failed")], repeat(Script(duration_ms=5_000)))
    world.endpoint.scripts = lambda run: next(outcomes) if run.job_id == "r" else Script()
    open_world(world)
    world.start("w1")
    retry = Retry(backoff="fixed", base_ms=9_000, jitter=0.0, max_age_ms=60_000)
    _dispatch(world, replace(JOB, id="first"), 9_500)
    for number in range(FILLERS):
        _dispatch(world, replace(JOB, id=f"filler{number}"), 1_500)
    _dispatch(world, replace(JOB, id="r", retry=retry), 1_500)
    world.run_until(lambda: len(reports(world, "failed")) == 1)
    world.run_until(lambda: sum(1 for each in dues(world) if each.job_id == "r") == 2)
    world.run(700)
    world.crash("w0")
    _until(world, world.now_ms() + 9_000)


def test_v18_no_more_is_fetched_than_the_committed_bit_set_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are a thousandth of the real ones: 16 offsets fit into the bit set, W9 allows 12. A takeover that does not
    know of attempt 1's report is told by P8 that it is settled, and by attempt 2 that it is over (W7): both are off."""
    monkeypatch.setattr(offsets, "_BITS_BYTES_MAX", 2)
    with World(workers=("w0", "w1"), window_max=12) as world:
        _v18(world)
        settled(world)
        begun = [each for each in world.endpoint.all if each.run.job_id == "r"]
        assert [(1, "failed"), (2, "succeeded")] == [(each.run.attempt, each.ending) for each in begun]
    with World(workers=("w0", "w1"), window_max=12, **without("w9", "w7", "p8")) as world:
        _v18(world)
        violated(world, "I4", r"sim/r@\S+ d2 a2 began at \d+ while w1\S+ of sim/r@\S+ d1 a1 was under way")
