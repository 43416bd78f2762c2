"""The stream processor: which topics feed what, and the core loop.

    commands, outcomes, jobs --> tick (apply, advance timers) --> due, due-now, control, runs, dead-letters,
                                                                  state, journal, quarantine, jobs (deletions)

One thread owns the loop, its consumers and its one producer. run_once() is the core loop; it fits on one screen.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import (
    EventLog,
    LogError,
    LogUnavailable,
    NotAMember,
    OutcomeUnknown,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
)
from tocsin.schemas.records import RunEvent
from tocsin.schemas.topics import TopicNames
from tocsin.streams.clocks import ClockGuard, ClockMode, Reading
from tocsin.streams.config import Configuration
from tocsin.streams.configuration import ConfigurationReader
from tocsin.streams.core import TIMERS_PER_PASS_MAX
from tocsin.streams.inputs import Consumers
from tocsin.streams.partitions import OwnedPartition, Ownership, newest_journal
from tocsin.streams.rules import StreamRules
from tocsin.streams.store import StoreCorrupt, StoreEnvironment, StoreFull
from tocsin.streams.timers import AHEAD, EXACT
from tocsin.streams.transaction import append
from tocsin.streams.waiters import Waiters

logger = logging.getLogger(__name__)

COMMIT_URGENT_S: Final = 0.025
"""When something is due within a second, or somebody waits. A commit costs a few ms; fire visibility lags by this."""
COMMIT_S: Final = 0.25
"""Otherwise. An idle cadence of 25 ms costs a Kafka broker half a core (measured)."""
CHANGED_ROWS_MAX: Final = 20_000
EFFECT_BYTES_MAX: Final = 8 << 20
"""A commit is not put off beyond this: one write batch of the store stays at a few MB."""
IDLE_S: Final = 0.25
RESTORE_STEP: Final = 5_000
UNAVAILABLE_PAUSE_S: Final = 0.5
UNAVAILABLE_PAUSE_MAX_S: Final = 5.0
"""After a commit that the log did not take; doubled each time. What is due meanwhile is decided once it takes one."""
REBUILDS_MAX: Final = 3
"""A store that is damaged more often than this, in one process, says that the disk is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """What one streams process works with."""

    data: Path
    """Directory of the state stores."""
    client_id: str = "node"
    names: TopicNames = field(default_factory=TopicNames)
    clock_mode: ClockMode = "guarded"
    rules: StreamRules = field(default_factory=StreamRules)
    timers_per_pass_max: int = TIMERS_PER_PASS_MAX
    check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass did."""

    records: int = 0
    timers_left: bool = False
    committed: bool = False
    restoring: int = 0


class Topology:
    """One streams process. run() is the thread's loop, run_once() one pass of it, stop() ends it."""

    def __init__(
        self, config: StreamsConfig, clock: Clock, log: EventLog, environment: StoreEnvironment
    ) -> None:
        self.config = config
        self._clock = clock
        self._log = log
        self._guard = ClockGuard(clock, config.clock_mode)
        self._configuration = ConfigurationReader(log, config.names)
        self._transactional_id = f"{config.names.streams_group}.{config.client_id}"
        self._own = Ownership(
            log=log,
            clock=clock,
            names=config.names,
            directory=config.data,
            environment=environment,
            transactional_id=self._transactional_id,
            rules=config.rules,
            timers_per_pass_max=config.timers_per_pass_max,
            check=config.check,
        )
        self.partitions: dict[int, OwnedPartition] = {}
        self._producer = log.transactional_producer(self._transactional_id)
        self._producer.init()
        self._must_init = False
        """Whether a new producer has yet to fence its predecessor: before that nothing is restored, nor committed."""
        self._unopened: dict[int, bool] = {}
        """Partitions of ours that wait to be opened, and whether they are new: then their former owner is fenced."""
        self._consumers = Consumers(
            log,
            config.names,
            client_id=config.client_id,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        self._dirty_since_s: float | None = None
        self._urgent = False
        self._waiters = Waiters()
        self._retry_at_s = clock.monotonic_s()
        self._pause_s = UNAVAILABLE_PAUSE_S
        self._stopping = Event()
        self._closed = False
        self.reading = Reading(now_ms=clock.now_ms())
        self.clock_offset_ms = 0
        self.log_trouble = ""
        """What the last commit failed with; "" once one succeeded again."""
        self.failed = ""
        """Why the loop has ended, if it failed."""
        self.on_runs: Callable[[list[RunEvent]], None] = _ignore
        """Called on the loop's thread with the run events of each commit."""

    # --- the loop

    def run(self) -> None:
        """Loop until stop(), then give everything up cleanly. Errors that nobody foresaw end it, as a crash would."""
        try:
            while not self._stopping.is_set():
                done = self.run_once()
                if self._paused_s() > 0:
                    self._log.wait((), self._paused_s())
                elif not (done.records or done.timers_left or done.restoring):
                    self._log.wait(self._consumers.all, self.wait_s())
        except Exception as error:
            self.failed = f"the stream processor stopped: {type(error).__name__}: {error}"
            raise
        finally:
            self.close()

    def run_once(self) -> Pass:
        """THE CORE LOOP: poll, apply, advance, commit."""
        if self._paused_s() > 0:
            return Pass()
        reading = self.reading = self._guard.read()
        configuration = self._configuration.poll(self._clock.monotonic_s())
        for each in self._ready():
            each.capture(reading.now_ms)
        batch = self._consumers.poll()  # partitions come and go in here
        records, timers_left = 0, False
        for each in self._ready():
            inputs = batch.records.get(each.number, {})
            records += sum(map(len, inputs.values()))
            positions = self._consumers.positions(each.number)
            damaged = ""
            try:
                timers_left |= each.tick(inputs, positions, reading, configuration)
            except StoreCorrupt as error:
                damaged = str(error)
            if damaged:
                self._rebuild(each, damaged)
        restoring = self._restore_some()
        committed = self._commit_is_due() and self._commit()
        return Pass(records=records, timers_left=timers_left, committed=committed, restoring=restoring)

    def stop(self) -> None:
        """End run() soon. Safe from any thread, twice, and before the start."""
        self._stopping.set()
        self._log.wake()

    def close(self) -> None:
        """Commit what is there, mark every partition as released, leave the group. Safe twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumers.close()
        finally:
            self._producer.close()
            self._configuration.close()
            for each in self.partitions.values():
                each.close()
            self.partitions.clear()
            self._waiters.fail(RuntimeError("the stream processor stopped"))

    def wait_s(self) -> float:
        """How long the loop may sleep if no record comes."""
        now_ms = self.reading.now_ms
        wait_s = IDLE_S
        if self._dirty_since_s is not None:
            pace_s = COMMIT_URGENT_S if self._is_urgent() else COMMIT_S
            wait_s = min(wait_s, self._dirty_since_s + pace_s - self._clock.monotonic_s())
        for each in self._ready():
            assert each.view is not None
            horizon_ms = self._configuration.current.cluster.horizon_ms
            for lane, ahead_ms in ((EXACT, 0), (AHEAD, horizon_ms)):
                due_ms = each.view.next_due(lane, after_ms=now_ms + ahead_ms)
                if due_ms is not None:
                    wait_s = min(wait_s, (due_ms - ahead_ms - now_ms) / 1000)
        return max(wait_s, 0.001)

    def _ready(self) -> list[OwnedPartition]:
        return [each for each in self.partitions.values() if each.ready]

    # --- committing

    def _is_urgent(self) -> bool:
        return self._urgent or self._waiters.any

    def _commit_is_due(self) -> bool:
        """After 25 ms if something is urgent, else after 250 ms; at once if much has gathered."""
        now_s = self._clock.monotonic_s()
        dirty, large = False, False
        for each in self._ready():
            assert each.core is not None
            assert each.view is not None
            effects = each.core.effects
            dirty |= bool(effects.emissions)
            self._urgent |= effects.urgent
            large |= effects.size >= EFFECT_BYTES_MAX or each.view.changed >= CHANGED_ROWS_MAX
        if not dirty:
            return False
        if self._dirty_since_s is None:
            self._dirty_since_s = now_s
        waited_s = now_s - self._dirty_since_s
        return large or waited_s >= (COMMIT_URGENT_S if self._is_urgent() else COMMIT_S)

    def _commit(self, *, release: frozenset[int] = frozenset()) -> bool:
        """One transaction for all partitions, and only then their stores."""
        dirty = [each for each in self._ready() if each.core is not None and each.core.effects.emissions]
        try:
            journals, receipt = append(self._producer, self._consumers, self.config.names, dirty, release)
        except (TransactionAborted, NotAMember, LogUnavailable) as error:
            self._give_up_transaction(error)
            return False
        except (ProducerFenced, OutcomeUnknown):
            self._take_over_again()
            return False
        for each in dirty:
            assert each.core is not None
            stamped_ms = receipt.last[TopicPartition(self.config.names.journal, each.number)][1]
            self.clock_offset_ms = self._clock.now_ms() - stamped_ms
            damaged = ""
            try:
                each.committed(receipt, journals[each.number])
            except StoreCorrupt as error:
                damaged = str(error)
            except StoreFull as error:
                self._open_again()  # what the store lacks, the log has
                self._leave_alone(error)
                return True
            if damaged:
                self._rebuild(each, damaged)
                continue
            self.on_runs(each.core.effects.run_events)
            each.core.effects.reset()
            self._waiters.applied(self.config.names.jobs, each.number, each.core.journal.jobs_offset)
            self._waiters.applied(self.config.names.commands, each.number, each.core.journal.commands_offset)
        self._dirty_since_s = None
        self._urgent = False
        self.log_trouble = ""
        self._pause_s = UNAVAILABLE_PAUSE_S
        return True

    def _give_up_transaction(self, error: LogError) -> None:
        """Nothing of it stands. If the log is away or full, trying again at once would only be a busy loop."""
        try:
            self._producer.abort()
        except LogUnavailable:
            self._take_over_again()  # it stays open until a new producer can end it
        else:
            self._rewind()
        self.log_trouble = str(error.__cause__ or error)
        if isinstance(error, LogUnavailable) or isinstance(error.__cause__, LogUnavailable):
            self._leave_alone(error.__cause__ or error)

    def _leave_alone(self, error: BaseException) -> None:
        """Log and stores are asked again after a while, and then ever less often."""
        self.log_trouble = str(error)
        self._retry_at_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, UNAVAILABLE_PAUSE_MAX_S)

    def _paused_s(self) -> float:
        """How long the loop still leaves the log alone, after it did not take a commit."""
        return self._retry_at_s - self._clock.monotonic_s()

    def _rewind(self) -> None:
        """The transaction is definitely void: drop its work, and read the inputs again."""
        for each in self._ready():
            each.rollback()
            assert each.core is not None
            self._consumers.start(each.number, each.core.journal)
        self._dirty_since_s = None
        self._urgent = False

    def _take_over_again(self) -> None:
        """Nobody knows whether the transaction stands: a new producer, and all partitions as newly assigned."""
        self._producer.close()
        self._producer = self._log.transactional_producer(self._transactional_id)
        self._must_init = True
        self._open_again()

    def _open_again(self) -> None:
        """All partitions are opened anew by a later pass: from their stores, and from the log what these lack."""
        for number, each in list(self.partitions.items()):
            self._consumers.hold(number)
            each.close()
            self._unopened[number] = False
            del self.partitions[number]
        self._dirty_since_s = None
        self._urgent = False

    # --- owning partitions

    def _assigned(self, partitions: list[int]) -> None:
        """They are opened by the pass that this poll is part of, or by a later one, if the log does not answer."""
        self._unopened |= dict.fromkeys(partitions, True)

    def _restore_some(self) -> int:
        """Open what was assigned, go on with what is being restored. Returns how many partitions are not ready yet."""
        try:
            self._open_assigned()
            self._step_restores()
        except (LogUnavailable, StoreFull) as error:
            # All of it goes on where it was, once the log can be reached again, or there is space.
            if isinstance(error, StoreFull):
                self._open_again()
            self._leave_alone(error)
        return len(self._unopened) + sum(not each.ready for each in self.partitions.values())

    def _open_assigned(self) -> None:
        """Fence whoever may still hold a transaction open there, ourselves included; then restoring begins."""
        if self._must_init:
            self._producer.init()
            self._must_init = False
        for number, is_new in list(self._unopened.items()):
            if is_new:
                self._fence_owner_of(number)
            self.partitions[number] = OwnedPartition(number, self._own, self._configuration.current)
            del self._unopened[number]

    def _fence_owner_of(self, number: int) -> None:
        newest = newest_journal(self._log, self.config.names, number)
        if newest is None or newest.released or newest.transactional_id == self._transactional_id:
            return
        predecessor = self._log.transactional_producer(newest.transactional_id)
        try:
            predecessor.init()
        finally:
            predecessor.close()

    def _step_restores(self) -> None:
        """A partition that is complete starts with a commit of its own journal row, so that the newest row always names
        whoever can hold a transaction open."""
        for each in list(self.partitions.values()):
            if each.restore is not None and each.step_restore(RESTORE_STEP, 0.0):
                assert each.core is not None
                self._consumers.start(each.number, each.core.journal)
                each.core.claim()

    def _rebuild(self, each: OwnedPartition, damaged: str) -> None:
        """A damaged store is no loss: everything in it is on the log. What was not committed is read again.

        Not to be called while the error is handled: its traceback holds on to the store, which cannot be wiped then.
        """
        each.rebuilds += 1
        if each.rebuilds > REBUILDS_MAX:
            raise StoreCorrupt(
                f"{damaged} (rebuilt {REBUILDS_MAX} times by now: the disk is not to be trusted)"
            )
        logger.warning("partition %d is rebuilt from the log: %s", each.number, damaged)
        self._consumers.hold(each.number)
        each.reopen(wipe=True)

    def _revoked(self, partitions: list[int]) -> None:
        """Commit, write `released`, close the stores: the next owner need not fence us.

        After a failure nothing is committed: a pass may have been done by halves, or the log may have its effects already.
        """
        mine = [self.partitions[number] for number in partitions if number in self.partitions]
        for each in mine:
            if each.core is not None:
                each.core.claim()
        if not self.failed and any(each.core is not None for each in mine):
            self._commit(release=frozenset(partitions))
        self._lost(partitions)

    def _lost(self, partitions: list[int]) -> None:
        """Drop without commit."""
        for number in partitions:
            self._unopened.pop(number, None)
            each = self.partitions.pop(number, None)
            if each is not None:
                self._consumers.stop(number)
                each.close()

    # --- for the API

    @property
    def configuration(self) -> Configuration:
        return self._configuration.current

    @property
    def unopened(self) -> tuple[int, ...]:
        """Partitions that are ours, and wait for the log to answer before they can be opened."""
        return tuple(self._unopened)

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        """Done when the record was applied and the commit stands. From any thread."""
        future = self._waiters.add(topic, partition, offset)
        self._log.wake()
        return future


def _ignore(_: list[RunEvent]) -> None:
    """Nobody follows the runs."""
