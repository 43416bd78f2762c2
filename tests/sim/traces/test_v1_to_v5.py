"""Traces V1 to V5: every occurrence settles (LIVE), also one whose withdrawal crossed its execution.

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen. V6 to V18 are in the modules beside.

A dispatch that nobody answers is closed a minute after its start deadline since there is P13. So a run that is stuck
without one of these rules is not stuck for ever: P13 is switched off with them, to see that it is stuck.
"""

from dataclasses import replace
from typing import Final

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import controls, dues, reports, settled, statuses, violated, without
from tests.sim.world import START_MS, World
from tocsin.schemas.job import HttpTarget, Job, Retry, Schedule

DUE_MS: Final = 8_000
JOB: Final = Job(
    namespace="sim",
    id="a",
    schedule=Schedule(at_ms=START_MS + DUE_MS),
    http=HttpTarget(url="http://sink.example/old"),
    retry=Retry(max_attempts=3, backoff="fixed", base_ms=1_000, jitter=0.0, max_age_ms=20_000),
    lease_ms=10_000,
)
EDITED: Final = replace(JOB, http=HttpTarget(url="http://sink.example/new"))
WORKERS: Final = ("w0", "w1")


def _open(world: World) -> None:
    """w0 has the queue's only partition, and has passed its gates."""
    world.start("s0", "w0")
    world.run(1_000, every_ms=50)
    assert {0} == world.workers["w0"].owned


def _executed(world: World) -> list[str]:
    """What was executed to its end: the last part of its address."""
    return [
        each.run.http.url.rpartition("/")[2]
        for each in world.endpoint.all
        if each.begun and each.ending == "succeeded" and each.run.http is not None
    ]


def _v1(world: World) -> None:
    _open(world)
    due = world.names.due("default")
    world.log.faults.lag("w0", due)
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.define(EDITED)
    world.run_until(lambda: len(controls(world)) == 1)
    world.run(200)
    assert [] == world.endpoint.all
    world.log.faults.release("w0", due)
    world.run(1_000)


def test_v1_a_withdrawal_that_is_read_before_its_due_record_is_answered_all_the_same() -> None:
    with World() as world:
        _v1(world)
        settled(world)
        assert ["new"] == _executed(world)
    with World(**without("w1", "p13")) as world:
        _v1(world)
        assert [] == reports(world, "dropped")
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=settled)


def _v2(world: World) -> None:
    _open(world)
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    world.log.faults.hold_sends("w0")
    world.define(EDITED)
    world.run_until(lambda: len(controls(world)) == 1)
    world.run(1_200)  # dropped, and the offset committed as far as the rules allow
    world.crash("w0")
    assert [] == reports(world, "dropped")


def test_v2_a_drop_whose_report_died_with_the_worker_is_made_again_by_the_next_owner() -> None:
    with World() as world:
        _v2(world)
        settled(world)
        assert ["new"] == _executed(world)
    with World(**without("w2", "p13")) as world:
        _v2(world)
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=settled)
