"""Rows for the tests of the store: small, valid, and different from each other."""

import random
from pathlib import Path

from tocsin.schemas.job import HttpTarget, Job, JobKey, Schedule
from tocsin.schemas.records import Attempt, RunEvent
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow
from tocsin.streams.families import RING_SIZES, PendingKind
from tocsin.streams.store import PartitionStore, Position, StoreEnvironment, View
from tocsin.streams.timers import AHEAD, EXACT

T0 = 1_767_225_600_000


def environment() -> StoreEnvironment:
    return StoreEnvironment(cache_bytes=8 << 20, write_buffer_bytes=4 << 20, row_cache_bytes=1 << 20)


def empty_store(path: Path) -> PartitionStore:
    """A store that is complete, since its changelog holds nothing."""
    store = PartitionStore.open(path, environment())
    store.start_empty()
    return store


def commit(view: View, offset: int = 1, *, runs_offset: int = -1) -> list[tuple[bytes, bytes | None]]:
    """As the topology does: what changed goes to the log, then to the store."""
    changes = view.changes()
    view.commit(
        Position(journal=b"journal", changelog_offset=offset, changelog_time_ms=T0, runs_offset=runs_offset)
    )
    return changes


def job_row(due_ms: int = T0, **fields: object) -> JobRow:
    return JobRow(**{"revision": 1, "armed": "ahead", "armed_due_ms": due_ms, **fields})  # type: ignore[arg-type]


def run_row(key: JobKey, seq: int = 1, **fields: object) -> RunRow:
    return RunRow(
        **{
            "run_id": f"{key}@{seq}",
            "job_key": key,
            "seq": seq,
            "revision": 1,
            "cause": "schedule",
            "nominal_ms": T0,
            "due_ms": T0,
            "status": "retrying",
            "attempt_due_ms": T0 + seq,
            **fields,
        }  # type: ignore[arg-type]
    )


def definition_row(key: JobKey, revision: int = 1, url: str = "https://example.com/hook") -> DefinitionRow:
    namespace, _, job_id = key.partition("/")
    job = Job(
        namespace=namespace, id=job_id, schedule=Schedule(cron=("0 9 * * *",)), http=HttpTarget(url=url)
    )
    return DefinitionRow(
        revision=revision, effective_ms=T0, offset=1, timestamp_ms=T0, actor="me", source="", job=job
    )


def run_event(key: JobKey, history_no: int, *, failure_no: int = -1, **fields: object) -> RunEvent:
    namespace, _, job_id = key.partition("/")
    return RunEvent(
        **{
            "run_id": f"{key}@{history_no}",
            "namespace": namespace,
            "job_id": job_id,
            "seq": history_no,
            "revision": 1,
            "cause": "schedule",
            "nominal_ms": T0,
            "due_ms": T0,
            "status": "succeeded",
            "event_ms": T0 + history_no,
            "history_no": history_no,
            "failure_no": failure_no,
            **fields,
        }  # type: ignore[arg-type]
    )


class Busy:
    """A core that does anything that rows allow, from a seed: what it leaves behind is no sense, but every kind of row."""

    def __init__(self, seed: int, jobs: int = 40) -> None:
        self._random = random.Random(seed)
        self._keys = [JobKey(f"ns{n % 3}/job-{n}") for n in range(jobs)]
        self._now_ms = T0

    def work(self, view: View, steps: int) -> list[RunEvent]:
        """Change some rows, fire some timers; returns the events that belong on `runs`, in order."""
        events: list[RunEvent] = []
        for _ in range(steps):
            self._change(view, self._random.choice(self._keys), events)
        self._now_ms += self._random.randrange(2_000)
        for lane in (AHEAD, EXACT):
            for timer in view.due(lane, self._now_ms, 50):
                if self._random.random() < 0.8:
                    self._change(view, timer.job_key, events)
        return events

    def _due(self) -> int:
        return self._now_ms + self._random.randrange(-1_000, 60_000)

    def _change(self, view: View, key: JobKey, events: list[RunEvent]) -> None:
        chance = self._random
        stored = view.job(key)
        row = JobRow(created_ms=self._now_ms) if stored is None else stored.copy()
        match chance.randrange(9):
            case 0 | 1 | 2:
                row.armed = chance.choice(("none", "ahead", "exact", "blocked", "continue"))
                row.armed_due_ms = self._due()
            case 3:
                row.revision += 1
                row.deleted_ms = 0
                view.put_definition(key, definition_row(key, row.revision))
                if row.revision > 2 and chance.random() < 0.5:
                    view.delete_definition(key, row.revision - 1)
            case 4:
                row.paused = not row.paused
                row.paused_until_ms = self._due()
                row.deleted_ms = chance.choice((0, self._now_ms))
            case 5 | 6:
                self._run(view, key, row, events)
            case 7:
                name = str(chance.randrange(3))
                kind: PendingKind = "trigger" if chance.random() < 0.5 else "parked"
                if chance.random() < 0.7:
                    view.put_pending(key, name, PendingRow(kind=kind, until_ms=self._due()))
                else:
                    view.delete_pending(kind, key, name)
            case _:
                if chance.random() < 0.3 and not row.open:
                    view.delete_job(key)
                    return
        view.put_job(key, row)

    def _run(self, view: View, key: JobKey, row: JobRow, events: list[RunEvent]) -> None:
        chance = self._random
        if not row.open or chance.random() < 0.4:
            row.seq = max(row.seq + 1, self._now_ms)
            row.open.append(row.seq)
            run = run_row(key, row.seq, attempt_due_ms=self._due())
        else:
            run = view.run(key, chance.choice(row.open)).copy()  # type: ignore[union-attr]
            run.status = chance.choice(("scheduled", "running", "retrying", "buffered", "undecided"))
            run.outstanding = run.status in ("scheduled", "running")
            run.lease_until_ms = chance.choice((0, self._due()))
            run.start_deadline_ms = self._due()
            run.attempts.append(Attempt(attempt=run.attempt, dispatch=run.dispatch, due_ms=run.due_ms))
        if chance.random() < 0.7:
            view.put_run(run)
            return
        row.open.remove(run.seq)
        view.delete_run(key, run.seq)
        failed = chance.random() < 0.4
        event = run_event(
            key, row.history_no, failure_no=row.failure_no if failed else -1, event_ms=self._now_ms
        )
        view.history_put("history", key, row.history_no % RING_SIZES["history"], event)
        row.history_no += 1
        if failed:
            view.history_put("failures", key, row.failure_no % RING_SIZES["failures"], event)
            row.failure_no += 1
            view.put_dead(DeadRow(run=run, died_ms=self._now_ms, until_ms=self._due()))
        elif chance.random() < 0.2:
            view.delete_dead(key, run.seq)
        events.append(event)
