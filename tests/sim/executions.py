"""The judge of executions: what began when, what ran beside what, and whether the outcome told is the true one."""

from itertools import combinations

from tests.sim.endpoint import Executed
from tests.sim.evidence import Evidence
from tests.sim.expected import Reign
from tests.sim.verdict import Verdict, Violation
from tocsin.schemas.records import RunEvent

CLOCKS_APART_MS = 500
"""A worker starts nothing when it knows that its clock is further from the log's."""
LEASE_EXPIRED = "nothing was heard of the attempt"
"""What the processor says of an attempt that is lost since its lease is over; one that was dropped is lost, too."""


def check_executions(evidence: Evidence, reigns: dict[str, list[Reign]], verdict: Verdict) -> None:
    """Raises Violation."""
    verdict.counts["executions"] += len(evidence.begun)
    for each in evidence.begun:
        _check_start(evidence, each)
        if each.begun_log_ms < each.run.due_ms - CLOCKS_APART_MS:
            verdict.residuals["early by the log's clock, which was stepped, or was not compared yet"] += 1
    for executed in evidence.begun_of_run.values():
        _check_repeats(evidence, executed, verdict)
        _check_overlaps_of_run(evidence, executed, verdict)
    _check_overlaps_of_jobs(evidence, reigns, verdict)
    _check_starts_after_the_end(evidence, verdict)
    for run_id, events in evidence.events_of_run.items():
        _check_truth(evidence, run_id, [each.value for each in events], verdict)


def _check_start(evidence: Evidence, each: Executed) -> None:
    """I1; and a start has a due record on the log, once."""
    if each.handed_wall_ms < each.run.due_ms:
        raise Violation(
            "I1", f"{each} was started {each.run.due_ms - each.handed_wall_ms} ms before its instant"
        )
    dues = [
        due
        for due in evidence.dues_of_run.get(each.run.run_id, ())
        if due.value.dispatch == each.run.dispatch
    ]
    if len(dues) != 1 or dues[0].value != each.run:
        raise Violation("dispatch", f"{each} began, and the log has {len(dues)} due records for it")
    if each.handed_wall_ms > each.run.start_deadline_ms:
        raise Violation("P13", f"{each} was started after its start deadline")


def _check_repeats(evidence: Evidence, executed: list[Executed], verdict: Verdict) -> None:
    """I3: the same attempt is executed again only after a crash, a freeze, a cut or the loss of the partition."""
    for first, second in combinations(executed, 2):
        if first.run.attempt != second.run.attempt:
            continue
        if not evidence.was_disturbed(first.worker, first.handed_ms, second.begun_ms):
            raise Violation("I3", f"{second} repeats {first}, whose worker was undisturbed")
        verdict.residuals["repeated attempt"] += 1


def _overlap(first: Executed, second: Executed) -> bool:
    """Whether both executed at one instant (first began first)."""
    return not first.ending or second.begun_ms < first.ended_ms


def _is_excused(evidence: Evidence, first: Executed, second: Executed) -> bool:
    """Whether `first` had been given up for lost, rightly, when `second` began: its session or its lease was over."""
    if evidence.session_ended(first.worker, first.begun_ms, second.begun_ms):
        return True
    if 0 <= first.abort_asked_ms <= second.begun_ms and not first.script.stops:
        return True  # it was told to stop, and cannot
    for event in evidence.events_of_run.get(first.run.run_id, ()):
        if event.step <= second.begun_step and any(
            attempt.dispatch == first.run.dispatch
            and attempt.outcome == "lost"
            and attempt.error.startswith(LEASE_EXPIRED)
            for attempt in event.value.attempts
        ):
            return True
    return False


def _check_overlaps_of_run(evidence: Evidence, executed: list[Executed], verdict: Verdict) -> None:
    """I4: two executions of a run are never under way at once."""
    for first, second in combinations(executed, 2):
        if not _overlap(first, second):
            continue
        if not _is_excused(evidence, first, second):
            raise Violation("I4", f"{second} began at {second.begun_ms} while {first} was under way")
        verdict.residuals["overlap after the session or lease was over"] += 1


def _check_overlaps_of_jobs(evidence: Evidence, reigns: dict[str, list[Reign]], verdict: Verdict) -> None:
    """I6: unless a job allows it, two of its runs are never under way at once."""
    by_job: dict[str, list[Executed]] = {}
    for each in evidence.begun:
        by_job.setdefault(each.job, []).append(each)
    for job, executed in by_job.items():
        modes = {reign.revision: reign.job.overlap.mode for reign in reigns.get(job, ())}
        for first, second in combinations(executed, 2):
            if first.run.run_id == second.run.run_id or not _overlap(first, second):
                continue
            later = max(first, second, key=lambda each: each.run.seq)
            if modes[later.run.revision] == "allow":
                continue
            if _is_excused(evidence, first, second):
                verdict.residuals["overlap after the session or lease was over"] += 1
            elif _is_moved_success(evidence, first, second):
                verdict.residuals["X11"] += 1
            else:
                raise Violation("I6", f"{second} began at {second.begun_ms} while {first} was under way")


def _is_moved_success(evidence: Evidence, first: Executed, second: Executed) -> bool:
    """X11: a job moved to another partition while the success of an earlier run was not committed on the old one."""
    earlier, later = sorted((first, second), key=lambda each: each.run.seq)
    where = {
        (due.record.topic, due.record.partition)
        for run in (earlier.run, later.run)
        for due in evidence.dues_of_run[run.run_id]
    }
    succeeded_before = any(
        other is not earlier and other.ending == "succeeded" and other.ended_ms <= later.begun_ms
        for other in evidence.begun_of_run[earlier.run.run_id]
    )
    queues = {topic.rpartition(".")[2] for topic, _ in where}
    return succeeded_before and (len(queues) > 1 or len({partition for _, partition in where}) > 1)


