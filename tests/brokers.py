"""A Kafka for the tests that need one: a single broker for the whole run, and brokers of their own for tests that kill them.

The one broker is kept by a process of its own, the keeper, so that no test process has to outlive another. Every process
that uses it holds a shared lock on a file; the keeper waits for the exclusive one. The system gives that to it when the
last user has ended, in whatever way: also after kill -9 of pytest the broker is stopped and its directory deleted.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, NoReturn

import pytest

from tocsin.broker import BrokerFailed, LocalKafka
from tocsin.clock import new_id

GIVEN: Final = "TOCSIN_TEST_KAFKA"
READY: Final = "ready "
FAILED: Final = "failed "
ROOT: Final = Path(__file__).parent.parent


class SharedKafka:
    """One broker for all processes that name the same folder, for as long as any of them holds it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._held: IO[str] | None = None

    def hold(self) -> str:
        """The bootstrap address of a broker that runs until release(), or until this process ends."""
        with (self._folder / "door").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)  # one of us at a time looks, and starts it if need be
            # A keeper that is about to stop holds it for a moment, and takes the address away in that moment.
            self._held = (self._folder / "users").open("a")
            fcntl.flock(self._held, fcntl.LOCK_SH)
            address = self._folder / "address"
            if not address.exists():
                _spawn("keep", self._folder)
            return address.read_text(encoding="ascii")

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class OwnKafkas:
    """Brokers that one test may kill. They end with the test, and also if the test process does not get that far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = ExitStack()

    def start(self, brokers: int = 1) -> LocalKafka:
        directory = self._folder / f"kafka-{new_id()[:8]}"
        directory.mkdir(parents=True)
        held = self._ends.enter_context((directory.with_suffix(".users")).open("a"))
        fcntl.flock(held, fcntl.LOCK_SH)
        _spawn("guard", directory)
        kafka = LocalKafka(directory, brokers=brokers)
        self._ends.callback(kafka.wipe)
        kafka.start(_tell)
        return kafka

    def close(self) -> None:
        self._ends.close()


def failed(error: BrokerFailed) -> NoReturn:
    """In CI a broker that does not start is a failure. Elsewhere the tests that need none may go on without it."""
    if os.environ.get("CI"):
        pytest.fail(f"no broker: {error}", pytrace=False)
    pytest.skip(f"no broker: {error}")


def _spawn(what: str, folder: Path) -> None:
    """Start this module as a process that outlives us; it is ready afterwards. Raises BrokerFailed."""
    process = subprocess.Popen(
        [sys.executable, __file__, what, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        for line in said:
            if line.startswith(READY):
                process.returncode = (
                    0  # it outlives us, and nobody waits for it: no warning that it still runs
                )
                return
            if line.startswith(FAILED):
                break
            _tell(line.rstrip())
        else:
            line = FAILED + f"`{' '.join(process.args)}` ended without a word"  # type: ignore[arg-type]
    process.wait()
    raise BrokerFailed(line.removeprefix(FAILED).strip().replace("\\n", "\n"))


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# --- as a process of its own ------------------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(line.replace("\n", "\\n") + "\n")
    sys.stdout.flush()


def _keep(folder: Path) -> None:
    kafka = LocalKafka(folder / f"kafka-{new_id()[:8]}")
    address = folder / "address"
    try:
        kafka.start(_say)
    except BrokerFailed as error:
        kafka.wipe()
        _say(f"{FAILED}{error}")
        return
    address.write_text(kafka.bootstrap, encoding="ascii")
    _say(READY)
    with (folder / "users").open("a") as users:
        _wait_alone(users)
        address.unlink()
    kafka.wipe()


def _guard(directory: Path) -> None:
    users = directory.with_suffix(".users").open("a")
    _say(READY)
    _wait_alone(users)
    if directory.exists() and (kafka := LocalKafka.found(directory)) is not None:
        kafka.wipe()


def _wait_alone(users: IO[str]) -> None:
    """Until nobody else holds the file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # who read them may be gone, or waits for their end
        os.dup2(nowhere, stream)
    fcntl.flock(users, fcntl.LOCK_EX)


PARTS: Final[dict[str, Callable[[Path], None]]] = {"keep": _keep, "guard": _guard}

if __name__ == "__main__":
    PARTS[sys.argv[1]](Path(sys.argv[2]))
