"""What the core does with due runs: start them on time and in turn, report them, move the offset."""

import pytest

from tests.unit.worker.world import NAMES, QUEUE, World
from tocsin.clock import FakeClock
from tocsin.schemas.codec import decode
from tocsin.schemas.records import Control, Quarantined


def test_a_run_starts_at_its_due_instant_and_not_before(world: World) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=500))
    world.settle()

    world.pass_time(499, step_ms=1)
    assert [] == worker.executor.started

    world.pass_time(1)
    assert ["ns/a@1"] == worker.executor.runs()


def test_a_run_whose_instant_moved_away_again_waits_for_it(world: World) -> None:
    worker = world.worker(clock_offset_max_ms=None)
    worker.executor.slots = 0
    world.due(world.run(in_ms=100))
    world.pass_time(150)  # ready, and without a slot

    world.clock.step_wall(-1_000)
    worker.executor.slots = 1
    world.pass_time(900)
    assert [] == worker.executor.started

    world.pass_time(100)
    assert ["ns/a@1"] == worker.executor.runs()


def test_what_waits_behind_a_hanging_endpoint_is_counted_and_its_age_known(world: World) -> None:
    worker = world.worker(per_target_max=1)
    first = world.run("ns/a@1", in_ms=100)
    second, third = world.run("ns/b@1", in_ms=200), world.run("ns/c@1", in_ms=300)
    for run in (third, second, first, world.run("ns/d@1", in_ms=3_600_000)):
        world.due(run)
    world.settle()
    metrics = worker.core.metrics
    assert (4, 0, 0) == (metrics.held, metrics.held_overdue, metrics.held_overdue_since_ms)

    world.pass_time(5_000)
    assert ["ns/a@1"] == worker.executor.runs()
    assert (3, 2, second.due_ms) == (metrics.held, metrics.held_overdue, metrics.held_overdue_since_ms)

    worker.executor.end(worker.executor.only())
    world.pass_time(2_000)
    assert ["ns/a@1", "ns/b@1"] == worker.executor.runs()
    assert (1, third.due_ms) == (metrics.held_overdue, metrics.held_overdue_since_ms)

    worker.executor.end(worker.executor.only())
    world.pass_time(50)
    assert (1, 0, 0) == (metrics.held, metrics.held_overdue, metrics.held_overdue_since_ms)


def test_what_waits_for_a_slot_is_overdue_until_it_is_withdrawn_or_its_instant_moves_away(
    world: World,
) -> None:
    worker = world.worker(clock_offset_max_ms=None)
    worker.executor.slots = 0
    for run_id in ("ns/a@1", "ns/b@1"):
        world.due(world.run(run_id, in_ms=100))
    world.pass_time(150)
    metrics = worker.core.metrics
    assert 2 == metrics.held_overdue

    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="withdraw"))
    world.pass_time(100)
    assert 1 == metrics.held_overdue

    world.clock.step_wall(-1_000)
    worker.executor.slots = 1
    world.pass_time(50)
    assert (1, 0, 0) == (metrics.held, metrics.held_overdue, metrics.held_overdue_since_ms)


def test_an_error_that_no_utf8_can_hold_is_reported_as_far_as_it_goes(world: World) -> None:
    worker = world.executing()
    worker.executor.end("e1", "failed", error="ValueError: half of \ud83d", retryable=True)
    world.pass_time(100)
    (report,) = world.reports()
    assert ("failed", "ValueError: half of ?") == (report.kind, report.error)


