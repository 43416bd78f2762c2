"""Every option of librdkafka that we set, with its reason: measured (docs/decisions/011-kafka-adapter.md) or derived.

What is not here keeps librdkafka's default. A user's properties are added to these and cannot replace any of them: the
protocol between the processes rests on them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tocsin.log.limits import LOCAL_QUEUE_RECORDS_MAX

if TYPE_CHECKING:
    from tocsin.log.kafka.config import KafkaConfig

Options = Mapping[str, str | int | bool]

# --- limits of the adapter's own calls, in seconds ----------------------------------------------------------------------

OFFSETS_S: Final = 3.0
"""A request for offsets, which the core loop makes. After a broker's death it is told LogUnavailable, does what can be
done without, and asks again."""

REQUEST_S: Final = 10.0
"""A request about topics or groups. Longer than a leader or coordinator takes to move when its broker is shut
down; after a broker's death (6.8 - 12.9 s, measured) the caller is told LogUnavailable once, and asks again."""

OPEN_S: Final = 10.0
"""How long KafkaLog.open() tries to reach any broker."""

CONNECT_S: Final = 2.0
"""A new producer's first connection: 30 ms (measured), a handshake more with TLS. Not being connected is no failure yet."""

CREATE_TOPICS_S: Final = 30.0
"""Creating topics on three brokers took up to 2 s; this leaves room for a cluster that is just starting."""

COMMIT_OFFSETS_S: Final = 5.0
"""An offset commit that is not answered for this long is LogUnavailable. Below the session timeout: a commit that came
later could not keep the member anyway."""

INIT_S: Final = 20.0
"""Fencing a transactional id: 1 s when it left a transaction open (measured); and its coordinator may have to move."""

COMMIT_TRANSACTION_S: Final = 30.0
"""Equal to transaction.timeout.ms: afterwards the broker has ended the transaction by itself."""

ABORT_S: Final = 10.0
"""An abort that takes longer is left to the next producer of the id, whose init() ends it."""

CLOSE_S: Final = 5.0
"""What a close() may wait for the last answers."""

# --- librdkafka ------------------------------------------------------------------------------------------------------

CONNECTION: Final[Options] = {
    # A broker that does not answer a request for 10 s (frozen, cut off) counts as gone. The default of 60 s would
    # outlast the transaction timeout. Fetches and JoinGroup add their own waiting time to it.
    "socket.timeout.ms": 10_000,
    # Each commit of a transaction may otherwise meet CONCURRENT_TRANSACTIONS and stall for 100 ms (commit p50 100-113 ms
    # instead of 3-13 ms, measured). For all clients, since it is also how soon any other request is tried again.
    "retry.backoff.ms": 10,
    # ... doubled each time up to this: a broker that is starting is not flooded.
    "retry.backoff.max.ms": 250,
    # "rebootstrap", the default, throws all brokers away when none answers any more, and with them what waits for one: after
    # a restart of the only broker, send_offsets hung for ever, whatever its time-out (measured; none: back after 11 s).
    "metadata.recovery.strategy": "none",
    # A topic is created by `tocsin topics create` or by nobody: a misspelt one is an error, not a new topic.
    "allow.auto.create.topics": False,
}

PREFERENCES: Final[Options] = {
    # Nothing but speed rests on these, so a user's properties may set them otherwise.
    #
    # A handshake (TCP, TLS, SASL) of 5 s is a dead address; the default of 30 s is most of a transaction.
    "socket.connection.setup.timeout.ms": 5_000,
    # Small requests must not wait for each other: Nagle and delayed acknowledgement add 40 ms.
    "socket.nagle.disable": True,
    # A broker that restarts is back after 4 s. The default maximum of 10 s would more than double the gap.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    # What librdkafka says goes through Python's logging; it need not say that an idle connection was closed.
    "log.connection.close": False,
    # Metrics of the client pushed to the broker (KIP-714) cost a request each and are read by nobody here.
    "enable.metrics.push": False,
}

PRODUCING: Final[Options] = {
    # No duplicates and no reordering by retries; implies acks=all and at most 5 requests in flight.
    "enable.idempotence": True,
    # Records of one kind repeat each other; of what every broker and client can read, lz4 costs the least time.
    "compression.type": "lz4",
    # librdkafka's own limit on one request must not be below the largest record, with room for framing.
    "message.max.bytes": 1_000_000,
    # A batch of 1 MB is refused by nobody (max.message.bytes of our topics is 1,048,588).
    "batch.size": 900_000,
}

PLAIN_PRODUCER: Final[Options] = {
    # For the reason that consumers have: what writes reports and definitions is made once, and must never be left without a
    # broker. Ten freezes and restarts of the only broker under it: back within 0.6 s, as without.
    "metadata.recovery.strategy": "rebootstrap",
    "metadata.recovery.rebootstrap.trigger.ms": 10_000,
    # Reports leave one by one; 2 ms gather those of one pass of the loop. flush() does not wait for it.
    "linger.ms": 2,
    # After that a record is given up with an error, so that its sender can decide. Longer than a broker's death takes.
    "message.timeout.ms": 30_000,
    # Then produce() raises LogUnavailable, as in the other adapters; 128 MB are 1.3 KB for each of them.
    "queue.buffering.max.messages": LOCAL_QUEUE_RECORDS_MAX,
    "queue.buffering.max.kbytes": 131_072,
}

