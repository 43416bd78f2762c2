"""Who waits in an API process until something is applied in another."""

import gc
import threading

import pytest

from tests.unit.api.owners import (
    Cluster,
    Part,
    key_in,
    wait_for,
)
from tocsin.api.cluster import waits as waits_module

# --- waiting until something is applied ----------------------------------------------------------------------------------

JOBS = "tocsin.jobs"


def test_who_waits_is_told_when_the_owner_has_applied_the_record(three: Cluster) -> None:
    owner = three.owners["a"].queries
    owner.waiters.applied(JOBS, 0, 5)
    three.queries.applied(JOBS, 0, 4).result(30)
    later = three.queries.applied(JOBS, 0, 9)
    wait_for(lambda: owner.waiters.any)
    assert not later.done()
    owner.waiters.applied(JOBS, 0, 9)
    assert not later.done()
    owner.waiters.applied(JOBS, 0, 10)
    later.result(30)


def test_many_who_wait_cost_few_questions_and_no_thread(three: Cluster) -> None:
    owner = three.owners["a"].queries
    assert three.queries.get_job(key_in(0)) is not None
    threads = threading.active_count()
    futures = [three.queries.applied(JOBS, 0, offset) for offset in range(5_000)]
    wait_for(lambda: three.queries.figures().waiting == 5_000 and owner.waiters.any)
    assert threads == threading.active_count()
    owner.waiters.applied(JOBS, 0, 2_500)
    wait_for(lambda: sum(future.done() for future in futures) >= 2_400)
    assert not any(future.done() for future in futures[2_500:])
    owner.waiters.applied(JOBS, 0, 5_000)
    for future in futures:
        future.result(30)
    assert three.queries.figures().asked < 40
    assert 0 == three.queries.figures().waiting


def test_who_waits_for_something_earlier_is_not_kept_by_who_waits_for_something_later(three: Cluster) -> None:
    owner = three.owners["a"].queries
    three.queries.applied(JOBS, 0, 1_000)
    wait_for(lambda: owner.waiters.any)
    earlier = three.queries.applied(JOBS, 0, 1)
    owner.waiters.applied(JOBS, 0, 2)
    earlier.result(30)


def test_waiting_survives_a_change_of_the_owner(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.give("b", 0)
    wait_for(lambda: three.owners["b"].queries.waiters.any)
    three.owners["b"].queries.waiters.applied(JOBS, 0, 8)
    future.result(30)


def test_waiting_survives_the_death_of_the_owner_and_its_start(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.owners["a"].stop()
    assert not future.done()
    three.owners["a"].queries = Part(three.world, "a")
    three.owners["a"].start()
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.owners["a"].queries.waiters.applied(JOBS, 0, 8)
    future.result(30)


def test_who_waits_no_more_is_forgotten_here_and_at_the_owner(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits_module, "POLL_S", 0.1)
    owner = three.owners["a"].queries
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: owner.waiters.any)
    assert future.cancel()
    wait_for(lambda: three.queries.figures().waiting == 0)
    owner.waiters.applied(JOBS, 0, 1)  # which clears out
    wait_for(lambda: not owner.waiters.any)


def test_who_still_waits_when_the_process_stops_is_told(three: Cluster) -> None:
    future = three.queries.applied(JOBS, 0, 7)
    wait_for(lambda: three.owners["a"].queries.waiters.any)
    three.queries.stop()
    with pytest.raises(ConnectionError, match="the process is stopping"):
        future.result(30)
    with pytest.raises(ConnectionError, match="the process is stopping"):
        three.queries.get_job(key_in(0))
    with pytest.raises(ConnectionError, match="the process is stopping"):
        three.queries.applied(JOBS, 0, 8).result(30)
    three.queries.stop()


def test_a_defect_leaves_nobody_waiting_for_ever(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> int:
        raise ZeroDivisionError("a defect")

    told: list[BaseException] = []
    three.queries._loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    monkeypatch.setattr(three.queries._waits, "_ask", broken)
    with pytest.raises(ConnectionError):
        three.queries.applied(JOBS, 0, 7).result(30)
    assert 0 == three.queries.figures().waiting

    def is_told() -> bool:
        gc.collect()
        return [ZeroDivisionError] == [type(error) for error in told]

    wait_for(is_told)
