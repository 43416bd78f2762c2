"""What `tocsin up` refuses before it opens anything. How it runs is tested with the node as a process."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Done, spawned
from tocsin.cli.failures import called
from tocsin.cli.up_kafka import KafkaNode, _children
from tocsin.client.functions import FunctionRegistry, function, registry
from tocsin.streams.origin import StateDirectory

ELSEWHERE = ("--host", "192.0.2.1", "--port", "0")
"""An address that needs a key which is not there: what is right ends here, with a message of its own."""


def test_a_log_level_that_is_none_is_named_with_the_ones_there_are(tmp_path: Path) -> None:
    done = spawned("up", "--data", str(tmp_path / "data"), "--log-level", "loud")
    assert (2, "", "--log-level is debug, info, warning or error, not 'loud'\n") == (
        done.code,
        done.out,
        done.err,
    )
    assert not (tmp_path / "data").exists()


def _with_module(tmp_path: Path, text: str) -> Done:
    (tmp_path / "their_functions.py").write_text(text)
    return spawned(
        "up",
        "--data",
        str(tmp_path / "data"),
        *ELSEWHERE,
        "--functions",
        "their_functions",
        PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[3]}",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n\nint(None)\n", "TypeError: int() argument must be"),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f(:\n", "SyntaxError: invalid syntax"),
        ("from tocsin.client import function\n\n@function('no name')\ndef f(): ...\n", "ValueError: a func"),
    ],
)
def test_a_module_that_fails_at_its_import_is_told_by_its_error_and_line(
    tmp_path: Path, text: str, said: str
) -> None:
    done = _with_module(tmp_path, text)
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(f"--functions their_functions: {said}")
    line = {"T": 3, "M": 1, "S": 1, "V": 3}[said[0]]
    assert f"their_functions.py{', line ' if said[0] == 'S' else ':'}{line})" in done.err
    assert 1 == len(done.err.splitlines())


def test_a_module_that_is_not_there_is_named_without_a_line() -> None:
    done = spawned("up", *ELSEWHERE, "--functions", "nowhere_at_all")
    assert (2, "--functions nowhere_at_all: No module named 'nowhere_at_all'\n") == (done.code, done.err)


def test_a_module_without_functions_is_warned_of_and_one_with_some_is_not(tmp_path: Path) -> None:
    empty = _with_module(tmp_path, "x = 1\n")
    assert "--functions their_functions: registers no function; mark them with @function" in empty.err
    filled = _with_module(tmp_path, "from tocsin.client import function\n@function\ndef f(): ...\n")
    assert "registers no" not in filled.err
    assert "TOCSIN_API_KEY" in filled.err


def test_the_state_of_another_log_is_not_called_the_state_of_a_log_that_is_gone(tmp_path: Path) -> None:
    state = tmp_path / "data" / "state"
    (state / "partition-0").mkdir(parents=True)
    (state / "partition-0" / "CURRENT").write_text("MANIFEST-000001\n")
    StateDirectory(state, where="Kafka at kafka-1:9092 with the prefix tocsin.").claim("a1")
    done = spawned("up", "--data", str(tmp_path / "data"), "--port", "0")
    assert (1, "") == (done.code, done.out)
    assert (
        f"the node cannot start: {state} holds the state of another log (Kafka at kafka-1:9092 with the prefix tocsin.), "
        f"and this is the embedded log beside it: choose another folder with --data, or remove {state} if that log is "
        "not used any more. Nothing was changed\n"
    ) == done.err
    assert not (tmp_path / "data" / "log").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (".venv/bin/tocsin", ".venv/bin/tocsin"),
        ("tocsin", "tocsin"),
        ("/somewhere/tocsin/cli/__main__.py", "tocsin"),
    ],
)
def test_what_to_type_next_is_found_by_the_shell(
    monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    monkeypatch.setattr("sys.argv", [command, "up"])
    assert told == called()


def test_a_command_that_the_shell_finds_by_its_name_is_told_by_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "tocsin"
    command.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(command), "up"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert str(command) == called()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "tocsin" == called()


def test_a_function_takes_its_name_by_position_and_by_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_functions", FunctionRegistry()._functions)

    @function
    def plain() -> int:
        return 1

    @function("by.position")
    def first() -> None: ...

    @function(name="by.keyword")
    def second() -> None: ...

    @function()
    def called() -> None: ...

    assert ["by.keyword", "by.position", "called", "plain"] == list(registry)
    assert 1 == plain()


def test_up_refuses_a_network_that_is_none_and_hands_the_others_to_its_workers(tmp_path: Path) -> None:
    done = spawned("up", *ELSEWHERE, "--allow-network", "10.1.0.0/99")
    assert 2 == done.code
    assert "--allow-network" in done.err
    node = KafkaNode(
        kafka="127.0.0.1:9",
        kafka_config=None,
        prefix="tocsin.",
        data=tmp_path,
        functions=(),
        concurrency=8,
        clock="guarded",
        log_level="warning",
        allow_network=("10.1.0.0/16", "10.2.0.0/16"),
        allow_host=("*.svc.internal",),
    )
    children = _children(node, "127.0.0.1:9", "127.0.0.1", 0, (), "http://127.0.0.1:1")
    (worker,) = [child.arguments for child in children if child.name == "worker"]
    assert ["10.1.0.0/16", "10.2.0.0/16"] == [
        value for option, value in pairwise(worker) if option == "--allow-network"
    ]
    assert ["*.svc.internal"] == [value for option, value in pairwise(worker) if option == "--allow-host"]
