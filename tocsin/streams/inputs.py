"""The loop's three consumers: `commands` decides by its group who owns what; `jobs` and `outcomes` follow by assignment.

Each of the three is its own consumer, so that a bulk load of definitions cannot hide a cancel behind it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tocsin.log.port import (
    EventLog,
    GroupConsumer,
    GroupMetadata,
    LogUnavailable,
    OffsetCommit,
    OffsetOutOfRange,
    Reader,
    Record,
    TopicPartition,
)
from tocsin.schemas.records import Journal
from tocsin.schemas.topics import TopicNames

logger = logging.getLogger(__name__)

OUTCOMES_PER_PASS_MAX: Final = 1_000
COMMANDS_PER_PASS_MAX: Final = 500
JOBS_PER_PASS_MAX: Final = 200
"""A pass with all of them takes some 100 ms (a report 0.06 ms, a definition 0.15 ms, measured), so that a bulk load of
definitions does not delay the dispatch of what is due within a second."""

PartitionsCallback = Callable[[list[int]], None]


@dataclass(slots=True)
class Batch:
    """What one poll brought, by partition and topic."""

    records: dict[int, dict[str, list[Record]]] = field(default_factory=dict)
    trouble: LogUnavailable | None = None
    """Why something could not be read. Nothing is lost by it: it will be read later."""

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            by_topic = self.records.setdefault(record.partition, {})
            by_topic.setdefault(record.topic, []).append(record)


class Consumers:
    """The consumers of one process. Used by the loop's thread only."""

    def __init__(
        self,
        log: EventLog,
        names: TopicNames,
        *,
        client_id: str,
        on_assigned: PartitionsCallback,
        on_revoked: PartitionsCallback,
        on_lost: PartitionsCallback,
    ) -> None:
        self._log = log
        self._names = names
        self._commands = log.group_consumer(names.streams_group, client_id=client_id)
        self._outcomes = log.reader("committed")
        self._jobs = log.reader("committed")
        self._started: set[int] = set()
        self.joined = False
        """Whether the group was joined. Before that there is nothing to read."""

        def assigned(partitions: Sequence[TopicPartition]) -> None:
            self._commands.pause(partitions)  # until the partition's state is restored
            on_assigned([each.partition for each in partitions])

        def revoked(partitions: Sequence[TopicPartition]) -> None:
            on_revoked([each.partition for each in partitions])

        def lost(partitions: Sequence[TopicPartition]) -> None:
            on_lost([each.partition for each in partitions])

        def join() -> None:
            self._commands.subscribe(names.commands, on_assign=assigned, on_revoke=revoked, on_lost=lost)

        self._join = join

    def join(self) -> None:
        """Ask the group for partitions. Once."""
        self._join()
        self.joined = True

    @property
    def all(self) -> tuple[Reader | GroupConsumer, ...]:
        return (self._outcomes, self._commands, self._jobs) if self.joined else ()

    def assigned(self) -> dict[str, set[int]]:
        """What is read of each input: of a partition all or, until it works, only the one that decides."""
        consumers: dict[str, Reader | GroupConsumer] = {
            self._names.commands: self._commands,
            self._names.outcomes: self._outcomes,
            self._names.jobs: self._jobs,
        }
        return {topic: {where.partition for where in each.assigned()} for topic, each in consumers.items()}

    def start(self, partition: int, journal: Journal) -> None:
        """Read the partition's inputs from where its journal says, or read them again from there."""
        commands = TopicPartition(self._names.commands, partition)
        self._commands.seek(commands, journal.commands_offset)
        self._commands.resume([commands])
        for reader, topic, offset in (
            (self._outcomes, self._names.outcomes, journal.outcomes_offset),
            (self._jobs, self._names.jobs, journal.jobs_offset),
        ):
            at = TopicPartition(topic, partition)
            if partition in self._started:
                reader.seek(at, offset)
            else:
                reader.add(at, offset)
        self._started.add(partition)

    def stop(self, partition: int) -> None:
        """Stop reading what follows by assignment; the group looks after `commands`."""
        if partition in self._started:
            self._started.discard(partition)
            self._outcomes.remove(TopicPartition(self._names.outcomes, partition))
            self._jobs.remove(TopicPartition(self._names.jobs, partition))

    def hold(self, partition: int) -> None:
        """Read nothing of the partition until start() is called again."""
        self.stop(partition)
        self._commands.pause([TopicPartition(self._names.commands, partition)])

    def poll(self) -> Batch:
        """What is there now; waits for nothing. Assignments change in here, so commands come first."""
        batch = Batch()
        if not self.joined:
            return batch
        names = self._names
        inputs: tuple[tuple[str, Reader | GroupConsumer, int], ...] = (
            (names.commands, self._commands, COMMANDS_PER_PASS_MAX),
            (names.outcomes, self._outcomes, OUTCOMES_PER_PASS_MAX),
            (names.jobs, self._jobs, JOBS_PER_PASS_MAX),
        )
        for topic, consumer, records_max in inputs:
            try:
                try:
                    batch.add(consumer.poll(records_max, 0.0))
                except OffsetOutOfRange as error:
                    self._pass_over(topic, consumer, error)
            except LogUnavailable as error:
                batch.trouble = error
        return batch

    def _pass_over(self, topic: str, consumer: Reader | GroupConsumer, error: OffsetOutOfRange) -> None:
        """What retention took before it was read is lost, which is no reason never to read on. Raises the error if that is
        not what happened: then the log is another one."""
        passed = False
        for number in sorted(self._started):
            at = TopicPartition(topic, number)
            begin, position = self._log.begin_offset(at), consumer.position(at)
            if position < begin:
                logger.error(
                    "%s[%d]: the records %d to %d were deleted by retention before they were read: they have no effect",
                    topic,
                    number,
                    position,
                    begin - 1,
                )
                consumer.seek(at, begin)
                passed = True
        if not passed:
            raise error

    def positions(self, partition: int) -> dict[str, int]:
        names = self._names
        return {
            names.commands: self._commands.position(TopicPartition(names.commands, partition)),
            names.outcomes: self._outcomes.position(TopicPartition(names.outcomes, partition)),
            names.jobs: self._jobs.position(TopicPartition(names.jobs, partition)),
        }

    def offsets_of(self, partition: int, journal: Journal) -> dict[TopicPartition, OffsetCommit]:
        """What the transaction commits for the group: fencing, and lag displays. The journal is the authority."""
        names = self._names
        return {
            TopicPartition(names.commands, partition): OffsetCommit(journal.commands_offset),
            TopicPartition(names.outcomes, partition): OffsetCommit(journal.outcomes_offset),
            TopicPartition(names.jobs, partition): OffsetCommit(journal.jobs_offset),
        }

    def metadata(self) -> GroupMetadata:
        return self._commands.metadata()

    def close(self) -> None:
        """Leave the group; on_revoked is called for what is owned."""
        self._commands.close()
        self._outcomes.close()
        self._jobs.close()
