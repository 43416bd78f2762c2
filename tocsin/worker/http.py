"""HTTP targets: one request for one execution, through aiohttp (docs/decisions/005 has the measurement)."""

import hashlib
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tocsin.clock import Clock
from tocsin.schedules import format_instant
from tocsin.schemas.callbacks import Callbacks
from tocsin.schemas.job import BodyKind, HttpTarget
from tocsin.schemas.limits import LEASE_MS_MAX, LEASE_MS_MIN
from tocsin.schemas.records import DueRun
from tocsin.signing import sign
from tocsin.worker.egress import EgressBlocked, EgressGuard
from tocsin.worker.execution import RESPONSE_BYTES_MAX, RETRY_AFTER_MS_MAX, Execution, Outcome
from tocsin.worker.placeholders import Placeholders
from tocsin.worker.secrets import NO_REDACTION, Redaction, SecretFiles, SecretUnavailable
from tocsin.worker.threads import Threads

KEEPALIVE_S: Final = 4.0
"""Below the 5 s after which many servers close an idle connection: a request that meets the closing one fails."""

DRAIN_BYTES_MAX: Final = 256 * 1024
"""How much of an answer is read beyond the excerpt to keep its connection; of a longer one the connection is closed."""

DNS_TTL_S: Final = 10

RETRYABLE_STATUS: Final = frozenset((408, 425, 429))

USER_AGENT: Final = "tocsin"

_CONTENT_TYPES: Final[dict[BodyKind, str]] = {
    "json": "application/json",
    "text": "text/plain; charset=utf-8",
    "base64": "application/octet-stream",
}

# Headers that are the worker's alone: who the run is (a job that could set them could pass for another), and how the
# message is framed.
_RESERVED: Final = frozenset(
    (
        "traceparent",
        "tracestate",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
    )
)
_RESERVED_PREFIXES: Final = ("webhook-", "tocsin-")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")

Address = tuple[int, str]
"""Family and address."""

Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]


class SystemLookup:
    """All addresses of a host, as this machine resolves it; in threads, because a name server may be slow."""

    def __init__(self) -> None:
        self._threads = Threads("tocsin-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Raises OSError."""
        flags = socket.AI_ADDRCONFIG
        returned = await self._threads.run(
            lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        )
        if returned.error is not None:
            raise returned.error
        return [(family, str(address[0])) for family, _, _, _, address in returned.value]

    def close(self) -> None:
        self._threads.close()


class GuardedResolver(AbstractResolver):
    """Resolves once and returns only addresses that were checked: aiohttp connects to these and asks nobody again."""

    def __init__(self, guard: EgressGuard, lookup: Lookup) -> None:
        self._guard = guard
        self._lookup = lookup

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - both families are wanted
    ) -> list[ResolveResult]:
        """Raises EgressBlocked (an OSError, which aiohttp keeps inside its own) if one address may not be reached."""
        found = await self._lookup(host, port)
        self._guard.check_all(host, [address for _, address in found])
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=of, proto=0, flags=socket.AI_NUMERICHOST
            )
            for of, address in found
        ]

    async def close(self) -> None: ...


