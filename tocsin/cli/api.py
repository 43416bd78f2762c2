"""`tocsin api`: the HTTP API as a process of its own on a Kafka. It keeps no state; several may stand side by side."""

from typing import Annotated

import typer

from tocsin.cli import kafka_options as options
from tocsin.cli.roles.api import ApiRole, ApiRoleConfig
from tocsin.cli.roles.process import Process, waiting_app
from tocsin.cli.roles.running import leave, open_kafka, tell_on_stderr
from tocsin.cli.roles.serving import Front, Serving, bind, is_loopback, url_of
from tocsin.clock import SystemClock


def api(
    kafka: options.Kafka = "",
    kafka_config: options.KafkaFile = None,
    port: Annotated[int, typer.Option(help="Port of the API; 0: a free one.", min=0, max=65_535)] = 8787,
    host: Annotated[
        str, typer.Option(help="Address of the API. Any but loopback needs TOCSIN_API_KEY.")
    ] = "127.0.0.1",
    prefix: options.Prefix = "tocsin.",
    log_level: options.LogLevel = "warning",
) -> None:
    """Serve the HTTP API on a Kafka: writes go to the log, questions to the streams process that has the answer."""
    problems = options.Problems()
    settings = options.check_kafka(problems, kafka=kafka, file=kafka_config, client_id="tocsin-api")
    names = options.check_names(problems, prefix)
    options.set_log_level(problems, log_level)
    problems.raise_any()
    assert settings is not None
    key = options.api_key()
    listening = bind(host, port, host_option="--host", port_option="--port", api_key=key)
    system_clock = SystemClock()
    process = Process("api", system_clock, tell=tell_on_stderr)
    front = Front(waiting_app(process))
    url = url_of(listening)
    process.tell(f"Tocsin api listens at {url} (reference: {url}/docs)")
    if not is_loopback(listening):
        process.tell(
            "Tocsin api can be reached from elsewhere: what is below /v1 with the key in TOCSIN_API_KEY"
        )
    role = ApiRole(
        ApiRoleConfig(
            names=names,
            open_log=open_kafka(settings, system_clock, process),
            api_key=key,
            secret=options.cluster_secret(),
        ),
        process,
        front,
        system_clock,
    )
    leave(process.run(role, Serving(front, listening)))
