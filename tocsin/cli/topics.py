"""`tocsin topics`: make the topics on a Kafka, compare them with what they should be, and plan their disk."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from tocsin.cli import kafka_options as options
from tocsin.cli import output
from tocsin.cli.failures import EXIT_INPUT, Failure, called
from tocsin.cli.node import Json

if TYPE_CHECKING:
    from tocsin.log.kafka import KafkaLog
    from tocsin.schemas.records import Cluster, Queue
    from tocsin.schemas.topics import TopicNames, TopicSpec

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="Create, verify and plan the topics on a Kafka.")

PARTITIONS_MAX: Final = 1_024
READ_AT_ONCE: Final = 1_000
WAIT_S: Final = 0.1

Partitions = Annotated[
    int | None, typer.Option(help="Of the job topics, on a new log; 12 unless given.", show_default=False)
]
QueuePartitions = Annotated[
    int | None,
    typer.Option(help="Of the first queues, on a new log; as --partitions unless given.", show_default=False),
]
ExpectedPartitions = Annotated[
    int | None,
    typer.Option(
        help="Of the job topics: what the log was made with; before its first start, 12 unless given.",
        show_default=False,
    ),
]
ExpectedQueuePartitions = Annotated[
    int | None,
    typer.Option(
        help="Of the first queues, before the first start; as --partitions unless given.", show_default=False
    ),
]
Replication = Annotated[
    int | None,
    typer.Option(
        help="Copies of each record. Default: three, or as many as there are brokers.", show_default=False
    ),
]


@app.command("create")
def create(
    *,
    kafka: options.Kafka = "",
    kafka_config: options.KafkaFile = None,
    prefix: options.Prefix = "tocsin.",
    partitions: Partitions = None,
    queue_partitions: QueuePartitions = None,
    replication: Replication = None,
) -> None:
    """Create what is missing: topics, the cluster record, the first queues. The first `tocsin streams` does the same."""
    problems = options.Problems()
    options.check_range(problems, "--partitions", partitions, 1, PARTITIONS_MAX)
    options.check_range(problems, "--queue-partitions", queue_partitions, 1, PARTITIONS_MAX)

    def make(log: "KafkaLog", names: "TopicNames") -> tuple[int, int]:
        from tocsin.cli.roles.cluster import initialise

        before = set(log.topics())
        initialise(log, names, partitions=partitions, queue_partitions=queue_partitions)
        ours = {topic for topic in log.topics() if topic.startswith(names.prefix)}
        return len(ours), len(ours - before)

    total, made = _on_kafka(problems, kafka, kafka_config, prefix, make, replication=replication)
    print(f"{total} topics begin with {prefix}, {made} of them are new")
    if made:
        print(
            f"Next: `{called()} topics verify`, `{called()} streams`, `{called()} worker`, `{called()} api`"
        )


@app.command("verify")
def verify(
    *,
    kafka: options.Kafka = "",
    kafka_config: options.KafkaFile = None,
    prefix: options.Prefix = "tocsin.",
    partitions: ExpectedPartitions = None,
    queue_partitions: ExpectedQueuePartitions = None,
    replication: Replication = None,
    as_json: Json = False,
) -> None:
    """Say how the topics differ from what they should be, and what to do. Exit code 1 if they do."""
    problems = options.Problems()
    options.check_range(problems, "--partitions", partitions, 1, PARTITIONS_MAX)
    options.check_range(problems, "--queue-partitions", queue_partitions, 1, PARTITIONS_MAX)

    def compare(log: "KafkaLog", names: "TopicNames") -> tuple[int, list[str]]:
        return _differences(log, names, partitions, queue_partitions)

    count, differences = _on_kafka(problems, kafka, kafka_config, prefix, compare, replication=replication)
    if as_json:
        output.show_json({"topics": count, "differences": differences})
    else:
        for difference in differences:
            print(difference)
        print(f"{count} topics compared, {_counted(len(differences), 'difference')}")
    if differences:
        raise typer.Exit(1)


@app.command("plan")
def plan(
    *,
    rate: Annotated[float, typer.Option("--rate", help="Runs per second, on average.")],
    jobs: Annotated[int, typer.Option("--jobs", help="Jobs that are defined.")] = 1_000,
    target: Annotated[
        int, typer.Option("--target", help="Bytes of a job's URL, headers and body together.")
    ] = 200,
    partitions: Annotated[int, typer.Option("--partitions", help="Of the job topics and the queue.")] = 12,
    replication: Annotated[int, typer.Option("--replication", help="Copies of each record.")] = 3,
    as_json: Json = False,
) -> None:
    """Say what a rate of runs writes to each topic, and how much disk that takes. Needs no Kafka."""
    from tocsin.cli.topic_plan import plan_topics

    problems = options.Problems()
    options.check_range(problems, "--rate", rate, 0.001, 1_000_000)
    options.check_range(problems, "--jobs", jobs, 0, 1_000_000_000)
    options.check_range(problems, "--target", target, 10, 700_000)
    options.check_range(problems, "--partitions", partitions, 1, PARTITIONS_MAX)
    options.check_range(problems, "--replication", replication, 1, 9)
    problems.raise_any()
    planned = plan_topics(rate=rate, jobs=jobs, target_bytes=target, partitions=partitions)
    if as_json:
        topics = [
            {
                "topic": each.topic,
                "records_per_s": round(each.records_per_s, 3),
                "bytes_per_s": round(each.bytes_per_s),
                "kept": each.kept,
                "disk_bytes": round(each.disk_bytes * replication),
            }
            for each in planned.topics
        ]
        output.show_json({"topics": topics, "basis": planned.basis})
        return
    rows = [
        (
            each.topic,
            f"{each.records_per_s:,.1f}",
            _size(each.bytes_per_s),
            each.kept,
            _size(each.disk_bytes * replication),
        )
        for each in planned.topics
        if each.disk_bytes  # the others stay small
    ]
    total = sum(each.disk_bytes for each in planned.topics) * replication
    written = sum(each.bytes_per_s for each in planned.topics) * replication
    rows.append(("all", "", _size(written), f"x {replication} copies", _size(total)))
    output.show_table(("TOPIC", "RECORDS/S", "BYTES/S", "KEPT", "DISK"), rows)
    for line in planned.basis:
        print(line)


def _on_kafka(
    problems: options.Problems,
    kafka: str,
    kafka_config: Path | None,
    prefix: str,
    do: "Callable[[KafkaLog, TopicNames], T]",
    *,
    replication: int | None,
) -> T:
    """What `do` returns, on the log that the options name; whatever goes wrong there is said as a sentence."""
    from dataclasses import replace

    from tocsin.cli.roles.process import NotYet
    from tocsin.clock import SystemClock
    from tocsin.log.kafka import KafkaLog
    from tocsin.log.port import LogError
    from tocsin.streams.configuration import NewerSchemaLevel

    settings = options.check_kafka(problems, kafka=kafka, file=kafka_config)
    names = options.check_names(problems, prefix)
    options.check_range(problems, "--replication", replication, 1, 9)
    problems.raise_any()
    assert settings is not None
    try:
        with closing(KafkaLog.open(replace(settings, replication=replication), SystemClock())) as log:
            return do(log, names)
    except (LogError, NewerSchemaLevel, NotYet, TimeoutError) as error:
        raise Failure(str(error)) from None


def _differences(
    log: "KafkaLog", names: "TopicNames", partitions: int | None, queue_partitions: int | None
) -> tuple[int, list[str]]:
    """How many topics there should be, and what is wrong. The numbers: what is expected, where the caller says it."""
    from tocsin.schemas.topics import base_topics, queue_topics

    there = [topic for topic in log.topics() if topic.startswith(names.prefix)]
    if not there:
        raise Failure(
            f"this Kafka holds no Tocsin with the prefix {names.prefix!r}: `{called()} topics create` makes one, "
            "--prefix names another",
            exit_code=EXIT_INPUT,
        )
    cluster, queues = _configured(log, names) if names.config in there else (None, [])
    if cluster is None and not queues:
        return _before_the_first_start(log, names, partitions, queue_partitions)
    found = []
    specs: list[TopicSpec] = []
    if cluster is None:
        found.append(
            f"Topic {names.config} holds queues and no cluster record, so that no worker can start: "
            f"`{called()} topics create` writes it."
        )
    else:
        specs += base_topics(names, cluster.partitions)
        found += _unlike_ours(cluster, partitions)
    for queue in queues:
        specs += queue_topics(names, queue.name, queue.partitions)
    return len(specs), found + log.differences(specs)


def _before_the_first_start(
    log: "KafkaLog", names: "TopicNames", partitions: int | None, queue_partitions: int | None
) -> tuple[int, list[str]]:
    """Topics that somebody else has made, held against those that the first start would make."""
    from tocsin.cli.roles.cluster import PARTITIONS
    from tocsin.schemas.topics import base_topics, queue_topics
    from tocsin.streams.config import DEFAULT_QUEUES

    partitions = partitions or PARTITIONS
    queue_partitions = queue_partitions or partitions
    print(
        f"nothing has been started on this Kafka with the prefix {names.prefix!r}: compared with what the first start "
        f"makes, {partitions} partitions, queues with {queue_partitions} (--partitions, --queue-partitions)",
        file=sys.stderr,
    )
    specs = list(base_topics(names, partitions))
    for name, _ in DEFAULT_QUEUES:
        specs += queue_topics(names, name, queue_partitions)
    return len(specs), log.differences(specs)


def _unlike_ours(cluster: "Cluster", partitions: int | None) -> list[str]:
    """What the cluster record has otherwise than this installation, or than the caller expects."""
    from tocsin.schedules.zones import tzdata_version
    from tocsin.schemas.codec import SCHEMA_LEVEL

    found = []
    if partitions not in (None, cluster.partitions):
        found.append(
            f"this log was made with {cluster.partitions} partitions, and {partitions} were asked for: it keeps its number."
        )
    if cluster.schema_level > SCHEMA_LEVEL:
        found.append(
            f"The log is written at schema level {cluster.schema_level}, and this version knows {SCHEMA_LEVEL}: "
            "upgrade this installation."
        )
    if cluster.tzdata != tzdata_version():
        found.append(
            f"The log works by the time-zone data {cluster.tzdata}, and this installation has {tzdata_version()}: a "
            f"streams process from here does not join the others; install tzdata {cluster.tzdata} or upgrade them."
        )
    return found


def _configured(log: "KafkaLog", names: "TopicNames") -> "tuple[Cluster | None, list[Queue]]":
    """The cluster record and the queues, as they stand on the topic: a queue whose topics are gone is one of them."""
    from tocsin.log.port import TopicPartition
    from tocsin.schemas import codec
    from tocsin.schemas.records import Cluster, Queue

    at = TopicPartition(names.config, 0)
    end = log.end_offset(at, "committed")
    cluster: Cluster | None = None
    queues: dict[str, Queue] = {}
    with closing(log.reader("committed")) as reader:
        reader.assign({at: log.begin_offset(at)})
        while reader.position(at) < end:
            for record in reader.poll(READ_AT_ONCE, WAIT_S):
                if record.value is None:
                    continue
                match codec.decode(record.value):
                    case Cluster() as found:
                        cluster = found
                    case Queue() as queue:
                        queues[queue.name] = queue
                    case _:
                        pass
    return cluster, [queue for queue in queues.values() if not queue.deleted]


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _size(count: float) -> str:
    """Bytes as one reads them: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
