"""What the seeds have found, each as the smallest life in which it happened. The judge looks at all of them, too."""

from dataclasses import replace
from typing import Any

from tests.sim.endpoint import Script
from tests.sim.evidence import Evidence
from tests.sim.oracle import Verdict, judge
from tests.sim.scenario import settle
from tests.sim.world import START_MS, World
from tocsin.schemas.job import CatchUp, HttpTarget, Job, Overlap, Retry, Schedule
from tocsin.schemas.records import CancelRun, DueRun, Pause, Redrive, Resume, RunEvent, SkipNext, Trigger

TARGET = HttpTarget(url="http://sink.example/a")
PAUSE = Pause(namespace="sim", id="a")
RESUME = Resume(namespace="sim", id="a")
ENDS_MS = START_MS + 30_500


def every(ms: int, **fields: Any) -> Schedule:
    return Schedule(every_ms=ms, anchor_ms=START_MS, ends_at_ms=ENDS_MS, **fields)


def job(schedule: Schedule, **fields: Any) -> Job:
    return Job(namespace="sim", id="a", schedule=schedule, http=TARGET, **fields)


def at_work(world: World) -> None:
    world.start()
    world.run(500)


def lived(world: World) -> Verdict:
    """Everything settles; then it is judged."""
    settle(world)
    world.stop(*world.streams)
    return judge(world)


def ends(world: World) -> dict[str, str]:
    """Status and reason of each run and series of skips, by nominal (seconds since the start) or trigger id."""
    found = {}
    for each in Evidence(world).run_events:
        event = each.value
        name = event.run_id.rpartition("!t.")[2] if "!t." in event.run_id else at(event)
        found[name] = f"{event.status} {event.reason}".strip()
    return found


def at(event: RunEvent) -> str:
    first, last = ((ms - START_MS) / 1_000 for ms in (event.nominal_ms, event.last_nominal_ms))
    return f"{first:g}" if first == last else f"{first:g}-{last:g}"


# --- after an outage: many changes in one tick ----------------------------------------------------------------------------


def test_a_run_that_is_released_late_is_not_asked_back_by_a_change_before_its_release() -> None:
    with World() as world:
        at_work(world)
        world.script(Script(duration_ms=5_000))
        world.define(job(every(4_000), overlap=Overlap(mode="buffer_one")))
        world.run_until(lambda: ends(world).get("8") == "buffered", within_ms=9_000)
        world.crash("s0")
        world.run(7_000)
        world.command(SkipNext(namespace="sim", id="a", count=1))
        world.start("s0")
        lived(world)
        assert "succeeded" == ends(world)["8"]


def test_what_is_due_after_a_resume_is_not_skipped_as_paused_by_a_later_tick() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000), catchup=CatchUp(mode="all")))
        world.run(100)
        world.command(PAUSE)
        world.run(4_000)
        world.crash("s0")
        world.run(2_000)
        world.command(RESUME)  # at 6.5 s
        world.run(6_000)
        world.start("s0")
        lived(world)
        assert "skipped paused" == ends(world)["2"] == ends(world)["4-6"]
        assert "succeeded" == ends(world)["8"]


def test_a_pause_ends_at_its_end_though_nobody_was_there() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000), catchup=CatchUp(mode="all")))
        world.run(100)
        world.command(replace(PAUSE, until_ms=START_MS + 7_000))
        world.run(4_000)
        world.crash("s0")
        world.run(8_000)
        world.start("s0")
        lived(world)
        assert "skipped paused" == ends(world)["2"] == ends(world)["4-6"]
        assert "succeeded" == ends(world)["8"]


def test_changes_of_a_job_count_in_the_order_in_which_they_are_applied() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000)))
        world.run(1_000)
        world.crash("s0")
        world.run(3_000)
        world.define(job(every(5_000)))  # at 4.5 s, and applied after the commands
        world.run(4_000)
        world.command(PAUSE)
        world.run(1_000)
        world.command(RESUME)
        world.run(1_000)
        world.start("s0")
        lived(world)
        effective = [each.value.effective_ms for each in Evidence(world).job_events]
        assert sorted(effective) == effective


def test_a_resume_counts_for_an_occurrence_whose_drop_is_folded_in_the_same_tick() -> None:
    with World() as world:
        at_work(world)
        world.define(job(Schedule(at_ms=START_MS + 8_000)))
        world.run(500)
        world.command(PAUSE)
        world.run_until(lambda: bool(Evidence(world).controls), every_ms=1, but=("w0",))
        world.crash("s0")
        world.run(1_000)  # the worker answers
        world.command(RESUME)
        world.run(9_000)
        world.start("s0")
        lived(world)
        assert "succeeded" == ends(world)["8"]


