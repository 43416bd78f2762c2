"""The judge of state: what the log says, folded again or restored, is what the stores hold, byte for byte."""

from collections import defaultdict

from tests.sim.evidence import Evidence
from tests.sim.refold import Refolded
from tests.sim.verdict import Violation
from tests.sim.world import World
from tocsin.schemas.records import DueRun
from tocsin.streams.families import FAMILIES, HISTORY
from tocsin.streams.partitions import STATE_DELETE_RETENTION_MS
from tocsin.streams.restore import Restore
from tocsin.streams.store import PartitionStore, StoreEnvironment

Rows = dict[tuple[str, bytes], bytes]


def rows_of(store: PartitionStore, *, history: bool = True) -> Rows:
    """Everything in a store but timers (which verify() compares with the rows) and positions."""
    problems = store.verify()
    if problems:
        raise Violation("timers", f"{store.path}: {problems}")
    names = [family.name for family in FAMILIES] + ([HISTORY] if history else [])
    return {(name, key): value for name in names for key, value in store.database.items(name)}


def compare(what: str, wanted: Rows, got: Rows) -> None:
    if wanted == got:
        return
    for at in sorted(wanted.keys() | got.keys()):
        if wanted.get(at) != got.get(at):
            raise Violation("state", f"{what}: {at} is {got.get(at)!r}, not {wanted.get(at)!r}")


def check_restored(world: World, partition: int, wanted: Rows, environment: StoreEnvironment) -> None:
    """A store that was wiped, and every store that was left behind, is the refolded one once it has read the log."""
    directories = {"an empty store": world.directory / f"restored-{partition}"}
    for name, process in world.streams.items():
        directories[f"the store of {name}"] = process.directory / f"partition-{partition}"
    for what, directory in directories.items():
        store = PartitionStore.open(directory, environment)
        try:
            restore(world, partition, store)
            compare(f"partition {partition}, {what}", wanted, rows_of(store))
        finally:
            store.close()


def restore(world: World, partition: int, store: PartitionStore) -> None:
    restoring = Restore(
        store,
        world.log,
        world.clock,
        partition=partition,
        state_topic=world.names.state,
        runs_topic=world.names.runs,
        delete_retention_ms=STATE_DELETE_RETENTION_MS,
    )
    try:
        while not restoring.done:
            restoring.step(1_000, 0.0)
    finally:
        restoring.close()


def check_emissions(evidence: Evidence, folded: Refolded) -> None:
    """What stands on the log is what the fold has emitted, in its order: neither more nor less."""
    names = evidence.world.names
    emitted: dict[tuple[str, int], list[bytes | None]] = defaultdict(list)
    for tick in folded.ticks:
        for each in tick.emissions:
            emitted[each.topic, each.partition].append(each.value)
    p = folded.partition
    logged = [record.value for record in evidence.committed(names.runs, p)]
    wanted = emitted[names.runs, p]
    if logged != wanted:
        raise Violation("emissions", f"{names.runs}[{p}] has {len(logged)} records, not {len(wanted)}")
    dues = sum(
        isinstance(evidence.decode(value or b""), DueRun) for values in emitted.values() for value in values
    )
    keys = {
        f"{tick_run.namespace}/{tick_run.job_id}"
        for values in emitted.values()
        for value in values
        if isinstance(tick_run := evidence.decode(value or b""), DueRun)
    }
    logged_dues = [each for each in evidence.dues if f"{each.value.namespace}/{each.value.job_id}" in keys]
    if len(logged_dues) != dues:
        raise Violation(
            "emissions", f"{len(logged_dues)} due records of partition {p} are logged, not {dues}"
        )
