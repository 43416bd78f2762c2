"""Assignments, hand-overs and losses: W2, W3, W5, W6, W8, W10. Where a rule is turned off, its trace happens."""

import pytest

from tests.unit.worker.world import NAMES, QUEUE, World
from tocsin.log.port import TopicPartition
from tocsin.schemas.codec import encode
from tocsin.schemas.records import Control
from tocsin.worker.rules import WorkerRules

DUE = TopicPartition(NAMES.due(QUEUE), 0)
SESSION_MS = 6_000


# --- W2 -----------------------------------------------------------------------------------------------------------------


def test_w2_both_lanes_travel_in_one_commit(world: World) -> None:
    worker = world.worker()
    world.due(world.run("ns/a@1"))
    world.due(world.run("ns/b@1"), lane="due-now")
    world.settle()
    world.pass_time(50)
    before = worker.core.metrics.commits
    for execution in list(worker.executor.started):
        worker.executor.end(execution.id)
    world.pass_time(500)
    assert (1, 1) == (world.committed("due").offset, world.committed("due-now").offset)
    assert 1 == worker.core.metrics.commits - before


def test_w2_an_offset_without_a_record_counts_as_finished(world: World) -> None:
    worker = world.worker()
    streams = world.log.client("streams").transactional_producer("t")
    streams.init()
    for run_id, ends in (("ns/a@1", streams.abort), ("ns/b@1", streams.commit)):
        streams.begin()
        streams.produce(DUE.topic, partition=0, key=b"k", value=encode(world.run(run_id)))
        ends()
    world.settle()
    world.pass_time(50)
    assert ["ns/b@1"] == worker.executor.runs()
    worker.executor.end(worker.executor.only())
    world.pass_time(600)
    assert 4 == world.committed().offset  # two records, two markers


# --- W3 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rules", "started"), [(WorkerRules(), []), (WorkerRules(w3=False), ["ns/a@1"])])
def test_w3_v7_an_owner_that_lags_in_control_does_not_start_what_was_cancelled(
    world: World, rules: WorkerRules, started: list[str]
) -> None:
    world.due(world.run())
    world.log.faults.lag("w0", NAMES.control(QUEUE))
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="cancel"))
    worker = world.worker("w0", rules)
    world.settle()
    world.pass_time(1_000)
    assert started == worker.executor.runs()

    world.log.faults.release("w0", NAMES.control(QUEUE))
    world.pass_time(1_000)
    assert started == worker.executor.runs()


def test_w3_the_captured_end_may_lie_behind_a_transaction_that_is_still_open(world: World) -> None:
    streams = world.log.client("streams").transactional_producer("t")
    streams.init()
    streams.begin()
    control = Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="cancel")
    streams.produce(NAMES.control(QUEUE), partition=0, key=b"ns/a@1", value=encode(control))
    world.due(world.run())
    worker = world.worker()
    world.settle()
    world.pass_time(1_000)
    assert ([], []) == (worker.executor.started, world.kinds())

    streams.commit()
    world.pass_time(1_000)
    assert ([], ["dropped"]) == (worker.executor.started, world.kinds())


def test_w3_control_is_read_from_the_log_time_of_the_lowest_unfinished_record_on(world: World) -> None:
    for n in range(1_500):
        world.control(Control(run_id=f"ns/old-{n}@1", settled_upto=1))
    world.clock.advance(3_600_000)
    world.due(world.run(in_ms=60_000))
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="withdraw"))
    worker = world.worker()
    read = 0
    for _ in range(10):
        read += worker.core.run_once().control_read
    assert 1_001 >= read
    assert ["dropped"] == world.kinds()


def test_w3_a_gate_that_took_half_an_hour_begins_again_at_the_beginning(world: World) -> None:
    # X3: compaction may have removed what lay below the captured end; its newer record lies above it.
    world.due(world.run())
    world.log.faults.lag("w0", NAMES.control(QUEUE))
    world.control(Control(run_id="ns/b@1", settled_upto=1))
    worker = world.worker()
    world.pass_time(1_795_000, step_ms=4_000)
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="cancel"))
    world.pass_time(10_000, step_ms=4_000)
    world.log.faults.release("w0", NAMES.control(QUEUE))
    world.pass_time(2_000)
    assert ([], ["dropped"]) == (worker.executor.started, world.kinds())


# --- W5, W6 -------------------------------------------------------------------------------------------------------------


def test_w5_what_is_not_confirmed_is_aborted_unreported_when_the_partition_was_lost(world: World) -> None:
    old = world.executing("w0")
    new = world.worker("w1")
    world.pass_time(SESSION_MS + 2_000, "w1")  # w0 is frozen
    assert ["ns/a@1"] == new.executor.runs()

    world.settle("w0")
    assert ["e1"] == old.executor.aborted
    new.executor.end(new.executor.only())
    world.pass_time(1_000)
    assert [("succeeded", "w1")] == [(r.kind, r.worker) for r in world.reports("succeeded", "failed")]


