"""One execution that has not ended, and the reasons to stop it."""

from typing import Final, Literal

from tocsin.worker.holding import Held

AbortReason = Literal[
    "stopped",  # the worker stops and the drain is over: failed, another worker may try
    "unconfirmed",  # the claim was not answered in time: failed
    "cancel",  # asked for: cancelled
    "settled",  # P8 or W7: finished, nothing to report
    "outbid",  # a higher epoch holds the dispatch: nothing to report, and not ours to finish
    "lost",  # the partition was lost before the claim was confirmed: neither reported nor finished
]
STRENGTH: Final[dict[AbortReason, int]] = {
    "stopped": 1,
    "unconfirmed": 2,
    "cancel": 3,
    "settled": 4,
    "outbid": 5,
    "lost": 6,
}
SILENT: Final[frozenset[AbortReason | None]] = frozenset(("unconfirmed", "settled", "outbid", "lost"))


class Running:
    """One execution that has not ended."""

    __slots__ = (
        "abort",
        "cancel_commit",
        "claim_sent_s",
        "committed",
        "confirmed",
        "epoch",
        "held",
        "heartbeat_s",
        "id",
        "lease_known",
        "lease_ms",
        "lease_until_s",
        "started_ms",
        "target",
    )

    def __init__(self, execution_id: str, held: Held, started_ms: int, target: str) -> None:
        self.id = execution_id
        self.held = held
        self.epoch = held.assignment.epoch
        self.started_ms = started_ms
        self.target = target
        self.heartbeat_s = 0.0
        self.claim_sent_s: float | None = None
        self.confirmed = False
        """Its claim was read back from control."""
        self.committed = False
        """An offset commit that was sent after that was accepted."""
        self.abort: AbortReason | None = None
        self.cancel_commit = 0
        """The first commit sent after the cancel was read (W4)."""
        self.lease_ms = 0
        """Not 0: the endpoint has accepted it, and works on it by itself until it says how it ended."""
        self.lease_known = False
        """The log has the report that says so."""
        self.lease_until_s = 0.0

    @property
    def is_given_up(self) -> bool:
        """It is being stopped, and whatever comes of it is not reported, or must not be relied on."""
        return self.abort in SILENT

    @property
    def outlives_partition(self) -> bool:
        return self.confirmed and self.committed
