"""A partition's store is brought to the end of its changelog, step by step, so that the loop can report and stop.

What is trusted: a store whose offset lies within the log, and whose newest record is younger than half the time that the
log keeps tombstones. Any other may have missed a deletion, and a job that was deleted would fire again; so it is wiped.
Unless there is nothing on the log to rebuild it from: then it is the last copy of the jobs, and the restore fails.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tocsin.clock import Clock
from tocsin.log.port import EventLog, OffsetOutOfRange, Record, TopicPartition
from tocsin.schemas.codec import decode_as
from tocsin.schemas.records import Journal
from tocsin.streams.families import JOURNAL_KEY, RING_SIZES
from tocsin.streams.feed import OpenSource, OwnReader, Source
from tocsin.streams.meta import Meta
from tocsin.streams.replay import Replay, RingReplay, TimerBuild
from tocsin.streams.store import PartitionStore

logger = logging.getLogger(__name__)

Phase = Literal["changelog", "timers", "history", "done"]

RESTARTS_MAX: Final = 3
"""A log that is cut off again and again while it is read is not a log to start from."""


class RestoreFailed(RuntimeError):
    """The changelog cannot be read to its end. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a restore is. `done` and `total` count offsets (changelog, history) or rows (timers) of the phase."""

    phase: Phase
    done: int
    total: int
    per_second: float
    eta_s: float | None
    """None: not known yet."""


class Restore:
    """Brings `store` to the end of the log. Firing may begin when `ready`; the history rings may take longer.

    A takeover: step() until `ready`, make the view, and go on calling step() once per pass of the loop until `done`.
    A standby: step() for ever, since it follows the log; when the partition becomes ours (and its old owner is fenced),
    retarget(), and go on as above. Once there is a view, the changelog is left to it.
    """

    def __init__(
        self,
        store: PartitionStore,
        log: EventLog,
        clock: Clock,
        *,
        partition: int,
        state_topic: str,
        runs_topic: str,
        delete_retention_ms: int,
        history_size: int = RING_SIZES["history"],
        follow_state: OpenSource | None = None,
        follow_runs: OpenSource | None = None,
    ) -> None:
        """Nothing is read yet. Without `follow_*`, records are read with readers of its own."""
        self.wiped = store.wiped
        """Why the store was wiped, if it was: when it was opened, or since."""
        self._store = store
        self._log = log
        self._clock = clock
        self._state = TopicPartition(state_topic, partition)
        self._runs = TopicPartition(runs_topic, partition)
        self._retention_ms = delete_retention_ms
        self._replay = Replay(store)
        self._rings = RingReplay(store, {**RING_SIZES, "history": history_size})
        self._follow_state = follow_state or self._own_reader
        self._follow_runs = follow_runs or self._own_reader
        self._changelog: Source | None = None
        self._events: Source | None = None
        self._build: TimerBuild | None = None
        self._end = -1
        self._runs_end = -1
        self._restarts = 0
        self._checked = False
        self.taken = 0
        """Records and rows, of all phases: whether there was any progress."""
        self._started_ms = clock.now_ms()
        self._tick_checked = False
        self._rings_done = False
        self._pace = _Pace(clock)

    @property
    def ready(self) -> bool:
        """Rows and timers stand as of the captured end, so that a view may be made."""
        return self._store.restored and self._end >= 0 and self._store.meta.changelog_offset >= self._end

    @property
    def done(self) -> bool:
        """The history rings, too."""
        return self.ready and self._rings_done

    @property
    def behind(self) -> int:
        """Offsets of the changelog that are still to be read, as far as the captured end goes."""
        return max(0, self._end - max(self._store.meta.changelog_offset, 0)) if self._end >= 0 else 0

    @property
    def unreadable_events(self) -> int:
        """Run events that could not be decoded; they are missing in the history."""
        return self._rings.unreadable

    @property
    def topics(self) -> tuple[TopicPartition, TopicPartition]:
        """What is read: the changelog, the run events."""
        return (self._state, self._runs)

    def retarget(self, ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Capture the log's true end again: what others have written until now is awaited, too.

        `ends`: if the caller has just asked for those of several partitions.
        """
        if ends is None:
            ends = self._log.end_offsets(self.topics, "uncommitted")
        self._end, self._runs_end = ends[self._state], ends[self._runs]
        self._rings_done = False
        self._store.rings_behind = True

    def look(self, ends: Mapping[TopicPartition, int]) -> None:
        """The log has grown to these ends: what is `behind` counts from here. For who follows, and waits for nothing."""
        self._end = max(self._end, ends[self._state])
        self._runs_end = max(self._runs_end, ends[self._runs])

    def step(self, max_records: int = 2_000, timeout_s: float = 0.1) -> Progress:
        """Go on by at most max_records records or rows; waits at most timeout_s for records.

        Raises StoreError (close the store), LogError (step again), RestoreFailed, or UnknownFamily.
        """
        if self._end < 0:
            self.retarget()
        if not self._checked:
            self._begin()
        if self._store.live:
            self._leave_changelog()
        elif self._build is None and (self._store.restored or self._store.meta.changelog_offset < self._end):
            self._read_changelog(max_records, timeout_s)
        else:
            self._build_timers(max_records)
        if self.ready and not (self._store.live and self._rings_done):
            self._read_events(max_records, timeout_s)
        return self.progress()

    def progress(self) -> Progress:
        meta = self._store.meta
        if not self._store.restored and self._build is not None:
            return self._pace.progress("timers", self._build.rows, max(self._build.total, self._build.rows))
        if not self.ready:
            return self._pace.progress("changelog", max(meta.changelog_offset, 0), self._end)
        if not self._rings_done:
            return self._pace.progress(
                "history", max(meta.runs_offset, 0), max(self._runs_end, self._store.live_runs_offset)
            )
        return Progress(phase="done", done=1, total=1, per_second=0.0, eta_s=0.0)

    def close(self) -> None:
        """Give the readers back. The store stays open, and a later Restore goes on where this one was."""
        self._leave_changelog()
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._build is not None:
            self._build.close()
            self._build = None

    # --- where to begin

    def _begin(self) -> None:
        begin = self._log.begin_offset(self._state)
        have = self._store.meta.changelog_offset
        if self._end == 0 and have > 0:
            where = f"{self._state.topic}[{self._state.partition}]"
            raise RestoreFailed(
                f"{where} is empty, and the store in {self._store.path} has read it up to {have}: the log that this state "
                f"was made from is gone. Restore the log from a backup, or remove the state directory to start anew "
                f"without any job; nothing was changed"
            )
        reason = stale(
            self._store.meta,
            begin=begin,
            end=self._end,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=self._retention_ms,
        )
        if reason:
            self._wipe(reason)
        self._checked = True

    def _wipe(self, reason: str) -> None:
        self.close()
        logger.warning("the store in %s is wiped and rebuilt from the log: %s", self._store.path, reason)
        self.wiped = reason
        self._store.reset()
        self._store.rings_behind = True
        self._started_ms = self._clock.now_ms()
        self._tick_checked = True  # an empty store has no tick to be held against

    def _restart(self, reason: str) -> None:
        self._restarts += 1
        if self._restarts > RESTARTS_MAX:
            raise RestoreFailed(
                f"{self._state.topic}[{self._state.partition}]: begun {self._restarts} times, and again {reason}"
            )
        self._wipe(reason)
        self.retarget()

    # --- rows

    def _read_changelog(self, max_records: int, timeout_s: float) -> None:
        if self._changelog is None:
            offset = self._store.meta.changelog_offset
            start = max(offset, self._log.begin_offset(self._state), 0)
            self._changelog = self._follow_state(self._state, start)
        try:
            records = self._changelog.poll(max_records, timeout_s)
        except OffsetOutOfRange as error:
            self._restart(f"what was to be read next is gone ({error})")
            return
        if self._is_another_log(records):
            self._restart("its ticks begin anew: the topic was made anew")
            return
        position = self._changelog.position
        self.taken += len(records)
        if records or position != self._store.meta.changelog_offset:
            self._replay.apply(records, position, self._started_ms)

    def _is_another_log(self, records: list[Record]) -> bool:
        """Ticks only grow, so a journal row below ours means that the topic was deleted and made again."""
        if self._tick_checked or not self._store.meta.journal:
            return False
        for record in records:
            if record.key == JOURNAL_KEY and record.value is not None:
                self._tick_checked = True
                ours = decode_as(Journal, self._store.meta.journal).tick
                return decode_as(Journal, record.value).tick < ours
        return False

    def _build_timers(self, max_rows: int) -> None:
        if self._build is None:
            self._build = TimerBuild(self._store)
        self.taken += max_rows
        if self._build.step(max_rows):
            self._build = None
            self._store.database.flush()

    def _own_reader(self, where: TopicPartition, offset: int) -> Source:
        return OwnReader(self._log, where, offset)

    def _leave_changelog(self) -> None:
        if self._changelog is not None:
            self._changelog.close()
            self._changelog = None

    # --- rings

    def _read_events(self, max_records: int, timeout_s: float) -> None:
        """Until everything was read that our own commits have written since: then they alone keep the rings current."""
        if self._events is None:
            offset = max(self._store.meta.runs_offset, self._log.begin_offset(self._runs), 0)
            self._events = self._follow_runs(self._runs, offset)
        try:
            records = self._events.poll(
                max_records, 0.0 if self._store.live or self._rings_done else timeout_s
            )
        except OffsetOutOfRange:  # retention was faster: what is gone is gone
            self._events.close()
            self._events = self._follow_runs(self._runs, self._log.begin_offset(self._runs))
            return
        position = self._events.position
        self.taken += len(records)
        if records or position != self._store.meta.runs_offset:
            self._rings.apply(records, position)
        if position >= max(self._runs_end, self._store.live_runs_offset):
            self._rings_done = True
            self._store.rings_behind = False
            if self._store.live:
                self._events.close()
                self._events = None


