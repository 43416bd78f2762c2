"""A partition's owner on a log in memory, and stores that are restored from it."""

from pathlib import Path

from tests.unit.streams.rows import Busy, environment
from tocsin.clock import FakeClock
from tocsin.log.memory import MemoryLog
from tocsin.log.port import EventLog, TopicPartition, TopicSpec
from tocsin.schemas.codec import encode
from tocsin.schemas.job import JobKey
from tocsin.schemas.records import Journal
from tocsin.streams.families import (
    COLUMN_FAMILIES,
    JOURNAL_KEY,
    META,
)
from tocsin.streams.restore import Restore
from tocsin.streams.store import PartitionStore, Position, View

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
STATE_TOPIC = TopicPartition("state", 0)
RUNS_TOPIC = TopicPartition("runs", 0)
A = JobKey("shop/a")


class Owner:
    """What owns the partition: a view, and a producer for what it changes, as the loop commits it."""

    def __init__(self, log: EventLog, store: PartitionStore, *, seed: int = 0, tick: int = 0) -> None:
        self.store = store
        self.view: View = store.view(check=True)
        self.busy = Busy(seed)
        self.tick = tick
        self._producer = log.transactional_producer("owner")
        self._producer.init()

    def commit(self, events: tuple[object, ...] = (), *, abort: bool = False) -> None:
        producer, view = self._producer, self.view
        self.tick += 1
        journal = encode(Journal(tick=self.tick, now_ms=0, transactional_id="owner"))
        producer.begin()
        for key, value in view.changes():
            producer.produce("state", partition=0, key=key, value=value)
        producer.produce("state", partition=0, key=JOURNAL_KEY, value=journal)
        for event in events:
            producer.produce("runs", partition=0, key=event.run_id.encode(), value=encode(event))  # type: ignore[attr-defined, arg-type]
        if abort:
            producer.abort()
            view.rollback()
            return
        last = producer.commit().last
        offset, time_ms = last[STATE_TOPIC]
        runs = last.get(RUNS_TOPIC)
        view.commit(
            Position(
                journal=journal,
                changelog_offset=offset + 1,
                changelog_time_ms=time_ms,
                runs_offset=-1 if runs is None else runs[0] + 1,
            )
        )

    def work(self, commits: int, clock: FakeClock, *, abort_every: int = 5) -> None:
        for n in range(commits):
            events = self.busy.work(self.view, 30)
            self.commit(tuple(events), abort=n % abort_every == abort_every - 1)
            clock.advance(1_000)


class Shelf:
    """Stores by name; closed at the end of the test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._environment = environment()
        self._open: list[PartitionStore] = []

    def __call__(self, name: str) -> PartitionStore:
        store = PartitionStore.open(self._path / name, self._environment)
        self._open.append(store)
        return store

    def close(self) -> None:
        for store in self._open:
            store.close()


def log_of(clock: FakeClock) -> MemoryLog:
    made = MemoryLog(clock)
    made.create_topics(
        [
            TopicSpec(name="state", partitions=1, cleanup="compact", delete_retention_ms=RETENTION_MS),
            TopicSpec(name="runs", partitions=1, cleanup="compact,delete", retention_ms=30 * DAY_MS),
        ]
    )
    return made


def restore_of(store: PartitionStore, log: EventLog, clock: FakeClock) -> Restore:
    return Restore(
        store,
        log,
        clock,
        partition=0,
        state_topic="state",
        runs_topic="runs",
        delete_retention_ms=RETENTION_MS,
    )


def restored(store: PartitionStore, log: EventLog, clock: FakeClock, max_records: int = 2_000) -> Restore:
    restore = restore_of(store, log, clock)
    for _ in range(100_000):
        if restore.done:
            restore.close()
            return restore
        restore.step(max_records, 0.0)
    raise AssertionError(f"not done: {restore.progress()}")


def owner_of_an_empty_log(shelf: Shelf, log: EventLog, clock: FakeClock, seed: int = 0) -> Owner:
    store = shelf("original")
    restored(store, log, clock)
    return Owner(log, store, seed=seed)


def contents(store: PartitionStore) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: list(store.database.items(name)) for name in COLUMN_FAMILIES if name != META}


def assert_equal_stores(expected: PartitionStore, found: PartitionStore) -> None:
    assert contents(expected) == contents(found)
    assert expected.meta.counts == found.meta.counts
    assert expected.meta.journal == found.meta.journal
    assert [] == expected.verify()
    assert [] == found.verify()
