"""Children of `tocsin up`: what they say is repeated, what dies is started again, what hangs is ended."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tocsin.cli.failures import Failure
from tocsin.cli.roles.process import SUPERVISED
from tocsin.cli.roles.supervisor import AGAIN_S, WELL_S, Child, ChildSpec, Supervisor
from tocsin.clock import FakeClock, SystemClock

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


# --- all of them --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def supervised(heard: Heard, codes: dict[str, str]) -> Supervisor:
    specs = [ChildSpec(name=name, arguments=["-c", code], stop_s=LIMIT_S) for name, code in codes.items()]
    return Supervisor(specs, SystemClock(), tell=heard.tell, program=[sys.executable])


def nobody() -> tuple[str, int]:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return ("127.0.0.1", probe.getsockname()[1])


@pytest.mark.usefixtures("_signals_as_before")
@pytest.mark.parametrize("code", [1, 2])
def test_a_child_that_says_at_the_start_that_it_cannot_ends_them_all(code: int) -> None:
    heard = Heard()
    children = {"streams": WAITS, "api": f"raise SystemExit({code})"}
    with pytest.raises(Failure, match="the api process cannot start"):
        supervised(heard, children).run(nobody(), ())
    assert ["stopping the api", "stopping the streams"] == _stops(heard.lines)
    assert not any("started again" in line for line in heard.lines)  # it is one or the other


@pytest.mark.usefixtures("_signals_as_before")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_the_children_in_the_opposite_order_of_their_start(
    number: signal.Signals, code: int
) -> None:
    heard = Heard()
    supervisor = supervised(heard, dict.fromkeys(("streams", "worker", "api"), WAITS))

    def send() -> None:
        heard.until("here", times=3)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    assert code == supervisor.run(nobody(), ())
    thread.join(LIMIT_S)
    assert ["stopping the api", "stopping the worker", "stopping the streams"] == _stops(heard.lines)


def _stops(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.startswith("stopping")]
