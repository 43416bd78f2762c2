"""The traces X1 to X12 of the dispatch protocol (docs/decisions/006), one test each; this file holds X1 to X4.

Each test plays its trace twice: with all rules on, when nothing is violated and everything settles, and with the
trace's rule switched off, when the very violation of the trace is seen.
"""

from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import pytest

from tests.sim.endpoint import Executed, Script
from tests.sim.traces.scripts import (
    JOB,
    controls,
    dues,
    reports,
    settle,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.log.port import TopicPartition
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.records import CancelRun, Trigger
from tocsin.schemas.topics import DAY_MS, TopicNames, queue_topics
from tocsin.streams import runs
from tocsin.worker import assignments

CONTROL_LAG_MS: Final = next(
    spec.min_compaction_lag_ms for spec in queue_topics(TopicNames(), "default", 1) if "control" in spec.name
)


def _beside(world: World) -> list[str]:
    """Which executions of different runs were under way at once."""
    begun = sorted((each for each in world.endpoint.all if each.begun), key=lambda each: each.begun_step)
    return [
        f"{second.worker} begins {_name(second)} beside {_name(first)} of {first.worker}"
        for first, second in combinations(begun, 2)
        if first.run.run_id != second.run.run_id and (not first.ending or second.begun_ms < first.ended_ms)
    ]


def _name(each: Executed) -> str:
    return "B" if each.run.cause == "trigger" else "A"


# --- X1 -----------------------------------------------------------------------------------------------------------------


def _x1(world: World) -> None:
    """Everybody's midnight is dispatched before the only worker starts."""
    world.start("s0")
    for number in range(12):
        world.define(replace(JOB, id=f"j{number}"))
    world.run_until(lambda: len(dues(world)) == 12)
    world.start("w0")


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"window_max": 4}, id="bit set"),
        pytest.param({"hold_bytes_max": 12_000}, id="hold"),
    ],
)
def test_x1_a_backlog_beyond_the_limits_is_scanned_to_its_end_all_the_same(limit: dict[str, Any]) -> None:
    """Without the scan a takeover waits for the ends of both lanes, and reading waits for something to finish.

    The dispatches are closed at their start deadlines by P13, which is off here, too, to see that nothing ever starts.
    """
    with World(**limit) as world:
        _x1(world)
        settled(world)
        assert ["succeeded"] * 12 == statuses(world)
    with World(**limit, **without("w7_scan", "p13")) as world:
        _x1(world)
        violated(world, "LIVE", r"sim/j\d+@\S+ is scheduled", judgement=lambda world: settle(world, 40_000))
        assert [] == world.endpoint.all


# --- X2 -----------------------------------------------------------------------------------------------------------------


def _x2(world: World) -> None:
    """A in the lane `due` succeeds, B in `due-now` is claimed, and the commit after that is the worker's last."""
    world.endpoint.scripts = lambda run: Script(duration_ms=950 if run.cause == "schedule" else 9_500)
    world.start("s0", "w0")
    world.define(JOB)
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    before = _commits(world)
    world.run_until(lambda: _commits(world) > before and _commits(world) % 2 == 0)
    before = _commits(world)  # without W2 the next one will be of `due-now` alone
    (a,) = world.endpoint.executing.values()
    world.endpoint.end(a, "succeeded", world.now_ms())
    world.step("w0")
    world.command(Trigger(namespace="sim", id="a", trigger_id="b"))
    world.run_until(lambda: len(world.endpoint.executing) == 1)
    assert before == _commits(world)
    world.advance(1_050)
    world.step("w0")
    assert before + 1 == _commits(world)
    world.start("w1")
    world.freeze("w0")
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    world.run(1_000)
    world.thaw("w0")


def _commits(world: World) -> int:
    core = world.workers["w0"].core
    assert core is not None
    return core.metrics.commits


def test_x2_both_lanes_are_committed_in_one_request() -> None:
    """B is claimed, so its lease protects it, not the session of its worker: A must not begin beside it."""
    with World(workers=("w0", "w1")) as world:
        _x2(world)
        settled(world)
        assert [] == _beside(world)
    with World(workers=("w0", "w1"), **without("w2")) as world:
        _x2(world)
        assert ["w1 begins A beside B of w0"] == _beside(world)
        assert ["succeeded", "running"] == statuses(world)


# --- X3 -----------------------------------------------------------------------------------------------------------------

LATER_MS: Final = START_MS + 14_000
LATER: Final = replace(JOB, schedule=Schedule(at_ms=LATER_MS))


def _drop_and_die(world: World, job: Job = LATER) -> None:
    """An edit withdraws d1; w0 says `dropped`, and dies before it has committed the offset; nothing is folded yet."""
    names, faults = world.names, world.log.faults
    world.start("s0", "w0", "w1")
    world.define(job)
    world.run_until(lambda: len(dues(world)) == 1)
    world.run(200)
    faults.lag("s0", names.outcomes)
    world.workers["w0"].crash_where = lambda where: where == f"after a record for {names.outcomes}"
    world.define(replace(job, http=HttpTarget(url="http://sink.example/new")))
    world.run_until(lambda: len(reports(world, "dropped")) == 1)
    assert not world.workers["w0"].alive


