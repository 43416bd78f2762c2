"""What may be expected while all is well: changes made in time are honoured (I7), and runs begin at their instant."""

from tests.sim.endpoint import Executed
from tests.sim.evidence import Evidence
from tests.sim.expected import Reign, due_of
from tests.sim.verdict import Verdict, Violation
from tests.sim.world import World
from tocsin.worker.offsets import WINDOW_MAX

IN_TIME_MS = 1_000
"""A change that counts so long before an instant reaches the worker: three passes and two commits."""
LATE_MS = 100
"""Of a world that steps every 20 ms."""


def check_health(
    evidence: Evidence,
    reigns: dict[str, list[Reign]],
    paused: dict[str, list[list[int]]],
    verdict: Verdict,
) -> None:
    """Only for a world without any fault. Raises Violation."""
    for each in evidence.begun:
        if each.run.attempt == 1 and each.run.cause in ("schedule", "catchup"):
            _check_change(each, reigns[each.job], paused.get(each.job, []))
            verdict.counts["I7"] += 1
        if _should_be_on_time(evidence.world, evidence.world.endpoint.all, each):
            late_ms = each.handed_wall_ms - each.run.due_ms
            verdict.counts["on time"] += 1
            if late_ms > LATE_MS:
                raise Violation("on time", f"{each} began {late_ms} ms late, and nothing stood in its way")


def _check_change(each: Executed, own: list[Reign], paused: list[list[int]]) -> None:
    due_ms = max(due_of(each.run.nominal_ms, own), each.run.nominal_ms)
    in_force = [reign for reign in own if reign.from_ms + IN_TIME_MS < due_ms]
    if in_force and in_force[-1].revision > each.run.revision:
        raise Violation("I7", f"{each} began by revision {each.run.revision}, not by {in_force[-1].revision}")
    for from_ms, to_ms in paused:
        if from_ms + IN_TIME_MS < due_ms <= to_ms and not _was_past(each, own):
            raise Violation("I7", f"{each} began though the job was paused from {from_ms} to {to_ms}")


def _was_past(each: Executed, own: list[Reign]) -> bool:
    """Whether it is a one-shot that was past when it was defined, and so due then."""
    return any(reign.revision == each.run.revision and each.run.nominal_ms <= reign.from_ms for reign in own)


def _should_be_on_time(world: World, handed: list[Executed], each: Executed) -> bool:
    """Whether it was dispatched ahead, to a worker with a free slot, and behind nothing of its own job.

    What was handed to the executor has a slot, also if it is asked back before it begins.
    """
    if world.window_max < WINDOW_MAX or world.hold_bytes_max < 1 << 20:
        return False
    if each.run.emitted_ms > each.run.due_ms - IN_TIME_MS or each.run.due_ms + LATE_MS > world.hurried_ms:
        return False
    beside = [
        other
        for other in handed
        if other is not each
        and other.handed_wall_ms <= each.handed_wall_ms
        and (not other.ending or other.handed_wall_ms + other.ended_ms - other.handed_ms >= each.run.due_ms)
    ]
    busy = sum(other.worker == each.worker for other in beside)
    return busy < world.workers[each.worker].capacity and all(other.job != each.job for other in beside)