def test_an_ended_run_is_reported_once_with_what_came_back(world: World) -> None:
    worker = world.worker()
    world.settle()
    world.due(world.run(in_ms=10, seq=7, dispatch=3, attempt=2))
    world.pass_time(10, step_ms=10)
    worker.executor.end(
        worker.executor.only(),
        "failed",
        http_status=503,
        error="busy",
        retryable=True,
        retry_after_ms=9_000,
        response="later",
    )
    world.pass_time(100)

    (report,) = world.reports()
    assert ("failed", "ns/a@1", "ns", "a", 7, 3, 2) == (
        report.kind,
        report.run_id,
        report.namespace,
        report.job_id,
        report.seq,
        report.dispatch,
        report.attempt,
    )
    assert (503, "busy", True, 9_000, "later") == (
        report.http_status,
        report.error,
        report.retryable,
        report.retry_after_ms,
        report.response,
    )
    assert ("e1", 1, "w0", 0) == (report.execution, report.epoch, report.worker, report.lateness_ms)


def test_lateness_is_measured_from_the_due_instant(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 0
    world.due(world.run())
    world.pass_time(130, step_ms=10)
    worker.executor.slots = 1
    world.pass_time(0)
    worker.executor.end(worker.executor.only())
    world.pass_time(0)

    assert [130] == [report.lateness_ms for report in world.reports("succeeded")]
    assert 130 == worker.core.metrics.lateness.sum_ms


def test_the_offset_moves_when_the_report_was_acknowledged(world: World) -> None:
    worker = world.worker()
    world.due(world.run())
    world.pass_time(600)
    assert 0 == world.committed().offset

    world.log.faults.hold_sends("w0")
    worker.executor.end(worker.executor.only())
    world.pass_time(600)
    assert 0 == world.committed().offset

    world.log.faults.release_sends("w0")
    world.pass_time(600)
    assert 1 == world.committed().offset


def test_runs_that_end_out_of_order_are_remembered_in_the_metadata_and_not_run_again(world: World) -> None:
    first = world.worker("w0")
    for name in "abc":
        world.due(world.run(f"ns/{name}@1"))
    world.pass_time(100)
    first.executor.end(next(e.id for e in first.executor.started if e.run.run_id == "ns/b@1"))
    world.pass_time(600)
    assert (0, "1:1:Ag==") == tuple(world.committed())

    world.log.faults.crash("w0")
    del world.workers["w0"]
    second = world.worker("w1")
    world.pass_time(8_000)
    assert ["ns/a@1", "ns/c@1"] == second.executor.runs()
    assert {2} == {execution.run.dispatch + 1 for execution in second.executor.started}


def test_namespaces_take_turns_when_slots_are_few(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 0
    for n in range(3):
        world.due(world.run(f"loud/{n}@1"))
    world.due(world.run("quiet/0@1"))
    world.settle()
    worker.executor.slots = 4
    world.pass_time(0)
    assert ["loud/0@1", "quiet/0@1", "loud/1@1", "loud/2@1"] == worker.executor.runs()


def test_high_priority_goes_first(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 0
    world.due(world.run("ns/a@1"))
    world.due(world.run("ns/b@1", priority="high"), lane="due-now")
    world.settle()
    worker.executor.slots = 1
    world.pass_time(0)
    assert ["ns/b@1"] == worker.executor.runs()


def test_no_more_starts_than_there_are_slots(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 2
    for n in range(5):
        world.due(world.run(f"ns/{n}@1"))
    world.pass_time(200)
    assert 2 == len(worker.executor.started)

    worker.executor.end(worker.executor.started[0].id)
    world.pass_time(0)
    assert 3 == len(worker.executor.started)


def test_one_endpoint_does_not_take_all_slots(world: World) -> None:
    worker = world.worker(per_target_max=2)
    for n in range(4):
        world.due(world.run(f"ns/{n}@1"))
    world.pass_time(100)
    assert 2 == len(worker.executor.started)

    worker.executor.end(worker.executor.started[0].id)
    world.pass_time(100)
    assert 3 == len(worker.executor.started)


def test_a_run_past_its_start_deadline_is_reported_expired_a_second_later(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 0
    run = world.run(start_deadline_ms=world.clock.now_ms() + 1_000)
    world.due(run)
    world.pass_time(1_001, step_ms=1)
    worker.executor.slots = 1
    world.pass_time(999, step_ms=1)
    assert ([], []) == (worker.executor.started, world.kinds())

    world.pass_time(600)
    assert ([], ["expired"]) == (worker.executor.started, world.kinds())
    world.pass_time(600)
    assert 1 == world.committed().offset


def test_a_run_exactly_at_its_deadline_may_start(world: World) -> None:
    worker = world.worker()
    worker.executor.slots = 0
    world.due(world.run(start_deadline_ms=world.clock.now_ms() + 1_000))
    world.pass_time(1_000)
    worker.executor.slots = 1
    world.pass_time(0)
    assert ["ns/a@1"] == worker.executor.runs()


@pytest.mark.parametrize("value", [b"\xff\xff", b"", b"\xc3\x01" + b"\0" * 8 + b"rest"])
def test_a_record_that_cannot_be_decoded_is_quarantined_and_the_partition_moves_on(
    world: World, value: bytes
) -> None:
    worker = world.worker()
    world.raw(NAMES.due(QUEUE), value, key=b"who")
    world.due(world.run())
    world.pass_time(600)
    worker.executor.end(worker.executor.only())
    world.pass_time(600)

    (stored,) = world.log.records(NAMES.quarantine, 0)
    assert stored.record is not None
    assert stored.record.value is not None
    quarantined = decode(stored.record.value)
    assert isinstance(quarantined, Quarantined)
    assert (NAMES.due(QUEUE), 0, 0, b"who", value) == (
        quarantined.topic,
        quarantined.partition,
        quarantined.offset,
        quarantined.key,
        quarantined.value,
    )
    assert quarantined.reason
    assert 2 == world.committed().offset
    assert 1 == worker.core.metrics.quarantined


def test_a_control_record_that_cannot_be_decoded_does_not_stop_the_worker(world: World) -> None:
    worker = world.worker()
    world.raw(NAMES.control(QUEUE), b"\xff\xff")
    world.due(world.run())
    world.pass_time(100)
    assert ["ns/a@1"] == worker.executor.runs()
    assert 1 == worker.core.metrics.quarantined


def test_a_report_that_the_log_did_not_take_is_sent_again(world: World) -> None:
    worker = world.worker()
    world.due(world.run())
    world.pass_time(100)
    world.log.faults.lose_acknowledgement_of_next(NAMES.outcomes)
    worker.executor.end(worker.executor.only())
    world.pass_time(50)
    assert 1 == len(world.reports())

    world.pass_time(1_000)
    assert ["succeeded", "succeeded"] == world.kinds()
    assert 1 == world.committed().offset
    assert 1 == worker.core.metrics.reports_again


def test_what_the_executor_could_not_begin_in_time_is_held_again(world: World) -> None:
    worker = world.worker()
    world.due(world.run())
    world.pass_time(100)
    worker.executor.end(worker.executor.only(), "not_begun")
    world.pass_time(100)

    assert ["e1", "e2"] == [execution.id for execution in worker.executor.started]
    assert [] == world.kinds()


def test_the_wait_ends_when_the_next_run_is_due(world: World) -> None:
    worker = world.worker()
    world.due(world.run(in_ms=120))
    world.settle()
    assert pytest.approx(0.120) == worker.core.wait_s()
    world.clock.advance(119)
    assert pytest.approx(0.001) == worker.core.wait_s()


def test_an_idle_worker_wakes_up_for_its_commits_alone(world: World) -> None:
    worker = world.worker()
    world.settle()
    assert pytest.approx(0.5) == worker.core.wait_s()


# --- clocks -------------------------------------------------------------------------------------------------------------


def test_a_worker_whose_clock_is_off_starts_nothing_until_it_is_right_again(world: World) -> None:
    worker = world.worker()
    world.due(world.run("ns/a@1"))
    world.pass_time(100)
    worker.executor.end(worker.executor.only())
    world.pass_time(100)  # its report has told it the log's time

    world.due(world.run("ns/b@1", in_ms=500))
    world.pass_time(50)

    world.clock.step_wall(700)
    world.pass_time(100)
    assert ["ns/a@1"] == worker.executor.runs()
    assert worker.core.metrics.clock_off

    world.clock.step_wall(-700)
    world.pass_time(1_000)
    assert ["ns/a@1", "ns/b@1"] == worker.executor.runs()


class FastClock:
    """Wall clock an hour ahead of the log's, from the beginning."""

    def __init__(self, right: FakeClock) -> None:
        self._right = right
        self.monotonic_s = right.monotonic_s

    def now_ms(self) -> int:
        return self._right.now_ms() + 3_600_000


def test_a_worker_whose_clock_was_always_an_hour_fast_asks_the_time_before_its_first_start(
    world: World,
) -> None:
    worker = world.worker(clock=FastClock(world.clock), asks_the_time_first=True)
    world.due(world.run("ns/a@1", in_ms=10_000))
    world.pass_time(5_000)
    assert [] == worker.executor.runs()
    assert worker.core.metrics.clock_off
    assert 3_600_000 == pytest.approx(
        worker.core.metrics.clock_offset_ms, abs=50
    )  # half of the way there and back


def test_a_worker_that_asks_the_time_first_is_on_time(world: World) -> None:
    worker = world.worker(asks_the_time_first=True)
    world.due(world.run("ns/a@1", in_ms=1_000))
    world.pass_time(1_050)
    assert ["ns/a@1"] == worker.executor.runs()
    assert [""] == [each.run_id for each in world.reports("heartbeat")]


def test_a_worker_on_a_log_of_its_own_machine_has_no_clock_to_compare(world: World) -> None:
    worker = world.worker(clock_offset_max_ms=None)
    world.due(world.run("ns/a@1"))
    world.pass_time(100)
    worker.executor.end(worker.executor.only())
    world.pass_time(100)
    world.clock.step_wall(3_600_000)
    world.due(world.run("ns/b@1"))
    world.pass_time(100)
    assert ["ns/a@1", "ns/b@1"] == worker.executor.runs()


# --- stopping -----------------------------------------------------------------------------------------------------------


def test_a_stopped_worker_starts_nothing_and_waits_for_what_executes(world: World) -> None:
    worker = world.worker()
    world.due(world.run("ns/a@1"))
    world.pass_time(100)
    worker.core.stop()
    worker.core.stop()
    world.due(world.run("ns/b@1"))
    world.pass_time(500)
    assert ["ns/a@1"] == worker.executor.runs()
    assert not worker.core.is_drained()

    worker.executor.end(worker.executor.only())
    world.pass_time(100)
    assert worker.core.is_drained()
    worker.core.close()
    assert ["started", "succeeded"] == world.kinds()  # claimed at once, so that the group can be left early
    assert 1 == world.committed().offset


def test_what_outlasts_the_drain_is_aborted_and_may_be_tried_elsewhere(world: World) -> None:
    worker = world.worker(drain_s=0.8)
    world.due(world.run())
    world.pass_time(100)
    worker.core.stop()
    world.pass_time(700)
    assert [] == worker.executor.aborted

    world.pass_time(200)
    assert ["e1"] == worker.executor.aborted
    (report,) = world.reports("failed")
    assert report.retryable
    assert "worker_stopped" in report.error
    assert worker.core.is_drained()


def test_a_function_that_does_not_return_does_not_hold_up_the_stop_for_ever(world: World) -> None:
    worker = world.worker(drain_s=1, abort_s=1)
    worker.executor.stubborn = True
    world.due(world.run())
    world.pass_time(100)
    worker.core.stop()
    world.pass_time(1_900)
    assert not worker.core.is_drained()
    world.pass_time(200)
    assert worker.core.is_drained()
    worker.core.close()
    assert [] == world.reports("failed")  # it still executes: its lease tells when it is lost


def test_a_worker_without_work_is_drained_at_once(world: World) -> None:
    worker = world.worker()
    world.settle()
    assert not worker.core.is_drained()
    worker.core.stop()
    assert worker.core.is_drained()