def _check_starts_after_the_end(evidence: Evidence, verdict: Verdict) -> None:
    """I5: nothing starts once the log has `dropped` or `cancelled` for the dispatch; I5b: nor once the run is cancelled."""
    for run_id, executed in evidence.begun_of_run.items():
        answers = [
            report
            for report in evidence.reports_of_run.get(run_id, ())
            if report.value.kind in ("dropped", "cancelled")
        ]
        cancelled = [e.step for e in evidence.events_of_run.get(run_id, ()) if e.value.status == "cancelled"]
        for each in executed:
            for answer in answers:
                if answer.value.dispatch == each.run.dispatch and answer.step < each.begun_step:
                    raise Violation(
                        "I5", f"{each} began after {answer.value.worker} had said {answer.value.kind} of it"
                    )
            if cancelled and cancelled[0] < each.begun_step:
                if not _failed_before_the_cancel(evidence, each, cancelled[0]):
                    raise Violation("I5b", f"{each} began after its run was cancelled")
                verdict.residuals["failed attempt again after a cancel"] += 1


def _failed_before_the_cancel(evidence: Evidence, each: Executed, cancelled_step: int) -> bool:
    """The residual: `failed` was logged, its offset not committed, the worker gone; then the run was cancelled at once."""
    for report in evidence.reports_of_run.get(each.run.run_id, ()):
        value = report.value
        if value.kind != "failed" or value.dispatch != each.run.dispatch or report.step > cancelled_step:
            continue
        first = next((e for e in evidence.begun if e.id == value.execution), None)
        if first is not None and evidence.was_disturbed(first.worker, first.begun_ms, each.begun_ms):
            return True
    return False


# --- I8 -----------------------------------------------------------------------------------------------------------------


def _check_truth(evidence: Evidence, run_id: str, events: list[RunEvent], verdict: Verdict) -> None:
    """The terminal state says what happened."""
    last = events[-1]
    executed = evidence.begun_of_run.get(run_id, [])
    verdict.counts[f"runs {last.status}"] += 1
    match last.status:
        case "succeeded":
            if not any(each.ending == "succeeded" for each in executed):
                raise Violation("I8", f"{run_id} is succeeded, and no execution of it has succeeded")
        case "skipped":
            begun = [each for each in executed if not _was_never_told(evidence, each)]
            if begun:
                raise Violation("I8", f"{run_id} is skipped ({last.reason}), and {begun[0]} had begun")
        case "cancelled" | "failed" | "superseded":
            _check_not_succeeded(evidence, run_id, last, executed)
        case _:
            pass
    for attempt in last.attempts:
        if attempt.outcome == "succeeded" and not any(
            each.ending == "succeeded" and each.run.attempt == attempt.attempt for each in executed
        ):
            raise Violation("I8", f"{run_id}: attempt {attempt.attempt} is said to have succeeded")


def _was_never_told(evidence: Evidence, each: Executed) -> bool:
    """Whether the worker was disturbed before the log knew that it had begun, and somebody else answered."""
    reports = evidence.reports_of_run.get(each.run.run_id, ())
    mine = [report.record.offset for report in reports if report.value.execution == each.id]
    others = [report.record.offset for report in reports if report.value.execution != each.id]
    was_first = bool(others) and min(others) < min(mine, default=1 << 60)
    return was_first and evidence.was_disturbed(each.worker, each.handed_ms, evidence.world.now_ms())


def _check_not_succeeded(evidence: Evidence, run_id: str, last: RunEvent, executed: list[Executed]) -> None:
    """A success may only be missed if its report came too late: the worker was disturbed, or its lease was over."""
    for each in executed:
        if each.ending != "succeeded":
            continue
        told = [
            report
            for report in evidence.reports_of_run.get(run_id, ())
            if report.value.kind == "succeeded" and report.value.execution == each.id
        ]
        until_ms = evidence.world.now_ms()
        if told or not evidence.was_disturbed(each.worker, each.begun_ms, until_ms):
            ends = [e for e in evidence.events_of_run[run_id] if e.value.status == last.status]
            if told and told[0].step > ends[-1].step:
                continue  # it came too late; why it was not waited for, other checks say
            if _is_stale(evidence, each) or _is_second(evidence, each):
                continue
            raise Violation("I8", f"{run_id} is {last.status} ({last.reason}), and {each} had succeeded")


def _is_second(evidence: Evidence, each: Executed) -> bool:
    """Whether another worker had told another end of the same dispatch first, after this one was disturbed."""
    reports = [
        report
        for report in evidence.reports_of_run[each.run.run_id]
        if report.value.dispatch == each.run.dispatch
    ]
    mine = [report.record.offset for report in reports if report.value.execution == each.id]
    ends = ("failed", "cancelled", "dropped", "expired")
    first = [
        report.record.offset
        for report in reports
        if report.value.kind in ends and report.value.execution != each.id
    ]
    was_first = bool(first) and min(first) < max(mine, default=1 << 60)
    return was_first and evidence.was_disturbed(each.worker, 0, evidence.world.now_ms())


def _is_stale(evidence: Evidence, each: Executed) -> bool:
    """Whether the dispatch had been given up (lost, or claimed under a higher epoch) before its success was told."""
    events = evidence.events_of_run[each.run.run_id]
    if any(
        attempt.dispatch == each.run.dispatch and attempt.outcome == "lost"
        for event in events
        for attempt in event.value.attempts
    ):
        return True
    epochs = {
        report.value.execution: report.value.epoch
        for report in evidence.reports_of_run[each.run.run_id]
        if report.value.dispatch == each.run.dispatch and report.value.execution
    }
    return max(epochs.values(), default=0) > epochs.get(each.id, 0)
