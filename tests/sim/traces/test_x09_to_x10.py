"""The traces X9 and X10 of the dispatch protocol: what outlives the loss of a partition, and skewed clocks.

As in the modules beside: first with all rules on, then with the trace's rule switched off.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from tests.sim import processes
from tests.sim.endpoint import Script
from tests.sim.evidence import Evidence
from tests.sim.traces.scripts import (
    DUE_MS,
    JOB,
    reports,
    settled,
    statuses,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.log.port import TopicPartition
from tocsin.schemas.records import Trigger
from tocsin.streams.lifecycle import FINAL
from tocsin.worker.config import CoreConfig

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


# --- X10 ----------------------------------------------------------------------------------------------------------------

DEADLINE_MS: Final = START_MS + DUE_MS + 2_000
TIGHT: Final = replace(JOB, retry=replace(JOB.retry, max_age_ms=2_000))
MOVES: Final[dict[str, Any]] = {"workers": ("w0", "w1"), "queue_partitions": 2}


def _x10_until_the_deadline(world: World) -> None:
    """The clocks are 0.9 s apart. w0 holds A, and has no turn until by its own clock A's start deadline has passed."""
    world.workers["w0"].clock.error_ms = 450
    world.workers["w1"].clock.error_ms = -450
    world.script(Script(duration_ms=3_000))
    world.start("s0", "w0")
    world.define(TIGHT)
    world.run_until(lambda: world.wall_ms >= START_MS + DUE_MS - 500)
    world.run_until(lambda: world.wall_ms > DEADLINE_MS - 450, but=("w0",))


def _x10_folded(world: World) -> None:
    """w0's `expired` is folded, its offset is not committed; then w1, which has the partition by now, looks at A."""
    _x10_until_the_deadline(world)
    world.log.faults.lose_acknowledgement_of_next(world.names.outcomes)
    world.start("w1")
    world.run_until(lambda: MOVING in world.workers["w1"].owned, but=("s0",))
    world.log.faults.lag("w1", world.names.control("default"))
    world.run(200, but=("w1",))
    world.run(400)
    world.log.faults.release("w1", world.names.control("default"))


def test_x10_nothing_starts_that_a_worker_with_a_faster_clock_has_called_expired() -> None:
    """`expired` waits until one's own clock is past the deadline by more than the clocks may be apart (W4).

    Here the partition moves by a revoke. After a crash the six seconds of the session would outlast the second.
    """
    with World(**MOVES) as world:
        _x10_folded(world)
        assert ["w1"] == [each.worker for each in world.endpoint.executing.values()]
        settled(world)
        assert ["succeeded"] == statuses(world)
    with World(**MOVES, **without("w4")) as world:
        _x10_folded(world)
        assert ["w1"] == [each.worker for each in world.endpoint.executing.values()]
        assert ["failed not_started"] == statuses(world)


def _x10_zombie(world: World, executing_ms: int) -> None:
    """w0's `expired` waits in its queue while the partition moves and w1 executes A; then it reaches the log."""
    _x10_until_the_deadline(world)
    world.log.faults.hold_sends("w0")
    world.start("w1")
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.run(executing_ms)
    world.log.faults.release_sends("w0")
    world.run(300)


def _executing_when_it_ended(world: World) -> list[str]:
    """Of the only run."""
    ((*_, last),) = Evidence(world).events_of_run.values()
    assert last.value.status in FINAL
    return [
        each.worker
        for each in world.endpoint.all
        if each.begun_step <= last.step and (not each.ending or last.step < each.ended_step)
    ]


def test_x10_an_expired_of_a_worker_that_has_lost_the_partition_does_not_close_what_the_owner_executes() -> (
    None
):
    """It is only sent when an offset commit has shown that the partition is still held (W4)."""
    with World(**MOVES) as world:
        _x10_zombie(world, executing_ms=200)
        assert ["scheduled"] == statuses(world)
        settled(world)
        assert ["succeeded"] == statuses(world)
    with World(**MOVES, **without("w4")) as world:
        _x10_zombie(world, executing_ms=200)
        assert ["failed not_started"] == statuses(world)
        assert ["w1"] == _executing_when_it_ended(world)


def test_x10_a_claim_outweighs_an_expired() -> None:
    """The same when the owner has claimed A: then even an `expired` that W4 should have stopped is ignored (P13)."""
    with World(**MOVES, **without("w4")) as world:
        _x10_zombie(world, executing_ms=1_500)
        assert ["w0"] == [report.worker for report in reports(world, "expired")]
        assert ["running"] == statuses(world)
        settled(world)
        assert ["succeeded"] == statuses(world)
    with World(**MOVES, **without("w4", "p13")) as world:
        _x10_zombie(world, executing_ms=1_500)
        assert ["failed not_started"] == statuses(world)
        assert ["w1"] == _executing_when_it_ended(world)


def _x10_late_claim(world: World) -> None:
    """A begins just before its start deadline, and its claim does not reach the log for more than a minute."""
    world.script(Script(duration_ms=90_000))
    world.start("s0", "w0")
    world.define(replace(JOB, retry=replace(JOB.retry, max_age_ms=1_000)))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.log.faults.hold_sends("w0")
    world.run_until(lambda: statuses(world) == ["failed not_started"], within_ms=70_000, every_ms=200)
    world.log.faults.release_sends("w0")


def test_x10_a_claim_that_is_not_answered_in_half_a_minute_ends_its_execution_before_the_dispatch_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dispatch is closed a minute after its start deadline, so no claim may come later than that."""
    with World() as world:
        _x10_late_claim(world)
        assert [] == _executing_when_it_ended(world)
        settled(world)
    monkeypatch.setattr(processes, "CoreConfig", partial(CoreConfig, claim_answer_s=float("inf")))
    with World() as world:
        _x10_late_claim(world)
        assert ["w0"] == _executing_when_it_ended(world)
