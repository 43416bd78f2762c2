"""The traces X11 and X12 of the dispatch protocol: jobs that move to another queue, and jobs that come again.

As in the modules beside: first with all rules on, then with the trace's rule switched off.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.sim.endpoint import Ending, Script
from tests.sim.evidence import Evidence
from tests.sim.traces.scripts import (
    EDITED,
    JOB,
    controls,
    dues,
    executed,
    open_world,
    reports,
    settle,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import World
from tocsin.schemas.job import JobKey, Schedule
from tocsin.schemas.records import Redrive, Trigger
from tocsin.schemas.topics import HOUR_MS
from tocsin.streams import definitions, runs

DUE: Final = "20260101T000008.000Z"


# --- X11 ----------------------------------------------------------------------------------------------------------------

MOVED: Final = replace(JOB, queue="other")


def _x11_begin(world: World) -> None:
    """Until A executes. w0 will die before it has committed A's success, w1 will get the partition."""
    world.add_queue("other")
    world.add_worker("w2", "other")
    world.endpoint.scripts = lambda run: Script(duration_ms=900 if run.cause == "schedule" else 9_000)
    world.start()
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.workers["w0"].crash_where = lambda _where: len(reports(world, "succeeded")) == 1


def _move(world: World) -> None:
    """The job goes to another queue, and after A's end B starts there."""
    after = world.define(MOVED)
    world.run_until(lambda: not world.workers["w0"].alive)
    world.command(Trigger(namespace="sim", id="a", trigger_id="b", after_jobs_offset=after))
    world.run_until(lambda: len(world.endpoint.executing) == 1, but=("w1",))
    assert ["w2"] == [each.worker for each in world.endpoint.executing.values()]


def _x11(world: World) -> None:
    """w1 has the partition, and has captured the end of its control, when the job is moved."""
    _x11_begin(world)
    world.run_until(lambda: statuses(world) == ["succeeded"])
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    world.log.faults.lag("w1", world.names.control("default"))
    _move(world)
    world.run(500)
    assert ["w2.1", "w1.1"] == list(world.endpoint.executing)
    world.log.faults.release("w1", world.names.control("default"))
    world.run(100)
    assert ["w2.1"] == list(world.endpoint.executing)  # the others end as soon as control is read


def test_x11_a_success_that_was_not_committed_on_the_queue_that_a_job_has_left_may_run_again() -> None:
    """The residual: nothing on the new queue tells the old one's workers that A is settled, only its control does."""
    with World(workers=("w0", "w1")) as world:
        _x11(world)
        verdict = settled(world)
        assert {"X11": 1, "repeated attempt": 1} == verdict.residuals
        assert ["succeeded", "succeeded", "aborted"] == [each.ending for each in world.endpoint.all]


def _x11_narrowed(world: World, *, executing: bool) -> None:
    """The job is moved before w1 gets the partition."""
    _x11_begin(world)
    if not executing:
        world.run_until(lambda: statuses(world) == ["succeeded"])
    _move(world)
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    world.run(500)


@pytest.mark.parametrize("executing", [False, True], ids=["moved after A's end", "moved while A executes"])
def test_x11_the_control_of_the_queue_that_a_job_has_left_says_that_its_last_success_is_settled(
    executing: bool,
) -> None:
    """What narrows the residual (P8): whoever gets the old partition after the move reads it before anything starts."""
    with World(workers=("w0", "w1")) as world:
        _x11_narrowed(world, executing=executing)
        assert [(f"sim/a@{DUE}", 1)] == [(each.run_id, each.settled_upto) for each in controls(world)][:1]
        verdict = settled(world)
        assert {} == verdict.residuals
    with World(workers=("w0", "w1"), **without("p8")) as world:
        _x11_narrowed(world, executing=executing)
        verdict = settled(world)
        assert {"X11": 1, "repeated attempt": 1} == verdict.residuals


# --- X12 ----------------------------------------------------------------------------------------------------------------


