"""`--standby`: the stores of the partitions that others own follow the log, so that a takeover has next to nothing to read."""

import logging
from collections.abc import Iterable
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import LogUnavailable
from tocsin.streams.config import Configuration
from tocsin.streams.partitions import Ownership
from tocsin.streams.restore import Progress, Restore
from tocsin.streams.rocks import StoreCorrupt, StoreFull
from tocsin.streams.store import PartitionStore

logger = logging.getLogger(__name__)

FOLLOW_STEP: Final = 500
"""Records of all followed partitions in one pass, while others are worked on: some 7 ms, so that firing is not delayed."""
FOLLOW_ALONE_STEP: Final = 5_000
"""While nothing is owned."""
NEARLY_CURRENT: Final = 2_000
"""Offsets behind the log's end: read in a fraction of a second."""
LOOK_S: Final = 2.0
"""How often the ends are asked for, of all followed partitions at once."""
RETRY_S: Final = 10.0
"""After a disk was found full."""


class Followed:
    """The store of one partition, and what brings it up to date."""

    def __init__(self, store: PartitionStore, restore: Restore) -> None:
        self.store = store
        self.restore = restore
        self.progress: Progress | None = None
        self.looked = False
        """Whether the log's end is known: before that there is nothing to go by."""

    @property
    def behind(self) -> int | None:
        """Offsets of the changelog still to be read, as of the last look at its end; None: not known yet."""
        return None if self.progress is None else self.restore.behind

    @property
    def nearly_current(self) -> bool:
        return self.store.restored and self.behind is not None and self.behind <= NEARLY_CURRENT

    def close(self) -> None:
        self.restore.close()
        self.store.close()


class Followers:
    """See the module. Used by the loop's thread; `followed` may be looked at by all."""

    def __init__(self, own: Ownership, clock: Clock) -> None:
        self._own = own
        self._clock = clock
        self.followed: dict[int, Followed] = {}
        self._look_at_s = clock.monotonic_s()
        self._open_at_s = clock.monotonic_s()
        self.trouble = ""
        """Why something could not be read at the last attempt."""

    def keep(self, number: int, store: PartitionStore, config: Configuration) -> None:
        """Follow from now on what was owned until now."""
        self.followed[number] = Followed(store, self._own.restore(number, store, config))

    def take(self, number: int) -> Followed | None:
        """Stop following: the partition is to be owned. What is returned stays open."""
        return self.followed.pop(number, None)

    def step(self, wanted: Iterable[int], config: Configuration, *, alone: bool) -> bool:
        """Open one of the wanted that is not followed yet, and go on with all. Returns whether there is more to read at once.

        A log that does not answer is asked again later: whoever works is not to be held up. Raises RestoreFailed.
        """
        missing = [number for number in wanted if number not in self.followed]
        if missing and self._clock.monotonic_s() >= self._open_at_s:
            self._open(missing[0], config)
        try:
            self._look_at_ends()
        except LogUnavailable as error:
            self.trouble = str(error)
        left = FOLLOW_ALONE_STEP if alone else FOLLOW_STEP
        for number, each in list(self.followed.items()):
            if left <= 0:
                break
            left -= self._step(number, each, left)
        self.followed = dict(_turned(self.followed))
        return left <= 0 or len(missing) > 1

    def nearly_current(self, wanted: Iterable[int]) -> bool:
        return all(number in self.followed and self.followed[number].nearly_current for number in wanted)

    def close(self) -> None:
        for each in self.followed.values():
            each.close()
        self.followed.clear()

    def _open(self, number: int, config: Configuration) -> None:
        try:
            store = self._own.open_store(number)
        except StoreFull as error:
            self._pause(error)
            return
        self.keep(number, store, config)

    def _look_at_ends(self) -> None:
        """How far each is behind, and what is not to be missed: asked for together."""
        now_s = self._clock.monotonic_s()
        new = not self.trouble and any(not each.looked for each in self.followed.values())
        if not self.followed or not (new or now_s >= self._look_at_s):
            return
        self._look_at_s = now_s + LOOK_S
        topics = [topic for each in self.followed.values() for topic in each.restore.topics]
        ends = self._own.log.end_offsets(topics, "uncommitted")
        self.trouble = ""
        for each in self.followed.values():
            each.restore.look(ends)
            each.looked = True

    def _step(self, number: int, each: Followed, max_records: int) -> int:
        before = each.restore.taken
        if not each.looked:
            return 0
        try:
            each.progress = each.restore.step(max_records, 0.0)
        except LogUnavailable as error:
            self.trouble = str(error)
        except StoreFull as error:
            each.close()
            del self.followed[number]
            self._pause(error)
        except StoreCorrupt as error:
            logger.warning("the followed store of partition %d is rebuilt from the log: %s", number, error)
            each.close()
            PartitionStore.wipe(each.store.path)
            del self.followed[number]
        return each.restore.taken - before

    def _pause(self, error: StoreFull) -> None:
        logger.warning("following is paused for %.0f s: %s", RETRY_S, error)
        self._open_at_s = self._clock.monotonic_s() + RETRY_S


def _turned(followed: dict[int, Followed]) -> Iterable[tuple[int, Followed]]:
    """The first one comes last: where the bound of a pass is reached, nobody is starved."""
    items = list(followed.items())
    return items[1:] + items[:1]
