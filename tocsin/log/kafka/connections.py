"""The first and the last of a client: connected before it is asked for anything that does not like to wait, and left."""

import logging
from contextlib import suppress
from threading import Thread
from typing import Final

import confluent_kafka as ck
from confluent_kafka import KafkaException

logger = logging.getLogger(__name__)

_ASKED_FOR: Final = "__transaction_state"
"""One topic instead of all. Whether it is there, or may be seen, is of no interest."""


def connect(client: ck.Producer, timeout_s: float) -> None:
    """Until the client has a connection to a broker under the broker's own name, or for at most the time-out.

    A producer asks for its id, or its coordinator, as soon as it is made; not connected yet, or through the bootstrap
    connection that librdkafka is just replacing, it fails and asks again after 500 ms: every fourth init() and nearly
    every first record took 505 ms instead of 30 (measured). The first answer replaces the bootstrap connection, the
    second comes through the new one.
    """
    with suppress(
        KafkaException
    ):  # whoever needs the answer asks again, with a limit and a message of his own
        client.list_topics(_ASKED_FOR, timeout=timeout_s)
        client.list_topics(_ASKED_FOR, timeout=timeout_s)


def close_within(consumer: ck.Consumer, timeout_s: float) -> None:
    """Close the consumer, or leave it to itself: librdkafka waits for the answers to a LeaveGroup (5 s) and to offset commits
    (without a limit, as long as a frozen broker keeps the connection; found by stopping one)."""
    closing = Thread(target=consumer.close, name="tocsin-kafka-close", daemon=True)
    closing.start()
    closing.join(timeout_s)
    if closing.is_alive():
        logger.warning("a consumer is left behind: the log did not answer within %.0f s", timeout_s)
