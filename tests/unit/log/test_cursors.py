"""Cursors, over a log that is a dictionary."""

import pytest

from tocsin.log.cursors import Cursors
from tocsin.log.port import OffsetOutOfRange, Record, TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


class _Source:
    def __init__(self, counts: dict[TopicPartition, int]) -> None:
        self.counts = counts
        self.fetched: list[TopicPartition] = []

    def fetch(self, where: TopicPartition, offset: int, max_records: int) -> tuple[list[Record], int]:
        self.fetched.append(where)
        if offset > self.counts[where]:
            raise OffsetOutOfRange(str(where))
        stop = min(offset + max_records, self.counts[where])
        return [Record(*where, at, 0, None, None) for at in range(offset, stop)], stop


def _taken(cursors: Cursors, max_records: int) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in cursors.take(max_records)]


def test_whoever_was_cut_short_comes_last() -> None:
    cursors = Cursors(_Source({A: 3, B: 3, C: 3}).fetch)
    cursors.assign({A: 0, B: 0, C: 0})
    assert _taken(cursors, 2) == [(0, 0), (0, 1)]
    assert _taken(cursors, 4) == [(1, 0), (1, 1), (1, 2), (2, 0)]
    assert _taken(cursors, 9) == [(0, 2), (2, 1), (2, 2)]
    assert _taken(cursors, 9) == []


def test_a_full_take_asks_nobody_else() -> None:
    source = _Source({A: 3, B: 3})
    cursors = Cursors(source.fetch)
    cursors.assign({A: 0, B: 0})
    cursors.take(3)
    assert source.fetched == [A]


def test_a_paused_partition_is_not_asked() -> None:
    source = _Source({A: 3, B: 3})
    cursors = Cursors(source.fetch)
    cursors.assign({A: 0, B: 0})
    cursors.pause([A, C])
    assert _taken(cursors, 9) == [(1, 0), (1, 1), (1, 2)]
    assert not cursors.is_ready()
    cursors.resume([A])
    assert cursors.is_ready()
    assert _taken(cursors, 9) == [(0, 0), (0, 1), (0, 2)]
    assert not cursors.is_ready()


def test_an_offset_out_of_range_is_raised_again_until_it_is_sought() -> None:
    cursors = Cursors(_Source({A: 3}).fetch)
    cursors.assign({A: 4})
    assert cursors.is_ready()
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            cursors.take(1)
    cursors.seek(A, 2)
    assert _taken(cursors, 9) == [(0, 2)]


def test_looking_moves_nothing() -> None:
    cursors = Cursors(_Source({A: 3}).fetch)
    cursors.assign({A: 1})
    assert cursors.is_ready()
    assert cursors.position(A) == 1


def test_what_is_not_assigned_cannot_be_sought() -> None:
    cursors = Cursors(_Source({A: 3}).fetch)
    cursors.remove(A)
    with pytest.raises(LookupError, match=r"t\[0\]"):
        cursors.seek(A, 0)
