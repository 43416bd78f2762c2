"""W7 and W9: both lanes are scanned before anything starts, later records end earlier ones, and windows are bounded."""

import pytest

from tests.unit.worker.world import NAMES, QUEUE, World
from tocsin.worker.holding import HELD_OVERHEAD_BYTES
from tocsin.worker.rules import WorkerRules


@pytest.mark.parametrize(
    ("rules", "started"),
    [(WorkerRules(), ["ns/a@2"]), (WorkerRules(w7=False), ["ns/a@1", "ns/a@2"])],
)
def test_w7_v11_a_run_below_the_floor_of_a_later_one_is_not_run_again(
    world: World, rules: WorkerRules, started: list[str]
) -> None:
    world.due(world.run("ns/a@1", seq=1, floor=0))
    world.due(world.run("ns/a@2", seq=2, floor=2), lane="due-now")  # written when a@1 was settled
    worker = world.worker("w0", rules)
    world.settle()
    world.pass_time(1_000)
    assert started == sorted(worker.executor.runs())
    for execution in worker.executor.started:
        worker.executor.end(execution.id)
    world.pass_time(1_000)
    assert (1, 1) == (world.committed("due").offset, world.committed("due-now").offset)


@pytest.mark.parametrize("lane", ["due", "due-now"])
def test_w7_an_earlier_dispatch_of_a_run_does_not_start_once_a_later_one_was_read(
    world: World, lane: str
) -> None:
    world.due(world.run(dispatch=2, attempt=2), lane="due")
    world.due(world.run(dispatch=1, attempt=1), lane="due-now")
    worker = world.worker()
    world.settle()
    world.pass_time(1_000)
    assert [2] == [execution.run.dispatch for execution in worker.executor.started]
    assert 1 == worker.core.metrics.finished_silently


def test_w7_an_open_run_at_the_floor_goes_on_beside_a_later_one(world: World) -> None:
    world.due(world.run("ns/a@1", seq=1, floor=1))
    world.due(world.run("ns/a@2", seq=2, floor=1))
    worker = world.worker()
    world.settle()
    world.pass_time(100)
    assert ["ns/a@1", "ns/a@2"] == worker.executor.runs()


def test_w7_an_execution_that_a_later_dispatch_supersedes_has_ended_before_that_starts(
    world: World,
) -> None:
    worker = world.executing()
    worker.executor.stubborn = True
    world.due(world.run(dispatch=2, attempt=2))
    world.pass_time(1_000)
    assert (["e1"], 1) == (worker.executor.aborted, len(worker.executor.started))

    worker.executor.end("e1", "aborted")
    world.pass_time(100)
    assert [1, 2] == [execution.run.dispatch for execution in worker.executor.started]
    assert [] == world.reports("failed", "cancelled")


def test_w7_nothing_starts_before_both_lanes_were_read_to_their_ends(world: World) -> None:
    world.due(world.run())
    world.log.faults.lag("w0", NAMES.due_now(QUEUE))
    world.due(world.run("ns/b@1"), lane="due-now")
    worker = world.worker()
    world.settle()
    world.pass_time(1_000)
    assert [] == worker.executor.started

    world.log.faults.release("w0", NAMES.due_now(QUEUE))
    world.pass_time(100)
    assert ["ns/a@1", "ns/b@1"] == sorted(worker.executor.runs())


def test_x1_a_backlog_beyond_the_window_is_scanned_and_then_worked_off(world: World) -> None:
    for n in range(500):
        world.due(world.run(f"ns/{n}@1"))
    world.due(world.run("ns/0@1", dispatch=2, attempt=2))  # far beyond the window, and known all the same
    worker = world.worker(window_max=50)
    world.settle()
    for _ in range(100):
        world.pass_time(500)
        for execution in list(worker.executor.executing):
            worker.executor.end(execution)
    runs = worker.executor.runs()
    assert sorted(runs) == sorted(f"ns/{n}@1" for n in range(500))
    assert [2] == [e.run.dispatch for e in worker.executor.started if e.run.run_id == "ns/0@1"]
    assert 501 == world.committed().offset


def test_w9_the_window_between_unfinished_and_fetched_is_never_exceeded(world: World) -> None:
    worker = world.worker(window_max=50)
    worker.executor.slots = 1_000
    world.due(world.run("ns/first@1"))
    for n in range(200):
        world.due(world.run(f"ns/{n}@1"))
    world.settle()
    world.pass_time(1_000)
    first = worker.executor.started[0].id
    for _ in range(10):
        for execution in list(worker.executor.executing):
            if execution != first:
                worker.executor.end(execution)
        world.pass_time(500)
    assert 51 == len(worker.executor.started)
    assert 0 == world.committed().offset

    worker.executor.end(first)
    for _ in range(20):
        world.pass_time(500)
        for execution in list(worker.executor.executing):
            worker.executor.end(execution)
    assert 201 == len(worker.executor.started)
    assert 201 == world.committed().offset


def test_the_hold_is_bounded_in_bytes_and_goes_on_when_there_is_room(world: World) -> None:
    each = HELD_OVERHEAD_BYTES + 200
    worker = world.worker(hold_bytes_max=20 * each)  # three quarters of it for this lane
    for n in range(60):
        world.due(world.run(f"ns/{n}@1", in_ms=2_000 + 10 * n))
    world.settle()
    assert 10 <= worker.core.metrics.held <= 16

    for _ in range(60):
        world.pass_time(100)
        for execution in list(worker.executor.executing):
            worker.executor.end(execution)
    assert [f"ns/{n}@1" for n in range(60)] == worker.executor.runs()


def test_a_full_hold_does_not_delay_what_is_urgent(world: World) -> None:
    worker = world.worker(hold_bytes_max=40_000)
    for n in range(60):
        world.due(world.run(f"ns/{n}@1", in_ms=600_000))
    world.settle()
    world.due(world.run("ns/urgent@1"), lane="due-now")
    world.pass_time(50)
    assert ["ns/urgent@1"] == worker.executor.runs()


def test_what_was_read_of_finished_records_is_forgotten(world: World) -> None:
    worker = world.worker(per_target_max=10_000)
    worker.executor.slots = 10_000
    for n in range(3_000):
        world.due(world.run(f"ns/{n}@1", floor=1))
    world.pass_time(2_000)
    for execution in list(worker.executor.executing):
        worker.executor.end(execution)
    (assignment,) = worker.core._assignments
    assert 3_000 == len(assignment.knowledge)
    world.pass_time(30_000)
    assert 0 == len(assignment.knowledge)


def test_a_partition_that_is_not_open_yet_does_not_starve_the_others() -> None:
    world = World(partitions=2)
    streams = world.log.client("streams").transactional_producer("t")
    streams.init()
    streams.begin()  # whoever wrote this is dead, so nothing of partition 0 starts for now
    streams.produce(NAMES.control(QUEUE), partition=0, key=b"k", value=b"")
    worker = world.worker(hold_bytes_max=40_000)
    for n in range(60):
        world.due(world.run(f"ns/{n}@1"), partition=0)
    world.settle()
    for n in range(5):
        world.due(world.run(f"other/{n}@1"), partition=1)
    for _ in range(20):
        world.pass_time(100)
        for execution in list(worker.executor.executing):
            worker.executor.end(execution)
    assert [f"other/{n}@1" for n in range(5)] == worker.executor.runs()
