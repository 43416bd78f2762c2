"""The traces X5 to X8 of the dispatch protocol: decisions across an instant, handovers, and epochs.

As in the module beside: first with all rules on, then with the trace's rule switched off.
"""

from dataclasses import replace
from typing import Final

from tests.sim.traces.scripts import (
    controls,
    dues,
    settled,
    statuses,
    violated,
    without,
)
from tests.sim.world import START_MS, World
from tocsin.schemas.job import HttpTarget, Job, Retry, Schedule
from tocsin.schemas.records import Pause

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
