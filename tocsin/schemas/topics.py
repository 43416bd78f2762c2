"""The topics: their names, what they hold, and how long. Partition counts are the caller's (`config` records them)."""

from dataclasses import dataclass
from typing import Final, Literal

Cleanup = Literal["delete", "compact", "compact,delete"]

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

AUDIT_WINDOW_MS: Final = 30 * DAY_MS
"""Every revision of a definition stays readable for this long, so as-of questions and verification work within it."""

START_LATEST_MS: Final = 6 * DAY_MS
"""No dispatch may start later than its due + this: below the retention of the due topics (7 d), with a day to spare
for the time that a record lives beyond retention because its segment is not full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create. Retention None: kept for ever. Compaction never touches records younger than its lag."""

    name: str
    partitions: int
    cleanup: Cleanup = "delete"
    retention_ms: int | None = None
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    delete_retention_ms: int = 86_400_000
    """How long a tombstone stays readable after compaction."""
    segment_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of all topics under one prefix."""

    prefix: str = "tocsin."

    @property
    def config(self) -> str:
        return self.prefix + "config"

    @property
    def jobs(self) -> str:
        return self.prefix + "jobs"

    @property
    def commands(self) -> str:
        return self.prefix + "commands"

    @property
    def outcomes(self) -> str:
        return self.prefix + "outcomes"

    @property
    def runs(self) -> str:
        return self.prefix + "runs"

    @property
    def dead_letters(self) -> str:
        return self.prefix + "dead-letters"

    @property
    def state(self) -> str:
        return self.prefix + "state"

    @property
    def journal(self) -> str:
        return self.prefix + "journal"

    @property
    def quarantine(self) -> str:
        return self.prefix + "quarantine"

    def due(self, queue: str) -> str:
        return f"{self.prefix}due.{queue}"

    def due_now(self, queue: str) -> str:
        return f"{self.prefix}due-now.{queue}"

    def control(self, queue: str) -> str:
        return f"{self.prefix}control.{queue}"

    def worker_group(self, queue: str) -> str:
        return f"{self.prefix}worker.{queue}"

    @property
    def streams_group(self) -> str:
        return self.prefix + "streams"


def base_topics(names: TopicNames, partitions: int) -> tuple[TopicSpec, ...]:
    """Every topic that exists from the first start on, but for those of the queues."""
    return (
        TopicSpec(
            name=names.config,
            partitions=1,
            cleanup="compact",
            min_compaction_lag_ms=AUDIT_WINDOW_MS,
            delete_retention_ms=AUDIT_WINDOW_MS,
        ),
        TopicSpec(
            name=names.jobs,
            partitions=partitions,
            cleanup="compact",
            min_compaction_lag_ms=AUDIT_WINDOW_MS,
            delete_retention_ms=AUDIT_WINDOW_MS,
        ),
        TopicSpec(name=names.commands, partitions=partitions, retention_ms=7 * DAY_MS),
        TopicSpec(name=names.outcomes, partitions=partitions, retention_ms=7 * DAY_MS),
        TopicSpec(
            name=names.runs,
            partitions=partitions,
            cleanup="compact,delete",
            retention_ms=30 * DAY_MS,
            min_compaction_lag_ms=7 * DAY_MS,
        ),
        TopicSpec(
            name=names.dead_letters, partitions=partitions, cleanup="compact,delete", retention_ms=90 * DAY_MS
        ),
        TopicSpec(
            name=names.state,
            partitions=partitions,
            cleanup="compact",
            max_compaction_lag_ms=HOUR_MS,
            delete_retention_ms=7 * DAY_MS,
        ),
        TopicSpec(name=names.journal, partitions=partitions, retention_ms=7 * DAY_MS),
        TopicSpec(name=names.quarantine, partitions=partitions, retention_ms=30 * DAY_MS),
    )


def queue_topics(names: TopicNames, queue: str, partitions: int) -> tuple[TopicSpec, ...]:
    """The three topics of one queue."""
    return (
        TopicSpec(
            name=names.due(queue), partitions=partitions, retention_ms=7 * DAY_MS, segment_ms=12 * HOUR_MS
        ),
        TopicSpec(
            name=names.due_now(queue), partitions=partitions, retention_ms=7 * DAY_MS, segment_ms=12 * HOUR_MS
        ),
        TopicSpec(
            name=names.control(queue),
            partitions=partitions,
            cleanup="compact,delete",
            retention_ms=8 * DAY_MS,
            min_compaction_lag_ms=HOUR_MS,
        ),
    )
