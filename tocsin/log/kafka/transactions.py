"""TransactionalProducer."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal, NoReturn

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.errors import describe, error_of, is_fatal, is_fenced, is_not_a_member, to_log_error
from tocsin.log.kafka.membership import write_metadata
from tocsin.log.kafka.settings import (
    ABORT_S,
    CLOSE_S,
    COMMIT_TRANSACTION_S,
    INIT_S,
    PRODUCING,
    REQUEST_S,
    TRANSACTIONAL_PRODUCER,
    options_for,
)
from tocsin.log.kafka.topics import Topics
from tocsin.log.limits import check_key, check_offsets, check_record
from tocsin.log.port import (
    CommitReceipt,
    GroupMetadata,
    Headers,
    LogError,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    OutcomeUnknown,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
)

State = Literal["new", "ready", "open", "failed", "dead"]
"""new: before init(); failed: the transaction can only be aborted; dead: only a new producer helps."""


class KafkaTransactionalProducer:
    """TransactionalProducer. Used by one thread."""

    def __init__(
        self,
        transactional_id: str,
        config: KafkaConfig,
        topics: Topics,
        clock: Clock,
        troubles: Troubles,
        on_close: Callable[["KafkaTransactionalProducer"], None],
    ) -> None:
        self._id = transactional_id
        self._topics = topics
        self._clock = clock
        self._troubles = troubles
        self._on_close = on_close
        self._state: State = "new"
        self._why = ""
        """What it failed or died of."""
        self._last: dict[tuple[str, int], tuple[int, int]] = {}
        options = options_for(config, PRODUCING, TRANSACTIONAL_PRODUCER, transactional_id=transactional_id)
        try:
            self._made: ck.Producer | None = ck.Producer(options | troubles.options())
        except KafkaException as exception:
            raise to_log_error(error_of(exception), "make a producer", troubles.explain) from None

    @property
    def transactional_id(self) -> str:
        return self._id

    def init(self) -> None:
        if self._state != "new":
            raise RuntimeError(f"init() of {self._id} is called once, first")
        self._again(self._producer.init_transactions, INIT_S, "take over the transactions of")
        self._state = "ready"

    def begin(self) -> None:
        self._expect("ready")
        self._producer.poll(0)
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            self._die(error_of(exception), "begin a transaction of")
        self._last = {}
        self._state, self._why = "open", ""

    def produce(
        self, topic: str, *, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self._expect("open", "failed")
        where = TopicPartition(topic, partition)
        cleanup = self._topics.check(where)
        check_record(topic, key, value, headers)
        check_key(topic, cleanup, key)
        if self._state == "failed":
            return  # it can only be aborted
        deadline_s = self._clock.monotonic_s() + COMMIT_TRANSACTION_S
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, self._delivered, headers=list(headers) or None
                )
                return
            except BufferError:
                if self._clock.monotonic_s() >= deadline_s:
                    raise LogUnavailable(
                        f"the local queue of {self._id} stays full: the log takes nothing"
                    ) from None
                self._producer.poll(0.1)
            except KafkaException as exception:
                self._refused(error_of(exception), f"write to {topic}[{partition}] in a transaction of")
                return

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        self._expect("open", "failed")
        check_offsets(offsets.values())
        if self._state == "failed":
            return
        if group.generation < 0:
            # The brokers do not check it: the offsets would be taken from anybody.
            self._state, self._why = "failed", "the group's metadata is that of no member"
            raise NotAMember(
                f"{group.member or 'nobody'} is not in a generation of {group.group}: poll first"
            )
        positions = [
            ck.TopicPartition(where.topic, where.partition, each.offset, each.metadata)
            for where, each in offsets.items()
        ]
        metadata = write_metadata(group.group, group.member, group.generation)
        try:
            self._again(
                lambda left_s: self._producer.send_offsets_to_transaction(positions, metadata, left_s),
                REQUEST_S,
                f"send the offsets of {group.group} in a transaction of",
            )
        except LogUnavailable as error:
            # Whether they are part of it is not known, and the call cannot be resumed.
            self._state, self._why = "failed", str(error)
            raise

    def commit(self) -> CommitReceipt:
        self._expect("open", "failed")
        if self._state == "failed":
            self._abort_for(None)
        deadline_s = self._clock.monotonic_s() + COMMIT_TRANSACTION_S
        while True:
            try:
                self._producer.commit_transaction(max(deadline_s - self._clock.monotonic_s(), 0.1))
                break
            except KafkaException as exception:
                error = error_of(exception)
                if error.txn_requires_abort():
                    self._why = describe(error)
                    self._abort_for(error)
                if is_fenced(error.code()):
                    self._die(error, "commit a transaction of")
                if not error.retriable() or self._clock.monotonic_s() >= deadline_s:
                    self._state, self._why = "dead", describe(error)
                    raise self._unknown(describe(error)) from None
        self._state = "ready"
        last = {TopicPartition(*where): found for where, found in self._last.items()}
        if any(offset < 0 for offset, _ in last.values()):
            self._state = "dead"
            raise self._unknown("it stands, and the log does not say at which offsets")
        return CommitReceipt(last=last)

    def abort(self) -> None:
        if self._state not in ("open", "failed"):
            if self._state == "dead" and self._made is not None:
                raise LogUnavailable(f"the producer of {self._id} is used up ({self._why}): make a new one")
            return
        self._abort(ABORT_S)

    def close(self) -> None:
        """Safe twice. What the log cannot be told now it ends by itself, or when the next producer of the id comes."""
        if self._made is None:
            return
        self._on_close(self)
        if self._state in ("open", "failed"):
            with suppress(LogError):
                self._abort(CLOSE_S)
        self._state, self._why = "dead", self._why or "it is closed"
        # librdkafka's close() would abort once more, without a limit. What is still queued is of no use.
        with suppress(KafkaException):
            self._made.purge()
            self._made.flush(0)
        self._made = None  # the last reference: connections and threads go with it

    # --- the rest -------------------------------------------------------------------------------------------------------

    @property
    def _producer(self) -> ck.Producer:
        if self._made is None:
            raise ProducerFenced(f"this producer of {self._id} is closed: make a new one and init() it")
        return self._made

    def _delivered(self, error: KafkaError | None, message: "ck.Message[bytes, bytes]") -> None:
        """Records of a partition are acknowledged in order, so the last one called is the last one."""
        if error is None:
            where = (message.topic() or "", message.partition() or 0)
            self._last[where] = (message.offset() or 0, message.timestamp()[1])

    def _again(self, call: Callable[[float], None], timeout_s: float, doing: str) -> None:
        """Call until it is answered. Raises LogUnavailable, NotAMember, ProducerFenced."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            try:
                call(max(deadline_s - self._clock.monotonic_s(), 0.1))
                return
            except KafkaException as exception:
                error = error_of(exception)
                late = self._clock.monotonic_s() >= deadline_s or self._troubles.refused is not None
                if not error.retriable() or late or error.txn_requires_abort() or is_fatal(error):
                    self._refused(error, doing)
                    raise self._problem(error, doing) from None

    def _refused(self, error: KafkaError, doing: str) -> None:
        """Raises what ends the producer; otherwise notes that its transaction has failed."""
        if is_fatal(error):
            self._die(error, doing)
        if self._state == "new":
            return
        self._state, self._why = "failed", describe(error)

    def _abort_for(self, error: KafkaError | None) -> NoReturn:
        """The transaction can only be aborted, and is."""
        why = self._why
        try:
            self._abort(ABORT_S)
        except LogUnavailable as unavailable:
            self._state = "dead"
            raise self._unknown(f"it has failed ({why}) and cannot be aborted now") from unavailable
        if self._state == "dead":
            raise ProducerFenced(
                f"the producer of {self._id} is used up ({self._why}): make a new one and init() it"
            )
        cause = self._problem(error, "commit a transaction of") if error is not None else None
        raise TransactionAborted(
            f"the transaction of {self._id} was aborted ({why}); nothing of it is visible: rewind and go on"
        ) from cause

    def _abort(self, timeout_s: float) -> None:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            try:
                self._producer.abort_transaction(max(deadline_s - self._clock.monotonic_s(), 0.1))
                self._state = "ready"
                return
            except KafkaException as exception:
                error = error_of(exception)
                if is_fatal(error):
                    self._state, self._why = "dead", describe(error)
                    if is_fenced(error.code()):
                        return  # whoever fenced us has aborted it
                if is_fatal(error) or not error.retriable() or self._clock.monotonic_s() >= deadline_s:
                    raise LogUnavailable(
                        f"the transaction of {self._id} cannot be aborted: {describe(error)}; "
                        f"{self._troubles.explain()}"
                    ) from None

    def _die(self, error: KafkaError, doing: str) -> NoReturn:
        """Only a new producer helps from now on."""
        self._state, self._why = "dead", describe(error)
        said = f"cannot {doing} {self._id}: {describe(error)}"
        if is_fatal(error):
            raise ProducerFenced(f"{said}; make a new producer and init() it, or stop")
        raise self._problem(error, doing)

    def _problem(self, error: KafkaError, doing: str) -> LogError:
        if is_not_a_member(error.code()):
            return NotAMember(f"cannot {doing} {self._id}: {describe(error)}; abort, poll, and try again")
        return to_log_error(error, f"{doing} {self._id}", self._troubles.explain)

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the commit of {self._id} may or may not stand: {why}; make a new producer, init() it, read what is true"
        )

    def _expect(self, *states: State) -> None:
        if self._state in states:
            return
        if self._state == "dead":
            raise ProducerFenced(
                f"this producer of {self._id} is used up ({self._why}): make a new one and init() it"
            )
        raise RuntimeError(
            f"the producer of {self._id} is {self._state}; this call needs {' or '.join(states)}"
        )
