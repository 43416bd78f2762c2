"""Whatever is written to the inputs, by whomever: the partition goes on, now and after a restart."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, process_in, quick_directory
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, Overlap, Schedule
from tocsin.schemas.records import (
    Backfill,
    CancelRun,
    DueRun,
    JobDefinition,
    Pause,
    Redrive,
    Resume,
    RunReport,
    SkipNext,
    Trigger,
)
from tocsin.streams.store import StoreEnvironment

HOURLY = Schedule(every_ms=3_600_000)
NUMBERS = st.one_of(
    st.sampled_from([-(1 << 63), -1, 0, 1, 2, (1 << 63) - 1, 253_402_300_799_999]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(T0 - 100_000, T0 + 100_000),
)
IDS = st.one_of(st.sampled_from(["a", "a", "a", "b", "", "x\0y", "\0", "é", "/"]), st.text(max_size=4))
NAMESPACES = st.one_of(st.just("default"), IDS)
RUN_IDS = st.one_of(IDS, st.sampled_from(["default/a!t.t", "default/a@20260101T000010.000Z"]))
OFFSETS = st.one_of(st.just(-1), NUMBERS)
WHOSE = {"namespace": NAMESPACES, "id": IDS}
COMMANDS = st.one_of(
    st.builds(
        Trigger,
        **WHOSE,
        trigger_id=st.one_of(st.just("t"), IDS),
        nominal_ms=NUMBERS,
        after_jobs_offset=OFFSETS,
        body=st.one_of(st.none(), st.binary(max_size=5)),
    ),
    st.builds(CancelRun, **WHOSE, run_id=RUN_IDS, after_jobs_offset=OFFSETS),
    st.builds(Pause, **WHOSE, until_ms=NUMBERS, after_jobs_offset=OFFSETS),
    st.builds(Resume, **WHOSE, after_jobs_offset=OFFSETS),
    st.builds(SkipNext, **WHOSE, count=NUMBERS, after_jobs_offset=OFFSETS),
    st.builds(Backfill, **WHOSE, backfill_id=IDS, from_ms=NUMBERS, to_ms=NUMBERS, parallelism=NUMBERS),
    st.builds(Redrive, **WHOSE, run_id=RUN_IDS, seq=NUMBERS),
)
REPORTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(
            ["started", "heartbeat", "succeeded", "failed", "cancelled", "dropped", "expired"]
        )
    },
    optional={
        "run_id": RUN_IDS,
        "seq": NUMBERS,
        "dispatch": NUMBERS,
        "attempt": NUMBERS,
        "epoch": NUMBERS,
        "started_ms": NUMBERS,
        "ended_ms": NUMBERS,
        "lateness_ms": NUMBERS,
        "retry_after_ms": NUMBERS,
        "retryable": st.booleans(),
        "execution": IDS,
        "error": st.text(max_size=5),
    },
)
"""About a run that is open, but for the fields that are given."""
DEFINITIONS = st.builds(
    JobDefinition,
    **WHOSE,
    deleted=st.booleans(),
    job=st.one_of(
        st.none(),
        st.builds(
            Job,
            **WHOSE,
            queue=st.sampled_from(["default", "functions", "nowhere"]),
            http=st.just(HttpTarget(url="http://127.0.0.1:1/")),
            overlap=st.builds(
                Overlap, mode=st.sampled_from(["skip", "allow", "buffer_all", "replace"]), limit=NUMBERS
            ),
            schedule=st.builds(
                Schedule, every_ms=NUMBERS, anchor_ms=NUMBERS, max_runs=NUMBERS, spread_ms=NUMBERS
            ),
        ),
    ),
)


@settings(max_examples=settings().max_examples // 7)  # each opens two stores, which takes 100 ms
@given(records=st.lists(st.one_of(COMMANDS, REPORTS, DEFINITIONS), max_size=25))
def test_no_record_stops_the_partition_now_or_after_a_restart(
    environment: StoreEnvironment, records: list[Any]
) -> None:
    with quick_directory() as place, process_in(place, environment) as process:
        process.start()
        process.apply(job(Schedule(every_ms=10_000)))
        process.trigger("t")
        process.run(200)
        for record in records:
            _write(process, record)
            process.run(100, every_ms=50)
        process.crash()
        process.start()
        process.clock.advance(60_000)
        process.run(300)
        process.apply(job(HOURLY, id="c"))
        process.trigger("last", key="c")
        process.run(300)
        assert "default/c!t.last" in process.dispatched()


def _write(process: Process, record: Any) -> None:
    if isinstance(record, dict):
        (due, *_) = process.dues()
        process.report(due, record["kind"]) if len(record) == 1 else _report(process, due, record)
        return
    try:
        value = codec.encode(record)
    except codec.CodecError:
        return  # no writer could have written it
    topic = NAMES.jobs if isinstance(record, JobDefinition) else NAMES.commands
    process.append(topic, f"{record.namespace}/{record.id}".encode(), value)


def _report(process: Process, due: DueRun, given: dict[str, Any]) -> None:
    fields = {"run_id": due.run_id, "seq": due.seq, "dispatch": due.dispatch, "attempt": due.attempt, **given}
    record = RunReport(namespace=due.namespace, job_id=due.job_id, **fields)
    process.append(NAMES.outcomes, f"{due.namespace}/{due.job_id}".encode(), codec.encode(record))
