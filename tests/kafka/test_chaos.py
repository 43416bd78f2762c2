"""One round of chaos in every run of the tests; `make chaos` runs as many as wanted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.chaos import run_round
from tests.kafka.judge import Verdict
from tests.kafka.plans import plan
from tests.kafka.telling import Tell
from tocsin.broker import LocalKafka

SEED = 1


def test_the_same_seed_is_the_same_plan() -> None:
    assert plan(7) == plan(7)
    assert 1 < len({str(plan(seed)) for seed in range(20)})


def test_plans_harm_every_kind_of_process_in_every_way() -> None:
    faults = [each for seed in range(100) for each in plan(seed).faults]
    assert {"kill", "freeze", "restart"} == {each.deed for each in faults}
    kinds = {each.target.partition("-")[0] for each in faults}
    assert {"streams", "worker", "broker", "api"} == kinds
    assert {1, 2, 3} == {len(plan(seed).standby) for seed in range(100)}
    assert all(each.target != "broker" for seed in range(100) for each in plan(seed, broker=False).faults)


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_round_of_chaos_loses_nothing_and_dispatches_nothing_twice(
    local_kafka: Callable[..., LocalKafka], tmp_path: Path, tell: Tell
) -> None:
    broker = local_kafka()
    chosen = plan(SEED, span_s=15.0)
    found, output = run_round(broker.bootstrap, tmp_path / "round", chosen, broker)
    assert isinstance(found, Verdict), f"{found}\n{chosen}\n{output}"
    tell(f"chaos ({chosen})", found)
