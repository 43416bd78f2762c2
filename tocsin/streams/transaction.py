"""The one transaction of a commit: what all partitions of a process have to say since the last one. And what became of it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from tocsin.clock import Clock
from tocsin.log.port import (
    CommitReceipt,
    EventLog,
    LogError,
    LogUnavailable,
    NotAMember,
    OutcomeUnknown,
    ProducerFenced,
    TransactionAborted,
    TransactionalProducer,
)
from tocsin.schemas import codec
from tocsin.schemas.topics import TopicNames
from tocsin.streams.families import JOURNAL_KEY
from tocsin.streams.inputs import Consumers
from tocsin.streams.partitions import OwnedPartition

logger = logging.getLogger(__name__)

UNAVAILABLE_PAUSE_S: Final = 0.5
UNAVAILABLE_PAUSE_MAX_S: Final = 5.0
"""After a commit that the log did not take; doubled each time. What is due meanwhile is decided once it takes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """The transaction is part of the log."""

    journals: Mapping[int, bytes]
    """The journal row of each partition."""
    receipt: CommitReceipt
    sent_s: float
    """When it was begun, on the steady clock."""


Outcome = Stands | Literal["void", "unknown"]
"""void: nothing of it stands, and the same producer goes on. unknown: a new producer has to find out."""


class Transactions:
    """The producer of a process, and how the log has answered it. Used by the loop's thread only."""

    def __init__(self, log: EventLog, clock: Clock, names: TopicNames, transactional_id: str) -> None:
        """Fences the process's former life. Raises LogUnavailable."""
        self._log = log
        self._clock = clock
        self._names = names
        self._transactional_id = transactional_id
        self._producer = log.transactional_producer(transactional_id)
        self._producer.init()
        self.in_doubt = False
        """Whether the producer may be fenced, or have something open: nothing may be restored or committed before renew()."""
        self.trouble = ""
        """What the last commit failed with; "" once one succeeded again."""
        self._retry_at_s = clock.monotonic_s()
        self._pause_s = UNAVAILABLE_PAUSE_S

    def commit(
        self, consumers: Consumers, dirty: Sequence[OwnedPartition], release: frozenset[int]
    ) -> Outcome:
        """Effects, changelog, journal rows and input offsets of these: all of it stands, or nothing."""
        sent_s = self._clock.monotonic_s()
        try:
            journals, receipt = _append(self._producer, consumers, self._names, dirty, release)
        except (TransactionAborted, NotAMember, LogUnavailable) as error:
            return self._give_up(error)
        except (ProducerFenced, OutcomeUnknown) as error:
            logger.info("all partitions are opened again: %s", error)
            self.in_doubt = True
            return "unknown"
        self.trouble = ""
        self._pause_s = UNAVAILABLE_PAUSE_S
        return Stands(journals=journals, receipt=receipt, sent_s=sent_s)

    def renew(self) -> None:
        """If the producer is in doubt: a new one fences it. Raises LogUnavailable: call it again."""
        if self.in_doubt:
            self._producer.close()
            self._producer = self._log.transactional_producer(self._transactional_id)
            self._producer.init()
            self.in_doubt = False

    def close(self) -> None:
        self._producer.close()

    # --- when the log does not answer

    def leave_alone(self, error: BaseException) -> None:
        """Log and stores are asked again after a while, and then ever less often: at once would only be a busy loop."""
        self.trouble = str(error)
        self._retry_at_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, UNAVAILABLE_PAUSE_MAX_S)

    @property
    def paused_s(self) -> float:
        """How long the log is still left alone."""
        return self._retry_at_s - self._clock.monotonic_s()

    def _give_up(self, error: LogError) -> Outcome:
        """Nothing of it stands, if the log can be told so."""
        try:
            self._producer.abort()
        except LogError:
            self.in_doubt = True  # it stays open until a new producer can end it
        reason = error.__cause__ or error
        self.trouble = str(reason)
        if isinstance(error, LogUnavailable) or isinstance(reason, LogUnavailable):
            self.leave_alone(reason)
        return "unknown" if self.in_doubt else "void"


def _append(
    producer: TransactionalProducer,
    consumers: Consumers,
    names: TopicNames,
    dirty: Sequence[OwnedPartition],
    release: frozenset[int],
) -> tuple[dict[int, bytes], CommitReceipt]:
    """Raises what TransactionalProducer's methods do; begun and not ended, it is the caller's to abort."""
    producer.begin()
    journals: dict[int, bytes] = {}
    offsets = {}
    for each in dirty:
        core, view, p = each.core, each.view, each.number
        assert core is not None
        assert view is not None
        for emission in core.effects.emissions:
            producer.produce(
                emission.topic,
                partition=emission.partition,
                key=emission.key,
                value=emission.value,
                headers=emission.headers,
            )
        for key, value in view.changes():
            producer.produce(names.state, partition=p, key=key, value=value)
        journals[p] = codec.encode(core.journal)
        producer.produce(names.state, partition=p, key=JOURNAL_KEY, value=journals[p])
        if p in release:
            released = codec.encode(replace(core.journal, released=True))
            producer.produce(names.journal, partition=p, key=None, value=released)
        offsets.update(consumers.offsets_of(p, core.journal))
    producer.send_offsets(offsets, consumers.metadata())
    return journals, producer.commit()
