"""The `config` topic as one value: what is applied, what is passed over, and queues whose topics come later."""

import pytest

from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, TopicSpec
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster, Journal, Queue, Switch
from tocsin.schemas.topics import DAY_MS, TopicNames, base_topics, queue_topics
from tocsin.streams.config import Configuration
from tocsin.streams.configuration import (
    LOOK_AGAIN_S,
    ConfigurationReader,
    NewerSchemaLevel,
    NotInitialised,
)

NAMES = TopicNames()
CLUSTER = Cluster(partitions=2, schema_level=1, tzdata="2026a")
UNKNOWN_SCHEMA = b"\xc3\x01" + b"whatever" + b"\0" * 20
GARBAGE = b"\xff\xff"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(clock: FakeClock) -> MemoryLog:
    made = MemoryLog(clock)
    made.create_topics(base_topics(NAMES, 2))
    return made


def append(log: EventLog, key: str, value: bytes | None) -> None:
    producer = log.producer()
    producer.produce(NAMES.config, key=key.encode(), value=value, partition=0)
    producer.flush(1.0)


def put(log: EventLog, *values: Cluster | Queue | Switch) -> None:
    for value in values:
        match value:
            case Cluster():
                append(log, "cluster/main", codec.encode(value))
            case Queue():
                append(log, f"queue/{value.name}", codec.encode(value))
            case Switch():
                append(log, f"switch/{value.scope}", codec.encode(value))


def queue(name: str, partitions: int = 2, **fields: object) -> Queue:
    return Queue(name=name, kind="http", partitions=partitions, **fields)  # type: ignore[arg-type]


def create(log: EventLog, name: str, partitions: int = 2) -> None:
    log.create_topics(queue_topics(NAMES, name, partitions))


def read(log: EventLog) -> Configuration:
    reader = ConfigurationReader(log, NAMES)
    reader.close()
    return reader.current


# --- in full, at the start


def test_a_log_without_a_cluster_record_says_what_writes_one(log: MemoryLog) -> None:
    with pytest.raises(NotInitialised, match="tocsin up"):
        ConfigurationReader(log, NAMES)


def test_everything_up_to_the_end_is_applied_before_the_first_answer(log: MemoryLog) -> None:
    create(log, "mail")
    create(log, "bulk")
    put(log, CLUSTER, queue("mail"), queue("bulk"), Switch(scope="all", paused=True, actor="", reason=""))
    found = read(log)
    assert CLUSTER == found.cluster
    assert {"mail": queue("mail"), "bulk": queue("bulk")} == found.queues
    assert 4 == found.offset


def test_the_newest_of_each_counts_and_of_a_deleted_queue_it_stays_known_where_its_records_are(
    log: MemoryLog,
) -> None:
    create(log, "mail")
    create(log, "bulk")
    newer = Cluster(partitions=2, schema_level=1, tzdata="2026b", horizon_ms=60_000)
    put(log, CLUSTER, queue("mail"), queue("bulk"), newer, queue("mail", 0, deleted=True))
    found = read(log)
    assert newer == found.cluster
    assert {"mail": queue("mail", deleted=True), "bulk": queue("bulk")} == found.queues
    put(log, queue("mail"))
    assert {"mail": queue("mail"), "bulk": queue("bulk")} == read(log).queues


def test_a_deleted_queue_without_topics_is_forgotten(log: MemoryLog) -> None:
    put(log, CLUSTER, queue("mail"), queue("mail", deleted=True))
    assert {} == read(log).queues


def test_queues_that_compaction_left_before_the_cluster_record_are_kept(
    log: MemoryLog, clock: FakeClock
) -> None:
    """New time-zone data writes the cluster record anew, so that a month later it is the last one of the topic."""
    create(log, "mail")
    put(log, CLUSTER, queue("mail"), queue("gone"), queue("gone", deleted=True))
    clock.advance(1_000)
    newer = Cluster(partitions=2, schema_level=1, tzdata="2026b")
    put(log, newer)
    clock.advance(40 * DAY_MS)
    put(log, Switch(scope="all", paused=False, actor="", reason=""))
    assert log.run_maintenance_once() > 0
    found = read(log)
    assert newer == found.cluster
    assert {"mail": queue("mail")} == found.queues


def test_what_cannot_be_read_is_passed_over(log: MemoryLog) -> None:
    create(log, "mail")
    put(log, CLUSTER)
    append(log, "queue/new", UNKNOWN_SCHEMA)
    append(log, "cluster/main", GARBAGE)
    append(log, "switch/all", b"")
    append(log, "queue/mail", None)
    append(log, "journal", codec.encode(Journal(tick=1, now_ms=1, transactional_id="")))
    put(log, queue("mail"))
    found = read(log)
    assert CLUSTER == found.cluster
    assert {"mail": queue("mail")} == found.queues