class HttpCaller:
    """Sends the requests of one executor. Open and use it on one event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        guard: EgressGuard,
        connect_timeout_s: float = 5.0,
        lookup: Lookup,
        secrets: SecretFiles | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        """Without `callbacks` an endpoint cannot take a run for longer than its request: it has no way to report."""
        self._callbacks = callbacks
        self._clock = clock
        self._secrets = secrets or SecretFiles(None, clock)
        self._guard = guard
        self._connect_timeout_s = connect_timeout_s
        self._lookup = lookup
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[int, aiohttp.ClientTimeout] = {}

    async def open(self) -> None:
        # Limits are the core's: what waits for a connection here would be neither held nor executing.
        connector = aiohttp.TCPConnector(
            limit=0,
            resolver=GuardedResolver(self._guard, self._lookup),
            ttl_dns_cache=DNS_TTL_S,
            keepalive_timeout=KEEPALIVE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie of one job is no business of another
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, execution: Execution, target: HttpTarget) -> Outcome:
        """Send the request and judge the answer. Never raises but for cancellation."""
        started_ms = self._clock.now_ms()
        try:
            return await self._send(execution.run, target, started_ms)
        except EgressBlocked as error:
            return self._failed(started_ms, str(error), retryable=False)
        except SecretUnavailable as error:
            return self._failed(started_ms, str(error), retryable=True)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            blocked = _blocked_inside(error)
            if blocked is not None:
                return self._failed(started_ms, str(blocked), retryable=False)
            message, retryable = self._explain(error, target)
            return self._failed(started_ms, message, retryable=retryable)

    async def _send(self, run: DueRun, target: HttpTarget, started_ms: int) -> Outcome:
        assert self._session is not None, "open() before call()"
        values = Placeholders(run)
        url = self._checked_url(values.expand_url(target.url))
        body = target.body if target.body_kind == "base64" else values.expand_body(target.body)
        headers = request_headers(run, target, values, started_ms)
        if self._callbacks is not None:
            headers.append(("Tocsin-Callback", self._callbacks.url(run)))
        redaction = NO_REDACTION
        if target.secret_headers or target.signing_secret:
            redaction = self._add_secrets(headers, run, target, started_ms, body)
        async with self._session.request(
            target.method,
            url,
            data=body or None,
            headers=headers,
            allow_redirects=False,
            timeout=self._timeout(target.timeout_ms),
        ) as response:
            excerpt = await _read_excerpt(response, redaction)
            return self._judge(response, target, started_ms, excerpt, redaction)

    def _add_secrets(
        self,
        headers: list[tuple[str, str]],
        run: DueRun,
        target: HttpTarget,
        started_ms: int,
        body: bytes,
    ) -> Redaction:
        """Add what is secret to the headers. Raises SecretUnavailable."""
        used: list[str] = []
        for name, secret in target.secret_headers:
            if _is_reserved(name):
                continue
            value = self._secrets.text(run.namespace, secret)
            if not _HEADER_VALUE.fullmatch(value):
                raise SecretUnavailable(
                    f"the secret {secret!r} of the namespace {run.namespace!r} cannot be the header {name}: it holds a "
                    "line break or another control character"
                )
            headers.append((name, value))
            used.append(value)
        if target.signing_secret:
            keys = self._secrets.signing_keys(run.namespace, target.signing_secret)
            signature = sign(keys, message_id=run.run_id, timestamp_s=started_ms // 1000, body=body)
            headers.append(("webhook-signature", signature))
            used.append(self._secrets.text(run.namespace, target.signing_secret))
        return Redaction(used)

    def _checked_url(self, text: str) -> URL:
        """Raises EgressBlocked for an address that may not be reached, however it is spelled; ValueError."""
        url = URL(text)
        host = url.raw_host  # as it is connected to, IDNA and full-width digits resolved
        if url.scheme not in ("http", "https") or not host:
            raise ValueError(f"{text!r} is no http or https URL with a host")
        literal = self._guard.literal(host)
        if literal is None or "%" in host or literal == host:
            return url
        return url.with_host(literal)  # connect to what was checked, not to another reading of its spelling

    def _timeout(self, timeout_ms: int) -> aiohttp.ClientTimeout:
        timeout = self._timeouts.get(timeout_ms)
        if timeout is None:
            if len(self._timeouts) > 1_000:
                self._timeouts.clear()
            timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=self._connect_timeout_s)
            self._timeouts[timeout_ms] = timeout
        return timeout

    def _judge(
        self,
        response: aiohttp.ClientResponse,
        target: HttpTarget,
        started_ms: int,
        excerpt: str,
        redaction: Redaction,
    ) -> Outcome:
        status = response.status
        if status == 202 and (asked := response.headers.get("Tocsin-Lease")) is not None:
            return self._accepted(asked, started_ms, excerpt)
        if any(low <= status <= high for low, high in target.success):
            return Outcome(
                kind="succeeded",
                started_ms=started_ms,
                ended_ms=self._clock.now_ms(),
                http_status=status,
                response=excerpt,
            )
        error = f"the endpoint answered {status}"
        if 300 <= status < 400:
            where = redaction.text(response.headers.get("Location", ""))
            error += f" to {where[:200]!r}; redirects are not followed: put the final URL into the job"
        retryable = status in RETRYABLE_STATUS or status >= 500
        return Outcome(
            kind="failed",
            started_ms=started_ms,
            ended_ms=self._clock.now_ms(),
            http_status=status,
            error=error,
            retryable=retryable,
            retry_after_ms=retry_after_ms(response.headers.get("Retry-After"), self._clock.now_ms())
            if retryable
            else -1,
            response=excerpt,
        )

    def _accepted(self, asked: str, started_ms: int, excerpt: str) -> Outcome:
        """202 with a lease: the endpoint works on it after its answer, and reports to the callback URL."""
        seconds = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 0
        if not LEASE_MS_MIN <= seconds * 1000 <= LEASE_MS_MAX:
            error = (
                f"the endpoint answered 202 with Tocsin-Lease: {asked[:40]!r}; a lease is a whole number of seconds "
                f"from {LEASE_MS_MIN // 1000} to {LEASE_MS_MAX // 1000}"
            )
            return self._failed(started_ms, error, retryable=False)
        if self._callbacks is None:
            error = (
                "the endpoint answered 202 with Tocsin-Lease, and cannot report how it ends: this worker was started "
                "without --callback-url, the address at which endpoints reach the API"
            )
            return self._failed(started_ms, error, retryable=False)
        return Outcome(
            kind="accepted",
            started_ms=started_ms,
            ended_ms=self._clock.now_ms(),
            http_status=202,
            response=excerpt,
            lease_ms=seconds * 1000,
        )

    def _failed(self, started_ms: int, error: str, *, retryable: bool) -> Outcome:
        return Outcome(
            kind="failed",
            started_ms=started_ms,
            ended_ms=self._clock.now_ms(),
            error=error,
            retryable=retryable,
        )

    def _explain(self, error: Exception, target: HttpTarget) -> tuple[str, bool]:
        """What happened, for people, and whether another attempt may help."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within {self._connect_timeout_s:g} s", True
            case TimeoutError():
                return f"no complete answer within {target.timeout_ms / 1000:g} s", True
            case aiohttp.ClientConnectorDNSError():
                return f"the host name cannot be resolved: {error.os_error}", True
            case aiohttp.ClientSSLError():
                return f"no secure connection: {error}", True
            case aiohttp.ClientConnectorError():
                return f"no connection: {error.os_error}", True
            case aiohttp.ServerDisconnectedError():
                return "the endpoint closed the connection without an answer", True
            case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
                return f"the answer is incomplete or no HTTP: {error}", True
            case aiohttp.InvalidURL() | ValueError():
                return f"the request cannot be made: {error}", False
            case _:
                return f"the connection broke: {str(error) or type(error).__name__}", True


