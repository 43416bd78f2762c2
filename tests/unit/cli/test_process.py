"""The life of a role: it waits for its log, says so, serves its health all the while, and ends in order or with a reason."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tocsin.cli.all_in_one import AllInOne, NodeConfig
from tocsin.cli.failures import EXIT_INPUT, Failure
from tocsin.cli.roles import process as processes
from tocsin.cli.roles.process import Degraded, NotYet, Process, waiting_app
from tocsin.cli.roles.serving import Front, Serving, bind, url_of
from tocsin.clock import SystemClock
from tocsin.log.port import LogCorrupt, LogUnavailable, TopicMismatch
from tocsin.streams.configuration import NewerSchemaLevel, NotInitialised
from tocsin.streams.origin import ForeignState
from tocsin.streams.restore import RestoreFailed

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _signals_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "START_AGAIN_S", 0.01)
    monkeypatch.setattr(processes, "LOOK_S", 0.01)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@dataclass
class FakeRole:
    """Does what it is told at its start and at each look."""

    starts: list[Exception | None] = field(default_factory=lambda: [None])
    name: str = "worker"
    drain_s: float = LIMIT_S
    looks: Callable[[], str] = str
    done: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.done.append("start")
        error = self.starts.pop(0)
        if error is not None:
            raise error

    def look(self) -> str:
        return self.looks()

    def stop(self) -> None:
        self.done.append("stop")


class Running:
    """A process around a fake role; run() returns its exit code."""

    def __init__(self, role: FakeRole) -> None:
        self.role = role
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = Process("worker", SystemClock(), tell=self._hear, explained=(ZeroDivisionError,))
        listening = bind("127.0.0.1", 0)
        self.url = url_of(listening)
        self._serving = Serving(Front(waiting_app(self.process)), listening)

    def _hear(self, line: str) -> None:
        with self._news:
            self.lines.append(line)
            self._news.notify_all()

    def heard(self, text: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: any(text in line for line in self.lines), LIMIT_S), self.lines

    def run(self, meanwhile: Callable[[], object]) -> int:
        """With something done meanwhile, on another thread; the process is asked to stop after it."""
        errors: list[BaseException] = []

        def guarded() -> None:
            try:
                meanwhile()
            except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
                errors.append(error)
            self.process.ask_to_stop()

        thread = threading.Thread(target=guarded)
        thread.start()
        try:
            return self.process.run(self.role, self._serving)
        finally:
            thread.join(LIMIT_S)
            if errors:
                raise errors[0]


def test_a_role_that_is_ready_says_so_and_stops_in_order() -> None:
    running = Running(FakeRole())
    assert 0 == running.run(lambda: running.heard("Tocsin worker is ready"))
    assert ["start", "stop"] == running.role.done


def test_a_log_that_does_not_answer_is_told_and_tried_again_from_the_beginning() -> None:
    role = FakeRole([LogUnavailable("no broker answers"), NotYet("nobody has made the topics"), None])
    running = Running(role)
    assert 0 == running.run(lambda: running.heard("Tocsin worker is ready"))
    assert "Tocsin worker is not ready: no broker answers" == running.lines[0]
    assert ["start", "stop", "start", "stop", "start", "stop"] == role.done


def test_health_is_served_while_the_log_is_waited_for() -> None:
    role = FakeRole([LogUnavailable("no broker answers")] * 100_000)
    running = Running(role)

    def ask() -> None:
        running.heard("no broker answers")
        assert 200 == httpx.get(f"{running.url}/livez").status_code
        answer = httpx.get(f"{running.url}/readyz")
        assert (503, "no broker answers") == (answer.status_code, answer.json()["reason"])
        assert 503 == httpx.get(f"{running.url}/v1/jobs").status_code

    assert 0 == running.run(ask)


def test_what_waiting_cannot_cure_ends_the_process_with_its_reason() -> None:
    running = Running(FakeRole([TopicMismatch("made with 4 partitions")]))
    with pytest.raises(Failure) as failed:
        running.run(lambda: running.process.stopping.wait(LIMIT_S))
    assert "Tocsin worker failed: made with 4 partitions" == failed.value.message
    assert ["start", "stop"] == running.role.done


def test_a_failure_keeps_its_exit_code() -> None:
    running = Running(FakeRole([Failure("there is no queue x", exit_code=EXIT_INPUT)]))
    with pytest.raises(Failure, match="there is no queue x") as failed:
        running.run(lambda: running.process.stopping.wait(LIMIT_S))
    assert EXIT_INPUT == failed.value.exit_code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("the disk is damaged"), "failed: the disk is damaged"),
        (KeyError("x"), "failed: tocsin-streams stopped: KeyError: 'x'"),
    ],
)
def test_a_thread_that_fails_takes_the_process_with_it(error: Exception, said: str) -> None:
    running = Running(FakeRole())

    def fail() -> None:
        raise error

    def meanwhile() -> None:
        running.heard("ready")
        running.process.thread("tocsin-streams", fail)
        assert running.process.stopping.wait(LIMIT_S)

    with pytest.raises(Failure, match=said):
        running.run(meanwhile)
    assert ["start", "stop"] == running.role.done


@pytest.mark.parametrize(
    "error",
    [
        NotInitialised("it holds no cluster record"),
        NewerSchemaLevel("level 9, this version knows 1"),
        TopicMismatch("made with 4 partitions"),
        ZeroDivisionError("the disk is damaged"),
    ],
)
def test_an_error_that_explains_itself_is_told_without_a_traceback(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(FakeRole([error]))
    with pytest.raises(Failure) as failed:
        running.run(lambda: running.process.stopping.wait(LIMIT_S))
    assert f"Tocsin worker failed: {error}" == failed.value.message
    assert [] == caplog.records


@pytest.mark.parametrize(
    "error",
    [
        RestoreFailed("the log is gone"),
        NotInitialised("it holds no cluster record"),
        ForeignState("it holds the state of another log"),
        LogCorrupt("a segment is damaged"),
    ],
)
def test_the_node_tells_an_error_that_explains_itself_without_a_traceback(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = AllInOne(NodeConfig(data=tmp_path), tell=lambda _: None)

    def fail() -> None:
        raise error

    node._thread("tocsin-streams", fail).join(LIMIT_S)
    assert f"tocsin-streams stopped: {error}" == node._failure
    assert [] == caplog.records


def test_a_look_that_the_log_does_not_answer_is_an_outage_and_no_end() -> None:
    answers = iter(["", *["away"] * 3])

    def look() -> str:
        answer = next(answers, "")
        if answer:
            raise LogUnavailable("the broker is away")
        return answer

    running = Running(FakeRole(looks=look))
    seen = threading.Event()

    def meanwhile() -> None:
        running.heard("ready")
        while next(answers, None) is not None:
            seen.wait(0.01)

    assert 0 == running.run(meanwhile)


def test_a_role_whose_others_fail_it_is_degraded() -> None:
    def look() -> str:
        raise Degraded("partition 3 has no owner")

    running = Running(FakeRole(looks=look))
    assert 0 == running.run(lambda: running.heard("Tocsin worker is degraded: partition 3 has no owner"))


def test_a_role_that_cannot_stop_is_ended_and_one_that_has_stopped_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(processes, "STUCK_S", 0.05)
    monkeypatch.setattr(os, "_exit", exits.append)

    class StuckRole(FakeRole):
        def stop(self) -> None:
            running.heard("could not stop within 0 s, and ends now")

    running = Running(StuckRole(drain_s=0.0))
    assert 0 == running.run(lambda: running.heard("ready"))
    assert [1] == exits

    monkeypatch.setattr(processes, "STUCK_S", LIMIT_S)
    running = Running(FakeRole())
    assert 0 == running.run(lambda: running.heard("ready"))
    for thread in threading.enumerate():
        if thread.name == "tocsin-stuck":
            thread.join(LIMIT_S)  # nobody is ended later who has stopped
            assert not thread.is_alive()


def test_sigterm_stops_in_order_and_ctrl_c_says_so_in_the_exit_code() -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        running = Running(FakeRole())

        def send(number: signal.Signals = number, running: Running = running) -> None:
            running.heard("ready")
            os.kill(os.getpid(), number)
            assert running.process.stopping.wait(LIMIT_S)

        assert code == running.run(send)
        assert ["start", "stop"] == running.role.done


def test_a_role_whose_lines_nobody_reads_any_more_goes_on() -> None:
    running = Running(FakeRole())

    def broken(_: str) -> None:
        raise BrokenPipeError

    running.process._tell = broken
    assert 0 == running.run(lambda: running.process.tell("somebody there?"))


def test_a_start_that_takes_long_says_what_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SLOW_S", 0.01)
    told = threading.Event()

    class SlowRole(FakeRole):
        def start(self) -> None:
            running.process.begin("it waits for an answer of Kafka at 127.0.0.1:9")
            assert told.wait(LIMIT_S)

    running = Running(SlowRole())

    def meanwhile() -> None:
        running.heard("Tocsin worker is not ready: it waits for an answer of Kafka at 127.0.0.1:9")
        told.set()
        running.heard("Tocsin worker is ready")

    assert 0 == running.run(meanwhile)
