"""The judge of the scenarios can find what it is there to find (a judge of nothing finds nothing)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.kafka.evidence import Evidence
from tests.kafka.expected import Defined, cron_seconds, iso, milliseconds, nominals, run_id_of
from tests.kafka.happenings import Deed, Happening, Happenings, Kind
from tests.kafka.judge import Judge, Verdict
from tests.kafka.sink import Request
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.records import (
    Attempt,
    DueRun,
    JobDefinition,
    JobEvent,
    Journal,
    Quarantined,
    RunEvent,
    RunReport,
)
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics

NOON_MS = 1_772_020_800_000  # 2026-02-25T12:00:00Z
NAMES = TopicNames("t.judge.")
DOCUMENT: dict[str, Any] = {"id": "job", "schedule": {"every": "2s", "anchor": "2026-01-01T00:00:00Z"}}
CUT_MS = NOON_MS + 6_000


def run(nominal_ms: int, status: Any = "succeeded", **changes: Any) -> RunEvent:
    attempt = Attempt(attempt=1, dispatch=1, due_ms=nominal_ms, outcome="succeeded")
    event = RunEvent(
        run_id=run_id_of("default/job", nominal_ms),
        namespace="default",
        job_id="job",
        seq=nominal_ms,
        revision=1,
        cause="schedule",
        nominal_ms=nominal_ms,
        due_ms=nominal_ms,
        status=status,
        event_ms=nominal_ms,
        dispatch=1,
        attempts=(attempt,),
    )
    return replace(event, **changes)


def due(nominal_ms: int, **changes: Any) -> DueRun:
    record = DueRun(
        run_id=run_id_of("default/job", nominal_ms),
        namespace="default",
        job_id="job",
        seq=nominal_ms,
        floor=0,
        dispatch=1,
        attempt=1,
        revision=1,
        cause="schedule",
        nominal_ms=nominal_ms,
        due_ms=nominal_ms,
        start_deadline_ms=nominal_ms + 60_000,
        emitted_ms=nominal_ms,
        lease_ms=60_000,
        http=HttpTarget(url="http://127.0.0.1:1/ok"),
    )
    return replace(record, **changes)


def request(nominal_ms: int, **changes: Any) -> Request:
    made = Request(
        number=0,
        received_ms=nominal_ms + 5,
        run_id=run_id_of("default/job", nominal_ms),
        job="default/job",
        attempt=1,
        dispatch=1,
        nominal_ms=nominal_ms,
        due_ms=nominal_ms,
        path="/ok",
        status=200,
        answered_ms=nominal_ms + 6,
    )
    return replace(made, **changes)


def tick(number: int, **changes: Any) -> Journal:
    row = Journal(tick=number, now_ms=NOON_MS + number, transactional_id="one", watermark_ms=NOON_MS + number)
    return replace(row, **changes)


@dataclass
class Story:
    """One job, every two seconds, defined at noon; by default all went well until six seconds past."""

    runs: list[RunEvent] = field(default_factory=lambda: [run(NOON_MS + at) for at in (2_000, 4_000, 6_000)])
    dues: list[DueRun] = field(default_factory=lambda: [due(NOON_MS + at) for at in (2_000, 4_000, 6_000)])
    requests: list[Request] = field(
        default_factory=lambda: [request(NOON_MS + at) for at in (2_000, 4_000, 6_000)]
    )
    journals: list[Journal] = field(default_factory=lambda: [tick(1), tick(2), tick(3)])
    reports: list[RunReport] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    happenings: Happenings = field(default_factory=Happenings)
    skips: frozenset[str] = frozenset()
    in_force: bool = True
    acknowledged: bool = True

    def happened(self, kind: Kind, deed: Deed, at_ms: int) -> None:
        self.happenings.all.append(Happening(at_ms=at_ms, kind=kind, name=f"{kind}-1", deed=deed))

    def judge(self) -> Judge:
        clock = FakeClock(NOON_MS)
        log = MemoryLog(clock)
        log.create_topics(base_topics(NAMES, 1))
        log.create_topics(queue_topics(NAMES, "default", 1))
        producer = log.producer()
        http = HttpTarget(url="http://127.0.0.1:1/ok")
        job = Job(id="job", schedule=Schedule(every_ms=2_000), http=http)
        written: list[tuple[str, Any]] = [
            (NAMES.jobs, JobDefinition(namespace="default", id="job", job=job)),
        ]
        applied = JobEvent(
            namespace="default",
            job_id="job",
            event_seq=1,
            kind="revision_applied",
            revision=1,
            effective_ms=NOON_MS,
        )
        if self.in_force:
            written.append((NAMES.runs, applied))
        written += [(NAMES.runs, each) for each in self.runs]
        written += [(NAMES.due("default"), each) for each in self.dues]
        written += [(NAMES.journal, each) for each in self.journals]
        written += [(NAMES.outcomes, each) for each in self.reports]
        written += [(NAMES.quarantine, each) for each in self.quarantined]
        for topic, record in written:
            producer.produce(topic, partition=0, key=b"key", value=codec.encode(record))
        assert producer.flush(1.0) == 0
        defined = Defined(
            document=DOCUMENT,
            sent_ms=NOON_MS - 1,
            answered_ms=NOON_MS + 50,
            acknowledged=self.acknowledged,
            skips=self.skips,
        )
        evidence = Evidence(log, NAMES).refresh()
        return Judge(evidence=evidence, defined=[defined], happenings=self.happenings)

    def verdict(self) -> Verdict:
        return self.judge().verdict(self.requests, CUT_MS)


def test_a_story_without_faults_is_clean_and_counted() -> None:
    story = Story()
    verdict = story.verdict()
    verdict.check()
    assert verdict.clean
    assert 3 == verdict.runs
    assert 5 == verdict.worst_late_ms
    assert 0 == verdict.second.total()
    assert [] == story.judge().unsettled(CUT_MS)


def test_an_occurrence_without_a_run_is_lost() -> None:
    story = Story()
    del story.runs[1], story.dues[1], story.requests[1]
    assert ["default/job@20260225T120004.000Z has no disposition"] == story.verdict().lost
    assert ["default/job@20260225T120004.000Z"] == story.judge().unsettled(CUT_MS)


def test_a_run_that_has_not_ended_or_ended_as_it_may_not_is_lost() -> None:
    for status in ("running", "scheduled", "retrying", "failed", "cancelled", "superseded"):
        story = Story()
        story.runs[2] = run(NOON_MS + 6_000, status)
        [found] = story.verdict().lost
        assert status in found


def test_a_job_that_was_acknowledged_and_never_in_force_is_lost() -> None:
    story = Story(runs=[], dues=[], requests=[], in_force=False)
    assert ["default/job was acknowledged, and never in force"] == story.verdict().lost
    assert story.judge().unsettled(CUT_MS)


def test_a_job_that_was_not_acknowledged_may_be_in_force_or_not_and_is_owed_if_it_is() -> None:
    Story(runs=[], dues=[], requests=[], in_force=False, acknowledged=False).verdict().check()
    assert 3 == len(Story(runs=[], dues=[], requests=[], acknowledged=False).verdict().lost)


def test_a_skip_is_lost_unless_the_scenario_allows_its_reason() -> None:
    series = run(
        NOON_MS + 2_000, "skipped", seq=0, reason="overlap", last_nominal_ms=NOON_MS + 4_000, count=2
    )
    story = Story(runs=[series, run(NOON_MS + 6_000)], dues=[due(NOON_MS + 6_000)])
    story.requests = story.requests[2:]
    assert 2 == len(story.verdict().lost)
    story.skips = frozenset(("overlap",))
    verdict = story.verdict()
    verdict.check()
    assert {"overlap": 2} == verdict.skipped
    assert 1 == verdict.runs


def test_an_occurrence_that_ran_and_was_skipped_is_double() -> None:
    story = Story(skips=frozenset(("overlap",)))
    story.runs.append(
        run(NOON_MS + 4_000, "skipped", seq=0, reason="overlap", last_nominal_ms=NOON_MS + 4_000)
    )
    assert 1 == len(story.verdict().double)


def test_a_dispatch_with_two_due_records_and_an_attempt_with_two_dispatches_are_double() -> None:
    story = Story()
    story.dues.append(due(NOON_MS + 4_000))
    assert 2 == len(story.verdict().double)
    story = Story()
    story.dues.append(due(NOON_MS + 4_000, dispatch=2))
    story.runs.append(run(NOON_MS + 4_000, dispatch=2))
    assert ["default/job@20260225T120004.000Z: attempt 1 was dispatched 2 times"] == story.verdict().double


def test_a_run_that_was_opened_twice_is_double() -> None:
    story = Story()
    story.runs.append(run(NOON_MS + 4_000, seq=7))
    assert ["default/job@20260225T120004.000Z was opened twice"] == story.verdict().double


def test_a_tick_that_two_owners_wrote_is_double() -> None:
    story = Story(journals=[tick(1), tick(2), tick(2, transactional_id="other"), tick(3)])
    assert 1 == len(story.verdict().double)


def test_a_tick_may_be_told_again_by_its_owner_when_it_gives_the_partition_up() -> None:
    Story(journals=[tick(1), tick(2), tick(2, released=True), tick(3)]).verdict().check()
    other = tick(2, released=True, transactional_id="other")
    assert 1 == len(Story(journals=[tick(1), tick(2), other, tick(3)]).verdict().double)


def test_a_position_that_goes_back_is_wrong() -> None:
    story = Story(journals=[tick(1, jobs_offset=5), tick(2, jobs_offset=4)])
    assert ["partition 0, tick 2 of one: jobs_offset went back"] == story.verdict().wrong


def test_a_request_before_its_instant_is_wrong() -> None:
    story = Story()
    story.requests[0] = request(NOON_MS + 2_000, received_ms=NOON_MS + 1_999)
    [found] = story.verdict().wrong
    assert "1 ms early" in found


def test_a_request_that_no_due_record_asked_for_is_wrong() -> None:
    story = Story()
    story.requests.append(request(NOON_MS + 2_000, dispatch=2))
    assert any("was never dispatched" in each for each in story.verdict().wrong)


def test_a_request_that_says_another_instant_than_its_due_record_is_wrong() -> None:
    story = Story()
    story.requests[0] = replace(request(NOON_MS + 2_000), nominal_ms=NOON_MS)
    assert any("says otherwise" in each for each in story.verdict().wrong)


def test_an_occurrence_that_the_schedule_does_not_name_is_wrong() -> None:
    story = Story()
    story.runs.append(run(NOON_MS + 5_000))
    story.dues.append(due(NOON_MS + 5_000))
    story.requests.append(request(NOON_MS + 5_000))
    [found] = story.verdict().wrong
    assert "is no occurrence" in found


def test_a_success_that_was_never_answered_is_wrong() -> None:
    story = Story()
    story.requests[0] = request(NOON_MS + 2_000, status=503)
    assert any("was never answered with success" in each for each in story.verdict().wrong)


def again(at_ms: int) -> Story:
    story = Story()
    story.requests.append(request(NOON_MS + 2_000, received_ms=at_ms, number=9))
    return story


def test_a_second_execution_without_an_explanation_is_wrong() -> None:
    [found] = again(NOON_MS + 3_000).verdict().wrong
    assert "nothing explains it" in found


@pytest.mark.parametrize("deed", ["kill", "freeze", "thaw", "stop"])
@pytest.mark.parametrize("kind", ["worker", "broker"])
def test_a_second_execution_is_explained_by_what_befell_a_worker_or_the_broker_in_between(
    kind: Kind, deed: Deed
) -> None:
    story = again(NOON_MS + 3_000)
    story.happened(kind, deed, NOON_MS + 2_500)
    verdict = story.verdict()
    verdict.check()
    assert {f"by {deed} {kind}-1": 1} == verdict.second


def test_a_second_execution_is_not_explained_by_what_came_after_it_nor_by_a_streams_process() -> None:
    story = again(NOON_MS + 3_000)
    story.happened("worker", "kill", NOON_MS + 3_001)
    story.happened("worker", "kill", NOON_MS + 1_000)
    story.happened("streams", "kill", NOON_MS + 2_500)
    assert 1 == len(story.verdict().wrong)


def test_a_second_execution_is_explained_by_a_worker_that_was_frozen_all_the_while() -> None:
    story = again(NOON_MS + 3_000)
    story.happened("worker", "freeze", NOON_MS + 1_000)
    story.verdict().check()


def test_a_second_execution_is_explained_by_a_broker_that_was_dead_when_the_first_began() -> None:
    story = again(NOON_MS + 3_000)
    story.happened("broker", "kill", NOON_MS + 1_000)
    assert {"by kill broker-1": 1} == story.verdict().second
    story.happened("broker", "start", NOON_MS + 1_500)
    assert 1 == len(story.verdict().wrong)


def test_a_second_execution_is_explained_by_a_later_epoch_of_the_partition() -> None:
    def report(epoch: int) -> RunReport:
        return RunReport(
            kind="succeeded",
            run_id=run_id_of("default/job", NOON_MS + 2_000),
            namespace="default",
            job_id="job",
            seq=1,
            dispatch=1,
            attempt=1,
            execution=f"e{epoch}",
            epoch=epoch,
        )

    story = again(NOON_MS + 3_000)
    story.reports = [report(1), report(1)]
    assert 1 == len(story.verdict().wrong)
    story.reports = [report(1), report(2)]
    assert {"by a handover of its partition": 1} == story.verdict().second


def test_a_record_in_quarantine_that_nobody_spoiled_is_wrong() -> None:
    spoiled = Quarantined(topic="x", partition=0, offset=0, timestamp_ms=0, reason="unreadable")
    [found] = Story(quarantined=[spoiled]).verdict().wrong
    assert "in quarantine" in found


def test_a_verdict_with_a_fault_raises_and_names_it() -> None:
    story = Story()
    del story.runs[0]
    with pytest.raises(AssertionError, match="20260225T120002"):
        story.verdict().check()


# --- the evaluator of schedules


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"every": "20s", "anchor": "2026-01-01T00:00:05Z"}, [5_000, 25_000, 45_000]),
        ({"every": "90s", "anchor": "2026-02-25T12:00:00Z"}, []),
        ({"cron": "*/20 * * * * *"}, [20_000, 40_000, 60_000]),
        ({"cron": "* * * * *"}, [60_000]),
        ({"delay": "30s"}, [31_000]),
        ({"at": "2026-02-25T12:00:59.5Z"}, [59_500]),
        ({}, []),
    ],
)
def test_the_nominals_of_one_minute_are_known(schedule: dict[str, str], expected: list[int]) -> None:
    found = nominals({"schedule": schedule}, NOON_MS, NOON_MS + 60_000, defined_ms=NOON_MS + 1_000)
    assert [NOON_MS + each for each in expected] == found


@pytest.mark.parametrize(
    ("ask", "given", "expected"),
    [
        (milliseconds, "250ms", 250),
        (milliseconds, "2m", 120_000),
        (cron_seconds, "* * * * * *", 1),
        (cron_seconds, "*/5 * * * * *", 5),
        (iso, NOON_MS + 7, "2026-02-25T12:00:00.007Z"),
    ],
)
def test_texts_are_read_and_written(ask: Callable[[Any], Any], given: Any, expected: Any) -> None:
    assert expected == ask(given)
