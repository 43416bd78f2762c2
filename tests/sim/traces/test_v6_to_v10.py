"""Traces V6 to V10: what was dropped or cancelled never starts (I5), and no answer counts for two dispatches (I4).

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen.
"""

from dataclasses import replace
from typing import Final

from tests.sim.endpoint import Script
from tests.sim.traces.scripts import (
    DUE_MS,
    EDITED,
    JOB,
    controls,
    dues,
    executed,
    freeze_before_control_is_read,
    open_world,
    reports,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import World
from tocsin.schemas.job import Retry
from tocsin.schemas.records import CancelRun

WORKERS: Final = ("w0", "w1")
CANCEL: Final = CancelRun(namespace="sim", id="a")


def _until(world: World, ms: int) -> None:
    world.run_until(lambda: world.now_ms() >= ms)


def _v6(world: World) -> None:
    """An edit; the drop of d1 stands in the log twice; d2 is dispatched between the one and the other."""
    world.script(Script(duration_ms=1_000))
    open_world(world)
    world.define(replace(JOB, retry=replace(JOB.retry, base_ms=7_000)))
    world.run_until(lambda: len(dues(world)) == 1)
    world.log.faults.duplicate_next(world.names.outcomes)
    world.define(replace(EDITED, retry=replace(JOB.retry, base_ms=7_000)))
    world.run_until(lambda: len(reports(world, "dropped")) == 2)
    _until(world, DUE_MS + 1_500)


def test_v6_a_second_copy_of_a_drop_is_not_taken_for_the_next_dispatch() -> None:
    """Without P1 the copy makes d2 a lost attempt, and d3 its retry. P8 and W7 then still keep the worker from starting
    d2 beside d3, since either tells it that d2 is over: all three are off to see both run."""
    with World() as world:
        _v6(world)
        settled(world)
        assert ["new"] == executed(world)
        assert [1, 2] == [each.dispatch for each in dues(world)]
    with World(**without("p1", "p8", "w7")) as world:
        _v6(world)
        violated(world, "I4", r"d3 a2 began at \d+ while \S+ of sim/a@\S+ d2 a1 was under way")


def _v7(world: World) -> None:
    """w0 has dropped d1 and dies before it commits that; w1 takes over, and lags in control."""
    open_world(world)
    world.start("w1")
    world.log.faults.lag("w1", world.names.control("default"))
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(100)
    world.command(CANCEL)
    world.run_until(lambda: len(reports(world, "dropped")) == 1)
    world.crash("w0")
    world.run_until(lambda: statuses(world) == ["cancelled cancelled"])
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    assert world.now_ms() < DUE_MS
    _until(world, DUE_MS + 500)


def test_v7_a_new_owner_reads_control_past_its_end_before_it_starts_anything() -> None:
    with World(workers=WORKERS) as world:
        _v7(world)
        world.log.faults.release("w1", world.names.control("default"))
        settled(world)
        assert [] == world.endpoint.all
    with World(workers=WORKERS, **without("w3")) as world:
        _v7(world)
        violated(world, "I5", r"w1\S+ of sim/a@\S+ d1 a1 began after w0 had said dropped of it")


def _v8(world: World) -> None:
    """w0 is frozen inside a pass; w1 owns, and has read control up to a cancel; w0 thaws, and reads that cancel before
    it hears that it has lost the partition; d1's instant comes at w1."""
    open_world(world)
    world.start("w1")
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)

    def meanwhile() -> None:
        world.run_until(lambda: 0 in world.workers["w1"].owned, every_ms=100)
        world.run(100)
        world.log.faults.lag("w1", world.names.control("default"))
        world.command(CANCEL)
        world.run_until(lambda: len(controls(world)) == 1)
        assert world.now_ms() < DUE_MS

    freeze_before_control_is_read(world, world.workers["w0"], meanwhile)
    assert [0] == sorted(world.workers["w0"].owned)
    _until(world, DUE_MS + 20)


def test_v8_a_worker_that_may_have_lost_the_partition_answers_no_cancel() -> None:
    with World(workers=WORKERS) as world:
        _v8(world)
        assert [] == reports(world, "dropped")
        world.log.faults.release("w1", world.names.control("default"))
        settled(world)
        assert ["succeeded"] == statuses(world)
    with World(workers=WORKERS, **without("w4")) as world:
        _v8(world)
        violated(world, "I5", r"w1\S+ of sim/a@\S+ d1 a1 began after w0 had said dropped of it")


def _v9_frozen(world: World) -> None:
    """w0 holds d1 and is frozen inside a pass, after it polled; w1 owns, drops d1 and says so; w0 thaws, and d1 is due."""
    open_world(world)
    world.start("w1")
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)

    def meanwhile() -> None:
        world.run_until(lambda: 0 in world.workers["w1"].owned, every_ms=100)
        world.log.faults.lag("w0", world.names.control("default"))
        world.command(CANCEL)
        world.run_until(lambda: statuses(world) == ["cancelled cancelled"])
        _until(world, DUE_MS + 10)

    freeze_before_control_is_read(world, world.workers["w0"], meanwhile)


def _v9_cut_off(world: World) -> None:
    """w0 holds d1 and is cut off: its polls go on, and it learns that its session is over a second after the log. By
    then w1 owns, drops d1 and says so, and d1 is due."""
    open_world(world)
    world.start("w1")
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    _until(world, DUE_MS - 6_700)
    world.cut("w0")
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    world.command(CANCEL)
    world.run_until(lambda: statuses(world) == ["cancelled cancelled"])
    _until(world, DUE_MS + 50)


def test_v9_a_frozen_worker_starts_nothing_that_it_may_have_lost_meanwhile() -> None:
    with World(workers=WORKERS) as world:
        _v9_frozen(world)
        settled(world)
        assert [] == world.endpoint.all
    with World(workers=WORKERS, **without("w8")) as world:
        _v9_frozen(world)
        violated(world, "I5", r"w0\S+ of sim/a@\S+ d1 a1 began after w1 had said dropped of it")


def test_v9_a_worker_that_is_cut_off_starts_nothing_that_it_may_have_lost_meanwhile() -> None:
    with World(workers=WORKERS) as world:
        _v9_cut_off(world)
        assert {0} == world.workers["w0"].owned
        world.heal("w0")
        settled(world)
        assert [] == world.endpoint.all
    with World(workers=WORKERS, **without("w8")) as world:
        _v9_cut_off(world)
        violated(world, "I5", r"w0\S+ of sim/a@\S+ d1 a1 began after w1 had said dropped of it")


def _v10(world: World) -> None:
    """Attempt 1 fails; attempt 2 is dispatched ahead; the run is cancelled before its instant."""
    world.script(Script(ending="failed"))
    open_world(world)
    world.define(replace(JOB, retry=Retry(backoff="fixed", base_ms=4_000, jitter=0.0, max_age_ms=20_000)))
    world.run_until(lambda: len(dues(world)) == 2)
    world.run(200)
    world.command(CANCEL)
    world.run(1_000)
    world.script(Script())
    _until(world, DUE_MS + 4_500)


def test_v10_a_cancel_asks_a_retry_back_that_was_dispatched_ahead() -> None:
    with World() as world:
        _v10(world)
        settled(world)
        assert ["cancelled cancelled"] == statuses(world)
        assert [1] == [each.run.attempt for each in world.endpoint.all]
    with World(**without("p7")) as world:
        _v10(world)
        violated(world, "I5b", r"sim/a@\S+ d2 a2 began after its run was cancelled")
