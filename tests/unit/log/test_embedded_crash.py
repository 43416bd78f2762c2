"""kill -9: every acknowledged transaction is whole, and no part of another one is visible."""

import itertools
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import Record, TopicPartition

PARTITIONS = 3
WRITERS = 3

# Three threads write transactions of one record to each partition and one committed offset, a fourth writes plain
# records; each prints what the log has acknowledged, and only that.
WRITER = """
import sys, threading
from pathlib import Path
from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import OffsetCommit, TopicPartition, TopicSpec

PARTITIONS, WRITERS = 3, 3
log = EmbeddedLog.open(Path(sys.argv[1]), SystemClock(), maintenance_interval_s=0.01)
log.create_topics([
    TopicSpec(name="runs", partitions=PARTITIONS),
    TopicSpec(name="state", partitions=1, cleanup="compact"),
    TopicSpec(name="plain", partitions=1),
])
ignore = lambda partitions: None
member = log.group_consumer("streams", client_id="streams")
member.subscribe("plain", on_assign=ignore, on_revoke=ignore, on_lost=ignore)
member.poll(1, 0)
round_ = int(sys.argv[2])
told = threading.Lock()

def tell(*words):
    with told:
        print(*words, flush=True)

def transactions(writer):
    producer = log.transactional_producer(f"writer-{writer}")
    producer.init()
    number = round_ * 1_000_000
    while True:
        number += 1
        producer.begin()
        for partition in range(PARTITIONS):
            producer.produce("runs", partition=partition, key=b"%d" % writer, value=b"%d" % number * (1 + number % 300))
        producer.produce("state", partition=0, key=b"%d" % writer, value=b"%d" % number)
        producer.send_offsets({TopicPartition("runs", writer): OffsetCommit(number)}, member.metadata())
        producer.commit()
        tell("transaction", writer, number)

def plain():
    producer = log.producer()
    number = round_ * 1_000_000
    while True:
        number += 1
        producer.produce("plain", key=b"k", value=b"%d" % number)
        assert producer.flush(60) == 0
        tell("plain", 0, number)

threads = [threading.Thread(target=transactions, args=(writer,)) for writer in range(WRITERS)]
threads.append(threading.Thread(target=plain))
for thread in threads:
    thread.start()
"""


def _write_until_killed(
    directory: Path, round_: int, acknowledged: dict[tuple[str, int], int], count: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(round_)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        for lines, line in enumerate(process.stdout, start=1):
            if lines == count:
                process.kill()
            # What is still in the pipe was acknowledged, too; the last line may be torn.
            if line.endswith("\n"):
                kind, writer, number = line.split()
                acknowledged[kind, int(writer)] = int(number)
        assert process.wait() == -9


def _all(log: EmbeddedLog, topic: str, partition: int) -> list[Record]:
    where = TopicPartition(topic, partition)
    reader = log.reader()
    reader.assign({where: log.begin_offset(where)})
    records: list[Record] = []
    while page := reader.poll(10_000, 0):
        records += page
    return records


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_after_a_kill_every_acknowledged_transaction_is_whole(tmp_path: Path, rounds: int) -> None:
    chance = random.Random(rounds)
    directory = tmp_path / "log"
    acknowledged: dict[tuple[str, int], int] = {}
    for round_ in range(rounds):
        _write_until_killed(directory, round_, acknowledged, chance.randint(1, 1_500))
        with EmbeddedLog.open(directory, SystemClock(), maintenance_interval_s=None) as log:
            _check(log, acknowledged)
            if round_ % 3 == 2:
                log.run_maintenance_once()
                _check(log, acknowledged)


def _check(log: EmbeddedLog, acknowledged: dict[tuple[str, int], int]) -> None:
    found: dict[int, list[list[int]]] = defaultdict(list)
    for partition in range(PARTITIONS):
        by_writer: dict[int, list[int]] = {writer: [] for writer in range(WRITERS)}
        for record in _all(log, "runs", partition):
            by_writer[int(record.key or b"")].append(_number(record))
        for writer, numbers in by_writer.items():
            found[writer].append(numbers)
    state = {int(record.key or b""): int(record.value or b"") for record in _all(log, "state", 0)}
    for writer, partitions in found.items():
        first, *others = partitions
        assert all(other == first for other in others), "a transaction is in all of its partitions or in none"
        assert sorted(set(first)) == first, "each once, in order"
        assert _none_missing(first)
        last = first[-1] if first else 0
        assert last >= acknowledged.get(("transaction", writer), 0), "what was acknowledged is there"
        committed = log.groups.committed("streams", log.partition(TopicPartition("runs", writer)))
        assert last == (committed.offset if committed else 0), (
            "and so are the offsets of the same transactions"
        )
        assert last == state.get(writer, 0)
    plain = [int(record.value or b"") for record in _all(log, "plain", 0)]
    assert _none_missing(plain)
    assert (plain[-1] if plain else 0) >= acknowledged.get(("plain", 0), 0)


def _number(record: Record) -> int:
    """The value is the number, repeated 1 + number % 300 times."""
    text = record.value or b""
    for digits in range(1, 9):
        number = int(text[:digits])
        if text == b"%d" % number * (1 + number % 300):
            return number
    raise AssertionError(f"a torn record: {text[:40]!r}")


def _none_missing(numbers: list[int]) -> bool:
    """Within each round, the numbers go up by one from 1."""
    starts = [number for number in numbers if number % 1_000_000 == 1]
    return len(numbers) - len(starts) == sum(
        later == earlier + 1 for earlier, later in itertools.pairwise(numbers)
    )
