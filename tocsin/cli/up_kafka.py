"""`tocsin up --kafka`: each role as a child process; with `--kafka local`, a broker beside them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from tocsin.cli import kafka_options as options
from tocsin.cli.failures import EXIT_INTERRUPTED, Failure
from tocsin.cli.roles.serving import LISTEN_FD, bind, url_of
from tocsin.cli.roles.supervisor import ChildSpec, Supervisor
from tocsin.cli.up import greeting
from tocsin.clock import SystemClock

if TYPE_CHECKING:
    from tocsin.broker import LocalKafka

STATE: Final = "kafka-state"
"""Beside what a node with an embedded log keeps in the same folder."""
DRAIN_S: Final = 30.0
LOOK_EVERY_S: Final = 2.0
STOP_S: Final = 60.0
"""For a child's orderly end; each ends by itself before that, also if something in it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """What `tocsin up --kafka` was asked for."""

    kafka: str
    kafka_config: Path | None
    prefix: str
    data: Path
    functions: tuple[str, ...]
    concurrency: int
    clock: str
    log_level: str
    allow_network: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    secrets: Path | None = None
    callback_url: str = ""
    """"": the API's own address."""


def up_on_kafka(wanted: KafkaNode, *, host: str, port: int, api_key: str) -> int:
    """Run until a signal comes. Returns the exit code."""
    is_local = wanted.kafka == options.LOCAL
    problems = options.Problems()
    options.check_names(problems, wanted.prefix)
    # The roles check it again, each for itself; here all is said at once, and before anything is started.
    options.check_kafka(problems, kafka="127.0.0.1:9" if is_local else wanted.kafka, file=wanted.kafka_config)
    if is_local and wanted.kafka_config is not None:
        problems.add("--kafka-config is for a Kafka that is there already, not for --kafka local")
    problems.raise_any()
    listening = bind(host, port, host_option="--host", port_option="--port", api_key=api_key)
    listening.set_inheritable(True)
    with _broker(wanted.data / "kafka" if is_local else None, wanted.kafka) as (bootstrap, held, look):
        callback_url = wanted.callback_url or url_of(listening, host)
        children = _children(wanted, bootstrap, host, listening.fileno(), held, callback_url)
        supervisor = Supervisor(children, SystemClock(), tell=_tell)
        address = listening.getsockname()[:2]
        where = f"its log in Kafka at {bootstrap}, its state in {(wanted.data / STATE).resolve()}"
        return supervisor.run(address, greeting(url_of(listening, host), where), look)


def _children(
    wanted: KafkaNode,
    bootstrap: str,
    host: str,
    listening: int,
    held: tuple[int, ...],
    callback_url: str,
) -> list[ChildSpec]:
    """In the order of their start; they are stopped in the opposite one, so that what is in flight is reported, and the
    reports are folded. `held`: descriptors that all of them inherit."""
    common = ["--kafka", bootstrap, "--prefix", wanted.prefix, "--log-level", wanted.log_level]
    if wanted.kafka_config is not None:
        common += ["--kafka-config", str(wanted.kafka_config)]
    streams = ["streams", *common, "--data", str(wanted.data / STATE), "--clock", wanted.clock]
    worker = ["worker", *common, "--concurrency", str(wanted.concurrency), "--drain", f"{DRAIN_S:g}"]
    worker += ["--callback-url", callback_url]
    worker += [word for each in wanted.allow_network for word in ("--allow-network", each)]
    worker += [word for each in wanted.allow_host for word in ("--allow-host", each)]
    if wanted.secrets is not None:
        worker += ["--secrets", str(wanted.secrets)]
    functions = [word for module in wanted.functions for word in ("--functions", module)]
    children = [
        ChildSpec(name="streams", arguments=streams, descriptors=held, stop_s=STOP_S),
        ChildSpec(
            name="worker",
            arguments=[*worker, "--allow-loopback", "--every-queue", "http"],
            descriptors=held,
            stop_s=DRAIN_S + STOP_S,
        ),
    ]
    if functions:
        children.append(
            ChildSpec(
                name="functions",
                arguments=[*worker, "--every-queue", "function", *functions],
                descriptors=held,
                stop_s=DRAIN_S + STOP_S,
            )
        )
    children.append(
        ChildSpec(
            name="api",
            arguments=["api", *common, "--host", host],
            environment={LISTEN_FD: str(listening)},
            descriptors=(listening, *held),
            stop_s=STOP_S,
        )
    )
    return children


@contextmanager
def _broker(
    directory: Path | None, bootstrap: str
) -> Iterator[tuple[str, tuple[int, ...], Callable[[], None]]]:
    """The address of the Kafka, what the roles have to hold for as long as they need it, and what looks after it.

    If there is a directory, the Kafka is started in it, and stopped last: by a keeper, once all that hold the writing end
    of its pipe are gone. So it is stopped also if this process is killed, and not before the roles have ended.
    """
    if directory is None:
        yield bootstrap, (), lambda: None
        return
    from tocsin.broker import BrokerFailed, LocalKafka

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _tell(f"starting a Kafka broker, its data in {directory.absolute()}")
    broker = LocalKafka(directory)
    reading, writing = os.pipe()
    keeper = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "tocsin.cli.roles.keeper", str(directory.absolute())], stdin=reading
    )
    os.close(reading)
    try:
        try:
            broker.start(_tell)
        except BrokerFailed as error:
            raise Failure(f"the broker cannot start: {error}") from None
        yield broker.bootstrap, (writing,), _BrokerWatch(broker).look
        _tell("stopping the broker")
    finally:
        os.close(writing)
        keeper.wait()


class _BrokerWatch:
    """Starts the broker again when it has died."""

    def __init__(self, broker: "LocalKafka") -> None:
        self._broker = broker
        self._clock = SystemClock()
        self._next_s = 0.0
        self._starting: threading.Thread | None = None

    def look(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s or (self._starting is not None and self._starting.is_alive()):
            return
        self._next_s = now_s + LOOK_EVERY_S
        if all(each.pid is not None for each in self._broker.status()):
            return
        _tell("the broker has died; it is started again")
        self._starting = threading.Thread(target=self._start, name="tocsin-broker", daemon=True)
        self._starting.start()

    def _start(self) -> None:
        from tocsin.broker import BrokerFailed

        try:
            self._broker.start(_tell)
        except BrokerFailed as error:
            _tell(f"the broker cannot be started again: {error}")


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    """While the broker starts there is nothing else to be stopped in order."""
    raise Failure("interrupted", exit_code=EXIT_INTERRUPTED if number == signal.SIGINT else 0)


def _tell(line: str) -> None:
    print(line, flush=True)
