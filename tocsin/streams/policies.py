"""The policies, as pure functions over values: when to try again, what is missed, who is active."""

from collections.abc import Iterable
from typing import Final, NamedTuple, assert_never
from zlib import crc32

from tocsin.schemas.job import CatchUp, Retry
from tocsin.schemas.records import RunStatus
from tocsin.schemas.rows import RunRow

_CRC_RANGE: Final = 1 << 32


def retry_delay_ms(retry: Retry, failures: int, seed: str, retry_after_ms: int) -> int:
    """How long to wait after the `failures`-th failure (1, 2, ...). `seed` names run and attempt.

    The endpoint's Retry-After (>= 0) wins over the backoff, up to `max`. Jitter comes from a hash of the seed,
    so that a replay computes the same instant.
    """
    if retry_after_ms >= 0:
        return min(retry_after_ms, retry.max_ms)
    match retry.backoff:
        case "exponential":
            # The exponent is bounded: 4.0 ** 1000 overflows, and max_ms is reached long before.
            delay = retry.base_ms * retry.factor ** min(failures - 1, 64)
        case "linear":
            delay = float(retry.base_ms * failures)
        case "fixed":
            delay = float(retry.base_ms)
        case "list":
            delay = float(retry.delays_ms[min(failures, len(retry.delays_ms)) - 1])
        case _:
            assert_never(retry.backoff)
    bounded = min(delay, float(retry.max_ms)) if retry.backoff != "list" else delay
    spread = crc32(seed.encode()) / _CRC_RANGE * 2.0 - 1.0
    return max(0, int(bounded * (1.0 + retry.jitter * spread)))


def may_try_again(retry: Retry, run: RunRow, due_ms: int) -> str:
    """Why no further attempt is made, or "" if the next one may be due at `due_ms`."""
    if run.attempt - run.attempts_before >= retry.max_attempts:
        return "max_attempts"
    if due_ms > run.age_from_ms + retry.max_age_ms:
        return "max_age"
    return ""


def is_missed(catchup: CatchUp, now_ms: int, due_ms: int) -> bool:
    """Later than the grace is missed; up to that, only late."""
    return now_ms - due_ms > catchup.grace_ms


class OpenRuns(NamedTuple):
    """The open runs of a job, as an occurrence sees them at its instant."""

    supersedable: list[RunRow]
    """They only wait for a retry that a newer occurrence makes pointless."""
    unanswered: list[RunRow]
    """Under withdrawal, and not known to have begun."""
    active: list[RunRow]
    buffered: int


_WAITING: Final[frozenset[RunStatus]] = frozenset({"retrying", "buffered", "waiting"})


def sort_open_runs(runs: Iterable[tuple[RunRow, bool]]) -> OpenRuns:
    """Sort the open runs, each with its own policy's until_next, for the decision of an occurrence.

    A run that was withdrawn and dropped has no due record: it is decided by itself and hinders nobody. One whose due
    record is out is active, also if it is due a little later (a trigger, what was released): a worker may start it.
    """
    supersedable: list[RunRow] = []
    unanswered: list[RunRow] = []
    active: list[RunRow] = []
    buffered = 0
    for run, until_next in runs:
        match run.status:
            case "undecided":
                continue
            case "retrying" if until_next:
                supersedable.append(run)
            case "scheduled" if run.withdrawal != "none":
                unanswered.append(run)
            case _:
                active.append(run)
                buffered += run.status == "buffered"
    return OpenRuns(supersedable, unanswered, active, buffered)


def has_due_record(run: RunRow) -> bool:
    """Whether a worker may hold, or have begun, an attempt of the run."""
    return run.outstanding and run.status not in _WAITING