def test_a_cluster_record_of_an_unknown_schema_is_not_started_on(log: MemoryLog) -> None:
    """Else an old process would take the log for a new one, or write at a level that has been given up."""
    append(log, "cluster/main", UNKNOWN_SCHEMA)
    with pytest.raises(NewerSchemaLevel, match="upgrade"):
        ConfigurationReader(log, NAMES)
    put(log, CLUSTER)
    assert CLUSTER == read(log).cluster
    append(log, "cluster/main", UNKNOWN_SCHEMA)
    with pytest.raises(NewerSchemaLevel):
        ConfigurationReader(log, NAMES)


# --- what comes later


def test_what_comes_later_is_applied_by_the_next_poll(log: MemoryLog) -> None:
    put(log, CLUSTER)
    reader = ConfigurationReader(log, NAMES)
    assert {} == reader.poll(0.0).queues
    create(log, "mail")
    put(log, queue("mail"))
    assert {"mail": queue("mail")} == reader.poll(0.0).queues
    assert reader.current is reader.poll(0.0)


def test_what_cannot_be_read_later_stops_nothing(log: MemoryLog) -> None:
    put(log, CLUSTER)
    reader = ConfigurationReader(log, NAMES)
    append(log, "cluster/main", UNKNOWN_SCHEMA)
    append(log, "cluster/main", GARBAGE)
    create(log, "mail")
    put(log, queue("mail"))
    found = reader.poll(0.0)
    assert (CLUSTER, ["mail"]) == (found.cluster, list(found.queues))


def test_a_queue_without_topics_is_not_used_and_is_as_soon_as_they_are_there(log: MemoryLog) -> None:
    put(log, CLUSTER, queue("early"))
    reader = ConfigurationReader(log, NAMES)
    assert {} == reader.poll(10.0).queues
    create(log, "early")
    assert {} == reader.poll(10.0 + LOOK_AGAIN_S / 2).queues
    found = reader.poll(10.0 + LOOK_AGAIN_S)
    assert {"early": queue("early")} == found.queues


def test_a_queue_with_only_some_of_its_topics_is_not_used(log: MemoryLog) -> None:
    log.create_topics(queue_topics(NAMES, "half", 2)[:2])
    put(log, CLUSTER, queue("half"))
    reader = ConfigurationReader(log, NAMES)
    assert {} == reader.poll(0.0).queues
    create(log, "half")
    assert ["half"] == list(reader.poll(LOOK_AGAIN_S).queues)


def test_a_queue_whose_topics_have_another_number_of_partitions_is_not_used(log: MemoryLog) -> None:
    create(log, "mail", 3)
    put(log, CLUSTER, queue("mail"))
    reader = ConfigurationReader(log, NAMES)
    assert {} == reader.poll(0.0).queues
    put(log, queue("mail", 3))
    assert {"mail": queue("mail", 3)} == reader.poll(0.0).queues
    put(log, queue("mail", 4))
    for second in range(1, 5):
        assert {"mail": queue("mail", 3)} == reader.poll(second * LOOK_AGAIN_S).queues


def test_a_queue_that_was_deleted_before_its_topics_came_does_not_come_back(log: MemoryLog) -> None:
    put(log, CLUSTER, queue("early"))
    reader = ConfigurationReader(log, NAMES)
    put(log, queue("early", deleted=True))
    reader.poll(0.0)
    create(log, "early")
    assert {} == reader.poll(10 * LOOK_AGAIN_S).queues


def test_the_position_never_goes_back_when_a_queue_is_applied_late(log: MemoryLog) -> None:
    put(log, CLUSTER, queue("early"))
    reader = ConfigurationReader(log, NAMES)
    put(log, Switch(scope="all", paused=False, actor="", reason=""))
    assert 3 == reader.poll(0.0).offset
    create(log, "early")
    found = reader.poll(LOOK_AGAIN_S)
    assert (["early"], 3) == (list(found.queues), found.offset)


def test_the_log_is_asked_for_missing_topics_once_a_second_and_not_at_all_without(log: MemoryLog) -> None:
    put(log, CLUSTER, queue("early"))
    asked: list[str] = []

    class Watched(MemoryLog):
        def __init__(self) -> None:
            self.__dict__ = log.__dict__

        def partitions(self, topic: str) -> int:
            asked.append(topic)
            return super().partitions(topic)

    reader = ConfigurationReader(Watched(), NAMES)
    asked.clear()
    for pass_ in range(1_000):
        reader.poll(pass_ / 100)
    assert 10 == len(asked)
    create(log, "early")
    reader.poll(10.0)
    asked.clear()
    for pass_ in range(1_000):
        reader.poll(11.0 + pass_ / 100)
    assert [] == asked


def test_a_topic_of_another_prefix_is_not_read(log: MemoryLog) -> None:
    put(log, CLUSTER)
    other = TopicNames(prefix="other.")
    log.create_topics([TopicSpec(name=other.config, partitions=1, cleanup="compact")])
    with pytest.raises(NotInitialised, match=r"other\.config"):
        ConfigurationReader(log, other)
