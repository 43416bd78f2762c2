"""How a streams process stands, partition by partition: for its status page, its log and its readiness. From any thread."""

from dataclasses import dataclass
from typing import Final, Literal

from tocsin.streams.partitions import OwnedPartition
from tocsin.streams.restore import Progress
from tocsin.streams.topology import Topology

Stage = Literal["fencing", "changelog", "timers", "claiming", "history", "working"]
"""Of a partition of ours. fencing: its former owner may still have something open. changelog, timers: its state is being
restored. claiming: its first journal row is on its way. history: it works, and its older runs are still being read.
working: all of it is there."""

UNTOLD: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedStatus:
    """A partition that was assigned to this process."""

    partition: int
    stage: Stage
    done: int = 0
    total: int = 0
    """Of the stage: offsets (changelog, history) or rows (timers)."""
    per_second: float = 0.0
    eta_s: float | None = None
    """Until the stage is over; None: not known yet, or nothing to wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedStatus:
    """A partition that another process owns, and whose state this one follows."""

    partition: int
    behind: int | None
    """Offsets of the changelog still to be read; None: not known yet."""
    nearly_current: bool
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsStatus:
    """See the module."""

    joined: bool
    """False: a standby that does not ask for partitions before it follows all of them closely."""
    owned: tuple[OwnedStatus, ...]
    followed: tuple[FollowedStatus, ...]
    held: str
    """Why nothing fires (the clock); "": it does."""
    clock_offset_ms: int
    log_trouble: str
    failed: str

    @property
    def summary(self) -> str:
        """What is still to be waited for, in one line; "": nothing."""
        waiting = [each for each in self.owned if each.stage not in ("working", "history")]
        if waiting:
            shown = "; ".join(_line(each) for each in waiting[:3])
            more = f"; {len(waiting) - 3} more" if len(waiting) > 3 else ""
            return f"restoring {len(waiting)} of {len(self.owned)} partitions: {shown}{more}"
        if not self.joined:
            behind = [each for each in self.followed if not each.nearly_current]
            if not self.followed:
                return "standby: the stores are being opened"
            slowest = max(
                behind, key=lambda each: UNTOLD if each.behind is None else each.behind, default=None
            )
            if slowest is None:
                return "standby: joining"
            how_far = (
                ""
                if slowest.behind is None
                else f", partition {slowest.partition} by {slowest.behind:,} records"
            )
            return f"standby: {len(behind)} of {len(self.followed)} followed partitions are behind{how_far}"
        return "" if self.owned else "no partition is assigned to this process yet"


def status_of(topology: Topology) -> StreamsStatus:
    holdings = topology.holdings
    owned = [_owned(each) for each in list(holdings.partitions.values())]
    known = {each.partition for each in owned}
    owned += [
        OwnedStatus(partition=number, stage="fencing") for number in topology.unopened if number not in known
    ]
    followed = [] if holdings.followers is None else list(holdings.followers.followed.items())
    return StreamsStatus(
        joined=topology.joined,
        owned=tuple(sorted(owned, key=lambda each: each.partition)),
        followed=tuple(
            FollowedStatus(
                partition=number,
                behind=each.behind,
                nearly_current=each.nearly_current,
                progress=each.progress,
            )
            for number, each in sorted(followed, key=lambda item: item[0])
        ),
        held=topology.held,
        clock_offset_ms=topology.clock_offset_ms,
        log_trouble=topology.log_trouble,
        failed=topology.failed,
    )


def _owned(each: OwnedPartition) -> OwnedStatus:
    progress = each.progress
    if progress is None:
        return OwnedStatus(partition=each.number, stage="changelog")
    if progress.phase == "done" or (each.unclaimed and not each.claimed):
        return OwnedStatus(partition=each.number, stage="working" if each.claimed else "claiming")
    return OwnedStatus(
        partition=each.number,
        stage=progress.phase,
        done=progress.done,
        total=progress.total,
        per_second=progress.per_second,
        eta_s=progress.eta_s,
    )


def _line(each: OwnedStatus) -> str:
    if each.stage == "fencing":
        return f"partition {each.partition} waits for its former owner to be fenced"
    if not each.total:
        return f"partition {each.partition}: {each.stage}"
    eta = "" if each.eta_s is None else f", about {each.eta_s:.0f} s left"
    return f"partition {each.partition}: {each.stage}, {each.done:,} of {each.total:,}{eta}"
