"""The bytes that the embedded log stores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.log.embedded.framing import (
    decode,
    encode,
    group_row,
    horizon_key,
    key_and_liveness,
    offset_of,
    read_group_row,
    read_horizon_key,
    read_topic_row,
    record_key,
    timestamp_of,
    topic_row,
)
from tocsin.log.port import Headers, LogCorrupt, OffsetCommit, Record, TopicSpec

OFFSETS = st.integers(0, 2**63 - 1)
BYTES = st.binary(max_size=50)
HEADERS: st.SearchStrategy[Headers] = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=4).map(tuple)


@given(OFFSETS, st.none() | BYTES, st.none() | BYTES, HEADERS)
def test_a_record_is_decoded_as_it_was_encoded(
    timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    data = encode(timestamp_ms, key, value, headers)
    assert Record("t", 3, 7, timestamp_ms, key, value, headers) == decode("t", 3, 7, data)
    assert timestamp_ms == timestamp_of(data)
    assert (key or b"", value is not None) == key_and_liveness(data)


def test_a_record_costs_thirteen_bytes_more_than_its_content() -> None:
    assert len(encode(1_767_225_600_000, b"key", b"value", ())) == 13 + 3 + 5


@pytest.mark.parametrize("data", [b"", b"\x10", b"\x23" + bytes(20), b"\x00" * 20])
def test_what_no_layout_has_is_corrupt(data: bytes) -> None:
    with pytest.raises(LogCorrupt, match="layout"):
        decode("t", 0, 0, data)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), OFFSETS), min_size=2))
def test_keys_sort_as_topic_partition_and_offset(places: list[tuple[int, int, int]]) -> None:
    assert sorted(record_key(*place) for place in places) == [record_key(*place) for place in sorted(places)]
    assert [place[2] for place in places] == [offset_of(record_key(*place)) for place in places]


@given(st.text(min_size=1, max_size=40), st.integers(0, 65_535), OFFSETS, st.text(max_size=40))
def test_a_committed_offset_is_read_as_it_was_written(
    group: str, partition: int, offset: int, metadata: str
) -> None:
    commit = OffsetCommit(offset, metadata)
    assert (group, 9, partition, commit) == read_group_row(*group_row(group, 9, partition, commit))


def test_a_topic_is_read_as_it_was_written() -> None:
    spec = TopicSpec(name="tocsin.jobs", partitions=4, cleanup="compact", min_compaction_lag_ms=5)
    key, value = topic_row(spec, 12)
    assert key == b"ttocsin.jobs"
    assert (spec, 12) == read_topic_row(value)


def test_a_setting_of_a_later_version_is_left_alone() -> None:
    _, value = topic_row(TopicSpec(name="t", partitions=1), 1)
    assert (TopicSpec(name="t", partitions=1), 1) == read_topic_row(value.replace(b"{", b'{"new": true, ', 1))


@given(OFFSETS, OFFSETS)
def test_the_end_of_a_tombstone_is_read_as_it_was_written(horizon_ms: int, offset: int) -> None:
    assert (horizon_ms, offset) == read_horizon_key(horizon_key(1, 2, horizon_ms, offset))
