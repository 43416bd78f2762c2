"""What cannot be used, or was written by somebody else, is put aside, and nothing stops a partition (K37)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.driver import KEY, NAMES, T0, job
from tests.unit.streams.process import Process, process_in
from tocsin.log.partitioner import partition_for
from tocsin.log.port import (
    RECORD_BYTES_MAX,
)
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Schedule
from tocsin.schemas.limits import BODY_BYTES_MAX
from tocsin.schemas.records import (
    JobDefinition,
    Journal,
    Pause,
    Quarantined,
    Queue,
    Redrive,
    RunReport,
    SkipNext,
    Trigger,
)
from tocsin.streams.store import StoreEnvironment

HOURLY = Schedule(every_ms=3_600_000)
UNKNOWN_SCHEMA = b"\xc3\x01" + b"whatever" + b"\0" * 20


@pytest.fixture
def process(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    with process_in(place, environment) as made:
        made.start()
        yield made


@pytest.fixture
def pair(place: Path, environment: StoreEnvironment) -> Iterator[Process]:
    """A process with two partitions."""
    with process_in(place, environment, partitions=2) as made:
        made.start()
        yield made


def trigger(name: str, key: str = "a", **fields: Any) -> Trigger:
    return Trigger(namespace="default", id=key, trigger_id=name, **fields)


# --- what cannot be used is put aside, and the next record is applied

REPORT = RunReport(
    kind="succeeded", run_id="default/a!t.x", namespace="default", job_id="a", seq=1, dispatch=1, attempt=1
)
PAUSE = Pause(namespace="default", id="a")
DEFINITION = JobDefinition(namespace="default", id="a", job=job(HOURLY))
RIGHT: dict[str, Any] = {NAMES.outcomes: REPORT, NAMES.commands: PAUSE, NAMES.jobs: DEFINITION}
"""A record for each of the topics, which is well in its place there."""


def still_works(process: Process) -> None:
    """Records that come after are applied, on each of the topics."""
    before = len(process.dues())
    process.apply(job(HOURLY, description=f"after {before}"))
    process.trigger(f"next-{before}")
    process.run(500)
    due = process.dues()[-1]
    assert f"default/a!t.next-{before}" == due.run_id
    process.report(due, "succeeded")
    process.run(500)
    assert [] == process.row().open


def the_quarantined(process: Process) -> Quarantined:
    (found,) = process.quarantined()
    return found


WRONG_BYTES = {
    "no record": b"\xff\xff",
    "nothing": b"",
    "a schema that is not known": UNKNOWN_SCHEMA,
    "cut off": codec.encode(PAUSE)[:-1],
    "more than a record": codec.encode(PAUSE) + b"\0",
}


@pytest.mark.parametrize("topic", RIGHT)
@pytest.mark.parametrize("what", WRONG_BYTES)
def test_bytes_that_are_no_record_are_put_aside_with_where_and_why(
    process: Process, topic: str, what: str
) -> None:
    offset = process.append(topic, KEY.encode(), WRONG_BYTES[what])
    at_ms = process.clock.now_ms()
    still_works(process)
    found = the_quarantined(process)
    assert (topic, 0, offset, at_ms) == (found.topic, found.partition, found.offset, found.timestamp_ms)
    assert (KEY.encode(), WRONG_BYTES[what]) == (found.key, found.value)
    assert found.reason


@pytest.mark.parametrize("topic", RIGHT)
@pytest.mark.parametrize(
    "value", [REPORT, PAUSE, DEFINITION, Journal(tick=1, now_ms=1, transactional_id="x")]
)
def test_a_record_of_another_kind_is_put_aside(process: Process, topic: str, value: Any) -> None:
    if type(value) is type(RIGHT[topic]):
        return
    process.append(topic, KEY.encode(), codec.encode(value))
    still_works(process)
    reason = the_quarantined(process).reason
    assert type(value).__name__ in reason
    assert topic in reason


@pytest.mark.parametrize("topic", RIGHT)
@pytest.mark.parametrize("key", [b"default/b", b"\xff\xfe", b"default/A", b"a"])
def test_a_record_under_another_key_than_its_own_is_put_aside(
    process: Process, topic: str, key: bytes
) -> None:
    process.append(topic, key, codec.encode(RIGHT[topic]))
    still_works(process)
    assert "its key" in the_quarantined(process).reason


@pytest.mark.parametrize("topic", [NAMES.outcomes, NAMES.commands])
def test_a_record_without_a_key_is_put_aside(process: Process, topic: str) -> None:
    process.append(topic, None, codec.encode(RIGHT[topic]))
    still_works(process)
    assert "its key None" in the_quarantined(process).reason


@pytest.mark.parametrize("topic", RIGHT)
def test_a_record_on_a_partition_that_its_key_does_not_belong_to_is_put_aside(
    pair: Process, topic: str
) -> None:
    """A job whose records came by two partitioners would be resurrected on the other partition."""
    other = 1 - partition_for(KEY.encode(), 2)
    pair.append(topic, KEY.encode(), codec.encode(RIGHT[topic]), partition=other)
    still_works(pair)
    found = the_quarantined(pair)
    assert (topic, other) == (found.topic, found.partition)
    assert "partition" in found.reason
    assert "murmur2" in found.reason


@pytest.mark.parametrize("topic", [NAMES.outcomes, NAMES.commands])
def test_a_tombstone_where_there_are_none_is_put_aside(process: Process, topic: str) -> None:
    process.append(topic, KEY.encode(), None)
    still_works(process)
    assert the_quarantined(process).value is None


@pytest.mark.parametrize("topic", RIGHT)
def test_what_is_as_large_as_the_log_takes_is_put_aside_with_its_beginning(
    process: Process, topic: str
) -> None:
    """With where it stands and why it would be larger than the log takes."""
    value = b"\xff" * (RECORD_BYTES_MAX - 100)
    process.append(topic, KEY.encode(), value)
    still_works(process)
    found = the_quarantined(process)
    assert found.value is not None
    assert value.startswith(found.value)
    assert len(found.value) >= 64 * 1024


@pytest.mark.parametrize("topic", RIGHT)
def test_a_key_as_large_as_the_log_takes_is_put_aside(process: Process, topic: str) -> None:
    process.append(topic, b"k" * (RECORD_BYTES_MAX - 1_000), codec.encode(RIGHT[topic]))
    still_works(process)
    assert len(the_quarantined(process).reason) < 4_000


@pytest.mark.parametrize(
    "command, why",
    [
        (trigger("x", body=b"x" * (BODY_BYTES_MAX + 20_000)), "at most"),
        (trigger("x", reason="x" * 500_000), "at most"),
        (trigger("no id!"), "trigger_id"),
        (trigger("x" * 129), "trigger_id"),
        (trigger("x", nominal_ms=-1), "nominal_ms -1"),
        (Pause(namespace="default", id="a", until_ms=1 << 62), "until_ms"),
        (Redrive(namespace="default", id="a", run_id="default/a!t.x", seq=-1), "seq -1"),
        (SkipNext(namespace="default", id="a", count=-1), "count -1"),
    ],
)
def test_a_command_that_no_client_of_ours_writes_is_put_aside(
    process: Process, command: Trigger | Pause | Redrive | SkipNext, why: str
) -> None:
    process.apply(job(HOURLY))
    process.command(command)
    still_works(process)
    assert why in the_quarantined(process).reason


def test_names_that_are_none_are_put_aside_and_not_found_in_the_way_after_a_restart(process: Process) -> None:
    """Keys of the store begin with the job's, and are taken apart when the process starts."""
    parked = trigger("x", key="a\0b", after_jobs_offset=1_000)
    process.append(NAMES.commands, b"default/a\0b", codec.encode(parked))
    process.run(500)
    assert "no namespace/id" in the_quarantined(process).reason
    process.crash()
    process.start()
    still_works(process)


