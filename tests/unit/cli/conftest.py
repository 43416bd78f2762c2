import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import uvicorn

from tests.unit.api.fakes import FakeNode, fake_node
from tocsin.cli.app import run

LIMIT_S = 60
RUN = "default/a@20260101T000000.000Z"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return {**kept, "COLUMNS": "80", "USER": "anna", **more}


def spawned(*arguments: str, stdin: str = "", **more: str) -> Done:
    """Run the command line as a user does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", *arguments],
        input=stdin.encode(),
        capture_output=True,
        env=environment(more),
        timeout=LIMIT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def tocsin(*arguments: str, stdin: str = "", **more: str) -> Done:
    """The same without the process, which costs half a second each."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with (
        mock.patch.dict(os.environ, environment(more), clear=True),
        mock.patch.multiple(sys, argv=["tocsin", *arguments], stdin=given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        run()
    code = ended.value.code
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@dataclass(frozen=True)
class Served:
    """A node over the fakes that really listens, and the command line told where."""

    node: FakeNode
    url: str

    def run(self, *arguments: str, stdin: str = "", **more: str) -> Done:
        return tocsin(*arguments, stdin=stdin, TOCSIN_URL=self.url, **more)

    def spawned(self, *arguments: str, stdin: str = "") -> Done:
        return spawned(*arguments, stdin=stdin, TOCSIN_URL=self.url)


def serve(node: FakeNode) -> Iterator[Served]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(node.app, log_level="warning", lifespan="off")
        server = _Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        assert server.listening.wait(LIMIT_S)
        try:
            yield Served(node=node, url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(LIMIT_S)


@pytest.fixture
def served() -> Iterator[Served]:
    with fake_node() as node:
        yield from serve(node)


@pytest.fixture
def guarded() -> Iterator[Served]:
    """As served, with an API key: s3cret."""
    with fake_node(api_key="s3cret") as node:
        yield from serve(node)


@contextmanager
def started(*arguments: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(more),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def sink(*arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    with started("sink", "--port", "0", *arguments) as process:
        stream = process.stderr if "--json" in arguments else process.stdout
        assert stream is not None
        yield stream.readline().split()[2], process


@pytest.fixture
def receiver() -> Iterator[str]:
    with sink() as (url, _):
        yield url
