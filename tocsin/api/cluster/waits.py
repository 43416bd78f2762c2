"""Who waits in this API process until a record is applied somewhere.

A thousand callers cost one long poll for each topic and partition: whatever is applied is so up to an offset. A poll
outlives its owner: it goes on at the next one.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tocsin.api.cluster import wire
from tocsin.log.port import LogUnavailable

WAITERS_MAX: Final = 100_000
POLL_S: Final = 2.5
"""A frozen owner is noticed this long, and the time for an answer, after it was asked; a longer poll saves little."""
AGAIN_S: Final = 0.25
"""Between two tries while there is no owner, or it cannot be asked."""

Ask = Callable[[str, int, Sequence[int], float], Awaitable[int]]
"""(topic, partition, offsets, seconds) -> the highest of the offsets that is applied by then, -1 if none is. Raises
NotAnswered when it should be tried again a little later."""


class NotAnswered(Exception):
    """Nobody can be asked at the moment."""


class TooManyWait(LogUnavailable):
    """More callers wait for the processors than this process keeps. The record is on the log all the same."""


@dataclass(slots=True)
class _Line:
    """Those who wait for one topic and partition, the lowest offset first."""

    waiting: list[tuple[int, int, Future[None]]] = field(default_factory=list)
    follower: asyncio.Task[None] | None = None
    asked: int = -1
    """The lowest offset of the poll under way."""
    poll: asyncio.Task[int] | None = None


class Waits:
    """Used on one event loop; add() from any thread."""

    def __init__(self, ask: Ask, loop: asyncio.AbstractEventLoop) -> None:
        self._ask = ask
        self._loop = loop
        self._lines: dict[tuple[str, int], _Line] = {}
        self._numbers = count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, topic: str, partition: int, offset: int) -> "Future[None]":
        future: Future[None] = Future()
        try:
            self._loop.call_soon_threadsafe(self._add, topic, partition, offset, future)
        except RuntimeError:  # the loop is closed
            future.set_exception(LogUnavailable("the process is stopping"))
        return future

    def interrupt(self, partitions: frozenset[int]) -> None:
        """Their owners have changed: what is being asked of the former ones is asked of the next."""
        for (_, partition), line in self._lines.items():
            if partition in partitions and line.poll is not None:
                line.poll.cancel()

    def close(self) -> None:
        """Everybody is told."""
        lines = list(self._lines.values())
        self._lines.clear()
        for line in lines:
            if line.follower is not None:
                line.follower.cancel()
            self._tell(line)

    # --- on the loop

    def _add(self, topic: str, partition: int, offset: int, future: "Future[None]") -> None:
        if self._count >= WAITERS_MAX:
            if future.set_running_or_notify_cancel():
                future.set_exception(TooManyWait(f"{self._count} callers wait already"))
            return
        line = self._lines.setdefault((topic, partition), _Line())
        heapq.heappush(line.waiting, (offset, next(self._numbers), future))
        self._count += 1
        if line.follower is None:
            line.follower = self._loop.create_task(self._follow(topic, partition, line))
        elif line.poll is not None and offset < line.asked:
            line.poll.cancel()  # what it asks for comes later than this

    async def _follow(self, topic: str, partition: int, line: _Line) -> None:
        """Ask again and again while somebody waits."""
        try:
            while offsets := self._offsets(line):
                try:
                    through = await self._poll(topic, partition, line, offsets)
                except NotAnswered:
                    await asyncio.sleep(AGAIN_S)
                    continue
                self._done(line, through)
        finally:
            if self._lines.get((topic, partition)) is line:
                del self._lines[topic, partition]
                self._tell(line)

    async def _poll(self, topic: str, partition: int, line: _Line, offsets: Sequence[int]) -> int:
        line.asked = offsets[0]
        line.poll = poll = self._loop.create_task(_coroutine(self._ask(topic, partition, offsets, POLL_S)))
        try:
            await asyncio.wait({poll})
            return -1 if poll.cancelled() else poll.result()
        finally:
            poll.cancel()
            line.poll = None

    def _offsets(self, line: _Line) -> list[int]:
        """The lowest that somebody waits for, and a few of the others up to the highest; [] if nobody waits."""
        while line.waiting and line.waiting[0][2].cancelled():
            heapq.heappop(line.waiting)
            self._count -= 1
        if not line.waiting:
            return []
        offsets = sorted({offset for offset, _, future in line.waiting if not future.cancelled()})
        step = max(1, -(-len(offsets) // (wire.OFFSETS_MAX - 1)))
        return sorted({*offsets[::step], offsets[-1]})

    def _tell(self, line: _Line) -> None:
        """Nobody asks any more for those who still wait."""
        self._count -= len(line.waiting)
        for _, _, future in line.waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(LogUnavailable("the process is stopping"))
        line.waiting.clear()

    def _done(self, line: _Line, through: int) -> None:
        while line.waiting and line.waiting[0][0] <= through:
            _, _, future = heapq.heappop(line.waiting)
            self._count -= 1
            if future.set_running_or_notify_cancel():
                future.set_result(None)


async def _coroutine(awaitable: Awaitable[int]) -> int:
    return await awaitable
