"""`tocsin streams`: the processors, as a process of their own on a Kafka. Several share the partitions."""

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli import kafka_options as options
from tocsin.cli.failures import Failure
from tocsin.cli.roles.cluster import lock_directory
from tocsin.cli.roles.process import Process, waiting_app
from tocsin.cli.roles.running import leave, open_kafka, tell_on_stderr
from tocsin.cli.roles.serving import Front, Serving, bind, is_everywhere, is_loopback, url_of
from tocsin.cli.roles.streams import StreamsRole, StreamsRoleConfig
from tocsin.clock import SystemClock
from tocsin.streams.failures import EXPLAINED

PARTITIONS_MAX = 1_024


def streams(
    kafka: options.Kafka = "",
    kafka_config: options.KafkaFile = None,
    data: Annotated[
        Path,
        typer.Option(
            help="Where this process keeps its state, which can be rebuilt from the log. Each streams process needs a "
            "directory of its own.",
            metavar="DIR",
        ),
    ] = Path("data/streams"),
    listen: options.Listen = options.LISTEN_DEFAULT,
    advertise: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the API reaches this process. Default: the address of --listen, or this host's name.",
            show_default=False,
        ),
    ] = "",
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Follow the partitions that others own, so that taking one over needs no restore.",
        ),
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(help="Of the job topics, when the log is new; 12 unless given.", show_default=False),
    ] = None,
    queue_partitions: Annotated[
        int | None,
        typer.Option(
            help="Of the first queues, when the log is new; as --partitions unless given.", show_default=False
        ),
    ] = None,
    clock: options.ClockOption = "guarded",
    prefix: options.Prefix = "tocsin.",
    log_level: options.LogLevel = "warning",
) -> None:
    """Decide what runs when: the processors of the job topics, on a Kafka. Start up to one for each partition."""
    problems = options.Problems()
    settings = options.check_kafka(problems, kafka=kafka, file=kafka_config, client_id="tocsin-streams")
    names = options.check_names(problems, prefix)
    host, port = options.check_listen(problems, listen)
    if advertise:
        options.check_url(problems, "--advertise", advertise)
    options.check_choice(problems, "--clock", clock, ("guarded", "wall"))
    options.check_range(problems, "--partitions", partitions, 1, PARTITIONS_MAX)
    options.check_range(problems, "--queue-partitions", queue_partitions, 1, PARTITIONS_MAX)
    options.set_log_level(problems, log_level)
    problems.raise_any()
    assert settings is not None
    system_clock = SystemClock()
    listening = bind(host, port)
    try:
        held = lock_directory(data)
    except Failure:
        listening.close()
        raise
    process = Process(
        "streams",
        system_clock,
        tell=tell_on_stderr,
        explained=EXPLAINED,
    )
    front = Front(waiting_app(process))
    reached_at = advertise.rstrip("/") or url_of(
        listening, socket.gethostname() if is_everywhere(listening) else ""
    )
    process.tell(f"Tocsin streams listens at {url_of(listening)}")
    if not is_loopback(listening):
        process.tell(
            f"Tocsin streams can be reached from elsewhere: /livez, /readyz and /metrics by anybody, the state of jobs "
            f"and runs with the cluster's secret. The API finds it at {reached_at}; if that is wrong, give --advertise"
        )
    role = StreamsRole(
        StreamsRoleConfig(
            data=data,
            advertise=reached_at,
            names=names,
            log=f"Kafka at {kafka} with the prefix {prefix}",
            open_log=open_kafka(settings, system_clock, process),
            clock_mode="wall" if clock == "wall" else "guarded",
            standby=standby,
            partitions=partitions,
            queue_partitions=queue_partitions,
            secret=options.cluster_secret(),
        ),
        process,
        front,
        system_clock,
    )
    code = process.run(role, Serving(front, listening))
    os.close(held)
    leave(code)
