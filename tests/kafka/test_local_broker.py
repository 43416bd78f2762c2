"""`tocsin kafka`, and the brokers that the tests use: started, killed, found again, stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.brokers import ROOT
from tocsin.broker import BrokerFailed, LocalKafka
from tocsin.broker.probe import ask

pytestmark = pytest.mark.kafka

LIMIT_S = 120


def _tocsin(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tocsin.cli", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


class Foreground:
    """`tocsin kafka up` as a user sees it in a terminal."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tocsin.cli", "kafka", "up", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {self.lines}")

    def end(self) -> int:
        assert self.process.stdout is not None
        self.lines += [line.rstrip() for line in self.process.stdout]
        self.process.stdout.close()
        return self.process.wait(LIMIT_S)


def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.partition(":")
    return ask(host, int(port), 5.0) is not None


def test_it_runs_until_ctrl_c_and_keeps_its_address_and_its_data(tmp_path: Path) -> None:
    first = Foreground(cwd=tmp_path)
    bootstrap = first.until("is up at").split(" is up at ")[1].split(",")[0]
    assert f"tocsin up --kafka {bootstrap}` runs Tocsin on it; Ctrl-C here stops it" in first.until("Next: ")
    assert _answers(bootstrap)
    found = json.loads(_tocsin("kafka", "status", "--json", cwd=tmp_path).stdout)
    assert bootstrap == found["bootstrap"]
    assert str(tmp_path / "data" / "kafka") == found["directory"]
    assert [True] == [broker["answers"] for broker in found["brokers"]]
    first.process.send_signal(signal.SIGINT)
    assert 130 == first.end()
    assert "Kafka has stopped; the data stays" == first.lines[-1]
    assert not _answers(bootstrap)
    down = _tocsin("kafka", "status", cwd=tmp_path)
    assert 1 == down.returncode
    assert "down" in down.stdout
    again = _tocsin("kafka", "up", "--detach", cwd=tmp_path)
    assert 0 == again.returncode, again.stderr
    assert f"is up at {bootstrap}," in again.stdout
    assert _answers(bootstrap)
    assert 0 == _tocsin("kafka", "down", "--wipe", cwd=tmp_path).returncode
    assert not (tmp_path / "data" / "kafka").exists()
    nothing = _tocsin("kafka", "down", cwd=tmp_path)
    assert 2 == nothing.returncode
    assert "there is no Kafka in" in nothing.stderr


def test_a_broker_left_behind_by_kill_9_is_found_and_stopped(tmp_path: Path) -> None:
    parent = Foreground(cwd=tmp_path)
    bootstrap = parent.until("is up at").split(" is up at ")[1].split(",")[0]
    parent.process.kill()
    parent.end()
    assert _answers(bootstrap)
    again = _tocsin("kafka", "up", cwd=tmp_path)  # does not hold the terminal: it is not its own
    assert f"Kafka runs already at {bootstrap}" in again.stdout
    moved = _tocsin("kafka", "up", "--port", "1234", cwd=tmp_path)
    assert 1 == moved.returncode
    assert "to move it to port 1234, stop it first" in moved.stderr
    assert "stopped" in _tocsin("kafka", "down", cwd=tmp_path).stdout
    assert not _answers(bootstrap)


def test_a_broker_that_dies_is_said_with_its_last_lines(tmp_path: Path) -> None:
    up = Foreground("--data", "here", cwd=tmp_path)
    up.until("is up at")
    os.kill(int((tmp_path / "here" / "broker-1" / "pid").read_text()), signal.SIGKILL)
    assert 1 == up.end()
    said = "\n".join(up.lines)
    assert f"the Kafka broker in {tmp_path / 'here' / 'broker-1'} ended. Its last lines, of " in said
    assert "QuorumController" in said


def test_a_taken_port_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _tocsin("kafka", "up", "--port", str(port), "--data", "here", cwd=tmp_path)
    assert 1 == done.returncode
    assert f"port {port} on 127.0.0.1 is taken by another process" in done.stderr
    assert not (tmp_path / "here" / "broker-1").exists()


