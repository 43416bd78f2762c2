"""What the roles refuse before they open anything: all of it at once, each in a sentence that names the option."""

import socket
from pathlib import Path

import pytest

from tests.unit.cli.conftest import tocsin

NOWHERE = ("--kafka", "127.0.0.1:9")


@pytest.mark.parametrize("role", ["streams", "worker", "api"])
def test_a_role_without_a_kafka_says_how_to_start_one(role: str) -> None:
    done = tocsin(role)
    assert (2, "") == (done.code, done.out)
    assert "--kafka (or TOCSIN_KAFKA) is missing" in done.err
    assert "tocsin kafka up" in done.err


@pytest.mark.parametrize("role", ["streams", "worker", "api"])
def test_a_role_that_is_to_start_a_kafka_says_who_does(role: str) -> None:
    done = tocsin(role, "--kafka", "local")
    assert (2, "") == (done.code, done.out)
    assert (
        "--kafka: 'local' is not host:port (only `tocsin up` starts one; `tocsin kafka up` says its address)\n"
        == done.err
    )


def test_every_wrong_option_of_streams_is_named_at_once(tmp_path: Path) -> None:
    done = tocsin(
        "streams",
        *("--kafka", "broker", "--data", str(tmp_path / "data"), "--listen", "here", "--advertise", "there"),
        *("--partitions", "0", "--queue-partitions", "5000", "--clock", "sundial", "--prefix", "a b"),
        *("--log-level", "loud"),
    )
    assert (2, "") == (done.code, done.out)
    expected = [
        "--kafka: 'broker' is not host:port",
        "--prefix is 1 to 64 letters, digits, dots, underscores and hyphens, such as `tocsin.`, not 'a b'",
        "--listen is HOST:PORT, such as 127.0.0.1:8788 or [::1]:8788, not 'here'",
        "--advertise is a URL such as http://streams-1:8788, with a port, not 'there'",
        "--clock is guarded or wall, not 'sundial'",
        "--partitions is 1 to 1024, not 0",
        "--queue-partitions is 1 to 1024, not 5000",
        "--log-level is debug, info, warning or error, not 'loud'",
    ]
    assert expected == done.err.splitlines()
    assert not (tmp_path / "data").exists()


def test_every_wrong_option_of_a_worker_is_named_at_once() -> None:
    done = tocsin(
        "worker",
        *NOWHERE,
        *("--queue", "a b", "--queue", "x", "--queue", "x", "--concurrency", "0", "--drain", "-1"),
        *("--allow-network", "10.0.0.0/99", "--listen", "127.0.0.1:70000"),
    )
    assert (2, "") == (done.code, done.out)
    for said in (
        "--listen is HOST:PORT",
        "--allow-network is an address or a range such as 10.1.0.0/16, not '10.0.0.0/99'",
        "--queue: 'a b' must match",
        "--queue: 'x' is there twice",
        "--concurrency must be between 1 and 10000, not 0",
        "--drain must be between 0 and 3600, not -1",
    ):
        assert said in done.err


def test_a_worker_serves_named_queues_or_every_one_of_a_kind() -> None:
    done = tocsin("worker", *NOWHERE, "--queue", "a", "--every-queue", "http", "--every-queue", "ftp")
    assert 2 == done.code
    assert [
        "--every-queue is http or function, not 'ftp'",
        "--queue and --every-queue exclude each other",
    ] == (done.err.splitlines())
    done = tocsin("worker", *NOWHERE, "--every-queue", "function")
    assert "--every-queue function needs --functions: the modules that hold them\n" == done.err


def test_the_properties_file_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("security.protocol = SSL\nnonsense\nacks = 1\n")
    done = tocsin("api", *NOWHERE, "--kafka-config", str(file))
    assert 2 == done.code
    assert f"--kafka-config: {file}, line 2: expected `name = value`, found 'nonsense'" in done.err
    file.write_text("acks = 1\n")
    done = tocsin("api", *NOWHERE, TOCSIN_KAFKA_CONFIG=str(file))
    assert 2 == done.code
    assert f"--kafka-config: {file}, line 1: acks: is set by Tocsin" in done.err
    done = tocsin("api", *NOWHERE, "--kafka-config", str(tmp_path / "none"))
    assert (2, f"--kafka-config: {tmp_path / 'none'}: cannot be read: No such file or directory\n") == (
        done.code,
        done.err,
    )


def test_the_kafka_may_be_named_by_the_environment() -> None:
    done = tocsin("api", "--port", "0", "--host", "192.0.2.1", TOCSIN_KAFKA="127.0.0.1:9")
    assert 2 == done.code
    assert (
        "192.0.2.1 can be reached from elsewhere, so every request needs a key: set TOCSIN_API_KEY"
        in done.err
    )


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(("worker", "--listen", "127.0.0.1:{}"), "--listen"), (("api", "--port", "{}"), "--port")],
)
def test_a_port_in_use_is_named_with_the_option_to_change(arguments: tuple[str, ...], option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tocsin(*(word.format(port) for word in arguments), *NOWHERE)
    assert 1 == done.code
    assert f"port {port} on 127.0.0.1 cannot be used" in done.err
    assert f"Choose another with {option}." in done.err


def test_a_state_directory_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    done = tocsin("streams", *NOWHERE, "--data", str(tmp_path / "data"))
    assert 1 == done.code
    assert f"--data {tmp_path / 'data'}: File exists: name a directory that can be written\n" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kafka", "broker"), "--kafka: 'broker' is not host:port"),
        (("--kafka", "local", "--kafka-config", __file__), "--kafka-config"),
        (("--kafka", "127.0.0.1:9", "--prefix", ""), "--prefix is 1 to 64"),
    ],
)
def test_what_up_cannot_do_on_a_kafka_is_said_before_anything_is_started(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = tocsin("up", "--data", str(tmp_path / "data"), "--port", "0", *arguments)
    assert 2 == done.code
    assert said in done.err
    assert not (tmp_path / "data").exists()


def test_the_help_of_a_role_shows_the_choices() -> None:
    shown = tocsin("streams", "--help").out
    assert "guarded|wall" in shown
    assert "debug|info|warning|error" in shown
