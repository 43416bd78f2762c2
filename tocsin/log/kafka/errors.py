"""What librdkafka and the brokers report, in the port's words. Nothing of confluent_kafka leaves this package."""

from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tocsin.log.kafka import codes
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


class LogRefused(LogUnavailable, PermissionError):
    """The brokers do not let this client in, or not do this. The message says which right or credential is missing."""


_UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        codes.UNKNOWN_TOPIC,
        codes.UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
_NOT_A_MEMBER: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        codes.ASSIGNMENT_LOST,
    }
)
_FENCED: Final = frozenset(
    {
        codes.FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
_OUT_OF_RANGE: Final = frozenset(
    {codes.AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, codes.LOG_TRUNCATION}
)
_REFUSED: Final = frozenset(
    {
        codes.AUTHENTICATION,
        codes.SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_RIGHTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant it Read, Write, Describe, DescribeConfigs (and Create) on the topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant it Read and Describe on the groups",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant it IdempotentWrite, Create and Describe on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant it Write and Describe on the transactional ids",
}
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_CORRUPT: Final = frozenset({codes.BAD_MSG, codes.BAD_COMPRESSION, KafkaError.INVALID_MSG})


def is_refusal(code: int) -> bool:
    return code in _REFUSED


def is_out_of_range(code: int) -> bool:
    return code in _OUT_OF_RANGE


def is_fenced(code: int) -> bool:
    return code in _FENCED


def is_fatal(error: KafkaError) -> bool:
    """Nothing more can be done with this producer."""
    return error.fatal() or error.code() == codes.FATAL or is_fenced(error.code())


def is_not_a_member(code: int) -> bool:
    return code in _NOT_A_MEMBER


def error_of(exception: KafkaException) -> KafkaError:
    found = exception.args[0] if exception.args else None
    return found if isinstance(found, KafkaError) else KafkaError(codes.FAIL, str(exception))


def describe(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"


def few(names: Iterable[object]) -> str:
    """Some names, for a message."""
    listed = [str(name) for name in names]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


Explain = Callable[[], str]
"""What is known about why nothing can be reached: see Troubles.explain."""


def to_log_error(error: KafkaError, doing: str, explain: Explain) -> LogError:
    """The port's error for what happened while `doing` ("read tocsin.jobs[3]")."""
    code = error.code()
    said = f"cannot {doing}: {describe(error)}"
    if code in _REFUSED:
        right = _RIGHTS.get(code)
        return LogRefused(
            f"{said}; {right}" if right else f"{said}; check security.protocol, sasl.* and ssl.*"
        )
    if code in _NOT_A_MEMBER:
        return NotAMember(f"{said}; after the next poll it may be a member again")
    if code in _FENCED:
        return ProducerFenced(f"{said}; take over again or stop")
    if code in _UNKNOWN_TOPIC:
        return UnknownTopic(f"{said}; `tocsin topics create` makes what is missing")
    if code in _OUT_OF_RANGE:
        return OffsetOutOfRange(said)
    if code in _TOO_LARGE:
        return RecordTooLarge(f"{said}; raise max.message.bytes of the topic to 1048588")
    if code in _CORRUPT:
        return LogCorrupt(said)
    why = explain()
    return LogUnavailable(f"{said}; {why}" if why else said)


def to_unavailable(error: KafkaError, doing: str, explain: Explain) -> LogUnavailable:
    """The same where the port knows no other error."""
    problem = to_log_error(error, doing, explain)
    return problem if isinstance(problem, LogUnavailable) else LogUnavailable(str(problem))
