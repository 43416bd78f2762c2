"""Consumer groups of the in-memory log: sessions, generations, and the cooperative rebalance as Kafka does it.

A rebalance begins when a member joins, leaves, or its session expires. It completes once every member has polled (or
its session ended) and declared what it holds; then the generation rises and each member learns its share at its next
poll. A partition that moves is first revoked from its holder, in one generation, and given away in the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tocsin.log import port
from tocsin.log.port import GroupMetadata, NotAMember, OffsetCommit, TopicPartition

SESSION_TIMEOUT_S: Final = 6.0
"""How long the log keeps a member that it does not hear from (session.timeout.ms of both roles on Kafka)."""

REBALANCE_TIMEOUT_S: Final = 300.0
"""How long a rebalance waits for a member that lives, by its commits, but does not poll (max.poll.interval.ms)."""


class Assignment(NamedTuple):
    """What a member learns when a rebalance has completed."""

    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    member_id: str
    client_id: str
    topic: str
    seen_s: float
    rank: int
    """The order of joining; breaks ties in the assignment."""
    joined: bool = False
    """Has polled since the rebalance began, and declared `owned`."""
    owned: frozenset[TopicPartition] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    """The last generation it has learned of."""


@dataclass(slots=True, kw_only=True)
class Group:
    generation: int = 0
    rebalancing_since_s: float | None = None
    members: dict[str, Member] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetCommit] = field(default_factory=dict)


class Coordinator:
    """Not locked: the broker's lock guards it."""

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._partition_counts = partition_counts
        self._ranks = 0
        self.groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def join(self, name: str, *, client_id: str, topic: str, now_s: float) -> str:
        """A new member, which owns nothing yet. Returns its id."""
        group = self.group(name)
        self._ranks += 1
        member_id = f"{client_id}-{self._ranks}"
        group.members[member_id] = Member(
            member_id=member_id, client_id=client_id, topic=topic, seen_s=now_s, rank=self._ranks
        )
        self._rebalance(group, now_s)
        return member_id

    def leave(self, name: str, member_id: str, now_s: float) -> None:
        group = self.group(name)
        if group.members.pop(member_id, None) is not None:
            self._rebalance(group, now_s)

    def heartbeat(
        self, name: str, member_id: str, owned: frozenset[TopicPartition], now_s: float
    ) -> Assignment | None:
        """Keep the session; join a rebalance that is going on; learn the outcome of one that has completed.

        Raises NotAMember for a member that was cut off.
        """
        group = self.group(name)
        member = self._member(group, name, member_id)
        member.seen_s = now_s
        if group.rebalancing_since_s is not None:
            member.joined, member.owned = True, owned
            self._complete_if_all_joined(group)
        if group.rebalancing_since_s is None and member.generation != group.generation:
            member.generation = group.generation
            return Assignment(group.generation, member.assigned)
        return None

    def rejoin(self, name: str, member_id: str, now_s: float) -> None:
        """A member has given partitions up: a further round hands them to those who wait for them."""
        group = self.group(name)
        self._member(group, name, member_id)
        self._rebalance(group, now_s)

    def check(self, group_name: str, member_id: str, generation: int) -> None:
        """Raises NotAMember unless this member is in this generation, and it is the group's current one."""
        group = self.group(group_name)
        self._member(group, group_name, member_id)
        if generation != group.generation:
            raise NotAMember(
                f"group {group_name} is in generation {group.generation}, {member_id} in {generation}: poll, "
                f"then try again"
            )

    def commit(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetCommit], now_s: float
    ) -> None:
        """An accepted plain commit restarts the member's session (measured on a broker). Raises NotAMember."""
        self.check(group.group, group.member, group.generation)
        state = self.group(group.group)
        state.committed.update(offsets)
        state.members[group.member].seen_s = now_s

    def described(self, name: str) -> tuple[port.Member, ...]:
        """The members as anybody may see them. A group that was asked about is not made by that."""
        group = self.groups.get(name, Group())
        balanced = group.rebalancing_since_s is None
        return tuple(
            port.Member(client_id=m.client_id, partitions=m.assigned if balanced else frozenset())
            for m in group.members.values()
        )

    def expire(self, now_s: float) -> None:
        """Cut off the members whose session has ended."""
        for group in self.groups.values():
            gone = [m for m in group.members.values() if self._is_over(group, m, now_s)]
            for member in gone:
                del group.members[member.member_id]
            if gone:
                self._rebalance(group, now_s)
                self._complete_if_all_joined(group)

    def _is_over(self, group: Group, member: Member, now_s: float) -> bool:
        if now_s - member.seen_s > SESSION_TIMEOUT_S:
            return True
        since_s = group.rebalancing_since_s
        return since_s is not None and not member.joined and now_s - since_s > REBALANCE_TIMEOUT_S

    def _member(self, group: Group, name: str, member_id: str) -> Member:
        member = group.members.get(member_id)
        if member is None:
            raise NotAMember(f"{member_id} is not, or no longer, a member of group {name}: poll to join it")
        return member

    def _rebalance(self, group: Group, now_s: float) -> None:
        if group.rebalancing_since_s is None:
            group.rebalancing_since_s = now_s
            for member in group.members.values():
                member.joined = False

    def _complete_if_all_joined(self, group: Group) -> None:
        members = list(group.members.values())
        if group.rebalancing_since_s is None or not members or not all(m.joined for m in members):
            return
        group.rebalancing_since_s = None
        group.generation += 1
        for topic in sorted({m.topic for m in members}):
            self._assign([m for m in members if m.topic == topic], topic)

    def _assign(self, members: list[Member], topic: str) -> None:
        """Sticky and balanced; what still belongs to another member is given to nobody in this round."""
        partitions = [TopicPartition(topic, p) for p in range(self._partition_counts[topic])]
        owner: dict[TopicPartition, Member] = {}
        # If two claim a partition, the one that learned of its share later is right.
        for member in sorted(members, key=lambda m: (m.generation, -m.rank)):
            owner.update((p, member) for p in partitions if p in member.owned)
        held = {m.member_id: [p for p in partitions if owner.get(p) is m] for m in members}
        by_weight = sorted(members, key=lambda m: (-len(held[m.member_id]), m.rank))
        share, extra = divmod(len(partitions), len(members))
        quota = {m.member_id: share + (place < extra) for place, m in enumerate(by_weight)}
        target = {m.member_id: held[m.member_id][: quota[m.member_id]] for m in members}
        kept = {p for chosen in target.values() for p in chosen}
        rest = iter([p for p in partitions if p not in kept])
        for member in by_weight:
            mine = target[member.member_id]
            while len(mine) < quota[member.member_id]:
                mine.append(next(rest))
            member.assigned = frozenset(p for p in mine if owner.get(p) in (None, member))
