"""A member's offset commits. One request is out at a time: librdkafka's answers do not say which request they answer."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.errors import describe, error_of, is_not_a_member, to_unavailable
from tocsin.log.kafka.membership import Membership
from tocsin.log.kafka.settings import COMMIT_OFFSETS_S
from tocsin.log.port import CommitCallback, LogError, LogUnavailable, NotAMember, OffsetCommit, TopicPartition


@dataclass(slots=True, kw_only=True)
class Commit:
    offsets: Mapping[TopicPartition, OffsetCommit]
    on_done: CommitCallback
    losses: int
    """How often the membership had been lost when it was asked for."""
    deadline_s: float
    answered: bool = False


class OffsetCommits:
    """Used by one thread: its consumer's."""

    def __init__(self, group: str, membership: Membership, clock: Clock, troubles: Troubles) -> None:
        self._group = group
        self._membership = membership
        self._clock = clock
        self._troubles = troubles
        self._waiting: deque[Commit] = deque()
        self._out: Commit | None = None
        self._answered: deque[tuple[Commit, KafkaError | None]] = deque()
        """What the log has said, and was not looked at yet."""
        self._done: deque[tuple[CommitCallback, LogError | None]] = deque()

    def add(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> Commit:
        commit = Commit(
            offsets=dict(offsets),
            on_done=on_done,
            losses=self._membership.losses,
            deadline_s=self._clock.monotonic_s() + COMMIT_OFFSETS_S,
        )
        self._waiting.append(commit)
        return commit

    def refuse(self, on_done: CommitCallback, error: LogError) -> None:
        """It is not sent at all; told from the next serve()."""
        self._done.append((on_done, error))

    @property
    def outstanding(self) -> bool:
        """Whether an answer is still to be told that may yet come."""
        is_out = self._out is not None and not self._out.answered
        return is_out or bool(self._answered or self._done or (self._waiting and self._out is None))

    def callback(self, error: KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        """librdkafka's, for the one request that is out. Nothing is asked in here."""
        commit, self._out = self._out, None
        if commit is not None and not commit.answered:
            failed = error or next((each.error for each in partitions if each.error is not None), None)
            self._answered.append((commit, failed))

    def serve(self, consumer: ck.Consumer) -> bool:
        """Send what can be sent, tell what was answered. Whether something was told."""
        self._judge()
        self._give_up_late()
        self.send(consumer)
        happened = bool(self._done)
        while self._done:
            on_done, error = self._done.popleft()
            on_done(error)
        return happened

    def send(self, consumer: ck.Consumer) -> None:
        while self._out is None and self._waiting:
            commit = self._waiting.popleft()
            if commit.losses != self._membership.losses:
                self._done.append((commit.on_done, self._lost_since()))
                continue
            offsets = [
                ck.TopicPartition(where.topic, where.partition, each.offset, each.metadata)
                for where, each in commit.offsets.items()
            ]
            self._out = commit
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as exception:
                self._out = None
                self._done.append((commit.on_done, self._problem(error_of(exception))))

    def _judge(self) -> None:
        while self._answered:
            commit, failed = self._answered.popleft()
            answer: LogError | None = None
            if failed is not None:
                answer = self._problem(failed)
            elif commit.losses != self._membership.losses or self._membership.place() is None:
                # A group without members accepts a commit from outside; and as another member we may be accepted, too.
                answer = self._lost_since()
            self._done.append((commit.on_done, answer))

    def _give_up_late(self) -> None:
        """The one that is out stays out, so that its answer is not taken for the next one's."""
        if self._out is None and not self._waiting:
            return
        now_s = self._clock.monotonic_s()
        for commit in (self._out, *self._waiting):
            if commit is not None and now_s >= commit.deadline_s and not commit.answered:
                commit.answered = True
                late = LogUnavailable(f"the offset commit was not answered within {COMMIT_OFFSETS_S:.0f} s")
                self._done.append((commit.on_done, late))
        while self._waiting and self._waiting[0].answered:
            self._waiting.popleft()

    def _problem(self, error: KafkaError) -> LogError:
        if is_not_a_member(error.code()) or error.code() == codes.STATE:
            return NotAMember(
                f"the offset commit was refused: {describe(error)}; after the next poll it may be taken"
            )
        return to_unavailable(error, f"commit offsets of {self._group}", self._troubles.explain)

    def _lost_since(self) -> NotAMember:
        return NotAMember(f"the place in {self._group} was lost before the offset commit was answered")
