"""Taking over from a dead owner: who may still hold something open is fenced, and the first transaction says who is next."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event, get_ident
from typing import cast

import pytest

from tests.unit.streams.crowd import (
    Crowd,
    assert_nothing_is_lost_or_doubled,
    crowd_in,
    define_many,
    leave_open,
    open_records,
)
from tests.unit.streams.driver import NAMES
from tocsin.clock import FakeClock, SystemClock
from tocsin.log.memory import MemoryLog
from tocsin.log.memory.consumers import MemoryReader
from tocsin.log.memory.faults import CommitFault
from tocsin.log.port import (
    EventLog,
    Isolation,
    LogUnavailable,
    TopicPartition,
    TopicSpec,
    TransactionalProducer,
)
from tocsin.schemas import codec
from tocsin.schemas.records import Journal
from tocsin.streams.families import JOURNAL_KEY
from tocsin.streams.status import status_of
from tocsin.streams.store import StoreEnvironment
from tocsin.streams.takeover import JOURNAL_LOOK_BACK, Fences, newest_journals

PARTITIONS = 4
WITHIN_S = 30.0
FAULTS: tuple[CommitFault, ...] = ("aborted", "unknown_aborted", "unknown_committed", "fenced")


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


# --- the newest row


def journal_of(name: str, tick: int = 1, **fields: object) -> bytes:
    return codec.encode(Journal(tick=tick, now_ms=0, transactional_id=name, **fields))  # type: ignore[arg-type]


def journal_log() -> MemoryLog:
    log = MemoryLog(FakeClock())
    log.create_topics([TopicSpec(name=NAMES.journal, partitions=3)])
    return log


def append(log: EventLog, partition: int, *values: bytes | None) -> None:
    producer = log.producer()
    for value in values:
        producer.produce(NAMES.journal, key=None, value=value, partition=partition)
    producer.flush(1.0)


def names_in(found: dict[int, Journal | None]) -> dict[int, str]:
    return {number: "" if row is None else row.transactional_id for number, row in found.items()}


def test_the_newest_row_of_each_partition_is_found_with_one_reader() -> None:
    log = journal_log()
    made: list[Isolation] = []
    reader = log.reader

    def counted(isolation: Isolation = "committed") -> MemoryReader:
        made.append(isolation)
        return reader(isolation)

    log.reader = counted  # type: ignore[method-assign]
    append(log, 0, journal_of("a"), journal_of("b"))
    append(log, 2, journal_of("c"), journal_of("d", released=True))
    assert {0: "b", 1: "", 2: "d"} == names_in(newest_journals(log, NAMES, [0, 1, 2]))
    assert ["uncommitted"] == made


def test_a_row_of_an_open_transaction_counts_and_one_of_an_aborted_one_too() -> None:
    """Of an aborted one it does no harm: who wrote it is fenced once more."""
    log = journal_log()
    append(log, 0, journal_of("a"))
    append(log, 1, journal_of("a"))
    for partition, name in ((0, "open"), (1, "aborted")):
        producer = log.transactional_producer(name)
        producer.init()
        producer.begin()
        producer.produce(NAMES.journal, partition=partition, key=None, value=journal_of(name))
        if name == "aborted":
            producer.abort()
    assert {0: "open", 1: "aborted"} == names_in(newest_journals(log, NAMES, [0, 1]))


def test_a_row_far_behind_the_end_is_found() -> None:
    log = journal_log()
    append(log, 0, journal_of("old"), *[b"nonsense"] * (10 * JOURNAL_LOOK_BACK))
    append(log, 1, *[b"nonsense"] * (10 * JOURNAL_LOOK_BACK))
    append(log, 2, journal_of("new"))
    assert {0: "old", 1: "", 2: "new"} == names_in(newest_journals(log, NAMES, [0, 1, 2]))


def test_rows_that_retention_took_name_nobody() -> None:
    clock = FakeClock()
    log = MemoryLog(clock)
    log.create_topics([TopicSpec(name=NAMES.journal, partitions=2, retention_ms=1_000)])
    append(log, 0, journal_of("gone"))
    append(log, 1, journal_of("gone"), journal_of("gone"))
    clock.advance(5_000)
    log.run_maintenance_once()
    append(log, 1, journal_of("kept"))
    assert {0: "", 1: "kept"} == names_in(newest_journals(log, NAMES, [0, 1]))


# --- fencing


def test_one_that_left_several_partitions_is_fenced_once(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    before = crowd.epoch("s0")
    crowd.kill("s0")
    crowd.enter("s1")
    crowd.settle()
    assert before + 1 == crowd.epoch("s0")
    crowd.run(2_000)
    assert_nothing_is_lost_or_doubled(crowd)


def test_each_of_several_dead_owners_is_fenced(crowd: Crowd) -> None:
    for name in ("s0", "s1"):
        crowd.enter(name)
        crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    for name in ("s0", "s1"):
        leave_open(crowd, name)
    before = [crowd.epoch(name) for name in ("s0", "s1")]
    crowd.enter("s2")
    crowd.settle()
    assert [epoch + 1 for epoch in before] == [crowd.epoch(name) for name in ("s0", "s1")]
    assert not open_records(crowd)
    crowd.run(2_000)
    assert_nothing_is_lost_or_doubled(crowd)


def test_several_are_fenced_beside_each_other_and_nobody_waits_for_that() -> None:
    log = MemoryLog(SystemClock())
    go, woken = Event(), Event()
    threads: list[int] = []

    class Slow:
        def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
            threads.append(get_ident())
            assert go.wait(WITHIN_S)
            return log.transactional_producer(transactional_id)

        def wake(self) -> None:
            woken.set()

    fences = Fences(cast(EventLog, Slow()), threads=True)
    for name in ("a", "b", "a"):
        fences.begin(name)
    assert not fences.done("a")
    go.set()
    while not (fences.done("a") and fences.done("b")):
        assert woken.wait(WITHIN_S)
        woken.clear()
    assert 2 == len(set(threads))
    assert get_ident() not in threads
    assert {"a": 1, "b": 1} == {name: state.epoch for name, state in log.broker.transactional.items()}


def test_one_that_could_not_be_fenced_is_tried_again() -> None:
    log = MemoryLog(FakeClock())
    log.faults.cut("main")
    fences = Fences(log, threads=False)
    fences.begin("a")
    with pytest.raises(LogUnavailable, match="a could not be fenced"):
        fences.done("a")
    log.faults.heal("main")
    fences.begin("a")
    assert fences.done("a")


def test_while_former_owners_are_fenced_the_partitions_say_so(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    crowd.kill("s0")
    topology = crowd.enter("s1")
    fences = topology.holdings.handovers._fences
    begin = fences.begin
    asked: list[str] = []
    fences.begin = asked.append  # type: ignore[method-assign, assignment]
    crowd.run(8_000)
    assert ["tocsin.streams.s0"] == asked
    status = status_of(topology)
    assert ["fencing"] * PARTITIONS == [each.stage for each in status.owned]
    assert "restoring 4 of 4 partitions" in status.summary
    assert "fenced" in status.summary
    begin("tocsin.streams.s0")
    crowd.settle()
    assert ["working"] * PARTITIONS == [each.stage for each in status_of(topology).owned]
    assert "" == status_of(topology).summary


# --- the first transaction


def first_transaction(
    crowd: Crowd, name: str, partitions: Iterable[int] = range(PARTITIONS)
) -> list[tuple[str, bytes | None]]:
    """Topic and key of what the process's first transaction wrote into these partitions."""
    mine = f"{NAMES.streams_group}.{name}"
    found = [
        (each.record.timestamp_ms, where.topic, each.record.key)
        for where, records in crowd.log.snapshot().items()
        for each in records
        if each.transactional_id == mine and each.state == "committed" and each.record.value is not None
        if where.partition in partitions
    ]
    first_ms = min(at for at, _, _ in found)
    return [(topic, key) for at, topic, key in found if at == first_ms]


