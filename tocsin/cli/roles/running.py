"""What the commands of all roles do alike: where their lines go, and how they open their Kafka."""

import os
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from tocsin.cli.roles.cluster import OpenLog
from tocsin.cli.roles.process import Process
from tocsin.clock import Clock
from tocsin.log.port import EventLog

if TYPE_CHECKING:
    from tocsin.log.kafka import KafkaConfig


LEAVE_S: Final = 10.0


def tell_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def leave(code: int) -> NoReturn:
    """End the command. Python waits for every thread that is left; one that hangs does not keep the process."""
    threading.Thread(target=_leave_at_last, args=(code,), name="tocsin-leave", daemon=True).start()
    raise typer.Exit(code)


def _leave_at_last(code: int) -> None:
    threading.Event().wait(LEAVE_S)
    os._exit(code)


def open_kafka(settings: "KafkaConfig", clock: Clock, process: Process) -> OpenLog:
    def opened() -> EventLog:
        from tocsin.log.kafka import KafkaLog

        process.begin(f"it waits for an answer of Kafka at {settings.bootstrap}")
        return KafkaLog.open(settings, clock)

    return opened
