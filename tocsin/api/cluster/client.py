"""One question to one streams process over HTTP: bounded in time and size, and never again to one that does not answer."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from tocsin.api.cluster import wire
from tocsin.clock import Clock
from tocsin.streams.cursors import InvalidCursor
from tocsin.streams.queries import MissingPartition, MissingReason

CONNECT_S: Final = (
    1.0  # a process on the same network answers a SYN in a millisecond, a frozen one's kernel does, too
)
ANSWER_S: Final = 3.0
"""A question is answered within a few milliseconds, a search within 50; the rest is for a processor that is busy."""
KEEP_ALIVE_S: Final = 4.0  # below the 5 s after which uvicorn drops an idle connection
CONNECTIONS_MAX: Final = 64  # to each owner, for questions; long polls have their own
CLOSED_S: Final = 0.5
CLOSED_MAX_S: Final = 4.0
"""How long an owner that did not answer is not asked at all; doubled each time that it fails again."""

_log = logging.getLogger(__name__)


class NotOwned(Exception):
    """The process does not own the partition: somebody else does by now."""


@dataclass(eq=False)
class NotNow(Exception):
    """The process owns the partition and cannot answer yet."""

    missing: list[MissingPartition]


@dataclass(eq=False)
class OwnerFailed(Exception):
    """The process did not answer, or not in a way that is understood here."""

    reason: MissingReason
    detail: str

    def of(self, partition: int) -> MissingPartition:
        return MissingPartition(partition=partition, reason=self.reason, detail=self.detail)


@dataclass(slots=True)
class _Breaker:
    """Whether an owner is asked. After a failure it is left alone for a while, and then by one question first."""

    closed_for_s: float = 0.0
    open_at_s: float = 0.0
    probing: bool = False
    why: str = ""


@dataclass(slots=True)
class Counts:
    """Questions asked and failed, of all owners together."""

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0


class OwnerClient:
    """Used on one event loop. open() before use."""

    def __init__(self, secret: Callable[[], str], clock: Clock) -> None:
        self._secret = secret
        self._clock = clock
        self._breakers: dict[str, _Breaker] = {}
        self._questions: aiohttp.ClientSession | None = None
        self._polls: aiohttp.ClientSession | None = None
        self.counts = Counts()

    async def open(self) -> None:
        self._questions = _session(CONNECTIONS_MAX)
        self._polls = _session(0)  # as many as there are topics and partitions that somebody waits for

    async def close(self) -> None:
        for session in (self._questions, self._polls):
            if session is not None:
                await session.close()

    def ask_again(self, urls: Iterable[str]) -> None:
        """They have just been given partitions, so they live."""
        for url in urls:
            self._breakers.pop(url, None)

    def forget_all_but(self, urls: frozenset[str]) -> None:
        for url in self._breakers.keys() - urls:
            del self._breakers[url]

    def unanswered(self) -> frozenset[str]:
        """Owners that did not answer lately. From any thread."""
        return frozenset(url for url, breaker in list(self._breakers.items()) if breaker.closed_for_s)

    async def ask(
        self, url: str, question: str, fields: Mapping[str, Any], *, poll_s: float | None = None
    ) -> bytes:
        """The answer's bytes. Raises NotOwned, NotNow, OwnerFailed or InvalidCursor. `poll_s`: how long it may wait."""
        breaker = self._breakers.setdefault(url, _Breaker())
        now_s = self._clock.monotonic_s()
        if breaker.closed_for_s and (now_s < breaker.open_at_s or breaker.probing):
            raise OwnerFailed("unreachable", breaker.why)
        probing = breaker.probing = bool(breaker.closed_for_s)
        self.counts.asked += 1
        try:
            status, body = await self._exchange(url, question, fields, poll_s)
        except _Silence as error:
            self.counts.failed += 1
            self._failed(breaker, str(error))
            raise OwnerFailed("unreachable", str(error)) from None
        finally:
            if probing:
                breaker.probing = False
            self.counts.seconds += self._clock.monotonic_s() - now_s if poll_s is None else 0.0
        breaker.closed_for_s = 0.0
        if status == 200:
            return body
        raise _refusal(url, status, body)

    def _failed(self, breaker: _Breaker, why: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < breaker.open_at_s:
            return  # one of many that were asked at once; it is closed already
        if not breaker.closed_for_s:
            _log.warning("%s", why)
        breaker.closed_for_s = min(max(CLOSED_S, 2 * breaker.closed_for_s), CLOSED_MAX_S)
        breaker.open_at_s = now_s + breaker.closed_for_s
        breaker.why = why

    async def _exchange(
        self, url: str, question: str, fields: Mapping[str, Any], poll_s: float | None
    ) -> tuple[int, bytes]:
        """Status and body. Raises _Silence."""
        session = self._questions if poll_s is None else self._polls
        assert session is not None
        secret = self._secret()
        if not secret:
            raise _Silence("this process does not know the secret of the cluster yet")
        data = json.dumps(fields, separators=(",", ":")).encode()
        for last in (False, True):
            try:
                async with session.post(
                    f"{url}/cluster/{wire.VERSION}/{question}",
                    data=data,
                    headers={wire.SECRET_HEADER: secret, "content-type": "application/json"},
                    timeout=aiohttp.ClientTimeout(total=ANSWER_S + (poll_s or 0.0), sock_connect=CONNECT_S),
                    allow_redirects=False,
                ) as response:
                    return response.status, await _body(response)
            except TimeoutError:
                raise _Silence(f"the streams process at {url} did not answer in time") from None
            except aiohttp.ClientConnectorError as error:
                raise _Silence(_failure(url, error)) from None
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # It may have closed an idle connection just when the question was sent; nothing that is asked has effects.
                if last:
                    raise _Silence(_failure(url, error)) from None
            except (aiohttp.ClientError, ValueError) as error:
                raise _Silence(_failure(url, error)) from None
        raise AssertionError("the second try returns or raises")


class _Silence(Exception):
    """No answer at all."""


def _failure(url: str, error: Exception) -> str:
    """Without the text of the error where it might repeat what was sent."""
    match error:
        case aiohttp.ClientConnectorError():
            return f"the streams process at {url} refuses connections, or its name is not known"
        case _:
            return f"the streams process at {url} broke off ({type(error).__name__})"


def _session(connections: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, limit_per_host=connections, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=10
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,  # the secret goes to the owner, by no way round
    )


async def _body(response: aiohttp.ClientResponse) -> bytes:
    chunks = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > wire.ANSWER_BYTES_MAX:
            raise ValueError("the answer is too large")
        chunks.append(chunk)
    return b"".join(chunks)


def _refusal(url: str, status: int, body: bytes) -> Exception:
    try:
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    match status:
        case 421:
            return NotOwned()
        case 422 if "cursor" in fields:
            return InvalidCursor()
        case 503 if fields.get("busy"):
            return OwnerFailed("unreachable", f"the streams process at {url} is asked too much at once")
        case 503 if "missing" in fields:
            try:
                return NotNow(wire.missing_of(fields["missing"]))
            except wire.WireError as error:
                return OwnerFailed("incompatible", f"{url} gave an answer that is not understood: {error}")
        case 401:
            return OwnerFailed(
                "refused",
                f"the streams process at {url} does not take this cluster's secret: is it of this cluster, and "
                "TOCSIN_CLUSTER_SECRET the same for all?",
            )
        case 501:
            return OwnerFailed(
                "incompatible",
                f"the streams process at {url} speaks version {fields.get('versions')} of these questions and this API "
                f"{wire.VERSION}: bring both to one release",
            )
        case 404:
            return OwnerFailed("incompatible", f"{url} is no streams process that can be asked")
        case _:
            return OwnerFailed("unreachable", f"the streams process at {url} answered {status}")
