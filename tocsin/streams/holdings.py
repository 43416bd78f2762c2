"""The partitions of a process: those it works on, those on their way to it and, as a standby, those that others work on."""

import math
from collections.abc import Callable, Iterable
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import LogUnavailable, Reader, TopicPartition
from tocsin.streams.clocks import Reading
from tocsin.streams.config import Configuration
from tocsin.streams.partitions import OwnedPartition, Ownership
from tocsin.streams.standby import Followed, Followers
from tocsin.streams.store import PartitionStore, StoreClosed, StoreCorrupt
from tocsin.streams.takeover import Handovers
from tocsin.streams.timers import AHEAD, EXACT

RESTORE_STEP: Final = 5_000
"""Records or rows of one restoring partition in one pass, while nothing is worked on."""
RESTORE_BESIDE: Final = 5_000
"""Of all restoring partitions in one pass, while others are worked on: some 20-70 ms (70,000-250,000 rows/s)."""
HISTORY_BESIDE: Final = 1_000
"""Run events of all partitions that work already in one pass: nobody waits for their older runs."""
REPORTS_WAIT_S: Final = 0.02
"""While reports are awaited up to an end that was captured (P9)."""
ASK_AGAIN_S: Final = 0.5
"""After the log did not answer how far they reach."""
STUCK_S: Final = 2.0
"""A restore that gets nothing for so long waits behind somebody's open transaction: look again whose."""


