"""What really happened, gathered from the log, the endpoint and the world: the judge looks at nothing else."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from tests.sim.endpoint import Executed
from tests.sim.world import Happening, World
from tocsin.log.port import Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import (
    Control,
    DueRun,
    JobDefinition,
    JobEvent,
    Journal,
    RunEvent,
    RunReport,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Logged(Generic[T]):
    """One committed record, decoded, with the step in which it was appended."""

    record: Record
    step: int
    value: T


@dataclass
class Evidence:
    """Of one world, once it stands still."""

    world: World
    _decoded: dict[bytes, object] = field(default_factory=dict)

    def committed(self, topic: str, partition: int) -> list[Record]:
        return [
            stored.record
            for stored in self.world.log.records(topic, partition)
            if stored.state == "committed"
        ]

    def of(self, kind: type[T], topic: str, partition: int) -> list[Logged[T]]:
        """The committed records of one partition that are a `kind`, in order."""
        ends = self.world.appended.get(TopicPartition(topic, partition), [])
        found = []
        for record in self.committed(topic, partition):
            if record.value is None:
                continue
            value = self.decode(record.value)
            if isinstance(value, kind):
                at = bisect_right(ends, (record.offset, 1 << 60))
                found.append(Logged(record, ends[at][1] if at < len(ends) else self.world.steps, value))
        return found

    def decode(self, data: bytes) -> object:
        found = self._decoded.get(data)
        if found is None:
            try:
                found = codec.decode(data)
            except codec.CodecError as error:
                found = error
            self._decoded[data] = found
        return found

    def _all(self, kind: type[T], topic: str, partitions: int) -> list[Logged[T]]:
        return [each for p in range(partitions) for each in self.of(kind, topic, p)]

    # --- by topic

    @cached_property
    def run_events(self) -> list[Logged[RunEvent]]:
        return self._all(RunEvent, self.world.names.runs, self.world.partitions)

    @cached_property
    def job_events(self) -> list[Logged[JobEvent]]:
        return self._all(JobEvent, self.world.names.runs, self.world.partitions)

    @cached_property
    def definitions(self) -> dict[tuple[int, int], Logged[JobDefinition]]:
        """By partition and offset of `jobs`."""
        found = self._all(JobDefinition, self.world.names.jobs, self.world.partitions)
        return {(each.record.partition, each.record.offset): each for each in found}

    @cached_property
    def reports(self) -> list[Logged[RunReport]]:
        return self._all(RunReport, self.world.names.outcomes, self.world.partitions)

    @cached_property
    def journals(self) -> list[list[Logged[Journal]]]:
        return [
            self.of(Journal, self.world.names.journal, partition)
            for partition in range(self.world.partitions)
        ]

    @cached_property
    def queues(self) -> list[str]:
        prefix = self.world.names.due("")
        return [topic.removeprefix(prefix) for topic in self.world.log.topics() if topic.startswith(prefix)]

    @cached_property
    def dues(self) -> list[Logged[DueRun]]:
        names, count = self.world.names, self.world.queue_partitions
        return [
            each
            for queue in self.queues
            for topic in (names.due(queue), names.due_now(queue))
            for each in self._all(DueRun, topic, count)
        ]

    @cached_property
    def controls(self) -> list[Logged[Control]]:
        names, count = self.world.names, self.world.queue_partitions
        found = [each for queue in self.queues for each in self._all(Control, names.control(queue), count)]
        return sorted(found, key=lambda each: each.step)

    # --- by run and job

    @cached_property
    def events_of_run(self) -> dict[str, list[Logged[RunEvent]]]:
        """Without the series of skips."""
        found: dict[str, list[Logged[RunEvent]]] = defaultdict(list)
        for each in self.run_events:
            if each.value.seq:
                found[each.value.run_id].append(each)
        return found

    @cached_property
    def opened(self) -> set[tuple[str, int]]:
        """The occurrences (job, nominal) that became a run."""
        return {
            (f"{event.namespace}/{event.job_id}", event.nominal_ms)
            for run_id, events in self.events_of_run.items()
            for event in [events[0].value]
            if "@" in run_id
        }

    @cached_property
    def dues_of_run(self) -> dict[str, list[Logged[DueRun]]]:
        found: dict[str, list[Logged[DueRun]]] = defaultdict(list)
        for each in self.dues:
            found[each.value.run_id].append(each)
        for dues in found.values():
            dues.sort(key=lambda each: (each.step, each.value.dispatch))
        return found

    @cached_property
    def reports_of_run(self) -> dict[str, list[Logged[RunReport]]]:
        found: dict[str, list[Logged[RunReport]]] = defaultdict(list)
        for each in self.reports:
            found[each.value.run_id].append(each)
        return found

    @cached_property
    def begun(self) -> list[Executed]:
        """In the order in which they began."""
        found = [each for each in self.world.endpoint.all if each.begun]
        return sorted(found, key=lambda each: (each.begun_ms, each.begun_step))

    @cached_property
    def begun_of_run(self) -> dict[str, list[Executed]]:
        found: dict[str, list[Executed]] = defaultdict(list)
        for each in self.begun:
            found[each.run.run_id].append(each)
        return found

    # --- what befell a worker

    @cached_property
    def _befell(self) -> dict[str, list[Happening]]:
        found: dict[str, list[Happening]] = defaultdict(list)
        for each in self.world.happenings:
            found[each.process].append(each)
        return found

    def befell(self, worker: str, *kinds: str, from_ms: int, to_ms: int) -> bool:
        """Whether one of these happened to the process in this stretch of true time."""
        return any(
            each.kind in kinds and from_ms <= each.at_ms <= to_ms for each in self._befell.get(worker, ())
        )

    def was_disturbed(self, worker: str, from_ms: int, to_ms: int) -> bool:
        """Whether it crashed, was frozen or cut off, or lost a partition, in this stretch (or was so throughout)."""
        if self.befell(
            worker,
            "crash",
            "freeze",
            "thaw",
            "cut",
            "heal",
            "expired",
            "revoked",
            "lost",
            from_ms=from_ms,
            to_ms=to_ms,
        ):
            return True
        return self._state_at(worker, from_ms, "freeze", "thaw") or self._state_at(
            worker, from_ms, "cut", "heal"
        )

    def _state_at(self, worker: str, at_ms: int, begin: str, end: str) -> bool:
        state = False
        for each in self._befell.get(worker, ()):
            if each.at_ms > at_ms:
                break
            if each.kind in (begin, end, "crash"):
                state = each.kind == begin
        return state

    def session_ended(self, worker: str, from_ms: int, to_ms: int) -> bool:
        return self.befell(worker, "expired", from_ms=from_ms, to_ms=to_ms)
