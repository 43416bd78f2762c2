"""GroupConsumer: a member of a classic group, balanced cooperatively.

Our callbacks never run inside librdkafka's. It is told, by an assign that it refuses, that we have not assigned yet; then
the rebalance stands still until the callbacks have run, outside, where they may call anything, and the real assign or
unassign follows. (Inside its callback a call that gives the GIL away, such as committed(), ends the process at the next
callback of the same poll: CallState_get asserts; found with confluent-kafka 2.16.1.)
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, assert_never

import confluent_kafka as ck
from confluent_kafka import KafkaException

from tocsin.clock import Clock
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.connections import close_within
from tocsin.log.kafka.errors import error_of, to_log_error, to_unavailable
from tocsin.log.kafka.fetching import SLICE_S, UNRESOLVED, Fetching, Standing
from tocsin.log.kafka.membership import NO_MEMBER, Membership
from tocsin.log.kafka.offset_commits import OffsetCommits
from tocsin.log.kafka.offsets import Offsets
from tocsin.log.kafka.settings import CLOSE_S, COMMIT_OFFSETS_S, CONSUMING, GROUP, options_for
from tocsin.log.kafka.topics import Topics
from tocsin.log.limits import check_offsets
from tocsin.log.port import (
    AssignCallback,
    CommitCallback,
    GroupMetadata,
    LogError,
    LogUnavailable,
    NotAMember,
    OffsetCommit,
    Record,
    TopicPartition,
)

logger = logging.getLogger(__name__)

RESOLVE_S: Final = 0.5
"""A poll waits no longer than this for the offsets where new partitions begin; a later one asks again."""
RESOLVE_AGAIN_S: Final = 1.0

_REFUSED_ASSIGN: Final = ck.TopicPartition("-", 0, -5)
"""An offset that does not exist: the assign is refused, and librdkafka goes on waiting for one."""
_REFUSED_UNASSIGN: Final = ck.TopicPartition("-", 0)
"""Never assigned, so it cannot be unassigned."""

_What = Literal["assign", "revoke", "lost"]
_Event = tuple[_What, list[TopicPartition]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subscription:
    topic: str
    on_assign: AssignCallback
    on_revoke: AssignCallback
    on_lost: AssignCallback


class KafkaGroupConsumer:
    """GroupConsumer. Used by one thread."""

    def __init__(
        self,
        group: str,
        client_id: str,
        config: KafkaConfig,
        offsets: Offsets,
        topics: Topics,
        clock: Clock,
        troubles: Troubles,
        on_close: Callable[["KafkaGroupConsumer"], None],
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._offsets = offsets
        self._topics = topics
        self._clock = clock
        self._troubles = troubles
        self._on_close = on_close
        self._subscription: _Subscription | None = None
        self._events: deque[_Event] = deque()
        self._is_serving = False
        self._kept: set[TopicPartition] = set()
        """What the group gave us as another member, and we were told to have lost: ours again at the next assignment."""
        self._membership = Membership(self._metadata_bytes)
        self._commits = OffsetCommits(group, self._membership, clock, troubles)
        self._resolve_at_s = 0.0
        options = options_for(config, CONSUMING, GROUP, client_id=client_id, group_id=group)
        options["on_commit"] = self._commits.callback
        try:
            self._consumer = ck.Consumer(options | troubles.options())
        except KafkaException as exception:
            raise to_log_error(error_of(exception), f"join {group}", troubles.explain) from None
        self._is_open = True
        self.fetching = Fetching(
            self._consumer,
            clock,
            troubles,
            serve=self._serve,
            out_of_range=self._begin_anew,
            slice_s=SLICE_S,
        )

    # --- GroupConsumer ------------------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, *, on_assign: AssignCallback, on_revoke: AssignCallback, on_lost: AssignCallback
    ) -> None:
        if self._subscription is not None:
            raise RuntimeError("a group consumer subscribes once")
        self._topics.partitions(topic)
        self._subscription = _Subscription(
            topic=topic, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )
        self._consumer.subscribe(
            [topic],
            on_assign=self._assign_callback,
            on_revoke=self._revoke_callback,
            on_lost=self._lost_callback,
        )

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        if self._subscription is None or not self._is_open:
            raise RuntimeError("subscribe() before poll(), and no poll() after close()")
        self._resolve()
        return self.fetching.poll(max_records, timeout_s)

    def assigned(self) -> frozenset[TopicPartition]:
        return self.fetching.assigned()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.fetching.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.fetching.resume(partitions)
        self._resolve_at_s = 0.0

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.fetching.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        standing = self.fetching.standing(partition)
        if standing.position == UNRESOLVED:
            self._look_up([standing], COMMIT_OFFSETS_S)
        return standing.position

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetCommit | None]:
        wanted = list(partitions)
        if not wanted:
            return {}
        doing = f"learn the offsets that {self._group} has committed"
        try:
            found = self._consumer.committed(
                [ck.TopicPartition(*where) for where in wanted], timeout=timeout_s
            )
        except KafkaException as exception:
            raise to_unavailable(error_of(exception), doing, self._troubles.explain) from None
        for each in found:
            if each.error is not None:
                raise to_unavailable(each.error, doing, self._troubles.explain)
        return {
            TopicPartition(each.topic, each.partition): OffsetCommit(each.offset, each.metadata or "")
            if each.offset >= 0
            else None
            for each in found
        }

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], on_done: CommitCallback) -> None:
        check_offsets(offsets.values())
        try:
            self.metadata()
        except NotAMember as error:
            self._commits.refuse(on_done, error)
            return
        self._commits.add(offsets, on_done)
        self._commits.send(self._consumer)

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetCommit], timeout_s: float) -> None:
        check_offsets(offsets.values())
        self.metadata()
        answers: list[LogError | None] = []
        commit = self._commits.add(offsets, answers.append)
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._commits.serve(self._consumer)
            if answers:
                break
            if self._clock.monotonic_s() >= deadline_s:
                commit.on_done = _nobody
                raise LogUnavailable(f"the offset commit was not answered within {timeout_s:.1f} s")
            self.fetching.look(SLICE_S)
        if answers[0] is not None:
            raise answers[0]

    def metadata(self) -> GroupMetadata:
        place = self._membership.place()
        if place is None:
            raise NotAMember(f"{self._client_id} has no assignment in group {self._group} now: poll first")
        generation, member = place
        return GroupMetadata(group=self._group, member=member, generation=generation)

    def _metadata_bytes(self) -> bytes:
        if not self._is_open:
            return NO_MEMBER
        found: bytes = self._consumer.consumer_group_metadata()
        return found

    def is_ready(self, timeout_s: float) -> bool:
        self._resolve()
        return self.fetching.is_ready(timeout_s)

    def close(self) -> None:
        """Safe twice. Leaves the group, calling on_revoke (on_lost, if that is what happened) for what is held."""
        if not self._is_open:
            return
        self._on_close(self)
        try:
            try:
                self._give_up()
            finally:
                self._await_answers()
        finally:
            self._is_open = False
            for what, partitions in self._events:  # librdkafka still waits for what we have put off
                self._complete(what, partitions)
            self._events.clear()
            close_within(self._consumer, CLOSE_S)

    # --- rebalances -----------------------------------------------------------------------------------------------------

    def _assign_callback(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if not self._is_open:
            consumer.incremental_assign([])
            return
        self._events.append(("assign", _ours(partitions)))
        with suppress(KafkaException):
            consumer.incremental_assign([_REFUSED_ASSIGN])

    def _revoke_callback(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if not self._is_open:  # closing: they were told already
            consumer.incremental_unassign(self.fetching.release(_ours(partitions)))
            return
        self._events.append(("revoke", _ours(partitions)))
        with suppress(KafkaException):
            consumer.incremental_unassign([_REFUSED_UNASSIGN])

    def _lost_callback(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if not self._is_open:
            consumer.incremental_unassign(self.fetching.release(_ours(partitions)))
            return
        self._events.append(("lost", _ours(partitions)))
        with suppress(KafkaException):
            consumer.incremental_unassign([_REFUSED_UNASSIGN])

    def _serve(self) -> bool:
        """Run what callbacks have left, outside of them. Inside one of ours, only commits are served."""
        happened = False
        while (self._events or self._membership.is_suspect) and not self._is_serving:
            happened = True
            self._is_serving = self.fetching.held = True
            try:
                self._serve_one()
            finally:
                self._is_serving = self.fetching.held = False
        return self._commits.serve(self._consumer) or happened

    def _serve_one(self) -> None:
        what, partitions = self._events.popleft() if self._events else (None, [])
        try:
            self._notice_loss(lost=what == "lost")
            match what:
                case "assign":
                    self._assign(partitions)
                case "revoke":
                    self._revoke(partitions)
                case "lost" | None:
                    self._kept.difference_update(partitions)
                case _:
                    assert_never(what)
        finally:
            if what is not None:
                self._complete(what, partitions)

    def _notice_loss(self, *, lost: bool) -> None:
        """Everything is lost once we are another member, whatever librdkafka says of it.

        A process that was frozen beyond its session may first hear of a rebalance, and from the answer to its JoinGroup
        that it is no member. It then joins as a new one, says that it holds what it held, and is given that again, or
        asked to revoke it, as if nothing had happened; but others have had it meanwhile.
        """
        held = sorted(self.fetching.assigned())
        is_same = self._membership.place() is not None
        self._membership.is_suspect = False
        if is_same and not lost:
            return
        self._membership.lose()
        self._kept.update(held)
        for where in held:
            self.fetching.remove(where)
        if held:
            assert self._subscription is not None
            self._subscription.on_lost(held)

    def _assign(self, partitions: list[TopicPartition]) -> None:
        assert self._subscription is not None
        self._membership.renew()
        partitions = sorted(self._kept.union(partitions))
        self._kept.clear()
        for where in partitions:
            self.fetching.add(where, UNRESOLVED)
        self._resolve_at_s = 0.0
        if partitions:
            self._subscription.on_assign(partitions)

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        assert self._subscription is not None
        self._kept.difference_update(partitions)
        held = sorted(self.fetching.assigned().intersection(partitions))
        if held:
            self._subscription.on_revoke(held)

    def _complete(self, what: _What, partitions: list[TopicPartition]) -> None:
        """Let the rebalance go on. Reading begins with the next poll, at the offsets that are known by then."""
        with suppress(KafkaException):  # it has moved on by itself
            if what == "assign":
                self._consumer.incremental_assign([])
            else:
                self._consumer.incremental_unassign(self.fetching.release(partitions))

    def _give_up(self) -> None:
        """What close() does before it leaves the group."""
        if self._subscription is None:
            return
        self.fetching.look(0.0)
        self._serve()  # a loss that was not told yet
        held = sorted(self.fetching.assigned())
        self._is_serving = self.fetching.held = True
        try:
            self._notice_loss(lost=False)
            if held and self.fetching.assigned():
                self._subscription.on_revoke(held)
        finally:
            self._is_serving = self.fetching.held = False
            self.fetching.assign({})

    def _await_answers(self) -> None:
        deadline_s = self._clock.monotonic_s() + CLOSE_S
        while self._commits.outstanding and self._clock.monotonic_s() < deadline_s:
            if not self._commits.serve(self._consumer):
                self.fetching.look(SLICE_S)

    # --- where partitions begin -----------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Look up where partitions begin that nobody sought. What cannot be learned now is asked again later."""
        now_s = self._clock.monotonic_s()
        if now_s < self._resolve_at_s:
            return
        unknown = [s for s in self.fetching.standings() if s.position == UNRESOLVED and not s.paused]
        if not unknown:
            self._resolve_at_s = float("inf")  # until something is assigned or resumed
            return
        try:
            self._look_up(unknown, RESOLVE_S)
        except LogUnavailable as error:
            logger.info(
                "where %d partitions of %s begin is asked again: %s", len(unknown), self._group, error
            )
            self._resolve_at_s = now_s + RESOLVE_AGAIN_S

    def _look_up(self, standings: Sequence[Standing], timeout_s: float) -> None:
        """The committed offset or, without one or if retention took it, the first offset kept (as `earliest`)."""
        wanted = [standing.where for standing in standings]
        committed = self.committed(wanted, timeout_s)
        begins, ends = self._offsets.begins(wanted), self._offsets.ends(wanted, "uncommitted")
        for standing in standings:
            where = standing.where
            commit = committed[where]
            known = commit is not None and begins[where] <= commit.offset <= ends[where]
            self.fetching.resolve(standing, commit.offset if known and commit is not None else begins[where])

    def _begin_anew(self, standing: Standing) -> bool:
        """Retention may take a looked-up offset before it is read."""
        if standing.sought:
            return False
        standing.position = UNRESOLVED
        self._resolve_at_s = 0.0
        return True


def _ours(partitions: Iterable[ck.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def _nobody(_: LogError | None) -> None:
    """The caller has stopped waiting."""
