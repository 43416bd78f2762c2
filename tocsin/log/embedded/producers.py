"""The producers of the embedded log."""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from tocsin.log.embedded.committer import Request
from tocsin.log.limits import LOCAL_QUEUE_RECORDS_MAX, check_key, check_offsets
from tocsin.log.partitioner import partition_for
from tocsin.log.port import (
    CommitReceipt,
    Delivery,
    DeliveryCallback,
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

if TYPE_CHECKING:
    from tocsin.log.embedded.log import EmbeddedLog


class EmbeddedProducer:
    """Producer. Records wait for the log's commit thread, so that those handed over meanwhile share its fsync."""

    def __init__(self, log: "EmbeddedLog") -> None:
        self._log = log
        self._sent: deque[tuple[Request, deque[DeliveryCallback | None]]] = deque()
        self._unanswered = 0
        self._keyless = 0

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        if partition is None:
            partition = self._choose(topic, key)
        where = self._log.partition(TopicPartition(topic, partition))
        check_key(topic, where.spec.cleanup, key)
        if self._unanswered >= LOCAL_QUEUE_RECORDS_MAX:
            raise LogUnavailable(f"{LOCAL_QUEUE_RECORDS_MAX} records wait for their answer: poll, then go on")
        item = (where, key, value, headers)
        if not (self._sent and self._log.committer.add(self._sent[-1][0], item)):
            request = Request()
            request.add(item)
            self._log.committer.submit(request)
            self._sent.append((request, deque()))
        self._sent[-1][1].append(on_delivery)
        self._unanswered += 1

    def poll(self) -> int:
        called = 0
        while self._sent and self._sent[0][0].done:
            request, callbacks = self._sent[0]
            # A callback may produce, or raise: what it answered is gone by then.
            while callbacks:
                on_delivery = callbacks.popleft()
                self._unanswered -= 1
                called += 1
                if on_delivery is not None:
                    on_delivery(_delivery(request, len(request.items) - len(callbacks) - 1))
            self._sent.popleft()
        return called

    def flush(self, timeout_s: float) -> int:
        deadline_s = self._log.clock.monotonic_s() + timeout_s
        self.poll()
        while self._sent:
            left_s = max(deadline_s - self._log.clock.monotonic_s(), 0.0)
            if not self._log.committer.wait(self._sent[0][0], left_s):
                break
            self.poll()
        return self._unanswered

    def close(self) -> None:
        self._sent.clear()
        self._unanswered = 0

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._log.partitions(topic)
        if key is not None:
            return partition_for(key, count)
        self._keyless += 1
        return self._keyless % count


def _delivery(request: Request, index: int) -> Delivery:
    where = request.items[index][0]
    if request.error is not None:
        return Delivery(where.topic, where.number, -1, -1, request.error)
    offset, timestamp_ms = request.placed[index]
    return Delivery(where.topic, where.number, offset, timestamp_ms)


class EmbeddedTransactionalProducer:
    """TransactionalProducer. A transaction is kept in memory until its commit, so no reader ever waits behind it."""

    def __init__(self, log: "EmbeddedLog", transactional_id: str) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = 0
        # new: before init(); failed: only abort() helps (an abortable error); dead: only a new producer helps.
        self._state: Literal["new", "ready", "open", "failed", "dead"] = "new"
        self._request = Request()

    @property
    def transactional_id(self) -> str:
        return self._id

    def init(self) -> None:
        if self._state not in ("new", "ready"):
            raise RuntimeError(f"init() of {self._id} is called once, first")
        # In line with the commits, so that what an earlier producer is just committing is either done or refused.
        fence = Request(check=self._take_epoch)
        self._log.committer.commit(fence)
        if fence.error is not None:
            raise fence.error
        self._state = "ready"

    def begin(self) -> None:
        self._expect("ready")
        self._state = "open"
        self._request = Request(check=self._check_epoch)

    def produce(
        self, topic: str, *, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self._expect("open", "failed")
        where = self._log.partition(TopicPartition(topic, partition))
        check_key(topic, where.spec.cleanup, key)
        self._request.add((where, key, value, headers))

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        self._expect("open", "failed")
        check_offsets(offsets.values())
        rows = {(group.group, self._log.partition(where)): commit for where, commit in offsets.items()}
        try:
            self._log.groups.check(group)
        except NotAMember:
            self._state = "failed"
            raise
        self._request.offsets.update(rows)

    def commit(self) -> CommitReceipt:
        self._expect("open", "failed")
        request, self._request = self._request, Request()
        if self._state == "failed":
            self._state = "ready"
            raise TransactionAborted(
                f"the transaction of {self._id} was aborted after a refused call: rewind, go on"
            )
        if not request.items and not request.offsets:
            self._state = "ready"
            return CommitReceipt(last={})
        self._log.committer.commit(request)
        if request.error is not None:
            raise self._explained(request.error, is_unknown=request.is_unknown) from request.error
        self._state = "ready"
        return CommitReceipt(
            last={item[0].where: placed for item, placed in zip(request.items, request.placed, strict=True)}
        )

    def abort(self) -> None:
        if self._state in ("open", "failed"):
            self._request = Request()
            self._state = "ready"

    def close(self) -> None:
        with suppress(LogError):
            self.abort()
        self._state = "dead"

    def _explained(self, error: LogError, *, is_unknown: bool) -> LogError:
        """What became of the transaction, and what this producer is still good for."""
        if isinstance(error, ProducerFenced):
            self._state = "dead"
            return error
        if not is_unknown:
            self._state = "ready"
            return TransactionAborted(f"the transaction of {self._id} was aborted: {error}")
        self._state = "dead"
        return OutcomeUnknown(
            f"the commit of {self._id} may or may not stand ({error}): make a new producer, init() it, read what is true"
        )

    def _take_epoch(self) -> None:
        self._epoch = self._log.epochs[self._id] = self._log.epochs.get(self._id, 0) + 1

    def _check_epoch(self) -> None:
        if self._log.epochs[self._id] != self._epoch:
            raise ProducerFenced(
                f"a newer producer has the transactional id {self._id}: take over again or stop"
            )

    def _expect(self, *states: str) -> None:
        if self._state in states:
            return
        if self._state == "dead":
            raise ProducerFenced(f"this producer of {self._id} is used up: make a new one and init() it")
        raise RuntimeError(
            f"the producer of {self._id} is {self._state}; this call needs {' or '.join(states)}"
        )
