"""Kinds of failure that users of other schedulers met (K numbers: docs/lessons.md), each as its smallest case here."""

import pytest

from tests.unit.streams.driver import T0, Driver, job
from tocsin.schemas.job import CatchUp, Overlap, OverlapMode, Retry, Schedule
from tocsin.schemas.records import CancelRun, Pause, Redrive, Resume, RunEvent, SkipNext, Trigger

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
MINUTELY = Schedule(cron=("* * * * *",))


def work_through(drive: Driver, ms: int, step_ms: int = SECOND_MS) -> list[int]:
    """Let time pass while every run succeeds at once; the nominals of what was dispatched, in seconds since T0."""
    nominals = []
    for _ in range(ms // step_ms):
        drive.advance(step_ms, step_ms)
        for due in drive.dues():
            nominals.append((due.nominal_ms - T0) // SECOND_MS)
            drive.report(due, "succeeded")
    return nominals


def skips(events: list[RunEvent]) -> dict[str, int]:
    """How many occurrences were skipped, by reason. A series is one event, told again as it grows."""
    newest = {event.run_id: event for event in events if event.status == "skipped"}
    found: dict[str, int] = {}
    for event in newest.values():
        found[event.reason] = found.get(event.reason, 0) + event.count
    return found


# --- catch-up and restarts ------------------------------------------------------------------------------------------------


def test_k15_an_occurrence_that_falls_into_a_takeover_runs_once_under_its_own_instant(drive: Driver) -> None:
    drive.define(job(Schedule(cron=("0 10 * * *",))))
    drive.advance(10 * HOUR_MS - 12_000, step_ms=MINUTE_MS)
    assert [] == drive.dues()  # its owner dies 12 s before the instant, ahead of the horizon
    drive.jump(15_000)
    due = drive.due()
    assert (T0 + 10 * HOUR_MS, 1) == (due.nominal_ms, due.dispatch)
    drive.report(due, "succeeded")
    assert [] == work_through(drive, 60_000)


@pytest.mark.parametrize(
    ("catchup", "run", "skipped"),
    [
        (CatchUp(mode="none"), [], {"missed": 600}),
        (CatchUp(mode="latest"), [36_000], {"coalesced": 599}),
        (CatchUp(mode="all", limit=50), [33_060 + 60 * n for n in range(50)], {"outside_limit": 550}),
        (CatchUp(mode="latest", window_ms=HOUR_MS), [36_000], {"outside_window": 540, "coalesced": 59}),
    ],
    ids=["none", "latest", "all", "window"],
)
def test_k16_after_ten_hours_down_as_many_run_as_the_policy_says_and_all_others_say_why(
    drive: Driver, catchup: CatchUp, run: list[int], skipped: dict[str, int]
) -> None:
    drive.define(job(MINUTELY, catchup=catchup, overlap=Overlap(mode="allow")))
    drive.runs()
    drive.jump(10 * HOUR_MS + 31_000)
    drive.advance(2_000)
    dues = drive.dues()
    assert run == [(due.nominal_ms - T0) // SECOND_MS for due in dues]
    assert skipped == skips(drive.runs())


def test_k17_three_paused_days_are_not_missed_and_the_next_minute_runs(drive: Driver) -> None:
    drive.define(job(MINUTELY, catchup=CatchUp(mode="all", limit=1_000)))
    drive.command(Pause(namespace="default", id="a"))
    drive.advance(3 * DAY_MS + 5_000, step_ms=HOUR_MS)
    drive.command(Resume(namespace="default", id="a"))
    assert {"paused": 3 * 1_440} == skips(drive.runs())
    assert [3 * 86_400 + 60, 3 * 86_400 + 120] == work_through(drive, 115_000)


def test_k18_an_edit_to_an_earlier_hour_fires_nothing_before_tomorrow(drive: Driver) -> None:
    drive.define(job(Schedule(cron=("0 18 * * *",))))
    drive.advance(12 * HOUR_MS, step_ms=MINUTE_MS)
    drive.define(job(Schedule(cron=("0 9 * * *",))))
    nominals = work_through(drive, 22 * HOUR_MS, step_ms=MINUTE_MS)
    assert [(24 + 9) * 3_600] == nominals


def test_k20_a_processor_that_stalls_for_five_minutes_leaves_no_occurrence_without_its_disposition(
    drive: Driver,
) -> None:
    drive.define(job(Schedule(every_ms=MINUTE_MS, anchor_ms=T0), overlap=Overlap(mode="allow")))
    before = work_through(drive, 10 * MINUTE_MS)
    drive.jump(5 * MINUTE_MS)
    for due in drive.dues():
        before.append((due.nominal_ms - T0) // SECOND_MS)
        drive.report(due, "succeeded")
    after = work_through(drive, 5 * MINUTE_MS)
    events = drive.runs()
    skipped = [
        (event.nominal_ms - T0) // SECOND_MS + 60 * n
        for event in {event.run_id: event for event in events if event.status == "skipped"}.values()
        for n in range(event.count)
    ]
    assert [60 * n for n in range(1, 21)] == sorted({*before, *after, *skipped})
    assert 20 == len(before) + len(after) + len(skipped)


# --- duplicates and order -------------------------------------------------------------------------------------------------


def test_k25_midnight_sends_nothing_again(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + 23 * HOUR_MS), when_finished="keep"))
    assert [23 * 3_600] == work_through(drive, 3 * DAY_MS, step_ms=MINUTE_MS)


def test_k26_the_same_definition_from_four_processes_is_one_job_with_one_run_for_each_instant(
    drive: Driver,
) -> None:
    for _ in range(4):
        drive.define(job(MINUTELY))
    assert ["revision_applied"] == drive.job_events()
    assert [60, 120] == work_through(drive, 2 * MINUTE_MS)
    drive.define(job(MINUTELY))
    assert [180] == work_through(drive, MINUTE_MS)


def test_k27_a_run_keeps_the_revision_it_was_started_from_through_edit_deletion_and_re_creation(
    drive: Driver,
) -> None:
    drive.define(job(MINUTELY, description="v1"))
    drive.advance(MINUTE_MS)
    first = drive.due()
    drive.report(first, "started")
    drive.define(job(MINUTELY, description="v2"))
    drive.delete()
    drive.define(job(MINUTELY, description="v3"))
    drive.report(first, "succeeded")
    assert [("succeeded", 1)] == [(e.status, e.revision) for e in drive.runs() if e.status == "succeeded"]
    drive.advance(MINUTE_MS)
    second = drive.due()
    assert (T0 + 2 * MINUTE_MS, 3) == (second.nominal_ms, second.revision)


def test_k28_two_jobs_with_one_schedule_both_run(drive: Driver) -> None:
    drive.define(job(MINUTELY))
    drive.define(job(MINUTELY, id="b"))
    drive.advance(MINUTE_MS)
    assert {"a", "b"} == {due.job_id for due in drive.dues()}


# --- storms ---------------------------------------------------------------------------------------------------------------


def test_k29_a_storm_of_timers_does_not_keep_a_command_waiting(drive: Driver) -> None:
    """More timers due at one instant than one pass handles: the pause is applied by the very next tick."""
    per_pass = 50
    drive.core.timers_per_pass_max = per_pass
    for number in range(6 * per_pass):
        drive.define(job(Schedule(at_ms=T0 + HOUR_MS), id=f"j{number:04d}"))
    drive.define(job(MINUTELY))
    drive.jump(HOUR_MS)
    assert len(drive.dues()) <= per_pass
    drive.command(Pause(namespace="default", id="a"))
    assert drive.row.paused
    handled = 0
    for _ in range(12):
        drive.advance(1)
        handled += len(drive.dues())
    assert handled >= 5 * per_pass  # and the storm is gone through all the same


# --- execution, cancel ----------------------------------------------------------------------------------------------------


def test_k39_an_attempt_that_falls_silent_is_followed_and_what_it_says_too_late_is_stale(
    drive: Driver,
) -> None:
    drive.define(job(Schedule(at_ms=T0 + MINUTE_MS), lease_ms=30_000, retry=Retry(base_ms=1_000, jitter=0.0)))
    drive.advance(MINUTE_MS)
    first = drive.due()
    drive.report(first, "started")
    for _ in range(30):  # five minutes of heartbeats: one attempt
        drive.advance(10_000)
        drive.report(first, "heartbeat")
    assert [] == drive.dues()
    drive.advance(33_000)
    second = drive.due()
    assert (2, 2) == (second.attempt, second.dispatch)
    drive.report(first, "succeeded")
    assert [] == drive.ends()
    drive.report(second, "succeeded")
    assert [(60, "succeeded", "")] == drive.ends()


@pytest.mark.parametrize("mode", ["skip", "buffer_one", "replace"])
def test_k40_a_worker_that_dies_does_not_block_its_job_for_ever(drive: Driver, mode: OverlapMode) -> None:
    retry = Retry(max_attempts=1)
    drive.define(job(MINUTELY, lease_ms=90_000, overlap=Overlap(mode=mode), retry=retry))
    drive.advance(MINUTE_MS)
    drive.report(drive.due(), "started")  # and nothing ever again
    drive.advance(3 * MINUTE_MS)
    assert [60] == [second for second, status, _ in drive.ends() if status in ("failed", "cancelled")]
    later = drive.dues()
    assert later
    assert all(due.nominal_ms > T0 + MINUTE_MS for due in later)


def test_k40_a_run_that_is_alive_keeps_the_next_out_also_after_the_owner_changed(drive: Driver) -> None:
    drive.define(job(MINUTELY))
    drive.advance(MINUTE_MS)
    due = drive.due()
    drive.report(due, "started")
    for _ in range(5):
        drive.advance(30_000)
        drive.report(due, "heartbeat")
    assert [] == drive.dues()
    assert {"overlap": 2} == skips(drive.runs())


def test_k41_a_run_cancelled_between_two_attempts_has_no_second(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + MINUTE_MS), when_finished="keep"))
    drive.advance(MINUTE_MS)
    drive.report(drive.due(), "failed", retryable=True)
    drive.command(CancelRun(namespace="default", id="a"))
    drive.advance(6 * HOUR_MS, step_ms=MINUTE_MS)
    assert [] == drive.dues()
    assert [(60, "cancelled", "cancelled")] == drive.ends()


# --- operations -----------------------------------------------------------------------------------------------------------


def test_k51_a_redriven_dead_letter_keeps_its_policy_and_can_die_again(drive: Driver) -> None:
    drive.define(job(Schedule(), retry=Retry(max_attempts=1), when_finished="keep"))
    drive.command(Trigger(namespace="default", id="a", trigger_id="once"))
    drive.report(drive.due(), "failed", retryable=True)
    (letter,) = drive.letters()
    redrive = Redrive(namespace="default", id="a", run_id=letter.run.run_id, seq=letter.run.seq)
    drive.command(redrive)
    again = drive.due()
    assert (letter.run.run_id, 2) == (again.run_id, again.dispatch)
    drive.report(again, "failed", retryable=True)
    assert 1 == len(drive.letters())


def test_k53_of_the_next_occurrences_as_many_are_skipped_as_asked_and_the_one_after_runs(
    drive: Driver,
) -> None:
    drive.define(job(MINUTELY))
    drive.command(SkipNext(namespace="default", id="a", count=2))
    assert [180, 240] == work_through(drive, 4 * MINUTE_MS)
    assert {"skip_next": 2} == skips(drive.runs())
