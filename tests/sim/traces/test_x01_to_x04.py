"""The traces X1 to X12 of the dispatch protocol (docs/decisions/006), one test each; this file holds X1 to X4.

Each test plays its trace twice: with all rules on, when nothing is violated and everything settles, and with the
trace's rule switched off, when the very violation of the trace is seen.
"""

from dataclasses import replace
from typing import Any, Final

import pytest

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
        violated(world, "LIVE", r"sim/j\d+@\S+ is scheduled", judgement=settled)
        assert [] == world.endpoint.all
