"""The reader and the group member of the in-memory log."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tocsin.log.cursors import Cursors
from tocsin.log.limits import check_offsets
from tocsin.log.memory.groups import SESSION_TIMEOUT_S, Assignment
from tocsin.log.port import (
    AssignCallback,
    CommitCallback,
    GroupMetadata,
    Isolation,
    LogError,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    from tocsin.log.memory.log import MemoryClient

COMMIT_TIMEOUT_S: Final = 5.0
"""How long an offset commit waits for a log that cannot be reached before it is answered with LogUnavailable."""

FETCHED_AHEAD_MAX: Final = 500
"""Records per partition that a client has in its own memory when it is cut off."""

LOCAL_SESSION_SLACK_S: Final = 1.0
"""A member that is cut off notices the end of its session later than the log: its timer runs from the last answer."""

HEARTBEAT_S: Final = 0.1
"""While a poll or wait blocks, it looks this often for what no append announces: sessions that ended, faults healed."""

_COMMITTED: Final = -1
"""The position of a partition whose committed offset has yet to be looked up."""


class FetchBuffer:
    """Fetches for one consumer: visible records of the log or, while it is cut off, what it had fetched ahead."""

    def __init__(self, client: "MemoryClient", isolation: Isolation) -> None:
        self._client = client
        self._broker = client.broker
        self._isolation: Isolation = isolation
        self._ahead: dict[TopicPartition, list[Record]] = {}

    def fetch(self, where: TopicPartition, offset: int, max_records: int) -> tuple[list[Record], int]:
        if self._broker.faults.is_cut(self._client.name):
            records = [r for r in self._ahead.get(where, ()) if r.offset >= offset][:max_records]
            return records, records[-1].offset + 1 if records else offset
        visible = self._broker.faults.visible_end(self._client.name, where)
        return self._broker.partition(where).fetch(offset, max_records, self._isolation, visible)

    def fetch_ahead(self, cursors: Cursors) -> None:
        for where in cursors.assigned():
            offset = cursors.position(where)
            if self._broker.partition(where).begin <= offset <= self._broker.partition(where).end:
                self._ahead[where] = self.fetch(where, offset, FETCHED_AHEAD_MAX)[0]

    def forget(self) -> None:
        self._ahead.clear()


class MemoryReader:
    """Reader."""

    def __init__(self, client: "MemoryClient", isolation: Isolation) -> None:
        self._client = client
        self._broker = client.broker
        self._buffer = FetchBuffer(client, isolation)
        self._cursors = Cursors(self._buffer.fetch)

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where in offsets:
            self._check(where)
        self._cursors.assign(offsets)

    def add(self, partition: TopicPartition, offset: int) -> None:
        self._check(partition)
        self._cursors.add(partition, offset)

    def remove(self, partition: TopicPartition) -> None:
        self._client.check_alive()
        self._cursors.remove(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._client.check_alive()
        self._cursors.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.resume(partitions)

    def assigned(self) -> frozenset[TopicPartition]:
        return self._cursors.assigned()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        self._client.check_alive()
        deadline_s = self._broker.clock.monotonic_s() + timeout_s
        while True:
            with self._broker.changed:
                self._broker.expire()
                version = self._broker.version
                records = self._cursors.take(max_records)
            if records or not self._client.wait_for_change(version, deadline_s):
                return records

    def position(self, partition: TopicPartition) -> int:
        return self._cursors.position(partition)

    def is_ready(self) -> bool:
        with self._broker.changed:
            return self._cursors.is_ready()

    def close(self) -> None:
        self._client.forget(self)
        self._cursors.assign({})

    def fetch_ahead(self) -> None:
        self._buffer.fetch_ahead(self._cursors)

    def forget_fetched(self) -> None:
        self._buffer.forget()

    def _check(self, where: TopicPartition) -> None:
        self._client.check_alive()
        self._broker.partition(where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingCommit:
    offsets: dict[TopicPartition, OffsetCommit]
    group: GroupMetadata
    on_done: CommitCallback
    sent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subscription:
    topic: str
    on_assign: AssignCallback
    on_revoke: AssignCallback
    on_lost: AssignCallback


class MemoryGroupConsumer:
    """GroupConsumer."""

    def __init__(self, client: "MemoryClient", group: str, client_id: str) -> None:
        self._client = client
        self._broker = client.broker
        self._group = group
        self._client_id = client_id
        self._subscription: _Subscription | None = None
        self._member: str | None = None
        self._generation = -1
        self._answered_s = 0.0
        self._pending: deque[_PendingCommit] = deque()
        self._done: deque[tuple[CommitCallback, LogError | None]] = deque()
        self._buffer = FetchBuffer(client, "committed")
        self._cursors = Cursors(self._fetch)

    def subscribe(
        self, topic: str, *, on_assign: AssignCallback, on_revoke: AssignCallback, on_lost: AssignCallback
    ) -> None:
        self._client.check_alive()
        if self._subscription is not None:
            raise RuntimeError("a group consumer subscribes once")
        self._broker.count(topic)
        self._subscription = _Subscription(
            topic=topic, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        self._client.check_alive()
        if self._subscription is None:
            raise RuntimeError("subscribe() before poll()")
        deadline_s = self._broker.clock.monotonic_s() + timeout_s
        while True:
            version = self._broker.version
            self._serve_commits()
            self._serve_membership(self._subscription)
            with self._broker.changed:
                records = self._cursors.take(max_records)
            if records or not self._client.wait_for_change(version, deadline_s):
                return records

    def assigned(self) -> frozenset[TopicPartition]:
        return self._cursors.assigned()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._cursors.resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._client.check_alive()
        self._cursors.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        if self._cursors.position(partition) == _COMMITTED:
            with self._client.request():
                self._cursors.seek(partition, self._start(partition))
        return self._cursors.position(partition)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetCommit | None]:
        deadline_s = self._broker.clock.monotonic_s() + timeout_s
        wanted = list(partitions)
        while True:
            version = self._broker.version
            try:
                with self._client.request():
                    return {where: self._broker.committed(self._group, where) for where in wanted}
            except LogUnavailable:
                if not self._client.wait_for_change(version, deadline_s):
                    raise

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> None:
        self._client.check_alive()
        check_offsets(offsets.values())
        try:
            group = self.metadata()
        except NotAMember as error:
            self._done.append((on_done, error))
            return
        self._pending.append(
            _PendingCommit(
                offsets=dict(offsets),
                group=group,
                on_done=on_done,
                sent_s=self._broker.clock.monotonic_s(),
            )
        )
        self._send_commits()

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetCommit], timeout_s: float) -> None:  # noqa: ARG002
        check_offsets(offsets.values())
        group = self.metadata()
        with self._client.request():
            self._send_commits()
            self._broker.coordinator.commit(group, offsets, self._broker.clock.monotonic_s())

    def metadata(self) -> GroupMetadata:
        self._client.check_alive()
        if self._member is None or self._generation < 0:
            raise NotAMember(f"{self._client_id} has no assignment in group {self._group} yet: poll first")
        return GroupMetadata(group=self._group, member=self._member, generation=self._generation)

    def is_ready(self) -> bool:
        with self._broker.changed:
            if self._done or self._cursors.is_ready():
                return True
            if self._member is None:
                return True
            group = self._broker.coordinator.group(self._group)
            member = group.members.get(self._member)
            if member is None:
                return True
            if group.rebalancing_since_s is not None:
                return not member.joined
            return self._generation != group.generation

    def close(self) -> None:
        self._client.forget(self)
        subscription, member = self._subscription, self._member
        if subscription is None or member is None:
            return
        if self._broker.faults.is_cut(self._client.name):
            self._lose(subscription)
            return
        with self._broker.changed:
            self._broker.expire()
        held = sorted(self._cursors.assigned())
        if member not in self._broker.coordinator.group(self._group).members:
            self._lose(subscription)
            return
        try:
            if held:
                subscription.on_revoke(held)
        finally:
            with self._client.request():
                self._broker.coordinator.leave(self._group, member, self._broker.clock.monotonic_s())
                self._broker.notify()
            self._member, self._generation = None, -1
            self._cursors.assign({})
        self._serve_commits()

    def fetch_ahead(self) -> None:
        self._buffer.fetch_ahead(self._cursors)

    def forget_fetched(self) -> None:
        self._buffer.forget()

    # --- fetching -----------------------------------------------------------------------------------------------------

    def _fetch(self, where: TopicPartition, offset: int, max_records: int) -> tuple[list[Record], int]:
        if offset == _COMMITTED:
            if self._broker.faults.is_cut(self._client.name):
                return [], offset
            try:
                offset = self._start(where)
            except LogUnavailable:
                return [], offset
        return self._buffer.fetch(where, offset, max_records)

    def _start(self, where: TopicPartition) -> int:
        """The committed offset or, without one or if retention took it, the first offset kept (as `earliest`)."""
        committed = self._broker.committed(self._group, where)
        partition = self._broker.partition(where)
        if committed is not None and partition.begin <= committed.offset <= partition.end:
            return committed.offset
        return partition.begin

    # --- membership ---------------------------------------------------------------------------------------------------

    def _serve_membership(self, subscription: _Subscription) -> None:
        broker = self._broker
        now_s = broker.clock.monotonic_s()
        if broker.faults.is_cut(self._client.name):
            if (
                self._member is not None
                and now_s - self._answered_s > SESSION_TIMEOUT_S + LOCAL_SESSION_SLACK_S
            ):
                self._lose(subscription)
            return
        with broker.changed:
            broker.expire()
            if self._member is None:
                self._join(subscription, now_s)
            try:
                assignment = self._heartbeat(now_s)
            except NotAMember:
                assignment = None
                lost = True
            else:
                lost = False
        if lost:
            self._lose(subscription)
        elif assignment is not None:
            self._adopt(subscription, assignment)

    def _join(self, subscription: _Subscription, now_s: float) -> None:
        self._member = self._broker.coordinator.join(
            self._group, client_id=self._client_id, topic=subscription.topic, now_s=now_s
        )
        self._broker.notify()

    def _heartbeat(self, now_s: float) -> Assignment | None:
        assert self._member is not None
        assignment = self._broker.coordinator.heartbeat(
            self._group, self._member, self._cursors.assigned(), now_s
        )
        self._answered_s = now_s
        if assignment is not None:
            self._broker.notify()
        return assignment

    def _adopt(self, subscription: _Subscription, assignment: Assignment) -> None:
        """Learn one's share: give up first, then take. What moves on is free for others in the next round."""
        self._generation = assignment.generation
        revoked = sorted(self._cursors.assigned() - assignment.partitions)
        if revoked:
            try:
                subscription.on_revoke(revoked)
            finally:
                for where in revoked:
                    self._cursors.remove(where)
                self._rejoin()
        added = sorted(assignment.partitions - self._cursors.assigned())
        for where in added:
            self._cursors.add(where, _COMMITTED)
        if added:
            subscription.on_assign(added)

    def _rejoin(self) -> None:
        if self._member is None:
            return
        try:
            with self._client.request():
                self._broker.coordinator.rejoin(self._group, self._member, self._broker.clock.monotonic_s())
                self._broker.notify()
        except (LogUnavailable, NotAMember):
            pass  # the next poll learns what became of the membership

    def _lose(self, subscription: _Subscription) -> None:
        lost = sorted(self._cursors.assigned())
        self._member, self._generation = None, -1
        try:
            if lost:
                subscription.on_lost(lost)
        finally:
            self._cursors.assign({})
            self._buffer.forget()

    # --- commits ------------------------------------------------------------------------------------------------------

    def _serve_commits(self) -> None:
        self._send_commits()
        while self._done:
            on_done, error = self._done.popleft()
            on_done(error)

    def _send_commits(self) -> None:
        broker = self._broker
        now_s = broker.clock.monotonic_s()
        if broker.faults.is_cut(self._client.name):
            while self._pending and now_s - self._pending[0].sent_s > COMMIT_TIMEOUT_S:
                late = self._pending.popleft()
                error = LogUnavailable(f"the offset commit was not answered within {COMMIT_TIMEOUT_S:.0f} s")
                self._done.append((late.on_done, error))
            return
        with broker.changed:
            broker.expire()
            while self._pending:
                pending = self._pending.popleft()
                try:
                    broker.coordinator.commit(pending.group, pending.offsets, now_s)
                except NotAMember as refused:
                    self._done.append((pending.on_done, refused))
                else:
                    self._done.append((pending.on_done, None))
