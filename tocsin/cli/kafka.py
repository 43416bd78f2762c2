"""`tocsin kafka`: an Apache Kafka on this machine, without Docker and without an installed Java."""

import shlex
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from tocsin.broker import BrokerFailed, LocalKafka
from tocsin.broker.lock import KAFKA
from tocsin.broker.ports import HOST
from tocsin.cli import output
from tocsin.cli.failures import EXIT_INPUT, EXIT_INTERRUPTED, Failure, called
from tocsin.cli.node import Json

app = typer.Typer(
    no_args_is_help=True,
    help="Run a Kafka on this machine, for trying and for tests. It listens on 127.0.0.1 alone, without passwords.",
)

DATA: Final = Path("data/kafka")
Data = Annotated[Path, typer.Option("--data", help="Where its data, settings and logs live.")]
LOOK_EVERY_S: Final = 0.5


@app.command("up")
def up(
    *,
    brokers: Annotated[
        int | None,
        typer.Option(
            help="How many brokers: 3 keep each record three times. Default: as before, at first 1.",
            min=1,
            max=9,
        ),
    ] = None,
    data: Data = DATA,
    port: Annotated[
        int,
        typer.Option(
            help="Port of the first broker, the others take those above. Default: free ones, kept for the next time.",
            min=0,
            max=65_535,
        ),
    ] = 0,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it answers; `tocsin kafka down` stops it.")
    ] = False,
) -> None:
    """Run it until Ctrl-C (or in the background: --detach). The first time, Kafka is fetched: 45 MB."""
    stop = _Stop()
    try:
        kafka = LocalKafka(data, brokers=brokers, port=port)
        if LocalKafka.found(data) is not None and all(each.answers for each in kafka.status()):
            _runs_already(kafka, data, port)
            return
        _tell(f"starting Kafka {KAFKA} in {kafka.directory}")
        kafka.start(_tell)
    except BrokerFailed as error:
        raise Failure(str(error)) from None
    except ValueError as error:
        raise Failure(f"--{error}", exit_code=EXIT_INPUT) from None
    many = "" if kafka.brokers == 1 else f" ({kafka.brokers} brokers)"
    _tell(f"Kafka {KAFKA} is up at {kafka.bootstrap}{many}, its data in {kafka.directory}")
    if detach:
        _next(kafka, f"`{_down(data)}` stops it")
        return
    _next(kafka, "Ctrl-C here stops it")
    try:
        failed = stop.wait(kafka)
    finally:
        kafka.stop()
    if failed:
        raise Failure(failed)
    _tell("Kafka has stopped; the data stays")
    if stop.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command("down")
def down(
    *,
    data: Data = DATA,
    wipe: Annotated[bool, typer.Option("--wipe", help="Also delete the directory, with all data.")] = False,
) -> None:
    """Stop it, whoever started it."""
    kafka = _found(data)
    try:
        running = [each for each in kafka.status() if each.pid is not None]
        if wipe:
            kafka.wipe()
        else:
            kafka.stop()
    except BrokerFailed as error:
        raise Failure(str(error)) from None
    was = "stopped" if running else "it did not run"
    _tell(f"{kafka.directory}: {was}{', and deleted' if wipe else ''}")


@app.command("status")
def status(*, data: Data = DATA, as_json: Json = False) -> None:
    """Say whether it runs and answers, where, and where its logs are. Exit code 1 if a broker does not answer."""
    kafka = _found(data)
    try:
        found = kafka.status()
    except BrokerFailed as error:
        raise Failure(str(error), as_json=as_json) from None
    if as_json:
        brokers = [
            {"address": b.address, "pid": b.pid, "answers": b.answers, "log": str(b.log)} for b in found
        ]
        output.show_json(
            {"bootstrap": kafka.bootstrap, "directory": str(kafka.directory), "brokers": brokers}
        )
    else:
        rows = [
            (
                b.address,
                "-" if b.pid is None else str(b.pid),
                "up" if b.answers else "down" if b.pid is None else "does not answer",
                str(b.log),
            )
            for b in found
        ]
        output.show_table(("BROKER", "PID", "STATE", "LOG"), rows, whole="LOG")
    if not all(each.answers for each in found):
        raise typer.Exit(1)


def _runs_already(kafka: LocalKafka, data: Path, port: int) -> None:
    if port and not kafka.bootstrap.startswith(f"{HOST}:{port}"):
        raise Failure(
            f"Kafka runs already at {kafka.bootstrap}, its data in {kafka.directory}: to move it to port {port}, stop it "
            f"first (`{_down(data)}`)"
        )
    _tell(f"Kafka runs already at {kafka.bootstrap}, its data in {kafka.directory}")
    _next(kafka, f"`{_down(data)}` stops it")


def _down(data: Path) -> str:
    """What to type to stop the one in this directory."""
    return f"{called()} kafka down" + ("" if data == DATA else f" --data {shlex.quote(str(data))}")


def _found(data: Path) -> LocalKafka:
    try:
        kafka = LocalKafka.found(data)
    except BrokerFailed as error:
        raise Failure(str(error)) from None
    if kafka is None:
        raise Failure(
            f"there is no Kafka in {data.absolute()}: `{called()} kafka up` makes one; --data names another directory",
            exit_code=EXIT_INPUT,
        )
    return kafka


class _Stop:
    """SIGINT, SIGTERM, and the end of the terminal: while it starts they interrupt, afterwards they ask to stop."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._waiting = False
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    def wait(self, kafka: LocalKafka) -> str:
        """Until a signal; or the message of a broker that ended by itself."""
        self._waiting = True
        while not self._asked.wait(LOOK_EVERY_S):
            failed = kafka.failed()
            if failed:
                return failed
        return ""

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._waiting:
            raise KeyboardInterrupt
        self.interrupted = self.interrupted or number == signal.SIGINT
        self._asked.set()


def _next(kafka: LocalKafka, stop: str) -> None:
    _tell(f"Next: `{called()} up --kafka {kafka.bootstrap}` runs Tocsin on it; {stop}")


def _tell(line: str) -> None:
    print(line, flush=True)
