"""A member of a group that sends no heartbeats: `python -m tests.kafka.member BOOTSTRAP GROUP TOPIC COMMIT_FOR_S`.

It says "joined", commits an unchanged offset every half second for COMMIT_FOR_S, says "done", and does nothing more.
"""

import sys
import threading

from confluent_kafka import Consumer, TopicPartition

from tocsin.clock import SystemClock

NEVER_MS = 2_000_000
"""Above 2,147,483 the interval overflows, and heartbeats are sent without pause."""
SESSION_MS = 6_000
COMMIT_EVERY_S = 0.5


def main() -> None:
    bootstrap, group, topic, commit_for_s = sys.argv[1:]
    clock = SystemClock()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": NEVER_MS,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    joined: list[TopicPartition] = []

    def on_assign(own: Consumer, partitions: list[TopicPartition]) -> None:
        own.incremental_assign(partitions)
        joined.extend(partitions)

    consumer.subscribe([topic], on_assign=on_assign)
    while not joined:
        consumer.poll(0.1)
    say("joined")
    end_s = clock.monotonic_s() + float(commit_for_s)
    while clock.monotonic_s() < end_s:
        consumer.poll(COMMIT_EVERY_S)
        [result] = consumer.commit(
            offsets=[TopicPartition(topic, joined[0].partition, 0)], asynchronous=False
        )
        if result.error is not None:
            raise SystemExit(f"the commit was refused: {result.error}")
    say("done")
    threading.Event().wait()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
