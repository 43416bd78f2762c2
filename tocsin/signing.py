"""Signatures of requests by Standard Webhooks (https://www.standardwebhooks.com): for the worker, and for receivers.

A request carries `webhook-id`, `webhook-timestamp` and `webhook-signature`; what is signed is `id.timestamp.body`, with
HMAC-SHA256. A receiver calls verify(); any other library for Standard Webhooks does as well.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Final

PREFIX: Final = "whsec_"
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64
"""The bounds that the specification sets for a key."""
TOLERANCE_S: Final = 300
"""How far a timestamp may lie from the receiver's clock: an old request that somebody kept is refused."""
SIGNATURES_MAX: Final = 10


class InvalidSecret(ValueError):
    """The text is no signing secret. The message says what one looks like, and never repeats the text."""


class InvalidSignature(ValueError):
    """The request was not signed with one of the secrets, or is too old. Answer 401, and do nothing else with it."""


def parse_secret(text: str) -> bytes:
    """The key that a signing secret stands for: `whsec_` and 24 to 64 bytes in base64. Raises InvalidSecret."""
    wanted = (
        f"a signing secret is {PREFIX} followed by {KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes in base64 "
        "(`tocsin secrets new` prints one)"
    )
    if not text.startswith(PREFIX):
        raise InvalidSecret(f"it does not begin with {PREFIX}: {wanted}")
    try:
        key = b64decode(text.removeprefix(PREFIX), validate=True)
    except (Base64Error, ValueError):
        raise InvalidSecret(f"what follows {PREFIX} is no base64: {wanted}") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise InvalidSecret(f"its key has {len(key)} bytes: {wanted}")
    return key


def format_secret(key: bytes) -> str:
    return PREFIX + b64encode(key).decode()


def sign(keys: Iterable[bytes], *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key, so that a receiver may know the old one or the new."""
    content = b"%b.%d.%b" % (message_id.encode(), timestamp_s, body)
    return " ".join("v1," + b64encode(_mac(key, content)).decode() for key in keys)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Iterable[str],
    *,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """The request's run id, if it was signed with one of `secrets` and its timestamp is within the tolerance of now_s.

    `headers` in any case; `body` as it came, before anything reads it. `secrets` are texts as given to parse_secret.
    Raises InvalidSignature, or InvalidSecret.
    """
    given = {name.lower(): value for name, value in headers.items()}
    missing = [
        name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not given.get(name)
    ]
    if missing:
        raise InvalidSignature(f"the header {missing[0]} is missing")
    message_id, timestamp = given["webhook-id"], given["webhook-timestamp"]
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise InvalidSignature("webhook-timestamp is no whole number of seconds")
    if abs(now_s - int(timestamp)) > tolerance_s:
        raise InvalidSignature(f"webhook-timestamp is more than {tolerance_s:g} s away from this clock")
    content = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
    expected = [_mac(parse_secret(secret), content) for secret in secrets]
    for signature in given["webhook-signature"].split(" ")[:SIGNATURES_MAX]:
        version, _, encoded = signature.partition(",")
        if version == "v1" and any(hmac.compare_digest(each, _decoded(encoded)) for each in expected):
            return message_id
    raise InvalidSignature("no signature is of one of the secrets, or the request was changed on its way")


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return b""
