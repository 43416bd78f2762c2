"""Who may open an embedded log, and what it says to the others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Cache, WriteBufferManager

from tocsin.clock import FakeClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.embedded.directory import FORMAT, Directory
from tocsin.log.port import LogCorrupt, LogLocked, LogUnavailable, TopicPartition, TopicSpec

HERE = TopicPartition("t", 0)
SPEC = TopicSpec(name="t", partitions=1)


def _open(directory: Path) -> EmbeddedLog:
    return EmbeddedLog.open(directory, FakeClock(), maintenance_interval_s=None)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Holds a log with one record."""
    with _open(tmp_path / "log") as log:
        log.create_topics([SPEC])
        producer = log.producer()
        producer.produce("t", key=b"k", value=b"v")
        assert producer.flush(30) == 0
    return tmp_path / "log"


@pytest.fixture
def other_process(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """Has the log open."""
    script = (
        "import sys; from pathlib import Path; from tocsin.clock import SystemClock;"
        "from tocsin.log.embedded import EmbeddedLog;"
        "log = EmbeddedLog.open(Path(sys.argv[1]), SystemClock()); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    _open(tmp_path / "a" / "b").close()
    assert FORMAT == (tmp_path / "a" / "b" / "FORMAT").read_text()


def test_a_second_log_in_the_same_process_is_locked_out(directory: Path) -> None:
    with _open(directory), pytest.raises(LogLocked, match=f"{directory} is open in process {os.getpid()}"):
        _open(directory)
    _open(directory).close()


def test_another_process_is_locked_out_and_learns_who_holds_the_directory(
    directory: Path, other_process: "subprocess.Popen[str]"
) -> None:
    with pytest.raises(LogLocked, match=f"{directory} is open in process {other_process.pid}"):
        _open(directory)


def test_a_kill_frees_the_directory(directory: Path, other_process: "subprocess.Popen[str]") -> None:
    other_process.kill()
    other_process.wait()
    with _open(directory) as log:
        assert log.end_offset(HERE, "committed") == 1


def test_a_refused_opening_leaves_the_directory_free(directory: Path) -> None:
    (directory / "FORMAT").write_text("tocsin embedded log, format 99\n")
    for _ in range(2):
        with pytest.raises(LogCorrupt):
            _open(directory)


def test_another_format_is_refused_with_what_to_do_and_nothing_is_changed(directory: Path) -> None:
    (directory / "FORMAT").write_text("tocsin embedded log, format 99\n")
    before = {path: path.read_bytes() for path in (directory / "rocksdb").iterdir()}
    with pytest.raises(LogCorrupt, match=r"format 99.*format 1.*start the version that wrote it"):
        _open(directory)
    assert before == {path: path.read_bytes() for path in (directory / "rocksdb").iterdir()}


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(LogCorrupt, match=r"thesis\.tex.*empty directory"):
        _open(tmp_path)


def test_a_directory_whose_creation_was_interrupted_is_taken(tmp_path: Path) -> None:
    (tmp_path / "FORMAT.new").write_text("tocsin emb")
    (tmp_path / "LOCK").write_text("1\n")
    _open(tmp_path).close()


def test_an_empty_partition_stays_empty_whatever_lies_beside_it(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        log.create_topics([TopicSpec(name=name, partitions=3) for name in "abc"])
        producer = log.producer()
        for topic, partition in (("a", 1), ("b", 2)):
            for _ in range(5):
                producer.produce(topic, key=b"k", value=b"v", partition=partition)
        assert producer.flush(30) == 0
    for _ in range(2):
        with _open(tmp_path) as log:
            ends = {
                (topic, number): log.end_offset(TopicPartition(topic, number), "committed")
                for topic in "abc"
                for number in range(3)
            }
            assert {("a", 1): 5, ("b", 2): 5} == {where: end for where, end in ends.items() if end}


def test_a_creation_that_was_interrupted_at_any_point_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Directory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Directory, "created", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _open(tmp_path)  # the database is there, FORMAT is not
    assert not (tmp_path / "FORMAT").exists()
    assert Directory.holds_log(tmp_path)
    with _open(tmp_path) as log:
        log.create_topics([SPEC])
    assert FORMAT == (tmp_path / "FORMAT").read_text()
    assert not (tmp_path / "FORMAT.new").exists()


@pytest.mark.parametrize("what", ["the database", "its content", "CURRENT"])
def test_a_log_whose_database_is_lost_is_refused_and_no_new_one_takes_its_place(
    directory: Path, what: str
) -> None:
    database = directory / "rocksdb"
    match what:
        case "CURRENT":
            (database / "CURRENT").unlink()
        case _:
            shutil.rmtree(database)
            if what == "its content":
                database.mkdir()
    before = sorted(directory.rglob("*"))
    for _ in range(2):
        with pytest.raises(
            LogCorrupt, match=rf"{directory} is lost.*Restore the directory from a backup.*state"
        ):
            _open(directory)
    assert before == sorted(directory.rglob("*"))


def test_a_database_without_its_format_is_refused(directory: Path) -> None:
    (directory / "FORMAT").unlink()
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="FORMAT is gone"):
            _open(directory)


def test_a_write_ahead_log_that_was_cleaned_up_is_missed(directory: Path) -> None:
    for file in (directory / "rocksdb").glob("*.log"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="no log files to be cleaned up"):
            _open(directory)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(LogUnavailable, match="is not a directory"):
        _open(file)
    with pytest.raises(LogUnavailable, match="cannot be used"):
        _open(file / "below")


def test_a_directory_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, whom no mode of a directory stops.
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(LogUnavailable, match=f"{tmp_path} cannot be used: Permission denied"):
            _open(tmp_path)


def test_a_damaged_record_in_the_write_ahead_log_is_reported_and_not_skipped(
    directory: Path, tmp_path: Path
) -> None:
    crashed = tmp_path / "crashed"
    with _open(directory) as log:
        producer = log.producer()
        for number in range(50):
            producer.produce("t", key=b"k", value=b"value %d" % number * 20)
            assert producer.flush(30) == 0
        shutil.copytree(directory, crashed)  # as a crash would leave it
    wal = max((crashed / "rocksdb").glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    with pytest.raises(LogCorrupt, match=f"{crashed} is damaged"):
        _open(crashed)


def test_a_torn_end_of_the_write_ahead_log_is_what_a_crash_leaves(directory: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    with _open(directory) as log:
        producer = log.producer()
        for number in range(50):
            producer.produce("t", key=b"k", value=b"value %d" % number * 20)
            assert producer.flush(30) == 0
        shutil.copytree(directory, crashed)
    wal = max((crashed / "rocksdb").glob("*.log"), key=lambda path: path.stat().st_size)
    os.truncate(wal, wal.stat().st_size - 5)
    with _open(crashed) as log:
        assert log.end_offset(HERE, "committed") == 50  # all but the last, which is as if it had never been


def test_closing_twice_does_no_harm_and_a_closed_log_refuses(directory: Path) -> None:
    log = _open(directory)
    producer, transactional = log.producer(), log.transactional_producer("x")
    log.close()
    log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        producer.produce("t", key=b"k", value=b"v")
    with pytest.raises(LogUnavailable, match="closed"):
        transactional.init()
    with pytest.raises(LogUnavailable, match="closed"):
        log.create_topics([TopicSpec(name="u", partitions=1)])
    reader = log.reader()
    reader.assign({HERE: 0})
    with pytest.raises(LogUnavailable, match="closed"):
        reader.poll(1, 0)


def test_memory_can_be_shared_with_other_databases_of_the_process(tmp_path: Path) -> None:
    cache, write_buffers = Cache(8 << 20), WriteBufferManager(64 << 20, False)
    with (
        EmbeddedLog.open(tmp_path / "one", FakeClock(), cache=cache, write_buffers=write_buffers) as one,
        EmbeddedLog.open(tmp_path / "two", FakeClock(), cache=cache, write_buffers=write_buffers) as two,
    ):
        used = [write_buffers.get_usage()]
        for log in (one, two):
            log.create_topics([SPEC])
            producer = log.producer()
            for _ in range(4):
                producer.produce("t", key=b"k", value=bytes(700_000))
            assert producer.flush(30) == 0
            used.append(write_buffers.get_usage())
        assert used[0] + 2_000_000 < used[1]
        assert used[1] + 2_000_000 < used[2]