def test_the_first_transaction_holds_nothing_but_own_journal_rows_though_much_is_due(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(3_000)
    crowd.kill("s0")
    crowd.run(20_000)  # much has become due
    crowd.enter("s1")
    crowd.settle()
    crowd.run(1_000)
    found = first_transaction(crowd, "s1")
    assert {(NAMES.journal, None), (NAMES.state, JOURNAL_KEY)} == set(found)
    assert 2 * PARTITIONS == len(found)
    assert_nothing_is_lost_or_doubled(crowd)


def test_what_is_kept_meanwhile_says_nothing_in_the_name_of_what_was_taken(crowd: Crowd) -> None:
    for name in ("s0", "s1"):
        crowd.enter(name)
        crowd.settle()
    define_many(crowd)
    crowd.run(3_000)
    taken = crowd.owned("s0")
    assert taken
    assert crowd.owned("s1")
    crowd.kill("s0")
    crowd.settle()
    crowd.run(2_000)
    assert {(NAMES.journal, None), (NAMES.state, JOURNAL_KEY)} == set(first_transaction(crowd, "s1", taken))
    assert_nothing_is_lost_or_doubled(crowd)


def test_no_tick_comes_before_the_first_row_stands(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(3_000)
    crowd.kill("s0")
    topology = crowd.enter("s1")
    for fault in FAULTS:
        crowd.log.faults.fail_next_commit(fault, "s1")
    crowd.settle(60_000)
    crowd.run(2_000)
    rows = {
        number: [
            row
            for each in crowd.log.records(NAMES.journal, number)
            if each.state == "committed"
            and isinstance(row := codec.decode(each.record.value or b""), Journal)
            and row.transactional_id.endswith(".s1")
        ]
        for number in range(PARTITIONS)
    }
    for number, own in rows.items():
        assert (0, 0) == (own[0].effects, own[0].digest), number
    assert "" == topology.log_trouble
    assert_nothing_is_lost_or_doubled(crowd)


# --- two hand-overs


@pytest.mark.parametrize(
    "second_dies", ["before its first", "in its first", "after its first", "in its second"]
)
def test_whoever_holds_something_open_after_two_handovers_is_fenced(crowd: Crowd, second_dies: str) -> None:
    """The newest row names it, also if the second owner died around its first transaction."""
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    leave_open(crowd, "s0")
    second = crowd.enter("s1")
    claims = 0

    def claimed() -> int:
        return sum(
            isinstance(row := codec.decode(each.record.value or b""), Journal)
            and row.transactional_id.endswith(".s1")
            for number in range(PARTITIONS)
            for each in crowd.log.records(NAMES.journal, number)
            if each.state == "committed" and each.record.value
        )

    if second_dies == "before its first":
        second.holdings.restore = lambda rebuild: False  # type: ignore[method-assign]
    if second_dies == "in its first":
        crowd.log.faults.fail_next_commit("unknown_aborted", "s1")
    for _ in range(800):
        crowd.step(25)
        claims = claimed()
        if second_dies == "before its first" and second.partitions:
            break
        if second_dies == "in its first" and second.transactions.in_doubt:
            break
        if claims:
            break
    if second_dies == "in its second":
        leave_open(crowd, "s1")
    else:
        crowd.kill("s1")
    assert bool(claims) == (second_dies in ("after its first", "in its second"))
    crowd.enter("s2")
    crowd.settle()
    assert not open_records(crowd)
    crowd.run(3_000)
    assert_nothing_is_lost_or_doubled(crowd)


def test_a_restore_behind_a_transaction_that_nobody_had_named_yet_looks_again_and_is_no_busy_loop(
    crowd: Crowd,
) -> None:
    """Somebody who lost the partition before he had written to it thaws, writes, and freezes again."""
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    crowd.kill("s0")
    topology = crowd.enter("s2")
    restore = topology.holdings.restore
    late = crowd.log.transactional_producer("tocsin.streams.s1")
    late.init()

    def first(rebuild: object) -> bool:
        if not topology.partitions:
            return restore(rebuild)  # type: ignore[arg-type]
        topology.holdings.restore = restore  # type: ignore[method-assign]
        late.begin()
        for number in range(PARTITIONS):
            late.produce(NAMES.journal, partition=number, key=None, value=journal_of("tocsin.streams.s1"))
            late.produce(
                NAMES.state, partition=number, key=JOURNAL_KEY, value=journal_of("tocsin.streams.s1")
            )
        return restore(rebuild)  # type: ignore[arg-type]

    topology.holdings.restore = first  # type: ignore[method-assign]
    while not topology.partitions:
        crowd.step(25)
    waits, idle = [], 0
    began_ms = crowd.now_ms
    while crowd.owned("s2") != set(range(PARTITIONS)):
        done = crowd.living["s2"].run_once()
        waits.append(topology.wait_s())
        idle += not done.more
        crowd.clock.advance(50)
        assert crowd.now_ms - began_ms < 20_000
    assert crowd.now_ms - began_ms < 5_000  # not the 30 s after which the log ends a transaction
    assert idle > 10
    assert all(wait_s >= 0.04 for wait_s in waits[3:-3])
    crowd.run(2_000)
    assert_nothing_is_lost_or_doubled(crowd)


def test_the_ends_of_all_that_is_restored_are_asked_for_together(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    crowd.run(1_000)
    crowd.kill("s0")
    log = crowd.log.client("s1")
    asked: list[list[TopicPartition]] = []
    ends = log.end_offsets

    def counted(partitions: object, isolation: object) -> object:
        asked.append(list(partitions))  # type: ignore[call-overload]
        return ends(asked[-1], isolation)  # type: ignore[arg-type]

    log.end_offsets = counted  # type: ignore[method-assign, assignment]
    crowd.enter("s1", log=log)
    crowd.settle()
    topics = [sorted({where.topic for where in each}) for each in asked]
    topics = [each for each in topics if each != [NAMES.config]]
    assert [[NAMES.journal], [NAMES.runs, NAMES.state]] == topics
