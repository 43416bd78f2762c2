"""Secrets of the jobs' namespaces: one file for each, in a directory for each namespace. Only workers have them.

A definition names a secret and never holds it, so neither the log nor the history does. What an endpoint sends back is
searched for the secrets that the request carried before it is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.clock import Clock
from tocsin.signing import InvalidSecret, parse_secret

SECRET_BYTES_MAX: Final = 8_192
"""As long as a header value may be."""
SIGNING_SECRETS_MAX: Final = 2
"""The one in force, and while it is rotated the one before or after it."""
LOOK_AGAIN_S: Final = 5.0
"""How long a file is believed unread: a changed secret is in force everywhere after so long."""
REDACTED: Final = b"[redacted]"
REDACT_BYTES_MIN: Final = 4
"""Shorter ones would be found in every other answer."""


class SecretUnavailable(LookupError):
    """A worker lacks a secret, or cannot use what it has. Another attempt may find it: it may be on its way."""


@dataclass(frozen=True, slots=True)
class _Read:
    text: str
    until_s: float


class SecretFiles:
    """DIRECTORY/NAMESPACE/NAME holds a secret as UTF-8 text; one line break at its end is not part of it.

    Links are followed, as Kubernetes mounts secrets. Used by one thread. Namespaces and names are those of a checked
    definition, whose grammar allows no path.
    """

    def __init__(self, directory: Path | None, clock: Clock) -> None:
        """None: this worker has no secrets."""
        self._directory = directory
        self._clock = clock
        self._read: dict[tuple[str, str], _Read] = {}

    def text(self, namespace: str, name: str) -> str:
        """The secret as it is. Raises SecretUnavailable."""
        now_s = self._clock.monotonic_s()
        known = self._read.get((namespace, name))
        if known is None or now_s >= known.until_s:
            known = _Read(self._read_file(namespace, name), now_s + LOOK_AGAIN_S)
            self._read[namespace, name] = known
        return known.text

    def signing_keys(self, namespace: str, name: str) -> tuple[bytes, ...]:
        """The keys of a signing secret: a line for each, the one in force first. Raises SecretUnavailable."""
        lines = [line.strip() for line in self.text(namespace, name).splitlines() if line.strip()]
        if not 1 <= len(lines) <= SIGNING_SECRETS_MAX:
            raise SecretUnavailable(
                f"the signing secret {name!r} of {namespace!r} has {len(lines)} lines: write one secret, or while it is "
                "rotated two, the one in force first"
            )
        try:
            return tuple(parse_secret(line) for line in lines)
        except InvalidSecret as error:
            raise SecretUnavailable(f"the signing secret {name!r} of {namespace!r}: {error}") from None

    def _read_file(self, namespace: str, name: str) -> str:
        what = f"the secret {name!r} of the namespace {namespace!r}"
        if self._directory is None:
            raise SecretUnavailable(f"{what} is not here: this worker was started without --secrets DIR")
        path = self._directory / namespace / name
        try:
            with path.open("rb") as file:
                content = file.read(SECRET_BYTES_MAX + 1)
        except FileNotFoundError:
            raise SecretUnavailable(f"{what} is not on this worker: put it into the file {path}") from None
        except OSError as error:
            raise SecretUnavailable(f"{what} cannot be read from {path}: {error.strerror}") from None
        if len(content) > SECRET_BYTES_MAX:
            raise SecretUnavailable(f"{what} in {path} is longer than {SECRET_BYTES_MAX:,} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise SecretUnavailable(f"{what} in {path} is no UTF-8 text") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise SecretUnavailable(f"{what} in {path} is empty")
        return text


class Redaction:
    """Takes secrets out of what an endpoint sent back, as they are and without a scheme like `Bearer` before them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found: set[bytes] = set()
        for secret in secrets:
            for part in (secret, *secret.splitlines(), secret.rpartition(" ")[2]):
                encoded = part.strip().encode()
                if len(encoded) >= REDACT_BYTES_MIN:
                    found.add(encoded)
        self._secrets = sorted(found, key=len, reverse=True)

    @property
    def longest(self) -> int:
        """How much more than it keeps a reader has to read, so that no secret is kept by half. Bytes."""
        return len(self._secrets[0]) if self._secrets else 0

    def excerpt(self, content: bytes, limit: int) -> bytes:
        """The first `limit` bytes, each secret that begins within them replaced. `content`: these and `longest` more."""
        spans = sorted(
            (at, at + len(secret)) for secret in self._secrets for at in _places(content, secret, limit)
        )
        kept = bytearray()
        position = 0
        for start, end in spans:
            if start >= position:
                kept += content[position:start] + REDACTED
            position = max(position, end)
        return bytes(kept + content[position:limit])

    def text(self, text: str) -> str:
        encoded = text.encode(errors="replace")
        return self.excerpt(encoded, len(encoded)).decode(errors="replace")


def _places(content: bytes, secret: bytes, limit: int) -> Iterable[int]:
    at = content.find(secret)
    while 0 <= at < limit:
        yield at
        at = content.find(secret, at + 1)


NO_REDACTION: Final = Redaction(())
