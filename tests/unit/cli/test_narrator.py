"""What a role tells of itself: each thing once, and not everything that passes."""

from tocsin.cli.roles.narrator import AGAIN_S, PATIENCE_S, Narrator
from tocsin.clock import FakeClock


def test_a_start_is_told_with_what_it_waits_for_and_its_end() -> None:
    narrator = Narrator("worker", FakeClock())
    said = [narrator.line(reason) for reason in ("no broker", "no broker", "", "")]
    assert ["Tocsin worker is not ready: no broker", "", "Tocsin worker is ready", ""] == said


def test_a_start_without_trouble_is_told_in_one_line() -> None:
    narrator = Narrator("api", FakeClock())
    assert ["Tocsin api is ready", ""] == [narrator.line(""), narrator.line("")]


def test_a_rebalance_that_is_soon_over_is_no_news() -> None:
    clock = FakeClock()
    narrator = Narrator("streams", clock)
    narrator.line("")
    assert "" == narrator.line("a partition moves")
    clock.advance(round(PATIENCE_S * 1000) - 1)
    assert "" == narrator.line("a partition moves")
    assert "" == narrator.line("")


def test_an_outage_is_told_and_that_it_is_over() -> None:
    clock = FakeClock()
    narrator = Narrator("streams", clock)
    narrator.line("")
    narrator.line("the log does not answer")
    clock.advance(round(PATIENCE_S * 1000))
    assert "Tocsin streams is not ready: the log does not answer" == narrator.line("the log does not answer")
    assert "Tocsin streams is ready again" == narrator.line("")


def test_the_end_of_a_degradation_is_told_as_such() -> None:
    """It was ready all the while: its balancer has never seen anything else."""
    clock = FakeClock()
    narrator = Narrator("api", clock)
    narrator.line("")
    for _ in range(2):
        narrator.line("6 of 12 partitions cannot be asked", degraded=True)
        clock.advance(round(PATIENCE_S * 1000))
    assert "Tocsin api is whole again" == narrator.line("")
    assert "" == narrator.line("")


def test_a_degradation_that_became_an_outage_ends_when_it_is_ready_again() -> None:
    clock = FakeClock()
    narrator = Narrator("api", clock)
    said = [narrator.line("")]
    for degraded in (True, True, False, False):
        clock.advance(round(AGAIN_S * 1000))
        said.append(narrator.line(f"reason {degraded}", degraded=degraded))
    assert ["Tocsin api is degraded: reason True", "Tocsin api is not ready: reason False"] == [
        line for line in said[1:] if line
    ]
    assert "Tocsin api is ready again" == narrator.line("")


def test_an_outage_that_became_a_degradation_is_told_at_once_and_its_end_too() -> None:
    clock = FakeClock()
    narrator = Narrator("api", clock)
    narrator.line("")
    for _ in range(2):
        narrator.line("the log does not answer")
        clock.advance(round(AGAIN_S * 1000))
    assert "Tocsin api is degraded: 6 of 12" == narrator.line("6 of 12", degraded=True)
    assert "Tocsin api is whole again" == narrator.line("")


def test_progress_is_told_every_few_seconds() -> None:
    clock = FakeClock()
    narrator = Narrator("streams", clock)
    said = []
    for done in range(100):
        said.append(narrator.line(f"{done} of 100 rows"))
        clock.advance(100)
    lines = [line for line in said if line]
    assert round(10 / AGAIN_S) == len(lines)
    assert "Tocsin streams is not ready: 0 of 100 rows" == lines[0]


def test_a_role_that_does_its_own_part_is_called_degraded() -> None:
    narrator = Narrator("api", FakeClock())
    assert "Tocsin api is degraded: partition 3 moves" == narrator.line("partition 3 moves", degraded=True)
