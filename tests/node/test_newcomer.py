"""What the README promises a newcomer, with the examples as they are shipped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.node.conftest import Node, Receiver, until

ROOT = Path(__file__).parents[2]
MILLISECONDS_LATE_MAX = 5_000
"""Not a measure of speed (benchmarks/ has those), but a run that is later than this was not on time on any machine."""


def tocsin(node: Node, *arguments: str) -> Any:
    """The JSON that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", *arguments, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "TOCSIN_URL": node.url, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def the_example_does_what_the_readme_says(node: Node, receiver: Receiver, folder: Path) -> None:
    """The example as it is shipped, by the commands that are shown, whatever the node keeps its log in."""
    text = (ROOT / "examples" / "hello.yaml").read_text().replace("http://127.0.0.1:8790", receiver.url)
    shown = folder / "hello.yaml"
    shown.write_text(text)
    tocsin(node, "jobs", "apply", "-f", str(shown))
    documents = list(yaml.safe_load_all(text))
    paths = {each["id"]: each["target"]["http"]["url"].removeprefix(receiver.url) for each in documents}
    assert {each["id"] for each in tocsin(node, "jobs", "list")["items"]} == set(paths)
    (failing,) = [name for name, path in paths.items() if path == "/fail"]
    (flaky,) = [name for name, path in paths.items() if path == "/fail/2"]
    until(
        lambda: receiver.attempts(f"default/{flaky}")[:3] == [1, 2, 3],
        "the third attempt follows two failures",
    )
    until(lambda: tocsin(node, "dead-letters", "list")["items"], "the job that always fails is a dead letter")
    (letter, *_) = tocsin(node, "dead-letters", "list")["items"]
    assert f"default/{failing}" in json.dumps(letter)
    for name in set(paths) - {failing, flaky}:
        until(lambda name=name: receiver.attempts(f"default/{name}"), f"{name} arrives")  # type: ignore[misc]
    firsts = [each for each in receiver.seen if each["attempt"] == 1]
    assert all(0 <= each["lateness_ms"] <= MILLISECONDS_LATE_MAX for each in firsts)
    (run, *_) = tocsin(node, "runs", "list", f"default/{failing}")["items"]
    assert [each["attempt"] for each in run["attempts"]] == [1, 2, 3]
    assert all(each["http_status"] == 503 and each["error"] for each in run["attempts"])


def test_the_example_jobs_run_on_time_are_retried_and_end_in_the_dead_letters(
    node: Node, receiver: Receiver, tmp_path: Path
) -> None:
    node.start()
    the_example_does_what_the_readme_says(node, receiver, tmp_path)


def test_a_second_node_on_the_same_directory_is_refused_and_named(node: Node) -> None:
    node.start()
    second = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "up", "--data", str(node.data), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert str(node.data) in second.stderr
    assert "Traceback" not in second.stderr
    assert node.client.get("/readyz").status_code == 200


def test_a_port_in_use_is_named_and_nothing_is_created(node: Node, tmp_path: Path) -> None:
    node.start()
    elsewhere = tmp_path / "elsewhere"
    second = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "up", "--data", str(elsewhere), "--port", str(node.port)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert str(node.port) in second.stderr
    assert not elsewhere.exists()


def test_a_file_in_place_of_the_data_directory_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "data"
    taken.write_text("not a directory")
    done = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "up", "--data", str(taken), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert str(taken) in done.stderr
    assert "Traceback" not in done.stderr
    assert taken.read_text() == "not a directory"


def test_an_address_beyond_loopback_needs_a_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tocsin.cli",
            "up",
            "--data",
            str(tmp_path / "d"),
            "--port",
            "0",
            "--host",
            "0.0.0.0",
        ],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "TOCSIN_API_KEY"},
        check=False,
    )
    assert done.returncode == 2
    assert "TOCSIN_API_KEY" in done.stderr


def test_functions_run_in_the_node(node: Node, tmp_path: Path) -> None:
    (tmp_path / "chores.py").write_text(
        "from tocsin.client import function\n\n\n@function\ndef greet(name: str) -> str:\n    return f'hello {name}'\n"
    )
    node.start("--functions", "chores", cwd=tmp_path)
    key = node.define(
        {
            "id": "greeting",
            "queue": "functions",
            "schedule": {"delay": "1s"},
            "target": {"function": {"name": "greet", "arguments": {"name": "there"}}},
        }
    )
    until(lambda: [run for run in node.runs(key) if run["status"] == "succeeded"], "the function ran")
    assert "hello there" in json.dumps(node.runs(key))


def test_a_lost_state_directory_is_rebuilt_from_the_log(node: Node, receiver: Receiver) -> None:
    import shutil

    node.start()
    key = node.define(
        {
            "id": "tick",
            "schedule": {"every": "1s"},
            "target": {"http": {"url": f"{receiver.url}/ok"}},
        }
    )
    until(lambda: len(receiver.seen) >= 3, "it runs")
    node.client.post(f"/v1/jobs/{key}/pause", json={"reason": "test"}, params={"wait": "applied"})
    until(
        lambda: all(run["status"] not in ("scheduled", "running") for run in node.runs(key)), "all is quiet"
    )
    before = node.get(f"/v1/jobs/{key}")
    node.stop()
    shutil.rmtree(node.data / "state")
    node.start()
    assert node.get(f"/v1/jobs/{key}")["revision"] == before["revision"]
    node.client.post(f"/v1/jobs/{key}/resume", json={}, params={"wait": "applied"})
    seen = len(receiver.seen)
    until(lambda: len(receiver.seen) > seen, "it runs again")
