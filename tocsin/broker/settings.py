"""The settings of a local broker, each that is not Kafka's own with its reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.broker.ports import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The ports of one node."""

    client: int
    controller: int


# Kafka's defaults are made for machines with many cores and a cluster with many clients.
COMMON: Final = {
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "controller.listener.names": "CONTROLLER",
    # A topic that nobody created on purpose has the wrong number of partitions.
    "auto.create.topics.enable": "false",
    # The first member of a group need not wait for a second.
    "group.initial.rebalance.delay.ms": "0",
    # 128 MB by default. This is enough for 600,000 keys in a pass, and a pass takes as many keys as fit.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # After kill -9 the leaders of a broker's partitions move this much later (9 s by default), and a broker that comes
    # back is let in again only when its old session has ended. Heartbeats four times as often, as by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Fewer threads: eight and three are meant for more than two cores.
    "num.io.threads": "4",
    "num.network.threads": "2",
    "background.threads": "4",
    # The controller writes a record about nothing twice a second, so that its followers' lag can be told.
    "metadata.max.idle.interval.ms": "5000",
    # Nobody reads metrics by JMX here.
    "metric.reporters": "",
}


def properties(*, index: int, addresses: tuple[Address, ...], data: Path) -> str:
    """The properties file of node `index` (from 0) of a cluster at these addresses."""
    own = addresses[index]
    nodes = len(addresses)
    internal = {
        "replication": str(min(3, nodes)),
        "in_sync": str(2 if nodes > 2 else 1),
        # 50 by default: as many files to keep, and as many to move when a broker dies.
        "partitions": "4" if nodes == 1 else "6",
    }
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(index + 1),
        "listeners": f"CLIENT://{HOST}:{own.client},CONTROLLER://{HOST}:{own.controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{own.client}",
        "controller.quorum.voters": ",".join(
            f"{number}@{HOST}:{address.controller}" for number, address in enumerate(addresses, 1)
        ),
        "log.dirs": str(data),
        "default.replication.factor": internal["replication"],
        "min.insync.replicas": internal["in_sync"],
        "offsets.topic.replication.factor": internal["replication"],
        "offsets.topic.num.partitions": internal["partitions"],
        "transaction.state.log.replication.factor": internal["replication"],
        "transaction.state.log.min.isr": internal["in_sync"],
        "transaction.state.log.num.partitions": internal["partitions"],
        "share.coordinator.state.topic.replication.factor": internal["replication"],
        "share.coordinator.state.topic.min.isr": internal["in_sync"],
        "share.coordinator.state.topic.num.partitions": internal["partitions"],
        **COMMON,
    }
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    """A backslash begins an escape in a properties file, and what is not ASCII is written as one."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


# The broker's log is bounded: four files of 5 MB. What only looks like a failure is left out.
LOGGING: Final = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:tocsin.log}
appender.file.filePattern = ${sys:tocsin.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
