"""Consumer groups of the embedded log: one member at a time owns all partitions of its topic, and keeps them.

Everything happens in one process, so nobody can vanish without the log: there are no sessions and nothing is revoked. A
second member of a group waits until the first has left. Only the offsets are durable; who owns what ends with the
process, which the directory's lock proves.
"""

import threading
from collections.abc import Callable, Mapping

from tocsin.log.embedded.partition import Partition
from tocsin.log.port import GroupMetadata, NotAMember, OffsetCommit


class Groups:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], list[str]] = {}
        self._generations: dict[tuple[str, str], int] = {}
        self._owners: dict[str, GroupMetadata] = {}
        self._client_ids: dict[str, str] = {}
        self._offsets: dict[tuple[str, Partition], OffsetCommit] = {}
        self._members = 0

    def join(self, group: str, topic: str, client_id: str) -> str:
        """A new member's id. It owns the topic once claim() says so."""
        with self._lock:
            self._members += 1
            member = f"{client_id}-{self._members}"
            self._waiting.setdefault((group, topic), []).append(member)
            self._client_ids[member] = client_id
            return member

    def claim(self, group: str, topic: str, member: str) -> GroupMetadata | None:
        """Who the member is, once everything belongs to it; None while another one holds it."""
        with self._lock:
            if self._waiting[group, topic][0] != member:
                return None
            owner = self._owners.get(member)
            if owner is None:
                generation = self._generations.get((group, topic), 0) + 1
                self._generations[group, topic] = generation
                owner = self._owners[member] = GroupMetadata(
                    group=group, member=member, generation=generation
                )
            return owner

    def leave(self, group: str, topic: str, member: str) -> None:
        with self._lock:
            self._owners.pop(member, None)
            self._client_ids.pop(member, None)
            self._waiting[group, topic].remove(member)

    def members(self, group: str) -> list[tuple[str, str | None]]:
        """The client id of each member, and the topic that it owns, if it does."""
        with self._lock:
            return [
                (self._client_ids[member], topic if member in self._owners else None)
                for (name, topic), waiting in self._waiting.items()
                if name == group
                for member in waiting
            ]

    def check(self, metadata: GroupMetadata) -> None:
        """Raises NotAMember unless this member owns its topic, in this generation."""
        if self._owners.get(metadata.member) != metadata:
            raise NotAMember(
                f"{metadata.member} is not, or no longer, in generation {metadata.generation} of group "
                f"{metadata.group}: poll, then try again"
            )

    def keep(self, offsets: Mapping[tuple[str, Partition], OffsetCommit]) -> None:
        """The offsets are durable, and the committed ones from now on."""
        if offsets:
            with self._lock:
                self._offsets.update(offsets)

    def committed(self, group: str, partition: Partition) -> OffsetCommit | None:
        with self._lock:
            return self._offsets.get((group, partition))

    def reload(self, read: Callable[[], Mapping[tuple[str, Partition], OffsetCommit]]) -> None:
        """Take what the store holds."""
        with self._lock:
            self._offsets = dict(read())
