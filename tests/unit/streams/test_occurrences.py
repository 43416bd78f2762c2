"""What becomes of occurrences: ahead, late, missed, paused, overlapping."""

from dataclasses import replace

from tests.unit.streams.driver import KEY, T0, Driver, job
from tocsin.schemas.job import CatchUp, HttpTarget, Job, Overlap, Retry, Schedule
from tocsin.schemas.records import Pause, Resume, SkipNext, Trigger

EVERY_5S = Schedule(every_ms=5_000)


def test_an_occurrence_is_dispatched_ahead_with_its_due_instant(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.advance(49_000)
    assert drive.dues() == []
    drive.advance(1_000)
    due = drive.due()
    assert (due.run_id, due.due_ms) == ("default/a@20260101T000100.000Z", T0 + 60_000)
    assert (due.attempt, due.dispatch, due.revision, due.floor) == (1, 1, 1, due.seq)


def test_a_job_that_is_defined_again_alike_keeps_its_revision(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.define(job(EVERY_5S))
    assert drive.row.revision == 1
    assert drive.job_events() == ["revision_applied"]


def test_the_next_occurrence_counts_from_the_nominal_and_not_from_the_end(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.advance(1_000)
    nominals = []
    for _ in range(20):
        due = drive.due()
        nominals.append((due.nominal_ms - T0) // 1000)
        drive.advance(due.due_ms + 3_000 - drive.now_ms)
        drive.report(due, "succeeded")
    assert nominals == list(range(5, 105, 5))


def test_while_a_run_is_open_the_next_occurrence_is_decided_at_its_instant(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.advance(1_000)
    first = drive.due()
    drive.advance(8_000)
    assert drive.dues() == []
    drive.advance(1_000)
    assert drive.ends() == [(10, "skipped", "overlap")]
    drive.report(first, "succeeded")
    assert drive.due().nominal_ms == T0 + 15_000


def test_the_end_of_a_run_lets_the_next_occurrence_go_ahead(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.advance(6_000)
    drive.report(drive.due(), "succeeded")
    assert drive.due().due_ms == T0 + 10_000


def test_overlaps_that_are_allowed_are_all_dispatched_ahead(drive: Driver) -> None:
    drive.define(job(EVERY_5S, overlap=Overlap(mode="allow")))
    drive.advance(1_000)
    assert [due.nominal_ms - T0 for due in drive.dues()] == [5_000, 10_000]


def test_buffer_one_keeps_one_and_skips_the_rest(drive: Driver) -> None:
    drive.define(job(EVERY_5S, overlap=Overlap(mode="buffer_one")))
    drive.advance(21_000)
    first = drive.due()
    assert drive.ends() == [(15, "skipped", "overlap"), (15, "skipped", "overlap")]
    drive.report(first, "succeeded")
    assert drive.due().nominal_ms == T0 + 10_000


def test_buffer_all_keeps_up_to_its_limit(drive: Driver) -> None:
    drive.define(job(EVERY_5S, overlap=Overlap(mode="buffer_all", limit=2)))
    drive.advance(21_000)
    first = drive.due()
    assert drive.ends() == [(20, "skipped", "overlap_limit")]
    drive.report(first, "succeeded")
    second = drive.due()
    assert second.nominal_ms == T0 + 10_000
    drive.report(second, "succeeded")
    assert drive.due().nominal_ms == T0 + 15_000


def test_replace_cancels_the_running_one_and_waits_for_its_end(drive: Driver) -> None:
    drive.define(job(EVERY_5S, overlap=Overlap(mode="replace")))
    drive.advance(6_000)
    first = drive.due()
    drive.report(first, "started")
    drive.advance(5_000)
    assert drive.controls()[-1].withdrawn_how == "cancel"
    assert drive.dues() == []
    drive.report(first, "cancelled")
    assert drive.due().nominal_ms == T0 + 10_000
    assert (5, "cancelled", "replaced") in drive.ends()


def test_a_run_that_waits_for_a_retry_gives_way_to_the_next_occurrence(drive: Driver) -> None:
    drive.define(job(EVERY_5S, retry=Retry(base_ms=60_000, jitter=0.0)))
    drive.advance(6_000)
    drive.report(drive.due(), "failed", retryable=True)
    drive.advance(5_000)
    assert drive.ends() == [(5, "superseded", "next_occurrence")]
    assert drive.due().nominal_ms == T0 + 10_000


def test_a_retry_counts_as_active_if_the_policy_says_so(drive: Driver) -> None:
    drive.define(job(EVERY_5S, retry=Retry(base_ms=7_000, jitter=0.0, until_next=False)))
    drive.advance(6_000)
    drive.report(drive.due(), "failed", retryable=True)
    drive.advance(5_000)
    assert drive.ends() == [(10, "skipped", "overlap")]
    retry = drive.due()
    assert (retry.attempt, retry.dispatch, retry.due_ms) == (2, 2, T0 + 13_000)


def test_a_retry_due_after_the_next_occurrence_waits_for_its_decision(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=20_000), retry=Retry(base_ms=20_000, jitter=0.0)))
    drive.advance(25_000)
    drive.report(drive.due(), "failed", retryable=True)  # the retry would be at 45 s
    drive.advance(12_000)
    assert drive.dues() == []
    drive.advance(4_000)
    assert drive.due().nominal_ms == T0 + 40_000
    assert (20, "superseded", "next_occurrence") in drive.ends()


# --- late and missed


def test_after_a_downtime_the_newest_missed_occurrence_runs(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.advance(1_000)
    drive.jump(3_600_000 + 45_000)  # 01:00:46; the occurrence of 01:00 is 46 s late
    due = drive.due()
    assert (due.nominal_ms - T0, due.cause) == (3_600_000, "catchup")
    (series,) = [run for run in drive.runs() if run.status == "skipped"]
    assert (series.reason, series.nominal_ms, series.last_nominal_ms, series.count) == (
        "coalesced",
        T0 + 60_000,
        T0 + 3_540_000,
        59,
    )


def test_an_occurrence_that_is_only_late_stands_for_all_missed_ones(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.advance(1_000)
    drive.jump(3_600_000 + 9_000)  # 01:00:10
    due = drive.due()
    assert (due.nominal_ms - T0, due.cause) == (3_600_000, "schedule")
    (series,) = [run for run in drive.runs() if run.status == "skipped"]
    assert (series.reason, series.count) == ("coalesced", 59)


def test_catch_up_none_skips_all_missed_occurrences(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000), catchup=CatchUp(mode="none")))
    drive.advance(1_000)
    drive.jump(36_000_000 + 45_000)
    assert drive.dues() == []
    (series,) = drive.runs()
    assert (series.reason, series.count) == ("missed", 600)


def test_catch_up_all_runs_the_newest_of_the_window_one_after_the_other(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000), catchup=CatchUp(mode="all", limit=50)))
    drive.advance(1_000)
    drive.jump(36_000_000 + 45_000)
    runs = drive.runs()
    (skipped,) = [run for run in runs if run.status == "skipped"]
    assert (skipped.reason, skipped.count) == ("outside_limit", 550)
    assert len([run for run in runs if run.status == "buffered"]) == 49
    first = drive.due()
    assert first.nominal_ms == T0 + 551 * 60_000
    drive.report(first, "succeeded")
    assert drive.due().nominal_ms == T0 + 552 * 60_000


def test_missed_occurrences_older_than_the_window_are_skipped(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000), catchup=CatchUp(mode="latest", window_ms=600_000)))
    drive.advance(1_000)
    drive.jump(3_600_000 + 45_000)
    assert drive.due().nominal_ms == T0 + 3_600_000
    reasons = {run.reason: run.count for run in drive.runs() if run.status == "skipped"}
    assert reasons == {"outside_window": 50, "coalesced": 9}


