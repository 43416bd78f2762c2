"""The stream processor: which topics feed what, and the core loop.

    commands, outcomes, jobs --> tick (apply, advance timers) --> due, due-now, control, runs, dead-letters,
                                                                  state, journal, quarantine, jobs (deletions)

One thread owns the loop, its consumers and its one producer. run_once() is the core loop; it fits on one screen.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from typing import Final, assert_never

from tocsin.clock import Clock
from tocsin.log.port import EventLog, GroupConsumer, LogUnavailable, Reader, TopicPartition
from tocsin.schemas.records import RunEvent
from tocsin.streams.clocks import Reading, guard_for
from tocsin.streams.config import Configuration
from tocsin.streams.configuration import ConfigurationReader, NewerSchemaLevel, OtherTimeZoneData
from tocsin.streams.feed import Feed
from tocsin.streams.holdings import Holdings
from tocsin.streams.inputs import Batch, Consumers
from tocsin.streams.origin import StateDirectory
from tocsin.streams.pace import Pace
from tocsin.streams.partitions import OwnedPartition, Ownership
from tocsin.streams.settings import StreamsConfig as StreamsConfig
from tocsin.streams.store import StoreCorrupt, StoreEnvironment, StoreFull
from tocsin.streams.transaction import UNAVAILABLE_PAUSE_S, Stands, Transactions
from tocsin.streams.waiters import Waiters

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
"""How often every partition writes a journal row whatever happens, all of them in one transaction: it moves the watermark,
and tells how the wall clock stands to the log's."""
IDLE_S: Final = 0.5
FOLLOW_S: Final = 0.1
"""A standby reads what others have committed this often: a wait for their records would make it work at their pace."""
RESTORE_WAIT_S: Final = 0.05
"""While a restore has nothing to read: it waits behind somebody's transaction, or for a former owner to be fenced."""
JOIN_LOOK_S: Final = 1.0
"""How often a standby that has not joined yet looks whether the group has lost its last member."""
RELEASE_TRIES: Final = 2
REBUILDS_MAX: Final = 3
"""A store that is damaged more often than this, in one process, says that the disk is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass did."""

    records: int = 0
    timers_left: bool = False
    committed: bool = False
    restoring: int = 0
    """Partitions of ours that are not worked on yet."""
    more: bool = False
    """Whether a restore, or a standby, has more to read at once."""


