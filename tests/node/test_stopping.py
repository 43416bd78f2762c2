"""Signals: the first drains, the second ends the process at once."""

import signal
import socket
import subprocess

from tests.node.conftest import WITHIN_S, Node, Receiver, until


def triggered(node: Node, receiver: Receiver) -> str:
    """A run that is in flight."""
    key = node.define(
        {"id": "slow", "target": {"http": {"url": f"{receiver.url}/ok"}}, "retry": {"max_attempts": 1}}
    )
    answer = node.client.post(f"/v1/jobs/{key}/trigger", json={}, headers={"idempotency-key": "one"})
    assert answer.status_code in (200, 201, 202), answer.text
    until(lambda: receiver.attempts(key), "the run is in flight")
    return key


def ended(node: Node) -> tuple[int, str]:
    """The exit code and what was printed."""
    process = node.process
    assert isinstance(process, subprocess.Popen)
    printed, _ = process.communicate(timeout=WITHIN_S)
    node.process = None
    return process.returncode, printed


def test_sigterm_waits_for_the_run_in_flight_and_exits_with_0(node: Node, slow_receiver: Receiver) -> None:
    node.start()
    key = triggered(node, slow_receiver)
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    code, printed = ended(node)
    assert code == 0, printed
    assert "waiting up to 30 s for 1 runs in flight" in printed
    node.start()
    (run,) = node.runs(key)
    assert run["status"] == "succeeded"
    assert slow_receiver.attempts(key) == [1]


def test_ctrl_c_drains_too_and_says_so_in_the_exit_code(node: Node) -> None:
    node.start()
    assert node.process is not None
    node.process.send_signal(signal.SIGINT)
    code, printed = ended(node)
    assert code == 130
    assert "Traceback" not in printed


def test_a_second_signal_ends_the_process_at_once_and_gives_the_directory_free(
    node: Node, slow_receiver: Receiver
) -> None:
    node.start()
    triggered(node, slow_receiver)
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    until(lambda: _refused(node), "the API is gone")
    # Again and again: one that comes within a moment of the first is taken for the same.
    until(lambda: _ends_by_another(node), "another signal ends it")
    code, printed = ended(node)
    assert code == 128 + signal.SIGTERM
    assert "stopped at once" in printed
    node.start()


def _ends_by_another(node: Node) -> bool:
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    return node.process.poll() is not None


def _refused(node: Node) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", node.port)) != 0
