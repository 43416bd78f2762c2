"""Group members of the faulty log, with what they were told; shared by the tests of members and of logs."""

from collections.abc import Sequence

from tests.contract.rigs import MemoryRig
from tocsin.clock import FakeClock
from tocsin.log.port import EventLog, GroupConsumer, LogError, Record, TopicPartition, TransactionalProducer


class Member:
    """A group consumer of a client, with what its callbacks were told."""

    def __init__(self, log: EventLog, topic: str, client: str) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.answers: list[LogError | None] = []
        self.consumer: GroupConsumer = log.group_consumer("group", client_id=client)
        self.consumer.subscribe(
            topic,
            on_assign=lambda partitions: self._tell("assign", partitions),
            on_revoke=lambda partitions: self._tell("revoke", partitions),
            on_lost=lambda partitions: self._tell("lost", partitions),
        )

    def poll(self) -> list[Record]:
        return self.consumer.poll(10, 0)

    @property
    def owned(self) -> set[int]:
        return {where.partition for where in self.consumer.assigned()}

    def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, [where.partition for where in partitions]))


def clock_of(rig: MemoryRig) -> FakeClock:
    assert isinstance(rig.clock, FakeClock)
    return rig.clock


def let_pass(rig: MemoryRig, seconds: float, *polling: Member) -> None:
    """Time passes in steps of half a second; these members poll meanwhile."""
    for _ in range(int(seconds * 2)):
        clock_of(rig).advance(500)
        for member in polling:
            member.poll()


def pair(rig: MemoryRig, topic: str) -> tuple[Member, Member]:
    """Two members that share the topic."""
    one = Member(rig.process("one"), topic, "one")
    one.poll()
    two = Member(rig.process("two"), topic, "two")
    for _ in range(4):
        two.poll()
        one.poll()
    two.poll()
    assert (len(one.owned), len(two.owned)) == (1, 1)
    return one, two


def begun(log: EventLog, transactional_id: str = "streams-0") -> TransactionalProducer:
    producer = log.transactional_producer(transactional_id)
    producer.init()
    producer.begin()
    return producer
