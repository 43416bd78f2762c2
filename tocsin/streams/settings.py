"""What one streams process works with."""

from dataclasses import dataclass, field
from pathlib import Path

from tocsin.schedules.zones import tzdata_version
from tocsin.schemas.topics import TopicNames
from tocsin.streams.clocks import ClockMode
from tocsin.streams.core import TIMERS_PER_PASS_MAX
from tocsin.streams.rules import StreamRules


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """What one streams process works with."""

    data: Path
    """Directory of the state stores."""
    log: str = "this log"
    """What to call the log when something is said to people, such as where it is."""
    client_id: str = "node"
    """Of the process in its group: where others ask for what it owns. Its transactional id is made of it."""
    names: TopicNames = field(default_factory=TopicNames)
    clock_mode: ClockMode = "guarded"
    log_has_clock: bool = True
    """The log's timestamps may come from another machine: then the wall clock is held against them."""
    standby: bool = False
    """Follow the partitions of others, and join the group only when a takeover would have next to nothing to read."""
    rules: StreamRules = field(default_factory=StreamRules)
    timers_per_pass_max: int = TIMERS_PER_PASS_MAX
    check: bool = False
    threads: bool = True
    """False: everything on the loop's thread (a simulation has one)."""
    tzdata: str = field(default_factory=tzdata_version)
    """The version of the time-zone data that schedules are computed with."""
