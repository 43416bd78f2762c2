"""A node that meets what is not as it should be: it says what is wrong and what to do, and loses nothing."""

import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Self

import httpx
import pytest

from tests.node.conftest import WITHIN_S, Node, Receiver, until
from tocsin.cli.all_in_one import PARTITIONS
from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster
from tocsin.schemas.topics import TopicNames
from tocsin.streams.bootstrap import bootstrap

ROOT = Path(__file__).parents[2]
INPUT, ENVIRONMENT = 2, 1
"""Exit codes."""
Refusal = tuple[Path, "Future[tuple[int, str]]"]
"""The data directory of a node that does not start, and its exit code and words."""


def refused(data: Path, *options: str, cwd: Path | None = None) -> tuple[int, str]:
    """The exit code and the words of a node that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "up", "--data", str(data), "--port", "0", *options],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=WITHIN_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


# --- what was asked for

OPTIONS = {
    "--host 999.1.2.3": "--host 999.1.2.3",
    f"--host {'a' * 300}": "--host aaa",
    "--clock sundial": "guarded or wall, not 'sundial'",
    "--log-level loud": "not 'loud'",
    "--functions nobody_has_this": "--functions nobody_has_this: No module named 'nobody_has_this'",
    "--functions fails": "--functions fails: RuntimeError: the database is away (fails.py:1)",
    "--functions needs": "No module named 'nobody_has_this' (needs.py:1)",
    "--functions wrong": "SyntaxError",
    "--functions exits": "--functions exits: SystemExit: 3",
}
MODULES = {
    "fails": 'raise RuntimeError("the database is away")',
    "needs": "import nobody_has_this",
    "wrong": "def (:",
    "exits": "import sys; sys.exit(3)",
}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options[:30])
def test_an_option_that_makes_no_sense_is_said_and_nothing_is_created(
    refusals: dict[str, Refusal], options: str
) -> None:
    data, found = refusals[options]
    code, words = found.result(WITHIN_S)
    assert INPUT == code, words
    assert OPTIONS[options] in words
    assert not data.exists()


# --- what it finds


def a_file(data: Path, name: str) -> None:
    data.mkdir()
    (data / name).write_text("not a directory")


def other_files(data: Path) -> None:
    (data / "log").mkdir(parents=True)
    (data / "log" / "holiday.jpg").write_text("")


def a_link_to_nowhere(data: Path) -> None:
    data.symlink_to(data.parent / "gone" / "gone")
    (data.parent / "gone").write_text("")


def a_newer_format(data: Path) -> None:
    EmbeddedLog.open(data / "log", SystemClock()).close()
    (data / "log" / "FORMAT").write_text("tocsin-log 99\n")


def a_newer_schema_level(data: Path) -> None:
    log = EmbeddedLog.open(data / "log", SystemClock())
    names = TopicNames()
    bootstrap(log, names, partitions=PARTITIONS, queue_partitions=PARTITIONS)
    newer = Cluster(partitions=PARTITIONS, schema_level=99, tzdata="2099a")
    producer = log.producer()
    producer.produce(names.config, key=b"cluster/main", value=codec.encode(newer), partition=0)
    assert 0 == producer.flush(WITHIN_S)
    log.close()


def another_number_of_partitions(data: Path) -> None:
    log = EmbeddedLog.open(data / "log", SystemClock())
    bootstrap(log, TopicNames(), partitions=7, queue_partitions=7)
    log.close()


DIRECTORIES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "a file in the way": (lambda data: a_file(data, "log"), ["log is not a directory", "name one"]),
    "other files": (other_files, ["holiday.jpg", "name an empty directory"]),
    "a link to nowhere": (a_link_to_nowhere, ["data/log"]),
    "a newer format": (a_newer_format, ["tocsin-log 99", "start the version that wrote it"]),
    "a newer schema level": (a_newer_schema_level, ["schema level 99", "upgrade"]),
    "another number of partitions": (another_number_of_partitions, ["made with 7 partitions"]),
}


@pytest.mark.parametrize("what", DIRECTORIES)
def test_a_directory_that_it_cannot_use_is_named_and_left_as_it_is(
    refusals: dict[str, Refusal], what: str
) -> None:
    data, found = refusals[what]
    code, words = found.result(WITHIN_S)
    assert ENVIRONMENT == code, words
    assert "the node cannot start" in words
    for said in DIRECTORIES[what][1]:
        assert said in words
    assert not (data / "state").exists()


def test_a_file_in_the_way_of_the_state_ends_the_node_and_is_named(refusals: dict[str, Refusal]) -> None:
    data, found = refusals["a file in the way of the state"]
    code, words = found.result(WITHIN_S)
    assert ENVIRONMENT == code, words
    assert str(data / "state") in words
    assert "not a directory" == (data / "state").read_text()


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Refusal]]:
    """Each node that is not to start, by what is wrong; begun together, since most of the time is Python's own start."""
    place = tmp_path_factory.mktemp("refusals")
    for name, text in MODULES.items():
        (place / f"{name}.py").write_text(f"{text}\n")
    makers = {what: make for what, (make, _) in DIRECTORIES.items()}
    makers["a file in the way of the state"] = lambda data: a_file(data, "state")
    found: dict[str, Refusal] = {}
    with ThreadPoolExecutor(4) as pool:
        for number, options in enumerate(OPTIONS):
            data = place / f"options-{number}" / "data"
            found[options] = (data, pool.submit(refused, data, *options.split(), cwd=place))
        for number, (what, make) in enumerate(makers.items()):
            data = place / f"found-{number}" / "data"
            data.parent.mkdir()
            make(data)
            found[what] = (data, pool.submit(refused, data))
        yield found


