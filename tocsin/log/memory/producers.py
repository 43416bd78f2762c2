"""The producers of the in-memory log."""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tocsin.log.limits import LOCAL_QUEUE_RECORDS_MAX, check_key, check_offsets, check_record
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
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    from tocsin.log.memory.log import MemoryClient

DELIVERY_TIMEOUT_S: Final = 30.0
"""How long a plain record waits for a log that cannot be reached before it is given up (message.timeout.ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    where: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: Headers
    on_delivery: DeliveryCallback | None
    handed_s: float


class MemoryProducer:
    """Producer. A record is appended at once, unless its client is cut off or its sends are held."""

    def __init__(self, client: "MemoryClient") -> None:
        self._client = client
        self._broker = client.broker
        self._queue: deque[_Queued] = deque()
        self._ready: deque[tuple[DeliveryCallback | None, Delivery]] = deque()
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
        self._client.check_alive()
        count = self._broker.count(topic)
        if partition is None:
            if key is None:
                partition = self._keyless % count
                self._keyless += 1
            else:
                partition = partition_for(key, count)
        where = TopicPartition(topic, partition)
        self._broker.partition(where)
        check_record(topic, key, value, headers)
        check_key(topic, self._broker.specs[topic].cleanup, key)
        if len(self._queue) + len(self._ready) >= LOCAL_QUEUE_RECORDS_MAX:
            raise LogUnavailable(
                f"{LOCAL_QUEUE_RECORDS_MAX} records wait in the local queue: poll, then go on"
            )
        self._queue.append(
            _Queued(
                where=where,
                key=key,
                value=value,
                headers=headers,
                on_delivery=on_delivery,
                handed_s=self._broker.clock.monotonic_s(),
            )
        )
        self._send()

    def poll(self) -> int:
        self._client.check_alive()
        self._send()
        called = 0
        while self._ready:
            on_delivery, delivery = self._ready.popleft()
            if on_delivery is not None:
                on_delivery(delivery)
            called += 1
        return called

    def flush(self, timeout_s: float) -> int:
        deadline_s = self._broker.clock.monotonic_s() + timeout_s
        self.poll()
        while self._queue and self._broker.blocking:
            left_s = deadline_s - self._broker.clock.monotonic_s()
            if left_s <= 0:
                break
            with self._broker.changed:
                self._broker.changed.wait(min(left_s, 0.1))
            self.poll()
        return len(self._queue)

    def close(self) -> None:
        self._queue.clear()
        self._ready.clear()

    def _send(self) -> None:
        broker, name = self._broker, self._client.name
        with broker.changed:
            if broker.faults.holds_sends(name):
                self._give_up_old()
                return
            while self._queue:
                queued = self._queue.popleft()
                self._ready.append((queued.on_delivery, self._append(queued)))
                broker.notify()

    def _append(self, queued: _Queued) -> Delivery:
        broker, where = self._broker, queued.where
        record = self._append_once(queued)
        if broker.faults.take_duplicate(where.topic):
            record = self._append_once(queued)
        if broker.faults.take_unacknowledged(where.topic):
            return _failed(where, "the answer to the append was lost")
        return Delivery(where.topic, where.partition, record.offset, record.timestamp_ms)

    def _append_once(self, queued: _Queued) -> Record:
        return self._broker.partition(queued.where).append(
            now_ms=self._broker.clock.now_ms(),
            client=self._client.name,
            key=queued.key,
            value=queued.value,
            headers=queued.headers,
        )

    def _give_up_old(self) -> None:
        now_s = self._broker.clock.monotonic_s()
        while self._queue and now_s - self._queue[0].handed_s > DELIVERY_TIMEOUT_S:
            queued = self._queue.popleft()
            message = f"not acknowledged within {DELIVERY_TIMEOUT_S:.0f} s"
            self._ready.append((queued.on_delivery, _failed(queued.where, message)))


def _failed(where: TopicPartition, message: str) -> Delivery:
    error = LogUnavailable(f"a record for {where.topic}[{where.partition}] may be lost: {message}")
    return Delivery(where.topic, where.partition, -1, -1, error)


class MemoryTransactionalProducer:
    """TransactionalProducer. Records are in the log, invisible, from the moment they are produced."""

    def __init__(self, client: "MemoryClient", transactional_id: str) -> None:
        self._client = client
        self._broker = client.broker
        self._id = transactional_id
        self._epoch = 0
        # new: before init(); failed: only abort() helps (an abortable error); dead: only a new producer helps.
        self._state: Literal["new", "ready", "open", "failed", "dead"] = "new"
        self._unsent: list[tuple[TopicPartition, bytes | None, bytes | None, Headers]] = []
        self._touched = False

    @property
    def transactional_id(self) -> str:
        return self._id

    def init(self) -> None:
        with self._client.request():
            if self._state not in ("new", "ready"):
                raise RuntimeError(f"init() of {self._id} is called once, first")
            self._epoch = self._broker.fence(self._id)
            self._state = "ready"

    def begin(self) -> None:
        self._expect("ready")
        self._state, self._touched = "open", False

    def produce(
        self, topic: str, *, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self._expect("open", "failed")
        where = TopicPartition(topic, partition)
        self._broker.partition(where)
        check_record(topic, key, value, headers)
        check_key(topic, self._broker.specs[topic].cleanup, key)
        self._touched = True
        self._unsent.append((where, key, value, headers))
        if not self._broker.faults.is_cut(self._client.name):
            with self._client.request():
                self._send()

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        self._expect("open", "failed")
        check_offsets(offsets.values())
        with self._client.request():
            self._send()
            self._touched = True
            with self._dying_when_fenced():
                transaction = self._broker.open_transaction(self._id, self._epoch, self._client.name)
            try:
                self._broker.send_offsets(transaction, offsets, group)
            except NotAMember:
                self._state = "failed"
                raise

    def commit(self) -> CommitReceipt:
        self._expect("open", "failed")
        if not self._touched:
            self._state = "ready"  # nothing was sent, so nothing is asked of the log, not even who may write
            return CommitReceipt(last={})
        if self._broker.faults.is_cut(self._client.name):
            self._state = "dead"
            raise self._unknown("the log cannot be reached")
        with self._client.request():
            self._send()
            if self._state == "failed":
                self._end(commit=False)
                raise self._broker.aborted(self._id)
            self._inject_fault()
            transaction = self._broker.open_transaction(self._id, self._epoch, self._client.name)
            self._end(commit=True)
            return CommitReceipt(last=dict(transaction.last))

    def abort(self) -> None:
        self._client.check_alive()
        if self._state not in ("open", "failed"):
            return
        if self._touched:
            with self._client.request():
                self._unsent.clear()
                try:
                    self._end(commit=False)
                except ProducerFenced:
                    return  # whoever fenced us has aborted it
        self._state = "ready"

    def close(self) -> None:
        with suppress(LogError):  # if it cannot be told, the log ends the transaction itself
            self.abort()
        self._state = "dead"

    def _send(self) -> None:
        if not self._unsent:
            return
        with self._dying_when_fenced():
            transaction = self._broker.open_transaction(self._id, self._epoch, self._client.name)
        now_ms = self._broker.clock.now_ms()
        for where, key, value, headers in self._unsent:
            self._broker.partition(where).append(
                now_ms=now_ms,
                client=self._client.name,
                key=key,
                value=value,
                headers=headers,
                transaction=transaction,
            )
        self._unsent.clear()
        self._broker.notify()

    def _end(self, *, commit: bool) -> None:
        with self._dying_when_fenced():
            self._broker.end_transaction(self._broker.newest(self._id, self._epoch), commit=commit)
        self._state = "ready"

    def _inject_fault(self) -> None:
        match self._broker.faults.take_commit_fault(self._client.name):
            case None:
                pass
            case "aborted":
                self._end(commit=False)
                raise self._broker.aborted(self._id)
            case "fenced":
                self._broker.fence(self._id)
            case "unknown_committed":
                self._end(commit=True)
                self._state = "dead"
                raise self._unknown("its answer was lost")
            case "unknown_aborted":
                self._state = "dead"
                raise self._unknown("it may not have arrived")
        with self._dying_when_fenced():
            self._broker.newest(self._id, self._epoch)

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the commit of {self._id} may or may not stand: {why}; make a new producer, init() it, read what is true"
        )

    def _dying_when_fenced(self) -> "_DyingWhenFenced":
        return _DyingWhenFenced(self)

    def die(self) -> None:
        """Only a new producer helps from now on."""
        self._state = "dead"

    def _expect(self, *states: str) -> None:
        self._client.check_alive()
        if self._state in states:
            return
        if self._state == "dead":
            raise ProducerFenced(f"this producer of {self._id} is used up: make a new one and init() it")
        raise RuntimeError(
            f"the producer of {self._id} is {self._state}; this call needs {' or '.join(states)}"
        )


class _DyingWhenFenced:
    def __init__(self, producer: MemoryTransactionalProducer) -> None:
        self._producer = producer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, ProducerFenced):
            self._producer.die()
