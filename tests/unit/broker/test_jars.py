"""The jars of the local broker: what is fetched, from where, and what is believed."""

import errno
import hashlib
import http.server
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tocsin.broker import BrokerFailed, jars
from tocsin.broker.lock import KAFKA, LOCK_FILE, Jar, locked_jars

LIMIT_S = 60


def _jar(name: str, content: bytes) -> Jar:
    digest = hashlib.sha256(content).hexdigest()
    return Jar(group="org.example", artifact=name, version="1.0", size=len(content), sha256=digest)


CONTENTS = {f"part{i}": bytes([65 + i]) * (1_000 + i) for i in range(8)}
JARS = tuple(_jar(name, content) for name, content in CONTENTS.items())


class Repository:
    """A Maven repository on this machine, which counts what is asked and can go wrong."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.files = {jar.path_in_repository: CONTENTS[jar.artifact] for jar in JARS}
        self.before_answer: Callable[[str], None] = lambda _: None
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.removeprefix("/maven/")
                repository.asked.append(path)
                repository.before_answer(path)
                content = repository.files.get(path)
                self.send_response(200 if content is not None else 404)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/maven"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked_for_jars(self) -> list[str]:
        return sorted(path for path in self.asked if path.endswith(".jar"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    repository = Repository()
    monkeypatch.setattr(jars, "locked_jars", lambda: JARS)
    monkeypatch.setenv("TOCSIN_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOCSIN_MAVEN_REPOSITORY", repository.url)
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield repository
    repository.close()


def _fetched(told: list[str] | None = None) -> dict[str, bytes]:
    paths = jars.fetch_jars((told if told is not None else []).append)
    return {path.name: path.read_bytes() for path in paths}


WHOLE = {jar.file_name: CONTENTS[jar.artifact] for jar in JARS}


def test_the_list_names_each_jar_of_the_broker_once_with_size_and_hash() -> None:
    listed = locked_jars()
    assert len(listed) == len({jar.file_name for jar in listed}) == 45
    assert f"kafka_2.13-{KAFKA}.jar" in {jar.file_name for jar in listed}
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in listed)
    assert LOCK_FILE.is_file()


def test_jars_are_fetched_once_and_said_to_be(repository: Repository, tmp_path: Path) -> None:
    told: list[str] = []
    assert WHOLE == _fetched(told)
    assert told[0] == f"fetching Apache Kafka {KAFKA}: 8 jars, 0 MB, once"
    assert told[-1] == f"  8 jars are in {tmp_path / 'cache' / f'kafka-{KAFKA}'}"
    repository.close()
    again: list[str] = []
    assert WHOLE == _fetched(again)
    assert [] == again


def test_what_the_user_has_in_a_maven_repository_is_not_fetched(
    repository: Repository, tmp_path: Path
) -> None:
    # Two that are whole, and one of the right size that is not what was tested.
    held = {JARS[0]: CONTENTS["part0"], JARS[1]: CONTENTS["part1"], JARS[2]: b"?" * JARS[2].size}
    for jar, content in held.items():
        theirs = tmp_path / "m2" / jar.path_in_repository
        theirs.parent.mkdir(parents=True)
        theirs.write_bytes(content)
    assert WHOLE == _fetched()
    assert sorted(jar.path_in_repository for jar in JARS[2:]) == repository.asked_for_jars()


def test_a_fetch_that_breaks_off_goes_on_with_what_is_missing(repository: Repository, tmp_path: Path) -> None:
    broken = JARS[-1].path_in_repository
    content = repository.files.pop(broken)
    with pytest.raises(
        BrokerFailed, match=r"cannot be fetched from http.*part7.*What to do: .*TOCSIN_MAVEN_REPOSITORY"
    ):
        _fetched()
    kept = {path.name for path in (tmp_path / "cache").glob("*/*.jar")}
    assert JARS[-1].file_name not in kept
    repository.files[broken] = content
    repository.asked.clear()
    assert WHOLE == _fetched()
    assert (
        sorted(jar.path_in_repository for jar in JARS if jar.file_name not in kept)
        == repository.asked_for_jars()
    )


def test_a_jar_that_is_not_what_was_tested_is_thrown_away(repository: Repository, tmp_path: Path) -> None:
    repository.files[JARS[0].path_in_repository] = b"?" * JARS[0].size
    with pytest.raises(BrokerFailed, match=r"part0-1.0.jar from .* is not what was tested: its SHA-256 is"):
        _fetched()
    assert not list((tmp_path / "cache").rglob(JARS[0].file_name))


def test_a_jar_that_was_cut_short_in_the_cache_is_fetched_again(
    repository: Repository, tmp_path: Path
) -> None:
    _fetched()
    (tmp_path / "cache" / f"kafka-{KAFKA}" / JARS[4].file_name).write_bytes(b"short")
    repository.asked.clear()
    assert WHOLE == _fetched()
    assert [JARS[4].path_in_repository] == repository.asked_for_jars()


def _fetch_in_a_process() -> None:
    jars.locked_jars = lambda: JARS  # type: ignore[attr-defined, assignment]
    jars.fetch_jars(lambda _: None)


@contextmanager
def _process() -> Iterator[multiprocessing.process.BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=_fetch_in_a_process)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


def test_a_fetch_that_was_killed_leaves_nothing_that_is_believed(
    repository: Repository, tmp_path: Path
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(path: str) -> None:
        if path == JARS[7].path_in_repository:
            reached.set()
            go_on.wait(LIMIT_S)

    repository.before_answer = hold
    with _process() as process:
        assert reached.wait(LIMIT_S)
        process.kill()
        process.join(LIMIT_S)
    go_on.set()
    assert WHOLE == _fetched()
    folder = tmp_path / "cache" / f"kafka-{KAFKA}"
    assert {*WHOLE, ".lock"} == {path.name for path in folder.iterdir()}


def test_two_that_fetch_at_once_fetch_each_jar_once(repository: Repository) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(_: str) -> None:
        reached.set()
        go_on.wait(LIMIT_S)

    repository.before_answer = hold
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        go_on.set()

    with _process() as process:
        assert reached.wait(LIMIT_S)
        jars.fetch_jars(tell)
        process.join(LIMIT_S)
        assert process.exitcode == 0
    assert len(told) == 1
    assert told[0].startswith("another process is fetching Kafka's jars into ")
    assert sorted(jar.path_in_repository for jar in JARS) == repository.asked_for_jars()


def test_no_network_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    repository.close()
    with pytest.raises(BrokerFailed) as raised:
        _fetched()
    said = str(raised.value)
    assert "Connection refused" in said
    assert "0 of 8 missing jars are there now" in said
    assert "--kafka HOST:PORT" in said


def test_no_space_is_said_with_what_to_do(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        BrokerFailed, match=r"no space for Kafka's jars in .*kafka-.* MB\): make room there, or"
    ):
        _fetched()


def test_without_the_package_that_fetches_it_is_said_what_brings_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setitem(sys.modules, "jgo.config", None)
    with pytest.raises(
        BrokerFailed, match=r"the package jgo is needed: pip install 'tocsin\[broker\]'.*make broker"
    ):
        _fetched(told)
    assert [] == told  # nothing is announced that cannot be begun


def test_a_cache_that_cannot_be_written_is_said(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BrokerFailed, match=r"cannot be kept in .*TOCSIN_KAFKA_CACHE"):
        _fetched()