def _x12(world: World, *, dropped: bool) -> None:
    """The job is deleted when A was dispatched ahead, and created again before A's instant."""
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    if not dropped:
        world.log.faults.lag("s0", world.names.outcomes)
    world.delete("sim/a")
    world.run_until(lambda: len(reports(world, "dropped")) == 1)
    world.run(500)
    world.define(EDITED)
    world.run(500)
    world.log.faults.release("s0", world.names.outcomes)


@pytest.mark.parametrize("dropped", [True, False], ids=["answer folded before", "answer folded afterwards"])
def test_x12_the_dispatches_of_a_run_go_on_counting_when_its_job_was_deleted_and_created_again(
    dropped: bool,
) -> None:
    """No switch restarts the counter: a withdrawn run stays what it is until its instant, whatever becomes of the job.

    Its row is not closed when the answer to the deletion comes, but waits, undecided; and an instant that has become a
    run never becomes another one. So control's `withdrawn <= 1` cannot be about a dispatch of the job's second life.
    """
    with World() as world:
        _x12(world, dropped=dropped)
        settled(world)
        assert [1, 2] == [due.dispatch for due in dues(world)]
        assert ["new"] == executed(world)
        assert 1 == len(reports(world, "dropped"))


def _x12_forgotten(world: World) -> None:
    """Two runs have ended; the job is deleted, its row goes with its tombstone, and the job is created again."""
    open_world(world)
    world.define(JOB)
    world.run(1_000)
    world.command(Trigger(namespace="sim", id="a", trigger_id="b"))
    world.run_until(lambda: statuses(world) == ["succeeded", "succeeded"])
    world.delete("sim/a")
    world.run_until(lambda: world.streams["s0"].store(0).reader().job(JobKey("sim/a")) is None)
    world.define(replace(EDITED, schedule=Schedule(at_ms=world.wall_ms + 5_000)))


def test_x12_the_runs_of_a_job_that_is_created_again_are_not_below_the_floor_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that knows the floor of the old job's last run would finish the new one's in silence.

    P13 would close them in the end, and is off to see that nothing else does. The week until a deleted job's row goes
    is a second here.
    """
    monkeypatch.setattr(definitions, "DELETE_AFTER_MS", 1_000)
    with World() as world:
        _x12_forgotten(world)
        settled(world)
        assert ["old", "old", "new"] == executed(world)
    with World(**without("seq", "p13")) as world:
        _x12_forgotten(world)
        violated(world, "LIVE", r"sim/a@\S+ is scheduled", judgement=lambda world: settle(world, 40_000))
        assert ["old", "old"] == executed(world)


def _x12_used_again(world: World, uses: str) -> None:
    """A trigger id is used, its dead letter is redriven, or it is used again, each a day and an hour after the other."""
    endings: Iterator[Ending] = iter(("refused", "refused", "succeeded"))
    world.endpoint.scripts = lambda _run: Script(ending=next(endings))
    open_world(world)
    world.define(replace(JOB, schedule=Schedule()))
    for use in uses:
        world.run(1_000)
        if use == "t":
            world.command(Trigger(namespace="sim", id="a", trigger_id="b"))
        else:
            first = Evidence(world).run_events[0].value
            world.command(Redrive(namespace="sim", id="a", run_id=first.run_id, seq=first.seq))
        world.run(1_000)
        world.advance(25 * HOUR_MS)
    world.run(2_000)


@pytest.mark.parametrize("uses", ["ttt", "trt", "ttr"])
def test_x12_the_dispatches_of_a_trigger_id_go_on_counting_when_it_is_used_again(
    uses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by another way: control lives for eight days, and a trigger id may be used again after one."""
    with World() as world:
        _x12_used_again(world, uses)
        settle(world)
        assert [1, 2, 3] == [due.dispatch for due in dues(world)]
        assert ["refused", "refused", "succeeded"] == [each.ending for each in world.endpoint.all]
    monkeypatch.setattr(runs, "_remember_dispatch", lambda *_args, **_more: None)
    with World() as world:
        _x12_used_again(world, uses)
        settle(world)
        assert "not_started" in [event.value.reason for event in Evidence(world).run_events]
        assert len(world.endpoint.all) < 3