def test_a_pause_whose_end_has_passed_when_it_counts_is_refused() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000)))
        world.run(1_000)
        world.command(replace(PAUSE, until_ms=START_MS + 1_000))
        lived(world)
        refused = [each.value for each in Evidence(world).job_events if each.value.kind == "command_rejected"]
        assert ["until_passed"] == [event.reason for event in refused]


# --- what nobody may forget -----------------------------------------------------------------------------------------------


def test_what_waits_for_its_spread_is_skipped_when_no_definition_names_it_any_more() -> None:
    for after in (
        job(Schedule(every_ms=4_000, after_completion=True, ends_at_ms=ENDS_MS)),
        job(Schedule(at_ms=START_MS + 20_000)),
        job(Schedule()),
        replace(job(Schedule()), queue="nowhere"),
        None,
    ):
        with World() as world:
            at_work(world)
            world.script(Script(duration_ms=9_000))
            world.define(job(every(10_000, spread_ms=9_000)))  # of 10 s, due some seconds later
            world.run(2_000)
            # Keeps it from being decided ahead.
            world.command(Trigger(namespace="sim", id="a", trigger_id="t"))
            world.run(7_600)
            world.delete("sim/a") if after is None else world.define(after)
            lived(world)
            assert "10" in ends(world), after


def test_a_delay_that_waits_for_its_spread_is_skipped_when_an_edit_counts_it_anew() -> None:
    with World() as world:
        at_work(world)
        world.script(Script(duration_ms=9_000))
        world.command(Trigger(namespace="sim", id="a", trigger_id="t", after_jobs_offset=0))
        world.define(job(Schedule(delay_ms=6_000, spread_ms=6_000)))
        world.run(6_500)
        world.define(job(Schedule(delay_ms=6_000)))
        lived(world)
        assert "skipped edited" == ends(world)["6.5"]


def test_a_one_shot_ahead_runs_also_if_later_instants_were_dispatched_before() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000), overlap=Overlap(mode="allow")))
        world.run(500)
        world.define(job(Schedule(at_ms=START_MS + 5_000)))
        lived(world)
        assert "succeeded" == ends(world)["5"]


def test_an_occurrence_that_was_dispatched_ahead_is_not_caught_up_with_again() -> None:
    with World() as world:
        at_work(world)
        world.define(job(Schedule(at_ms=START_MS + 8_000)))
        world.run(500)
        world.command(CancelRun(namespace="sim", id="a"))
        world.run(1_000)
        world.define(job(every(1_000), catchup=CatchUp(mode="all", grace_ms=1_000)))
        world.run(200)
        world.crash("s0")
        world.run(20_000)
        world.start("s0")
        lived(world)
        assert "cancelled cancelled" == ends(world)["8"]


def test_a_catch_up_makes_no_more_runs_than_the_schedule_may() -> None:
    with World() as world:
        at_work(world)
        given = {"overlap": Overlap(mode="allow"), "catchup": CatchUp(mode="all", grace_ms=1_000)}
        world.define(job(every(20_000), **given))
        world.run(500)
        world.crash("s0")
        world.define(job(every(1_000, max_runs=3), **given))
        world.run(10_000)
        world.start("s0")
        verdict = lived(world)
        assert 3 == verdict.counts["runs succeeded"]


def test_each_occurrence_of_a_fixed_delay_has_its_own_instant_though_the_clock_stands_still() -> None:
    with World(clock_mode="wall") as world:
        at_work(world)
        world.define(job(Schedule(every_ms=1_000, after_completion=True, ends_at_ms=START_MS + 9_000)))
        world.run(1_000)
        world.streams["s0"].clock.error_ms = -4_000
        world.run(5_000)
        world.streams["s0"].clock.error_ms = 0
        lived(world)
        runs = [due.value.run_id for due in Evidence(world).dues]
        assert len(set(runs)) == len(runs) > 3


def test_what_was_due_while_the_job_was_deleted_stays_deleted_when_it_is_created_again() -> None:
    with World() as world:
        at_work(world)
        world.define(job(Schedule(at_ms=START_MS + 6_000)))
        world.run(500)
        world.delete("sim/a")
        world.run(500)
        world.crash("s0")
        world.run(8_000)
        world.define(job(Schedule(at_ms=START_MS + 6_000)))
        world.start("s0")
        lived(world)
        assert "skipped deleted" == ends(world)["6"]


# --- who waits for whom -----------------------------------------------------------------------------------------------------


