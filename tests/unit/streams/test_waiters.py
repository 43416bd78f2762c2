"""Waiting until a record is applied: in any order of asking and applying, from any thread."""

from concurrent.futures import Future, wait
from random import Random
from threading import Barrier, Thread

import pytest

from tocsin.log.port import LogUnavailable
from tocsin.streams.waiters import Waiters

WITHIN_S = 30.0


def test_who_asks_before_is_told_by_the_commit_that_applies_it() -> None:
    waiters = Waiters()
    future = waiters.add("jobs", 0, 7)
    waiters.applied("jobs", 0, 7)  # up to 6
    assert not future.done()
    assert waiters.any
    waiters.applied("jobs", 0, 8)
    assert future.done()
    assert not waiters.any


def test_who_asks_afterwards_is_told_at_once() -> None:
    waiters = Waiters()
    waiters.applied("jobs", 0, 8)
    assert waiters.add("jobs", 0, 7).done()
    assert not waiters.add("jobs", 0, 8).done()


def test_each_partition_and_topic_counts_for_itself() -> None:
    waiters = Waiters()
    asked = {at: waiters.add(*at, 3) for at in (("jobs", 0), ("jobs", 1), ("commands", 0), ("commands", 1))}
    waiters.applied("jobs", 1, 4)
    assert [("jobs", 1)] == [at for at, future in asked.items() if future.done()]
    waiters.applied("commands", 0, 100)
    assert [("jobs", 1), ("commands", 0)] == [at for at, future in asked.items() if future.done()]
    assert waiters.any


def test_of_many_those_below_are_told_and_the_others_wait_on() -> None:
    waiters = Waiters()
    futures = [waiters.add("jobs", 0, offset) for offset in (5, 1, 3, 3, 9)]
    waiters.applied("jobs", 0, 4)
    assert [False, True, True, True, False] == [future.done() for future in futures]
    waiters.applied("jobs", 0, 10)
    assert all(future.done() for future in futures)


def test_who_waits_for_a_partition_that_goes_elsewhere_is_told_and_the_others_wait_on() -> None:
    waiters = Waiters()
    moving = [waiters.add("jobs", 1, 3), waiters.add("commands", 1, 3)]
    staying = waiters.add("jobs", 2, 3)
    waiters.gone(1)
    for future in moving:
        with pytest.raises(LogUnavailable, match="partition 1 is moving"):
            future.result(0)
    assert not staying.done()
    again = waiters.add("jobs", 1, 3)  # it has come back
    waiters.applied("jobs", 1, 4)
    assert again.done()
    assert waiters.any
    waiters.gone(2)
    assert not waiters.any


def test_who_has_given_up_waiting_hinders_nobody() -> None:
    waiters = Waiters()
    given_up, waiting = waiters.add("jobs", 0, 1), waiters.add("jobs", 0, 1)
    assert given_up.cancel()
    waiters.applied("jobs", 0, 2)
    assert given_up.cancelled()
    assert waiting.done()
    other = waiters.add("jobs", 0, 5)
    assert other.cancel()
    waiters.fail(RuntimeError("stopped"))
    assert other.cancelled()


def test_who_has_given_up_does_not_keep_the_commits_fast() -> None:
    """The record may be one that never comes; `any` makes each commit an urgent one."""
    waiters = Waiters()
    waiters.add("jobs", 0, 10).cancel()
    waiters.applied("jobs", 0, 2)
    assert not waiters.any
    waiters.add("jobs", 1, 10).cancel()
    assert waiters.add("jobs", 1, 3).cancel()
    waiters.applied("jobs", 1, 2)
    assert not waiters.any


def test_when_nobody_applies_any_more_all_are_told_why() -> None:
    waiters = Waiters()
    futures = [waiters.add("jobs", 0, 1), waiters.add("commands", 3, 1)]
    waiters.fail(RuntimeError("the stream processor stopped"))
    for future in futures:
        with pytest.raises(RuntimeError, match="stopped"):
            future.result(0)
    assert not waiters.any


def test_who_asks_after_the_end_is_told_why_too() -> None:
    waiters = Waiters()
    waiters.applied("jobs", 0, 5)
    waiters.fail(RuntimeError("the stream processor stopped"))
    assert waiters.add("jobs", 0, 4).result(0) is None
    with pytest.raises(RuntimeError, match="stopped"):
        waiters.add("jobs", 0, 5).result(0)
    assert not waiters.any


def test_no_call_of_many_threads_is_forgotten() -> None:
    waiters = Waiters()
    start = Barrier(5)
    futures: list[list[Future[None]]] = [[] for _ in range(4)]

    def ask(mine: list[Future[None]], seed: int) -> None:
        random = Random(seed)
        start.wait()
        mine.extend(waiters.add("jobs", random.randrange(3), random.randrange(500)) for _ in range(2_000))

    threads = [Thread(target=ask, args=(mine, seed)) for seed, mine in enumerate(futures)]
    for thread in threads:
        thread.start()
    start.wait()
    for offset in range(1, 501):
        for partition in range(3):
            waiters.applied("jobs", partition, offset)
    for thread in threads:
        thread.join(WITHIN_S)
    for partition in range(3):  # for those who came when all was applied but for the last look
        waiters.applied("jobs", partition, 500)
    asked = [future for mine in futures for future in mine]
    assert 8_000 == len(asked)
    assert set() == wait(asked, WITHIN_S).not_done
    assert not waiters.any
