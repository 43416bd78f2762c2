"""The options that the roles share, and their check: every problem at once, before anything is opened."""

import ipaddress
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from tocsin.cli.failures import EXIT_INPUT, Failure, called
from tocsin.schemas.topics import TopicNames

if TYPE_CHECKING:
    from tocsin.log.kafka import KafkaConfig

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PREFIX_MAX: Final = 64
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Kafka = Annotated[
    str,
    typer.Option(
        "--kafka",
        envvar="TOCSIN_KAFKA",
        metavar="HOST:PORT[,...]",
        help="One or more brokers of the Kafka to work on.",
        show_default=False,
    ),
]
KafkaFile = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        envvar="TOCSIN_KAFKA_CONFIG",
        metavar="FILE",
        help="Properties file with further librdkafka options: TLS, SASL.",
        show_default=False,
    ),
]
Prefix = Annotated[
    str,
    typer.Option(
        "--prefix",
        envvar="TOCSIN_PREFIX",
        metavar="NAME",
        help="What the names of all topics and groups begin with.",
    ),
]
AllowNetwork = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-network",
        help="Let jobs call this private range, such as 10.1.0.0/16. Repeatable.",
        metavar="CIDR",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        help="Let jobs call this host wherever it resolves to: hooks.internal, *.svc.internal. Repeatable.",
        metavar="NAME",
    ),
]
Secrets = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        envvar="TOCSIN_SECRETS",
        metavar="DIR",
        help="Secrets of the jobs: a file NAMESPACE/NAME for each.",
        show_default=False,
    ),
]
CallbackUrl = Annotated[
    str,
    typer.Option(
        "--callback-url",
        envvar="TOCSIN_CALLBACK_URL",
        metavar="URL",
        help="Where endpoints of long runs reach the API.",
        show_default=False,
    ),
]
LogLevel = Annotated[
    str,
    typer.Option("--log-level", metavar="|".join(LOG_LEVELS), help="What is logged to standard error."),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where /livez, /readyz and /metrics are served; port 0: a free one, which is said.",
    ),
]
ClockOption = Annotated[
    str,
    typer.Option(
        "--clock",
        metavar="guarded|wall",
        help="guarded: while the wall clock is off, or has stepped, nothing fires. wall: believe it.",
    ),
]

LOCAL: Final = "local"
"""In place of an address, for `tocsin up` alone: a broker that is started here."""
LISTEN_DEFAULT: Final = "127.0.0.1:0"


@dataclass(slots=True)
class Problems:
    """What is wrong with the options, each as a sentence that names one."""

    found: list[str] = field(default_factory=list)

    def add(self, *problems: str) -> None:
        self.found += problems

    def raise_any(self) -> None:
        if self.found:
            raise Failure("\n".join(self.found), exit_code=EXIT_INPUT)


def check_kafka(
    problems: Problems, *, kafka: str, file: Path | None, client_id: str = "tocsin"
) -> "KafkaConfig | None":
    """The settings of the log; None, with what is wrong in `problems`."""
    from tocsin.log.kafka import InvalidKafkaConfig, KafkaConfig, read_properties

    properties: Mapping[str, str] = {}
    if file is not None:
        try:
            properties = read_properties(file)
        except InvalidKafkaConfig as error:
            problems.add(*(f"--kafka-config: {problem}" for problem in error.problems))
    if not kafka:
        problems.add(
            "--kafka (or TOCSIN_KAFKA) is missing: name a broker as HOST:PORT. "
            f"`{called()} kafka up` starts one on this machine and says its address; "
            f"`{called()} up` without --kafka needs none"
        )
        return None
    try:
        return KafkaConfig(bootstrap=kafka, properties=properties, client_id=client_id)
    except InvalidKafkaConfig as error:
        problems.add(*map(_as_option, error.problems))
        return None


def _as_option(problem: str) -> str:
    """`bootstrap` is what the setting is called behind the command line; the others come from the file."""
    what = problem.removeprefix("bootstrap: ")
    if what == problem:
        return f"--kafka-config: {problem}"
    if what.startswith(f"{LOCAL!r} "):
        what += f" (only `{called()} up` starts one; `{called()} kafka up` says its address)"
    return f"--kafka: {what}"


def check_names(problems: Problems, prefix: str) -> TopicNames:
    if not _PREFIX.fullmatch(prefix) or len(prefix) > PREFIX_MAX:
        problems.add(
            f"--prefix is 1 to {PREFIX_MAX} letters, digits, dots, underscores and hyphens, "
            f"such as `tocsin.`, not {prefix[: 2 * PREFIX_MAX]!r}"
        )
        return TopicNames()
    return TopicNames(prefix=prefix)


def check_listen(problems: Problems, listen: str, option: str = "--listen") -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        problems.add(f"{option} is HOST:PORT, such as 127.0.0.1:8788 or [::1]:8788, not {listen[:100]!r}")
        return "127.0.0.1", 0
    return host, int(port)


def check_choice(problems: Problems, option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        problems.add(f"{option} is {', '.join(choices[:-1])} or {choices[-1]}, not {value[:100]!r}")


def check_range(problems: Problems, option: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        problems.add(f"{option} is {low:g} to {high:g}, not {value:g}")


def check_url(problems: Problems, option: str, value: str) -> None:
    """Whether other processes can be told to come here."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
        good = good and parts.path in ("", "/") and not parts.query and not parts.username
    except ValueError:
        good = False
    if not good:
        problems.add(f"{option} is a URL such as http://streams-1:8788, with a port, not {value[:100]!r}")


def check_networks(problems: Problems, networks: Iterable[str]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            problems.add(
                f"--allow-network is an address or a range such as 10.1.0.0/16, not {network[:100]!r}"
            )


def set_log_level(problems: Problems, level: str) -> None:
    check_choice(problems, "--log-level", level.lower(), LOG_LEVELS)
    if level.lower() in LOG_LEVELS:
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")


def api_key() -> str:
    return os.environ.get("TOCSIN_API_KEY", "")


def check_secrets(problems: Problems, directory: Path | None) -> None:
    if directory is not None and not directory.is_dir():
        problems.add(f"--secrets is a directory with a folder for each namespace; {directory} is none")


def check_callback_url(problems: Problems, url: str) -> None:
    parts = urlsplit(url) if url else None
    if parts is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
        problems.add(
            f"--callback-url is the address at which endpoints reach the API, such as https://tocsin.example.com, "
            f"not {url[:100]!r}"
        )


def cluster_secret() -> str:
    """What was given to all processes alike, instead of the secret that the cluster's first start made; "": nothing."""
    return os.environ.get("TOCSIN_CLUSTER_SECRET", "")
