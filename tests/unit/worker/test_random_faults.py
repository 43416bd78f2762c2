"""Workers under random crashes, freezes, cuts, lags, stops, edits and cancels, judged by what they executed."""

import pytest

from tests.unit.worker.model import Chaos
from tocsin.worker.rules import WorkerRules


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_overlaps_whatever_breaks(seed: int) -> None:
    assert [] == Chaos(seed, faults=True).run(40)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_executed_twice_while_nothing_breaks(seed: int) -> None:
    chaos = Chaos(seed, faults=False)
    assert [] == chaos.run(40)
    assert len(chaos.history) > 20


@pytest.mark.parametrize(
    ("rules", "violated"),
    [
        (WorkerRules(w1=False), "LIVE"),
        (WorkerRules(w3=False), "I5"),
        (WorkerRules(w6=False), "I4"),
        (WorkerRules(w7=False), "I4"),
    ],
)
def test_the_judge_sees_what_happens_without_a_rule(rules: WorkerRules, violated: str) -> None:
    chaos = (Chaos(seed, faults=True, rules=rules) for seed in range(20))
    assert any(violation.startswith(violated) for each in chaos for violation in each.run(40))
