"""Fetching: what becomes of messages of librdkafka, in every order in which they may come. Against a scripted consumer."""

from collections import deque
from typing import Any, cast

import confluent_kafka as ck
import pytest
from confluent_kafka import KafkaError

from tocsin.clock import FakeClock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.fetching import UNRESOLVED, Fetching
from tocsin.log.port import LogCorrupt, LogUnavailable, OffsetOutOfRange, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Scripted:
    """What a librdkafka consumer would do: hands out the messages it was given, and notes what it was told."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.told: list[tuple[str, list[tuple[int, int]]]] = []

    def consume(self, count: int, timeout: float) -> list[Any]:
        return [self.queue.popleft() for _ in range(min(count, len(self.queue)))]

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self.told.append(("assign", [(p.partition, p.offset) for p in partitions]))

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self.told.append(("unassign", [(p.partition, -1) for p in partitions]))

    def has(self, where: TopicPartition, *offsets: int) -> None:
        for offset in offsets:
            self.queue.append(
                ck.Message(
                    topic=where.topic,
                    partition=where.partition,
                    offset=offset,
                    value=b"%d" % offset,
                    timestamp=(2, 7),
                )
            )

    def says(self, where: TopicPartition, code: int, offset: int = -1) -> None:
        self.queue.append(
            ck.Message(
                topic=where.topic, partition=where.partition, offset=offset, error=KafkaError(code, "said")
            )
        )


def _made(**options: Any) -> tuple[Scripted, Fetching]:
    consumer, clock = Scripted(), FakeClock()
    return consumer, Fetching(
        cast("ck.Consumer", consumer), clock, Troubles("here:1", clock.monotonic_s), **options
    )


def _offsets(fetching: Fetching, count: int = 10) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in fetching.poll(count, 0)]


def test_partitions_are_assigned_with_the_next_read_at_their_offsets() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 5, B: 0})
    assert consumer.told == []
    consumer.has(A, 5, 6)
    assert [(0, 5), (0, 6)] == _offsets(fetching)
    assert [("assign", [(0, 5), (1, 0)])] == consumer.told
    assert (7, 0) == (fetching.standing(A).position, fetching.standing(B).position)


def test_several_seeks_before_a_read_are_one() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    fetching.apply()
    for offset in (9, 3, 4):
        fetching.seek(A, offset)
        assert offset == fetching.standing(A).position
    fetching.apply()
    assert [("assign", [(0, 0)]), ("unassign", [(0, -1)]), ("assign", [(0, 4)])] == consumer.told


def test_what_was_read_ahead_of_a_seek_does_not_come_after_it() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0, B: 0})
    consumer.has(A, 0, 1, 2)
    consumer.has(B, 0)
    fetching.apply()
    for _ in range(4):
        fetching.look(0)
    fetching.seek(A, 1)
    assert [(1, 0)] == _offsets(fetching)
    consumer.has(A, 1)
    assert [(0, 1)] == _offsets(fetching)


def test_what_is_read_while_a_seek_waits_for_callbacks_does_not_come_after_it() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    fetching.apply()
    fetching.held = True  # a rebalance waits for our callbacks; one of them seeks, another commits and looks
    fetching.seek(A, 10)
    consumer.has(A, 100)
    fetching.look(0)
    fetching.apply()
    assert len(consumer.told) == 1
    fetching.held = False
    assert _offsets(fetching) == []
    consumer.has(A, 10)
    assert [(0, 10)] == _offsets(fetching)


def test_what_is_read_before_callbacks_gave_a_partition_anew_is_dropped() -> None:
    served: list[bool] = []

    def serve() -> bool:
        served.append(True)
        if len(served) == 2:  # after the records were taken
            fetching.add(A, 3)
            return True
        return False

    consumer, fetching = _made(serve=serve)
    fetching.assign({A: 0, B: 0})
    consumer.has(A, 0)
    consumer.has(B, 0)
    assert [(1, 0)] == _offsets(fetching)
    assert fetching.standing(A).position == 3


def test_the_end_of_a_partition_moves_the_position_past_what_is_not_shown() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    consumer.has(A, 0)
    consumer.says(A, codes.PARTITION_EOF, 3)
    assert [(0, 0)] == _offsets(fetching)
    assert fetching.standing(A).position == 3
    consumer.says(A, codes.PARTITION_EOF, 3)
    assert not fetching.is_ready(0)
    consumer.says(A, codes.PARTITION_EOF, 5)
    assert fetching.is_ready(0)
    assert _offsets(fetching) == []
    assert fetching.standing(A).position == 5


def test_a_paused_partition_is_given_back_and_goes_on_where_it_was() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    consumer.has(A, 0, 1)
    assert [(0, 0)] == _offsets(fetching, 1)
    fetching.pause([A])
    assert _offsets(fetching) == []
    fetching.resume([A])
    consumer.has(A, 1)
    assert [(0, 1)] == _offsets(fetching)
    assert [("assign", [(0, 0)]), ("unassign", [(0, -1)]), ("assign", [(0, 1)])] == consumer.told


def test_a_partition_whose_offset_is_not_known_yet_is_not_read() -> None:
    consumer, fetching = _made()
    fetching.add(A, UNRESOLVED)
    assert _offsets(fetching) == []
    assert consumer.told == []
    fetching.resolve(fetching.standing(A), 4)
    fetching.apply()
    assert [("assign", [(0, 4)])] == consumer.told


def test_an_offset_out_of_range_takes_turns_with_the_records_of_others() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 100, B: 0})
    consumer.has(B, 0)
    consumer.says(A, codes.AUTO_OFFSET_RESET)
    consumer.has(B, 1)
    assert [(1, 0), (1, 1)] == _offsets(fetching)
    consumer.has(B, 2)
    with pytest.raises(OffsetOutOfRange, match=r"t\[0\] has no offset 100"):
        fetching.poll(10, 0)
    assert [(1, 2)] == _offsets(fetching)
    with pytest.raises(OffsetOutOfRange):
        fetching.poll(10, 0)
    fetching.seek(A, 0)
    consumer.has(A, 0)
    assert [(0, 0)] == _offsets(fetching)


def test_an_offset_that_nobody_sought_may_be_looked_up_again() -> None:
    consumer, fetching = _made(out_of_range=lambda standing: not standing.sought)
    fetching.add(A, UNRESOLVED)
    fetching.resolve(fetching.standing(A), 1)
    fetching.apply()
    consumer.says(A, codes.AUTO_OFFSET_RESET)
    assert _offsets(fetching) == []


def test_what_librdkafka_mends_by_itself_is_not_told_and_the_rest_is_after_the_records() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    consumer.says(A, codes.TRANSPORT)
    consumer.has(A, 0)
    assert [(0, 0)] == _offsets(fetching)
    consumer.says(A, codes.BAD_MSG)
    consumer.has(A, 1)
    assert [(0, 1)] == _offsets(fetching)
    with pytest.raises(LogCorrupt, match=r"read t\[0\] at 1"):
        fetching.poll(10, 0)
    assert _offsets(fetching) == []


def test_an_error_of_the_broker_that_nobody_knows_is_a_log_that_is_unavailable() -> None:
    consumer, fetching = _made()
    fetching.assign({A: 0})
    consumer.says(A, KafkaError.KAFKA_STORAGE_ERROR)
    with pytest.raises(LogUnavailable, match="is a broker running at here:1"):
        fetching.poll(10, 0)
