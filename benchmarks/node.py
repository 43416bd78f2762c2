"""A node and a receiver as processes of their own, for the benchmarks that measure the whole."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_WITHIN_S = 300.0

SINK = """
import asyncio, sys, time
from datetime import datetime
from aiohttp import web
seen = []
async def take(request):
    now = time.time()
    await request.read()
    due = request.headers.get("Tocsin-Due", "")
    at = datetime.fromisoformat(due).timestamp() if due.endswith("Z") else float(due)
    seen.append((request.headers.get("webhook-id", ""), (now - at) * 1000))
    return web.Response(text="ok")
async def give(request):
    answer = list(seen); seen.clear()
    return web.json_response(answer)
app = web.Application(client_max_size=1 << 26)
app.router.add_post("/ok", take)
app.router.add_get("/seen", give)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None, backlog=4096)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Sink:
    url: str
    process: "subprocess.Popen[bytes]"

    def take(self) -> list[tuple[str, float]]:
        """(run id, lateness in ms at arrival) of everything since the last take."""
        with urllib.request.urlopen(f"{self.url}/seen", timeout=60) as answer:
            return [(run_id, late) for run_id, late in json.load(answer)]


@contextmanager
def sink() -> Iterator[Sink]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SINK, str(port)])
    try:
        found = Sink(f"http://127.0.0.1:{port}", process)
        _until(lambda: found.take() == [], 30.0)
        yield found
    finally:
        process.terminate()
        process.wait()


@dataclass(slots=True)
class Node:
    url: str
    data: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> float:
        """Returns the seconds until the node was ready."""
        started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tocsin.cli", "up", "--data", str(self.data), "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
        )
        _until(self._ready, READY_WITHIN_S)
        return time.monotonic() - started

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the node ended with {self.process.returncode}")
        return self.get("/readyz", json_answer=False) is not None

    def get(self, path: str, *, json_answer: bool = True) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer) if json_answer else answer.read()

    def define(self, documents: Iterable[dict[str, Any]]) -> None:
        """One batch, applied when this returns."""
        body = "\n".join(json.dumps(each) for each in documents).encode()
        request = urllib.request.Request(
            f"{self.url}/v1/jobs:batch?wait=applied",
            data=body,
            method="POST",
            headers={"content-type": "application/x-ndjson"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer.read().splitlines():
                result = json.loads(line)
                if result.get("errors"):
                    raise RuntimeError(f"refused: {result}")

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels."""
        text = self.get("/metrics", json_answer=False).decode()
        return {name: float(value) for name, value in re.findall(r"^(tocsin_\S+) (\S+)$", text, re.MULTILINE)}

    def rss_mib(self) -> float:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None


@contextmanager
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as directory:
        port = free_port()
        made = Node(f"http://127.0.0.1:{port}", Path(directory) / "data", port)
        try:
            yield made
        finally:
            made.stop(signal.SIGKILL)


def _until(ready: Any, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not ready after {limit_s:.0f} s")
        time.sleep(0.1)


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")
