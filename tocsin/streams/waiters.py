"""Who waits until a record of `jobs` or `commands` is applied and committed. Thread-safe."""

from concurrent.futures import Future
from threading import Lock

from tocsin.log.port import LogUnavailable


class Waiters:
    """One future per waiting caller, done when the commit that applied its record stands."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[tuple[str, int], list[tuple[int, Future[None]]]] = {}
        self._applied: dict[tuple[str, int], int] = {}
        self._ended: Exception | None = None
        self.any = False
        """Whether somebody waits: then the next commit comes soon."""

    def add(self, topic: str, partition: int, offset: int) -> "Future[None]":
        future: Future[None] = Future()
        at = (topic, partition)
        with self._lock:
            if self._applied.get(at, 0) > offset:
                future.set_result(None)
                return future
            if self._ended is not None:
                future.set_exception(self._ended)
                return future
            self._waiting.setdefault(at, []).append((offset, future))
            self.any = True
        return future

    def applied(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything below `next_offset` is applied, and the commit stands."""
        at = (topic, partition)
        done = []
        with self._lock:
            self._applied[at] = next_offset
            waiting = self._waiting.pop(at, None)
            if waiting is None:
                return
            done = [future for offset, future in waiting if offset < next_offset]
            left = [
                (offset, future)
                for offset, future in waiting
                if offset >= next_offset and not future.cancelled()
            ]
            if left:
                self._waiting[at] = left
            self.any = bool(self._waiting)
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def gone(self, partition: int) -> None:
        """Another process goes on with the partition: who waits here is told to ask there."""
        with self._lock:
            ended = [at for at in self._waiting if at[1] == partition]
            waiting = [pair for at in ended for pair in self._waiting.pop(at)]
            self.any = bool(self._waiting)
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(LogUnavailable(f"partition {partition} is moving: ask again"))

    def fail(self, error: Exception) -> None:
        """Nobody will apply anything any more: who waits is told, and whoever asks later."""
        with self._lock:
            self._ended = error
            waiting = [pair for pairs in self._waiting.values() for pair in pairs]
            self._waiting.clear()
            self.any = False
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
