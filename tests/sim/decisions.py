"""The judge of the processor: dispositions, the watermark, and each decision against what was known at its tick."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.sim.evidence import Evidence, Logged
from tests.sim.expected import Expected, Reign, due_of, expected_of
from tests.sim.refold import Refolded, Tick
from tests.sim.verdict import Verdict, Violation
from tocsin.schemas.records import Control, DueRun, JobEvent, RunEvent, RunReport
from tocsin.streams.effects import Emission

GONE = ("edited", "deleted", "broken")
"""Why an occurrence that was dispatched ahead may have a disposition although no definition names it any more."""
WHEN_NOT_STARTED = "nothing was heard of the attempt"
CLOCKS_APART_MS = 500
"""A processor's clock further from the log's than this is wrong."""


def check_dispositions(evidence: Evidence, reigns: dict[str, list[Reign]], verdict: Verdict) -> None:
    """Each occurrence up to the watermark has exactly one; what no definition names has none. Raises Violation."""
    _check_dispatches(evidence)
    covered: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run_id, events in evidence.events_of_run.items():
        first = events[0].value
        if "@" in run_id:
            key = f"{first.namespace}/{first.job_id}"
            covered[key][first.nominal_ms].append(f"run {run_id}")
        _check_one_run(run_id, [each.value for each in events])
    series = _series(evidence)
    for key, own in reigns.items():
        watermark_ms = _watermark(evidence, key)
        expected = expected_of(own, watermark_ms)
        verdict.counts["occurrences"] += len(expected)
        for one in series.get(key, ()):
            _cover(one.value, own, covered[key])
        for nominal_ms, each in expected.items():
            found = covered[key].get(nominal_ms, [])
            if len(found) > 1:
                raise Violation("one disposition", f"{key} at {nominal_ms} has {found}")
            if not found and each.due_ms <= watermark_ms:
                raise Violation(
                    "watermark",
                    f"{key} at {nominal_ms} (due {each.due_ms}) has no disposition at {watermark_ms}",
                )
        _check_phantoms(evidence, key, own, expected, covered[key])
        _check_max_runs(evidence, key, own)


def _check_dispatches(evidence: Evidence) -> None:
    for run_id, dues in evidence.dues_of_run.items():
        numbers = [due.value.dispatch for due in dues]
        if numbers != list(range(1, len(numbers) + 1)):
            raise Violation("dispatch", f"{run_id} was dispatched as {numbers}")
        for due in dues:
            if due.value.floor > due.value.seq:
                raise Violation("W7", f"{run_id} has floor {due.value.floor} above its seq {due.value.seq}")


def _check_one_run(run_id: str, events: list[RunEvent]) -> None:
    """The same occurrence is never two runs: another seq comes only from a redrive, or when it is decided again."""
    seq = events[0].seq
    before = events[0]
    ended = False
    for event in events:
        if event.seq != seq:
            goes_on = not ended and event.seq > seq and event.dispatch >= before.dispatch
            if event.cause != "redrive" and not goes_on:
                raise Violation("one run", f"{run_id} was opened as {seq} and again as {event.seq}")
            seq, ended = event.seq, False
        if ended:
            raise Violation("one run", f"{run_id} goes on as {event.status} after its end")
        before = event
        ended = event.status in ("succeeded", "failed", "cancelled", "superseded", "skipped")


def _series(evidence: Evidence) -> dict[str, list[Logged[RunEvent]]]:
    """The newest record of each series of skips, by job."""
    newest: dict[tuple[str, int], Logged[RunEvent]] = {}
    for each in evidence.run_events:
        if not each.value.seq:
            newest[each.value.run_id, each.value.history_no] = each
    found: dict[str, list[Logged[RunEvent]]] = defaultdict(list)
    for each in newest.values():
        found[f"{each.value.namespace}/{each.value.job_id}"].append(each)
    return found


def _cover(series: RunEvent, own: list[Reign], covered: dict[int, list[str]]) -> None:
    """Mark what a series of skips stands for, and hold its count against it."""
    from_ms, to_ms = series.nominal_ms, series.last_nominal_ms
    within = {
        nominal_ms
        for nominal_ms in expected_of(own, to_ms)
        if from_ms <= nominal_ms and not any(what.startswith("run ") for what in covered.get(nominal_ms, ()))
    }
    within |= {from_ms, to_ms}
    exact = all(reign.is_exact for reign in own) and series.reason != "edited"
    if exact and not series.count_at_least and len(within) != series.count:
        raise Violation(
            "count",
            f"{series.run_id} ({series.reason}) counts {series.count} up to {to_ms}, not {sorted(within)}",
        )
    for nominal_ms in within:
        covered[nominal_ms].append(f"series {series.run_id} ({series.reason})")


def _watermark(evidence: Evidence, key: str) -> int:
    from tocsin.log.partitioner import partition_for

    rows = evidence.journals[partition_for(key.encode(), evidence.world.partitions)]
    return rows[-1].value.watermark_ms if rows else 0


def _check_phantoms(
    evidence: Evidence,
    key: str,
    own: list[Reign],
    expected: dict[int, Expected],
    covered: dict[int, list[str]],
) -> None:
    """What was dispatched ahead and then edited away still has a disposition; nothing else has one."""
    if not all(reign.is_exact for reign in own):
        return
    for nominal_ms, found in covered.items():
        if nominal_ms in expected:
            continue
        run_id = found[0].removeprefix("run ")
        events = evidence.events_of_run.get(run_id, [])
        named = [reign for reign in own if reign.nominals(nominal_ms - 1, nominal_ms)]
        if not events:
            if not any(reign.from_ms < nominal_ms for reign in named) or "(edited)" not in found[0]:
                ahead = nominal_ms > _watermark(evidence, key) and named
                if not ahead and not any(reign.schedule.kind in ("at", "delay") for reign in named):
                    raise Violation("phantom", f"{found} at {nominal_ms}, which no definition of {key} names")
            continue
        first, last = events[0].value, events[-1].value
        reign = next((each for each in named if each.revision == first.revision), None)
        if reign is None:
            raise Violation("phantom", f"{run_id}: revision {first.revision} does not name {nominal_ms}")
        past_one_shot = reign.schedule.kind in ("at", "delay") and nominal_ms <= reign.from_ms
        wrong = last.status == "skipped" and last.reason not in GONE and not past_one_shot
        if nominal_ms <= _watermark(evidence, key) and wrong:
            raise Violation("phantom", f"{run_id} is skipped ({last.reason}), and nothing names it any more")


def _check_max_runs(evidence: Evidence, key: str, own: list[Reign]) -> None:
    limits = {reign.schedule.max_runs for reign in own}
    if len(own) != 1 or None in limits:
        return
    limit = own[0].schedule.max_runs
    assert limit is not None
    made = [
        run_id
        for run_id, events in evidence.events_of_run.items()
        if "@" in run_id and run_id.startswith(f"{key}@") and events[-1].value.status != "skipped"
    ]
    if len(made) > limit:
        raise Violation("max_runs", f"{key} has {len(made)} runs, and at most {limit} were asked for")


# --- tick by tick -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    event: RunEvent
    withdrawn: int = 0
    dispatch_due_ms: int = 0
    dispatched_ms: int = 0
    is_retry: bool = False


@dataclass(slots=True)
class Decisions:
    """Follows one partition's ticks, and holds each decision against what was known when it was made."""

    evidence: Evidence
    reigns: dict[str, list[Reign]]
    verdict: Verdict
    runs: dict[str, _Run] = field(default_factory=dict)
    """Open ones."""
    series: dict[tuple[str, int], int] = field(default_factory=dict)
    paused: dict[str, list[list[int]]] = field(default_factory=dict)
    """By job: [from, to] of each pause."""
    unread: list[Logged[RunReport]] = field(default_factory=list)

    def check(self, folded: Refolded) -> None:
        names = self.evidence.world.names
        self.unread = self.evidence.of(RunReport, names.outcomes, folded.partition)
        for tick in folded.ticks:
            self._check_journal(tick)
            values = [(each, self.evidence.decode(each.value or b"")) for each in tick.emissions]
            for _, value in values:
                if isinstance(value, JobEvent):
                    self._note_pause(value)
            for each, value in values:
                self._one(tick, each, value)
            self.verdict.counts["ticks"] += 1

    def _check_journal(self, tick: Tick) -> None:
        row, before = tick.journal, tick.before
        if row.now_ms < before.now_ms or row.watermark_ms < before.watermark_ms:
            raise Violation("journal", f"tick {row.tick} goes back: {before} -> {row}")
        if row.watermark_ms > row.now_ms:
            raise Violation("watermark", f"tick {row.tick} claims more than its own instant: {row}")

    def _one(self, tick: Tick, each: Emission, value: object) -> None:
        match value:
            case DueRun():
                run = self.runs.get(value.run_id)
                if run is not None:
                    run.dispatch_due_ms = value.due_ms
                    run.dispatched_ms = value.emitted_ms
                    run.is_retry = value.due_ms > value.emitted_ms and value.attempt > 1
                    run.withdrawn = 0
            case Control():
                run = self.runs.get(value.run_id)
                if run is not None and value.withdrawn_how != "none":
                    run.withdrawn = value.withdrawn_upto
            case RunEvent(seq=0):
                self._series(tick, value)
            case RunEvent():
                self._run(tick, value)
            case _:
                pass

    def _note_pause(self, event: JobEvent) -> None:
        key = f"{event.namespace}/{event.job_id}"
        pauses = self.paused.setdefault(key, [])
        is_open = bool(pauses) and pauses[-1][1] == 1 << 60
        defined_paused = event.kind == "revision_applied" and any(
            reign.first and reign.revision == event.revision and reign.job.paused
            for reign in self.reigns.get(key, ())
        )
        created = event.kind == "revision_applied" and any(
            reign.first and reign.revision == event.revision for reign in self.reigns.get(key, ())
        )
        if event.kind in ("paused", "auto_paused") or defined_paused:
            if not is_open:
                pauses.append([event.effective_ms, 1 << 60])
        elif (event.kind == "resumed" or created) and is_open:
            pauses[-1][1] = event.effective_ms

    def _was_paused(self, key: str, told_ms: int, due_ms: int) -> bool:
        """At its instant; if an edit has moved that, then at one in between."""
        return any(from_ms <= due_ms and told_ms <= to_ms for from_ms, to_ms in self.paused.get(key, ()))

    # --- runs

    def _run(self, tick: Tick, event: RunEvent) -> None:
        run = self.runs.get(event.run_id)
        if event.cause in ("schedule", "catchup"):
            is_change = run is None or event.status == "skipped"
            due_ms = max(self._due_of(event), 0 if run is None else run.event.due_ms)
            if is_change and due_ms <= tick.before.watermark_ms and not self._is_past_one_shot(event):
                raise Violation(
                    "I12",
                    f"{event.run_id} becomes {event.status} ({event.reason}) at {event.event_ms}, and the watermark "
                    f"had passed its instant {event.due_ms} at {tick.before.watermark_ms}",
                )
        if event.status == "skipped":
            self._skip(tick, event, event.nominal_ms)
        for attempt in event.attempts[-1:]:
            if attempt.outcome == "lost" and attempt.error.startswith(WHEN_NOT_STARTED):
                self._lease(tick, event, attempt.dispatch, attempt.ended_ms)
        if event.status in ("succeeded", "failed", "cancelled", "superseded", "skipped"):
            self.runs.pop(event.run_id, None)
        elif run is None:
            self.runs[event.run_id] = _Run(event)
            if event.attempts:
                self.runs[event.run_id].dispatch_due_ms = event.attempts[-1].due_ms
        else:
            run.event = event

    def _due_of(self, event: RunEvent) -> int:
        """When it is due; later than its nominal and spread say, if an edit has moved those into the past."""
        own = self.reigns[f"{event.namespace}/{event.job_id}"]
        return max(event.due_ms, due_of(event.nominal_ms, own))

    def _is_past_one_shot(self, event: RunEvent) -> bool:
        """An `at` that was past when it was defined is decided at once: late, and there is no other way."""
        return any(
            reign.schedule.kind in ("at", "delay") and event.nominal_ms <= reign.from_ms
            for reign in self.reigns[f"{event.namespace}/{event.job_id}"]
        )

    def _lease(self, tick: Tick, event: RunEvent, dispatch: int, until_ms: int) -> None:
        """I9: no lease fires over a report that was on the log in time, and was not read yet."""
        for report in self.unread:
            if (
                report.record.offset >= tick.journal.outcomes_offset
                and report.record.timestamp_ms < until_ms
                and report.step <= tick.step
                and report.value.run_id == event.run_id
                and report.value.dispatch == dispatch
                and report.value.kind not in ("dropped", "expired")
            ):
                if tick.journal.now_ms > tick.log_ms + CLOCKS_APART_MS:
                    self.verdict.residuals["lease over by a wrong clock"] += 1
                    return
                raise Violation("I9", f"{event.run_id} d{dispatch} is lost at {until_ms}, over {report}")

    # --- skips

    def _series(self, tick: Tick, event: RunEvent) -> None:
        at = (event.run_id, event.history_no)
        key = f"{event.namespace}/{event.job_id}"
        after_ms = self.series.get(at, event.nominal_ms - 1)
        self.series[at] = event.last_nominal_ms
        new = [
            each
            for each in expected_of(self.reigns[key], event.last_nominal_ms).values()
            if after_ms < each.nominal_ms <= event.last_nominal_ms
            and (key, each.nominal_ms) not in self.evidence.opened
        ]
        for each in new:
            if each.due_ms <= tick.before.watermark_ms and each.nominal_ms > each.reign.from_ms:
                raise Violation(
                    "I12",
                    f"{event.run_id} takes in {each.nominal_ms}, and the watermark had passed {each.due_ms}",
                )
        self._skip(tick, event, event.last_nominal_ms)

    def _skip(self, tick: Tick, event: RunEvent, nominal_ms: int) -> None:
        key = f"{event.namespace}/{event.job_id}"
        told_ms = due_ms = event.due_ms - event.nominal_ms + nominal_ms
        if not event.seq:
            told_ms = due_ms = nominal_ms + next(
                (r.offset_ms() for r in self.reigns[key] if r.revision == event.revision), 0
            )
        due_ms = max(due_ms, due_of(nominal_ms, self.reigns[key]))
        self.verdict.counts[f"skipped {event.reason}"] += 1
        match event.reason:
            case "overlap" | "overlap_limit":
                self._check_overlap(tick, event, key, due_ms)
            case "paused" if not self._was_paused(key, told_ms, max(due_ms, self._defined_ms(key, event))):
                raise Violation(
                    "paused",
                    f"{event.run_id} due {due_ms} is skipped as paused; pauses: {self.paused.get(key)}",
                )
            case _:
                pass

    def _defined_ms(self, key: str, event: RunEvent) -> int:
        """Of a one-shot that was past when it was defined: when that was; else 0."""
        own = [reign for reign in self.reigns[key] if reign.revision == event.revision]
        return own[0].from_ms if own and own[0].schedule.kind in ("at", "delay") else 0

    def _had_ended(self, tick: Tick, run: _Run, due_ms: int) -> bool:
        """Whether the log had the end of the run's dispatch in time, and it was not read yet (P9)."""
        is_clock_wrong = tick.journal.now_ms > tick.log_ms + CLOCKS_APART_MS
        return not is_clock_wrong and any(
            report.record.offset >= tick.journal.outcomes_offset
            and report.record.timestamp_ms < due_ms
            and report.step <= tick.step
            and report.value.kind in ("succeeded", "failed")
            and report.value.dispatch == run.event.dispatch
            and report.value.run_id == run.event.run_id
            for report in self.unread
        )

    def _check_overlap(self, tick: Tick, event: RunEvent, key: str, due_ms: int) -> None:
        """I10, I11: somebody was active at its instant, for all that the log knew then."""
        modes = {reign.revision: reign.job for reign in self.reigns[key]}
        why = []
        for run_id, run in self.runs.items():
            if run_id == event.run_id or not run_id.startswith((f"{key}@", f"{key}!")):
                continue
            status = run.event.status
            if status in ("running", "scheduled") and self._had_ended(tick, run, due_ms):
                why.append(f"the end of {run_id} was on the log")
                continue
            if status in ("running", "buffered", "waiting"):
                return
            if status == "scheduled":
                withdrawn = run.withdrawn >= run.event.dispatch
                was_known = any(
                    reign.revision == event.revision and reign.from_ms < run.dispatched_ms
                    for reign in self.reigns[key]
                )
                waits = run.is_retry and run.dispatch_due_ms > due_ms and was_known
                if not withdrawn and not waits:
                    return
            if status == "retrying" and not modes[run.event.revision].retry.until_next:
                return
            why.append(f"{run_id} was {status} (due {run.dispatch_due_ms}, withdrawn {run.withdrawn})")
        raise Violation("I10/I11", f"{event.run_id} due {due_ms} is skipped for {why or 'nobody'}")
