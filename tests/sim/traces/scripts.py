"""What the tests of the traces share: rules switched off by number, what stands on the log, and the judgement."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from tests.sim.decisions import Decisions
from tests.sim.evidence import Evidence
from tests.sim.expected import reigns
from tests.sim.oracle import Verdict, Violation, judge
from tests.sim.processes import WorkerProcess
from tests.sim.refold import refold
from tests.sim.world import START_MS, World
from tocsin.schemas.job import HttpTarget, Job, Retry, Schedule
from tocsin.schemas.records import Control, DueRun, RunEvent, RunReport
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import StoreEnvironment
from tocsin.worker.rules import WorkerRules

SETTLE_MAX_MS: Final = 150_000
"""The traces have leases of 10 s and start deadlines of 20 s: with all of them one after the other it is less."""

DUE_MS: Final = 8_000
JOB: Final = Job(
    namespace="sim",
    id="a",
    schedule=Schedule(at_ms=START_MS + DUE_MS),
    http=HttpTarget(url="http://sink.example/old"),
    retry=Retry(max_attempts=3, backoff="fixed", base_ms=1_000, jitter=0.0, max_age_ms=20_000),
    lease_ms=10_000,
)
"""Due within the horizon, so it is dispatched when it is defined."""
EDITED: Final = replace(JOB, http=HttpTarget(url="http://sink.example/new"))


def without(*numbers: str) -> dict[str, Any]:
    """Arguments for World that switch off rules: "p1", "w7"."""
    off = dict.fromkeys(numbers, False)
    streams = {f.name: off.pop(n) for f in fields(StreamRules) if (n := f.name.partition("_")[0]) in off}
    workers = {f.name: off.pop(f.name) for f in fields(WorkerRules) if f.name in off}
    assert not off, f"no such rules: {off}"
    return {"stream_rules": StreamRules(**streams), "worker_rules": WorkerRules(**workers)}


def open_world(world: World) -> None:
    """w0 has every partition of the queue, and has passed its gates. Of other workers none has started."""
    world.start(*world.streams, "w0")
    world.run(1_000, every_ms=50)
    assert set(range(world.queue_partitions)) == world.workers["w0"].owned


def executed(world: World) -> list[str]:
    """What was executed to its end: the last part of each address."""
    return [
        each.run.http.url.rpartition("/")[2]
        for each in world.endpoint.all
        if each.begun and each.ending == "succeeded" and each.run.http is not None
    ]


# --- what stands on the log ---------------------------------------------------------------------------------------------


def dues(world: World) -> list[DueRun]:
    return [each.value for each in Evidence(world).dues]


def reports(world: World, kind: str) -> list[RunReport]:
    return [each.value for each in Evidence(world).reports if each.value.kind == kind]


def controls(world: World) -> list[Control]:
    return [each.value for each in Evidence(world).controls]


def last_events(world: World) -> dict[str, RunEvent]:
    """How each run stands, by its id."""
    return {run_id: events[-1].value for run_id, events in Evidence(world).events_of_run.items()}


def statuses(world: World) -> list[str]:
    """Of all runs, in the order of their opening: status, and the reason if there is one."""
    return [f"{each.status} {each.reason}".strip() for each in last_events(world).values()]


# --- how it ends --------------------------------------------------------------------------------------------------------


def settle(world: World, within_ms: int = SETTLE_MAX_MS) -> None:
    """Nothing more goes wrong: whoever is dead starts again, and everything ends. Raises Violation if it does not."""
    world.forget_planned_faults()
    until_ms = world.now_ms() + within_ms
    while not world.is_quiet():
        if world.now_ms() > until_ms:
            raise Violation("LIVE", f"not settled after {within_ms} ms: {world.what_is_open()}")
        world.start()
        world.round(100)
    world.run(1_000, every_ms=100)


def judged(world: World) -> Verdict:
    """What the judge says of the world as it stands. Raises Violation."""
    world.stop(*world.streams)
    return judge(world)


def judged_decisions(world: World) -> None:
    """What the judge says of the processor's decisions alone, without the executions that it would look at first."""
    world.stop(*world.streams)
    evidence = Evidence(world)
    environment = StoreEnvironment(cache_bytes=8 << 20, write_buffer_bytes=4 << 20)
    for partition in range(world.partitions):
        folded = refold(evidence, partition, world.directory / f"decisions-{partition}", environment)
        folded.store.close()
        Decisions(evidence, reigns(evidence), Verdict()).check(folded)


def settled(world: World) -> Verdict:
    """Everything ends, and no invariant was violated."""
    settle(world)
    return judged(world)


def violated(
    world: World, invariant: str, what: str, *, judgement: Callable[[World], object] = judged
) -> None:
    """The judgement finds this invariant violated, and says `what` (a regular expression) of it."""
    with pytest.raises(Violation, match=what) as found:
        judgement(world)
    assert invariant == found.value.invariant


# --- between two calls of one pass --------------------------------------------------------------------------------------


def freeze_before_control_is_read(world: World, worker: WorkerProcess, meanwhile: Callable[[], None]) -> None:
    """One pass of the worker, in which its process is frozen after it polled its group and before it reads control."""
    assert worker.core is not None
    reader = worker.core._control
    poll = reader.poll

    def thaw_and_poll(max_records: int, timeout_s: float) -> Any:
        reader.poll = poll  # type: ignore[method-assign]
        world.freeze(worker.name)
        meanwhile()
        world.thaw(worker.name)
        return poll(max_records, timeout_s)

    reader.poll = thaw_and_poll  # type: ignore[method-assign]
    world.step(worker.name)