def _x3(world: World, lag_ms: int) -> None:
    """w1 captures the end of control; above it a cancel writes a newer record; then the cleaner comes."""
    names, faults = world.names, world.log.faults
    control = world.log.broker.partition(TopicPartition(names.control("default"), 0))
    control.spec = replace(control.spec, min_compaction_lag_ms=lag_ms)
    _drop_and_die(world)
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    faults.lag("w1", control.where.topic)  # it reads up to the end that it captured, and no further for now
    world.command(CancelRun(namespace="sim", id="a"))
    world.run_until(lambda: len(controls(world)) == 2, but=("w1",))
    control.maintain(world.wall_ms)
    faults.release("s0", names.outcomes)
    world.run_until(lambda: statuses(world) == ["cancelled cancelled"], but=("w1",))
    world.run_until(lambda: world.wall_ms > LATER_MS + 1_000)
    faults.release("w1", control.where.topic)


def test_x3_control_is_not_compacted_before_a_new_owner_has_read_it() -> None:
    """The rule is the compaction lag of `control` (and that no gate takes longer, W3): it is 0 in the second life."""
    with World(workers=("w0", "w1")) as world:
        _x3(world, lag_ms=CONTROL_LAG_MS)
        settled(world)
        assert [] == world.endpoint.all
    with World(workers=("w0", "w1")) as world:
        _x3(world, lag_ms=0)
        violated(world, "I5", r"w1.1 of sim/a@\S+ d1 a1 began after w0 had said dropped", judgement=settled)


def _x3_for_an_hour(world: World) -> None:
    """As before, with the real lag, but w1 sees nothing of control for more than an hour."""
    names, faults = world.names, world.log.faults
    control = world.log.broker.partition(TopicPartition(names.control("default"), 0))
    faults.lag("w1", control.where.topic)
    _drop_and_die(world, replace(LATER, retry=replace(LATER.retry, max_age_ms=86_400_000)))
    world.run_until(lambda: 0 in world.workers["w1"].owned)
    captured = control.end
    world.command(CancelRun(namespace="sim", id="a"))
    world.run_until(lambda: len(controls(world)) == 2)
    faults.release("s0", names.outcomes)
    world.run_until(lambda: statuses(world) == ["cancelled cancelled"])
    world.stop("s0")
    world.run(CONTROL_LAG_MS + 60_000, every_ms=4_000)
    control.maintain(world.wall_ms)
    faults._lags["w1", control.where.topic] = ({0: captured}, None)
    world.run(8_000, every_ms=1_000)
    faults.release("w1", control.where.topic)


def test_x3_a_gate_that_took_half_an_hour_looks_again_where_control_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other half of the rule: with an hour's lag, the end that a gate goes by must not be older than that."""
    with World(workers=("w0", "w1")) as world:
        _x3_for_an_hour(world)
        settled(world)
        assert [] == world.endpoint.all
    monkeypatch.setattr(assignments, "CONTROL_TIMEOUT_S", float("inf"))
    with World(workers=("w0", "w1")) as world:
        _x3_for_an_hour(world)
        violated(world, "I5", r"w1.1 of sim/a@\S+ d1 a1 began after w0 had said dropped", judgement=settled)


# --- X4 -----------------------------------------------------------------------------------------------------------------


def _x4(world: World) -> None:
    """Nobody works for nine days: control's retention has taken the withdrawal, the due record's segment is not full."""
    names, faults = world.names, world.log.faults
    control = world.log.broker.partition(TopicPartition(names.control("default"), 0))
    _drop_and_die(world, replace(LATER, retry=replace(LATER.retry, max_age_ms=30 * DAY_MS)))
    world.command(CancelRun(namespace="sim", id="a"))
    world.run_until(lambda: len(controls(world)) == 2)
    faults.release("s0", names.outcomes)
    world.run_until(lambda: statuses(world) == ["cancelled cancelled"])
    world.crash("w1")
    world.stop("s0")
    world.advance(9 * DAY_MS)
    control.maintain(world.wall_ms)
    assert [] == control.entries
    world.start("s0", "w1")
    world.run(3_000)


def test_x4_a_due_record_that_outlives_its_control_is_past_its_start_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention is a minimum: 8 days of control are no answer to 7 days of due records and the segment they are in.

    What makes control's retention safe is that no dispatch starts later than 6 days after its due (W4). In the second
    life it may start 30 days later.
    """
    with World(workers=("w0", "w1")) as world:
        _x4(world)
        settled(world)
        assert [] == world.endpoint.all
        assert ["w1"] == [report.worker for report in reports(world, "expired")]
    monkeypatch.setattr(runs, "START_LATEST_MS", 30 * DAY_MS)
    with World(workers=("w0", "w1")) as world:
        _x4(world)
        violated(world, "I5", r"w1.1 of sim/a@\S+ d1 a1 began after w0 had said dropped", judgement=settled)