@pytest.mark.slow
def test_a_cluster_keeps_its_number_of_brokers_and_gets_another_free_port_if_its_own_is_taken(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    kafka = LocalKafka(tmp_path / "kafka")
    try:
        kafka.start(told.append)
        before = kafka.bootstrap
        kafka.stop()
        with pytest.raises(BrokerFailed, match="holds a Kafka of 1 broker, and 3 were asked for"):
            LocalKafka(tmp_path / "kafka", brokers=3).start(told.append)
        with socket.create_server(("127.0.0.1", int(before.partition(":")[2]))):
            kafka.start(told.append)
            assert before != kafka.bootstrap
            assert "is taken by another process: the broker gets another address" in told[-1]
            assert _answers(kafka.bootstrap)
            kafka.kill()
            assert not _answers(kafka.bootstrap)
            kafka.restart()
            assert _answers(kafka.bootstrap)
            kafka.pause()
            assert [(True, False)] == [(s.pid is not None, s.answers) for s in kafka.status()]
            kafka.stop()  # also while it is paused
            assert [None] == [s.pid for s in kafka.status()]
    finally:
        kafka.wipe()


@pytest.mark.slow
def test_of_three_brokers_one_may_be_away_and_comes_back(tmp_path: Path) -> None:
    kafka = LocalKafka(tmp_path / "kafka", brokers=3)
    try:
        kafka.start(lambda _: None)
        addresses = kafka.bootstrap.split(",")
        assert 3 == len(set(addresses))
        kafka.kill(1)
        assert [True, False, True] == [status.answers for status in kafka.status()]
        kafka.start(lambda _: None)  # starts what is missing, and leaves the others alone
        assert [True, True, True] == [status.answers for status in kafka.status()]
        assert addresses == kafka.bootstrap.split(",")
        kafka.kill(2)
        kafka.restart(2)
        host, _, port = addresses[2].partition(":")
        answer = ask(host, int(port), 5.0)
        assert answer is not None
        assert frozenset({1, 2, 3}) == answer.brokers
        kafka.stop()
        assert [None, None, None] == [status.pid for status in kafka.status()]
    finally:
        kafka.wipe()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a folder with a name of any kind, and with options for another Java about.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1m")
    monkeypatch.setenv("LC_ALL", "C")
    kafka = LocalKafka(tmp_path / 'a "ü" b\\c' / "kafka")
    try:
        kafka.start(lambda _: None)
        kafka.stop()
        (kafka.directory / "broker-1" / "data" / "meta.properties").write_text(
            "version=1\ncluster.id=x\nnode.id=7\n"
        )
        with pytest.raises(BrokerFailed, match=r"broker-1 ended\. Its last lines(?s:.)*Stored node id 7"):
            kafka.start(lambda _: None)
        assert [None] == [status.pid for status in kafka.status()]
    finally:
        kafka.wipe()


# A run of pytest as the tests of this repository see it: the fixtures of tests/conftest.py, and a test that tells.
RUN = """
import os, threading
from pathlib import Path

def test_one(kafka_bootstrap: str) -> None:
    Path(os.environ["TOCSIN_TEST_TOLD"], "one").write_text(kafka_bootstrap)

def test_two(kafka_bootstrap: str, local_kafka) -> None:
    own = local_kafka()
    Path(os.environ["TOCSIN_TEST_TOLD"], "two").write_text(f"{kafka_bootstrap} {own.bootstrap}")
    print("reached", flush=True)
    if os.environ.get("TOCSIN_TEST_HANG"):
        threading.Event().wait(600)
"""


def _pytest(tmp_path: Path, *arguments: str, **more: str) -> "subprocess.Popen[str]":
    (tmp_path / "test_run.py").write_text(RUN)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider"),
            *("--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "temp"), *arguments),
            str(tmp_path / "test_run.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TOCSIN_TEST_TOLD": str(tmp_path), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _until_away(*addresses: str) -> None:
    """The keepers stop their brokers after the processes that used them have ended, in their own time."""
    pause = threading.Event()
    waited = 0.0
    while any(_answers(address) for address in addresses):
        assert waited < LIMIT_S, f"still there: {addresses}"
        pause.wait(0.1)
        waited += 0.1


@pytest.mark.slow
def test_all_processes_of_a_run_share_one_broker_and_it_ends_with_them(tmp_path: Path) -> None:
    with _pytest(tmp_path, "-n", "2") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert "2 passed" in said, said
    shared, own = (tmp_path / "two").read_text().split()
    assert shared == (tmp_path / "one").read_text()
    assert shared != own
    _until_away(shared, own)


@pytest.mark.slow
def test_kill_9_of_pytest_leaves_no_broker_behind(tmp_path: Path) -> None:
    with _pytest(tmp_path, "-k", "two", TOCSIN_TEST_HANG="1") as run:
        assert run.stdout is not None
        assert any("reached" in line for line in run.stdout)
        addresses = (tmp_path / "two").read_text().split()
        assert all(_answers(address) for address in addresses)
        run.kill()
    _until_away(*addresses)


@pytest.mark.slow
def test_in_ci_a_broker_that_cannot_start_is_a_failure_and_elsewhere_a_skip(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    environment = {"TOCSIN_KAFKA_CACHE": str(tmp_path / "cache"), "CI": "true"}
    with _pytest(tmp_path, **environment) as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert "2 errors" in said or "1 failed, 1 error" in said, said
    assert "no broker: Kafka's jars cannot be kept in" in said
    with _pytest(tmp_path, **{**environment, "CI": ""}) as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert "2 skipped" in said, said
