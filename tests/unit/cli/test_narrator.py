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