def test_an_occurrence_that_is_decided_late_does_not_run_beside_a_trigger() -> None:
    with World() as world:
        at_work(world)
        world.script(Script(duration_ms=3_000))
        world.define(job(every(5_000)))
        world.run(500)
        world.crash("s0")
        world.run(6_000)
        world.command(Trigger(namespace="sim", id="a", trigger_id="t"))
        world.run(6_000)
        world.start("s0")
        lived(world)
        assert "succeeded" == ends(world)["t"]
        assert "succeeded" == ends(world)["5"]


def test_what_is_buffered_goes_on_when_the_run_before_it_gives_way_to_an_occurrence() -> None:
    endings = iter(("failed", "succeeded", "succeeded", "succeeded", "succeeded", "succeeded"))
    with World() as world:
        at_work(world)
        world.script(lambda _run: Script(duration_ms=2_000, ending=next(endings)))  # type: ignore[arg-type]
        retry = Retry(base_ms=60_000, backoff="fixed", max_age_ms=86_400_000)
        world.define(job(every(10_000), overlap=Overlap(mode="buffer_all", limit=5), retry=retry))
        world.run_until(lambda: bool(world.endpoint.executing), within_ms=11_000)
        world.command(Trigger(namespace="sim", id="a", trigger_id="t"))  # it supersedes nothing, and waits
        lived(world)
        assert "superseded next_occurrence" == ends(world)["10"]
        assert "succeeded" == ends(world)["t"]
        assert "succeeded" == ends(world)["20"]


def test_a_retry_that_waited_for_an_occurrence_goes_on_when_the_schedule_ends_with_it() -> None:
    endings = iter(("failed", "succeeded", "succeeded"))
    with World() as world:
        at_work(world)
        world.script(lambda _run: Script(ending=next(endings)))  # type: ignore[arg-type]
        retry = Retry(base_ms=4_000, backoff="fixed", jitter=0.0, until_next=False)
        world.define(job(every(3_000, max_runs=2), overlap=Overlap(mode="buffer_one"), retry=retry))
        lived(world)
        assert {"3": "succeeded", "6": "succeeded"} == ends(world)


def test_a_redriven_run_that_has_to_wait_begins_a_new_attempt() -> None:
    endings = iter(("refused", "succeeded", "succeeded"))
    with World() as world:
        at_work(world)
        world.script(lambda _run: Script(duration_ms=1_500, ending=next(endings)))  # type: ignore[arg-type]
        world.define(job(Schedule()))
        world.command(Trigger(namespace="sim", id="a", trigger_id="t1", after_jobs_offset=0))
        world.run_until(lambda: ends(world).get("t1") == "failed not_retryable")
        world.command(Trigger(namespace="sim", id="a", trigger_id="t2"))
        world.run(500)
        (letter,) = {each.value.seq for each in Evidence(world).events_of_run["sim/a!t.t1"]}
        world.command(Redrive(namespace="sim", id="a", run_id="sim/a!t.t1", seq=letter))
        lived(world)
        assert [(1, 1), (2, 2)] == [
            (due.value.dispatch, due.value.attempt) for due in Evidence(world).dues_of_run["sim/a!t.t1"]
        ]


def test_a_success_between_an_undecided_run_and_the_next_is_below_the_floor() -> None:
    with World() as world:
        at_work(world)
        world.define(job(Schedule(at_ms=START_MS + 9_500)))
        world.run(500)
        world.define(job(every(4_000)))  # no longer names 9.5 s: undecided until then
        world.run_until(lambda: ends(world).get("4") == "succeeded", within_ms=9_000)
        world.run_until(lambda: len(Evidence(world).dues) == 3)
        floors: dict[str, DueRun] = {due.value.run_id: due.value for due in Evidence(world).dues}
        newest = max(floors.values(), key=lambda due: due.seq)
        assert newest.floor == newest.seq
        lived(world)


# --- the log, and the clocks --------------------------------------------------------------------------------------------------


def test_a_processor_outlasts_a_log_that_it_cannot_reach_for_a_while() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(2_000)))
        world.run(3_000)
        world.cut("s0")
        world.run(10_000)
        world.heal("s0")
        lived(world)
        assert [] == world.gave_ups
        assert 1 == world.streams["s0"].life


def test_a_worker_learns_that_a_clock_is_right_again_though_nothing_else_happens() -> None:
    with World() as world:
        at_work(world)
        world.define(job(every(1_000, max_runs=2)))
        world.run(2_600)
        world.clock.step_wall(-3_000)  # the log's, too: what the worker knows of them is old
        world.define(job(Schedule(at_ms=START_MS + 2_500)))
        lived(world)
        assert "succeeded" == ends(world)["2.5"]
