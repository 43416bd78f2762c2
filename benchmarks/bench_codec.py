"""What it costs to write and read records and rows, and to read a job document; beside fastavro and pydantic.

    python -m benchmarks.bench_codec [--rounds 7]

Method: one process, one thread, warm. Each line is the minimum, the median and the maximum of the rounds, in
microseconds a call, of processor time, so that other processes count less; the alternatives alternate within a round,
so that a busy machine slows all of them. 1,000 different values of each kind go round, with instants of one hour, as a
partition meets them; "one value" repeats one.

fastavro's values are dicts, so its figures leave out what it would take to make our dataclasses of them and back.
pydantic reads the same document into dataclasses of its own, with validators for durations and short forms, and none
of the further rules; "flat" gives it the fields of our dataclasses as they are, with nothing to convert.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from typing import Annotated, Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from pydantic import BeforeValidator, ConfigDict, TypeAdapter

from tocsin.schedules import parse_duration
from tocsin.schemas.codec import decode, decode_row, digest, encode, encode_row
from tocsin.schemas.document import parse, render
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.problems import problems
from tocsin.schemas.records import Attempt, DueRun, JobDefinition, RunEvent, RunReport
from tocsin.schemas.registry import schema_of
from tocsin.schemas.rows import DefinitionRow, JobRow, RunRow

VALUES: Final = 1_000
NOMINAL_MS: Final = 1_773_043_200_000  # 2026-03-09T08:00:00Z
HOUR_MS: Final = 3_600_000

HTTP: Final = HttpTarget(
    url="https://api.example.com/hooks/invoices",
    headers=(("Content-Type", "application/json"), ("X-Team", "billing")),
    body=b'{"day":"${nominal}"}',
    body_kind="json",
)
JOB: Final = Job(
    namespace="billing",
    id="send-invoices",
    labels=(("team", "billing"),),
    schedule=Schedule(cron=("0 9 * * MON-FRI",), timezone="Europe/Berlin"),
    http=HTTP,
)
DOCUMENT: Final = {
    "namespace": "billing",
    "id": "send-invoices",
    "labels": {"team": "billing"},
    "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"},
    "target": {
        "http": {
            "url": "https://api.example.com/hooks/invoices",
            "headers": {"Content-Type": "application/json", "X-Team": "billing"},
            "body": {"day": "${nominal}"},
        }
    },
    "retry": {"base": "10s", "max_attempts": 3},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Microseconds a call: minimum, median, maximum.")
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds
    gc.collect()
    gc.disable()
    for title, alternatives in (
        ("records and rows: write + read", codec_alternatives()),
        ("a DueRun of 245 bytes, each way", due_run_alternatives()),
        ("a job document of 6 fields", document_alternatives()),
    ):
        print(title)
        for name, figures in measure(alternatives, rounds).items():
            low, middle, high = figures[0], statistics.median(figures), figures[-1]
            print(f"  {name:<44} {low:7.2f} {middle:7.2f} {high:7.2f}")


Alternatives = dict[str, tuple[Callable[[Any], Any], Sequence[Any]]]


def measure(alternatives: Alternatives, rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in alternatives}
    for i in range(rounds + 1):
        for name, (call, values) in alternatives.items():
            started = time.process_time()
            for value in values:
                call(value)
            took = time.process_time() - started
            if i:  # the first round warms up
                figures[name].append(took / len(values) * 1e6)
    return {name: sorted(taken) for name, taken in figures.items()}


# --- the codec --------------------------------------------------------------------------------------------------------


def codec_alternatives() -> Alternatives:
    def both(record: Any) -> Any:
        return decode(encode(record))

    def both_row(row: Any) -> Any:
        return decode_row(type(row), encode_row(row))

    return {
        "DueRun": (both, due_runs()),
        "DueRun, one value": (both, [due_runs()[0]] * VALUES),
        "RunReport, succeeded": (both, reports()),
        "RunEvent, one attempt": (both, events()),
        "JobDefinition": (both, [JobDefinition(namespace=JOB.namespace, id=JOB.id, job=JOB)] * VALUES),
        "JobRow": (both_row, job_rows()),
        "RunRow, one attempt": (both_row, run_rows()),
        "DefinitionRow": (both_row, definition_rows()),
    }


def due_run_alternatives() -> Alternatives:
    runs = due_runs()
    schema = parse_schema(schema_of("DueRun"))
    dicts = [_as_fastavro_has_it(run) for run in runs]
    bodies = [encode(run)[10:] for run in runs]

    def write(value: dict[str, Any]) -> bytes:
        target = BytesIO()
        schemaless_writer(target, schema, value)
        return target.getvalue()

    def read(body: bytes) -> Any:
        return schemaless_reader(BytesIO(body), schema, None)

    return {
        "encode": (encode, runs),
        "decode": (decode, [encode(run) for run in runs]),
        "fastavro writes a dict": (write, dicts),
        "fastavro reads a dict": (read, bodies),
        "dataclasses.asdict": (asdict, runs),
        "DueRun(**...), the target's dataclass kept": (_construct, [_fields(run) for run in runs]),
    }


def _as_fastavro_has_it(run: DueRun) -> dict[str, Any]:
    value = asdict(run)
    value["http"]["headers"] = dict(value["http"]["headers"])
    value["http"]["success"] = [{"first": first, "last": last} for first, last in value["http"]["success"]]
    return value


def _fields(run: DueRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in DueRun.__dataclass_fields__}


def _construct(values: dict[str, Any]) -> DueRun:
    return DueRun(**values)


def _instants() -> list[int]:
    return [NOMINAL_MS + i * HOUR_MS // VALUES for i in range(VALUES)]


def due_runs() -> list[DueRun]:
    return [
        DueRun(
            run_id="billing/send-invoices@20260309T080000.000Z",
            namespace="billing",
            job_id="send-invoices",
            seq=ms,
            floor=ms - 1_000,
            dispatch=1,
            attempt=1,
            revision=3,
            cause="schedule",
            nominal_ms=ms,
            due_ms=ms + 192,
            start_deadline_ms=ms + 24 * HOUR_MS,
            emitted_ms=ms - 9_000,
            lease_ms=60_000,
            http=HTTP,
        )
        for ms in _instants()
    ]


def reports() -> list[RunReport]:
    return [
        RunReport(
            kind="succeeded",
            run_id="billing/send-invoices@20260309T080000.000Z",
            namespace="billing",
            job_id="send-invoices",
            seq=ms,
            dispatch=1,
            attempt=1,
            execution="0123456789abcdef0123456789abcdef",
            epoch=17,
            worker="worker-7f",
            started_ms=ms + 2,
            ended_ms=ms + 40,
            lateness_ms=2,
            http_status=200,
            response="ok",
        )
        for ms in _instants()
    ]


def _attempt(ms: int) -> Attempt:
    return Attempt(
        attempt=1, dispatch=1, due_ms=ms, dispatched_ms=ms - 9_000, started_ms=ms + 2, ended_ms=ms + 40
    )


def events() -> list[RunEvent]:
    return [
        RunEvent(
            run_id="billing/send-invoices@20260309T080000.000Z",
            namespace="billing",
            job_id="send-invoices",
            seq=ms,
            revision=3,
            cause="schedule",
            nominal_ms=ms,
            due_ms=ms,
            status="succeeded",
            event_ms=ms + 50,
            history_no=345,
            dispatch=1,
            attempts=(_attempt(ms),),
        )
        for ms in _instants()
    ]


def job_rows() -> list[JobRow]:
    return [
        JobRow(
            revision=3,
            digest=b"0123456789abcdef",
            created_ms=ms - 48 * HOUR_MS,
            schedule_since_ms=ms - 48 * HOUR_MS,
            definition_offset=123_456,
            armed="ahead",
            armed_nominal_ms=ms + HOUR_MS,
            armed_due_ms=ms + HOUR_MS,
            decided_ms=ms,
            highest_ms=ms,
            seq=ms,
            event_seq=4,
            history_no=345,
            open=[ms],
            last_run_id="billing/send-invoices@20260309T080000.000Z",
            last_status="succeeded",
            last_ended_ms=ms - HOUR_MS,
            last_lateness_ms=4,
        )
        for ms in _instants()
    ]


def run_rows() -> list[RunRow]:
    return [
        RunRow(
            run_id="billing/send-invoices@20260309T080000.000Z",
            job_key="billing/send-invoices",
            seq=ms,
            revision=3,
            cause="schedule",
            nominal_ms=ms,
            due_ms=ms,
            status="scheduled",
            opened_ms=ms - 9_000,
            attempt=1,
            attempt_due_ms=ms,
            dispatch=1,
            outstanding=True,
            queue="default",
            due_partition=3,
            start_deadline_ms=ms + 24 * HOUR_MS,
            age_from_ms=ms,
            attempts=[_attempt(ms)],
        )
        for ms in _instants()
    ]


def definition_rows() -> list[DefinitionRow]:
    return [
        DefinitionRow(
            revision=3, effective_ms=ms, offset=12_345, timestamp_ms=ms, actor="alice", source="", job=JOB
        )
        for ms in _instants()
    ]


# --- documents --------------------------------------------------------------------------------------------------------

Milliseconds = Annotated[int, BeforeValidator(parse_duration)]
Several = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]
STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class PydanticSchedule:
    __pydantic_config__ = STRICT
    cron: Several = ()
    every: Milliseconds | None = None
    delay: Milliseconds | None = None
    timezone: str = "UTC"
    spread: Milliseconds = 0
    max_runs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PydanticHttp:
    __pydantic_config__ = STRICT
    url: str
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | str | None = None
    timeout: Milliseconds = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PydanticTarget:
    __pydantic_config__ = STRICT
    http: PydanticHttp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PydanticRetry:
    __pydantic_config__ = STRICT
    max_attempts: int = 5
    base: Milliseconds = 30_000
    factor: float = 4.0
    max: Milliseconds = 3_600_000
    jitter: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PydanticJob:
    __pydantic_config__ = STRICT
    namespace: str = "default"
    id: str
    labels: dict[str, str] = field(default_factory=dict)
    schedule: PydanticSchedule = field(default_factory=PydanticSchedule)
    target: PydanticTarget
    retry: PydanticRetry = field(default_factory=PydanticRetry)
    lease: Milliseconds = 60_000


def document_alternatives() -> Alternatives:
    documents = [DOCUMENT | {"id": f"job-{i}"} for i in range(VALUES)]
    jobs = [replace(JOB, id=f"job-{i}") for i in range(VALUES)]
    flat = [asdict(job) for job in jobs]
    pydantic = TypeAdapter(PydanticJob)
    pydantic_flat = TypeAdapter(Job)
    wrong = [document | {"lease": 60} for document in documents]
    return {
        "parse": (parse, documents),
        "parse, with one thing wrong": (parse, wrong),
        "problems": (problems, jobs),
        "digest": (digest, jobs),
        "render": (render, jobs),
        "pydantic, with validators": (pydantic.validate_python, documents),
        "pydantic, flat": (pydantic_flat.validate_python, flat),
    }


if __name__ == "__main__":
    main()
