"""Pieces of the Kafka adapter that need no broker."""

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tocsin.clock import FakeClock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.client_logs import logger as client_logger
from tocsin.log.kafka.errors import LogRefused, to_log_error
from tocsin.log.kafka.membership import parse_metadata, write_metadata
from tocsin.log.kafka.topics import settings_of
from tocsin.log.port import (
    LogCorrupt,
    LogError,
    LogUnavailable,
    NotAMember,
    OffsetOutOfRange,
    ProducerFenced,
    RecordTooLarge,
    UnknownTopic,
)
from tocsin.schemas.topics import DAY_MS, HOUR_MS, TopicNames, TopicSpec, base_topics, queue_topics

# --- membership -------------------------------------------------------------------------------------------------------


def test_the_metadata_of_a_member_is_read_as_librdkafka_writes_it() -> None:
    # Recorded from confluent-kafka 2.16.1 (librdkafka 2.16.0), on a little-endian machine.
    written = b"CGMDv2:\x05\x00\x00\x00streams\x00one-fb5403c5-d5b1-4a43-ba36-af4a8b4bb5c3\x00\x01"
    assert (5, "one-fb5403c5-d5b1-4a43-ba36-af4a8b4bb5c3") == parse_metadata(written)
    assert written == write_metadata("streams", "one-fb5403c5-d5b1-4a43-ba36-af4a8b4bb5c3", 5)


def test_who_is_no_member_has_the_generation_minus_one() -> None:
    assert (-1, "") == parse_metadata(b"CGMDv2:\xff\xff\xff\xffstreams\x00\x00\x01")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.ILLEGAL_GENERATION, NotAMember),
        (KafkaError.UNKNOWN_MEMBER_ID, NotAMember),
        (KafkaError.REBALANCE_IN_PROGRESS, NotAMember),
        (KafkaError.PRODUCER_FENCED, ProducerFenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (codes.FENCED, ProducerFenced),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (KafkaError.OFFSET_OUT_OF_RANGE, OffsetOutOfRange),
        (codes.AUTO_OFFSET_RESET, OffsetOutOfRange),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge),
        (codes.BAD_MSG, LogCorrupt),
        (codes.AUTHENTICATION, LogRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogRefused),
        (codes.TRANSPORT, LogUnavailable),
        (codes.TIMED_OUT, LogUnavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, LogUnavailable),
    ],
)
def test_what_kafka_reports_is_said_in_the_words_of_the_port(code: int, expected: type[LogError]) -> None:
    error = to_log_error(KafkaError(code, "what the broker said"), "read somewhere[3]", lambda: "")
    assert expected is type(error)
    assert str(error).startswith("cannot read somewhere[3]: what the broker said (")


def test_a_missing_right_is_named() -> None:
    error = to_log_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "write", lambda: "")
    assert "grant it Read, Write, Describe, DescribeConfigs (and Create) on the topics" in str(error)
    assert isinstance(error, PermissionError)


def test_who_cannot_reach_a_broker_is_told_where_it_was_looked_for_and_what_happened_last() -> None:
    clock = FakeClock()
    troubles = Troubles("kafka.example:9092", clock.monotonic_s)
    assert troubles.explain() == "is a broker running at kafka.example:9092, and reachable from here?"
    troubles.note(KafkaError(codes.TRANSPORT, "Connection refused"))
    assert troubles.explain().endswith("(last: Connection refused (_TRANSPORT))")
    clock.advance(61_000)
    assert troubles.explain().endswith("reachable from here?")


def test_a_refusal_is_remembered_beside_what_follows_from_it() -> None:
    troubles = Troubles("kafka.example:9092", FakeClock().monotonic_s)
    troubles.note(KafkaError(codes.AUTHENTICATION, "wrong password"))
    troubles.note(KafkaError(codes.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert troubles.refused is not None
    assert "wrong password" in troubles.refused.str()


def test_what_librdkafka_says_is_lowered_and_its_expected_complaint_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger=client_logger.name):
        client_logger.log(logging.ERROR, "FAIL [rdkafka#consumer-1] Connect to ipv4#127.0.0.1:1 failed")
        client_logger.log(logging.INFO, "a word")
        client_logger.log(logging.WARNING, 'ASSIGN: Group "g": application *assign() call failed: no')
    assert [(logging.INFO, "FAIL"), (logging.DEBUG, "a word")] == [
        (record.levelno, record.message.split(" [")[0]) for record in caplog.records
    ]


def test_what_is_lowered_below_the_level_in_force_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=client_logger.name):
        client_logger.log(logging.ERROR, "FAIL: Connect failed")
    assert caplog.records == []


# --- topics -----------------------------------------------------------------------------------------------------------

_PREFIX = TopicNames("t.")
_SETTINGS: dict[str, dict[str, Any]] = {
    spec.name: settings_of(spec)
    for spec in (*base_topics(_PREFIX, 12), *queue_topics(_PREFIX, "default", 12))
}


def test_every_topic_is_stamped_by_the_log_and_loses_nothing_to_defaults_of_the_cluster() -> None:
    for settings in _SETTINGS.values():
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert settings["retention.bytes"] == "-1"
        assert settings["unclean.leader.election.enable"] == "false"


@pytest.mark.parametrize("name", ["t.config", "t.jobs", "t.state", "t.control.default"])
def test_topics_that_are_read_from_their_start_are_compacted_early(name: str) -> None:
    settings = _SETTINGS[name]
    assert settings["segment.bytes"] == str(64 * 1024 * 1024)
    assert settings["min.cleanable.dirty.ratio"] == "0.2"
    assert int(settings["max.compaction.lag.ms"]) > int(settings["min.compaction.lag.ms"])


def test_the_long_archives_keep_large_segments() -> None:
    for name in ("t.runs", "t.dead-letters"):
        assert _SETTINGS[name]["cleanup.policy"] == "compact,delete"
        assert "segment.bytes" not in _SETTINGS[name]


def test_the_settings_are_those_of_the_specification() -> None:
    spec = TopicSpec(
        name="x",
        partitions=1,
        cleanup="compact,delete",
        retention_ms=8 * DAY_MS,
        min_compaction_lag_ms=HOUR_MS,
        max_compaction_lag_ms=2 * HOUR_MS,
        delete_retention_ms=DAY_MS,
        segment_ms=12 * HOUR_MS,
    )
    assert {
        "cleanup.policy": "compact,delete",
        "retention.ms": "691200000",
        "min.compaction.lag.ms": "3600000",
        "max.compaction.lag.ms": "7200000",
        "delete.retention.ms": "86400000",
        "segment.ms": "43200000",
    }.items() <= settings_of(spec).items()


def test_a_topic_without_retention_is_kept_for_ever_and_an_uncompacted_one_has_no_lag() -> None:
    settings = settings_of(TopicSpec(name="x", partitions=1))
    assert settings["retention.ms"] == "-1"
    assert "min.compaction.lag.ms" not in settings