class _Pace:
    """How fast a phase goes, since it began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._phase: Phase | None = None
        self._from = 0
        self._since_s = 0.0

    def progress(self, phase: Phase, done: int, total: int) -> Progress:
        now_s = self._clock.monotonic_s()
        if phase != self._phase:
            self._phase, self._from, self._since_s = phase, done, now_s
        elapsed_s = now_s - self._since_s
        per_second = (done - self._from) / elapsed_s if elapsed_s > 0 else 0.0
        eta_s = (total - done) / per_second if per_second > 0 else None
        return Progress(phase=phase, done=done, total=total, per_second=per_second, eta_s=eta_s)


def stale(meta: Meta, *, begin: int, end: int, now_ms: int, delete_retention_ms: int) -> str:
    """Why a store cannot be brought up to date by reading on from where it is; "": it can."""
    if meta.changelog_offset < 0:
        return ""
    if meta.changelog_offset > end:
        return (
            f"it has read up to {meta.changelog_offset} of a log that ends at {end}: the topic was made anew"
        )
    if meta.changelog_offset < begin:
        return f"it has read up to {meta.changelog_offset} of a log that now begins at {begin}: deletions are missed"
    age_ms = now_ms - meta.changelog_time_ms
    if meta.changelog_time_ms and age_ms > delete_retention_ms // 2:
        return (
            f"its newest record is {age_ms // 3_600_000} h old, and the log keeps deletions for "
            f"{delete_retention_ms // 3_600_000} h: some may be missed"
        )
    return ""