def test_a_body_of_the_largest_size_goes_all_the_way_to_the_dead_letters(process: Process) -> None:
    body = b"x" * BODY_BYTES_MAX
    target = HttpTarget(url="http://127.0.0.1:1/", body=b"y" * (BODY_BYTES_MAX - 1), body_kind="text")
    process.apply(job(HOURLY, http=target))
    process.command(trigger("large", body=body))
    process.run(500)
    (due,) = process.dues()
    assert due.http is not None
    assert body == due.http.body
    process.report(due, "failed", retryable=False, error="e" * 1_000, response="r" * 4_096)
    process.run(500)
    (letter,) = process.answers.dead_letters(namespace="", cursor="", limit=10).items
    assert body == letter.body


def test_what_was_put_aside_is_put_aside_once_whatever_becomes_of_the_commit(process: Process) -> None:
    for fault in ("aborted", "fenced", "unknown_committed", "unknown_aborted"):
        process.append(NAMES.commands, KEY.encode(), fault.encode())
        process.log.faults.fail_next_commit(fault)
        process.run(2_000)
    assert [b"aborted", b"fenced", b"unknown_committed", b"unknown_aborted"] == [
        each.value for each in process.quarantined()
    ]


# --- tombstones that are not ours


def test_a_foreign_tombstone_is_put_aside_and_the_definition_written_again(process: Process) -> None:
    """Else compaction would take the definition that is in force."""
    process.apply(job(HOURLY))
    end = len(process.log.records(NAMES.jobs, 0))
    process.append(NAMES.jobs, KEY.encode(), None)
    process.run(2_000)
    assert "deleted=true" in the_quarantined(process).reason
    (again,) = [
        each.record for each in process.log.records(NAMES.jobs, 0)[end + 1 :] if each.state == "committed"
    ]
    definition = codec.decode(again.value or b"")
    assert isinstance(definition, JobDefinition)
    assert (b"default/a", job(HOURLY)) == (again.key, definition.job)
    assert 1 == process.row().revision
    still_works(process)


