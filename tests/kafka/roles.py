"""A role of Tocsin as a process: started, killed, frozen, stopped as often as wanted, its output kept."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.kafka.happenings import Happenings, Kind
from tests.kafka.waiting import until
from tocsin.cli.roles.process import SUPERVISED

ROOT: Final = Path(__file__).parents[2]
TOCSIN: Final = ("tocsin.cli",)
EXITS_WITHIN_S: Final = 120.0
SHOWN_LINES: Final = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(kw_only=True)
class Role:
    """One process. `module`: what `python -m` runs, with its arguments before the command line of tocsin."""

    kind: Kind
    name: str
    command: tuple[str, ...]
    output: Path
    happenings: Happenings
    module: tuple[str, ...] = TOCSIN
    process: "subprocess.Popen[bytes] | None" = None
    frozen: bool = False
    stopping: bool = False
    _life_at: int = 0
    _client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30.0))

    # --- life and death

    def start(self, *, module: Sequence[str] = ()) -> "Role":
        """It runs; whether it is ready, until(ready) tells."""
        assert not self.alive, f"{self.name} runs already"
        if self.process is not None:
            self._gone()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self._life_at = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", *(module or self.module), *self.command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE,  # it ends with us, however we end
                env={**os.environ, "PYTHONPATH": str(ROOT), SUPERVISED: "1"},
            )
        self.frozen = self.stopping = False
        self.happenings.note(self.kind, self.name, "start")
        return self

    def kill(self) -> None:
        """kill -9, also of one that is frozen."""
        if self.process is not None and self.process.poll() is None:
            self.happenings.note(self.kind, self.name, "kill")
            self.process.kill()
        if self.process is not None:
            self._gone()
        self.frozen = self.stopping = False

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        assert self.process is not None
        if self.process.poll() is None:
            self.happenings.note(self.kind, self.name, "stop")
            self.process.terminate()
            self.stopping = True

    def stop(self) -> int:
        """SIGTERM; returns how it ended."""
        assert self.process is not None
        if not self.stopping:
            self.ask_to_stop()
        code = self._gone()
        self.stopping = False
        self.happenings.note(self.kind, self.name, "exit")
        return code

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True
        self.happenings.note(self.kind, self.name, "freeze")

    def thaw(self) -> None:
        assert self.process is not None
        self.happenings.note(self.kind, self.name, "thaw")
        self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def wait(self) -> int:
        """How it ended by itself."""
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        code = self.process.wait(EXITS_WITHIN_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code

    @property
    def ended_by_itself(self) -> bool:
        """Nobody killed or stopped it, and it is gone."""
        last = [each.deed for each in self.happenings.all if each.name == self.name][-1:]
        return self.process is not None and self.process.poll() is not None and last in (["start"], ["thaw"])

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # --- what it says

    @property
    def said(self) -> str:
        """The output of this life."""
        if not self.output.exists():
            return ""
        with self.output.open("rb") as output:
            output.seek(self._life_at)
            return output.read().decode(errors="replace")

    @property
    def url(self) -> str:
        """Where it listens: its own line says so."""
        found = re.search(r"listens at (http://[0-9.:]+)", self.said)
        return found[1] if found else ""

    @property
    def ready(self) -> bool:
        """Raises AssertionError if it has ended."""
        return self.ready_reason() == ""

    def ready_reason(self) -> str:
        """What /readyz says is missing; "" when it is ready."""
        if not self.alive:
            code = None if self.process is None else self.process.returncode
            raise AssertionError(f"{self.name} ended with {code}:\n{self.said[-4_000:]}")
        if not self.url:
            return "it does not say where it listens"
        # An API is ready as long as it can write; a scenario begins when it can ask about everything, too.
        answer = self._client.get(f"{self.url}/readyz", params={"all": "true"})
        if answer.status_code == 200:
            return ""
        return str(answer.json().get("reason") or answer.text)

    def status(self) -> dict[str, Any]:
        """The body of /readyz, ready or not."""
        found: dict[str, Any] = self._client.get(f"{self.url}/readyz").json()
        return found

    def until_ready(self) -> "Role":
        until(lambda: self.ready, f"{self.name} is ready")
        return self

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        text = self._client.get(f"{self.url}/metrics").text
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(each) for each in found)

    def cpu_s(self) -> float:
        assert self.process is not None
        return cpu_s(self.process.pid)

    def close(self) -> None:
        if self.frozen and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.kill()
        self._client.close()

    def tail(self, lines: int = SHOWN_LINES) -> str:
        """The end of all that it said, in all its lives, for whoever has to find out what went wrong."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return f"--- {self.name} ---\n" + "\n".join(text.splitlines()[-lines:])


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
