"""`tocsin worker`: what executes due runs, as a process of its own on a Kafka. Several share a queue's partitions."""

import os
import socket
from typing import Annotated, Literal

import typer

from tocsin.cli import kafka_options as options
from tocsin.cli.functions import import_functions
from tocsin.cli.roles.process import Process, waiting_app
from tocsin.cli.roles.running import leave, open_kafka, tell_on_stderr
from tocsin.cli.roles.serving import Front, Serving, bind, is_loopback, url_of
from tocsin.cli.roles.worker import WorkerRole, WorkerRoleConfig
from tocsin.clock import SystemClock
from tocsin.worker.config import InvalidWorkerConfig, WorkerConfig
from tocsin.worker.egress import EgressPolicy

KINDS: tuple[Literal["http"], Literal["function"]] = ("http", "function")


def worker(
    kafka: options.Kafka = "",
    kafka_config: options.KafkaFile = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Queue to serve. Repeatable. Default: default; with --functions: functions.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    every_queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of --queue: serve every queue of this kind (http, function), also those made later. "
            "Repeatable.",
            metavar="KIND",
            show_default=False,
        ),
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(help="Module with @function callables to run here. Repeatable.", metavar="MODULE"),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Runs in flight per queue, at most.")] = 256,
    name: Annotated[
        str,
        typer.Option(
            help="What reports and the group call this process. Default: host and process id.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    listen: options.Listen = options.LISTEN_DEFAULT,
    drain: Annotated[
        float, typer.Option(help="Seconds that runs in flight have to end when the worker is stopped.")
    ] = 30.0,
    allow_loopback: Annotated[
        bool, typer.Option("--allow-loopback", help="Let jobs call this machine itself.")
    ] = False,
    allow_network: options.AllowNetwork = None,
    allow_host: options.AllowHost = None,
    secrets: options.Secrets = None,
    callback_url: options.CallbackUrl = "",
    prefix: options.Prefix = "tocsin.",
    log_level: options.LogLevel = "warning",
) -> None:
    """Execute due runs, each at its instant, on a Kafka. Start as many as you like; they share the work.

    Jobs cannot call loopback, private and link-local addresses unless that is allowed here.
    """
    problems = options.Problems()
    worker_name = name or f"{socket.gethostname()}-{os.getpid()}"
    settings = options.check_kafka(problems, kafka=kafka, file=kafka_config, client_id="tocsin-worker")
    names = options.check_names(problems, prefix)
    host, port = options.check_listen(problems, listen)
    options.check_networks(problems, allow_network or ())
    options.check_callback_url(problems, callback_url)
    for kind in every_queue or ():
        options.check_choice(problems, "--every-queue", kind, KINDS)
    if queue and every_queue:
        problems.add("--queue and --every-queue exclude each other")
    if every_queue and "function" in every_queue and not functions:
        problems.add("--every-queue function needs --functions: the modules that hold them")
    queues = tuple(queue or (["functions"] if functions else ["default"]))
    egress = EgressPolicy(allow=(*(allow_network or ()), *(allow_host or ())), allow_loopback=allow_loopback)
    try:
        WorkerConfig(
            worker=worker_name,
            queues=queues,
            concurrency=concurrency,
            drain_s=drain,
            egress=egress,
            secrets=secrets,
        )
    except InvalidWorkerConfig as error:
        problems.add(*map(_as_option, error.problems))
    options.set_log_level(problems, log_level)
    problems.raise_any()
    assert settings is not None
    for module in functions or ():
        import_functions(module)
    listening = bind(host, port)
    system_clock = SystemClock()
    process = Process("worker", system_clock, tell=tell_on_stderr)
    front = Front(waiting_app(process))
    process.tell(f"Tocsin worker listens at {url_of(listening)}")
    if not is_loopback(listening):
        process.tell("Tocsin worker can be reached from elsewhere: /livez, /readyz and /metrics by anybody")
    role = WorkerRole(
        WorkerRoleConfig(
            worker=worker_name,
            names=names,
            open_log=open_kafka(settings, system_clock, process),
            queues=queues,
            every_queue_of=frozenset(kind for kind in KINDS if kind in (every_queue or ())),
            functions=bool(functions),
            concurrency=concurrency,
            drain_s=drain,
            egress=egress,
            secrets=secrets,
            callback_url=callback_url,
            secret=options.cluster_secret(),
        ),
        process,
        front,
        system_clock,
    )
    leave(process.run(role, Serving(front, listening)))


def _as_option(problem: str) -> str:
    """The worker's settings are named as they are on the command line."""
    spelled = {
        "concurrency": "--concurrency",
        "drain_s": "--drain",
        "queues:": "--queue:",
        "egress allow list:": "--allow-network, --allow-host:",
        "worker": "--name",
        "secrets": "--secrets",
    }
    first, _, rest = problem.partition(" ")
    for setting, option in spelled.items():
        if problem.startswith(setting) and (first == setting or problem.startswith(f"{setting} ")):
            return option + problem.removeprefix(setting)
    return f"{first} {rest}"
