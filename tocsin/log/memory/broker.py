"""The in-memory log's one shared state: partitions, transactions, groups, and the lock over all of them."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tocsin.clock import Clock, FakeClock
from tocsin.log.memory.faults import Faults
from tocsin.log.memory.groups import Coordinator
from tocsin.log.memory.partition import Partition, Transaction
from tocsin.log.port import (
    GroupMetadata,
    LogUnavailable,
    OffsetCommit,
    ProducerFenced,
    TopicMismatch,
    TopicPartition,
    TopicSpec,
    TransactionAborted,
    UnknownTopic,
)

TRANSACTION_TIMEOUT_S: Final = 30.0
"""When the log aborts an open transaction on its own, and fences its producer (transaction.timeout.ms on Kafka)."""


@dataclass(slots=True, kw_only=True)
class Transactional:
    """A transactional id: whoever has the newest epoch may write."""

    epoch: int = 0
    open: Transaction | None = None


class Broker:
    """Every method but `locked` ones takes the lock; time-outs are applied on the way in."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.blocking = not isinstance(clock, FakeClock)
        self.changed = threading.Condition(threading.RLock())
        self.version = 0
        self.wakes = 0
        self.specs: dict[str, TopicSpec] = {}
        self.counts: dict[str, int] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.transactional: dict[str, Transactional] = {}
        self.coordinator = Coordinator(self.counts)
        self.faults = Faults(self)

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        with self.changed:
            wanted = list(specs)
            for spec in wanted:
                have = self.specs.get(spec.name)
                if have is not None and have != spec:
                    raise TopicMismatch(f"topic {spec.name} exists as {have}, not as {spec}")
                if spec.partitions < 1:
                    raise TopicMismatch(f"topic {spec.name}: partitions must be at least 1")
            for spec in wanted:
                if spec.name not in self.specs:
                    self.specs[spec.name] = spec
                    self.counts[spec.name] = spec.partitions
                    for number in range(spec.partitions):
                        where = TopicPartition(spec.name, number)
                        self.partitions[where] = Partition(where, spec)

    def partition(self, where: TopicPartition) -> Partition:
        try:
            return self.partitions[where]
        except KeyError:
            raise self._unknown(where) from None

    def count(self, topic: str) -> int:
        try:
            return self.counts[topic]
        except KeyError:
            raise UnknownTopic(f"topic {topic} does not exist: create it first") from None

    def _unknown(self, where: TopicPartition) -> UnknownTopic:
        count = self.count(where.topic)
        return UnknownTopic(f"topic {where.topic} has the partitions 0 to {count - 1}, not {where.partition}")

    # --- time -------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Apply what time has ended: member sessions and transactions. Call with the lock held, before any request."""
        now_s = self.clock.monotonic_s()
        self.coordinator.expire(now_s)
        for state in self.transactional.values():
            transaction = state.open
            if transaction is not None and now_s - transaction.begun_s > TRANSACTION_TIMEOUT_S:
                state.epoch += 1
                self.end_transaction(state, commit=False)

    def notify(self) -> None:
        """Something may have become readable. Call with the lock held."""
        self.version += 1
        self.changed.notify_all()

    def maintain(self) -> int:
        with self.changed:
            self.expire()
            now_ms = self.clock.now_ms()
            return sum(partition.maintain(now_ms) for partition in self.partitions.values())

    # --- transactions -----------------------------------------------------------------------------------------------

    def fence(self, transactional_id: str) -> int:
        """The next epoch of the id; what its earlier producer left open is aborted."""
        state = self.transactional.setdefault(transactional_id, Transactional())
        state.epoch += 1
        self.end_transaction(state, commit=False)
        return state.epoch

    def newest(self, transactional_id: str, epoch: int) -> Transactional:
        state = self.transactional[transactional_id]
        if state.epoch != epoch:
            raise ProducerFenced(
                f"a newer producer has the transactional id {transactional_id}, or the log ended its transaction "
                f"after {TRANSACTION_TIMEOUT_S:.0f} s: take over again"
            )
        return state

    def open_transaction(self, transactional_id: str, epoch: int, client: str) -> Transaction:
        state = self.newest(transactional_id, epoch)
        if state.open is None:
            state.open = Transaction(
                transactional_id=transactional_id, client=client, begun_s=self.clock.monotonic_s()
            )
        return state.open

    def send_offsets(
        self, transaction: Transaction, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata
    ) -> None:
        """The generation is checked now and not again at the commit, as Kafka does it."""
        self.coordinator.check(group.group, group.member, group.generation)
        transaction.offsets.setdefault(group.group, {}).update(offsets)

    def end_transaction(self, state: Transactional, *, commit: bool) -> None:
        transaction, state.open = state.open, None
        if transaction is None:
            return
        transaction.state = "committed" if commit else "aborted"
        now_ms = self.clock.now_ms()
        for where in transaction.last:
            self.partitions[where].close_transaction(transaction, now_ms)
        if commit:
            for group, offsets in transaction.offsets.items():
                self.coordinator.group(group).committed.update(offsets)
        self.notify()

    def aborted(self, transactional_id: str) -> TransactionAborted:
        return TransactionAborted(
            f"the transaction of {transactional_id} was aborted; nothing of it is visible: rewind and go on"
        )

    # --- committed offsets --------------------------------------------------------------------------------------------

    def committed(self, group: str, where: TopicPartition) -> OffsetCommit | None:
        """Raises LogUnavailable while an open transaction carries an offset of the partition (as a stable fetch does)."""
        for state in self.transactional.values():
            if state.open is not None and where in state.open.offsets.get(group, {}):
                raise LogUnavailable(
                    f"an open transaction of {state.open.transactional_id} carries an offset of group {group} for "
                    f"{where.topic}[{where.partition}]: ask again when it has ended"
                )
        return self.coordinator.group(group).committed.get(where)
