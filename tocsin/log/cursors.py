"""Where a reader stands in each of its partitions, and how one poll takes from them. Shared by the two adapters that
keep their log in this process; knows nothing of where records are stored."""

from collections.abc import Callable, Iterable, Mapping

from tocsin.log.port import LogError, Record, TopicPartition

Fetch = Callable[[TopicPartition, int, int], tuple[list[Record], int]]
"""(partition, offset, max_records) -> (records, next offset): what this reader may see from `offset` on. The next offset
lies past markers, aborted records and holes too. Raises OffsetOutOfRange, or another LogError."""


class Cursors:
    """The positions of one reader. Used by one thread."""

    __slots__ = ("_fetch", "_order", "_paused", "_positions")

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._positions: dict[TopicPartition, int] = {}
        self._order: list[TopicPartition] = []
        self._paused: set[TopicPartition] = set()

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(offsets)
        self._order = list(offsets)
        self._paused.clear()

    def add(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self._positions:
            self._order.append(partition)
        self._positions[partition] = offset
        self._paused.discard(partition)

    def remove(self, partition: TopicPartition) -> None:
        if self._positions.pop(partition, None) is not None:
            self._order.remove(partition)
        self._paused.discard(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.position(partition)
        self._positions[partition] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(p for p in partitions if p in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def position(self, partition: TopicPartition) -> int:
        try:
            return self._positions[partition]
        except KeyError:
            raise LookupError(
                f"{partition.topic}[{partition.partition}] is not assigned to this reader"
            ) from None

    def take(self, max_records: int) -> list[Record]:
        """At most max_records records. Whoever was cut short by the limit comes last the next time."""
        taken: list[Record] = []
        positions, paused = self._positions, self._paused
        for count, partition in enumerate(self._order, start=1):
            if partition in paused:
                continue
            try:
                records, positions[partition] = self._fetch(
                    partition, positions[partition], max_records - len(taken)
                )
            except LogError:
                # What was taken from other partitions must not be lost: the error waits until it comes first, and
                # comes last after that, so that it does not stop the others.
                self._turn(count - 1 if taken else count)
                if taken:
                    return taken
                raise
            if records:
                taken = taken + records if taken else records
                if len(taken) >= max_records:
                    self._turn(count)
                    return taken
        return taken

    def is_ready(self) -> bool:
        """Whether the next take() would return a record, move a position, or raise."""
        for partition in self._order:
            if partition not in self._paused:
                position = self._positions[partition]
                try:
                    records, after = self._fetch(partition, position, 1)
                except LogError:
                    return True
                if records or after != position:
                    return True
        return False

    def _turn(self, count: int) -> None:
        self._order = self._order[count:] + self._order[:count]
