"""Who sleeps until something of theirs happens: a record in one of their partitions, an answer, a wake()."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tocsin.log.port import TopicPartition


class Waiter:
    """One sleeping thread."""

    __slots__ = ("event", "owners", "partitions")

    def __init__(self, partitions: frozenset[TopicPartition], owners: frozenset[object]) -> None:
        self.event = threading.Event()
        self.partitions = partitions
        self.owners = owners


class Signals:
    """Thread-safe. Only those whose partitions are touched are woken: with a thousand commits a second, waking everybody
    for each would take a core."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._wakes = 0
        self._seen = threading.local()

    @contextmanager
    def waiting(self, partitions: Iterable[TopicPartition], owners: Iterable[object]) -> Iterator[Waiter]:
        """Registered before the caller looks whether there is something to do already, so that nothing is missed."""
        waiter = Waiter(frozenset(partitions), frozenset(owners))
        with self._lock:
            self._waiters.append(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def touched(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for waiter in self._waiters:
                if not waiter.partitions.isdisjoint(partitions):
                    waiter.event.set()

    def answered(self, owner: object) -> None:
        with self._lock:
            for waiter in self._waiters:
                if owner in waiter.owners:
                    waiter.event.set()

    def wake(self) -> None:
        with self._lock:
            self._wakes += 1
            for waiter in self._waiters:
                waiter.event.set()

    def was_woken(self) -> bool:
        """Whether wake() was called since this thread asked last. So a wake() just before a wait() is not lost."""
        wakes = self._wakes
        seen: int = getattr(self._seen, "wakes", 0)
        self._seen.wakes = wakes
        return wakes != seen