def request_headers(
    run: DueRun, target: HttpTarget, values: Placeholders, started_ms: int
) -> list[tuple[str, str]]:
    """The job's headers, and those that say who the run is: the latter win (K43). Raises ValueError."""
    headers: list[tuple[str, str]] = []
    has_content_type = False
    for name, value in values.expand_headers(target.headers):
        if _is_reserved(name):
            continue
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the header {name[:100]!r} has a name or a value that HTTP does not allow")
        has_content_type = has_content_type or name.lower() == "content-type"
        headers.append((name, value))
    content_type = _CONTENT_TYPES.get(target.body_kind)
    if content_type is not None and not has_content_type:
        headers.append(("Content-Type", content_type))
    headers += (
        ("webhook-id", run.run_id),
        ("webhook-timestamp", str(started_ms // 1000)),
        ("Tocsin-Attempt", str(run.attempt)),
        ("Tocsin-Dispatch", str(run.dispatch)),
        ("Tocsin-Nominal", format_instant(run.nominal_ms)),
        ("Tocsin-Due", format_instant(run.due_ms)),
        ("Tocsin-Job", f"{run.namespace}/{run.job_id}"),
        ("traceparent", traceparent(run.run_id, run.attempt)),
    )
    return headers


def _is_reserved(name: str) -> bool:
    lower = name.lower()
    return lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES)


def traceparent(run_id: str, attempt: int) -> str:
    """One trace for a run, one span for each attempt; derived, so that whoever looks for a run can compute it."""
    trace = hashlib.sha256(run_id.encode()).hexdigest()[:32]
    span = hashlib.sha256(f"{run_id}#{attempt}".encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01"


@lru_cache(maxsize=256)
def _seconds(text: str) -> int | None:
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) < 10 else None


def retry_after_ms(value: str | None, now_ms: int) -> int:
    """The delay that a Retry-After header asks for, in seconds or as a date; -1 without a readable one."""
    if value is None:
        return -1
    text = value.strip()
    delay_ms = _seconds(text)
    if delay_ms is None:
        try:
            parsed = parsedate_to_datetime(text)
        except (ValueError, OverflowError):  # OverflowError: a day, a year or an offset of twenty digits
            return -1
        when = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        delay_ms = round(when.timestamp() * 1000) - now_ms
    return min(max(delay_ms, 0), RETRY_AFTER_MS_MAX)


async def _read_excerpt(response: aiohttp.ClientResponse, redaction: Redaction) -> str:
    """The first bytes of the answer as text. Reads on to its end, if that is near, so that the connection is kept."""
    kept = bytearray()
    kept_max = RESPONSE_BYTES_MAX + redaction.longest
    read = 0
    async for chunk in response.content.iter_any():
        if len(kept) < kept_max:
            kept += chunk[: kept_max - len(kept)]
        read += len(chunk)
        if read > DRAIN_BYTES_MAX:
            response.close()
            break
    return _as_text(redaction.excerpt(bytes(kept), RESPONSE_BYTES_MAX), response.charset)


def _as_text(content: bytes, charset: str | None) -> str:
    """Readable text of at most RESPONSE_BYTES_MAX bytes, whatever the endpoint sent."""
    if not content:
        return ""
    try:
        text = content.decode(charset or "utf-8", errors="replace")
    except (LookupError, ValueError):  # an encoding that is unknown, or none for text
        text = content.decode("utf-8", errors="replace")
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    # A replacement takes three bytes for one.
    return text.encode("utf-8", errors="replace")[:RESPONSE_BYTES_MAX].decode("utf-8", errors="ignore")


def _blocked_inside(error: BaseException) -> EgressBlocked | None:
    """The guard's refusal, which aiohttp hands on inside its own error."""
    inner: BaseException | None = getattr(error, "os_error", None) or error.__cause__
    return inner if isinstance(inner, EgressBlocked) else None
