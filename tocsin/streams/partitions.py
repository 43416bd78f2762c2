"""A partition that this process owns: opened, restored, worked on, given up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import CommitReceipt, EventLog, Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import Journal
from tocsin.schemas.topics import DAY_MS, TopicNames
from tocsin.streams.clocks import Reading
from tocsin.streams.config import Configuration
from tocsin.streams.core import TIMERS_PER_PASS_MAX, Inputs, PartitionCore
from tocsin.streams.feed import Feed
from tocsin.streams.restore import Progress, Restore
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View
from tocsin.streams.timers import EXACT

STATE_DELETE_RETENTION_MS: Final = 7 * DAY_MS


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
    state_feed: Feed
    runs_feed: Feed

    def open_store(self, number: int) -> PartitionStore:
        """A damaged store is no loss: everything in it is on the log, and is restored from there."""
        directory = self.directory / f"partition-{number}"
        return PartitionStore.open(directory, self.environment, wipe_corrupt=True)

    def restore(self, number: int, store: PartitionStore, config: Configuration) -> Restore:
        return Restore(
            store,
            self.log,
            self.clock,
            partition=number,
            state_topic=self.names.state,
            runs_topic=self.names.runs,
            delete_retention_ms=STATE_DELETE_RETENTION_MS,
            history_size=config.cluster.history_size,
            follow_state=self.state_feed.follow,
            follow_runs=self.runs_feed.follow,
        )


@dataclass(slots=True)
class OwnedPartition:
    """See the module. It restores until `core` is there, and works once its first journal row stands (`claimed`)."""

    number: int
    own: Ownership
    config: Configuration
    store: PartitionStore
    restore: Restore | None = None
    """One that follows the store already goes on; the caller has seen to it that it reads to the true end."""
    core: PartitionCore | None = field(init=False, default=None)
    view: View | None = field(init=False, default=None)
    progress: Progress | None = field(init=False, default=None)
    reports_through_ms: int = 0
    rebuilds: int = 0
    """How often the store was found damaged, and rebuilt."""
    aimed: bool = field(init=False, default=False)
    """Whether the restore knows the end that it reads to."""
    claimed: bool = field(init=False, default=False)
    """Whether a row of this process stands in its journal: from then on a successor knows whom to fence."""
    committed_journal: Journal | None = field(init=False, default=None)
    """The newest row that the log has: what health shows."""
    _committed: Position | None = field(init=False, default=None)
    _capture: tuple[int, int] | None = field(init=False, default=None)
    """(instant, end of outcomes captured then): reports are read through the instant once that end is reached."""

    def __post_init__(self) -> None:
        if self.restore is None:
            self.restore = self.own.restore(self.number, self.store, self.config)

    @property
    def ready(self) -> bool:
        """Whether it is worked on, and may be asked."""
        return self.claimed

    @property
    def unclaimed(self) -> bool:
        """Whether it is restored, and nobody can know yet that it is ours."""
        return self.core is not None and not self.claimed

    def aim(self, ends: Mapping[TopicPartition, int]) -> None:
        """Restore up to these ends, captured after the former owner was fenced."""
        assert self.restore is not None
        self.restore.retarget(ends)
        self.aimed = True

    def step_restore(self, max_records: int, timeout_s: float) -> bool:
        """Go on restoring; once the rows are complete, there is a core that stands where the log does. Returns whether
        there was any progress."""
        assert self.restore is not None
        before = self.restore.taken
        self.progress = self.restore.step(max_records, timeout_s)
        moved = self.restore.taken > before
        if self.restore.done:
            self.restore.close()
            self.restore = None
        if self.core is None and (self.restore is None or self.restore.ready):
            self.view = self.store.view(check=self.own.check)
            self._committed = self.store.position
            self._make_core()
            return True
        return moved

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

    @property
    def awaits_reports(self) -> bool:
        """Whether an end of the reports was captured that is not reached yet."""
        return self._capture is not None

    def needs_reports(self, now_ms: int) -> bool:
        """Whether something is due, or just decided to wait, that depends on reports that may be unread (P9).

        Only then is their end asked for: on a remote log each question is a request.
        """
        if self.view is None or self.core is None or self._capture is not None:
            return False
        due_ms = self.view.next_due(EXACT, after_ms=self.reports_through_ms)
        return due_ms is not None and due_ms <= max(self.core.journal.now_ms, now_ms)

    def capture(self, now_ms: int, end: int) -> None:
        """Before the inputs are read: the reports of all that happened by now lie before `end`."""
        assert self.core is not None
        self._capture = (max(self.core.journal.now_ms, now_ms), end)

    def tick(
        self,
        records: Mapping[str, Sequence[Record]],
        positions: Mapping[str, int],
        reading: Reading,
        config: Configuration,
        *,
        heartbeat: bool,
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
            heartbeat=heartbeat,
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

    def rebuild(self) -> None:
        """The store cannot be read: restore it from the log."""
        self.close()
        PartitionStore.wipe(self.store.path)
        self.store = self.own.open_store(self.number)
        self.restore = self.own.restore(self.number, self.store, self.config)
        self.aimed = False

    def let_go(self) -> PartitionStore:
        """End the work; the store stays open, as of the last commit."""
        if self.restore is not None:
            self.restore.close()
            self.restore = None
        self.core = None
        self.view = None
        self.claimed = False
        self.store.release_view()
        return self.store

    def close(self) -> None:
        """Safe twice."""
        self.let_go()
        self.store.close()