def test_a_one_shot_that_was_armed_in_time_runs_however_late(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + 60_000)))
    drive.advance(1_000)
    drive.jump(10 * 86_400_000)
    due = drive.due()
    assert due.nominal_ms == T0 + 60_000
    assert due.start_deadline_ms == drive.now_ms + 86_400_000
    drive.report(due, "succeeded")
    assert drive.row.finished_ms > 0
    assert drive.row.delete_at_ms == drive.now_ms + 7 * 86_400_000


def test_a_past_one_shot_runs_at_once_or_is_outside_the_window(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 - 60_000)))
    assert drive.due().nominal_ms == T0 - 60_000
    drive.define(job(Schedule(at_ms=T0 - 90_000_000), id="b"))
    assert drive.ends() == [(-90_000, "skipped", "outside_window")]


def test_a_one_shot_is_never_run_twice_not_even_after_deletion(drive: Driver) -> None:
    drive.define(job(Schedule(at_ms=T0 + 5_000)))
    drive.advance(6_000)
    drive.report(drive.due(), "succeeded")
    drive.delete()
    drive.define(job(Schedule(at_ms=T0 + 5_000)))
    drive.advance(60_000)
    assert drive.dues() == []


def test_a_delay_counts_from_the_log_s_timestamp(drive: Driver) -> None:
    drive.define(job(Schedule(delay_ms=30_000)), at_ms=T0 - 5_000)
    drive.advance(20_000)
    assert drive.due().due_ms == T0 + 25_000


