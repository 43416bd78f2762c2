"""The rules of the worker, W1 to W10, as switches.

Each rule was put there by a trace in which the protocol without it loses, repeats or overlaps an execution. They are
always all on; the simulation turns one off to show that its trace then happens, so that no rule outlives its reason.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRules:
    """All True, outside of the simulation."""

    w1: bool = True
    """Every due record fetched ends in a report in the log, also one whose withdrawal was read first, and also one
    that this worker remembers from an earlier assignment. Silent endings are those of P8 and W7 alone."""
    w2: bool = True
    """An offset is finished when the log has acknowledged its final report, or its claim was read back from control.
    Both lanes of a partition are committed in one request."""
    w3: bool = True
    """Nothing of a partition starts before its control was read past the end that it had at the assignment."""
    w4: bool = True
    """`dropped`, `cancelled` and `expired` are sent only after an offset commit that was sent after their reason was
    read has succeeded."""
    w5: bool = True
    """Withdrawals apply to executions whoever owns the partition; an execution outlives its partition only if its
    claim was read back and the offset was committed afterwards."""
    w6: bool = True
    """On revoke: claim what is in flight, wait for the confirmation for at most a second, commit, abort the rest."""
    w7: bool = True
    """Both lanes are scanned to their ends before anything starts; an earlier record of a run, or one below its job's
    floor, never starts once a later one was read."""
    w7_scan: bool = True
    """The scan of W7 passes the limits of W9 and of the hold: beyond them records are noted, and fetched again later."""
    w8: bool = True
    """A start needs an accepted offset commit that was sent less than the session timeout, less a second, ago."""
    w9: bool = True
    """Highest fetched minus lowest unfinished never exceeds what the commit's metadata can say."""
    w10: bool = True
    """Each assignment has an epoch, one above the one found in the committed metadata; every report carries it."""


ALL_RULES: Final = WorkerRules()