class Topology:
    """One streams process. run() is the thread's loop, run_once() one pass of it, stop() ends it."""

    def __init__(
        self, config: StreamsConfig, clock: Clock, log: EventLog, environment: StoreEnvironment
    ) -> None:
        self.config = config
        self._clock = clock
        self._log = log
        self._guard = guard_for(clock, config.clock_mode, log_has_clock=config.log_has_clock)
        self._configuration = ConfigurationReader(log, config.names)
        self._configuration.check(config.tzdata)
        self._state = StateDirectory(config.data, where=config.log)
        self._state.claim(self._configuration.current.cluster.id)
        own = Ownership(
            log=log,
            clock=clock,
            names=config.names,
            directory=config.data,
            environment=environment,
            transactional_id=f"{config.names.streams_group}.{config.client_id}",
            rules=config.rules,
            timers_per_pass_max=config.timers_per_pass_max,
            check=config.check,
            state_feed=Feed(log),
            runs_feed=Feed(log),
        )
        self.holdings = Holdings(own, clock, standby=config.standby, threads=config.threads)
        self.transactions = Transactions(log, clock, config.names, own.transactional_id)
        self._consumers = Consumers(
            log,
            config.names,
            client_id=config.client_id,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        now_s = clock.monotonic_s()
        self._join_look_at_s = now_s
        self._heartbeat_at_s = now_s
        self._take_over_at_s = now_s
        self._take_over_trouble = ""
        self._pace = Pace()
        self._waiters = Waiters()
        self._stopping = Event()
        self._closed = False
        self.reading = Reading(now_ms=0)
        self.failed = ""  # why the loop has ended, if it failed
        self.on_runs: Callable[[list[RunEvent]], None] = lambda _: None
        """Called on the loop's thread with the run events of each commit."""

    # --- the loop

    def run(self) -> None:
        """Loop until stop(), then give everything up cleanly. Errors that nobody foresaw end it, as a crash would."""
        try:
            while not self._stopping.is_set():
                done = self.run_once()
                if self.transactions.paused_s > 0:
                    self._log.wait((), self.transactions.paused_s)
                elif not (done.records or done.timers_left or done.more):
                    self._wait()
        except (NewerSchemaLevel, OtherTimeZoneData) as error:
            self.close()  # nothing was done by halves: what was folded before it came to this is committed
            self.failed = f"the stream processor stopped: {error}"
            raise
        except Exception as error:
            self.failed = f"the stream processor stopped: {type(error).__name__}: {error}"
            raise
        finally:
            self.close()

    def run_once(self) -> Pass:
        """THE CORE LOOP: poll, apply, advance, commit."""
        if self.transactions.paused_s > 0:
            return Pass()
        reading = self.reading = self._guard.read()
        try:
            configuration = self._configuration.poll(self._clock.monotonic_s())
        except LogUnavailable as error:
            self.transactions.leave_alone(error)
            return Pass()
        self._configuration.check(self.config.tzdata)
        self._state.follow(configuration.cluster.id)
        self.holdings.capture_reports(reading)
        batch = self._consumers.poll()  # partitions come and go in here
        if batch.trouble is not None:
            self.transactions.leave_alone(batch.trouble)
        records, timers_left = self._tick(batch, reading, configuration)
        more = self._take_over(configuration)
        committed = self._commit_is_due() and self._commit()
        return Pass(
            records=records,
            timers_left=timers_left,
            committed=committed,
            restoring=self.holdings.unfinished,
            more=more,
        )

    def _tick(self, batch: Batch, reading: Reading, configuration: Configuration) -> tuple[int, bool]:
        """Each partition applies its inputs and advances. Returns how many records, and whether more timers are due."""
        heartbeat = self._clock.monotonic_s() >= self._heartbeat_at_s
        records, timers_left = 0, False
        for each in self.holdings.ready:
            inputs = batch.records.get(each.number, {})
            records += sum(map(len, inputs.values()))
            positions = self._consumers.positions(each.number)
            damaged = ""
            try:
                timers_left |= each.tick(inputs, positions, reading, configuration, heartbeat=heartbeat)
            except StoreCorrupt as error:
                damaged = str(error)
            if damaged:
                self._rebuild(each, damaged)
        if heartbeat:
            self._heartbeat_at_s = self._clock.monotonic_s() + HEARTBEAT_S
        return records, timers_left

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
            self.holdings.close()
            self.transactions.close()
            self._configuration.close()
            self._waiters.fail(RuntimeError("the stream processor stopped"))

    def abandon(self) -> None:
        """Close the stores and tell nobody, as a crash does (tests)."""
        self.holdings.abandon()

    # --- waiting

    def wait_s(self) -> float:
        """How long the loop may sleep if no record comes."""
        now_s = self._clock.monotonic_s()
        wait_s = IDLE_S if self.holdings.followers is None else FOLLOW_S
        if self.holdings.unfinished:
            wait_s = min(wait_s, RESTORE_WAIT_S)
        wait_s = min(wait_s, self._pace.left_s(now_s, awaited=self._waiters.any))
        if self.holdings.ready:
            wait_s = min(wait_s, self._heartbeat_at_s - now_s)
        horizon_ms = self._configuration.current.cluster.horizon_ms
        wait_s = min(wait_s, self.holdings.timers_wait_s(self.reading, horizon_ms))
        return max(wait_s, 0.001)

    def _wait(self) -> None:
        """Until something has come, or wait_s() is over."""
        try:
            self._log.wait(self._awaited(), self.wait_s())
        except LogUnavailable as error:
            self.transactions.leave_alone(error)

    def _awaited(self) -> tuple[Reader | GroupConsumer, ...]:
        return (*self._consumers.all, *self._configuration.readers, *self.holdings.readers)

    # --- committing

    def _commit_is_due(self) -> bool:
        now_s = self._clock.monotonic_s()
        return self._pace.is_due(self.holdings.ready, now_s, awaited=self._waiters.any)

    def _commit(self, *, release: frozenset[int] = frozenset()) -> bool:
        """One transaction for all partitions, and only then their stores."""
        dirty = [
            each for each in self.holdings.ready if each.core is not None and each.core.effects.emissions
        ]
        if not self._append(dirty, release):
            return False
        self._pace.begin_anew()
        return True

    def _claim(self) -> None:
        """The first transaction of what was restored: nothing but a journal row of each, so that the newest row always
        names whoever can hold a transaction open. Only then are the inputs read."""
        claimed = self.holdings.unclaimed
        for each in claimed:
            assert each.core is not None
            each.core.claim()
        if not claimed or not self._append(claimed, frozenset()):
            return
        for each in claimed:
            if each.core is not None:  # else its store failed meanwhile
                each.claimed = True
                self._consumers.start(each.number, each.core.journal)
        self._heartbeat_at_s = self._clock.monotonic_s()
        self.reading = self._guard.read()

    def _append(self, dirty: list[OwnedPartition], release: frozenset[int]) -> bool:
        """Commit what these have to say, on the log and then in their stores. False: nothing of it is known to stand, and
        what has to be done about that is done."""
        outcome = self.transactions.commit(self._consumers, dirty, release)
        match outcome:
            case "void":
                self._rewind(dirty, release)
                return False
            case "unknown":  # a new producer, and all partitions as newly assigned
                self._open_again()
                return False
            case Stands():
                self._store(dirty, outcome)
                return True
            case _:
                assert_never(outcome)

    def _store(self, dirty: list[OwnedPartition], stands: Stands) -> None:
        """The log has it: now the stores may, and who waits is told."""
        names = self.config.names
        stamps = [stands.receipt.last[TopicPartition(names.journal, each.number)][1] for each in dirty]
        if stamps:
            self._guard.measured(stamps, stands.sent_s)
        for each in dirty:
            assert each.core is not None
            damaged = ""
            try:
                each.committed(stands.receipt, stands.journals[each.number])
            except StoreCorrupt as error:
                damaged = str(error)
            except StoreFull as error:
                self._open_again()  # what the store lacks, the log has
                self.transactions.leave_alone(error)
                return
            if damaged:
                self._rebuild(each, damaged)
                continue
            self.on_runs(each.core.effects.run_events)
            each.core.effects.reset()
            self._waiters.applied(names.jobs, each.number, each.core.journal.jobs_offset)
            self._waiters.applied(names.commands, each.number, each.core.journal.commands_offset)

    def _rewind(self, dirty: list[OwnedPartition], release: frozenset[int]) -> None:
        """The transaction is definitely void: drop its work, and read the inputs again."""
        for each in dirty:
            each.rollback()
            assert each.core is not None
            if each.claimed and each.number not in release:
                self._consumers.start(each.number, each.core.journal)
        self._pace.begin_anew()

    def _open_again(self) -> None:
        """All partitions are opened anew by a later pass: from their stores, and from the log what these lack."""
        for number in self.holdings.open_again():
            self._consumers.hold(number)
        self._pace.begin_anew()

    # --- owning partitions

    def _take_over(self, configuration: Configuration) -> bool:
        """Go on with what comes to us, and with what we follow. Returns whether there is more of it to read at once."""
        if self._clock.monotonic_s() < self._take_over_at_s:
            return False
        try:
            if not self._consumers.joined:
                self._consider_joining(configuration)
            self.transactions.renew()
            moved = self.holdings.open(configuration)
            moved |= self.holdings.restore(self._rebuild)
            self._claim()
            moved |= self.holdings.follow(configuration)
        except (LogUnavailable, StoreFull) as error:
            # All of it goes on where it was, once the log can be reached again, or there is space.
            if isinstance(error, StoreFull):
                self._open_again()
            self._take_over_trouble = str(error)
            self._take_over_at_s = self._clock.monotonic_s() + UNAVAILABLE_PAUSE_S
            if not self.holdings.ready:  # else what is worked on is not held up
                self.transactions.leave_alone(error)
            return False
        self._take_over_trouble = self.holdings.handovers.trouble
        return moved

    def _consider_joining(self, configuration: Configuration) -> None:
        """At once if nobody is there to work; else as soon as a takeover would have next to nothing to read."""
        now_s = self._clock.monotonic_s()
        if self.config.standby and not self.holdings.is_current(configuration):
            if now_s < self._join_look_at_s:
                return
            self._join_look_at_s = now_s + JOIN_LOOK_S
            if self._log.members(self.config.names.streams_group):
                return
        self._consumers.join()

    def _assigned(self, partitions: list[int]) -> None:
        """They are opened by the pass that this poll is part of, or by a later one, if the log does not answer."""
        self.holdings.handovers.add(partitions)

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
        each.rebuild()

    def _revoked(self, partitions: list[int]) -> None:
        """Commit, write `released`, close the stores: the next owner need not fence us.

        After a failure nothing is committed: a pass may have been done by halves, or the log may have its effects already.
        """
        mine = frozenset(each.number for each in self.holdings.ready) & frozenset(partitions)
        if mine and not self.failed and not self.transactions.in_doubt:
            self._release(mine)
        for number in partitions:
            self._drop(number)

    def _release(self, mine: frozenset[int]) -> None:
        """One transaction for all. Around a rebalance it may be refused to healthy members, too: then once more, without
        the work that was dropped with it, which is the next owner's."""
        for _ in range(RELEASE_TRIES):
            for each in self.holdings.ready:
                if each.number in mine and each.core is not None:
                    each.core.claim()
            if self._commit(release=mine) or self.transactions.in_doubt or self.transactions.paused_s > 0:
                return

    def _lost(self, partitions: list[int]) -> None:
        """Drop without commit. Whoever has them now has fenced us."""
        for number in partitions:
            self._drop(number)
        self.transactions.in_doubt = True

    def _drop(self, number: int) -> None:
        if not self._closed:
            self._waiters.gone(number)
        if self.holdings.drop(number, self._configuration.current):
            self._consumers.stop(number)

    # --- for the API

    @property
    def partitions(self) -> dict[int, OwnedPartition]:
        """What is ours and opened; changed by the loop's thread only."""
        return self.holdings.partitions

    @property
    def configuration(self) -> Configuration:
        return self._configuration.current

    @property
    def joined(self) -> bool:
        """Whether the group was asked for partitions."""
        return self._consumers.joined

    @property
    def held(self) -> str:
        """Why no timer fires of what is ours and restored; "": they do."""
        return self.reading.held if self.holdings.ready else ""

    @property
    def log_trouble(self) -> str:
        """What the last commit, or takeover, failed with; "" once one succeeded again."""
        return self.transactions.trouble or self._take_over_trouble

    @property
    def clock_offset_ms(self) -> int:
        """How far the wall clock is off the log's, as far as the last commit has proven."""
        return self._guard.offset_ms

    @property
    def unopened(self) -> tuple[int, ...]:
        """Partitions that are ours, and wait for their former owner to be fenced, or for the log to answer."""
        return tuple(sorted(self.holdings.handovers.partitions))

    def applied(self, topic: str, partition: int, offset: int) -> "Future[None]":
        """Done when the record was applied and the commit stands. From any thread."""
        future = self._waiters.add(topic, partition, offset)
        self._log.wake()
        return future
