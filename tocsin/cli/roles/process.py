"""The life of a role as a process: it starts again until the log answers, says what it waits for, drains when it is told
to stop, and ends, with a reason, as soon as a part of it has failed.

The main thread waits for a signal or a failure; a second one opens the role and looks after it; a third serves HTTP.
"""

import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final, Protocol

from tocsin.api.ops import AsgiApp, create_ops_app
from tocsin.cli.failures import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, Failure
from tocsin.cli.roles.narrator import Narrator
from tocsin.cli.roles.serving import Serving
from tocsin.cli.roles.signals import StopSignals
from tocsin.clock import Clock
from tocsin.log.port import LogError, LogUnavailable
from tocsin.streams.configuration import NewerSchemaLevel, NotInitialised

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may keep the interpreter while another waits. The default, 5 ms, is felt as lateness."""
START_AGAIN_S: Final = 1.0
SLOW_S: Final = 3.0
"""A step of the start that takes longer is told: a broker that is not there is found out only after ten seconds."""
STUCK_S: Final = 30.0
"""What an orderly end may take beyond the drain. Whatever hangs then would hang for ever, and the supervisor would wait."""
SUPERVISED: Final = "TOCSIN_SUPERVISED"
"""Set for a child of `tocsin up`: it leaves Ctrl-C to its parent, and stops when its standard input ends."""

Tell = Callable[[str], None]


class NotYet(Exception):
    """The role cannot start at the moment; the message says what it waits for. It is tried again."""


class Degraded(Exception):
    """The role does its own part, and the message says which others do not do theirs."""


class Role(Protocol):
    """What a process runs."""

    name: str
    drain_s: float

    def start(self) -> None:
        """Open everything, and start the threads. Raises NotYet or LogUnavailable: then close() and start() again."""
        ...

    def look(self) -> str:
        """Called every `LOOK_S`: look after what may change, and return why the role is not ready ("": it is).

        Raises Degraded, NotYet, LogUnavailable: those are reasons, too.
        """
        ...

    def stop(self) -> None:
        """Let what is in flight end, leave the groups, close the log. Safe twice, and after a start that failed."""
        ...


LOOK_S: Final = 0.25


class Process:
    """Runs one role. run() returns when it has ended, with the exit code."""

    def __init__(
        self, name: str, clock: Clock, *, tell: Tell, explained: tuple[type[Exception], ...] = ()
    ) -> None:
        """`explained`: errors beside those of the log whose message says what to do; they end it without a traceback."""
        self.stopping = threading.Event()
        self.reason = "it is starting"
        """Why the role is not ready; "": it is."""
        self._failure: Failure | None = None
        self._explained: tuple[type[Exception], ...] = (
            LogError,
            OSError,
            NewerSchemaLevel,
            NotInitialised,
            *explained,
        )
        self._name = name
        self._tell = tell
        self._narrator = Narrator(name, clock)
        self._lines = threading.Lock()
        # A signal handler must not touch a lock that the interrupted thread may hold; a pipe has none.
        self._asked_to_stop, self._ask = os.pipe()
        self._supervised = os.environ.pop(SUPERVISED, "") != ""
        self._signals = StopSignals(clock, self.ask_to_stop, supervised=self._supervised)

    # --- life

    def run(self, role: Role, serving: Serving) -> int:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._signals.install()
        faulthandler.register(
            signal.SIGUSR1
        )  # what every thread is doing, for whoever wonders why it does nothing
        if self._supervised:
            threading.Thread(target=self._watch_parent, name="tocsin-parent", daemon=True).start()
        self.thread("tocsin-http", lambda: self._serve(serving))
        life = self.thread("tocsin-life", lambda: self._live(role))
        os.read(self._asked_to_stop, 1)
        self.reason = self._failure.message if self._failure else "it is stopping"
        self.stopping.set()
        ended = threading.Event()
        threading.Thread(
            target=self._end_if_stuck, args=(ended, role.drain_s + STUCK_S), name="tocsin-stuck", daemon=True
        ).start()
        try:
            self._stop(role, serving, life)
        finally:
            ended.set()
        if self._failure is not None:
            raise self._failure
        return EXIT_INTERRUPTED if self._signals.interrupted else 0

    def _stop(self, role: Role, serving: Serving, life: threading.Thread) -> None:
        life.join()
        try:
            role.stop()
        except Exception as error:  # what is left of the process ends now, whatever it was
            logger.exception("%s could not stop in order", self._name)
            self.fail(f"it could not stop in order: {type(error).__name__}: {error}")
        serving.stop()

    def _serve(self, serving: Serving) -> None:
        serving.run()
        if not self.stopping.is_set():
            self.fail("its HTTP server has ended")

    def _live(self, role: Role) -> None:
        self._start(role)
        while not self.stopping.is_set():
            try:
                reason = role.look()
            except Degraded as degraded:
                self.say(str(degraded), degraded=True)
            except (NotYet, LogUnavailable) as error:
                self.say(str(error))
            else:
                self.say(reason)
            self.stopping.wait(LOOK_S)

    def _start(self, role: Role) -> None:
        while not self.stopping.is_set():
            slow = threading.Timer(SLOW_S, lambda: self.say(self.reason))
            slow.daemon = True
            slow.start()
            try:
                role.start()
            except (NotYet, LogUnavailable) as error:
                slow.cancel()
                self.say(str(error))
                role.stop()
                self.stopping.wait(START_AGAIN_S)
            else:
                slow.cancel()
                # What stands now stays: the collector need not look at it again, and its pauses are felt as lateness.
                gc.collect()
                gc.freeze()
                gc.set_threshold(50_000, 20, 20)
                return

    def begin(self, step: str) -> None:
        """What the start is about, to be told if it takes long."""
        if not self.stopping.is_set():
            self.reason = step

    def say(self, reason: str, *, degraded: bool = False) -> None:
        """Note why the role is not ready (or only degraded), and tell it if it is news."""
        if self.stopping.is_set():
            return
        self.reason = reason
        line = self._narrator.line(reason, degraded=degraded)
        if line:
            self.tell(line)

    def tell(self, line: str) -> None:
        """A line for the person who started the process, as long as there is one. From any thread."""
        with self._lines, contextlib.suppress(OSError):  # a pipe whose reader is gone is no reason to fail
            self._tell(line)

    # --- the end

    def ask_to_stop(self) -> None:
        """From any thread, and from a signal handler."""
        os.write(self._ask, b"x")

    def fail(self, reason: str, exit_code: int = EXIT_ENVIRONMENT) -> None:
        """End the process, for this reason (the first one counts)."""
        if self._failure is None:
            self._failure = Failure(f"Tocsin {self._name} failed: {reason}", exit_code=exit_code)
        self.ask_to_stop()

    def thread(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """A started thread whose failure ends the process."""

        def guarded() -> None:
            try:
                body()
            except Failure as error:
                self.fail(error.message, error.exit_code)
            except self._explained as error:  # these say what to do; where they came from helps nobody
                self.fail(str(error))
            except Exception as error:
                logger.exception("%s failed", name)
                self.fail(f"{name} stopped: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        return thread

    def _end_if_stuck(self, ended: threading.Event, limit_s: float) -> None:
        if not ended.wait(limit_s):
            self.tell(f"Tocsin {self._name} could not stop within {limit_s:.0f} s, and ends now")
            os._exit(1)

    def _watch_parent(self) -> None:
        """The other end of standard input is the parent's: it ends with it, however that ended."""
        with contextlib.suppress(OSError):  # closed
            while os.read(0, 4_096):
                pass
        if not self.stopping.is_set():
            self.tell(f"Tocsin {self._name}: what started this process is gone, so it stops")
        self.ask_to_stop()


def waiting_app(process: Process) -> AsgiApp:
    """What a role answers before it has opened its log, and after it has closed it: why it is not ready."""
    return create_ops_app(lambda: process.reason, dict, bytes, starting=True)
