"""Folds the inputs of every partition again, as its journal says, into an empty store: the same effects must come out.

What it finds on the way, tick by tick, is what the checks of the processor's decisions look at.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tests.sim.evidence import Evidence, Logged
from tocsin.log.port import Record
from tocsin.schemas.records import Cluster, Journal, Queue, Switch
from tocsin.streams.config import Configuration
from tocsin.streams.core import Inputs, PartitionCore
from tocsin.streams.effects import Emission
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View


class RefoldDiffers(AssertionError):
    """The same inputs, at the same instants, gave other effects: the fold depends on something that is not journaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One journal row, and what the fold emitted for it."""

    journal: Journal
    before: Journal
    step: int
    log_ms: int
    """When the log took it, by its own clock."""
    emissions: tuple[Emission, ...]


@dataclass(slots=True)
class Refolded:
    """One partition, folded to its newest journal row. `store` is open."""

    partition: int
    ticks: list[Tick]
    store: PartitionStore
    view: View


def refold(evidence: Evidence, partition: int, directory: Path, environment: StoreEnvironment) -> Refolded:
    """Raises RefoldDiffers."""
    world = evidence.world
    names = world.names
    inputs = {
        topic: evidence.committed(topic, partition) for topic in (names.outcomes, names.commands, names.jobs)
    }
    store = PartitionStore.open(directory, environment)
    store.start_empty()
    view = store.view(check=True)
    core = PartitionCore(
        partition=partition,
        names=names,
        view=view,
        transactional_id="",
        journal=Journal(tick=0, now_ms=0, transactional_id=""),
        rules=world.stream_rules,
        timers_per_pass_max=world.timers_per_pass_max,
    )
    ticks: list[Tick] = []
    for row in evidence.journals[partition]:
        before = core.journal
        _fold(evidence, core, row, inputs)
        _compare(partition, row.value, core.journal)
        tick = Tick(
            journal=row.value,
            before=before,
            step=row.step,
            log_ms=row.record.timestamp_ms,
            emissions=tuple(core.effects.emissions),
        )
        ticks.append(tick)
        core.effects.reset()
    view.changes()
    view.commit(Position(journal=b"", changelog_offset=0, changelog_time_ms=0))
    return Refolded(partition, ticks, store, view)


def _fold(
    evidence: Evidence, core: PartitionCore, row: Logged[Journal], inputs: dict[str, list[Record]]
) -> None:
    names, before, wanted = core.names, core.journal, row.value
    core.transactional_id = wanted.transactional_id
    if _is_claim(before, wanted) or wanted.released:
        core.journal = replace(wanted, released=False, tick=wanted.tick)
        return
    core.tick(
        Inputs(
            outcomes=_between(inputs[names.outcomes], before.outcomes_offset, wanted.outcomes_offset),
            commands=_between(inputs[names.commands], before.commands_offset, wanted.commands_offset),
            jobs=_between(inputs[names.jobs], before.jobs_offset, wanted.jobs_offset),
            outcomes_offset=wanted.outcomes_offset,
            commands_offset=wanted.commands_offset,
            jobs_offset=wanted.jobs_offset,
        ),
        wall_ms=wanted.now_ms,
        reports_through_ms=wanted.reports_through_ms,
        config=configuration(evidence, wanted.config_offset),
        fire=wanted.fired,
    )


def _is_claim(before: Journal, row: Journal) -> bool:
    """A row that was written to say who has the partition; nothing was folded for it."""
    if row.effects or row.digest:
        return False
    return replace(
        row, tick=before.tick, transactional_id=before.transactional_id, digest=0, effects=0
    ) == replace(before, digest=0, effects=0)


def _between(records: list[Record], from_offset: int, to_offset: int) -> list[Record]:
    return [each for each in records if from_offset <= each.offset < to_offset]


def _compare(partition: int, wanted: Journal, got: Journal) -> None:
    wanted = replace(wanted, released=False)
    if wanted != got:
        raise RefoldDiffers(f"partition {partition}: the journal says {wanted}, folding it again gives {got}")


def configuration(evidence: Evidence, offset: int) -> Configuration:
    """As of (not including) an offset of `config`."""
    found: Configuration | None = None
    for record in evidence.committed(evidence.world.names.config, 0):
        if record.offset >= offset or record.value is None:
            continue
        value = evidence.decode(record.value)
        if found is None:
            if isinstance(value, Cluster):
                found = Configuration(cluster=value, offset=record.offset + 1)
        elif isinstance(value, (Cluster, Queue, Switch)):
            found = found.with_record(value, record.offset)
    assert found is not None
    return found
