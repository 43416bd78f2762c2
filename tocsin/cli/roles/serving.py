"""A role's HTTP side: its socket, bound before anything is opened, and the thread that serves on it."""

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from tocsin.api.ops import AsgiApp, Message, Receive, Send
from tocsin.cli.failures import EXIT_INPUT, Failure

LISTEN_FD: Final = "TOCSIN_LISTEN_FD"
"""Of a child of `tocsin up`: the parent keeps the socket, so that the port outlives the child."""
BACKLOG: Final = 2_048
STOP_S: Final = 5
"""What requests under way may take when the server stops."""


class Front:
    """An ASGI app that stands for another, which may change while it is served: what answers before a role has opened
    its log is not what answers afterwards."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app

    async def __call__(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
    ) -> None:
        await self.app(scope, receive, send)


class Server(uvicorn.Server):
    """Leaves the signals to the role: uvicorn raises them again once it has served, which would end the process before
    what is in flight has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """Serves an app on a socket, on a thread of its own. run() is the thread's body; stop() ends it."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        self._listening = listening
        self._server = Server(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_S
            )
        )
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        self._thread = threading.current_thread()
        asyncio.run(self._server.serve(sockets=[self._listening]))

    def stop(self) -> None:
        """Answer what was asked, then close the socket. Safe twice, and before run()."""
        self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._listening.close()


def bind(
    host: str,
    port: int,
    *,
    host_option: str = "--listen",
    port_option: str = "--listen",
    api_key: str | None = None,
) -> socket.socket:
    """A listening socket. `api_key`: what whoever comes from elsewhere will need; "" refuses any address but loopback.

    The options are how the address was given, for the messages.
    """
    inherited = os.environ.pop(LISTEN_FD, "")
    if inherited.isdigit():
        return socket.socket(fileno=int(inherited))
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:  # the latter for a name that no resolver can be asked for
        raise Failure(f"{host_option} {host[:100]}: {error}", exit_code=EXIT_INPUT) from None
    if api_key == "" and not ipaddress.ip_address(address[0]).is_loopback:
        raise Failure(
            f"{host} can be reached from elsewhere, so every request needs a key: set TOCSIN_API_KEY to a long random "
            "text (and give it to the clients), or listen on 127.0.0.1",
            exit_code=EXIT_INPUT,
        )
    # asyncio leaves Nagle's algorithm on where the protocol is not named, and then an answer in two pieces waits 40 ms for
    # the acknowledgement of the first (measured: 41 ms for each request on a kept connection, 0.5 ms without).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise Failure(
            f"port {port} on {host} cannot be used: {error.strerror or error}. Is a node running already? Choose "
            f"another with {port_option}."
        ) from None
    return listening


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(str(listening.getsockname()[0]).partition("%")[0]).is_loopback


def is_everywhere(listening: socket.socket) -> bool:
    """Whether it listens on every address of this machine: 0.0.0.0 or ::."""
    return ipaddress.ip_address(str(listening.getsockname()[0]).partition("%")[0]).is_unspecified


def url_of(listening: socket.socket, host: str = "") -> str:
    """Where it is reached, by `host` if that is another name for it."""
    address, port = listening.getsockname()[:2]
    name = host or address
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"
