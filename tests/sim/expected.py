"""Which occurrences there should be, computed anew from the definitions and the instants from which they counted."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from tests.sim.evidence import Evidence
from tocsin.schedules.timetable import Timetable, spread_offset
from tocsin.schemas.job import Job, Schedule

FOR_EVER_MS: Final = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """One definition in force over (from_ms, to_ms]."""

    job: Job
    revision: int
    from_ms: int
    to_ms: int
    base_ms: int
    """The anchor of `every`, what `delay` counts from."""
    broken: bool
    first: bool
    """Whether the job was created (anew) with it."""

    @property
    def schedule(self) -> Schedule:
        return self.job.schedule

    @property
    def is_exact(self) -> bool:
        """Whether its nominals are known from the definition alone."""
        return not self.schedule.after_completion and self.schedule.max_runs is None

    def offset_ms(self) -> int:
        return spread_offset(self.job.key, self.schedule.spread_ms)

    def nominals(self, from_ms: int, to_ms: int) -> list[int]:
        """Of the schedule, in (from, to], whoever reigns."""
        schedule = self.schedule
        match schedule.kind:
            case "every":
                every_ms = schedule.every_ms or 0
                first = (from_ms - self.base_ms) // every_ms + 1
                found = [
                    self.base_ms + k * every_ms for k in range(first, (to_ms - self.base_ms) // every_ms + 1)
                ]
            case "at":
                found = [schedule.at_ms or 0]
            case "delay":
                found = [self.base_ms + (schedule.delay_ms or 0)]
            case "cron":
                table = Timetable(kind="cron", crons=schedule.cron, timezone=schedule.timezone)
                found = list(table.nominals(from_ms, to_ms))
            case _:
                found = []
        return [each for each in found if from_ms < each <= to_ms and self._is_in(each)]

    def _is_in(self, nominal_ms: int) -> bool:
        schedule = self.schedule
        if schedule.starts_at_ms is not None and nominal_ms < schedule.starts_at_ms:
            return False
        if schedule.ends_at_ms is not None and nominal_ms >= schedule.ends_at_ms:
            return False
        return not any(
            each.from_ms is not None and each.to_ms is not None and each.from_ms <= nominal_ms < each.to_ms
            for each in schedule.exclude
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A definition applied, or (job None) a deletion."""

    number: int
    from_ms: int
    job: Job | None
    revision: int
    timestamp_ms: int = 0
    broken: bool = False


def reigns(evidence: Evidence) -> dict[str, list[Reign]]:
    """By job: what was in force when, from the JobEvents and the definitions that they name."""
    changes: dict[str, list[_Change]] = defaultdict(list)
    broken = {
        (f"{each.value.namespace}/{each.value.job_id}", each.value.revision)
        for each in evidence.job_events
        if each.value.kind == "broken"
    }
    for each in evidence.job_events:
        event = each.value
        key = f"{event.namespace}/{event.job_id}"
        if event.kind == "deleted":
            changes[key].append(
                _Change(number=event.event_seq, from_ms=event.effective_ms, job=None, revision=0)
            )
        elif event.kind == "revision_applied":
            source = evidence.definitions[(each.record.partition, event.source_offset)]
            change = _Change(
                number=event.event_seq,
                from_ms=event.effective_ms,
                job=source.value.job,
                revision=event.revision,
                timestamp_ms=source.record.timestamp_ms,
                broken=(key, event.revision) in broken,
            )
            changes[key].append(change)
    return {
        key: _reigns_of(sorted(found, key=lambda change: change.number)) for key, found in changes.items()
    }


def _reigns_of(changes: list[_Change]) -> list[Reign]:
    found: list[Reign] = []
    before: Job | None = None
    created_ms = since_ms = 0
    for index, change in enumerate(changes):
        job = change.job
        if job is None:
            before = None
            continue
        first = before is None
        if first:
            created_ms = change.timestamp_ms
        if before is None or before.schedule != job.schedule:
            since_ms = change.timestamp_ms
        before = job
        anchor = job.schedule.anchor_ms
        every_base = created_ms if anchor is None else anchor
        found.append(
            Reign(
                job=job,
                revision=change.revision,
                from_ms=change.from_ms,
                to_ms=changes[index + 1].from_ms if index + 1 < len(changes) else FOR_EVER_MS,
                base_ms=since_ms if job.schedule.delay_ms is not None else every_base,
                broken=change.broken,
                first=first,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One occurrence that must have a disposition once the watermark has passed it."""

    nominal_ms: int
    due_ms: int
    reign: Reign


def expected_of(own: list[Reign], to_ms: int) -> dict[int, Expected]:
    """The occurrences of one job with a nominal up to `to_ms`, of all reigns that name them exactly."""
    found: dict[int, Expected] = {}
    for index, reign in enumerate(own):
        if reign.broken:
            continue
        until = min(reign.to_ms, to_ms)
        if reign.schedule.kind in ("at", "delay"):
            # One that is past when it is defined runs at once, but not if instants up to it may have been decided: of an
            # older job that is not held against anybody.
            nominals = reign.nominals(-1 if index == 0 else reign.from_ms, until)
        else:
            nominals = reign.nominals(reign.from_ms, until)
        if reign.is_exact:
            for nominal_ms in nominals:
                due_ms = _due_of(nominal_ms, own[index:])
                found[nominal_ms] = Expected(nominal_ms=nominal_ms, due_ms=due_ms, reign=reign)
    return found


def due_of(nominal_ms: int, own: list[Reign]) -> int:
    """When the occurrence is due, as far as the definitions tell; 0 if none of these reigns owns it."""
    for index, reign in enumerate(own):
        if reign.from_ms < nominal_ms <= reign.to_ms:
            return _due_of(nominal_ms, own[index:])
    return 0


def _due_of(nominal_ms: int, own: list[Reign]) -> int:
    """By the first of these reigns, or by a later one that took it over while it waited for its spread."""
    due_ms = nominal_ms + own[0].offset_ms()
    for reign in own[1:]:
        if reign.first or reign.from_ms >= due_ms or not reign.nominals(nominal_ms - 1, nominal_ms):
            break
        # A narrower spread may name an instant that has passed: then it is due when the change counts.
        due_ms = max(nominal_ms + reign.offset_ms(), reign.from_ms + 1)
    return due_ms
