"""The log as one process sees it, with a probe in between: a place to die at every call, and an eye on the group."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tocsin.log.port import (
    AssignCallback,
    CommitCallback,
    CommitReceipt,
    DeliveryCallback,
    EventLog,
    GroupConsumer,
    GroupMetadata,
    Headers,
    Isolation,
    Member,
    OffsetCommit,
    Producer,
    Reader,
    Record,
    TopicPartition,
    TopicSpec,
    TransactionalProducer,
)
from tocsin.streams.store import StoreEnvironment


class Crashed(BaseException):
    """The process died at this very call. Nothing in it may catch that."""


At = Callable[[str], None]
"""Told where the process is; raises Crashed where it is to die."""
Watch = Callable[[str, list[int]], None]
"""Told of assigned, revoked and lost partitions."""


class ProbedLog:
    """EventLog."""

    def __init__(self, inner: EventLog, at: At, watch: Watch) -> None:
        self._inner = inner
        self._at = at
        self._watch = watch

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        self._inner.create_topics(specs)

    def topics(self) -> dict[str, int]:
        return self._inner.topics()

    def partitions(self, topic: str) -> int:
        return self._inner.partitions(topic)

    def begin_offset(self, partition: TopicPartition) -> int:
        return self._inner.begin_offset(partition)

    def end_offset(self, partition: TopicPartition, isolation: Isolation) -> int:
        return self._inner.end_offset(partition, isolation)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        return self._inner.end_offsets(partitions, isolation)

    def members(self, group: str) -> tuple[Member, ...]:
        return self._inner.members(group)

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return self._inner.offset_for_time(partition, timestamp_ms)

    def producer(self) -> Producer:
        return ProbedProducer(self._inner.producer(), self._at)

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        return ProbedTransactionalProducer(self._inner.transactional_producer(transactional_id), self._at)

    def reader(self, isolation: Isolation = "committed") -> Reader:
        return self._inner.reader(isolation)

    def group_consumer(self, group: str, *, client_id: str) -> GroupConsumer:
        return ProbedGroupConsumer(
            self._inner.group_consumer(group, client_id=client_id), self._at, self._watch
        )

    def wait(self, consumers: Sequence[Reader | GroupConsumer], timeout_s: float) -> None:
        pass  # whoever steps the processes lets the time pass

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        self._inner.close()


class ProbedProducer:
    """Producer."""

    def __init__(self, inner: Producer, at: At) -> None:
        self._inner = inner
        self._at = at

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
        self._at(f"before a record for {topic}")
        self._inner.produce(
            topic, key=key, value=value, partition=partition, headers=headers, on_delivery=on_delivery
        )
        self._at(f"after a record for {topic}")

    def poll(self) -> int:
        return self._inner.poll()

    def flush(self, timeout_s: float) -> int:
        return self._inner.flush(timeout_s)

    def close(self) -> None:
        self._inner.close()


class ProbedTransactionalProducer:
    """TransactionalProducer."""

    def __init__(self, inner: TransactionalProducer, at: At) -> None:
        self._inner = inner
        self._at = at

    @property
    def transactional_id(self) -> str:
        return self._inner.transactional_id

    def init(self) -> None:
        self._inner.init()
        self._at(f"after init of {self.transactional_id}")

    def begin(self) -> None:
        self._inner.begin()
        self._at("after begin")

    def produce(
        self, topic: str, *, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self._inner.produce(topic, partition=partition, key=key, value=value, headers=headers)
        self._at(f"after a record for {topic}[{partition}]")

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        self._inner.send_offsets(offsets, group)
        self._at("after send_offsets")

    def commit(self) -> CommitReceipt:
        receipt = self._inner.commit()
        self._at("after commit")
        return receipt

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        self._inner.close()


class ProbedGroupConsumer:
    """GroupConsumer."""

    def __init__(self, inner: GroupConsumer, at: At, watch: Watch) -> None:
        self._inner = inner
        self._at = at
        self._watch = watch

    def subscribe(
        self, topic: str, *, on_assign: AssignCallback, on_revoke: AssignCallback, on_lost: AssignCallback
    ) -> None:
        def told(what: str, callback: AssignCallback) -> AssignCallback:
            def call(partitions: Sequence[TopicPartition]) -> None:
                self._watch(what, [each.partition for each in partitions])
                callback(partitions)

            return call

        self._inner.subscribe(
            topic,
            on_assign=told("assigned", on_assign),
            on_revoke=told("revoked", on_revoke),
            on_lost=told("lost", on_lost),
        )

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        return self._inner.poll(max_records, timeout_s)

    def assigned(self) -> frozenset[TopicPartition]:
        return self._inner.assigned()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._inner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._inner.resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._inner.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        return self._inner.position(partition)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetCommit | None]:
        return self._inner.committed(partitions, timeout_s)

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> None:
        self._at("before an offset commit")
        self._inner.commit(offsets, on_done)
        self._at("after an offset commit")

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetCommit], timeout_s: float) -> None:
        self._at("before an offset commit")
        self._inner.commit_sync(offsets, timeout_s)
        self._at("after an offset commit")

    def metadata(self) -> GroupMetadata:
        return self._inner.metadata()

    def close(self) -> None:
        self._inner.close()


class ProbedEnvironment(StoreEnvironment):
    """Tells of each batch that a store has written."""

    def __init__(self, at: At) -> None:
        super().__init__(cache_bytes=8 << 20, write_buffer_bytes=4 << 20, row_cache_bytes=8 << 20)
        self._tell = at

    def wrote(self, size: int) -> None:
        super().wrote(size)
        self._tell("after a store's batch")
