"""The simplest life there is: one job, one attempt each; then the processor dies, and starts again."""

from tests.sim.oracle import Verdict, judge
from tests.sim.world import START_MS, World
from tocsin.schemas.job import HttpTarget, Job, Overlap, Schedule

EVERY_2_S = Schedule(every_ms=2_000, anchor_ms=START_MS, ends_at_ms=START_MS + 22_500)
TICK = Job(
    namespace="sim",
    id="tick",
    schedule=EVERY_2_S,
    overlap=Overlap(mode="allow"),
    http=HttpTarget(url="http://sink.example/tick"),
)


def stop_and_judge(world: World) -> Verdict:
    world.run(3_000)
    world.stop("s0")
    return judge(world)


def test_each_occurrence_is_executed_once_and_on_time() -> None:
    with World() as world:
        world.start()
        world.define(TICK)
        world.run(25_000)
        verdict = stop_and_judge(world)
        begun = [each.begun_wall_ms - START_MS for each in world.endpoint.all]
        assert list(range(2_000, 22_001, 2_000)) == [ms // 50 * 50 for ms in begun]
        assert 11 == verdict.counts["occurrences"] == verdict.counts["runs succeeded"]
        assert not verdict.residuals


def test_a_crash_and_restart_of_the_processor_makes_no_run_late() -> None:
    with World() as world:
        world.start()
        world.define(TICK)
        world.run(5_000)
        world.crash("s0")
        world.run(6_000)
        world.start("s0")
        world.run(14_000)
        verdict = stop_and_judge(world)
        begun = [each.begun_wall_ms - START_MS for each in world.endpoint.all]
        assert list(range(2_000, 22_001, 2_000)) == [ms // 50 * 50 for ms in begun]
        assert 11 == verdict.counts["occurrences"] == verdict.counts["runs succeeded"]


def test_a_wiped_disk_is_rebuilt_from_the_log() -> None:
    with World() as world:
        world.start()
        world.define(TICK)
        world.run(5_000)
        world.crash("s0")
        world.start("s0", disk="wiped")
        world.run(20_000)
        verdict = stop_and_judge(world)
        assert 11 == verdict.counts["runs succeeded"]
