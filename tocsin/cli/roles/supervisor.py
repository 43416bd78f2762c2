"""Roles as child processes of one: started, watched, started again when they die, and stopped in order.

The children stay in the process group of the parent. They leave Ctrl-C to it, and hold the other end of a pipe that ends
with it, so that they stop in order also when the parent was killed.
"""

import http.client
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.cli.failures import EXIT_INPUT, EXIT_INTERRUPTED, Failure
from tocsin.cli.roles.process import SUPERVISED, Tell
from tocsin.cli.roles.signals import StopSignals
from tocsin.clock import Clock

LOOK_S: Final = 0.2
AGAIN_S: Final = 0.5
"""How soon a child that died is started again, the first time; then twice as late each time."""
AGAIN_S_MAX: Final = 15.0
WELL_S: Final = 30.0
"""A child that lived so long was well: when it dies, that is the first time again."""
ASK_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One role, as it is called on the command line."""

    name: str
    """What its lines begin with."""
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()
    """Files that the child inherits."""
    stop_s: float
    """How long its orderly end may take."""


class Child:
    """One child process, of which there is a new one whenever it has died."""

    def __init__(
        self, spec: ChildSpec, clock: Clock, tell: Tell, *, width: int = 0, program: Sequence[str] = ()
    ) -> None:
        """`width` of its name in what it says; `program`: what takes the arguments, this program if not given."""
        self.spec = spec
        self._program = program or _this_program()
        self._clock = clock
        self._tell = tell
        self._margin = f"{spec.name:<{width}} | "
        self._process: subprocess.Popen[str] | None = None
        self._echo: threading.Thread | None = None
        self._started_s = 0.0
        self._again_s = AGAIN_S
        self._start_at_s: float | None = None

    def start(self) -> None:
        environment = {**os.environ, **self.spec.environment, SUPERVISED: "1", "PYTHONUNBUFFERED": "1"}
        self._start_at_s = None
        self._started_s = self._clock.monotonic_s()
        self._process = subprocess.Popen(  # noqa: S603 - this program itself
            [*self._program, *self.spec.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=self.spec.descriptors,
        )
        self._echo = threading.Thread(
            target=self._repeat_lines, args=(self._process,), name=f"tocsin-{self.spec.name}", daemon=True
        )
        self._echo.start()

    def look(self, is_final: Callable[[int], bool] = lambda _: False) -> int | None:
        """Start it (again) if it is time. Its exit code, once, when it has ended by itself; negative: the signal.

        `is_final`: whether that code says that it is not to be started again.
        """
        now_s = self._clock.monotonic_s()
        if self._process is None:
            if self._start_at_s is not None and now_s >= self._start_at_s:
                self.start()
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._ended()
        if is_final(code):
            return code
        if now_s - self._started_s >= WELL_S:
            self._again_s = AGAIN_S
        self._start_at_s = now_s + self._again_s
        what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._tell(f"the {self.spec.name} process {what}; it is started again in {self._again_s:g} s")
        self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
        return code

    def stop(self) -> None:
        """Let it end in order; end it, if that takes too long."""
        self._start_at_s = None
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self.spec.stop_s)
        except subprocess.TimeoutExpired:
            self._tell(
                f"the {self.spec.name} process did not end within {self.spec.stop_s:.0f} s: it is killed"
            )
            self.kill()
        self._ended()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._echo is not None:
            self._echo.join(1.0)  # what it said last; whatever it left behind may hold the pipe open
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _repeat_lines(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._tell(self._margin + line.rstrip("\n"))


class Supervisor:
    """Runs children until a signal comes, or one of them cannot be started at all."""

    def __init__(
        self, specs: Sequence[ChildSpec], clock: Clock, *, tell: Tell, program: Sequence[str] = ()
    ) -> None:
        """The children are started in the order of `specs`, and stopped in the opposite one. `program`: as of Child."""
        width = max(len(spec.name) for spec in specs)
        self._lines = threading.Lock()
        self._print = tell
        self._children = [
            Child(spec, clock, self._tell_whole, width=width, program=program) for spec in specs
        ]
        self._asked, self._ask = os.pipe()
        self._signals = StopSignals(clock, lambda: os.write(self._ask, b"x"), at_once=self.kill)

    def run(
        self, address: tuple[str, int], ready: Sequence[str], look: Callable[[], None] = lambda: None
    ) -> int:
        """`ready` is told once the API at `address` answers that it is ready; `look` is called all the while, to look
        after what is no child. Returns the exit code."""
        self._signals.install()
        for child in self._children:
            child.start()
        was_ready = False
        failed = ""
        while not failed and not self._is_asked():
            look()
            for child in self._children:
                # What never worked and says why will not work by itself, nor will what was asked for in a wrong way.
                is_final = _was_well if was_ready else _never_was_well
                code = child.look(is_final)
                if code is not None and is_final(code):
                    failed = f"the {child.spec.name} process cannot start (see above)"
            if not was_ready and _is_ready(address):
                was_ready = True
                for line in ready:
                    self._tell_whole(line)
        for child in reversed(self._children):
            self._tell_whole(f"stopping the {child.spec.name}")
            child.stop()
        if failed:
            raise Failure(failed)
        return EXIT_INTERRUPTED if self._signals.interrupted else 0

    def kill(self) -> None:
        for child in self._children:
            child.kill()

    def _is_asked(self) -> bool:
        readable, _, _ = select.select([self._asked], [], [], LOOK_S)
        return bool(readable)

    def _tell_whole(self, line: str) -> None:
        with self._lines:
            self._print(line)


def _never_was_well(code: int) -> bool:
    return code > 0


def _was_well(code: int) -> bool:
    return code == EXIT_INPUT


def _this_program() -> list[str]:
    """How this program was called, so that what it calls is the same."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py" or not script.is_file():
        return [sys.executable, "-m", "tocsin.cli"]
    return [sys.executable, str(script)]


def _is_ready(address: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz?all=true")  # the processors, too
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
