"""Callback URLs: how the endpoint of a long run says that it is alive, and how it ended.

The URL carries a token that names one dispatch of one run and is signed with the cluster's secret. Whoever has the URL
may report on that dispatch, and on nothing else; it needs no API key.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import Final

from tocsin.schemas.records import DueRun

_PURPOSE: Final = b"tocsin callback 1\0"
"""So that a signature made for something else with the same secret is none for a callback."""
_MAC_BYTES: Final = 16
TOKEN_LENGTH_MAX: Final = 2_000


class InvalidToken(ValueError):
    """The text is no token that this cluster has given out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackToken:
    """The dispatch that a callback speaks for."""

    run_id: str
    namespace: str
    job_id: str
    seq: int
    dispatch: int
    attempt: int


class Callbacks:
    """Makes the callback URLs of one cluster."""

    def __init__(self, url: str, secret: str) -> None:
        """`url`: of the API, as endpoints reach it; `secret`: the cluster's."""
        self._prefix = f"{url.rstrip('/')}/v1/callbacks/"
        self._secret = secret

    def url(self, run: DueRun) -> str:
        """POST to this + `/heartbeat` or `/complete`."""
        return self._prefix + write_token(
            CallbackToken(
                run_id=run.run_id,
                namespace=run.namespace,
                job_id=run.job_id,
                seq=run.seq,
                dispatch=run.dispatch,
                attempt=run.attempt,
            ),
            self._secret,
        )


def write_token(token: CallbackToken, secret: str) -> str:
    values = [token.run_id, token.namespace, token.job_id, token.seq, token.dispatch, token.attempt]
    content = json.dumps(values, separators=(",", ":")).encode()
    return f"{_text(content)}.{_text(_mac(content, secret))}"


def read_token(text: str, secret: str) -> CallbackToken:
    """Raises InvalidToken."""
    content_text, _, mac_text = text.partition(".")
    if not text.isascii() or len(text) > TOKEN_LENGTH_MAX or not secret:
        raise InvalidToken("this is no callback of this cluster")
    try:
        content, mac = _bytes(content_text), _bytes(mac_text)
    except (Base64Error, ValueError):
        raise InvalidToken("this is no callback of this cluster") from None
    if not hmac.compare_digest(mac, _mac(content, secret)):
        raise InvalidToken("this is no callback of this cluster")
    run_id, namespace, job_id, seq, dispatch, attempt = json.loads(content)
    return CallbackToken(
        run_id=run_id, namespace=namespace, job_id=job_id, seq=seq, dispatch=dispatch, attempt=attempt
    )


def _mac(content: bytes, secret: str) -> bytes:
    return hmac.digest(secret.encode(), _PURPOSE + content, "sha256")[:_MAC_BYTES]


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
