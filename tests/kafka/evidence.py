"""What the log says, read with a client of its own: nothing is asked of the processes that are judged."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tocsin.log.port import EventLog, Reader, Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import DueRun, JobDefinition, JobEvent, Journal, Quarantined, RunEvent, RunReport
from tocsin.schemas.topics import TopicNames

T = TypeVar("T")

POLL_S: Final = 0.1
ENDED: Final = frozenset(("succeeded", "failed", "cancelled", "superseded", "skipped"))


@dataclass(frozen=True, slots=True)
class Logged(Generic[T]):
    record: Record
    value: T


@dataclass
class Evidence:
    """Of one cluster. refresh() reads on to the end; what was read stays."""

    log: EventLog
    names: TopicNames
    runs: dict[str, list[Logged[RunEvent]]] = field(default_factory=lambda: defaultdict(list))
    """By run id, those with a seq: occurrences that became a run, triggers, ..."""
    series: dict[str, list[RunEvent]] = field(default_factory=lambda: defaultdict(list))
    """By job, skipped occurrences that never were a run."""
    job_events: dict[str, list[JobEvent]] = field(default_factory=lambda: defaultdict(list))
    definitions: dict[str, list[Logged[JobDefinition]]] = field(default_factory=lambda: defaultdict(list))
    dues: list[Logged[DueRun]] = field(default_factory=list)
    reports: dict[str, list[RunReport]] = field(default_factory=lambda: defaultdict(list))
    journals: dict[int, list[Logged[Journal]]] = field(default_factory=lambda: defaultdict(list))
    quarantined: list[Quarantined] = field(default_factory=list)
    _reader: Reader | None = None
    _read: set[TopicPartition] = field(default_factory=set)

    def topics(self) -> Iterable[str]:
        names = self.names
        yield from (names.runs, names.jobs, names.outcomes, names.journal, names.quarantine)
        for topic in sorted(self.log.topics()):
            if topic.startswith((names.due(""), names.due_now(""))):
                yield topic

    def refresh(self) -> "Evidence":
        """Everything that is committed now has been read afterwards."""
        if self._reader is None:
            self._reader = self.log.reader("committed")
            self._reader.assign({})
        reader = self._reader
        wanted = [
            TopicPartition(topic, number)
            for topic in self.topics()
            for number in range(self.log.partitions(topic))
        ]
        for each in wanted:
            if each not in self._read:
                reader.add(each, self.log.begin_offset(each))
                self._read.add(each)
        ends = self.log.end_offsets(wanted, "committed")
        while any(reader.position(each) < end for each, end in ends.items()):
            for record in reader.poll(5_000, POLL_S):
                self._take(record)
        return self

    def _take(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            value: Any = codec.decode(record.value)
        except codec.CodecError:
            return  # a scenario's own poison
        match value:
            case RunEvent(seq=0):
                self.series[f"{value.namespace}/{value.job_id}"].append(value)
            case RunEvent():
                self.runs[value.run_id].append(Logged(record, value))
            case JobEvent():
                self.job_events[f"{value.namespace}/{value.job_id}"].append(value)
            case JobDefinition():
                self.definitions[f"{value.namespace}/{value.id}"].append(Logged(record, value))
            case DueRun():
                self.dues.append(Logged(record, value))
            case RunReport():
                self.reports[value.run_id].append(value)
            case Journal():
                self.journals[record.partition].append(Logged(record, value))
            case Quarantined():
                self.quarantined.append(value)
            case _:
                pass

    # --- questions

    def status(self, run_id: str) -> str:
        """Of a run as the log has it now; "" if there is none."""
        events = self.runs.get(run_id)
        return events[-1].value.status if events else ""

    def effective_ms(self, key: str) -> int:
        """From when on the job's first definition was in force; 0 if it is not."""
        applied = [each for each in self.job_events.get(key, ()) if each.kind == "revision_applied"]
        return min((each.effective_ms for each in applied), default=0)

    def defined_ms(self, key: str) -> int:
        found = self.definitions.get(key)
        return found[0].record.timestamp_ms if found else 0

    def epoch(self, run_id: str, execution_of: int) -> int:
        """The highest assignment epoch that was told for a dispatch of a run; 0 if nothing was told."""
        return max(
            (each.epoch for each in self.reports.get(run_id, ()) if each.dispatch == execution_of), default=0
        )

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
