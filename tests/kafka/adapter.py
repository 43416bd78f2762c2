"""What the tests of the adapter alone share: a log on the shared broker, topics of their own, a member that tells.

As a process: `python -m tests.kafka.adapter BOOTSTRAP GROUP TOPIC TRANSACTIONAL_ID` joins the group, leaves a transaction
open, and then says on standard output what its callbacks are told, and whether its commits are taken.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from tests.contract.rigs import KafkaRig
from tocsin.clock import SystemClock, new_id
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.port import GroupConsumer, LogError, OffsetCommit, TopicPartition


@contextmanager
def rig_on(bootstrap: str) -> Iterator[KafkaRig]:
    made = KafkaRig(bootstrap)
    try:
        yield made
    finally:
        made.close()


def admin(bootstrap: str) -> AdminClient:
    """For what an operator does, and Tocsin does not."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


class Telling:
    """A member that writes down what its callbacks were told."""

    def __init__(self, log: KafkaLog, topic: str, group: str, name: str = "member") -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.inside: Callable[[str, Sequence[TopicPartition]], None] = lambda *_: None
        """What it does inside of its callbacks."""
        self.consumer: GroupConsumer = log.group_consumer(group, client_id=name)
        self.consumer.subscribe(
            topic,
            on_assign=lambda partitions: self._tell("assign", partitions),
            on_revoke=lambda partitions: self._tell("revoke", partitions),
            on_lost=lambda partitions: self._tell("lost", partitions),
        )

    @property
    def owned(self) -> set[int]:
        return {where.partition for where in self.consumer.assigned()}

    def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, [where.partition for where in partitions]))
        self.inside(what, partitions)


def main() -> None:
    bootstrap, group, topic, transactional_id = sys.argv[1:]
    log = KafkaLog.open(KafkaConfig(bootstrap=bootstrap), SystemClock())
    member = Telling(log, topic, group, f"zombie-{new_id()[:6]}")
    producer = log.transactional_producer(transactional_id)
    producer.init()
    said = 0
    while not member.owned:
        member.consumer.poll(10, 0.1)
    before = member.consumer.metadata()
    producer.begin()
    producer.produce(topic, partition=0, key=b"k", value=b"of the zombie")
    while log.end_offset(TopicPartition(topic, 0), "uncommitted") == 0:
        pass  # until it stands in the log
    _say("open")
    while True:
        for what, partitions in member.told[said:]:
            _say(f"{what} {partitions}")
            if what == "lost":
                for attempt in (
                    member.consumer.metadata,
                    lambda: member.consumer.commit_sync({TopicPartition(topic, 0): OffsetCommit(0)}, 5.0),
                    lambda: producer.send_offsets({TopicPartition(topic, 0): OffsetCommit(0)}, before),
                    producer.commit,
                ):
                    try:
                        attempt()
                    except LogError as error:
                        _say(type(error).__name__)
                    else:
                        _say("accepted")
                _say("done")
        said = len(member.told)
        member.consumer.poll(10, 0.1)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
