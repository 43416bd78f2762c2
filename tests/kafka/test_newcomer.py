"""`tocsin up --kafka`: what the README promises a newcomer, with a broker of its own; and children that die."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.brokers import failed
from tests.kafka.waiting import until
from tests.node.conftest import WITHIN_S, Node, Receiver
from tests.node.test_newcomer import the_example_does_what_the_readme_says, tocsin
from tocsin.broker import BrokerFailed, LocalKafka
from tocsin.broker.jars import fetch_jars
from tocsin.clock import new_id

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PROC = Path("/proc/self").parent


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "data")
    yield made
    made.kill()
    made.client.close()
    until(lambda: not processes_of(made.data), "everything that it started has ended")


def processes_of(data: Path) -> list[int]:
    """Every process whose command names the directory, the node itself included."""
    return [pid for pid in _pids() if str(data) in _command(pid)]


def children(node: Node) -> dict[str, int]:
    """The roles of a node that runs, with their processes."""
    assert node.process is not None
    parent = str(node.process.pid)
    found = {}
    for pid in _pids():
        try:
            status = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        words = _command(pid).split("\0")
        if status[1] == parent and status[0] != "Z" and "tocsin.cli" in words:
            found[words[words.index("tocsin.cli") + 1]] = pid
    return found


def _pids() -> list[int]:
    return [int(each.name) for each in PROC.iterdir() if each.name.isdigit()]


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_text()
    except OSError:
        return ""


def stopped(node: Node) -> tuple[int, str]:
    """SIGTERM: the exit code and all that was printed."""
    process = node.process
    assert process is not None
    process.terminate()
    printed, _ = process.communicate(timeout=2 * WITHIN_S)
    node.process = None
    return process.returncode, printed


@pytest.fixture
def _jars() -> None:
    try:
        fetch_jars(lambda _: None)
    except BrokerFailed as error:
        failed(error)


@pytest.mark.usefixtures("_jars")
def test_up_with_a_broker_of_its_own_does_what_the_readme_says_and_leaves_nothing_behind(
    node: Node, receiver: Receiver, tmp_path: Path
) -> None:
    node.start("--kafka", "local")
    the_example_does_what_the_readme_says(node, receiver, tmp_path)
    code, printed = stopped(node)
    assert 0 == code, printed
    assert "Traceback" not in printed
    lines = printed.splitlines()
    assert any(line.startswith(f"Tocsin is up at {node.url} (reference: {node.url}/docs)") for line in lines)
    assert any(line.startswith("Next: `tocsin sink` in a second terminal") for line in lines)
    order = [line for line in lines if line.startswith("stopping")]
    assert [f"stopping the {each}" for each in ("api", "worker", "streams")] == order[:3]
    assert "stopping the broker" == order[-1]
    assert [] == processes_of(node.data)

    node.start("--kafka", "local")
    assert "tick" in {each["id"] for each in tocsin(node, "jobs", "list")["items"]}
    seen = len(receiver.seen)
    until(lambda: len(receiver.seen) > seen, "it goes on where it was")
    roles = children(node)
    assert {"streams", "worker", "api"} <= roles.keys()
    node.kill()
    until(
        lambda: not processes_of(node.data), "nothing outlives a parent that was killed, the broker neither"
    )
    assert [] == [pid for pid in roles.values() if "tocsin.cli" in _command(pid)]


@pytest.mark.usefixtures("_jars")
def test_a_node_on_its_own_log_and_one_on_a_local_kafka_live_in_one_folder_by_turns(
    node: Node, receiver: Receiver
) -> None:
    """What the README says in one sitting: `make up`, Ctrl-C, `tocsin up --kafka local`; and back."""
    target = {"http": {"url": f"{receiver.url}/ok"}}
    node.start()
    on_its_own = node.define({"id": "on-its-own", "schedule": {"every": "1s"}, "target": target})
    until(lambda: receiver.attempts(on_its_own), "it runs on the embedded log")
    for options, theirs, other in (
        (("--kafka", "local"), "on-kafka", "on-its-own"),
        ((), "on-its-own", "on-kafka"),
        (("--kafka", "local"), "on-kafka", "on-its-own"),
    ):
        code, printed = stopped(node)
        assert 0 == code, printed
        assert "Traceback" not in printed
        node.start(*options)
        key = node.define({"id": theirs, "schedule": {"every": "1s"}, "target": target})
        assert [theirs] == [each["id"] for each in tocsin(node, "jobs", "list")["items"]], other
        seen = len(receiver.attempts(key))
        until(partial(_has_more_than, receiver, key, seen), f"{theirs} goes on")


@pytest.mark.usefixtures("_jars")
def test_the_state_of_another_kafka_is_refused_in_words_and_nothing_of_it_is_lost(
    node: Node, kafka_bootstrap: str
) -> None:
    prefix = f"t.{new_id()[:10]}."
    node.start("--kafka", kafka_bootstrap, "--prefix", prefix)
    node.define({"id": "a", "schedule": {"every": "1h"}, "target": {"http": {"url": "http://127.0.0.1:9/"}}})
    code, printed = stopped(node)
    assert 0 == code, printed
    node.spawn("--kafka", kafka_bootstrap, "--prefix", f"{prefix}other.")
    assert node.process is not None
    printed, _ = node.process.communicate(timeout=2 * WITHIN_S)
    assert 1 == node.process.returncode
    node.process = None
    theirs = f"Kafka at {kafka_bootstrap} with the prefix {prefix}"
    assert f"{node.data / 'kafka-state'} holds the state of another log ({theirs}), and this is" in printed
    assert "Traceback" not in printed
    assert "started again" not in printed
    node.start("--kafka", kafka_bootstrap, "--prefix", prefix)
    assert ["a"] == [each["id"] for each in tocsin(node, "jobs", "list")["items"]]


def _has_more_than(receiver: Receiver, key: str, seen: int) -> bool:
    return len(receiver.attempts(key)) > seen


def test_a_role_that_dies_is_started_again_and_a_queue_that_comes_later_is_served(
    node: Node, receiver: Receiver, kafka_bootstrap: str
) -> None:
    node.start("--kafka", kafka_bootstrap, "--prefix", f"t.{new_id()[:10]}.")
    target = {"http": {"url": f"{receiver.url}/ok"}}
    key = node.define({"id": "tick", "schedule": {"every": "1s"}, "target": target})
    tocsin(node, "queues", "create", "later", "--kind", "http")
    late = node.define({"id": "late", "queue": "later", "schedule": {"every": "1s"}, "target": target})
    until(lambda: receiver.attempts(key) and receiver.attempts(late), "both queues are served")
    for role in ("worker", "api", "streams"):
        before = children(node)
        os.kill(before[role], signal.SIGKILL)
        until(partial(_is_another, node, role, before[role]), f"the {role} is started again")
        until(_is_whole(node), f"after the death of the {role} all is ready again")
        seen = len(receiver.attempts(key))
        until(lambda seen=seen: len(receiver.attempts(key)) > seen, "it runs again")  # type: ignore[misc]
    code, printed = stopped(node)
    assert 0 == code, printed
    for role in ("worker", "api", "streams"):
        assert f"the {role} process was killed by SIGKILL; it is started again in 0.5 s" in printed


def _is_another(node: Node, role: str, before: int) -> bool:
    return children(node).get(role, before) != before


def _is_whole(node: Node) -> Callable[[], bool]:
    return lambda: node.client.get("/readyz", params={"all": "true"}).status_code == 200


def test_a_broker_that_is_away_at_the_start_is_said_within_seconds_and_waited_for(
    tmp_path: Path, local_kafka: Callable[..., LocalKafka]
) -> None:
    kafka = local_kafka()
    bootstrap = kafka.bootstrap
    kafka.stop()
    node = Node(tmp_path / "data")
    try:
        node.spawn("--kafka", bootstrap)
        assert node.process is not None
        assert node.process.stdout is not None
        said = []
        for line in node.process.stdout:
            said.append(line)
            if "is not ready" in line:
                break
        assert f"it waits for an answer of Kafka at {bootstrap}" in said[-1] or "cannot reach" in said[-1]
        kafka.restart()
        until(_is_whole(node), "it goes on by itself when the broker is there")
        code, printed = stopped(node)
        assert 0 == code, printed
    finally:
        node.kill()
        node.client.close()