def test_max_runs_ends_the_schedule(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=5_000, max_runs=2)))
    for nominal in (5_000, 10_000):
        drive.advance(5_000)
        due = drive.due()
        assert due.nominal_ms == T0 + nominal
        drive.report(due, "succeeded")
    drive.advance(30_000)
    assert drive.dues() == []
    assert drive.row.finished_ms > 0


def test_a_fixed_delay_counts_from_the_end_of_the_run(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=10_000, after_completion=True)))
    drive.advance(13_000)
    due = drive.due()
    assert due.nominal_ms == T0 + 10_000
    drive.report(due, "succeeded")  # at 13 s
    drive.advance(3_000)
    assert drive.due().nominal_ms == T0 + 23_000


def test_spread_moves_due_and_not_nominal(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000, spread_ms=600_000)))
    drive.advance(3_600_000 + 600_000, step_ms=5_000)
    due = drive.due()
    assert due.nominal_ms == T0 + 3_600_000
    assert 0 <= due.due_ms - due.nominal_ms < 600_000


# --- pause, skip, trigger


def test_a_paused_job_skips_and_goes_on_after_resume(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.command(Pause(namespace="default", id="a", reason="holiday"))
    drive.advance(3 * 86_400_000, step_ms=3_600_000)
    assert drive.dues() == []
    drive.command(Resume(namespace="default", id="a"))
    drive.advance(60_000)
    assert len(drive.dues()) == 1
    assert {run.reason for run in drive.runs() if run.status == "skipped"} == {"paused"}


def test_skips_of_one_series_share_a_history_slot(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.command(Pause(namespace="default", id="a"))
    drive.advance(600_000, step_ms=10_000)
    skips = [run for run in drive.runs() if run.status == "skipped"]
    assert (len(skips), {run.history_no for run in skips}, skips[-1].count) == (10, {1}, 10)


def test_pause_until_ends_by_itself(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.command(Pause(namespace="default", id="a", until_ms=T0 + 90_000))
    drive.advance(115_000)
    assert [due.nominal_ms - T0 for due in drive.dues()] == [120_000]
    assert "resumed" in drive.job_events()


def test_skip_next_skips_that_many(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=60_000)))
    drive.command(SkipNext(namespace="default", id="a", count=2))
    drive.advance(171_000)
    assert [due.nominal_ms - T0 for due in drive.dues()] == [180_000]
    assert drive.ends() == [(60, "skipped", "skip_next"), (60, "skipped", "skip_next")]


def test_a_trigger_runs_at_once_and_only_once_for_its_id(drive: Driver) -> None:
    drive.define(job(Schedule(every_ms=3_600_000)))
    trigger = Trigger(namespace="default", id="a", trigger_id="t1", body=b"{}")
    drive.command(trigger)
    due = drive.due()
    assert due.run_id == "default/a!t.t1"
    assert due.http is not None
    assert due.http.body == b"{}"
    drive.command(trigger)
    drive.report(due, "succeeded")
    drive.command(trigger)
    assert drive.dues() == []


def test_a_trigger_waits_for_the_open_run(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.advance(6_000)
    first = drive.due()
    drive.command(Trigger(namespace="default", id="a", trigger_id="t1"))
    assert drive.dues() == []
    drive.report(first, "succeeded")
    assert drive.due().run_id == "default/a!t.t1"


def test_a_command_for_an_unknown_job_is_rejected(drive: Driver) -> None:
    drive.command(Trigger(namespace="default", id="a", trigger_id="t1"))
    assert drive.job_events() == ["command_rejected"]


def test_a_command_waits_for_the_definition_that_it_comes_after(drive: Driver) -> None:
    drive.command(Trigger(namespace="default", id="a", trigger_id="t1", after_jobs_offset=0))
    assert (drive.dues(), drive.job_events()) == ([], [])
    drive.define(job(Schedule(every_ms=3_600_000)))
    assert drive.due().run_id == "default/a!t.t1"


def test_a_job_without_a_schedule_waits_for_triggers_and_is_never_finished(drive: Driver) -> None:
    drive.define(Job(id="a", http=HttpTarget(url="http://127.0.0.1:1/")))
    drive.command(Trigger(namespace="default", id="a", trigger_id="t1"))
    drive.report(drive.due(), "succeeded")
    drive.advance(8 * 86_400_000, step_ms=3_600_000)
    assert (drive.row.finished_ms, drive.row.delete_at_ms) == (0, 0)


def test_new_time_zone_data_moves_what_is_armed_and_says_so(drive: Driver) -> None:
    drive.define(job(Schedule(cron=("0 9 * * *",), timezone="Africa/Cairo")))
    drive.define(job(Schedule(cron=("0 9 * * *",)), id="b"))
    row = drive.row.copy()
    row.armed_nominal_ms += 3_600_000  # as older data had it
    row.armed_due_ms += 3_600_000
    drive.view.put_job(KEY, row)
    drive.job_events()
    cluster = replace(drive.config.cluster, tzdata="2026b")
    drive.config = replace(drive.config, cluster=cluster)
    drive.advance(1_000)
    assert drive.job_events() == ["tzdata_changed"]
    assert drive.row.armed_nominal_ms == row.armed_nominal_ms - 3_600_000
    drive.advance(1_000)
    assert drive.job_events() == []


def test_the_watermark_is_the_tick_when_everything_is_decided(drive: Driver) -> None:
    drive.define(job(EVERY_5S))
    drive.advance(5_000)
    assert drive.watermark == drive.core.journal.now_ms
    drive.read_reports = False
    drive.advance(7_000)  # the occurrence at 10 s waits until reports are read
    assert drive.watermark == T0 + 9_999
    drive.read_reports = True
    drive.advance(1_000)
    assert drive.watermark == drive.core.journal.now_ms


def test_an_unknown_queue_breaks_the_job_and_not_the_partition(drive: Driver) -> None:
    drive.define(job(EVERY_5S, queue="gone"))
    drive.define(job(EVERY_5S, id="b"))
    drive.advance(1_000)
    assert drive.row.broken == "unknown_queue"
    assert drive.due().job_id == "b"
    drive.define(job(EVERY_5S))
    drive.advance(1_000)
    assert drive.due().job_id == "a"


def test_the_job_key_is_the_driver_s_own() -> None:
    assert job().key == KEY
