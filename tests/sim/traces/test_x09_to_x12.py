"""The traces X9 to X12 of the dispatch protocol: what outlives a loss, skewed clocks, moved jobs, re-created ones.

As in the modules beside: first with all rules on, then with the trace's rule switched off.
"""

from typing import Final

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import JOB, controls, reports, settled, statuses, without
from tests.sim.world import World
from tocsin.log.port import TopicPartition
from tocsin.schemas.records import Trigger

MOVING: Final = 1
"""The one of two partitions that the job is on, and that a second worker gets."""


# --- X9 -----------------------------------------------------------------------------------------------------------------


def _x9(world: World) -> None:
    """A has succeeded and B's claim is in the log, neither is committed; w0 freezes, and gets the partition again."""
    world.endpoint.scripts = lambda run: Script(duration_ms=300 if run.cause == "schedule" else 14_000)
    world.start("s0", "w0")
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.lose_acknowledgement_of_next(world.names.outcomes)
    world.run_until(lambda: statuses(world) == ["succeeded"])
    world.command(Trigger(namespace="sim", id="a", trigger_id="b"))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.advance(1_050)
    world.step("w0")
    assert ["w0.2"] == [report.execution for report in reports(world, "started")]
    world.freeze("w0")
    world.run_until(lambda: _members(world) == [])
    world.thaw("w0")
    world.run_until(lambda: MOVING in world.workers["w0"].owned)
    world.run(800)
    assert (2, 0) == _committed(world)  # A is finished, marker included; B is not


def _members(world: World) -> list[str]:
    group = world.log.broker.coordinator.group(world.names.worker_group("default"))
    return list(group.members)


def _committed(world: World) -> tuple[int, int]:
    """Of the lanes `due` and `due-now` of the partition."""
    names = world.names
    committed = world.log.broker.coordinator.group(names.worker_group("default")).committed
    lanes = [TopicPartition(topic, MOVING) for topic in (names.due("default"), names.due_now("default"))]
    return committed[lanes[0]].offset, committed[lanes[1]].offset


def _hand_over(world: World) -> None:
    world.start("w1")
    world.run_until(lambda: MOVING in world.workers["w1"].owned)
    world.run(500)
    assert 1 == sum(each.run.cause == "schedule" for each in world.endpoint.all)


def test_x9_a_claim_of_an_earlier_assignment_is_never_committed_by_a_later_one() -> None:
    """No switch brings back that A starts beside B: a claim finishes its offset in the assignment that it was made in.

    An assignment, with its trackers, is never used again (W1). So without W5 B's execution survives the loss of the
    partition, and its claim is confirmed, but it is committed by nobody: whoever gets the partition reads B again, and
    with it that A is settled (W7). What W5 prevents is seen all the same: at the handover B is executed a second time
    while the first execution goes on, that its own worker has had all the time to stop.
    """
    with World(workers=("w0", "w1"), queue_partitions=2) as world:
        _x9(world)
        assert "aborted" == world.endpoint.all[1].ending
        world.run_until(lambda: _committed(world) == (2, 2))  # its second execution has claimed it
        _hand_over(world)
        assert ["w0.3"] == list(world.endpoint.executing)
        settled(world)
    with World(workers=("w0", "w1"), queue_partitions=2, **without("w5")) as world:
        _x9(world)
        _hand_over(world)
        assert ["w0.2", "w1.1"] == list(world.endpoint.executing)
        settled(world)
