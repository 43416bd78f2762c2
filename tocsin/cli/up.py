"""`tocsin up`: the all-in-one node. One process: the embedded log, the stream processor, the workers, the API."""

import importlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from tocsin.cli.all_in_one import AllInOne, NodeConfig
from tocsin.cli.failures import EXIT_INPUT, EXIT_INTERRUPTED, Failure, called
from tocsin.log.port import LogError
from tocsin.streams.configuration import NewerSchemaLevel
from tocsin.streams.store import StoreError

OURS: Final = str(Path(__file__).parents[1]) + os.sep
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def up(
    data: Annotated[Path, typer.Option(help="Where the log and the state live.")] = Path("data"),
    port: Annotated[int, typer.Option(help="Port of the API.", min=0, max=65_535)] = 8787,
    host: Annotated[
        str, typer.Option(help="Address of the API. Any but loopback needs TOCSIN_API_KEY.")
    ] = "127.0.0.1",
    functions: Annotated[
        list[str] | None,
        typer.Option(
            help="Module with @function callables to run in this node. Repeatable.", metavar="MODULE"
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(help="Runs in flight per queue, at most.", min=1, max=10_000)
    ] = 256,
    clock: Annotated[
        str,
        typer.Option(help="guarded: a step of the wall clock holds firing for a minute. wall: believe it."),
    ] = "guarded",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
) -> None:
    """Run the all-in-one node: everything in one process, durable in one directory."""
    if log_level.lower() not in LOG_LEVELS:
        raise Failure(
            f"--log-level is {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}, not {log_level!r}",
            exit_code=EXIT_INPUT,
        )
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if clock not in ("guarded", "wall"):
        raise Failure(f"--clock is guarded or wall, not {clock!r}", exit_code=EXIT_INPUT)
    api_key = os.environ.get("TOCSIN_API_KEY", "")
    for name in functions or ():
        _import_functions(name)
    listening = _listen(host, port, api_key)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    node = AllInOne(
        NodeConfig(
            data=data,
            clock_mode="wall" if clock == "wall" else "guarded",
            concurrency=concurrency,
            functions=bool(functions),
            api_key=api_key,
        ),
        tell=_tell,
    )
    signals = _Signals(node)
    try:
        try:
            node.start()
        except (LogError, StoreError, NewerSchemaLevel, OSError) as error:
            raise Failure(f"the node cannot start: {error}") from None
        _tell(f"Tocsin is up at {url} (reference: {url}/docs), its data in {data.resolve()}")
        command = called()
        _tell(
            f"Next: `{command} sink` in a second terminal, `{command} jobs apply -f examples/hello.yaml` in a third."
        )
        failed = node.serve(listening)
    finally:
        listening.close()
        node.stop()
    if failed:
        raise Failure(failed)
    if signals.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


class _Signals:
    """The first SIGINT or SIGTERM drains the node; the second ends the process at once, as kill -9 would."""

    def __init__(self, node: AllInOne) -> None:
        self._node = node
        self._asked = False
        self.interrupted = False
        """Whether it was SIGINT: the exit code says so."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            try:
                _tell("stopped at once: what was in flight is executed again at the next start")
            finally:  # what was interrupted may have been printing, too
                os._exit(128 + number)
        self._asked = True
        self.interrupted = number == signal.SIGINT
        self._node.ask_to_stop()


def _tell(line: str) -> None:
    print(line, flush=True)


def _listen(host: str, port: int, api_key: str) -> socket.socket:
    """The API's socket, bound before anything is opened, so that a taken port leaves no trace."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:  # the latter for a name that no resolver can be asked for
        raise Failure(f"--host {host[:100]}: {error}", exit_code=EXIT_INPUT) from None
    if not ipaddress.ip_address(address[0]).is_loopback and not api_key:
        raise Failure(
            f"{host} can be reached from elsewhere, so every request needs a key: set TOCSIN_API_KEY to a long random "
            "text (and give it to the clients), or listen on 127.0.0.1",
            exit_code=EXIT_INPUT,
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(2_048)
    except OSError as error:
        listening.close()
        raise Failure(
            f"port {port} on {host} cannot be used: {error.strerror or error}. Is a node running already? Choose "
            "another with --port."
        ) from None
    return listening


def _import_functions(name: str) -> None:
    """The module, imported for what its @function decorators register."""
    from tocsin.client.functions import registry

    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: a module of the working directory can be named
    before = len(registry)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Failure(f"--functions {name}: {_what_and_where(error)}", exit_code=EXIT_INPUT) from None
        raise Failure(f"--functions {name}: {error}", exit_code=EXIT_INPUT) from None
    # Whatever a module of theirs raises is theirs to see, without our frames; one that exits must not end us in silence.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise Failure(f"--functions {name}: {_what_and_where(error)}", exit_code=EXIT_INPUT) from None
    if len(registry) == before and not _registers(module.__name__):
        print(
            f"--functions {name}: registers no function; mark them with @function, from tocsin.client",
            file=sys.stderr,
            flush=True,
        )


def _registers(module: str) -> bool:
    """Whether it registered some before: it may have been imported by another module that was named."""
    from tocsin.client.functions import registry

    found = [registry.get(each) for each in registry]
    return any(each is not None and each.call.__module__ == module for each in found)


def _what_and_where(error: BaseException) -> str:
    """`TypeError: message (module.py:9)`: the last line outside the machinery of imports and of Tocsin."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text  # its text ends with the place
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((OURS, "<frozen importlib"))]
    theirs = [f for f in theirs if f.filename != importlib.__file__]
    return f"{text} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else text
