"""A run that the endpoint takes for longer than its request: claimed, left to it, and in nobody's way here."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from tests.unit.worker.endpoints import RUN, call, caller, endpoint
from tests.unit.worker.world import NAMES, World
from tocsin.schemas.callbacks import Callbacks, InvalidToken, read_token
from tocsin.schemas.job import HttpTarget
from tocsin.schemas.records import Control

SECRET = "of-the-cluster"
CALLBACKS = Callbacks("https://tocsin.example.com/", SECRET)


def accepted(world: World, lease_ms: int = 600_000, **settings: object) -> str:
    """A run that its endpoint has accepted; the id of its execution."""
    worker = world.executing(**settings)  # type: ignore[arg-type]
    execution = worker.executor.only()
    worker.executor.end(execution, "accepted", lease_ms=lease_ms, http_status=202)
    world.pass_time(100)
    return execution


# --- the core -----------------------------------------------------------------------------------------------------------


def test_an_accepted_run_is_claimed_with_the_endpoints_lease_and_finished_when_the_claim_comes_back(
    world: World,
) -> None:
    execution = accepted(world)
    (report,) = world.reports()
    assert ("started", execution, 600_000) == (report.kind, report.execution, report.lease_ms)
    world.pass_time(2_000)
    assert 0 == world.committed().offset

    world.control(Control(run_id="ns/a@1", claimed_dispatch=1, claimed_execution=execution, claimed_epoch=1))
    world.pass_time(2_000)
    assert 1 == world.committed().offset
    assert 0 == len(world.workers["w0"].core._holding)

    world.pass_time(700_000, step_ms=1_000)
    assert ["started"] == world.kinds()  # heartbeats are the endpoint's business


def test_a_run_that_was_claimed_before_it_was_accepted_tells_its_lease_all_the_same(world: World) -> None:
    world.answer_claims = True
    worker = world.executing()
    world.pass_time(2_000)
    worker.executor.end(worker.executor.only(), "accepted", lease_ms=600_000)
    world.pass_time(1_000)
    assert [0, 600_000] == [report.lease_ms for report in world.reports("started")]
    assert 1 == world.committed().offset


def test_an_accepted_run_leaves_its_place_at_the_target_to_the_next(world: World) -> None:
    worker = world.worker(per_target_max=1)
    world.due(world.run("ns/a@1"))
    world.due(world.run("ns/b@1"))
    world.settle()
    world.pass_time(50)
    assert ["ns/a@1"] == worker.executor.runs()
    worker.executor.end("e1", "accepted", lease_ms=600_000)
    world.pass_time(50)
    assert ["ns/a@1", "ns/b@1"] == worker.executor.runs()


def test_an_accepted_run_whose_claim_nobody_answers_is_lost_with_its_lease(world: World) -> None:
    accepted(world, lease_ms=5_000)
    world.pass_time(5_000)
    started, failed = world.reports()
    assert ("started", "failed", True) == (started.kind, failed.kind, failed.retryable)
    assert failed.error.startswith("lost: the endpoint accepted the run")


def test_an_accepted_run_that_is_not_confirmed_is_handed_out_again_after_its_worker_is_gone(
    world: World,
) -> None:
    accepted(world)
    world.crash("w0")
    second = world.worker("w1")
    world.pass_time(8_000)
    assert ["ns/a@1"] == second.executor.runs()


def test_a_confirmed_one_is_not(world: World) -> None:
    world.answer_claims = True
    accepted(world)
    world.pass_time(2_000)
    world.crash("w0")
    second = world.worker("w1")
    world.pass_time(8_000)
    assert [] == second.executor.runs()


def test_a_worker_hands_over_an_accepted_run_in_order(world: World) -> None:
    world.answer_claims = True
    accepted(world)
    worker = world.workers["w0"]
    worker.core.stop()
    world.pass_time(1_000)
    assert worker.core.is_drained()
    worker.core.close()
    assert ["started"] == world.kinds()


def test_a_cancel_of_an_accepted_run_is_the_endpoints_to_answer(world: World) -> None:
    accepted(world)
    world.control(Control(run_id="ns/a@1", withdrawn_upto=1, withdrawn_how="cancel"))
    world.pass_time(2_000)
    assert ["started"] == world.kinds()


def test_an_accepted_run_that_is_settled_meanwhile_is_finished_in_silence(world: World) -> None:
    accepted(world)
    world.control(Control(run_id="ns/a@1", settled_upto=1))
    world.pass_time(2_000)
    assert ["started"] == world.kinds()
    assert 1 == world.committed().offset


def test_a_lease_that_the_log_does_not_take_at_first_is_told_again(world: World) -> None:
    worker = world.executing()
    world.log.faults.lose_acknowledgement_of_next(NAMES.outcomes)
    worker.executor.end(worker.executor.only(), "accepted", lease_ms=600_000)
    world.pass_time(1_000)
    assert [600_000, 600_000] == [report.lease_ms for report in world.reports("started")]


# --- the request --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_an_endpoint_that_answers_202_with_a_lease_has_accepted_the_run() -> None:
    async with endpoint(_answer("600")) as sink, caller(callbacks=CALLBACKS) as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("accepted", 600_000, 202) == (outcome.kind, outcome.lease_ms, outcome.http_status)
    url = sink.only.headers["tocsin-callback"]
    prefix, _, token = url.rpartition("/")
    assert "https://tocsin.example.com/v1/callbacks" == prefix
    meant = read_token(token, SECRET)
    assert (RUN.run_id, RUN.seq, RUN.dispatch, RUN.attempt) == (
        meant.run_id,
        meant.seq,
        meant.dispatch,
        meant.attempt,
    )


@pytest.mark.asyncio
async def test_202_without_a_lease_is_a_success_like_any_other() -> None:
    async with endpoint(_answer(None)) as sink, caller(callbacks=CALLBACKS) as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert "succeeded" == outcome.kind


@pytest.mark.asyncio
@pytest.mark.parametrize("lease", ["0", "-5", "soon", "86401", "", "1.5", "٣"])
async def test_a_lease_that_is_none_fails_for_good_and_says_what_one_looks_like(lease: str) -> None:
    async with endpoint(_answer(lease)) as sink, caller(callbacks=CALLBACKS) as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert "whole number of seconds from 1 to 86400" in outcome.error


@pytest.mark.asyncio
async def test_a_worker_that_has_no_address_for_callbacks_says_so() -> None:
    async with endpoint(_answer("600")) as sink, caller() as http:
        outcome = await call(http, HttpTarget(url=sink.url))
    assert "tocsin-callback" not in sink.only.headers
    assert ("failed", False) == (outcome.kind, outcome.retryable)
    assert "--callback-url" in outcome.error


# --- tokens -------------------------------------------------------------------------------------------------------------


def test_a_token_that_was_changed_or_is_of_another_cluster_is_none() -> None:
    token = CALLBACKS.url(RUN).rpartition("/")[2]
    content, _, mac = token.partition(".")
    other = Callbacks("https://x", "another").url(RUN).rpartition("/")[2]
    for wrong in (
        other,
        content,
        f"{content}.",
        f"{content[:-2]}.{mac}",
        f"{token}x",
        "",
        ".",
        "é.é",
        "a" * 3_000,
    ):
        with pytest.raises(InvalidToken):
            read_token(wrong, SECRET)
    with pytest.raises(InvalidToken):
        read_token(token, "")


def _answer(lease: str | None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        headers = {} if lease is None else {"Tocsin-Lease": lease}
        return web.Response(status=202, headers=headers)

    return answer
