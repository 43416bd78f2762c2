"""Leases: an execution that lasts claims, is confirmed through control, and sends heartbeats."""

from tests.unit.worker.world import World
from tocsin.schemas.records import Control


def test_a_short_run_costs_one_report(world: World) -> None:
    worker = world.executing()
    world.pass_time(900)
    worker.executor.end(worker.executor.only())
    world.pass_time(5_000)
    assert ["succeeded"] == world.kinds()


def test_a_run_that_lasts_a_second_claims_its_lease(world: World) -> None:
    world.executing()
    world.pass_time(1_000)
    (claim,) = world.reports()
    assert ("started", "e1", 1, 1) == (claim.kind, claim.execution, claim.epoch, claim.dispatch)


def test_heartbeats_come_at_a_third_of_the_lease(world: World) -> None:
    world.answer_claims = True
    worker = world.executing(lease_ms=9_000)
    world.pass_time(9_000)
    assert ["started", "heartbeat", "heartbeat"] == world.kinds()

    worker.executor.end(worker.executor.only())
    world.pass_time(10_000)
    assert ["started", "heartbeat", "heartbeat", "succeeded"] == world.kinds()


def test_the_offset_of_a_long_run_moves_when_its_claim_was_read_back(world: World) -> None:
    world.executing()
    world.pass_time(5_000)
    assert 0 == world.committed().offset

    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution="e1", claimed_epoch=1))
    world.pass_time(1_000)
    assert 1 == world.committed().offset


def test_a_claim_of_another_execution_confirms_nothing(world: World) -> None:
    world.executing()
    world.pass_time(1_100)
    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution="other", claimed_epoch=1))
    world.pass_time(1_000)
    assert 0 == world.committed().offset


def test_a_claim_without_an_answer_ends_the_execution_after_half_a_minute(world: World) -> None:
    worker = world.executing()
    world.pass_time(30_900)
    assert [] == worker.executor.aborted

    world.pass_time(200)
    assert ["e1"] == worker.executor.aborted
    (report,) = world.reports("failed")
    assert report.retryable
    assert "did not confirm" in report.error


def test_an_execution_outbid_by_a_higher_epoch_is_aborted_in_silence(world: World) -> None:
    worker = world.executing()
    world.pass_time(1_100)
    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution="x", claimed_epoch=2))
    world.pass_time(1_000)
    assert (["e1"], ["started"]) == (worker.executor.aborted, world.kinds())
    assert 0 == world.committed().offset  # not ours to finish

    world.control(Control(run_id="ns/a@1", settled_upto=1))
    world.pass_time(1_000)
    assert 1 == world.committed().offset


def test_a_record_whose_dispatch_a_higher_epoch_holds_is_not_started(world: World) -> None:
    worker = world.worker()
    world.settle()
    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution="x", claimed_epoch=2))
    world.pass_time(50)
    world.due(world.run())
    world.pass_time(500)
    assert ([], []) == (worker.executor.started, world.kinds())


def test_a_record_that_a_dead_owner_had_claimed_is_started_again_under_a_higher_epoch(world: World) -> None:
    world.executing("w0")
    world.pass_time(1_100)
    world.crash("w0")
    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution="e1", claimed_epoch=1))
    worker = world.worker("w1")
    world.pass_time(10_000)
    assert ["ns/a@1"] == worker.executor.runs()
    (first, second) = world.reports("started")
    assert first.epoch < second.epoch


def test_k38_a_call_of_seven_minutes_costs_no_partition_and_no_second_attempt(world: World) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/long@1", start_deadline_ms=world.clock.now_ms() + 3_600_000)
    second = world.worker("w1")
    world.pass_time(400_000, step_ms=250)
    assert ["ns/long@1"] == first.executor.runs()
    assert [] == second.executor.runs()
    assert (1, 0) == (first.core.metrics.partitions, second.core.metrics.partitions)
    assert 0 == first.core.metrics.aborted

    first.executor.end(first.executor.only())
    world.pass_time(1_000)
    assert ["succeeded"] == [report.kind for report in world.reports("succeeded")]
    assert 1 == world.committed().offset