class Holdings:
    """See the module. Changed by the loop's thread only; `partitions` may be looked at by all."""

    def __init__(self, own: Ownership, clock: Clock, *, standby: bool, threads: bool) -> None:
        self._own = own
        self._clock = clock
        self.partitions: dict[int, OwnedPartition] = {}
        self.handovers = Handovers(own.log, clock, own.names, own.transactional_id, threads=threads)
        self.followers = Followers(own, clock) if standby else None
        self._moved_at_s = clock.monotonic_s()
        self._ask_reports_at_s = clock.monotonic_s()

    @property
    def ready(self) -> list[OwnedPartition]:
        return [each for each in self.partitions.values() if each.ready]

    @property
    def unclaimed(self) -> list[OwnedPartition]:
        return [each for each in self.partitions.values() if each.unclaimed]

    @property
    def unfinished(self) -> int:
        """Partitions of ours that are not worked on yet."""
        return len(self.handovers.partitions) + sum(not each.ready for each in self.partitions.values())

    @property
    def readers(self) -> tuple[Reader, ...]:
        """What a restore waits for. Who follows is not in a hurry."""
        if all(each.restore is None for each in self.partitions.values()):
            return ()
        return (*self._own.state_feed.readers, *self._own.runs_feed.readers)

    def stores(self) -> dict[int, PartitionStore]:
        """Every store that is open, by its partition."""
        found = {number: each.store for number, each in list(self.partitions.items())}
        if self.followers is not None:
            found |= {number: each.store for number, each in list(self.followers.followed.items())}
        return found

    # --- at work

    def capture_reports(self, reading: Reading) -> None:
        """P9: before the inputs are read, note how far the reports reach, if something is due that depends on them.

        One request for all, and none while nothing of the kind is due.
        """
        if reading.held or self._clock.monotonic_s() < self._ask_reports_at_s:
            return
        needy = [each for each in self.ready if each.needs_reports(reading.now_ms)]
        if not needy:
            return
        outcomes = {each.number: TopicPartition(self._own.names.outcomes, each.number) for each in needy}
        try:
            ends = self._own.log.end_offsets(outcomes.values(), "uncommitted")
        except LogUnavailable:  # it waits until the log can be asked again
            self._ask_reports_at_s = self._clock.monotonic_s() + ASK_AGAIN_S
            return
        for each in needy:
            each.capture(reading.now_ms, ends[outcomes[each.number]])

    def timers_wait_s(self, reading: Reading, horizon_ms: int) -> float:
        """Until a partition has something to do by itself."""
        asked_s = max(0.0, self._ask_reports_at_s - self._clock.monotonic_s())
        waits = [math.inf]
        for each in self.ready:
            assert each.view is not None
            if each.awaits_reports:
                waits.append(REPORTS_WAIT_S)
            elif not reading.held and each.needs_reports(reading.now_ms):
                waits.append(asked_s)
            for lane, ahead_ms in ((EXACT, 0), (AHEAD, horizon_ms)):
                due_ms = each.view.next_due(lane, after_ms=reading.now_ms + ahead_ms)
                if due_ms is not None:
                    waits.append((due_ms - ahead_ms - reading.now_ms) / 1000)
        return min(waits)

    # --- coming

    def open(self, config: Configuration) -> bool:
        """Open the partitions that nobody else can write to any more. Returns whether there were any.

        Raises LogUnavailable, StoreError: call it again.
        """
        opened = False
        for number in self.handovers.take():
            followed = self.followers.take(number) if self.followers is not None else None
            try:
                self.partitions[number] = self._opened(number, followed, config)
            except BaseException:
                self.handovers.add([number], again=True)
                raise
            opened = True
            self._moved_at_s = self._clock.monotonic_s()
        return opened

    def _opened(self, number: int, followed: Followed | None, config: Configuration) -> OwnedPartition:
        if followed is None:
            return OwnedPartition(number, self._own, config, self._own.open_store(number))
        return OwnedPartition(number, self._own, config, followed.store, followed.restore)

    def restore(self, rebuild: Callable[[OwnedPartition, str], None]) -> bool:
        """Go on with what is being restored. Returns whether there was any progress. Raises LogUnavailable, StoreError.

        `rebuild` is called with what is damaged.
        """
        restoring = [each for each in self.partitions.values() if each.restore is not None]
        new = [each for each in restoring if not each.aimed]
        if new:
            topics = [topic for each in new if each.restore is not None for topic in each.restore.topics]
            ends = self._own.log.end_offsets(topics, "uncommitted")
            for each in new:
                each.aim(ends)
        moved = False
        waiting = [each for each in restoring if not each.claimed]
        beside = RESTORE_BESIDE if self.ready else RESTORE_STEP * len(waiting)
        shares = [(each, beside // len(waiting)) for each in waiting]
        working = [each for each in restoring if each.claimed]
        shares += [(each, HISTORY_BESIDE // len(working)) for each in working]
        for each, step in shares:
            damaged = ""
            try:
                moved |= each.step_restore(max(step, 1), 0.0)
            except StoreCorrupt as error:
                damaged = str(error)
            if damaged:
                rebuild(each, damaged)
        now_s = self._clock.monotonic_s()
        if moved or not waiting:
            self._moved_at_s = now_s
        elif now_s - self._moved_at_s > STUCK_S:
            self._moved_at_s = now_s
            self.handovers.look_again(each.number for each in waiting)
        return moved

    def open_again(self) -> list[int]:
        """All partitions are to be opened anew, from their stores, and from the log what these lack. Returns which."""
        numbers = list(self.partitions)
        for number in numbers:
            self.partitions.pop(number).close()
        self.handovers.add(numbers, again=True)
        return numbers

    # --- going

    def drop(self, number: int, config: Configuration) -> bool:
        """The partition is not ours any more. Returns whether it was opened. A standby goes on following it."""
        self.handovers.drop(number)
        each = self.partitions.pop(number, None)
        if each is None:
            return False
        if self.followers is None:
            each.close()
            return True
        store = each.let_go()
        try:
            store.database  # noqa: B018 - one that had failed is closed already
        except StoreClosed:
            return True
        self.followers.keep(number, store, config)
        return True

    def follow(self, config: Configuration) -> bool:
        """As a standby: go on with what others own. Returns whether there is more to read at once."""
        if self.followers is None:
            return False
        wanted = self._others(config)
        return self.followers.step(wanted, config, alone=not self.partitions)

    def is_current(self, config: Configuration) -> bool:
        """Whether a takeover of anything that others own would have next to nothing to read."""
        return self.followers is None or self.followers.nearly_current(self._others(config))

    def _others(self, config: Configuration) -> Iterable[int]:
        mine = self.partitions.keys() | self.handovers.partitions
        return [number for number in range(config.cluster.partitions) if number not in mine]

    def abandon(self) -> None:
        """Close the stores and nothing else, as a crash does."""
        for store in self.stores().values():
            store.close()

    def close(self) -> None:
        """Let go of every store and reader, and tell nobody. Safe twice."""
        for each in self.partitions.values():
            each.close()
        self.partitions.clear()
        if self.followers is not None:
            self.followers.close()
        self._own.state_feed.close()
        self._own.runs_feed.close()