def test_w5_a_result_that_comes_after_the_loss_is_not_reported(world: World) -> None:
    old = world.executing("w0")
    world.worker("w1")
    world.pass_time(SESSION_MS + 2_000, "w1")
    old.executor.end("e1", "succeeded")  # while it was frozen
    world.settle("w0")
    assert [] == world.reports("succeeded")


def test_w5_a_confirmed_and_committed_execution_outlives_its_partition(world: World) -> None:
    world.answer_claims = True
    old = world.executing("w0")
    world.pass_time(2_000)
    new = world.worker("w1")
    world.pass_time(SESSION_MS + 2_000, "w1")
    world.settle("w0")
    assert ([], []) == (old.executor.aborted, new.executor.started)

    old.executor.end("e1", "succeeded")
    world.settle("w0")
    assert ["w0"] == [report.worker for report in world.reports("succeeded")]


def test_w5_x9_a_claim_that_was_confirmed_but_not_committed_does_not_save_its_execution(
    world: World,
) -> None:
    world.answer_claims = True
    old = world.executing("w0")
    world.pass_time(1_000)  # the claim is in the log and answered, and the answer not read yet
    world.clock.advance(400)
    world.worker("w1")
    world.pass_time(SESSION_MS + 2_000, "w1")
    world.settle("w0")
    assert ["e1"] == old.executor.aborted


def test_w5_a_held_run_is_dropped_with_its_partition(world: World) -> None:
    old = world.worker("w0")
    world.due(world.run(in_ms=20_000))
    world.settle()
    assert 1 == old.core.metrics.held
    world.worker("w1")
    world.pass_time(SESSION_MS + 2_000, "w1")
    world.settle("w0")
    assert 0 == old.core.metrics.held
    world.pass_time(20_000)
    assert ([], ["ns/a@1"]) == (old.executor.runs(), world.workers["w1"].executor.runs())


def test_w6_what_executes_is_claimed_and_confirmed_before_the_partition_is_handed_over(
    world: World,
) -> None:
    world.answer_claims = True
    old = world.executing("w0")
    new = world.worker("w1")
    old.core.close()
    world.pass_time(3_000, "w1")
    assert ["started"] == world.kinds()
    assert [] == new.executor.started  # its offset was committed with the claim
    # close() ends the process' part: nothing is left that could report.
    assert ["e1"] == old.executor.aborted


def test_w6_a_claim_that_is_not_answered_within_a_second_ends_the_execution(world: World) -> None:
    old = world.executing("w0")
    new = world.worker("w1")
    before_ms = world.clock.now_ms()
    old.core.close()
    assert 1_000 == world.clock.now_ms() - before_ms
    assert ["e1"] == old.executor.aborted
    world.pass_time(3_000, "w1")
    assert ["ns/a@1"] == new.executor.runs()
    assert [] == world.reports("failed")


def test_w6_a_partition_that_moves_to_a_second_worker_takes_along_what_is_held() -> None:
    world = World(partitions=2)
    first = world.worker("w0")
    world.settle()
    for partition in (0, 1):
        world.due(world.run(f"ns/{partition}@1", in_ms=5_000), partition=partition)
    world.settle()
    second = world.worker("w1")
    world.pass_time(6_000)
    assert sorted(["ns/0@1", "ns/1@1"]) == sorted(first.executor.runs() + second.executor.runs())
    assert (1, 1) == (len(first.executor.started), len(second.executor.started))


def test_w6_an_execution_that_was_confirmed_at_a_revoke_goes_on_and_reports() -> None:
    world = World(partitions=2)
    world.answer_claims = True
    first = world.worker("w0")
    world.settle()
    for partition in (0, 1):
        world.due(world.run(f"ns/{partition}@1"), partition=partition)
    world.settle()
    world.pass_time(50)
    assert 2 == len(first.executor.started)

    second = world.worker("w1")
    world.pass_time(3_000)
    assert (1, 1) == (first.core.metrics.partitions, second.core.metrics.partitions)
    assert ([], []) == (first.executor.aborted, second.executor.started)
    for execution in list(first.executor.started):
        first.executor.end(execution.id)
    world.pass_time(1_000)
    assert 2 == len(world.reports("succeeded"))


def test_w6_control_of_a_lost_partition_is_followed_until_its_last_execution_ends() -> None:
    world = World(partitions=2)
    world.answer_claims = True
    first = world.worker("w0")
    world.settle()
    for partition in (0, 1):
        world.due(world.run(f"ns/{partition}@1"), partition=partition)
    world.settle()
    world.pass_time(50)
    world.worker("w1")
    world.pass_time(3_000)
    (lost,) = {0, 1} - {where.partition for where in first.core.consumers[0].assigned()}
    world.control(Control(run_id=f"ns/{lost}@1", withdrawn_upto=1, withdrawn_how="cancel"), partition=lost)
    world.pass_time(500)
    assert [f"ns/{lost}@1"] == [report.run_id for report in world.reports("cancelled")]
    assert 1 == len(first.core.consumers[2].assigned())


