"""Which cluster, and how to get in: the bootstrap addresses and a user's properties (TLS, SASL, sockets)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tocsin.log.kafka.settings import OURS
from tocsin.log.port import LogError

_ADDRESS: Final = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})"
)

_JAVA_ONLY: Final[Mapping[str, str]] = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location (a PEM file)",
    "ssl.truststore.password": "ssl.ca.location (a PEM file, without password)",
    "ssl.truststore.type": "ssl.ca.location (a PEM file)",
    "ssl.keystore.type": "ssl.keystore.location (PKCS#12), or ssl.certificate.location and ssl.key.location (PEM)",
    "sasl.client.callback.handler.class": "sasl.oauthbearer.method=oidc and sasl.oauthbearer.token.endpoint.url",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method=oidc and sasl.oauthbearer.token.endpoint.url",
}
"""Options that only the Java client knows, and what librdkafka calls the same."""


class InvalidKafkaConfig(LogError, ValueError):
    """The addresses or properties given for Kafka cannot be used. Each problem is named; correct them and start again."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Raises InvalidKafkaConfig with every problem that can be seen without asking librdkafka."""

    bootstrap: str
    """host:port, several separated by commas. Any of them leads to the whole cluster."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further options of librdkafka: security.protocol, sasl.*, ssl.*, socket.* and the like."""
    client_id: str = "tocsin"
    """What brokers show and count quotas by; see EventLog.group_consumer for members."""
    replication: int | None = None
    """Of the topics that are created. None: three, or as many as there are brokers."""

    def __post_init__(self) -> None:
        # A copy, so that what was checked is what is used.
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))
        problems = [*_bootstrap_problems(self.bootstrap), *_property_problems(self.properties)]
        if not self.client_id:
            problems.append("client_id: must not be empty")
        if self.replication is not None and self.replication < 1:
            problems.append(f"replication: must be at least 1, not {self.replication}")
        if problems:
            raise InvalidKafkaConfig(problems)


def _bootstrap_problems(bootstrap: str) -> list[str]:
    addresses = [address.strip() for address in bootstrap.split(",")]
    if not any(addresses):
        return ["bootstrap: no address is given; write host:port, several separated by commas"]
    problems = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None:
            problems.append(f"bootstrap: {address!r} is not host:port")
        elif not 0 < int(match["port"]) < 65_536:
            problems.append(f"bootstrap: {address!r} has a port outside 1 to 65535")
    return problems


def _property_problems(properties: Mapping[str, str]) -> list[str]:
    return [problem for name in sorted(properties) if (problem := _property_problem(name))]


def _property_problem(name: str) -> str:
    """Why this option is none of a user's; "" if it is."""
    if name in _JAVA_ONLY:
        return f"{name}: only the Java client knows this option; use {_JAVA_ONLY[name]}"
    if name in ("bootstrap.servers", "metadata.broker.list"):
        return f"{name}: the addresses are given as bootstrap, not as a property"
    if name in OURS:
        return f"{name}: is set by Tocsin, whose guarantees rest on it; remove it from the properties"
    return ""


def read_properties(path: Path) -> dict[str, str]:
    """The options in a properties file: `name = value`, one a line; # and ! begin a comment, a \\ at the end goes on.

    Raises InvalidKafkaConfig, naming each wrong line and its rule; a line with an option that is not a user's is wrong, too.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidKafkaConfig([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise InvalidKafkaConfig(
            [f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}"]
        ) from error
    found: dict[str, str] = {}
    problems = []
    for number, line in _logical_lines(text):
        name, separator, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not separator or not name:
            problems.append(f"{path}, line {number}: expected `name = value`, found {line[:40]!r}")
        elif re.fullmatch(r"[a-z0-9._]+", name) is None:
            problems.append(
                f"{path}, line {number}: {name!r} is no option's name (small letters, digits, dots)"
            )
        elif name in found:
            problems.append(f"{path}, line {number}: {name} is given twice")
        elif problem := _property_problem(name):
            problems.append(f"{path}, line {number}: {problem}")
        else:
            found[name] = value
    if problems:
        raise InvalidKafkaConfig(problems)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines that say something, each with the number of its first physical line."""
    lines: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if begun is None and (not line or line[0] in "#!"):
            continue
        first, before = begun or (number, "")
        if line.endswith("\\") and not line.endswith("\\\\"):
            begun = (first, before + line[:-1].rstrip())
        else:
            lines.append((first, before + line))
            begun = None
    if begun is not None:
        lines.append(begun)
    return lines
