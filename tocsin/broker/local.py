"""A Kafka of one or several brokers in one directory of this machine, reachable from this machine alone."""

import base64
import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tocsin.broker.failures import BrokerFailed
from tocsin.broker.jars import fetch_jars
from tocsin.broker.java import Java, find_java
from tocsin.broker.node import LOOK_EVERY_S, Node
from tocsin.broker.ports import HOST, free_ports, is_free
from tocsin.broker.probe import Answer, ask
from tocsin.broker.settings import Address
from tocsin.clock import SystemClock, new_id

BROKERS_MAX: Final = 9
ANSWERS_WITHIN_S: Final = 60.0
"""Some four seconds on a free machine; on one that is busy it takes its time."""
STOPS_WITHIN_S: Final = 30.0
"""A broker needs two seconds; what it has acknowledged is safe even if it is killed."""
PROBE_S: Final = 1.0
TAKEN: Final = "Address already in use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a directory remembers of its cluster."""

    cluster_id: str
    addresses: tuple[Address, ...]
    chosen: bool
    """Whether somebody named the port; else a taken one may be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    index: int
    address: str
    pid: int | None
    answers: bool
    log: Path


class LocalKafka:
    """The brokers of one directory. Several of these may name the same one, also in several processes."""

    def __init__(self, directory: Path, *, brokers: int | None = None, port: int = 0) -> None:
        """Nothing is done yet. `brokers`: as many as the directory holds, else one. `port`: of the first broker, the others
        take the ones above; 0: free ones, remembered."""
        if brokers is None:
            layout = _read_layout(directory.absolute())
            brokers = 1 if layout is None else len(layout.addresses)
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers: 1 to {BROKERS_MAX}, not {brokers}")
        if port and not 1 <= port <= 65_536 - brokers:
            raise ValueError(f"port: 1 to {65_536 - brokers}, not {port}")
        self._directory = directory.absolute()
        self._brokers = brokers
        self._port = port
        self._nodes = [Node(self._directory / f"broker-{number}") for number in range(1, brokers + 1)]
        self._clock = SystemClock()

    @classmethod
    def found(cls, directory: Path) -> "LocalKafka | None":
        """The one that this directory holds, however it was made; None if it holds none."""
        return None if _read_layout(directory.absolute()) is None else cls(directory)

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def brokers(self) -> int:
        return self._brokers

    @property
    def bootstrap(self) -> str:
        """Where clients begin; known from the first start on."""
        return ",".join(f"{HOST}:{address.client}" for address in self._layout().addresses)

    def start(self, tell: Callable[[str], None]) -> None:
        """All brokers run and answer afterwards; those that ran already were left alone. Raises BrokerFailed."""
        if "," in str(self._directory):
            raise BrokerFailed(
                f"{self._directory}: Kafka takes a comma for the end of a path; name another folder"
            )
        java, jars = find_java(), fetch_jars(tell)
        with self._alone():
            layout = self._agreed_layout(tell)
            started = [node for node in self._nodes if node.pid() is None]
            try:
                self._format(layout, started, java, jars)
                for node in started:
                    node.start(java, jars)
                self._wait_until_all_answer(layout)
            except BaseException:  # Ctrl-C too
                for node in started:
                    node.signal(signal.SIGKILL)
                    node.wait_gone(STOPS_WITHIN_S)
                raise

    def kill(self, index: int = 0) -> None:
        """SIGKILL one broker; it is gone afterwards."""
        self._end(self._nodes[index], signal.SIGKILL)

    def restart(self, index: int = 0) -> None:
        """One broker runs again, at the same address and with its data, and answers; it is stopped before if it runs."""
        node, layout = self._nodes[index], self._layout()
        java, jars = find_java(), fetch_jars(lambda _: None)
        self._stop([node])
        node.start(java, jars)
        self._wait_until(node, layout.addresses[index], lambda answer: index + 1 in answer.brokers)

    def pause(self, index: int = 0) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        self._nodes[index].signal(signal.SIGSTOP)

    def resume(self, index: int = 0) -> None:
        self._nodes[index].signal(signal.SIGCONT)

    def stop(self) -> None:
        """No broker of this directory runs afterwards, whoever started it; the data stays."""
        if self._directory.is_dir():
            with self._alone():
                self._stop(self._nodes)

    def wipe(self) -> None:
        """Stop, and delete the directory."""
        self.stop()
        try:
            shutil.rmtree(self._directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BrokerFailed(f"{self._directory} cannot be deleted: {error}") from None

    def failed(self) -> str:
        """Empty while all brokers run; else which one ended, and its last lines."""
        ended = [node for node in self._nodes if node.pid() is None]
        return _ended(ended[0]) if ended else ""

    def status(self) -> list[BrokerStatus]:
        layout = self._layout()
        return [
            BrokerStatus(
                index=index,
                address=f"{HOST}:{address.client}",
                pid=node.pid(),
                answers=self._answer(layout, address) is not None,
                log=node.folder / "broker.log",
            )
            for index, (node, address) in enumerate(zip(self._nodes, layout.addresses, strict=True))
        ]

    # --- the layout ---------------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        layout = _read_layout(self._directory)
        if layout is None:
            raise BrokerFailed(f"{self._directory} holds no Kafka yet: start one there first")
        if len(layout.addresses) != self._brokers:
            raise BrokerFailed(
                f"{self._directory} holds a Kafka of {_count(len(layout.addresses))}, and {self._brokers} were asked for. "
                "A cluster keeps its number: leave out the number, or name another directory"
            )
        return layout

    def _agreed_layout(self, tell: Callable[[str], None]) -> Layout:
        """The layout to start with: the remembered one, with other ports where they are taken and nobody chose them."""
        found = _read_layout(self._directory)
        if found is None:
            layout = Layout(
                cluster_id=_new_cluster_id(), addresses=self._new_addresses(), chosen=bool(self._port)
            )
        else:
            layout = self._layout()
            running = [node for node in self._nodes if node.pid() is not None]
            layout = layout if running else self._with_free_ports(layout, tell)
        if layout != found:
            _write_layout(self._directory, layout)
        for index, node in enumerate(self._nodes):
            if node.pid() is None:
                node.prepare(index=index, addresses=layout.addresses)
        return layout

    def _with_free_ports(self, layout: Layout, tell: Callable[[str], None]) -> Layout:
        """No broker of ours runs, so every port must be free."""
        asked = bool(self._port) and layout.addresses[0].client != self._port
        taken = [port for a in layout.addresses for port in (a.client, a.controller) if not is_free(port)]
        if not asked and not taken:
            return layout
        if layout.chosen and not asked:
            clients = [a.client for a in layout.addresses if a.client in taken]
            if clients:
                raise _port_taken(clients[0])
        addresses = self._new_addresses(layout if layout.chosen and not asked else None)
        layout = Layout(
            cluster_id=layout.cluster_id, addresses=addresses, chosen=layout.chosen or bool(self._port)
        )
        if taken and not layout.chosen:
            tell(f"port {taken[0]} is taken by another process: the broker gets another address")
        return layout

    def _new_addresses(self, kept: Layout | None = None) -> tuple[Address, ...]:
        free = free_ports(2 * self._brokers)
        clients: Sequence[int] = free[: self._brokers]
        if kept is not None:
            clients = [address.client for address in kept.addresses]
        elif self._port:
            clients = range(self._port, self._port + self._brokers)
            for port in clients:
                if not is_free(port):
                    raise _port_taken(port)
        controllers = [port for port in free if port not in clients][-self._brokers :]
        return tuple(
            Address(client=client, controller=controller)
            for client, controller in zip(clients, controllers, strict=True)
        )

    # --- starting and stopping ----------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time starts or stops what is in the directory."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise BrokerFailed(f"no space for a Kafka in {self._directory}: make room there") from None
            raise BrokerFailed(f"Kafka cannot live in {self._directory}: {error.strerror or error}") from None

    def _format(self, layout: Layout, nodes: list[Node], java: Java, jars: list[Path]) -> None:
        """At once for all: each takes a second or two of one core."""
        processes = [(node, node.formatter(java, jars, layout.cluster_id)) for node in nodes]
        try:
            for node, process in processes:
                if process is not None:
                    node.end_format(process)
        finally:
            for _, process in processes:
                if process is not None and process.poll() is None:
                    process.kill()
                    process.communicate()

    def _wait_until_all_answer(self, layout: Layout) -> None:
        everyone = frozenset(range(1, self._brokers + 1))
        for node, address in zip(self._nodes, layout.addresses, strict=True):
            self._wait_until(node, address, lambda answer: everyone <= answer.brokers)

    def _wait_until(self, node: Node, address: Address, enough: Callable[[Answer], bool]) -> None:
        layout = self._layout()
        until_s = self._clock.monotonic_s() + ANSWERS_WITHIN_S
        while True:
            answer = self._answer(layout, address)
            if answer is not None and enough(answer):
                return
            if node.pid() is None:
                if node.has_said(TAKEN):
                    raise _port_taken(address.client)
                raise BrokerFailed(_ended(node))
            if self._clock.monotonic_s() >= until_s:
                raise BrokerFailed(
                    f"the Kafka broker in {node.folder} does not answer on {HOST}:{address.client} after "
                    f"{ANSWERS_WITHIN_S:.0f} s. {node.last_lines()}"
                )
            node.pause(LOOK_EVERY_S)

    def _answer(self, layout: Layout, address: Address) -> Answer | None:
        answer = ask(HOST, address.client, PROBE_S)
        return answer if answer is not None and answer.cluster_id == layout.cluster_id else None

    def _stop(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.signal(signal.SIGTERM)
            node.signal(signal.SIGCONT)  # one that is paused would not see it
        until_s = self._clock.monotonic_s() + STOPS_WITHIN_S
        for node in nodes:
            if not node.wait_gone(max(0.0, until_s - self._clock.monotonic_s())):
                self._end(node, signal.SIGKILL)

    def _end(self, node: Node, number: signal.Signals) -> None:
        node.signal(number)
        if not node.wait_gone(STOPS_WITHIN_S):
            raise BrokerFailed(f"the Kafka broker with pid {node.pid()} in {node.folder} does not end")


def _count(brokers: int) -> str:
    return "1 broker" if brokers == 1 else f"{brokers} brokers"


def _ended(node: Node) -> str:
    return f"the Kafka broker in {node.folder} ended. {node.last_lines()}"


def _port_taken(port: int) -> BrokerFailed:
    return BrokerFailed(
        f"port {port} on {HOST} is taken by another process: stop that, or choose another port with --port"
    )


def _new_cluster_id() -> str:
    """22 characters, as Kafka makes them. One that begins with a dash would be taken for an option."""
    while True:
        text = base64.urlsafe_b64encode(bytes.fromhex(new_id())).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _layout_file(directory: Path) -> Path:
    return directory / "cluster.json"


def _read_layout(directory: Path) -> Layout | None:
    path = _layout_file(directory)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Layout(
            cluster_id=str(found["cluster_id"]),
            addresses=tuple(
                Address(client=int(each["client"]), controller=int(each["controller"]))
                for each in found["addresses"]
            ),
            chosen=bool(found["chosen"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokerFailed(
            f"{path} cannot be read ({error}): it remembers the cluster's id and ports. Restore it, or start in another "
            "directory"
        ) from None


def _write_layout(directory: Path, layout: Layout) -> None:
    path = _layout_file(directory)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(layout), indent=2) + "\n", encoding="utf-8")
    os.replace(new, path)  # noqa: PTH105 - what replaces, atomically
