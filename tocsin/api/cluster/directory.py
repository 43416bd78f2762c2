"""Which streams process owns which partition, as the consumer group shows it.

A streams process joins the group with its advertised URL as its client id. What a member calls itself is data from the log:
it is looked at before anything is sent there, above all the cluster's secret.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tocsin.clock import Clock
from tocsin.log.port import LogError, Member
from tocsin.streams.queries import MissingPartition

REFRESH_MIN_S: Final = 1.0
"""The group is described at most so often: it is a request to its coordinator."""
REFRESH_MAX_S: Final = 2.0
"""How long a question waits for it."""
REFRESH_IDLE_S: Final = 5.0
"""And at least so often, so that the first question after a rebalance usually finds the new owner."""
MEMBERS_S: Final = 10.0
"""After this long without an answer the log counts as not answering. The call goes on; no second one is begun."""
TROUBLE_S: Final = 10.0
"""A group whose coordinator moves to another broker cannot be described for some seconds, and writes go on meanwhile. Only
after this long the log counts as one that takes nothing."""
URL_LENGTH_MAX: Final = 1_000
LOOK_AROUND_S: Final = 0.25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Who owned what when the group was last described."""

    by_partition: Mapping[int, str] = field(default_factory=dict)
    """Base URLs, without a slash at the end."""
    unusable: Mapping[int, str] = field(default_factory=dict)
    """Partitions whose owner cannot be asked, with the reason."""
    members: int = 0

    def urls(self) -> frozenset[str]:
        return frozenset(self.by_partition.values())


class InvalidAddress(ValueError):
    """What a member of the group advertises is no address to send a secret to."""


def base_url(client_id: str) -> str:
    """The member's URL: http or https, a host, perhaps a port, nothing else. Raises InvalidAddress."""
    if not client_id.startswith(("http://", "https://")):
        raise InvalidAddress("its client id is no URL; start it with --advertise http://HOST:PORT")
    try:
        parts = urlsplit(client_id)
        port_is_wrong = parts.port == 0
    except ValueError:
        raise InvalidAddress("its client id is no valid URL") from None
    if (
        len(client_id) > URL_LENGTH_MAX
        or not client_id.isascii()
        or not client_id.isprintable()
        or " " in client_id
        or not parts.hostname
        or port_is_wrong
        or parts.username is not None
        or parts.password is not None
        or parts.path not in ("", "/")
        or "?" in client_id
        or "#" in client_id
        or "\\" in client_id
    ):
        raise InvalidAddress("its client id is no URL of scheme, host and port alone")
    return f"{parts.scheme}://{parts.netloc}"


class Directory:
    """Used on one event loop; `owners` and `trouble` may be read from any thread."""

    def __init__(
        self,
        members: Callable[[], Sequence[Member]],
        topic: str,
        partitions: Callable[[], int],
        clock: Clock,
    ) -> None:
        """`topic`: the one that the group subscribes to."""
        self._members = members
        self._topic = topic
        self._partitions = partitions
        self._clock = clock
        self._asker = ThreadPoolExecutor(1, "tocsin-members")
        self._asking: asyncio.Future[Sequence[Member]] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._asked_s = float("-inf")
        self._seen_s = float("-inf")
        """When the log answered last."""
        self._told: frozenset[str] = frozenset()
        self.owners = Owners()
        self.trouble = "the group of the streams processes was not described yet"
        """Why the last look at the group failed; "" if it did not."""
        self.moved: Callable[[frozenset[int]], None] = _nobody
        """Called with the partitions that have another owner than before."""
        self.unsettled: Callable[[], bool] = bool
        """Whether somebody waits for the next change: then the group is described as often as may be."""

    def close(self) -> None:
        """A call that hangs is left behind."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._asker.shutdown(wait=False, cancel_futures=True)

    # --- questions

    def owner_of(self, partition: int) -> str | None:
        return self.owners.by_partition.get(partition)

    def missing(self, partition: int) -> MissingPartition:
        """Why nobody can be asked about it."""
        if (reason := self.owners.unusable.get(partition)) is not None:
            return MissingPartition(partition=partition, reason="unreachable", detail=reason)
        if self.trouble:
            detail = self.trouble
        elif self.owners.members:
            detail = "it is being handed over"
        else:
            detail = "no streams process is running"
        return MissingPartition(partition=partition, reason="no-owner", detail=detail)

    @property
    def log_trouble(self) -> str:
        """Why the log has not answered for a while; "": it has. From any thread."""
        return self.trouble if self._clock.monotonic_s() - self._seen_s > TROUBLE_S else ""

    @property
    def may_look(self) -> bool:
        """Whether refresh() answers soon: it is not too early for it, or under way already."""
        return self._age_s() >= REFRESH_MIN_S or not (self._refreshing is None or self._refreshing.done())

    def _age_s(self) -> float:
        return self._clock.monotonic_s() - self._asked_s

    # --- looking

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            waited = REFRESH_MIN_S if self._is_unsettled() else REFRESH_IDLE_S
            if self._age_s() >= waited:
                await self.refresh()
            await asyncio.sleep(LOOK_AROUND_S)

    def _is_unsettled(self) -> bool:
        return bool(self.trouble or len(self.owners.by_partition) < self._partitions() or self.unsettled())

    async def refresh(self) -> None:
        """As of a moment ago, unless the log does not answer within 2 s. Many callers cost one request."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        # It may be cancelled for one caller, not for the others.
        await asyncio.wait({self._refreshing}, timeout=REFRESH_MAX_S)

    async def _refresh(self) -> None:
        early_s = REFRESH_MIN_S - self._age_s()
        if early_s > 0:
            await asyncio.sleep(early_s)
        self._asked_s = self._clock.monotonic_s()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(self._asker, self._members)
        done, _ = await asyncio.wait({self._asking}, timeout=MEMBERS_S)
        if not done:
            self.trouble = f"the log has not answered for {MEMBERS_S:.0f} s"
            return
        try:
            members = self._asking.result()
        except LogError as error:
            self.trouble = str(error) or type(error).__name__
            return
        self.trouble = ""
        self._seen_s = self._clock.monotonic_s()
        self._apply(members)

    def _apply(self, members: Sequence[Member]) -> None:
        before = self.owners
        by_partition: dict[int, str] = {}
        unusable: dict[int, str] = {}
        present: set[str] = set()
        for member in members:
            mine = [at.partition for at in member.partitions if at.topic == self._topic]
            try:
                url = base_url(member.client_id)
            except InvalidAddress as error:
                unusable |= dict.fromkeys(mine, f"{error} (it is {member.client_id[:100]!r})")
                self._tell(member.client_id, str(error))
            else:
                present.add(url)
                by_partition |= dict.fromkeys(mine, url)
        # While the group is balanced its members are shown without partitions, and most go on with what they had. One
        # that does not says so when it is asked.
        for partition, url in before.by_partition.items():
            if partition not in by_partition and partition not in unusable and url in present:
                by_partition[partition] = url
        self.owners = Owners(by_partition=by_partition, unusable=unusable, members=len(members))
        numbers = before.by_partition.keys() | by_partition.keys()
        moved = frozenset(n for n in numbers if before.by_partition.get(n) != by_partition.get(n))
        if moved:
            self.moved(moved)

    def _tell(self, client_id: str, why: str) -> None:
        if client_id not in self._told:
            self._told |= {client_id}
            _log.warning("a streams process cannot be asked: %s (it is %.100r)", why, client_id)


def _nobody(_: frozenset[int]) -> None:
    """Nobody waits for a change."""