def test_a_foreign_tombstone_of_a_job_that_does_not_exist_changes_nothing(process: Process) -> None:
    process.append(NAMES.jobs, b"default/nobody", None)
    process.append(NAMES.jobs, b"\xff\0", None)
    process.run(2_000)
    assert 2 == len(process.quarantined())
    assert 2 == len(process.log.records(NAMES.jobs, 0))
    still_works(process)


@pytest.mark.parametrize("header", [b"", b"x", b"-1", b"1.5", b"\xff", b"9" * 5_000])
@pytest.mark.parametrize("deleted", [False, True])
def test_an_if_offset_that_is_no_offset_stops_nothing(process: Process, header: bytes, deleted: bool) -> None:
    process.apply(job(HOURLY))
    value = codec.encode(JobDefinition(namespace="default", id="a", deleted=True)) if deleted else None
    process.append(NAMES.jobs, KEY.encode(), value, headers=(("if-offset", header),))
    process.run(2_000)
    still_works(process)


def test_a_queue_that_is_deleted_while_a_job_is_armed_for_it_stops_nothing(process: Process) -> None:
    process.apply(job(Schedule(every_ms=20_000, anchor_ms=T0)))
    gone = Queue(name="default", kind="http", partitions=1, deleted=True)
    process.append(NAMES.config, b"queue/default", codec.encode(gone), partition=0)
    process.run(60_000, every_ms=100)
    (due,) = process.dues()  # its records are where they were, and workers may come back
    process.report(due, "succeeded")
    back = Queue(name="default", kind="http", partitions=1)
    process.append(NAMES.config, b"queue/default", codec.encode(back), partition=0)
    process.run(1_000)
    still_works(process)
