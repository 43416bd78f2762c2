"""The traces X5 to X8 of the dispatch protocol: decisions across an instant, handovers, and epochs.

As in the module beside: first with all rules on, then with the trace's rule switched off.
"""

from typing import Final

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import (
    DUE_MS,
    EDITED,
    JOB,
    controls,
    dues,
    reports,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.schemas.records import Pause, Trigger

MOVING: Final = 1
"""The one of two partitions that the job is on, and that a second worker gets."""


# --- X5 -----------------------------------------------------------------------------------------------------------------


def _x5(world: World) -> None:
    """The edit comes before the instant, the pause after it, and then the answer to the edit's withdrawal."""
    world.start()
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    world.log.faults.hold_sends("w0")
    world.define(EDITED)
    world.run_until(lambda: len(controls(world)) == 1)
    world.run_until(lambda: world.wall_ms > START_MS + DUE_MS + 500)
    world.command(Pause(namespace="sim", id="a"))
    world.run(500)
    assert ["scheduled"] == statuses(world)
    world.log.faults.release_sends("w0")
    world.run(2_000)


def test_x5_an_occurrence_that_was_due_before_a_pause_is_not_skipped_for_it() -> None:
    """What follows a drop is decided by what was in force at the instant (P4), not by what is in force now."""
    with World() as world:
        _x5(world)
        assert ["succeeded"] == statuses(world)
        settled(world)
        assert [2] == [each.run.revision for each in world.endpoint.all]
    with World(**without("p4")) as world:
        _x5(world)
        assert ["skipped paused"] == statuses(world)
        violated(world, "paused", r"due \d+ is skipped as paused", judgement=settled)


# --- X6 -----------------------------------------------------------------------------------------------------------------


def _x6(world: World) -> None:
    """w1 joins while w0 executes, and the processor does not answer the claim."""
    world.script(Script(duration_ms=6_000))
    world.start("s0", "w0")
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.lag("s0", world.names.outcomes)
    world.start("w1")
    world.run_until(lambda: MOVING in world.workers["w1"].owned)
    world.run(1_000)
    world.log.faults.release("s0", world.names.outcomes)


def test_x6_an_execution_whose_claim_was_not_confirmed_in_time_does_not_outlive_a_revoke() -> None:
    with World(workers=("w0", "w1"), queue_partitions=2) as world:
        _x6(world)
        verdict = settled(world)
        assert ["w0 aborted", "w1 succeeded"] == [f"{e.worker} {e.ending}" for e in world.endpoint.all]
        assert {"repeated attempt": 1} == verdict.residuals
    with World(workers=("w0", "w1"), queue_partitions=2, **without("w6")) as world:
        _x6(world)
        violated(world, "I4", r"w1.1 of sim/a@\S+ d1 a1 began at \d+ while w0.1 ", judgement=settled)


# --- X7 -----------------------------------------------------------------------------------------------------------------


def _x7(world: World) -> list[str]:
    """e1's claim waits in the queue of w0, which freezes; e2 of w1 is claimed; then w0 thaws. Returns who has the lease."""
    durations = iter((40_000, 15_000))
    world.endpoint.scripts = lambda _run: Script(duration_ms=next(durations, 40))
    world.start("s0", "w0")
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.hold_sends("w0")
    world.run(1_200)
    assert [] == reports(world, "started")
    world.freeze("w0")
    world.start("w1")
    world.run_until(lambda: len(controls(world)) == 1)
    world.log.faults.release_sends("w0")
    world.thaw("w0")
    world.run(12_000)  # e2's heartbeats, and without W5 e1's
    assert {"w0.1", "w1.1"} == {report.execution for report in reports(world, "started")}
    return [control.claimed_execution for control in controls(world)]


def test_x7_a_claim_that_comes_too_late_does_not_end_the_execution_that_holds_the_lease() -> None:
    """No switch brings the abort back: it was the answer to a heartbeat that came from the wrong execution.

    The processor does not answer heartbeats with withdrawals any more. It says in control which execution holds the
    lease, and of what is said there only an epoch above one's own ends an execution. So what epochs (W10) keep right
    is whose the lease is: without them the late claim takes it; and without W5 as well, when e1 goes on although its
    worker has lost the partition, each heartbeat takes it from the other. e2 is left alone all the same.
    """
    with World(workers=("w0", "w1")) as world:
        assert ["w1.1"] == _x7(world)
        settled(world)
        assert ["aborted", "succeeded"] == [each.ending for each in world.endpoint.all]
    with World(workers=("w0", "w1"), **without("w10")) as world:
        assert ["w1.1", "w0.1"] == _x7(world)[:2]
        settled(world)
        assert ["aborted", "succeeded"] == [each.ending for each in world.endpoint.all]
    with World(workers=("w0", "w1"), **without("w5", "w10")) as world:
        assert ["w1.1", "w0.1", "w1.1"] == _x7(world)[:3]
        settled(world)
        assert ["", "succeeded"] == [each.ending for each in world.endpoint.all]  # e1 would go on for 40 s


# --- X8 -----------------------------------------------------------------------------------------------------------------


def _x8(world: World) -> None:
    """e1 has succeeded, unsent, and w0 freezes; w1 executes e2 of the same dispatch; B waits for the run's end."""
    durations = iter((900, 9_500, 40))
    world.endpoint.scripts = lambda _run: Script(duration_ms=next(durations))
    world.start("s0", "w0")
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.hold_sends("w0")
    world.run(960)
    assert ["succeeded"] == [each.ending for each in world.endpoint.all]
    assert [] == reports(world, "succeeded")
    world.freeze("w0")
    world.start("w1")
    world.command(Trigger(namespace="sim", id="a", trigger_id="b"))
    world.run_until(lambda: len(world.endpoint.executing) == 1)


def _x8_unconfirmed(world: World) -> None:
    """e1's success closes the run; then e2's claim reaches the log, and w1 hands the partition over to w0."""
    world.log.faults.hold_sends("w1")
    _x8(world)
    world.run(1_100)
    assert [] == reports(world, "started")
    world.log.faults.release_sends("w0")
    world.thaw("w0")
    world.step("w0")  # it learns that it has lost the partitions, and sends
    world.run_until(lambda: len(dues(world)) == 2, but=("w0", "w1"))
    world.log.faults.release_sends("w1")
    world.step("w0", "w1")
    world.run_until(lambda: MOVING in world.workers["w0"].owned)
    world.run(2_000)
    assert ["w1.1"] == [report.execution for report in reports(world, "started")]
    assert [] == controls(world)


def test_x8_an_execution_whose_claim_came_after_the_end_of_its_run_does_not_outlive_a_revoke() -> None:
    """A claim in the log is not enough (W6): the processor did not confirm it, since e1's success was there first."""
    with World(workers=("w0", "w1"), queue_partitions=2) as world:
        _x8_unconfirmed(world)
        settled(world)
        assert ["succeeded", "aborted", "succeeded"] == [each.ending for each in world.endpoint.all]
    with World(workers=("w0", "w1"), queue_partitions=2, **without("w6")) as world:
        _x8_unconfirmed(world)
        violated(world, "I6", r"w0.2 of sim/a!t.b d1 a1 began at \d+ while w1.1 ", judgement=settled)


def _x8_confirmed(world: World) -> None:
    """e2 is claimed, confirmed and handed over in order; only then e1's success reaches the log."""
    _x8(world)
    world.run_until(lambda: len(controls(world)) == 1)
    world.run(600)
    world.thaw("w0")
    world.run_until(lambda: MOVING in world.workers["w0"].owned)
    assert ["w1.1"] == list(world.endpoint.executing)
    world.log.faults.release_sends("w0")
    world.run(1_000)
    assert ["w0.1"] == [report.execution for report in reports(world, "succeeded")][:1]


def test_x8_a_success_of_a_lower_epoch_does_not_close_the_run_of_a_claimed_execution() -> None:
    """W10: what w1 was given later outweighs whatever w0 still has to say."""
    with World(workers=("w0", "w1"), queue_partitions=2) as world:
        _x8_confirmed(world)
        assert ["running", "buffered"] == statuses(world)
        settled(world)
        assert ["succeeded", "succeeded"] == statuses(world)
    with World(workers=("w0", "w1"), queue_partitions=2, **without("w10")) as world:
        _x8_confirmed(world)
        violated(world, "I6", r"w0.2 of sim/a!t.b d1 a1 began at \d+ while w1.1 ", judgement=settled)
