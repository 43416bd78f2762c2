"""A real node: `tocsin up` as a process, on an empty directory, with a real receiver."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

T = TypeVar("T")
WITHIN_S = 60.0
"""A limit for a signal to come, not a measure: a busy machine may need seconds for what takes milliseconds."""


def until(ask: Callable[[], T], what: str, within_s: float = WITHIN_S) -> T:
    """The first answer that is true."""
    pause = threading.Event()
    waited_s = 0.0
    while waited_s < within_s:
        with contextlib.suppress(httpx.TransportError):
            if answer := ask():
                return answer
        pause.wait(0.05)
        waited_s += 0.05
    raise AssertionError(f"not within {within_s:.0f} s: {what}")


class Receiver:
    """`tocsin sink --json` as a process; what it printed, as it comes."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tocsin.cli", "sink", "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.seen: list[dict[str, Any]] = []
        self._port = ""
        self._readers = [
            threading.Thread(target=self._read, args=(lines,), daemon=True)
            for lines in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, lines: Any) -> None:
        with lines:
            self._take(lines)

    def _take(self, lines: Any) -> None:
        for line in lines:
            if line.startswith("{") and "run_id" in line:
                self.seen.append(json.loads(line))
            elif found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self._port = found[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{until(lambda: self._port, 'the receiver said where it listens')}"

    def attempts(self, job: str) -> list[int]:
        return [each["attempt"] for each in self.seen if each["run_id"].startswith(job)]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)


class Node:
    """`tocsin up`; start(), kill(), stop(), as often as wanted, on one directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=60.0)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str, cwd: Path | None = None) -> None:
        self.spawn(*options, cwd=cwd)
        until(self._is_ready, "the node is ready")

    def spawn(self, *options: str, cwd: Path | None = None) -> None:
        """As start(), without waiting until it is ready."""
        self.process = subprocess.Popen(
            self.command(*options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def command(self, *options: str) -> list[str]:
        return [
            sys.executable, "-m", "tocsin.cli", "up", "--data", str(self.data), "--port", str(self.port), *options,
        ]  # fmt: skip

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            assert self.process.stdout is not None
            raise AssertionError(f"the node ended: {self.process.stdout.read()}")
        return self.client.get("/readyz", params={"all": "true"}).status_code == 200

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=WITHIN_S)
            self.process = None

    def define(self, document: dict[str, Any]) -> str:
        """Defines the job, waiting until it is applied, and returns its key."""
        namespace, name = document.get("namespace", "default"), document["id"]
        answer = self.client.put(f"/v1/jobs/{namespace}/{name}", json=document, params={"wait": "applied"})
        assert answer.status_code in (200, 201, 202), answer.text
        return f"{namespace}/{name}"

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self, key: str) -> list[dict[str, Any]]:
        found = self.get(f"/v1/jobs/{key}/runs", limit=100)["items"]
        assert isinstance(found, list)
        return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def slow_receiver() -> Iterator[Receiver]:
    """Prints a request when it comes, and answers it three seconds later."""
    made = Receiver("--delay", "3s")
    yield made
    made.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "data")
    yield made
    made.kill()
    made.client.close()
