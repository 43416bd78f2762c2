"""The reader and the group member of the embedded log."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tocsin.log.cursors import Cursors
from tocsin.log.embedded.committer import Request
from tocsin.log.limits import check_offsets
from tocsin.log.port import (
    AssignCallback,
    CommitCallback,
    GroupMetadata,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    from tocsin.log.embedded.log import EmbeddedLog


class EmbeddedReader:
    """Reader. Isolation makes no difference here: what is not committed is not in the log."""

    def __init__(self, log: "EmbeddedLog") -> None:
        self._log = log
        self._cursors = Cursors(log.fetch)

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where in offsets:
            self._log.partition(where)
        self._cursors.assign(offsets)

    def add(self, partition: TopicPartition, offset: int) -> None:
        self._log.partition(partition)
        self._cursors.add(partition, offset)

    def remove(self, partition: TopicPartition) -> None:
        self._cursors.remove(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._cursors.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.resume(partitions)

    def assigned(self) -> frozenset[TopicPartition]:
        return self._cursors.assigned()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        records = self._cursors.take(max_records)
        if records or timeout_s <= 0:
            return records
        deadline_s = self._log.clock.monotonic_s() + timeout_s
        while self._log.sleep([self], deadline_s):
            records = self._cursors.take(max_records)
            if records:
                return records
        return self._cursors.take(max_records)

    def position(self, partition: TopicPartition) -> int:
        return self._cursors.position(partition)

    def is_ready(self) -> bool:
        return self._cursors.is_ready()

    def close(self) -> None:
        self._cursors.assign({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subscription:
    topic: str
    member: str
    on_assign: AssignCallback
    on_revoke: AssignCallback


class EmbeddedGroupConsumer:
    """GroupConsumer. Gets all partitions at once and keeps them until it closes; a second member waits for that."""

    def __init__(self, log: "EmbeddedLog", group: str, client_id: str) -> None:
        self._log = log
        self._group = group
        self._client_id = client_id
        self._subscription: _Subscription | None = None
        self._owner: GroupMetadata | None = None
        self._cursors = Cursors(log.fetch)
        self._commits: deque[tuple[Request, CommitCallback]] = deque()

    def subscribe(
        self,
        topic: str,
        *,
        on_assign: AssignCallback,
        on_revoke: AssignCallback,
        on_lost: AssignCallback,  # noqa: ARG002 - nothing is ever lost here
    ) -> None:
        if self._subscription is not None:
            raise RuntimeError("a group consumer subscribes once")
        self._log.partitions(topic)
        member = self._log.groups.join(self._group, topic, self._client_id)
        self._subscription = _Subscription(
            topic=topic, member=member, on_assign=on_assign, on_revoke=on_revoke
        )

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        subscription = self._subscription
        if subscription is None:
            raise RuntimeError("subscribe() before poll()")
        deadline_s = self._log.clock.monotonic_s() + timeout_s
        while True:
            self._serve(subscription)
            records = self._cursors.take(max_records)
            if records or timeout_s <= 0 or not self._log.sleep([self], deadline_s):
                return records

    def assigned(self) -> frozenset[TopicPartition]:
        return self._cursors.assigned()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._cursors.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        return self._cursors.position(partition)

    def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout_s: float,  # noqa: ARG002 - the answer is in memory
    ) -> dict[TopicPartition, OffsetCommit | None]:
        return {
            where: self._log.groups.committed(self._group, self._log.partition(where)) for where in partitions
        }

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> None:
        request = self._commit_request(offsets)
        self._commits.append((request, on_done))
        self._log.committer.submit(request)

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetCommit], timeout_s: float) -> None:
        self.metadata()
        request = self._commit_request(offsets)
        self._log.committer.submit(request)
        if not self._log.committer.wait(request, timeout_s):
            raise LogUnavailable(f"the offset commit was not answered within {timeout_s} s")
        if request.error is not None:
            raise request.error

    def metadata(self) -> GroupMetadata:
        if self._owner is None:
            raise NotAMember(f"{self._client_id} has no assignment in group {self._group} yet: poll first")
        return self._owner

    def is_ready(self) -> bool:
        if self._commits and self._commits[0][0].done:
            return True
        subscription = self._subscription
        if subscription is not None and self._owner is None:
            return self._claim(subscription) is not None
        return self._cursors.is_ready()

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        held = sorted(self._cursors.assigned())
        try:
            if held:
                subscription.on_revoke(held)
        finally:
            self._owner = None
            self._cursors.assign({})
            self._log.groups.leave(self._group, subscription.topic, subscription.member)
            self._log.signals.wake()
        while self._commits:
            request, on_done = self._commits.popleft()
            self._log.committer.wait(request, None)
            on_done(request.error)

    def _serve(self, subscription: _Subscription) -> None:
        while self._commits and self._commits[0][0].done:
            request, on_done = self._commits.popleft()
            on_done(request.error)
        if self._owner is None:
            self._owner = self._claim(subscription)
            if self._owner is not None:
                self._take_all(subscription)

    def _claim(self, subscription: _Subscription) -> GroupMetadata | None:
        return self._log.groups.claim(self._group, subscription.topic, subscription.member)

    def _take_all(self, subscription: _Subscription) -> None:
        partitions = [
            TopicPartition(subscription.topic, number)
            for number in range(self._log.partitions(subscription.topic))
        ]
        for where in partitions:
            self._cursors.add(where, self._start(where))
        subscription.on_assign(partitions)

    def _start(self, where: TopicPartition) -> int:
        """The committed offset or, without one or if retention took it, the first offset kept (as `earliest`)."""
        partition = self._log.partition(where)
        committed = self._log.groups.committed(self._group, partition)
        if committed is not None and partition.begin <= committed.offset <= partition.end:
            return committed.offset
        return partition.begin

    def _commit_request(self, offsets: Mapping[TopicPartition, OffsetCommit]) -> Request:
        check_offsets(offsets.values())
        owner = self._owner

        def check() -> None:
            if owner is None:
                raise NotAMember(
                    f"{self._client_id} has no assignment in group {self._group} yet: poll first"
                )
            self._log.groups.check(owner)

        return Request(
            offsets={(self._group, self._log.partition(where)): commit for where, commit in offsets.items()},
            check=check,
            on_done=lambda: self._log.signals.answered(self),
        )
