"""What the commands of all roles do alike: where their lines go, and how they open their Kafka."""

import sys
from typing import TYPE_CHECKING

from tocsin.cli.roles.cluster import OpenLog
from tocsin.cli.roles.process import Process
from tocsin.clock import Clock
from tocsin.log.port import EventLog

if TYPE_CHECKING:
    from tocsin.log.kafka import KafkaConfig


def tell_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def open_kafka(settings: "KafkaConfig", clock: Clock, process: Process) -> OpenLog:
    def opened() -> EventLog:
        from tocsin.log.kafka import KafkaLog

        process.begin(f"it waits for an answer of Kafka at {settings.bootstrap}")
        return KafkaLog.open(settings, clock)

    return opened
