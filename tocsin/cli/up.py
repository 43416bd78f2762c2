"""`tocsin up`: a whole Tocsin. On the embedded log it is one process; on a Kafka, the roles as children of one."""

import logging
import os
import socket
from pathlib import Path
from typing import Annotated, Final

import typer

from tocsin.cli import kafka_options as options
from tocsin.cli.failures import EXIT_INPUT, EXIT_INTERRUPTED, Failure, called
from tocsin.cli.functions import import_functions
from tocsin.cli.roles.serving import bind, url_of
from tocsin.cli.roles.signals import StopSignals
from tocsin.clock import SystemClock
from tocsin.worker.egress import EgressPolicy

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def up(
    data: Annotated[Path, typer.Option(help="Where the log and the state live.")] = Path("data"),
    port: Annotated[int, typer.Option(help="Port of the API.", min=0, max=65_535)] = 8787,
    host: Annotated[
        str, typer.Option(help="Address of the API. Any but loopback needs TOCSIN_API_KEY.")
    ] = "127.0.0.1",
    kafka: Annotated[
        str,
        typer.Option(
            "--kafka",
            envvar="TOCSIN_KAFKA",
            metavar="HOST:PORT|local",
            help="Keep the log on this Kafka instead of in --data, with each role as a process. "
            "local: start a broker, too.",
            show_default=False,
        ),
    ] = "",
    kafka_config: Annotated[
        Path | None,
        typer.Option(
            "--kafka-config",
            envvar="TOCSIN_KAFKA_CONFIG",
            metavar="FILE",
            help="Properties file with further librdkafka options: TLS, SASL.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", envvar="TOCSIN_PREFIX", help="On a Kafka: what the names of all topics begin with."
        ),
    ] = "tocsin.",
    functions: Annotated[
        list[str] | None,
        typer.Option(
            help="Module with @function callables to run in this node. Repeatable.", metavar="MODULE"
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(help="Runs in flight per queue, at most.", min=1, max=10_000)
    ] = 256,
    clock: options.ClockOption = "guarded",
    allow_network: options.AllowNetwork = None,
    allow_host: options.AllowHost = None,
    secrets: options.Secrets = None,
    callback_url: options.CallbackUrl = "",
    log_level: options.LogLevel = "warning",
) -> None:
    """Run a whole Tocsin: in one process and one directory, or with --kafka as a process for each role."""
    if log_level.lower() not in LOG_LEVELS:
        raise Failure(
            f"--log-level is {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}, not {log_level!r}",
            exit_code=EXIT_INPUT,
        )
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if clock not in ("guarded", "wall"):
        raise Failure(f"--clock is guarded or wall, not {clock!r}", exit_code=EXIT_INPUT)
    problems = options.Problems()
    options.check_callback_url(problems, callback_url)
    options.check_secrets(problems, secrets)
    options.check_networks(problems, allow_network or ())
    problems.raise_any()
    api_key = os.environ.get("TOCSIN_API_KEY", "")
    if kafka:
        from tocsin.cli.up_kafka import KafkaNode, up_on_kafka

        wanted = KafkaNode(
            kafka=kafka,
            kafka_config=kafka_config,
            prefix=prefix,
            data=data,
            functions=tuple(functions or ()),
            concurrency=concurrency,
            clock=clock,
            log_level=log_level,
            secrets=secrets,
            callback_url=callback_url,
            allow_network=tuple(allow_network or ()),
            allow_host=tuple(allow_host or ()),
        )
        raise typer.Exit(up_on_kafka(wanted, host=host, port=port, api_key=api_key))
    for name in functions or ():
        import_functions(name)
    listening = bind(host, port, host_option="--host", port_option="--port", api_key=api_key)
    _up_embedded(
        listening,
        url_of(listening, host),
        data=data,
        api_key=api_key,
        functions=bool(functions),
        concurrency=concurrency,
        clock=clock,
        secrets=secrets,
        callback_url=callback_url,
        egress=EgressPolicy(allow=(*(allow_network or ()), *(allow_host or ())), allow_loopback=True),
    )


def _up_embedded(
    listening: socket.socket,
    url: str,
    *,
    data: Path,
    api_key: str,
    functions: bool,
    concurrency: int,
    clock: str,
    secrets: Path | None,
    callback_url: str,
    egress: EgressPolicy,
) -> None:
    from tocsin.cli.all_in_one import AllInOne, NodeConfig
    from tocsin.streams.failures import EXPLAINED

    node = AllInOne(
        NodeConfig(
            data=data,
            clock_mode="wall" if clock == "wall" else "guarded",
            concurrency=concurrency,
            functions=functions,
            api_key=api_key,
            secrets=secrets,
            callback_url=callback_url or url,
            egress=egress,
        ),
        tell=_tell,
    )
    explained: tuple[type[Exception], ...] = (*EXPLAINED, OSError)
    signals = StopSignals(SystemClock(), node.ask_to_stop)
    signals.install()
    try:
        try:
            node.start()
        except explained as error:
            raise Failure(f"the node cannot start: {error}") from None
        for line in greeting(url, f"its data in {data.resolve()}"):
            _tell(line)
        failed = node.serve(listening)
    finally:
        listening.close()
        node.stop()
    if failed:
        raise Failure(failed)
    if signals.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def greeting(url: str, where: str) -> tuple[str, str]:
    """What a whole Tocsin says when it is up."""
    command = called()
    return (
        f"Tocsin is up at {url} (reference: {url}/docs), {where}",
        f"Next: `{command} sink` in a second terminal, `{command} jobs apply -f examples/hello.yaml` in a third.",
    )


def _tell(line: str) -> None:
    print(line, flush=True)
