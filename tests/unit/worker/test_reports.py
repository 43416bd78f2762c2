"""Reports reach the log, in order and for as long as they are wanted, whatever it does meanwhile."""

from tests.unit.worker.world import World
from tocsin.schemas.records import Control


def test_a_final_report_is_repeated_until_the_log_has_it(world: World) -> None:
    worker = world.executing()
    world.log.faults.hold_sends("w0")
    worker.executor.end("e1", "succeeded")
    world.pass_time(70_000)  # given up by the producer twice
    assert ([], 0) == (world.kinds(), world.committed().offset)

    world.log.faults.release_sends("w0")
    world.pass_time(1_000)
    assert (["succeeded"], 1) == (world.kinds(), world.committed().offset)
    assert worker.core.metrics.reports_again >= 2


def test_a_lost_heartbeat_is_not_repeated(world: World) -> None:
    world.answer_claims = True
    world.executing(lease_ms=30_000)
    world.pass_time(2_000)
    world.log.faults.hold_sends("w0")
    world.pass_time(45_000)
    world.log.faults.release_sends("w0")
    world.pass_time(1_000)
    beats = world.reports("heartbeat")
    assert 3 == len(beats)  # of those at 11, 21, 31 and 41 s, the first was given up after 30 s


def test_a_claim_is_not_repeated_for_an_execution_that_has_ended(world: World) -> None:
    worker = world.executing()
    world.log.faults.hold_sends("w0")
    world.pass_time(1_100)
    worker.executor.end("e1", "succeeded")
    world.pass_time(40_000)
    world.log.faults.release_sends("w0")
    world.pass_time(1_000)
    assert ["succeeded"] == world.kinds()


def test_a_report_that_is_no_longer_wanted_is_given_up(world: World) -> None:
    worker = world.executing()
    world.log.faults.hold_sends("w0")
    worker.executor.end("e1", "failed", error="x", retryable=True)
    world.pass_time(31_000)
    world.worker("w1")
    world.log.faults.cut("w0")
    world.pass_time(20_000)  # the partition is lost: the next owner has executed it again
    world.workers["w1"].executor.end(world.workers["w1"].executor.only(), "succeeded")
    world.log.faults.heal("w0")
    world.pass_time(40_000)
    world.log.faults.release_sends("w0")
    world.pass_time(1_000)
    assert [("succeeded", "w1")] == [
        (report.kind, report.worker) for report in world.reports("succeeded", "failed")
    ]


def test_a_worker_that_is_held_back_by_its_clock_asks_the_log_for_the_time(world: World) -> None:
    worker = world.executing()
    worker.executor.end("e1")
    world.due(world.run("ns/b@1", in_ms=1_000))
    world.pass_time(500)
    # The log's clock is stepped back by 700 ms and repaired while nothing is reported or read.
    world.clock.step_wall(700)
    world.pass_time(10_000)
    asked = [report for report in world.reports("heartbeat") if not report.run_id]
    assert asked
    assert ["ns/a@1", "ns/b@1"] == worker.executor.runs()


def test_a_report_carries_the_workers_clock_offset(world: World) -> None:
    worker = world.executing()
    worker.executor.end("e1")
    world.pass_time(100)
    world.clock.step_wall(300)
    world.due(world.run("ns/b@1"))
    world.pass_time(100)
    worker.executor.end(worker.executor.only())
    world.pass_time(100)
    assert [0, 300] == [report.clock_offset_ms for report in world.reports("succeeded")]


def test_a_settlement_ends_the_wait_for_an_acknowledgement(world: World) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=60_000))
    world.settle()
    world.log.faults.hold_sends("w0")
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="withdraw"))
    world.pass_time(1_000)
    world.log.faults.release_sends("w0")
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="withdraw", settled_upto=1))
    world.pass_time(1_000)
    assert (["dropped"], 1) == (world.kinds(), world.committed().offset)
    assert [] == worker.executor.started
