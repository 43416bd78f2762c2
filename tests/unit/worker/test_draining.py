"""A worker that stops leaves its group as soon as nothing that executes depends on it (W5, W6), and then lets it end."""

import pytest

from tests.unit.worker.world import World
from tocsin.log.port import LogUnavailable


def test_what_a_stopping_worker_holds_is_started_by_another_while_its_own_run_goes_on(world: World) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/long@1")
    second = world.worker("w1")
    world.due(world.run("ns/next@1", in_ms=1_000))
    world.settle()
    first.core.stop()
    world.pass_time(2_000)
    assert (0, 1) == (first.core.metrics.partitions, second.core.metrics.partitions)
    assert ["ns/next@1"] == second.executor.runs()
    assert ["ns/long@1"] == first.executor.runs()
    assert not first.core.is_drained()

    first.executor.end(first.executor.only())
    world.pass_time(100)
    assert first.core.is_drained()
    first.core.close()
    assert [("ns/long@1", "succeeded")] == [(r.run_id, r.kind) for r in world.reports("succeeded")]
    assert 1 == world.committed().offset  # the long run's record is finished; the next one still executes


def test_a_claim_that_is_not_confirmed_keeps_the_worker_in_its_group(world: World) -> None:
    first = world.executing("w0", "ns/long@1")
    second = world.worker("w1")
    world.settle()
    first.core.stop()
    world.pass_time(3_000)
    assert 1 == first.core.metrics.partitions
    assert [] == second.executor.runs()

    world.answer_claims = True
    world.pass_time(1_000)
    assert (0, 1) == (first.core.metrics.partitions, second.core.metrics.partitions)


def test_a_run_is_cancelled_and_heartbeats_go_on_after_the_group_was_left(world: World) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/long@1", lease_ms=3_000)
    first.core.stop()
    world.pass_time(5_000)
    assert 0 == first.core.metrics.partitions
    assert len(world.reports("heartbeat")) >= 3


def test_the_end_of_the_drain_is_reported_also_after_the_group_was_left(world: World) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/long@1")
    second = world.worker("w1")
    first.core.stop()
    world.pass_time(31_000)
    assert first.core.is_drained()
    (report,) = world.reports("failed")
    assert "worker_stopped" in report.error
    assert report.retryable
    assert [] == second.executor.runs()


def test_what_ends_while_the_worker_leaves_is_not_executed_again(world: World) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/a@1")
    second = world.worker("w1")
    world.due(world.run("ns/b@1"))
    world.settle()
    world.pass_time(100)
    assert ["ns/a@1", "ns/b@1"] == first.executor.runs()
    first.core.stop()
    first.executor.end(first.executor.started[0].id)
    world.pass_time(3_000)
    assert 0 == first.core.metrics.partitions
    assert [] == second.executor.runs()


def test_a_log_that_is_away_does_not_keep_the_worker_from_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answer_claims = True
    first = world.executing("w0", "ns/long@1")

    def away() -> None:
        raise LogUnavailable("nobody is there")

    monkeypatch.setattr(first.core._group, "close", away)
    first.core.stop()
    world.pass_time(2_000)
    assert 0 == first.core.metrics.partitions
    first.executor.end(first.executor.only())
    world.pass_time(100)
    assert first.core.is_drained()
    first.core.close()
