"""A partition that this process owns: opened, restored, worked on, given up."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import CommitReceipt, EventLog, LogUnavailable, Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import Journal
from tocsin.schemas.topics import DAY_MS, TopicNames
from tocsin.streams.clocks import Reading
from tocsin.streams.config import Configuration
from tocsin.streams.core import TIMERS_PER_PASS_MAX, Inputs, PartitionCore
from tocsin.streams.restore import Progress, Restore
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View

STATE_DELETE_RETENTION_MS: Final = 7 * DAY_MS
JOURNAL_LOOK_BACK: Final = 64
"""Records read at the end of a journal partition to find its newest row; doubled until there is one."""


def newest_journal(log: EventLog, names: TopicNames, partition: int) -> Journal | None:
    """The newest row of the partition's journal, that of an open transaction included; None: there is none."""
    at = TopicPartition(names.journal, partition)
    begin, end = log.begin_offset(at), log.end_offset(at, "uncommitted")
    look_back = JOURNAL_LOOK_BACK
    while begin < end:
        newest = None
        for record in read_range(log, at, max(begin, end - look_back), end):
            try:
                row = codec.decode(record.value or b"")
            except codec.CodecError:
                continue  # none of ours: it names nobody
            newest = row if isinstance(row, Journal) else newest
        if newest is not None or end - look_back <= begin:
            return newest
        look_back *= 2
    return None


