"""The judge: what the log and the endpoint saw, held against the occurrences there must be.

Lost: an occurrence of the judged window that neither became a run which ended as it may, nor was skipped for a reason
that the scenario allows. Double: an occurrence, or a dispatch of a run, that was emitted twice. Second executions are
counted, each with what explains it. Nothing may be early, nothing may run that no due record asked for.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.kafka.evidence import ENDED, Evidence
from tests.kafka.expected import Defined, is_once, nominals, run_id_of
from tests.kafka.happenings import Happenings
from tests.kafka.sink import Request
from tocsin.schemas.records import RunEvent


@dataclass(slots=True)
class Verdict:
    """What was found. Everything in `wrong` is a violation; the rest is told."""

    runs: int = 0
    """Occurrences of the window that became a run and ended."""
    skipped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Early, never asked for, untrue, out of order, without an explanation."""
    second: Counter[str] = field(default_factory=Counter)
    """Second executions of an attempt, by what explains them."""
    worst_late_ms: int = 0
    worst_late: str = ""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.double or self.wrong)

    def __str__(self) -> str:
        why = ", ".join(f"{count} {reason}" for reason, count in self.second.most_common())
        return (
            f"{self.runs} runs, {len(self.lost)} lost, {len(self.double)} double, "
            f"{self.second.total()} second executions{f' ({why})' if why else ''}, "
            f"worst lateness {self.worst_late_ms / 1000:.2f} s"
            + (f", skipped {dict(self.skipped)}" if self.skipped else "")
            + (f", {len(self.wrong)} WRONG" if self.wrong else "")
        )

    def check(self) -> None:
        """Raises AssertionError, naming what is wrong."""
        if not self.clean:
            found = [f"lost: {each}" for each in self.lost]
            found += [f"double: {each}" for each in self.double]
            found += [f"wrong: {each}" for each in self.wrong]
            more = f"\n... and {len(found) - 30} more" if len(found) > 30 else ""
            raise AssertionError(f"{self}\n" + "\n".join(found[:30]) + more)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judges one cluster: what was defined, what was done to it, what the log and the endpoint saw."""

    evidence: Evidence
    defined: list[Defined]
    happenings: Happenings
    triggers: dict[str, str] = field(default_factory=dict)
    """Acknowledged triggers: run id by trigger id."""
    quarantined: int = 0
    """How many records the scenario spoiled."""

    def unsettled(self, cut_ms: int) -> list[str]:
        """The occurrences with a nominal up to `cut_ms` that the log does not have a last word on yet."""
        return [
            run_id
            for job in self.defined
            for nominal_ms in self._owed(job, cut_ms)
            for run_id in [run_id_of(job.key, nominal_ms)]
            if self.evidence.status(run_id) not in ENDED and not self._skip_of(job.key, nominal_ms)
        ] + [run_id for run_id in self.triggers.values() if self.evidence.status(run_id) not in ENDED]

    def verdict(self, requests: list[Request], cut_ms: int) -> Verdict:
        """Call it once everything up to `cut_ms` is settled (what is not, is lost)."""
        found = Verdict()
        self._occurrences(found, cut_ms)
        self._dispatches(found)
        self._journals(found)
        self._executions(found, requests)
        self._truth(found, requests)
        if len(self.evidence.quarantined) != self.quarantined:
            reasons = [f"{each.topic}: {each.reason}" for each in self.evidence.quarantined]
            found.wrong.append(f"{len(reasons)} records in quarantine, not {self.quarantined}: {reasons[:5]}")
        return found

    # --- occurrences

    def _owed(self, job: Defined, cut_ms: int) -> list[int]:
        """The nominals that must have a disposition: due after the definition was in force, up to the cut."""
        effective_ms = self.evidence.effective_ms(job.key)
        if not effective_ms:
            return [0] if job.acknowledged else []  # if it has to be: that is a loss as well
        defined_ms = self.evidence.defined_ms(job.key)
        # What is to run once runs at once if its instant passed before its definition was applied.
        from_ms = 0 if is_once(job.document) else effective_ms
        return nominals(job.document, from_ms, cut_ms, defined_ms=defined_ms)

    def _skip_of(self, key: str, nominal_ms: int) -> RunEvent | None:
        for each in self.evidence.series.get(key, ()):
            if each.nominal_ms <= nominal_ms <= each.last_nominal_ms:
                return each
        return None

    def _occurrences(self, found: Verdict, cut_ms: int) -> None:
        for job in self.defined:
            effective_ms = self.evidence.effective_ms(job.key)
            if not effective_ms:
                if job.acknowledged:
                    found.lost.append(f"{job.key} was acknowledged, and never in force")
                continue
            if job.applied and effective_ms > job.answered_ms:
                found.wrong.append(
                    f"{job.key} was said to be applied {effective_ms - job.answered_ms} ms before it was"
                )
            for nominal_ms in self._owed(job, cut_ms):
                self._occurrence(found, job, nominal_ms)
        self._uncalled_for(found)
        for trigger_id, run_id in self.triggers.items():
            if self.evidence.status(run_id) not in ENDED:
                found.lost.append(f"trigger {trigger_id} was acknowledged, and {run_id} has not ended")
            else:
                found.runs += 1

    def _occurrence(self, found: Verdict, job: Defined, nominal_ms: int) -> None:
        run_id = run_id_of(job.key, nominal_ms)
        events, skip = self.evidence.runs.get(run_id, []), self._skip_of(job.key, nominal_ms)
        if events and skip is not None:
            found.double.append(f"{run_id} became a run, and was skipped ({skip.reason})")
        if not events:
            if skip is None:
                found.lost.append(f"{run_id} has no disposition")
            else:
                self._skipped(found, job, run_id, skip.reason)
            return
        if len({each.value.seq for each in events}) > 1:
            found.double.append(f"{run_id} was opened twice")
        last = events[-1].value
        match last.status:
            case "skipped":
                self._skipped(found, job, run_id, last.reason)
            case status if status in job.ends:
                found.runs += 1
            case status:
                what = "ended as" if status in ENDED else "still is"
                found.lost.append(f"{run_id} {what} {status} ({last.reason}), attempts {_told(last)}")

    def _skipped(self, found: Verdict, job: Defined, run_id: str, reason: str) -> None:
        found.skipped[reason] += 1
        if reason not in job.skips:
            found.lost.append(f"{run_id} was skipped for {reason}, which may not happen here")

    def _uncalled_for(self, found: Verdict) -> None:
        """Every occurrence that became a run is one of a schedule that was in force."""
        jobs = {each.key: each for each in self.defined}
        for run_id, events in self.evidence.runs.items():
            event = events[0].value
            key, at_ms = f"{event.namespace}/{event.job_id}", event.nominal_ms
            job = jobs.get(key)
            if event.cause != "schedule":
                continue
            if job is None:
                found.wrong.append(f"{run_id} is of a job that nobody defined")
                continue
            defined_ms = self.evidence.defined_ms(key)
            allowed = nominals(job.document, at_ms - 1, at_ms, defined_ms=defined_ms)
            early = at_ms <= self.evidence.effective_ms(key) and not is_once(job.document)
            if at_ms not in allowed or early:
                stamps = [each.record.timestamp_ms for each in self.evidence.definitions.get(key, ())]
                found.wrong.append(
                    f"{run_id} is no occurrence of {key}: {job.document['schedule']}, defined at {stamps}, "
                    f"in force from {self.evidence.effective_ms(key)}"
                )

    # --- dispatches

    def _dispatches(self, found: Verdict) -> None:
        """One due record for each dispatch, and each planned attempt dispatched once: no scenario withdraws any."""
        by_dispatch: Counter[tuple[str, int]] = Counter()
        by_attempt: Counter[tuple[str, int]] = Counter()
        for each in self.evidence.dues:
            due = each.value
            by_dispatch[(due.run_id, due.dispatch)] += 1
            by_attempt[(due.run_id, due.attempt)] += 1
            events = self.evidence.runs.get(due.run_id)
            if not events:
                found.wrong.append(f"{due.run_id} was dispatched, and has no run event")
            elif events[-1].value.dispatch < due.dispatch:
                found.wrong.append(f"{due.run_id}: dispatch {due.dispatch} is not in its run events")
        for (run_id, number), count in by_dispatch.items():
            if count > 1:
                found.double.append(f"{run_id}: dispatch {number} has {count} due records")
        for (run_id, number), count in by_attempt.items():
            if count > 1:
                found.double.append(f"{run_id}: attempt {number} was dispatched {count} times")

    # --- the journal

    def _journals(self, found: Verdict) -> None:
        """Each partition has one owner at a time: its ticks count up one by one, and nothing it goes by goes back."""
        for partition, rows in self.evidence.journals.items():
            for before, after in pairwise(each.value for each in rows):
                where = f"partition {partition}, tick {after.tick} of {after.transactional_id}"
                same = after.transactional_id == before.transactional_id
                # What gives a partition up says so in a further row of its last tick.
                if after.tick != before.tick + 1 and not (
                    after.released and same and after.tick == before.tick
                ):
                    found.double.append(f"{where} follows tick {before.tick} of {before.transactional_id}")
                for name in (
                    "now_ms",
                    "watermark_ms",
                    "outcomes_offset",
                    "commands_offset",
                    "jobs_offset",
                    "reports_through_ms",
                    "config_offset",
                ):
                    if getattr(after, name) < getattr(before, name):
                        found.wrong.append(f"{where}: {name} went back")

    # --- executions

    def _executions(self, found: Verdict, requests: list[Request]) -> None:
        asked = {(each.value.run_id, each.value.dispatch): each.value for each in self.evidence.dues}
        first: dict[str, Request] = {}
        for each in requests:
            due = asked.get((each.run_id, each.dispatch))
            if due is None:
                found.wrong.append(f"{each} was never dispatched")
            elif (due.due_ms, due.nominal_ms, due.attempt) != (each.due_ms, each.nominal_ms, each.attempt):
                found.wrong.append(f"{each} says otherwise than its due record {due}")
            if each.received_ms < each.due_ms:
                found.wrong.append(f"{each} came {-each.late_ms} ms early")
            first.setdefault(each.run_id, each)
        for each in first.values():
            if each.late_ms > found.worst_late_ms:
                found.worst_late_ms, found.worst_late = each.late_ms, str(each)
        for one, two in _repeated(requests):
            reason = self.explain(one, two)
            found.second[reason or "without an explanation"] += 1
            if not reason:
                after_s = (two.received_ms - one.received_ms) / 1000
                found.wrong.append(f"{two} repeats {one} after {after_s:.2f} s, and nothing explains it")

    def explain(self, one: Request, two: Request) -> str:
        """Why an attempt was executed a second time; "" if nobody knows."""
        happening = self.happenings.explaining(one.received_ms, two.received_ms)
        if happening is not None:
            return f"by {happening}"
        epochs = sorted(
            each.epoch
            for each in self.evidence.reports.get(one.run_id, ())
            if each.dispatch == two.dispatch and each.epoch
        )
        if len(set(epochs)) > 1:
            return "by a handover of its partition"
        return ""

    def _truth(self, found: Verdict, requests: list[Request]) -> None:
        """What is said to have succeeded was answered with success."""
        answered = {each.run_id for each in requests if each.status == 200}
        received = {each.run_id for each in requests}
        for run_id, events in self.evidence.runs.items():
            last = events[-1].value
            if last.status == "succeeded" and run_id not in answered:
                found.wrong.append(f"{run_id} is succeeded, and was never answered with success")
            if last.status == "skipped" and run_id in received:
                found.wrong.append(f"{run_id} is skipped ({last.reason}), and was executed")


def _repeated(requests: Iterable[Request]) -> Iterator[tuple[Request, Request]]:
    by_attempt: dict[tuple[str, int], list[Request]] = defaultdict(list)
    for each in requests:
        by_attempt[(each.run_id, each.attempt)].append(each)
    for found in by_attempt.values():
        yield from pairwise(sorted(found, key=lambda each: each.received_ms))


def _told(event: RunEvent) -> list[str]:
    return [f"{each.attempt}: {each.outcome} {each.error}".strip() for each in event.attempts]
