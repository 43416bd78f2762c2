"""The `config` topic as one value: what all partitions of a process work by at a tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from tocsin.schemas.records import Cluster, Queue, Switch

DEFAULT_QUEUES: Final[tuple[tuple[str, Literal["http", "function"]], ...]] = (
    ("default", "http"),
    ("functions", "function"),
)
"""The queues that exist from the first start on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What was applied of `config`, up to (not including) `offset`."""

    cluster: Cluster
    queues: Mapping[str, Queue] = field(default_factory=dict)
    """By name, those that were deleted included."""
    offset: int = 0

    def with_record(self, record: Cluster | Queue | Switch, offset: int) -> "Configuration":
        """This configuration after one more record, read at `offset`."""
        match record:
            case Cluster():
                return replace(self, cluster=record, offset=offset + 1)
            case Queue(deleted=True):
                # Jobs may be armed for it, so that where its records went has to stay known.
                had = self.queues.get(record.name)
                gone = record if had is None else replace(had, deleted=True)
                return replace(self, queues={**self.queues, record.name: gone}, offset=offset + 1)
            case Queue():
                return replace(self, queues={**self.queues, record.name: record}, offset=offset + 1)
            case Switch():
                return replace(self, offset=offset + 1)
