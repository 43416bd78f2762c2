"""One broker process: its folder, its files, its life."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import BinaryIO, Final

from tocsin.broker.failures import BrokerFailed
from tocsin.broker.java import Java
from tocsin.broker.settings import LOGGING, Address, properties
from tocsin.clock import SystemClock

HEAP_MB: Final = 512
MAIN: Final = "kafka.Kafka"
FORMATTER: Final = "kafka.tools.StorageTool"
FORMATTED_WITHIN_S: Final = 60
SHOWN_LINES: Final = 12
TAIL_BYTES: Final = 64_000
CONSOLE_MAX: Final = 1_000_000
LOOK_EVERY_S: Final = 0.05
PROC: Final = Path("/proc/self").parent


class Node:
    """The process need not be a child of ours: one that was left behind by a killed parent is found by its pid file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._properties = folder / "server.properties"
        self._pid_file = folder / "pid"
        self._formatted = folder / "formatted"
        self._log = folder / "broker.log"
        self._console = folder / "console.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._said_before: dict[Path, int] = {}
        self._clock = SystemClock()

    def prepare(self, *, index: int, addresses: tuple[Address, ...]) -> None:
        """Write what the broker reads when it starts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = properties(index=index, addresses=addresses, data=self.folder / "data")
        self._properties.write_text(text, encoding="ascii")
        (self.folder / "log4j2.properties").write_text(LOGGING, encoding="ascii")

    def formatter(self, java: Java, jars: list[Path], cluster_id: str) -> "subprocess.Popen[str] | None":
        """The process that makes the data directory, or None if that is done."""
        if self._formatted.exists():
            return None
        options = self._options(java, jars)
        command = ["format", "-t", cluster_id, "-c", str(self._properties), "--ignore-formatted"]
        return subprocess.Popen(
            [*options, FORMATTER, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(),
        )

    def end_format(self, process: "subprocess.Popen[str]") -> None:
        try:
            said, _ = process.communicate(timeout=FORMATTED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise BrokerFailed(
                f"the data directory {self.folder} was not made within {FORMATTED_WITHIN_S} s; is the disk very slow?"
            ) from None
        if process.returncode != 0:
            lines = "\n".join(f"  {line}" for line in said.splitlines()[-SHOWN_LINES:])
            raise BrokerFailed(f"Kafka cannot make its data directory {self.folder}:\n{lines}")
        self._formatted.touch()

    def start(self, java: Java, jars: list[Path]) -> None:
        """The process runs afterwards; it answers a few seconds later."""
        # By way of a shell, which writes its own pid before it becomes the broker: however early we are killed, there is
        # no moment at which a broker runs and no file names it.
        self._said_before = {path: _size(path) for path in (self._log, self._console)}
        recorded = ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self._pid_file)]
        with self._open_console() as console:
            self._child = subprocess.Popen(
                [*recorded, *self._options(java, jars), MAIN, str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C in the terminal is for us, and we stop it in order
            )

    def pid(self) -> int | None:
        """The process, if it runs and is really this broker: pids are used again."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid  # also while it is still the shell
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        command = _command_of(pid)
        return pid if MAIN in command and str(self._properties) in command else None

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid()
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it ended meanwhile
            except PermissionError:
                raise BrokerFailed(
                    f"the Kafka broker with pid {pid} in {self.folder} was started by another user: stop it as that one"
                ) from None

    def wait_gone(self, limit_s: float) -> bool:
        """Whether the process ended within the limit."""
        until_s = self._clock.monotonic_s() + limit_s
        while self.pid() is not None:
            if self._clock.monotonic_s() >= until_s:
                return False
            self.pause(LOOK_EVERY_S)
        self._pid_file.unlink(missing_ok=True)
        self._child = None
        return True

    def pause(self, limit_s: float) -> None:
        """Let time pass; ends early when our child ends."""
        if self._child is None:
            threading.Event().wait(limit_s)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(limit_s)

    def last_lines(self) -> str:
        """What the broker said at last, for a message that says why it failed."""
        said = self._said()
        lines = [
            line for line in said if not line.startswith(("\tat ", "WARNING:"))
        ]  # without the stack traces
        shown = "\n".join(f"  {line[:500]}" for line in lines[-SHOWN_LINES:])
        return f"Its last lines, of {self._log}:\n{shown}" if shown else f"It said nothing in {self._log}."

    def has_said(self, text: str) -> bool:
        return any(text in line for line in self._said())

    def _said(self) -> list[str]:
        """The end of its logs, since we started it, if we did."""
        paths = (self._log, self._console)
        return [line for path in paths for line in _tail(path, self._said_before.get(path, 0))]

    def _options(self, java: Java, jars: list[Path]) -> list[str]:
        """Java and its options; the long ones in a file, so that the command fits a line of `ps`."""
        options = [
            "-Xms64m",
            f"-Xmx{HEAP_MB}m",
            # Measured on two cores: half the processor time in the first minutes, and commits in 8 ms instead of 14
            # (p99 25 instead of 87), for what compiles all that runs at once and little of it well.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",  # rather than half a broker
            "-XX:-UsePerfData",  # else it writes to a file of /tmp all the time
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            f"-Dtocsin.log={self._log}",
        ]
        if java.major >= 24:  # what Kafka's libraries do, said beforehand, so that it is not warned of
            options += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
        options += ["-cp", os.pathsep.join(map(str, jars))]
        arguments = self.folder / "java.options"
        quoted = ('"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options)
        arguments.write_text("\n".join(quoted) + "\n", encoding="utf-8")
        return [str(java.path), f"@{arguments}"]

    def _open_console(self) -> BinaryIO:
        too_long = self._console.exists() and self._console.stat().st_size > CONSOLE_MAX
        return self._console.open("wb" if too_long else "ab")


def _environment() -> dict[str, str]:
    """Ours, without what would change Java's options behind our back, and with paths of any letters."""
    dropped = {"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "LC_ALL": "C.UTF-8"}


def _command_of(pid: int) -> str:
    """The command line of a process; empty if there is none, or if it has ended and only its parent does not know."""
    if PROC.is_dir():
        try:
            return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    found = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tail(path: Path, begin: int) -> list[str]:
    """The last lines from this place on; from the beginning, if the file was begun anew since."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin if begin <= size else 0, size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
