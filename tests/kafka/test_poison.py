"""Records that nobody can use, on every topic that is read: put aside with their coordinates, and the partition moves on."""

from typing import Any

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.telling import Tell
from tests.kafka.waiting import until
from tocsin.log.partitioner import partition_for
from tocsin.schemas import codec
from tocsin.schemas.job import HttpTarget, Job, Schedule
from tocsin.schemas.records import CancelRun, JobDefinition, RunReport, Trigger

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

GARBAGE = b"\x00not a record"
UNKNOWN_SCHEMA = b"\xc3\x01" + b"\x5a" * 8 + b"\x02\x04"


def job(name: str, queue: str = "default") -> JobDefinition:
    target = HttpTarget(url="http://127.0.0.1:9/ok")
    schedule = Schedule(every_ms=1_000, anchor_ms=0)
    made = Job(id=name, queue=queue, schedule=schedule, http=target)
    return JobDefinition(namespace="default", id=name, job=made)


def report(name: str) -> RunReport:
    return RunReport(
        kind="succeeded",
        run_id=f"default/{name}@20260101T000000.000Z",
        namespace="default",
        job_id=name,
        seq=1,
        dispatch=1,
        attempt=1,
    )


def test_what_cannot_be_used_is_put_into_quarantine_and_every_partition_moves_on(
    cluster: Cluster, tell: Tell
) -> None:
    cluster.start(streams=1, workers=1)
    load.define(cluster, each=1)
    names, count = cluster.names, cluster.partitions
    key = b"default/stranger"
    home = partition_for(key, count)
    away = (home + 1) % count
    due, due_now, control = names.due("default"), names.due_now("default"), names.control("default")
    spoiled: dict[tuple[str, int, int], bytes] = {}

    def spoil(topic: str, partition: int, value: Any, record_key: bytes = key) -> None:
        data = value if isinstance(value, bytes) else codec.encode(value)
        spoiled[cluster.produce(topic, partition, record_key, data)] = data

    for topic in (names.jobs, names.commands, names.outcomes):
        spoil(topic, home, GARBAGE)
        spoil(topic, home, UNKNOWN_SCHEMA)
    for topic in (due, due_now, control):
        for partition in range(count):
            spoil(topic, partition, GARBAGE)
        spoil(topic, home, UNKNOWN_SCHEMA)
    # By another partitioner: a record that could be used, where its key does not belong.
    spoil(names.jobs, away, job("stranger"))
    spoil(names.commands, away, Trigger(namespace="default", id="stranger", trigger_id="t"))
    spoil(names.commands, away, CancelRun(namespace="default", id="stranger"))
    spoil(names.outcomes, away, report("stranger"))
    # On a topic of another kind, and under another job's key.
    spoil(names.jobs, home, report("stranger"))
    spoil(names.jobs, home, job("somebody-else"))
    # Nothing is put aside of `config`: what no process can read there has no effect on any.
    cluster.produce(names.config, 0, b"switch/all", GARBAGE)
    cluster.produce(names.config, 0, b"queue/strange", UNKNOWN_SCHEMA)
    cluster.quarantined = len(spoiled)

    until(
        lambda: len(cluster.evidence.refresh().quarantined) >= len(spoiled),
        lambda: f"{len(spoiled)} records are in quarantine: {cluster.evidence.quarantined}",
    )
    found = {(each.topic, each.partition, each.offset): each for each in cluster.evidence.quarantined}
    assert spoiled == {at: each.value for at, each in found.items()}
    assert all(each.reason for each in found.values())

    # It all goes on: what was defined runs, what is defined now runs, on every partition.
    cluster.define(
        *[load.job(f"after-{number}", f"{cluster.sink.url}/ok", load.every("1s")) for number in range(12)]
    )
    for number in range(12):
        cluster.until_requests(
            lambda requests, number=number: any(each.job == f"default/after-{number}" for each in requests),  # type: ignore[misc]
            f"job after-{number} runs",
        )
    assert [] == cluster.sink.of("default/stranger")
    tell(f"{len(spoiled)} spoiled records", cluster.settled())


def test_a_job_for_a_queue_that_does_not_exist_is_broken_and_its_partition_moves_on(
    cluster: Cluster, tell: Tell
) -> None:
    cluster.start(streams=1, workers=1)
    key = b"default/lost"
    cluster.produce(
        cluster.names.jobs,
        partition_for(key, cluster.partitions),
        key,
        codec.encode(job("lost", queue="nowhere")),
    )
    until(
        lambda: any(each.kind == "broken" for each in cluster.evidence.refresh().job_events["default/lost"]),
        "the job is broken",
    )
    [broken] = [each for each in cluster.evidence.job_events["default/lost"] if each.kind == "broken"]
    assert "queue" in f"{broken.reason} {broken.errors}"
    load.define(cluster, each=2)
    load.until_all_run(cluster)
    tell("a job for an unknown queue", cluster.settled())