def test_an_assignment_that_the_log_does_not_answer_for_is_opened_later(world: World) -> None:
    streams = world.log.client("streams").transactional_producer("t")
    streams.init()
    worker = world.worker()
    group = world.log.client("other").group_consumer(NAMES.worker_group(QUEUE), client_id="x")
    nothing = lambda partitions: None  # noqa: E731
    group.subscribe(DUE.topic, on_assign=nothing, on_revoke=nothing, on_lost=nothing)
    group.poll(1, 0)
    streams.begin()
    # While a transaction carries an offset of the partition, the committed one is not known.
    from tocsin.log.port import OffsetCommit

    streams.send_offsets({DUE: OffsetCommit(0)}, group.metadata())
    group.close()
    world.due(world.run())
    world.settle()
    assert [] == worker.executor.started

    streams.abort()
    world.pass_time(1_000)
    assert ["ns/a@1"] == worker.executor.runs()


# --- W8, W10 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rules", "started"), [(WorkerRules(), []), (WorkerRules(w8=False), ["ns/a@1"])])
def test_w8_v9_a_worker_that_is_cut_off_starts_nothing_that_it_may_have_lost(
    world: World, rules: WorkerRules, started: list[str]
) -> None:
    worker = world.worker("w0", rules)
    world.due(world.run(in_ms=5_500))
    world.settle()
    world.log.faults.cut("w0")
    world.pass_time(6_000)
    assert started == worker.executor.runs()


def test_w8_a_start_must_begin_before_the_session_can_have_ended(world: World) -> None:
    worker = world.worker()
    world.settle()
    sent_s = world.clock.monotonic_s()
    world.due(world.run(in_ms=400))
    world.pass_time(400)
    (execution,) = worker.executor.started
    assert sent_s + 5.0 == execution.start_by_s


def test_w8_a_suspended_machine_starts_nothing_when_it_wakes_up(world: World) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=1_000))
    world.settle()
    world.log.faults.cut("w0")  # the first pass after the wake-up does not even learn of the loss
    world.clock.advance(60_000)
    worker.core.run_once()
    assert [] == worker.executor.started


def test_w10_each_assignment_has_an_epoch_of_its_own(world: World) -> None:
    world.executing("w0")
    world.pass_time(1_100)
    world.crash("w0")
    world.worker("w1")
    world.pass_time(10_000)
    world.crash("w1")
    world.worker("w2")
    world.pass_time(10_000)
    assert [1, 2, 3] == [report.epoch for report in world.reports("started")]


def test_w10_nothing_starts_before_the_epoch_is_committed(world: World) -> None:
    worker = world.worker()
    world.due(world.run())
    worker.core.run_once()  # joins
    while not worker.executor.started:
        worker.core.run_once()
    assert "1:1:" == world.committed().metadata


def test_offsets_that_a_tool_has_set_are_taken_as_they_are(world: World) -> None:
    for n in range(3):
        world.due(world.run(f"ns/{n}@1"))
    from tocsin.log.port import OffsetCommit

    tool = world.log.client("tool").group_consumer(NAMES.worker_group(QUEUE), client_id="tool")
    nothing = lambda partitions: None  # noqa: E731
    tool.subscribe(DUE.topic, on_assign=nothing, on_revoke=nothing, on_lost=nothing)
    tool.poll(1, 0)
    tool.commit_sync({DUE: OffsetCommit(2, "set by hand")}, 1)
    tool.close()
    worker = world.worker()
    world.settle()
    world.pass_time(100)
    assert ["ns/2@1"] == worker.executor.runs()


def test_w7_a_later_record_of_the_job_ends_the_wait_for_an_acknowledgement() -> None:
    """It says that the earlier run is settled, so its report was folded, whatever became of the answer. Otherwise the next
    owner of the partition would start the earlier run again, beside the later one that goes on here."""
    world = World(partitions=2)
    world.answer_claims = True
    first = world.worker("w0")
    for partition, job in enumerate(("ns/a", "ns/b")):
        world.due(world.run(f"{job}@1", seq=1), partition=partition)
    world.settle()
    world.pass_time(50)
    world.log.faults.lose_acknowledgement_of_next(NAMES.outcomes, times=1_000)
    for execution in list(first.executor.executing):
        first.executor.end(execution)
    world.pass_time(500)
    for partition, job in enumerate(("ns/a", "ns/b")):
        world.due(world.run(f"{job}@2", seq=2, floor=2), "due-now", partition)
    world.pass_time(2_500)

    second = world.worker("w1")
    world.pass_time(3_000)
    assert (1, 1) == (first.core.metrics.partitions, second.core.metrics.partitions)
    assert ["ns/a@1", "ns/a@2", "ns/b@1", "ns/b@2"] == sorted(first.executor.runs())
    assert 2 == len(first.executor.executing)
    assert [] == second.executor.runs()
