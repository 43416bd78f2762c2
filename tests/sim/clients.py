"""What people ask for: definitions of every kind, edits, and commands, drawn from a seeded source."""

from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from tests.sim.world import World
from tocsin.schemas import codec
from tocsin.schemas.job import (
    CatchUp,
    CatchUpMode,
    Exclusion,
    HttpTarget,
    Job,
    Overlap,
    OverlapMode,
    Retry,
    Schedule,
)
from tocsin.schemas.records import (
    CancelRun,
    DeadLetter,
    Pause,
    Redrive,
    Resume,
    RunEvent,
    SkipNext,
    Trigger,
)

NAMESPACE: Final = "sim"
OVERLAPS: Final[tuple[OverlapMode, ...]] = ("skip", "allow", "buffer_one", "buffer_all", "replace")
CATCH_UPS: Final[tuple[CatchUpMode, ...]] = ("none", "latest", "all")


_COMMANDS: Final = {
    "trigger": 5, "trigger again": 1, "cancel": 4, "cancel all": 2, "pause": 1, "pause until": 3, "resume": 4,
    "skip": 2, "redrive": 2,
}  # fmt: skip
T = TypeVar("T")


class Clients:
    """Everybody who writes to `jobs` and `commands`."""

    def __init__(
        self, world: World, random: Random, jobs: int, queues: tuple[str, ...], ends_at_ms: int
    ) -> None:
        self._world = world
        self._random = random
        self._ends_at_ms = ends_at_ms
        self._queues = queues
        self._ids = [f"j{number}" for number in range(jobs)]
        self._defined: dict[str, Job] = {}
        self._triggers = 0
        self._offsets: dict[str, int] = {}

    def begin(self) -> None:
        for job_id in self._ids:
            self._define(self._job(job_id))

    def act(self) -> None:
        """One thing that somebody does."""
        random = self._random
        job_id = random.choice(self._ids)
        job = self._defined.get(job_id)
        if job is None:
            if random.random() < 0.6:
                self._define(self._job(job_id))
            else:
                self._command(job_id)
            return
        match random.choices(
            ("edit", "rewrite", "same", "delete", "command", "poison"), (5, 1, 1, 2, 14, 0.5)
        )[0]:
            case "edit":
                self._define(self._edited(job))
            case "rewrite":
                self._define(self._job(job_id))
            case "same":
                self._define(job)
            case "delete":
                self._world.delete(job.key)
                del self._defined[job_id]
                if random.random() < 0.3:
                    self._define(random.choice((job, self._job(job_id))))
            case "poison":
                self._world.poison(
                    random.choice((self._world.names.jobs, self._world.names.commands)), job.key
                )
            case _:
                self._command(job_id)

    # --- definitions

    def _define(self, job: Job) -> None:
        self._defined[job.id] = job
        self._offsets[job.id] = self._world.define(job)

    def _edited(self, job: Job) -> Job:
        random = self._random
        match random.choice(
            ("schedule", "target", "target", "overlap", "retry", "catchup", "spread", "queue")
        ):
            case "schedule":
                return replace(job, schedule=self._schedule())
            case "target":
                return replace(job, http=HttpTarget(url=f"http://sink.example/{random.randrange(1_000)}"))
            case "overlap":
                return replace(job, overlap=self._overlap())
            case "retry":
                return replace(job, retry=self._retry())
            case "queue":
                return replace(job, queue=random.choice(self._queues))
            case "catchup":
                return replace(job, catchup=self._catch_up())
            case _:
                return replace(
                    job, schedule=replace(job.schedule, spread_ms=random.choice((0, 1_000, 4_000)))
                )

    def _job(self, job_id: str) -> Job:
        random = self._random
        return Job(
            namespace=NAMESPACE,
            id=job_id,
            paused=random.random() < 0.02,
            queue="nowhere" if random.random() < 0.02 else random.choice(self._queues),
            priority="high" if random.random() < 0.2 else "normal",
            schedule=self._schedule(),
            http=HttpTarget(url=f"http://sink.example/{job_id}"),
            retry=self._retry(),
            lease_ms=random.choice((10_000, 15_000, 30_000)),
            overlap=self._overlap(),
            catchup=self._catch_up(),
            auto_pause_after=random.choice((None, None, None, None, None, None, 2, 3)),
            when_finished=random.choice(("delete", "keep")),
        )

    def _schedule(self) -> Schedule:
        random = self._random
        now_ms, ends_at_ms = self._world.wall_ms, self._ends_at_ms
        spread_ms = random.choice((0, 0, 0, 0, 1_500, 4_000))
        match random.choices(("every", "cron", "at", "delay", "manual", "after"), (16, 5, 3, 2, 1, 4))[0]:
            case "every":
                exclude: tuple[Exclusion, ...] = ()
                if random.random() < 0.1:
                    from_ms = now_ms + random.randrange(30_000)
                    exclude = (Exclusion(from_ms=from_ms, to_ms=from_ms + random.randrange(1_000, 20_000)),)
                return Schedule(
                    every_ms=random.choice((1_000, 2_000, 3_000, 5_000, 8_000)),
                    anchor_ms=random.choice((None, now_ms - now_ms % 1_000)),
                    spread_ms=spread_ms,
                    max_runs=random.choice((None, None, None, None, None, 1, 4)),
                    ends_at_ms=ends_at_ms,
                    exclude=exclude,
                    starts_at_ms=now_ms + random.randrange(20_000) if random.random() < 0.1 else None,
                )
            case "cron":
                return Schedule(
                    cron=(f"*/{random.choice((2, 3, 5))} * * * * *",),
                    spread_ms=spread_ms,
                    ends_at_ms=ends_at_ms,
                )
            case "at":
                return Schedule(at_ms=now_ms + random.randrange(-20_000, 30_000))
            case "delay":
                return Schedule(delay_ms=random.randrange(20_000))
            case "after":
                return Schedule(
                    every_ms=random.choice((1_000, 2_000, 4_000)),
                    after_completion=True,
                    ends_at_ms=ends_at_ms,
                )
            case _:
                return Schedule()

    def _overlap(self) -> Overlap:
        mode = self._random.choice(OVERLAPS)
        return Overlap(mode=mode, limit=self._random.choice((1, 2, 100)) if mode == "buffer_all" else 100)

    def _retry(self) -> Retry:
        random = self._random
        return Retry(
            max_attempts=random.choice((1, 2, 3, 5)),
            backoff=random.choice(("exponential", "fixed", "linear")),
            base_ms=random.choice((1_000, 2_000, 6_000)),
            factor=2.0,
            max_ms=20_000,
            max_age_ms=random.choice((20_000, 60_000, 86_400_000)),
            until_next=random.random() < 0.7,
        )

    def _catch_up(self) -> CatchUp:
        random = self._random
        return CatchUp(
            mode=random.choice(CATCH_UPS),
            window_ms=random.choice((5_000, 30_000, 86_400_000)),
            limit=random.choice((1, 2, 100)),
            grace_ms=random.choice((1_000, 3_000, 5_000)),
        )

    # --- commands

    def _command(self, job_id: str) -> None:
        random = self._random
        after = -1
        if random.random() < 0.1:
            after = self._offsets.get(job_id, -1) + random.choice((0, 0, 1))
        send, wall_ms = self._world.command, self._world.wall_ms
        match random.choices(list(_COMMANDS), list(_COMMANDS.values()))[0]:
            case "trigger":
                self._triggers += 1
                send(self._trigger(job_id, self._triggers, after))
            case "trigger again":
                send(self._trigger(job_id, max(1, self._triggers), after))
            case "cancel":
                run_id = self._some_run(job_id)
                send(CancelRun(namespace=NAMESPACE, id=job_id, run_id=run_id, after_jobs_offset=after))
            case "cancel all":
                send(CancelRun(namespace=NAMESPACE, id=job_id, after_jobs_offset=after))
            case "pause":
                send(Pause(namespace=NAMESPACE, id=job_id, after_jobs_offset=after))
            case "pause until":
                until_ms = wall_ms + random.randrange(500, 8_000)
                send(Pause(namespace=NAMESPACE, id=job_id, until_ms=until_ms, after_jobs_offset=after))
            case "resume":
                send(Resume(namespace=NAMESPACE, id=job_id, after_jobs_offset=after))
            case "skip":
                count = random.choice((0, 1, 2))
                send(SkipNext(namespace=NAMESPACE, id=job_id, count=count, after_jobs_offset=after))
            case _:
                self._redrive(job_id)

    def _trigger(self, job_id: str, number: int, after: int) -> Trigger:
        return Trigger(namespace=NAMESPACE, id=job_id, trigger_id=f"t{number}", after_jobs_offset=after)

    def _some_run(self, job_id: str) -> str:
        """A run that is open, or was lately."""
        events = self._latest(RunEvent, self._world.names.runs)
        found = [e.run_id for e in events if e.job_id == job_id and e.seq]
        return self._random.choice(found[-4:]) if found else f"{NAMESPACE}/{job_id}!t.none"

    def _redrive(self, job_id: str) -> None:
        letters = self._latest(DeadLetter, self._world.names.dead_letters)
        found = [each.run for each in letters if each.run.job_id == job_id]
        run_id, seq = f"{NAMESPACE}/{job_id}!t.none", 1
        if found:
            run = self._random.choice(found)
            run_id, seq = run.run_id, run.seq
        self._world.command(Redrive(namespace=NAMESPACE, id=job_id, run_id=run_id, seq=seq, actor="client"))

    def _latest(self, kind: type[T], topic: str) -> list[T]:
        found: list[T] = []
        for partition in range(self._world.partitions):
            for stored in self._world.log.records(topic, partition)[-60:]:
                if stored.state == "committed" and stored.record.value is not None:
                    value = codec.decode(stored.record.value)
                    if isinstance(value, kind):
                        found.append(value)
        return found