# --- a key


def test_with_a_key_nothing_is_answered_without_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_API_KEY", "a-long-random-text")
    node.start()
    document = {"id": "x", "target": {"http": {"url": "http://127.0.0.1:1/"}}}
    for headers in ({}, {"Authorization": "Bearer another"}, {"Authorization": "a-long-random-text"}):
        for answer in (
            node.client.get("/v1/jobs", headers=headers),
            node.client.put("/v1/jobs/default/x", json=document, headers=headers),
        ):
            assert 401 == answer.status_code, answer.text
            assert "a-long-random-text" not in answer.text
    for path in ("/livez", "/readyz"):  # what watches a node has no key
        assert 200 == node.client.get(path).status_code
    right = {"Authorization": "Bearer a-long-random-text"}
    assert 404 == node.client.get("/v1/jobs/default/x", headers=right).status_code
    assert node.client.put("/v1/jobs/default/x", json=document, headers=right).status_code in (200, 201, 202)
    done = subprocess.run(
        [sys.executable, "-m", "tocsin.cli", "jobs", "list"],
        capture_output=True,
        text=True,
        env={
            **{name: value for name, value in os.environ.items() if name != "TOCSIN_API_KEY"},
            "TOCSIN_URL": node.url,
            "PYTHONPATH": str(ROOT),
        },
        check=False,
    )
    assert ENVIRONMENT == done.returncode
    assert "TOCSIN_API_KEY" in done.stdout + done.stderr


# --- a full disk


class Writer:
    """Defines one job after the other until it is told to stop; knows which were acknowledged, and what else was said."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopping = Event()
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WITHIN_S)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            document = {
                "id": f"w{number}",
                "schedule": {"every": "1h"},
                "target": {"http": {"url": "http://127.0.0.1:1/"}},
            }
            try:
                answer = self._node.client.put(f"/v1/jobs/default/w{number}", json=document)
            except httpx.TransportError:  # it has ended, or is about to
                self._stopping.wait(0.05)
                continue
            if answer.is_success:
                self.acknowledged.append(f"w{number}")
            else:
                self.refused.append(answer)
                self._stopping.wait(0.05)


def limit_file_size(node: Node, size: int) -> None:
    """From now on no file of the node grows beyond this, as on a full disk: root is held by it, too."""
    assert node.process is not None
    _, hard = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_disk_that_fills_up_refuses_writes_and_loses_none_that_was_acknowledged(
    node: Node, receiver: Receiver
) -> None:
    node.start()
    node.define(
        {"id": "tick", "schedule": {"every": "1s"}, "target": {"http": {"url": f"{receiver.url}/ok"}}}
    )
    until(lambda: len(receiver.seen) >= 2, "it runs")
    with Writer(node) as writer:
        until(lambda: len(writer.acknowledged) >= 20, "writes are acknowledged")
        limit_file_size(node, 1)
        until(lambda: len(writer.refused) >= 10, "writes are refused")
        until(lambda: node.client.get("/readyz").status_code == 503, "it says that it is not ready")
        before = len(writer.acknowledged)
        limit_file_size(node, resource.RLIM_INFINITY)
        until(lambda: node.client.get("/readyz").status_code == 200, "it goes on by itself")
        until(lambda: len(writer.acknowledged) >= before + 5, "writes are acknowledged again")
    for answer in writer.refused:
        assert answer.status_code in (503, 507)
        assert "space" in answer.json()["detail"], answer.text
        assert "Retry-After" in answer.headers
    seen = len(receiver.seen)
    until(lambda: len(receiver.seen) >= seen + 2, "it runs again")
    node.stop()
    node.start()
    assert [] == [
        name for name in writer.acknowledged if not node.client.get(f"/v1/jobs/default/{name}").is_success
    ]
    attempts = Counter((each["run_id"], each["attempt"]) for each in receiver.seen)
    assert [] == [each for each, times in attempts.items() if times > 1]
