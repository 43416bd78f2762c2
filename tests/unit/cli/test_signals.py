"""The first signal asks, the second ends; and one that comes twice at once is one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tocsin.cli.roles.signals import ECHO_S, StopSignals
from tocsin.clock import FakeClock

LIMIT_S = 60


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_comes_to_the_process_and_to_its_group_asks_once() -> None:
    clock, asked = FakeClock(), []
    signals = StopSignals(clock, lambda: asked.append("stop"))
    signals.install()
    os.kill(os.getpid(), signal.SIGTERM)
    clock.advance(round(ECHO_S * 1000) - 1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (["stop"], False) == (asked, signals.interrupted)


def test_ctrl_c_is_remembered() -> None:
    signals = StopSignals(FakeClock(), lambda: None)
    signals.install()
    os.kill(os.getpid(), signal.SIGINT)
    assert signals.interrupted


def test_a_child_leaves_ctrl_c_to_its_parent_and_is_patient() -> None:
    clock, asked = FakeClock(), []
    StopSignals(clock, lambda: asked.append("stop"), supervised=True).install()
    os.kill(os.getpid(), signal.SIGINT)
    assert [] == asked
    os.kill(os.getpid(), signal.SIGTERM)
    clock.advance(60_000)
    os.kill(os.getpid(), signal.SIGTERM)
    assert ["stop"] == asked


SECOND = f"""
import os, signal
from tocsin.cli.roles.signals import StopSignals
from tocsin.clock import FakeClock
clock = FakeClock()
StopSignals(clock, lambda: print("asked", flush=True), at_once=lambda: os.write(1, b"the last\\n")).install()
os.kill(os.getpid(), signal.SIGTERM)
clock.advance({round(ECHO_S * 1000)})
os.kill(os.getpid(), signal.SIGTERM)
print("still here")
"""


def test_the_second_one_ends_the_process_there_and_then() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SECOND], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert 128 + signal.SIGTERM == done.returncode
    assert ["asked", "the last"] == done.stdout.splitlines()[:2]
    assert "stopped at once" in done.stdout
    assert "still here" not in done.stdout
