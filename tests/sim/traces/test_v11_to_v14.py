"""Traces V11 to V14: takeovers and handovers start nothing twice (I4, I5, I6), and a pause counts at once (I7).

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen.
"""

from dataclasses import replace
from itertools import chain, repeat
from typing import Final

from tests.sim.endpoint import Script
from tests.sim.evidence import Evidence
from tests.sim.oracle import Violation
from tests.sim.traces.scripts import (
    DUE_MS,
    EDITED,
    JOB,
    controls,
    dues,
    executed,
    judged,
    open_world,
    reports,
    settle,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.log.partitioner import partition_for
from tocsin.log.port import TopicPartition
from tocsin.schemas.job import HttpTarget, Retry, Schedule
from tocsin.schemas.records import Pause

WORKERS: Final = ("w0", "w1")
HOUR_MS: Final = 3_600_000


def _until(world: World, ms: int) -> None:
    world.run_until(lambda: world.now_ms() >= ms)


def _finished(world: World) -> int:
    """How far the lane `due` of partition 0 is committed."""
    group = world.log.broker.coordinator.group(world.names.worker_group("default"))
    return group.committed[TopicPartition(world.names.due("default"), 0)].offset


# --- V11 ----------------------------------------------------------------------------------------------------------------


def _v11(world: World) -> None:
    """A has succeeded, its offset is not committed, B is dispatched; w0 dies; w1 fetches both."""
    world.script(Script(duration_ms=300))
    open_world(world)
    world.start("w1")
    every = Schedule(every_ms=8_000, anchor_ms=START_MS, ends_at_ms=START_MS + 17_000)
    world.define(replace(JOB, schedule=every))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.run_until(lambda: len(reports(world, "succeeded")) == 1)
    world.crash("w0")
    world.run_until(lambda: len(dues(world)) == 2)
    assert 0 == _finished(world)
    world.script(Script(duration_ms=4_000))
    _until(world, 2 * DUE_MS + 100)


def test_v11_a_run_that_had_succeeded_is_not_started_beside_the_next_one_of_its_job() -> None:
    with World(workers=WORKERS) as world:
        _v11(world)
        settled(world)
        assert ["w0", "w1"] == [each.worker for each in world.endpoint.all]
    with World(workers=WORKERS, **without("w7")) as world:
        _v11(world)
        violated(
            world,
            "I6",
            r"20260101T000016\S+ d1 a1 began at \d+ while \S+ of sim/a@20260101T000008\S+ d1 a1 was",
        )


def _v11_failed(world: World) -> None:
    """Attempt 1 has failed, its offset is not committed, attempt 2 is dispatched; w0 dies; w1 fetches both."""
    world.script(Script(duration_ms=300, ending="failed"))
    open_world(world)
    world.start("w1")
    world.define(replace(JOB, retry=Retry(backoff="fixed", base_ms=8_000, jitter=0.0, max_age_ms=20_000)))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.run_until(lambda: len(reports(world, "failed")) == 1)
    world.crash("w0")
    world.run_until(lambda: len(dues(world)) == 2)
    assert 0 == _finished(world)
    world.script(Script(duration_ms=4_000))
    _until(world, 2 * DUE_MS + 500)


def test_v11_an_attempt_that_had_failed_is_not_started_beside_the_next_one_of_its_run() -> None:
    """P8 says in control that d1 is settled, and w1 would not start it without W7 either: both are off."""
    with World(workers=WORKERS) as world:
        _v11_failed(world)
        settled(world)
        assert ["w0", "w1"] == [each.worker for each in world.endpoint.all]
    with World(workers=WORKERS, **without("w7", "p8")) as world:
        _v11_failed(world)
        violated(world, "I4", r"sim/a@\S+ d2 a2 began at \d+ while \S+ of sim/a@\S+ d1 a1 was under way")


# --- V12 ----------------------------------------------------------------------------------------------------------------


def _v12(world: World) -> None:
    """w0 executes attempt 1, not claimed yet, as w1 joins and gets the partition in order. There, it would fail."""
    outcomes = chain([Script(duration_ms=6_000)], repeat(Script(ending="failed")))
    world.script(lambda _run: next(outcomes))
    open_world(world)
    moving = next(name for name in "abcdefgh" if partition_for(f"sim/{name}".encode(), 2) == 1)
    world.define(replace(JOB, id=moving))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    world.run(200)
    assert [] == reports(world, "started")
    world.start("w1")
    world.run_until(lambda: 1 in world.workers["w1"].owned)
    world.run(2_500)


def test_v12_an_execution_is_claimed_before_its_partition_is_handed_over() -> None:
    """Without W6 alone w1 starts attempt 1 beside w0; its failure is settled in control (P8), which ends that of w0.
    Without P8, too, attempt 2 starts while attempt 1 still runs at w0."""
    with World(workers=WORKERS, queue_partitions=2) as world:
        _v12(world)
        settled(world)
        assert ["w0 succeeded"] == [f"{each.worker} {each.ending}" for each in world.endpoint.all]
    with World(workers=WORKERS, queue_partitions=2, **without("w6")) as world:
        _v12(world)
        violated(
            world,
            "I4",
            r"w1\S+ of sim/\w@\S+ d1 a1 began at \d+ while w0\S+ of sim/\w@\S+ d1 a1 was under way",
        )
    with World(workers=WORKERS, queue_partitions=2, **without("w6", "p8")) as world:
        _v12(world)
        first, _, third = world.endpoint.all[:3]
        assert ("w0", 1, "") == (first.worker, first.run.attempt, first.ending)
        assert ("w1", 2) == (third.worker, third.run.attempt)
        violated(
            world,
            "I4",
            r"w1\S+ of sim/\w@\S+ d1 a1 began at \d+ while w0\S+ of sim/\w@\S+ d1 a1 was under way",
        )


# --- V13 ----------------------------------------------------------------------------------------------------------------


def _v13(world: World) -> None:
    """d1 is withdrawn and dropped, its offset not committed; d2 is withdrawn; w0 dies. Control is compacted before the
    next worker comes, so of the run it holds the withdrawal of d2 alone."""
    world.script(Script(duration_ms=1_000))
    open_world(world)
    patient = Retry(backoff="fixed", base_ms=1_000, jitter=0.0)
    world.define(replace(JOB, retry=patient))
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    world.define(replace(EDITED, retry=patient))
    world.run_until(lambda: len(dues(world)) == 2)
    assert 1 == len(reports(world, "dropped"))
    before = len(controls(world))
    world.define(replace(EDITED, retry=patient, http=HttpTarget(url="http://sink.example/newest")))
    world.run_until(lambda: len(controls(world)) == before + 1, but=("w0",))
    world.crash("w0")
    assert 0 == _finished(world)
    world.run(HOUR_MS + 60_000, every_ms=5_000)
    world.log.run_maintenance_once()
    assert 1 == len(controls(world))
    world.start("w0")
    world.run_until(lambda: bool(world.endpoint.executing))


def test_v13_a_withdrawal_covers_the_earlier_dispatches_of_its_run_too() -> None:
    """A control record says "up to n", so without P2 the second withdrawal is written as one that does not count. That d1
    is settled (P8), and that d2 came after it (W7), would also keep d1 from starting: all three are off."""
    with World(worker_capacity=1) as world:
        _v13(world)
        settled(world)
        assert ["newest"] == executed(world)
    with World(worker_capacity=1, **without("p2", "p8", "w7")) as world:
        _v13(world)
        assert ["old"] == [e.run.http.url.rpartition("/")[2] for e in world.endpoint.all if e.run.http]
        violated(world, "I5", r"sim/a@\S+ d1 a1 began after w0 had said dropped of it")


# --- V14 ----------------------------------------------------------------------------------------------------------------


def _v14(world: World) -> None:
    """An edit; while its withdrawal is open, a pause; then d1 is dropped, in time for its instant."""
    open_world(world)
    world.define(JOB)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    control = world.names.control("default")
    world.log.faults.lag("w0", control)
    world.define(EDITED)
    world.run_until(lambda: len(controls(world)) == 1)
    world.command(Pause(namespace="sim", id="a"))
    world.run(300)
    world.log.faults.release("w0", control)
    world.run_until(lambda: len(reports(world, "dropped")) == 1)
    assert world.now_ms() < DUE_MS - 1_000
    _until(world, DUE_MS + 500)


def _honoured(world: World) -> None:
    """I7: what a pause has said a second before an instant, while all is well, counts at that instant."""
    judged(world)
    paused_ms = [e.value.effective_ms for e in Evidence(world).job_events if e.value.kind == "paused"]
    for each in world.endpoint.all:
        if any(at_ms < each.run.due_ms - 1_000 for at_ms in paused_ms):
            raise Violation("I7", f"{each} began, and its job was paused before its instant")


def test_v14_what_an_edit_asked_back_is_not_dispatched_again_under_a_pause() -> None:
    with World() as world:
        _v14(world)
        settle(world)
        _honoured(world)
        assert ["skipped paused"] == statuses(world)
    with World(**without("p4")) as world:
        _v14(world)
        violated(world, "I7", r"sim/a@\S+ d2 a1 began, and its job was paused", judgement=_honoured)
