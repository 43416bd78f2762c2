"""A directory knows which log its state was made from, and no other log is let at it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.driver import NAMES
from tests.unit.streams.process import Process
from tests.unit.streams.rows import environment
from tocsin.log.memory import MemoryLog
from tocsin.schemas import codec
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.origin import ForeignState, Origin, StateDirectory
from tocsin.streams.store import StoreError

OURS = Origin(cluster="a1", where="the embedded log beside it")
THEIRS = Origin(cluster="b2", where="Kafka at 127.0.0.1:9092 with the prefix tocsin.")


def directory(path: Path, origin: Origin) -> StateDirectory:
    return StateDirectory(path, where=origin.where)


def with_state(path: Path, origin: Origin) -> Path:
    """As a process leaves it that has worked."""
    directory(path, origin).claim(origin.cluster)
    (path / "partition-0").mkdir()
    (path / "partition-0" / "CURRENT").write_text("MANIFEST-000001\n")
    return path


def files(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()
    }


def test_a_directory_is_given_to_the_first_log_that_comes_and_kept_for_it(tmp_path: Path) -> None:
    state = with_state(tmp_path / "made" / "state", OURS)
    assert OURS == StateDirectory.origin(state)
    directory(state, OURS).claim(OURS.cluster)
    assert OURS == StateDirectory.origin(state)


def test_the_state_of_another_log_is_refused_and_the_words_name_both(tmp_path: Path) -> None:
    state = with_state(tmp_path / "state", THEIRS)
    before = files(state)
    with pytest.raises(ForeignState) as refused:
        directory(state, OURS).claim(OURS.cluster)
    assert (
        f"{state} holds the state of another log ({THEIRS.where}), and this is {OURS.where}: choose another folder with "
        f"--data, or remove {state} if that log is not used any more. Nothing was changed"
    ) == str(refused.value)
    assert before == files(state)
    directory(state, THEIRS).claim(THEIRS.cluster)


def test_a_new_log_in_the_place_of_the_old_one_is_told_from_one_elsewhere(tmp_path: Path) -> None:
    state = with_state(tmp_path / "state", OURS)
    with pytest.raises(ForeignState) as refused:
        directory(state, OURS).claim("c3")
    words = str(refused.value)
    assert f"{OURS.where} is not the one that the state in {state} was made from" in words
    assert "restore that one from a backup" in words
    assert f"remove {state} to go on without its jobs" in words


def test_a_log_that_is_reached_at_another_address_is_the_same_log(tmp_path: Path) -> None:
    state = with_state(tmp_path / "state", THEIRS)
    moved = Origin(cluster=THEIRS.cluster, where="Kafka at 10.0.0.1:9092 with the prefix tocsin.")
    directory(state, moved).claim(moved.cluster)
    assert moved == StateDirectory.origin(state)


def test_a_directory_without_a_store_is_anybodys(tmp_path: Path) -> None:
    directory(tmp_path, THEIRS).claim(THEIRS.cluster)
    directory(tmp_path, OURS).claim(OURS.cluster)
    assert OURS == StateDirectory.origin(tmp_path)


@pytest.mark.parametrize("mark", [None, b"", b"\x00\xff", b"[]", b'{"cluster": 1, "where": "x"}', b'{"clus'])
def test_a_directory_whose_mark_was_lost_is_believed_to_be_ours(tmp_path: Path, mark: bytes | None) -> None:
    state = with_state(tmp_path / "state", THEIRS)
    (state / "ORIGIN").unlink()
    if mark is not None:
        (state / "ORIGIN").write_bytes(mark)
    assert StateDirectory.origin(state) is None
    directory(state, OURS).claim(OURS.cluster)
    assert OURS == StateDirectory.origin(state)


def test_a_log_whose_id_changes_while_it_is_followed_is_the_same_log(tmp_path: Path) -> None:
    """Two processes that make a cluster at the same time each make an id; the later one stays."""
    state = with_state(tmp_path / "state", OURS)
    mine = directory(state, OURS)
    mine.claim(OURS.cluster)
    mine.follow("c3")
    assert Origin(cluster="c3", where=OURS.where) == StateDirectory.origin(state)
    mine.follow("c3")
    mine.follow("")
    assert Origin(cluster="c3", where=OURS.where) == StateDirectory.origin(state)


def test_a_log_without_an_id_is_neither_refused_nor_noted(tmp_path: Path) -> None:
    state = with_state(tmp_path / "state", OURS)
    directory(state, THEIRS).claim("")
    assert OURS == StateDirectory.origin(state)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StoreError, match=f"{tmp_path / 'state'}"):
        directory(tmp_path / "state", OURS).claim(OURS.cluster)


# --- a process


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path, environment())
    yield made
    made.give_up()


def origin(process: Process) -> Origin | None:
    return StateDirectory.origin(process.path / process.name)


def test_a_process_refuses_the_state_of_another_log_before_it_joins(process: Process) -> None:
    process.start()
    process.stop()
    before = files(process.path)
    mine, process.log = process.log, MemoryLog(process.clock)
    bootstrap(process.log, NAMES, partitions=1, queue_partitions=1)
    with pytest.raises(ForeignState, match="is not the one that the state in"):
        process.open()
    assert not process.log.members(NAMES.streams_group)
    assert before == files(process.path)
    process.log = mine
    process.start()


def test_a_process_notes_which_of_two_ids_stays(process: Process) -> None:
    process.start()
    cluster = process.topology.configuration.cluster
    first = origin(process)
    assert first is not None
    assert cluster.id == first.cluster
    process.append(NAMES.config, b"cluster/main", codec.encode(replace(cluster, id="later")), partition=0)
    process.run(100)
    process.stop()
    assert replace(first, cluster="later") == origin(process)
    process.start()
