"""Children of `tocsin up`: what they say is repeated, what dies is started again, what hangs is ended."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.cli.roles.process import SUPERVISED
from tocsin.cli.roles.supervisor import AGAIN_S, WELL_S, Child, ChildSpec
from tocsin.clock import FakeClock

LIMIT_S = 60.0
WAITS = "import sys; print('here', flush=True); sys.stdin.read(); print('gone', flush=True)"


class Heard:
    """Lines as they come, from the threads of the children."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()

    def tell(self, line: str) -> None:
        with self._news:
            self.lines.append(line)
            self._news.notify_all()

    def until(self, text: str, times: int = 1) -> None:
        with self._news:
            assert self._news.wait_for(lambda: times <= sum(text in line for line in self.lines), LIMIT_S), (
                f"{text!r} is not in {self.lines}"
            )


@contextmanager
def child(code: str, clock: FakeClock, heard: Heard, stop_s: float = LIMIT_S) -> Iterator[Child]:
    spec = ChildSpec(name="streams", arguments=["-c", code], stop_s=stop_s)
    made = Child(spec, clock, heard.tell, width=9, program=[sys.executable])
    made.start()
    try:
        yield made
    finally:
        made.kill()
        made.stop()


def ended(made: Child) -> int:
    """The exit code, once it has ended."""
    pause = threading.Event()
    for _ in range(round(LIMIT_S / 0.01)):
        code = made.look()
        if code is not None:
            return code
        pause.wait(0.01)
    raise AssertionError("it does not end")


def test_what_a_child_says_is_repeated_with_its_name() -> None:
    heard = Heard()
    with child("import sys; print('out'); print('err', file=sys.stderr)", FakeClock(), heard):
        heard.until("streams   | out")
        heard.until("streams   | err")


def test_a_child_that_dies_is_told_and_started_again_after_a_while() -> None:
    clock, heard = FakeClock(), Heard()
    with child("print('here', flush=True); raise SystemExit(1)", clock, heard) as made:
        assert 1 == ended(made)
        assert "the streams process ended with exit code 1; it is started again in 0.5 s" in heard.lines
        assert made.look() is None
        heard.until("here")
        clock.advance(round(AGAIN_S * 1000))
        assert 1 == ended(made)
        heard.until("here", times=2)
        assert "started again in 1 s" in heard.lines[-1]


def test_a_child_that_was_well_for_long_is_started_again_at_once_when_it_is_killed() -> None:
    clock, heard = FakeClock(), Heard()
    with child("print('here', flush=True); raise SystemExit(1)", clock, heard) as made:
        ended(made)
        ended_again = False
        clock.advance(round(AGAIN_S * 1000))
        made.look()
        clock.advance(round(WELL_S * 1000))
        ended_again = ended(made) == 1
        assert ended_again
        assert "started again in 0.5 s" in heard.lines[-1]


def test_the_signal_that_killed_a_child_is_named() -> None:
    heard = Heard()
    with child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", FakeClock(), heard) as made:
        assert -signal.SIGKILL == ended(made)
        assert "the streams process was killed by SIGKILL" in heard.lines[-1]


def test_a_child_holds_a_pipe_that_ends_with_its_parent() -> None:
    heard = Heard()
    with child(WAITS, FakeClock(), heard) as made:
        heard.until("here")
        assert made._process is not None
        assert made._process.stdin is not None
        made._process.stdin.close()
        assert 0 == ended(made)
        heard.until("gone")


def test_a_child_knows_that_it_is_one() -> None:
    heard = Heard()
    assert SUPERVISED not in os.environ
    with child(f"import os; print('supervised', os.environ['{SUPERVISED}'])", FakeClock(), heard):
        heard.until("supervised 1")


def test_a_child_that_does_not_end_in_its_time_is_killed_and_said() -> None:
    heard = Heard()
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
    with child(stubborn, FakeClock(), heard, stop_s=0.05) as made:
        heard.until("here")
        made.stop()
        assert "the streams process did not end within 0 s: it is killed" in heard.lines
        assert made.look() is None  # and it is not started again
