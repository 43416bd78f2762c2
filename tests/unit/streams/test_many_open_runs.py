"""Jobs whose runs pile up, since no worker takes them: a pass stays short, and nothing is forgotten."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.driver import T0, Driver, driven, job
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams import core as core_module
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.work import Work

EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")


@pytest.fixture
def drive(place: Path, environment: StoreEnvironment) -> Iterator[Driver]:
    with driven(place / "store", environment) as made:
        yield made


def test_a_pass_ends_when_it_has_looked_at_much_and_the_next_goes_on(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive.define(job(EVERY_SECOND, overlap=ALLOW))
    drive.advance(60_000)
    drive.take(object)
    monkeypatch.setattr(core_module, "LOOKS_PER_PASS_MAX", 300)
    drive.now_ms += 20_000
    decided = []
    for _ in range(40):
        drive.advance(1)
        decided.append(len(drive.dues()))
    assert 20 == sum(decided)
    assert 1 < max(decided) < 6
    drive.advance(1_000)
    assert 1 == len(drive.dues())


def test_a_decision_copies_only_what_it_changes(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand runs open, a copy of each would make an occurrence take 7 ms."""
    drive.define(job(EVERY_SECOND, overlap=ALLOW))
    drive.advance(100_000)
    copied = 0
    run = Work.run

    def counted(work: Work, key: object, seq: int) -> object:
        nonlocal copied
        copied += 1
        return run(work, key, seq)  # type: ignore[arg-type]

    monkeypatch.setattr(Work, "run", counted)
    drive.advance(10_000)
    assert copied <= 10
    drive.report(drive.dues()[-1], "succeeded")
    assert copied <= 20
