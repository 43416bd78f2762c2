"""The judge: holds everything that happened in a world against the protocol's invariants.

I1 nothing starts before its instant. I2, LIVE: every occurrence settles. I3 the same attempt is repeated only after a
crash, freeze, cut or lost partition. I4, I6: nothing overlaps that must not, unless a lease or session had expired. I5 no
start after an acknowledged cancel or drop. I7 a change made in time is honoured while all is well. I8 the final state is
true. I9 no lease fires over an unread report. I10, I11 no wrong skip(overlap). I12 nothing changes behind the watermark.
"""

from tests.sim.decisions import Decisions, check_dispositions
from tests.sim.evidence import Evidence
from tests.sim.executions import check_executions
from tests.sim.expected import reigns
from tests.sim.health import check_health
from tests.sim.refold import refold
from tests.sim.stores import check_emissions, check_restored, rows_of
from tests.sim.verdict import Verdict, Violation
from tests.sim.world import World
from tocsin.streams.store import StoreEnvironment

__all__ = ["Verdict", "Violation", "judge"]


def judge(world: World, *, healthy: bool = False) -> Verdict:
    """Judge a world that stands still: every streams process must be stopped, or dead. Raises Violation.

    `healthy`: nothing went wrong in it.
    """
    assert not any(process.alive for process in world.streams.values())
    evidence = Evidence(world)
    verdict = Verdict()
    own = reigns(evidence)
    check_executions(evidence, own, verdict)
    check_dispositions(evidence, own, verdict)
    paused: dict[str, list[list[int]]] = {}
    environment = StoreEnvironment(cache_bytes=8 << 20, write_buffer_bytes=4 << 20)
    for partition in range(world.partitions):
        folded = refold(evidence, partition, world.directory / f"refold-{partition}", environment)
        decisions = Decisions(evidence, own, verdict)
        decisions.check(folded)
        paused |= decisions.paused
        check_emissions(evidence, folded)
        rows = rows_of(folded.store)
        folded.store.close()
        check_restored(world, partition, rows, environment)
    if healthy:
        check_health(evidence, own, paused, verdict)
    return verdict
