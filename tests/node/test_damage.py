"""A node whose log is damaged or gone says so, and neither starts without it nor wipes the last copy of the jobs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.node.conftest import WITHIN_S, Node

JOBS = 40


@pytest.fixture
def stopped(node: Node) -> Node:
    """Has definitions of jobs, in its log and in its state, and was stopped twice: its log is in tables."""
    node.start()
    for number in range(JOBS):
        node.define(
            {
                "id": f"job-{number}",
                "target": {"http": {"url": "http://127.0.0.1:9/", "headers": {"x-noise": _noise(number)}}},
            }
        )
    node.stop()
    node.start()
    node.stop()
    return node


def _noise(number: int) -> str:
    """Text that does not compress, so that most of the tables is records."""
    return "".join(f"{(number * 7919 + at * at * 104729) & 0xFFFFFFFF:x}" for at in range(60))


def _jobs(node: Node) -> int:
    return len(node.get("/v1/jobs", limit=1000)["items"])


def _refused(node: Node) -> str:
    """What a start said that did not come to be ready."""
    ended = subprocess.run(node.command(), capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stderr


def _started_or_told(node: Node) -> str:
    """ "", or what a node said that ended instead of becoming ready."""
    try:
        node.start()
    except AssertionError as error:
        assert node.process is not None
        node.process.communicate(timeout=WITHIN_S)
        return str(error)
    return ""


def _content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("lost", ["log", "log/rocksdb"])
def test_without_its_log_a_node_does_not_start_and_leaves_the_state_alone(stopped: Node, lost: str) -> None:
    backup = shutil.copytree(stopped.data / "log", stopped.data.parent / "backup")
    shutil.rmtree(stopped.data / lost)
    before = _content(stopped.data / "state")
    for _ in range(2):
        assert "from a backup" in _refused(stopped)
    assert before == _content(stopped.data / "state")
    shutil.rmtree(stopped.data / "log", ignore_errors=True)
    backup.rename(stopped.data / "log")
    stopped.start()
    assert _jobs(stopped) == JOBS


def test_one_flipped_byte_in_the_log_never_makes_a_node_ready_without_some_of_its_jobs(
    stopped: Node, tmp_path: Path
) -> None:
    shutil.rmtree(stopped.data / "state")  # so that all of it has to come from the log
    sound = stopped.data.rename(tmp_path / "sound")
    ends = 0
    for share in (0.25, 0.5, 0.65, 0.8):
        shutil.rmtree(stopped.data, ignore_errors=True)
        shutil.copytree(sound, stopped.data)
        tables = sorted(
            (stopped.data / "log" / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size
        )
        content = bytearray(tables[-1].read_bytes())
        content[int(len(content) * share)] ^= 1
        tables[-1].write_bytes(content)
        told = _started_or_told(stopped)
        if told:
            ends += 1
            assert "is damaged" in told
            assert tables[-1].name in told
            assert stopped.process is not None
            assert stopped.process.returncode == 1
        else:  # the damage is in what no start reads
            assert _jobs(stopped) == JOBS
            stopped.stop()
    assert ends
