"""What time does to a log: retention, and compaction by key."""

import pytest

from tests.contract.rigs import PATIENCE_S, Rig, everything, take, values
from tocsin.log.port import OffsetCommit, OffsetOutOfRange, Record, TopicPartition

MINUTE_MS = 60_000


def _pairs(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


# --- retention --------------------------------------------------------------------------------------------------------


def test_records_older_than_the_retention_go_and_the_begin_follows(ageing: Rig) -> None:
    topic = ageing.topic(retention_ms=10 * MINUTE_MS)
    where = TopicPartition(topic, 0)
    ageing.put(topic, b"1", b"2")
    ageing.age(6 * MINUTE_MS)
    (kept,) = ageing.put(topic, b"3")
    assert ageing.log.begin_offset(where) == 0
    ageing.age(5 * MINUTE_MS)
    assert kept.offset == ageing.log.begin_offset(where)
    assert [b"3"] == values(everything(ageing.log, topic))


def test_a_topic_without_retention_keeps_everything(ageing: Rig) -> None:
    topic = ageing.topic()
    ageing.put(topic, b"1")
    ageing.age(10_000 * MINUTE_MS)
    assert [b"1"] == values(everything(ageing.log, topic))


def test_offsets_go_on_after_everything_has_gone(ageing: Rig) -> None:
    topic = ageing.topic(retention_ms=MINUTE_MS)
    where = TopicPartition(topic, 0)
    *_, last = ageing.put(topic, b"1", b"2", b"3")
    ageing.age(2 * MINUTE_MS)
    assert last.offset + 1 == ageing.log.begin_offset(where)
    assert last.offset + 1 == ageing.log.end_offset(where, "committed")
    ageing.restart()
    (next_one,) = ageing.put(topic, b"4")
    assert last.offset + 1 == next_one.offset
    assert last.timestamp_ms < next_one.timestamp_ms


def test_reading_below_the_begin_is_out_of_range(ageing: Rig) -> None:
    topic = ageing.topic(retention_ms=MINUTE_MS)
    where = TopicPartition(topic, 0)
    reader = ageing.log.reader()
    reader.assign({where: 0})
    ageing.put(topic, b"1", b"2")
    assert [b"1", b"2"] == values(take(reader, 2))
    reader.seek(where, 1)
    ageing.age(2 * MINUTE_MS)
    ageing.put(topic, b"3")
    with pytest.raises(OffsetOutOfRange, match=topic):
        reader.poll(10, 0)
    reader.seek(where, ageing.log.begin_offset(where))
    assert [b"3"] == values(take(reader, 1))


def test_a_group_whose_offset_has_gone_begins_at_the_first_offset_kept(ageing: Rig) -> None:
    topic = ageing.topic(retention_ms=MINUTE_MS)
    where = TopicPartition(topic, 0)

    def ignore(_: object) -> None: ...

    first = ageing.log.group_consumer("group", client_id="first")
    first.subscribe(topic, on_assign=ignore, on_revoke=ignore, on_lost=ignore)
    ageing.put(topic, b"1", b"2")
    assert [b"1", b"2"] == values(take(first, 2))
    first.commit_sync({where: OffsetCommit(1)}, PATIENCE_S)
    first.close()
    ageing.age(2 * MINUTE_MS)
    ageing.put(topic, b"3")
    second = ageing.log.group_consumer("group", client_id="second")
    second.subscribe(topic, on_assign=ignore, on_revoke=ignore, on_lost=ignore)
    assert [b"3"] == values(take(second, 1))
    second.close()


def test_retention_is_per_partition(ageing: Rig) -> None:
    topic = ageing.topic(partitions=2, retention_ms=10 * MINUTE_MS)
    ageing.put(topic, b"old", partition=0)
    ageing.age(9 * MINUTE_MS)
    ageing.put(topic, b"young", partition=1)
    ageing.age(2 * MINUTE_MS)
    assert [[], [b"young"]] == [values(everything(ageing.log, topic, number)) for number in (0, 1)]


# --- compaction -------------------------------------------------------------------------------------------------------


def test_compaction_keeps_the_last_record_of_each_key_where_it_was(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact")
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", b"5")):
        ageing.put(topic, value, key=key)
    before = everything(ageing.log, topic)
    ageing.age(MINUTE_MS)
    ageing.restart()  # a log may show from memory what is gone from the disk
    after = everything(ageing.log, topic)
    assert [(b"a", b"3"), (b"c", b"4"), (b"b", b"5")] == _pairs(after)
    assert [record for record in before if record in after] == after


def test_compaction_goes_on_where_it_ended(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact")
    for key, value in ((b"a", b"1"), (b"b", b"2")):
        ageing.put(topic, value, key=key)
    ageing.age(MINUTE_MS)
    ageing.put(topic, b"3", key=b"a")
    ageing.age(MINUTE_MS)
    ageing.restart()
    ageing.put(topic, b"4", key=b"b")
    ageing.age(MINUTE_MS)
    ageing.restart()
    assert [(b"a", b"3"), (b"b", b"4")] == _pairs(everything(ageing.log, topic))


def test_records_younger_than_the_lag_are_not_compacted(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact", min_compaction_lag_ms=10 * MINUTE_MS)
    ageing.put(topic, b"1", b"2", key=b"a")
    ageing.age(6 * MINUTE_MS)
    ageing.put(topic, b"3", key=b"a")
    ageing.age(5 * MINUTE_MS)
    ageing.restart()
    # What only a younger record replaces stays, too: whoever reads up to the lag sees every key.
    assert [b"2", b"3"] == values(everything(ageing.log, topic))
    ageing.age(6 * MINUTE_MS)
    ageing.restart()
    assert [b"3"] == values(everything(ageing.log, topic))


def test_a_tombstone_replaces_at_once_and_goes_after_its_retention(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact", delete_retention_ms=10 * MINUTE_MS)
    where = TopicPartition(topic, 0)
    ageing.put(topic, b"1", None, key=b"a")
    ageing.age(MINUTE_MS)
    ageing.restart()
    assert [(b"a", None)] == _pairs(everything(ageing.log, topic))
    ageing.age(9 * MINUTE_MS)
    assert [(b"a", None)] == _pairs(everything(ageing.log, topic))
    end = ageing.log.end_offset(where, "committed")
    ageing.age(2 * MINUTE_MS)
    ageing.restart()
    assert [] == everything(ageing.log, topic)
    assert end == ageing.log.end_offset(where, "committed")
    (again,) = ageing.put(topic, b"2", key=b"a")
    assert again.offset >= end


def test_a_key_that_was_written_again_outlives_its_tombstone(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact", delete_retention_ms=10 * MINUTE_MS)
    ageing.put(topic, b"1", None, key=b"a")
    ageing.age(MINUTE_MS)
    ageing.put(topic, b"2", key=b"a")
    ageing.age(MINUTE_MS)
    ageing.age(20 * MINUTE_MS)
    ageing.restart()
    assert [(b"a", b"2")] == _pairs(everything(ageing.log, topic))


def test_a_compacted_topic_with_retention_loses_its_old_keys_too(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact,delete", retention_ms=10 * MINUTE_MS)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
        ageing.put(topic, value, key=key)
    ageing.age(6 * MINUTE_MS)
    ageing.put(topic, b"4", key=b"c")
    ageing.age(5 * MINUTE_MS)
    ageing.restart()
    assert [(b"c", b"4")] == _pairs(everything(ageing.log, topic))
    ageing.put(topic, b"5", b"6", key=b"a")
    ageing.age(MINUTE_MS)
    ageing.restart()
    assert [(b"c", b"4"), (b"a", b"6")] == _pairs(everything(ageing.log, topic))


def test_a_reader_steps_over_what_compaction_took(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact")
    where = TopicPartition(topic, 0)
    ageing.put(topic, b"0", key=b"first")
    ageing.put(topic, *(b"%d" % number for number in range(100)), key=b"a")
    ageing.age(MINUTE_MS)
    ageing.restart()
    reader = ageing.log.reader()
    reader.assign({where: 0})
    assert [b"0", b"99"] == values(take(reader, 2))
    reader.seek(where, 50)
    assert [b"99"] == values(take(reader, 1))
    assert ageing.log.end_offset(where, "committed") == reader.position(where)


def test_the_offset_for_a_time_is_one_that_is_still_there(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact")
    where = TopicPartition(topic, 0)
    placed = []
    for number in range(20):
        placed += ageing.put(topic, b"%d" % number, key=b"a" if number % 3 else b"b%d" % number)
        ageing.age(1_000)
    ageing.restart()
    kept = everything(ageing.log, topic)
    assert len(kept) == 8
    for delivery in placed:
        expected = next(record.offset for record in kept if record.timestamp_ms >= delivery.timestamp_ms)
        assert expected == ageing.log.offset_for_time(where, delivery.timestamp_ms)


def test_a_record_without_a_key_is_refused_on_a_compacted_topic(ageing: Rig) -> None:
    topic = ageing.topic(cleanup="compact")
    with pytest.raises(ValueError, match="key"):
        ageing.log.producer().produce(topic, key=None, value=b"v")
