"""Withdrawals and settlements read from control: acknowledged at every stage, and never in silence (W1, W4, P3, P8)."""

import pytest

from tests.unit.worker.world import World
from tocsin.schemas.records import Control, Withdrawal
from tocsin.worker.rules import WorkerRules

EITHER = pytest.mark.parametrize("how", ["withdraw", "cancel"])


def withdrawal(how: Withdrawal = "withdraw", upto: int = 1) -> Control:
    return Control(run_id="ns/a@1", withdrawn_upto=upto, withdrawn_how=how)


@EITHER
def test_a_held_run_that_is_withdrawn_is_reported_dropped(world: World, how: Withdrawal) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=5_000))
    world.settle()
    world.control(withdrawal(how))
    world.pass_time(6_000)
    assert ([], ["dropped"]) == (worker.executor.started, world.kinds())
    assert ("", 1) == (world.reports()[0].execution, world.reports()[0].epoch)
    assert 1 == world.committed().offset


@EITHER
def test_v1_a_withdrawal_read_before_the_due_record_is_acknowledged_too(
    world: World, how: Withdrawal
) -> None:
    worker = world.worker()
    world.settle()
    world.control(withdrawal(how))
    world.pass_time(100)
    world.due(world.run())
    world.pass_time(1_000)
    assert ([], ["dropped"]) == (worker.executor.started, world.kinds())


def test_v1_happens_without_w1(world: World) -> None:
    world.worker(rules=WorkerRules(w1=False))
    world.settle()
    world.control(withdrawal())
    world.pass_time(100)
    world.due(world.run())
    world.pass_time(1_000)
    assert [] == world.kinds()


def test_a_withdrawal_of_an_earlier_dispatch_does_not_cover_a_later_one(world: World) -> None:
    worker = world.worker()
    world.settle()
    world.control(withdrawal(upto=1))
    world.due(world.run(dispatch=2))
    world.pass_time(500)
    assert ["ns/a@1"] == worker.executor.runs()


def test_a_withdrawal_that_comes_after_the_start_makes_the_execution_claim_at_once(world: World) -> None:
    worker = world.executing()
    world.control(withdrawal("withdraw"))
    world.pass_time(50)
    assert ["started"] == world.kinds()
    assert [] == worker.executor.aborted


def test_a_cancel_aborts_what_executes_and_says_so(world: World) -> None:
    worker = world.executing()
    world.control(withdrawal("cancel"))
    world.pass_time(500)
    assert ["e1"] == worker.executor.aborted
    assert [("cancelled", "e1")] == [(report.kind, report.execution) for report in world.reports()]
    assert world.reports()[0].started_ms < world.reports()[0].ended_ms
    world.pass_time(600)
    assert 1 == world.committed().offset


def test_what_ended_before_the_cancel_reached_it_is_reported_as_it_ended(world: World) -> None:
    worker = world.executing()
    worker.executor.stubborn = True
    world.control(withdrawal("cancel"))
    world.pass_time(100)
    worker.executor.end("e1", "succeeded")
    world.pass_time(500)
    assert ["succeeded"] == world.kinds()


def test_a_function_counts_as_cancelled_only_when_it_has_returned(world: World) -> None:
    world.answer_claims = True
    worker = world.executing(lease_ms=3_000)
    worker.executor.stubborn = True
    world.control(withdrawal("cancel"))
    world.pass_time(5_000)
    assert [] == world.reports("cancelled")
    assert len(world.reports("heartbeat")) >= 3  # its lease must not expire meanwhile

    worker.executor.end("e1", "aborted")
    world.pass_time(500)
    assert 1 == len(world.reports("cancelled"))


def test_w4_an_acknowledgement_waits_for_an_offset_commit_sent_after_the_withdrawal_was_read(
    world: World,
) -> None:
    world.worker()
    world.due(world.run(in_ms=60_000))
    world.settle()
    world.control(withdrawal())
    world.workers["w0"].core.run_once()
    assert [] == world.kinds()
    world.workers["w0"].core.run_once()
    assert ["dropped"] == world.kinds()


@pytest.mark.parametrize(
    ("rules", "said_by"), [(WorkerRules(), ["w1"]), (WorkerRules(w4=False), ["w0", "w1"])]
)
def test_w4_a_worker_that_is_cut_off_acknowledges_nothing(
    world: World, rules: WorkerRules, said_by: list[str]
) -> None:
    world.worker("w0", rules)
    world.due(world.run(in_ms=60_000))
    world.settle()
    world.control(withdrawal())
    world.log.faults.cut("w0")  # it still reads what it had fetched, and its producer queues
    world.worker("w1")
    world.pass_time(10_000)
    world.log.faults.heal("w0")
    world.pass_time(2_000)
    assert said_by == sorted(report.worker for report in world.reports("dropped"))


def test_w4_does_not_hold_for_what_was_claimed_and_committed(world: World) -> None:
    world.answer_claims = True
    worker = world.executing()
    world.pass_time(2_000)
    assert 1 == world.committed().offset
    other = world.worker("w1")
    world.pass_time(10_000, "w1")  # w0 is frozen: its session ends, the lease guards its execution
    world.control(withdrawal("cancel"))
    world.settle("w0", "w1")
    assert ["e1"] == worker.executor.aborted
    assert [("cancelled", "w0")] == [(r.kind, r.worker) for r in world.reports("cancelled", "dropped")]
    assert [] == other.executor.started


def test_p8_what_is_settled_is_finished_without_a_report(world: World) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=1_000))
    world.settle()
    world.control(Control(run_id="ns/a@1", settled_upto=1))
    world.pass_time(2_000)
    assert ([], []) == (worker.executor.started, world.kinds())
    assert 1 == world.committed().offset


def test_p8_a_settlement_read_first_is_enough(world: World) -> None:
    worker = world.worker()
    world.settle()
    world.control(Control(run_id="ns/a@1", settled_upto=1))
    world.pass_time(50)
    world.due(world.run())
    world.pass_time(1_000)
    assert ([], [], 1) == (worker.executor.started, world.kinds(), world.committed().offset)


def test_a_settled_execution_is_aborted_in_silence(world: World) -> None:
    worker = world.executing()
    world.control(Control(run_id="ns/a@1", settled_upto=1))
    world.pass_time(1_000)
    assert (["e1"], [], 1) == (worker.executor.aborted, world.kinds(), world.committed().offset)


def test_a_tombstone_in_control_says_nothing(world: World) -> None:
    worker = world.executing()
    world.producer.produce("tocsin.control.default", key=b"ns/a@1", value=None, partition=0)
    world.pass_time(500)
    assert ([], 0) == (worker.executor.aborted, worker.core.metrics.quarantined)
