"""The first start: topics, the cluster record, the queues that always exist."""

from dataclasses import replace
from typing import Final

from tocsin.clock import new_id
from tocsin.log.port import Delivery, EventLog, LogError, TopicMismatch
from tocsin.schedules.zones import tzdata_version
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster, Queue
from tocsin.schemas.topics import TopicNames, base_topics, queue_topics
from tocsin.streams.config import DEFAULT_QUEUES, Configuration
from tocsin.streams.configuration import (
    ConfigurationReader,
    NewerSchemaLevel,
    NotInitialised,
    OtherTimeZoneData,
)

ACKNOWLEDGED_WITHIN_S: Final = 30.0


def bootstrap(log: EventLog, names: TopicNames, *, partitions: int, queue_partitions: int) -> Configuration:
    """Everything that a node needs exists afterwards. What is there already stays as it is.

    Time-zone data of another version than this process has are its to change only while no stream processor works: what
    they have armed is computed with it, each for its own partitions.

    Raises TopicMismatch if the log was made with another number of partitions, NewerSchemaLevel, OtherTimeZoneData,
    LogUnavailable.
    """
    current = _current(log, names)
    if current is not None:
        _check(current.cluster, partitions)
        if current.cluster.tzdata != tzdata_version() and log.members(names.streams_group):
            raise OtherTimeZoneData(wanted=current.cluster.tzdata, have=tzdata_version())
    log.create_topics(base_topics(names, partitions))
    written: list[tuple[str, Cluster | Queue]] = []
    wanted = Cluster(
        partitions=partitions,
        schema_level=codec.SCHEMA_LEVEL,
        tzdata=tzdata_version(),
        secret=new_id(),
        id=new_id(),
    )
    if current is None:
        written.append(("cluster/main", wanted))
    else:
        had = current.cluster
        agreed = replace(
            had, tzdata=wanted.tzdata, secret=had.secret or wanted.secret, id=had.id or wanted.id
        )
        if agreed != current.cluster:
            written.append(("cluster/main", agreed))
    for name, kind in DEFAULT_QUEUES:
        found = None if current is None else current.queues.get(name)
        if found is None or found.deleted:
            log.create_topics(queue_topics(names, name, queue_partitions))
            written.append((f"queue/{name}", Queue(name=name, kind=kind, partitions=queue_partitions)))
    _write(log, names, written)
    after = _current(log, names)
    assert after is not None
    return after


def _check(cluster: Cluster, partitions: int) -> None:
    if cluster.partitions != partitions:
        raise TopicMismatch(
            f"this log was made with {cluster.partitions} partitions, and {partitions} were asked for: start with "
            f"{cluster.partitions}; a log keeps its number (to change it, export the jobs and apply them to a new log)"
        )
    if cluster.schema_level > codec.SCHEMA_LEVEL:
        raise NewerSchemaLevel(
            f"the log is written at schema level {cluster.schema_level}, this version knows {codec.SCHEMA_LEVEL}: upgrade it"
        )


def _current(log: EventLog, names: TopicNames) -> Configuration | None:
    if names.config not in log.topics():
        return None
    try:
        reader = ConfigurationReader(log, names)
    except NotInitialised:
        return None
    reader.close()
    return reader.current


def _write(log: EventLog, names: TopicNames, written: list[tuple[str, Cluster | Queue]]) -> None:
    if not written:
        return
    producer = log.producer()
    errors: list[LogError] = []

    def delivered(delivery: Delivery) -> None:
        if delivery.error is not None:
            errors.append(delivery.error)

    try:
        for key, record in written:
            producer.produce(
                names.config,
                key=key.encode(),
                value=codec.encode(record),
                partition=0,
                on_delivery=delivered,
            )
        if producer.flush(ACKNOWLEDGED_WITHIN_S):
            raise TimeoutError(
                f"the log did not acknowledge the configuration within {ACKNOWLEDGED_WITHIN_S:.0f} s"
            )
        if errors:
            raise errors[0]
    finally:
        producer.close()
