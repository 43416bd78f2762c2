"""The processor's rules, each of which can be switched off: in a test, to see that its trace then happens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """All on outside tests. The numbers are those of docs/decisions/006-look-ahead-dispatch.md."""

    p1_stale_dispatch: bool = True
    """A report is folded only if it names the run's outstanding dispatch."""
    p2_cumulative_control: bool = True
    """A withdrawal covers every dispatch up to n, and only grows stronger."""
    p3_leases_under_withdrawal: bool = True
    """Claims are folded, and leases run, under a withdrawal too."""
    p4_decide_when_dropped: bool = True
    """What follows a drop is decided when it is folded, by what was in force at the due instant."""
    p5_drop_of_claimed: bool = True
    """A drop of a claimed attempt is ignored; a drop that nobody asked for is a lost attempt."""
    p6_cancel_wins_over_failure: bool = True
    """A failure or loss after a cancel is a cancel; of a deleted job it is not retried."""
    p7_outstanding_needs_answer: bool = True
    """"At once" applies only while no due record is outstanding."""
    p8_settle: bool = True
    """A dispatch that ends other than by success is settled in control, in the same transaction."""
    p9_reports_first: bool = True
    """A timer that depends on reports fires only after they were read."""
    p10_wait_for_answer: bool = True
    """A run under withdrawal that is not known to have begun causes no skip."""
    p11_retry_after_occurrence: bool = True
    """A retry due at or after the next occurrence waits for that decision."""
    p12_watermark_waits: bool = True
    """The watermark does not pass an occurrence under withdrawal."""
    p13_start_deadline: bool = True
    """A dispatch that nobody began by its start deadline is closed, and a claim outweighs `expired`."""
    seq_goes_on: bool = True
    """The seq of a job that is created again goes on, also when nothing is remembered of the one before."""


ALL: StreamRules = StreamRules()
