"""The first start, and every later one."""

from dataclasses import replace

import pytest

from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, LogUnavailable, TopicMismatch
from tocsin.schedules.zones import tzdata_version
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster, Queue
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.config import Configuration
from tocsin.streams.configuration import NewerSchemaLevel

NAMES = TopicNames()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(FakeClock())


def start(log: EventLog, partitions: int = 4, queue_partitions: int = 3) -> Configuration:
    return bootstrap(log, NAMES, partitions=partitions, queue_partitions=queue_partitions)


def put(log: EventLog, key: str, value: Cluster | Queue) -> None:
    producer = log.producer()
    producer.produce(NAMES.config, key=key.encode(), value=codec.encode(value), partition=0)
    producer.flush(1.0)


def written(log: MemoryLog) -> list[object]:
    return [codec.decode(stored.record.value or b"") for stored in log.records(NAMES.config, 0)]


def test_the_first_start_creates_the_topics_the_cluster_record_and_the_queues(log: MemoryLog) -> None:
    found = start(log)
    expected = {spec.name: spec.partitions for spec in base_topics(NAMES, 4)}
    for queue in ("default", "functions"):
        expected |= {spec.name: spec.partitions for spec in queue_topics(NAMES, queue, 3)}
    assert expected == log.topics()
    secret = found.cluster.secret
    assert len(secret) == 32
    identity = found.cluster.id
    assert len(identity) == 32
    assert identity != secret  # it is written beside the state, for everybody to read
    assert (
        Cluster(partitions=4, schema_level=1, tzdata=tzdata_version(), secret=secret, id=identity)
        == found.cluster
    )
    assert {
        "default": Queue(name="default", kind="http", partitions=3),
        "functions": Queue(name="functions", kind="function", partitions=3),
    } == found.queues


def test_a_second_start_changes_nothing(log: MemoryLog) -> None:
    first = start(log)
    before = (log.topics(), written(log))
    assert first == start(log)
    assert before == (log.topics(), written(log))


def test_a_second_start_with_other_partitions_of_queues_leaves_those_that_exist(log: MemoryLog) -> None:
    first = start(log, queue_partitions=3)
    before = log.topics()
    assert first.queues == start(log, queue_partitions=5).queues
    assert before == log.topics()


@pytest.mark.parametrize("partitions", [3, 5])
def test_another_number_of_partitions_is_refused_and_changes_nothing(log: MemoryLog, partitions: int) -> None:
    start(log, 4)
    before = (log.topics(), written(log))
    with pytest.raises(TopicMismatch, match="made with 4 partitions") as refused:
        start(log, partitions)
    assert f"{partitions} were asked for" in str(refused.value)
    assert "start with 4" in str(refused.value)
    assert before == (log.topics(), written(log))


def test_a_newer_schema_level_is_refused_and_changes_nothing(log: MemoryLog) -> None:
    put_back = start(log).cluster
    newer = Cluster(partitions=4, schema_level=2, tzdata="2019a")
    put(log, "cluster/main", newer)
    before = (log.topics(), written(log))
    with pytest.raises(NewerSchemaLevel, match="level 2, this version knows 1: upgrade"):
        start(log)
    assert before == (log.topics(), written(log))
    put(log, "cluster/main", put_back)
    assert put_back == start(log).cluster


def test_a_log_of_a_newer_version_is_not_taken_for_an_empty_one(log: MemoryLog) -> None:
    start(log)
    producer = log.producer()
    producer.produce(NAMES.config, key=b"cluster/main", value=b"\xc3\x01newer..!...", partition=0)
    producer.flush(1.0)
    end = len(log.records(NAMES.config, 0))
    with pytest.raises(NewerSchemaLevel, match="upgrade"):
        start(log)
    assert end == len(log.records(NAMES.config, 0))


def test_new_time_zone_data_writes_one_record_and_keeps_all_else(log: MemoryLog) -> None:
    start(log)
    old = Cluster(
        partitions=4,
        schema_level=1,
        tzdata="2019a",
        horizon_ms=60_000,
        history_size=7,
        secret="kept",
        id="kept too",
    )
    put(log, "cluster/main", old)
    before = written(log)
    found = start(log)
    expected = replace(old, tzdata=tzdata_version())
    assert expected == found.cluster
    assert [*before, expected] == written(log)
    assert found == start(log)


def test_a_cluster_of_an_older_version_is_given_a_secret_and_an_id_once(log: MemoryLog) -> None:
    start(log)
    put(log, "cluster/main", Cluster(partitions=4, schema_level=1, tzdata=tzdata_version()))
    found = start(log)
    assert (32, 32) == (len(found.cluster.secret), len(found.cluster.id))
    assert found == start(log)


def test_queues_of_others_stay(log: MemoryLog) -> None:
    start(log)
    log.create_topics(queue_topics(NAMES, "mail", 2))
    put(log, "queue/mail", Queue(name="mail", kind="http", partitions=2))
    assert {"default", "functions", "mail"} == set(start(log).queues)


def test_a_start_that_died_after_the_topics_is_completed_by_the_next(log: MemoryLog) -> None:
    log.create_topics(base_topics(NAMES, 4))
    assert 4 == start(log).cluster.partitions
    assert {"default", "functions"} == set(start(log).queues)


def test_a_start_that_died_between_the_records_is_completed_by_the_next(log: MemoryLog) -> None:
    log.create_topics(base_topics(NAMES, 4))
    log.create_topics(queue_topics(NAMES, "default", 3))
    put(log, "cluster/main", Cluster(partitions=4, schema_level=1, tzdata=tzdata_version()))
    put(log, "queue/default", Queue(name="default", kind="http", partitions=3))
    put(log, "queue/functions", Queue(name="functions", kind="function", partitions=3))  # and no topics
    found = start(log)
    assert {"default", "functions"} == set(found.queues)
    assert 3 == log.partitions(NAMES.due("functions"))


def test_a_record_that_the_log_did_not_take_ends_the_start_and_the_next_one_makes_up_for_it(
    log: MemoryLog,
) -> None:
    log.faults.lose_acknowledgement_of_next(NAMES.config)
    with pytest.raises(LogUnavailable, match="may be lost"):
        start(log)
    assert {"default", "functions"} == set(start(log).queues)


def test_a_log_that_does_not_answer_ends_the_start(log: MemoryLog) -> None:
    client = log.client("node")
    start(client)
    put(log, "cluster/main", Cluster(partitions=4, schema_level=1, tzdata="2019a"))
    log.faults.hold_sends("node")
    with pytest.raises(TimeoutError, match="did not acknowledge the configuration within 30 s"):
        start(client)
    log.faults.release_sends("node")
    assert tzdata_version() == start(client).cluster.tzdata
