"""What a simulation can do to the in-memory log and its clients."""

from collections import Counter
from typing import TYPE_CHECKING, Literal

from tocsin.log.port import TopicPartition

if TYPE_CHECKING:
    from tocsin.log.memory.broker import Broker
    from tocsin.log.memory.log import MemoryClient

CommitFault = Literal["aborted", "unknown_committed", "unknown_aborted", "fenced"]


class Faults:
    """Clients are named as in MemoryLog.client(name). A frozen process needs no method: do not call its objects."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._clients: dict[str, MemoryClient] = {}
        self._cut: set[str] = set()
        self._held: set[str] = set()
        self._lags: dict[tuple[str, str], tuple[dict[int, int], float | None]] = {}
        self._duplicates: Counter[str] = Counter()
        self._unacknowledged: Counter[str] = Counter()
        self._commits: list[tuple[CommitFault, str | None]] = []

    # --- what a simulation calls --------------------------------------------------------------------------------------

    def cut(self, client: str) -> None:
        """No request of the client reaches the log any more.

        Its consumers go on returning, from poll(), what they had fetched ahead; a member notices the loss of its
        session a second after the log has given its partitions away. Plain records wait in its queue.
        """
        with self._broker.changed:
            if client not in self._cut:
                if client in self._clients:
                    self._clients[client].fetch_ahead()
                self._cut.add(client)

    def heal(self, client: str) -> None:
        """End a cut. What the client had queued is sent at its next call."""
        with self._broker.changed:
            self._cut.discard(client)
            if client in self._clients:
                self._clients[client].forget_fetched()
            self._broker.notify()

    def hold_sends(self, client: str) -> None:
        """Plain records of the client stay in its queue; everything else works."""
        self._held.add(client)

    def release_sends(self, client: str) -> None:
        """End a hold. The queue is sent at the producer's next call."""
        self._held.discard(client)

    def lag(self, client: str, topic: str, until_s: float | None = None) -> None:
        """The client's consumers see nothing of the topic that is appended from now on, until release() or until_s
        (on the clock's monotonic_s). Ends and offsets that are asked for by call stay true."""
        with self._broker.changed:
            ends = {w.partition: p.end for w, p in self._broker.partitions.items() if w.topic == topic}
            self._lags[client, topic] = (ends, until_s)

    def release(self, client: str, topic: str) -> None:
        """End a lag."""
        with self._broker.changed:
            self._lags.pop((client, topic), None)
            self._broker.notify()

    def duplicate_next(self, topic: str, times: int = 1) -> None:
        """The next plain records of the topic are appended twice each (a resend by a producer without memory)."""
        self._duplicates[topic] += times

    def lose_acknowledgement_of_next(self, topic: str, times: int = 1) -> None:
        """The next plain records of the topic are appended, but their producer is told that they failed."""
        self._unacknowledged[topic] += times

    def fail_next_commit(self, kind: CommitFault, client: str | None = None) -> None:
        """The next commit of a transaction with content (of this client, if named) fails.

        aborted: definite. fenced: another producer took the id. unknown_committed: it stands, but the answer is lost.
        unknown_aborted: it never arrived, and the transaction stays open until it is fenced or timed out.
        """
        self._commits.append((kind, client))

    def crash(self, client: str) -> None:
        """The process dies: its objects are of no use from now on, and nothing is closed.

        Its open transaction holds back readers until it is fenced or timed out; its members stay in their groups
        until their session ends; what was queued is gone. `client(name)` gives the process that is started next.
        """
        with self._broker.changed:
            dead = self._clients.pop(client, None)
            if dead is not None:
                dead.die()
            self._cut.discard(client)
            self._held.discard(client)

    def is_cut(self, client: str) -> bool:
        return client in self._cut

    # --- what the log asks --------------------------------------------------------------------------------------------

    def register(self, name: str, client: "MemoryClient") -> None:
        self._clients[name] = client

    def existing(self, name: str) -> "MemoryClient | None":
        return self._clients.get(name)

    def holds_sends(self, client: str) -> bool:
        return client in self._held or client in self._cut

    def visible_end(self, client: str, where: TopicPartition) -> int | None:
        lag = self._lags.get((client, where.topic))
        if lag is None:
            return None
        ends, until_s = lag
        if until_s is not None and self._broker.clock.monotonic_s() >= until_s:
            del self._lags[client, where.topic]
            return None
        return ends.get(where.partition, 0)

    def take_duplicate(self, topic: str) -> bool:
        return _take(self._duplicates, topic)

    def take_unacknowledged(self, topic: str) -> bool:
        return _take(self._unacknowledged, topic)

    def take_commit_fault(self, client: str) -> CommitFault | None:
        for index, (kind, named) in enumerate(self._commits):
            if named in (None, client):
                del self._commits[index]
                return kind
        return None


def _take(counter: Counter[str], topic: str) -> bool:
    if counter[topic] > 0:
        counter[topic] -= 1
        return True
    return False
