"""librdkafka's own error codes, which begin with an underscore there; those of the brokers are on KafkaError itself."""

from typing import Final

from confluent_kafka import KafkaError


def _local(name: str) -> int:
    code: int = getattr(KafkaError, f"_{name}")
    return code


ALL_BROKERS_DOWN: Final = _local("ALL_BROKERS_DOWN")
ASSIGNMENT_LOST: Final = _local("ASSIGNMENT_LOST")
AUTHENTICATION: Final = _local("AUTHENTICATION")
AUTO_OFFSET_RESET: Final = _local("AUTO_OFFSET_RESET")
BAD_COMPRESSION: Final = _local("BAD_COMPRESSION")
BAD_MSG: Final = _local("BAD_MSG")
FAIL: Final = _local("FAIL")
FATAL: Final = _local("FATAL")
FENCED: Final = _local("FENCED")
LOG_TRUNCATION: Final = _local("LOG_TRUNCATION")
MAX_POLL_EXCEEDED: Final = _local("MAX_POLL_EXCEEDED")
PARTITION_EOF: Final = _local("PARTITION_EOF")
RESOLVE: Final = _local("RESOLVE")
SSL: Final = _local("SSL")
STATE: Final = _local("STATE")
TIMED_OUT: Final = _local("TIMED_OUT")
TRANSPORT: Final = _local("TRANSPORT")
UNKNOWN_PARTITION: Final = _local("UNKNOWN_PARTITION")
UNKNOWN_TOPIC: Final = _local("UNKNOWN_TOPIC")
WAIT_COORD: Final = _local("WAIT_COORD")
