"""Reports reach the log, in order and for as long as they are wanted, whatever it does meanwhile."""

import logging
from dataclasses import dataclass, field

import pytest

from tests.unit.worker.world import World
from tocsin.clock import FakeClock
from tocsin.log.port import Delivery, DeliveryCallback, Headers, LogFull
from tocsin.schemas.records import Control, RunReport
from tocsin.worker.clock_offset import ClockOffset
from tocsin.worker.config import CoreConfig
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.reports import Reports


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


@dataclass
class FullLog:
    """Producer of a log whose disk is full, until it is not."""

    clock: FakeClock
    full: bool = True
    tries_s: list[float] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    answers: list[tuple[DeliveryCallback, Delivery]] = field(default_factory=list)

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        assert value is not None
        assert on_delivery is not None
        self.tries_s.append(self.clock.monotonic_s())
        if not self.full:
            self.taken.append(value)
        error = LogFull("no space is left") if self.full else None
        answer = Delivery(topic, 0, -1 if self.full else len(self.taken) - 1, self.clock.now_ms(), error)
        self.answers.append((on_delivery, answer))

    def poll(self) -> int:
        answers, self.answers = self.answers, []
        for on_delivery, answer in answers:
            on_delivery(answer)
        return len(answers)

    def flush(self, timeout_s: float) -> int:
        self.poll()
        return 0

    def close(self) -> None: ...


def reports_on(log: FullLog) -> Reports:
    clock = log.clock
    return Reports(
        CoreConfig(queue="default", worker="w0"), clock, log, ClockOffset(clock, None), WorkerMetrics()
    )


def ended(run_id: str) -> RunReport:
    return RunReport(
        kind="succeeded", run_id=run_id, namespace="ns", job_id="a", seq=1, dispatch=1, attempt=1
    )


def poll_for(reports: Reports, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds * 100):
        clock.advance(10)
        reports.poll()


def test_a_full_log_is_tried_less_and_less_often_and_complained_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tocsin.worker.reports")
    clock = FakeClock()
    log = FullLog(clock)
    reports = reports_on(log)
    reports.send(ended("ns/a@1"))
    poll_for(reports, clock, 300)

    waits = [round(later - earlier, 2) for earlier, later in zip(log.tries_s, log.tries_s[1:], strict=False)]
    assert [0.25, 0.5, 1, 2, 4, 5, 5] == pytest.approx(waits[:7], abs=0.05)
    assert 5.05 > max(waits)
    assert 5 == len(caplog.records)
    assert "no space is left" in caplog.records[-1].message

    log.full = False
    poll_for(reports, clock, 6)
    assert (1, 0) == (len(log.taken), reports.outstanding())


def test_a_log_that_took_a_record_is_tried_again_soon_when_it_is_full_again() -> None:
    clock = FakeClock()
    log = FullLog(clock)
    reports = reports_on(log)
    reports.send(ended("ns/a@1"))
    poll_for(reports, clock, 60)
    log.full = False
    poll_for(reports, clock, 6)
    log.full, log.tries_s = True, []
    reports.send(ended("ns/a@2"))
    poll_for(reports, clock, 1)
    assert [0.25, 0.5] == pytest.approx(
        [later - earlier for earlier, later in zip(log.tries_s, log.tries_s[1:], strict=False)], abs=0.05
    )


def test_a_flush_tries_at_once_what_waits_for_its_next_try() -> None:
    clock = FakeClock()
    log = FullLog(clock)
    reports = reports_on(log)
    reports.send(ended("ns/a@1"))
    poll_for(reports, clock, 60)
    log.full = False
    clock.advance(1_000)  # of five
    reports.flush(1.0)
    assert (1, 0) == (len(log.taken), reports.outstanding())
