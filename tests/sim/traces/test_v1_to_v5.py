"""Traces V1 to V5: every occurrence settles (LIVE), also one whose withdrawal crossed its execution.

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen. V6 to V18 are in the modules beside.

Since there is P13, a dispatch that nobody answers or has begun is closed a minute after its start deadline. Where that
would end the violation (and the run as failed or cancelled, long after its instant), P13 is switched off, too.
"""

from typing import Final

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import (
    DUE_MS,
    EDITED,
    JOB,
    controls,
    dues,
    executed,
    judged_decisions,
    open_world,
    reports,
    settle,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import World
from tocsin.schemas.records import CancelRun, Pause

WORKERS: Final = ("w0", "w1")


def _v1(world: World) -> None:
    open_world(world)
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
        assert ["new"] == executed(world)
    with World(**without("w1", "p13")) as world:
        _v1(world)
        assert [] == reports(world, "dropped")
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=settled)


def _v2(world: World) -> None:
    open_world(world)
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
        assert ["new"] == executed(world)
    with World(**without("w2", "p13")) as world:
        _v2(world)
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=settled)


def _begin_unaware(world: World) -> None:
    """d1 begins at its instant at w0, which has not read the withdrawal that was written just before."""
    control = world.names.control("default")
    world.log.faults.lag("w0", control)
    world.run_until(lambda: world.now_ms() >= DUE_MS - 100)
    world.define(EDITED)
    world.run_until(lambda: len(controls(world)) == 1)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.release("w0", control)


def _v3(world: World) -> None:
    """An edit: d1 is withdrawn as it begins; the claim stands in the log, its offset is committed, w0 dies."""
    world.script(Script(duration_ms=30_000))
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    _begin_unaware(world)
    world.run_until(lambda: len(reports(world, "started")) == 1)
    world.run(1_000)
    world.crash("w0")
    world.script(Script())


def _v3_cancelled(world: World) -> None:
    """A cancel: d1 executes, and is claimed under the cancel; w0 has aborted it, and dies before it says so."""
    world.script(Script(duration_ms=30_000))
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    control = world.names.control("default")
    world.log.faults.lag("w0", control)
    world.command(CancelRun(namespace="sim", id="a"))
    world.run_until(lambda: len(controls(world)) == 1)
    world.run_until(lambda: len(reports(world, "started")) == 1)
    world.run_until(lambda: len(controls(world)) == 2)
    world.log.faults.hold_sends("w0")
    world.log.faults.release("w0", control)
    world.run(1_000)
    assert ["aborted"] == [each.ending for each in world.endpoint.all]
    world.crash("w0")
    world.script(Script())


def test_v3_a_lease_runs_under_a_withdrawal_too() -> None:
    with World() as world:
        _v3(world)
        settled(world)
        assert ["succeeded"] == statuses(world)
        assert [1, 2] == [each.run.attempt for each in world.endpoint.all]
    with World(**without("p3")) as world:
        _v3(world)
        violated(world, "LIVE", r"sim/a@\S+ is running", judgement=settled)


def test_v3_a_lease_runs_under_a_cancel_too() -> None:
    with World() as world:
        _v3_cancelled(world)
        settled(world)
        assert ["cancelled cancelled"] == statuses(world)
    with World(**without("p3", "p13")) as world:
        _v3_cancelled(world)
        violated(world, "LIVE", r"sim/a@\S+ is running", judgement=settled)


def _v4(world: World) -> None:
    """d1 is withdrawn as it begins; the claim is folded; w0 dies before its offset is committed; w1 drops d1."""
    world.script(Script(duration_ms=30_000))
    open_world(world)
    world.start("w1")
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    _begin_unaware(world)
    world.run_until(lambda: len(reports(world, "started")) == 1)
    world.crash("w0")
    world.script(Script())
    world.run_until(lambda: len(controls(world)) == 2)
    world.command(Pause(namespace="sim", id="a"))
    world.run_until(lambda: len(reports(world, "dropped")) == 1)
    world.run(200)


def test_v4_a_claimed_attempt_that_the_next_owner_drops_is_lost() -> None:
    """A claim carries the lease today, which settles the run: it is stuck only if P3 is off. What P5 itself prevents is
    the other answer to that drop, to decide afresh: the run would be skipped(paused) behind the watermark, though it
    had begun. P12 stands in the way of that, too, so both are off.
    """
    with World(workers=WORKERS) as world:
        _v4(world)
        settled(world)
        assert ["succeeded"] == statuses(world)
        assert [1, 2] == [each.run.attempt for each in world.endpoint.all]
    with World(workers=WORKERS, **without("p3")) as world:
        _v4(world)
        violated(world, "LIVE", r"sim/a@\S+ is running", judgement=settled)
    with World(workers=WORKERS, **without("p5", "p12")) as world:
        _v4(world)
        settle(world)
        violated(world, "I12", r"sim/a@\S+ becomes skipped \(paused\)", judgement=judged_decisions)


def _v5(world: World) -> None:
    """w0 has begun d1 and is frozen; its session ends; it thaws, aborts, and gets the partition with d1 again."""
    world.script(Script(duration_ms=20_000))
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.freeze("w0")
    world.run(7_000, every_ms=100)
    world.thaw("w0")
    world.run_until(lambda: not world.workers["w0"].owned)
    world.script(Script())
    world.run_until(lambda: bool(world.workers["w0"].owned))
    world.run(1_000)


def test_v5_a_record_that_comes_again_is_executed_again_though_it_had_been_begun() -> None:
    with World() as world:
        _v5(world)
        settled(world)
        assert ["aborted", "succeeded"] == [each.ending for each in world.endpoint.all]
    with World(**without("w1", "p13")) as world:
        _v5(world)
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=settled)