def read_range(log: EventLog, at: TopicPartition, start: int, end: int) -> Iterable[Record]:
    """Every record of [start, end), of open and aborted transactions too."""
    reader = log.reader("uncommitted")
    try:
        reader.assign({at: start})
        while reader.position(at) < end:
            for record in reader.poll(1_000, 0.1):
                if record.offset < end:
                    yield record
    finally:
        reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What every partition of a process is opened with."""

    log: EventLog
    clock: Clock
    names: TopicNames
    directory: Path
    environment: StoreEnvironment
    transactional_id: str
    rules: StreamRules
    timers_per_pass_max: int = TIMERS_PER_PASS_MAX
    check: bool = False
    """Prove at every commit that rows were not changed in place, and that no timer is lost (tests)."""


@dataclass(slots=True)
class OwnedPartition:
    """See the module. It is restoring until `core` is there."""

    number: int
    own: Ownership
    config: Configuration
    store: PartitionStore = field(init=False)
    restore: Restore | None = field(init=False)
    core: PartitionCore | None = field(init=False, default=None)
    view: View | None = field(init=False, default=None)
    progress: Progress | None = field(init=False, default=None)
    reports_through_ms: int = 0
    rebuilds: int = 0
    """How often the store was found damaged, and rebuilt."""
    committed_journal: Journal | None = field(init=False, default=None)
    """The newest row that the log has: what health shows."""
    _committed: Position | None = field(init=False, default=None)
    _capture: tuple[int, int] | None = field(init=False, default=None)
    """(instant, end of outcomes captured then): reports are read through the instant once that end is reached."""

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        own = self.own
        # A damaged store is no loss: everything in it is on the log, and is restored from there.
        directory = own.directory / f"partition-{self.number}"
        self.store = PartitionStore.open(directory, own.environment, wipe_corrupt=True)
        self.restore = Restore(
            self.store,
            own.log,
            own.clock,
            partition=self.number,
            state_topic=own.names.state,
            runs_topic=own.names.runs,
            delete_retention_ms=STATE_DELETE_RETENTION_MS,
            history_size=self.config.cluster.history_size,
        )
        self.core = None
        self.view = None

    @property
    def ready(self) -> bool:
        return self.core is not None

    def step_restore(self, max_records: int, timeout_s: float) -> bool:
        """Go on restoring. True: the rows have just become complete, and the core stands where the log does."""
        assert self.restore is not None
        self.progress = self.restore.step(max_records, timeout_s)
        if self.restore.done:
            self.restore.close()
            self.restore = None
        if self.core is not None or not (self.restore is None or self.restore.ready):
            return False
        self.view = self.store.view(check=self.own.check)
        self._committed = self.store.position
        self._make_core()
        return True

    def _make_core(self) -> None:
        """A core that goes on from the committed state."""
        assert self.view is not None
        own = self.own
        journal = Journal(tick=0, now_ms=0, transactional_id=own.transactional_id)
        if self._committed is not None and self._committed.journal:
            stored = codec.decode(self._committed.journal)
            assert isinstance(stored, Journal), (
                f"partition {self.number}: its journal row is a {type(stored).__name__}"
            )
            journal = stored
        core = PartitionCore(
            partition=self.number,
            names=own.names,
            view=self.view,
            transactional_id=own.transactional_id,
            journal=journal,
            rules=own.rules,
            timers_per_pass_max=own.timers_per_pass_max,
        )
        reader = self.store.reader()
        for run in reader.all_runs():
            if run.contested:
                core.undecided.note((JobKey(run.job_key), run.seq), run.due_ms)
            if run.withdrawal != "none":
                found = reader.job(JobKey(run.job_key))
                if found is not None and found[0].armed == "blocked":
                    core.undecided.note((JobKey(run.job_key), 0), found[0].armed_due_ms)
        for key, name, row in reader.all_pending("parked"):
            core.parked[(key, int(name))] = row.after_jobs_offset
        self.core = core
        self.committed_journal = journal
        self.reports_through_ms = journal.reports_through_ms
        self._capture = None

    # --- working

    def capture(self, now_ms: int) -> None:
        """Before the inputs are read: note how far the reports reach at this instant (P9)."""
        if self.core is None or self._capture is not None:
            return
        at = TopicPartition(self.own.names.outcomes, self.number)
        now_ms = max(self.core.journal.now_ms, now_ms)
        with suppress(LogUnavailable):  # what depends on reports waits until the log can be asked again
            self._capture = (now_ms, self.own.log.end_offset(at, "uncommitted"))

    def tick(
        self,
        records: Mapping[str, Sequence[Record]],
        positions: Mapping[str, int],
        reading: Reading,
        config: Configuration,
    ) -> bool:
        """One tick; see PartitionCore.tick."""
        assert self.core is not None
        names = self.own.names
        if self._capture is not None and positions[names.outcomes] >= self._capture[1]:
            self.reports_through_ms = max(self.reports_through_ms, self._capture[0])
            self._capture = None
        inputs = Inputs(
            outcomes=records.get(names.outcomes, ()),
            commands=records.get(names.commands, ()),
            jobs=records.get(names.jobs, ()),
            outcomes_offset=positions[names.outcomes],
            commands_offset=positions[names.commands],
            jobs_offset=positions[names.jobs],
        )
        return self.core.tick(
            inputs,
            wall_ms=reading.now_ms,
            reports_through_ms=self.reports_through_ms,
            config=config,
            fire=not reading.held,
        )

    def committed(self, receipt: CommitReceipt, journal: bytes) -> None:
        """The log has it: now the store may."""
        assert self.view is not None
        assert self.core is not None
        names = self.own.names
        state = receipt.last[TopicPartition(names.state, self.number)]
        runs = receipt.last.get(TopicPartition(names.runs, self.number))
        before = self._committed
        position = Position(
            journal=journal,
            changelog_offset=state[0] + 1,
            changelog_time_ms=state[1],
            runs_offset=runs[0] + 1 if runs is not None else before.runs_offset if before is not None else 0,
        )
        self.view.commit(position)
        self._committed = position
        self.committed_journal = self.core.journal

    def rollback(self) -> None:
        """Drop all that the log does not have, and go on from what it has."""
        if self.view is not None:
            self.view.rollback()
            self._make_core()

    def reopen(self, *, wipe: bool = False) -> None:
        """Nobody knows what the log has, or (`wipe`) what the store has: restore from the log."""
        self.close()
        if wipe:
            PartitionStore.wipe(self.store.path)
        self._open()

    def close(self) -> None:
        """Safe twice."""
        if self.restore is not None:
            self.restore.close()
            self.restore = None
        self.core = None
        self.view = None
        self.store.close()
