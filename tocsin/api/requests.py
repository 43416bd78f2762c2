"""Reading requests: who may ask, how much may be sent, and the parameters that several operations share."""

import hmac
import ipaddress
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

from fastapi import Path, Query, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.api.problems import ApiProblem, invalid, problem_response
from tocsin.schemas.kinds import is_encodable, shown
from tocsin.schemas.limits import DOCUMENT_BYTES_MAX, ID_PATTERN

ID: Final = rf"^{ID_PATTERN}$"
ID_OR_NOTHING: Final = rf"^$|{ID}"
ACTOR_MAX: Final = 200

Namespace = Annotated[str, Path(pattern=ID, description="The job's namespace.", examples=["billing"])]
JobId = Annotated[str, Path(alias="id", pattern=ID, description="The job's id.", examples=["send-invoices"])]
QueueName = Annotated[str, Path(pattern=ID, description="The queue's name.", examples=["reports"])]
Rest = Annotated[
    str,
    Path(
        max_length=400,
        description="The run id after its namespace and the slash.",
        examples=["send-invoices@20260309T080000.000Z"],
    ),
]
Wait = Annotated[
    Literal["acknowledged", "applied"],
    Query(
        description="acknowledged: answer when the log has it, with the record's coordinates. "
        "applied: answer when the processor has applied it, with the outcome."
    ),
]
Cursor = Annotated[str, Query(max_length=1000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items on a page, at most.")]


async def read_body(request: Request, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """The whole body; of one that is larger than `bytes_max` (a document, if not given) the rest is not read."""
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > bytes_max:
            raise ApiProblem(
                "too-large", f"The body is larger than {bytes_max} bytes ({bytes_max // 1024} KiB)."
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; which of two values somebody meant is not for a reader to guess. Measured: 0.2 us for each object."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:64]!r} is given twice")
    return made


# Made once: json.loads with an option of its own makes a decoder for each call, which took longer than the decoding.
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_each_key_once)


def parse_json(body: bytes) -> Any:
    """Raises ValueError with a sentence; also for NaN, Infinity, keys given twice and nesting that no document needs."""
    try:
        return _DECODER.decode(body.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    except ValueError as error:
        # Python's own limit of digits, in words about Python; what _no_constant says is about the document.
        if not str(error).startswith("Exceeds the limit"):
            raise
        raise ValueError("a number has thousands of digits; no field takes one") from None


async def read_json(request: Request, *, empty: object = None) -> Any:
    """The body as JSON, `empty` if there is none."""
    body = await read_body(request)
    if not body.strip():
        if empty is None:
            raise ApiProblem("invalid-json", "The body is empty; a JSON object is expected.")
        return empty
    try:
        return parse_json(body)
    except ValueError as error:
        raise ApiProblem("invalid-json", str(error)) from None


async def read_object(request: Request, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """A JSON object of a few optional fields, each of the given types; an empty body is an empty object."""
    value = await read_json(request, empty={})
    if not isinstance(value, dict):
        raise invalid("", "object", "a JSON object is expected")
    for name, given in value.items():
        if name not in fields:
            raise invalid(name, "unknown-field", f"there is no such field; known are {', '.join(fields)}")
        types = fields[name]
        # true is an int to Python; a count of "true" is a mistake.
        if (
            given is not None
            and types
            and (not isinstance(given, types) or (given is True and bool not in types))
        ):
            names = " or ".join(_JSON_NAMES.get(t, t.__name__) for t in types)
            raise invalid(name, "type", f"{names} is expected", shown(given))
        if isinstance(given, str) and name != "body" and not is_encodable(given):
            raise invalid(name, "text", HALF_A_CHARACTER, given)
    return {name: given for name, given in value.items() if given is not None}


HALF_A_CHARACTER: Final = "the text holds half of a character (a lone surrogate)"

_JSON_NAMES: Final = {str: "a string", int: "a whole number", bool: "true or false", dict: "an object"}


def actor_of(request: Request) -> str:
    """Who asks, as the log records it: the header Tocsin-Actor, else "api"."""
    actor = request.headers.get("tocsin-actor", "").strip()
    return actor[:ACTOR_MAX] if actor.isprintable() and actor else "api"


class Gate:
    """ASGI: nobody below /v1 without the key, if there is one.

    Without a key only this machine can reach the node, but so can every web page that is open in a browser on it, by a
    form, a fetch, or a name of its own that it lets point to 127.0.0.1. So then the request must name a loopback host,
    and must not come from a page of another site.
    """

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _guarded(scope["path"]):
            problem = self._refusal(Headers(scope=scope))
            if problem is not None:
                await problem_response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> ApiProblem | None:
        if self._api_key:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._api_key):
                return None
            return ApiProblem(
                "unauthorized",
                "Send the header `Authorization: Bearer KEY`; KEY is what the node was given as TOCSIN_API_KEY.",
                headers={"WWW-Authenticate": 'Bearer realm="tocsin"'},
            )
        host = headers.get("host", "")
        if not _is_loopback(_name_in(host)):
            return ApiProblem(
                "foreign-origin",
                f"This node has no TOCSIN_API_KEY and answers to loopback names only, not to {host!r}.",
            )
        origin = headers.get("origin", "")
        if (origin and origin != f"http://{host}") or headers.get("sec-fetch-site") == "cross-site":
            return ApiProblem(
                "foreign-origin", "This node has no TOCSIN_API_KEY and takes no request of another site."
            )
        return None


def _guarded(path: str) -> bool:
    """Callbacks carry a token of their own, and come from wherever the endpoints are."""
    return path == "/v1" or (path.startswith("/v1/") and not path.startswith("/v1/callbacks/"))


def _name_in(host: str) -> str:
    """The name or address in a Host header, without the port; "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that hold no address
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