TRANSACTIONAL_PRODUCER: Final[Options] = {
    # A broker's death (leaders move after broker.session.timeout.ms, 9 s by default) must fit in. At 10 s it ended in
    # timed-out messages and a fatal INVALID_TXN_STATE (measured). A dead owner's transaction is not waited for, but
    # fenced, so this need not be short.
    "transaction.timeout.ms": 30_000,
    # Below the transaction timeout, so that a lost message ends in an abort by us and not in one behind our back; and
    # longer than a broker's death takes.
    "message.timeout.ms": 20_000,
    # While the markers of the last transaction are being written, the next one is refused with CONCURRENT_TRANSACTIONS:
    # that takes some ms, so it is not asked ever more seldom. Commits back to back on a busy machine, three rounds each in
    # turn: p99 44-151 ms, with 250 ms as above 59-279 ms.
    "retry.backoff.max.ms": 20,
    # Everything is produced right before the commit, which sends at once; until then large batches may form.
    "linger.ms": 5,
    # One commit holds at most 20,000 rows and 8 MB of effects, or what one pass made of 4,000 timers.
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}

CONSUMING: Final[Options] = {
    # A single broker that was frozen is fenced for a moment and names no broker then: librdkafka throws the handle of the only
    # one away, and by "none" would never look for another (1 of 8 thaws: "no broker available", for ever; with this 0 of 12).
    "metadata.recovery.strategy": "rebootstrap",
    "metadata.recovery.rebootstrap.trigger.ms": 10_000,
    # Offsets are committed by the caller alone, each on purpose.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Never skip or repeat by oneself: offsets are given explicitly, and one that is gone is an error that somebody decides.
    "auto.offset.reset": "error",
    # The only way to learn that one stands behind the markers and aborted records at the end of a partition.
    "enable.partition.eof": True,
    # How long a broker holds an empty fetch. A partition that is added, sought or resumed waits for the fetch that is
    # out, and the end of a partition (EOF) is told by the next empty one; the default of 500 ms delays both.
    "fetch.wait.max.ms": 50,
    "fetch.min.bytes": 1,
    # After the local queue was full: the default of 1,000 ms is that much latency (measured).
    "fetch.queue.backoff.ms": 10,
    # After an error of a fetch; the default of 500 ms is added to every move of a leader.
    "fetch.error.backoff.ms": 50,
    # A disk or network that flips bits is found out here or nowhere; reading stays at 450,000 - 860,000 records/s with it.
    "check.crcs": True,
    # Bounds of memory. librdkafka stops fetching when so much is queued; what is under way then is compressed, say four
    # times. So a consumer holds at most 4 + 2 x 4 MB, and 20 of them in a process 240 MB (measured: 10 readers of records
    # that compress twice, 60 MB). A larger batch comes all the same, one at a time. 4 MB are 13,000 records of 300 bytes:
    # 20 ms of reading at full speed, above the pause of 10 ms.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 10_000,
    "fetch.max.bytes": 2_097_152,
    "fetch.message.max.bytes": 524_288,
    "receive.message.max.bytes": 100_000_000,
}

SESSION_TIMEOUT_MS: Final = 6_000

GROUP: Final[Options] = {
    "isolation.level": "read_committed",
    # KIP-848's timeouts are the broker's: 45 s to notice a death, 5 s to balance. Ours are ours.
    "group.protocol": "classic",
    # Whoever keeps a partition goes on working through a rebalance.
    "partition.assignment.strategy": "cooperative-sticky",
    # The least that brokers allow by default (group.min.session.timeout.ms); rule W8 counts with the same number.
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    # A rebalance is noticed by the next heartbeat: two of them are a join. Above 2,147,483 it overflows (measured).
    "heartbeat.interval.ms": 500,
    # A loop that hangs while its process lives gives its partitions up after this. Longer than a commit (30 s) and an
    # abort (10 s) that both wait for a dead broker, with the reading of a journal in between.
    "max.poll.interval.ms": 120_000,
}

OURS: Final[frozenset[str]] = frozenset(
    {
        *CONNECTION,
        *PRODUCING,
        *PLAIN_PRODUCER,
        *TRANSACTIONAL_PRODUCER,
        *CONSUMING,
        *GROUP,
        "acks",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "batch.num.messages",
        "bootstrap.servers",
        "client.id",
        "compression.codec",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "fetch.max.wait.ms",
        "group.id",
        "group.instance.id",
        "group.remote.assignor",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "message.send.max.retries",
        "metadata.broker.list",
        "delivery.timeout.ms",
        "partitioner",
        "queue.buffering.max.ms",
        "request.required.acks",
        "retries",
        "transactional.id",
    }
)
"""Options, with their aliases, that a user's properties may not set."""


def options_for(config: "KafkaConfig", *parts: Options, **own: str) -> dict[str, Any]:
    """All that a client is made with, but for its callbacks. `own`: names with _ for dots."""
    options: dict[str, Any] = {**PREFERENCES, **config.properties, **CONNECTION}
    for part in parts:
        options |= part
    options |= {"bootstrap.servers": config.bootstrap, "client.id": config.client_id}
    return options | {name.replace("_", "."): value for name, value in own.items()}
