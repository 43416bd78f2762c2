"""What can be wrong with a target, and with the placeholders in it."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from tocsin.schemas.bounds import not_matching, outside_durations, problem
from tocsin.schemas.job import FunctionTarget, HttpTarget, Job, Problem
from tocsin.schemas.limits import (
    BODY_BYTES_MAX,
    FUNCTION_PATTERN,
    HEADER_VALUE_LENGTH_MAX,
    HEADERS_MAX,
    ID_LENGTH_MAX,
    ID_PATTERN,
    STATUS_MAX,
    STATUS_MIN,
    SUCCESS_RANGES_MAX,
    TIMEOUT_MS_MAX,
    TIMEOUT_MS_MIN,
    URL_LENGTH_MAX,
)

PLACEHOLDERS: Final = ("nominal", "run_id", "job", "date")
"""The same for every attempt of a run, so that every attempt sends the same bytes."""

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

RESERVED_HEADERS: Final = frozenset(
    (
        *("traceparent", "tracestate"),
        *("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    )
)
RESERVED_PREFIXES: Final = ("proxy-", "tocsin-", "webhook-")

_ID: Final = re.compile(ID_PATTERN)
_FUNCTION: Final = re.compile(FUNCTION_PATTERN)
_PLACEHOLDER: Final = re.compile(r"\$\{([^{}]*)(\}?)")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")  # RFC 9110, 5.6.2
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SPACE_OR_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")


def target_problems(job: Job) -> Iterator[Problem]:
    match job.http, job.function:
        case None, None:
            yield problem("target", "required", "a job needs a target: http or function")
        case HttpTarget() as http, None:
            yield from _http_problems(http)
        case None, FunctionTarget() as function:
            yield from _function_problems(function)
        case _:
            yield problem("target", "one-of", "a job has one target: keep http or function", "http, function")


def _http_problems(http: HttpTarget) -> Iterator[Problem]:
    yield from _url_problems(http.url)
    if http.method not in METHODS:
        upper = http.method.upper()
        hint = f"write {upper}" if upper in METHODS else f"use one of {', '.join(METHODS)}"
        message = f"{http.method[:40]!r} is no method that can be sent: {hint}"
        yield problem("target.http.method", "method", message, http.method)
    if http.headers or http.secret_headers:
        yield from _header_problems(http)
    if http.signing_secret:
        yield from _secret_problems("target.http.signing_secret.secret", http.signing_secret)
    yield from _body_problems(http)
    yield from outside_durations("target.http.timeout", http.timeout_ms, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)
    yield from _success_problems(http.success)


# --- the URL ----------------------------------------------------------------------------------------------------------


def _url_problems(url: str) -> Iterator[Problem]:
    field = "target.http.url"
    fault = _url_fault(url)
    if fault is not None:
        yield problem(field, fault[0], fault[1], url)
    elif "${" in url:
        yield from _placeholder_problems(field, url)


def _url_fault(url: str) -> tuple[str, str] | None:
    """The first rule that the URL breaks, and what to do."""
    example = "write for example https://api.example.com/hooks/invoices"
    if not url:
        return "url", f"the URL is empty: {example}"
    if len(url) > URL_LENGTH_MAX:
        return "url-length", f"a URL has at most {URL_LENGTH_MAX:,} characters, this one {len(url):,}"
    if (found := _SPACE_OR_CONTROL.search(url)) is not None:
        written = f"%{ord(found[0]):02X}"
        return "url-character", f"the character {found[0]!r} cannot stand in a URL: write it as {written}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return "url", f"this is no URL ({error}): {example}"
    if parts.scheme.lower() not in ("http", "https"):
        return "url-scheme", f"a URL begins with http:// or https://: {example}"
    if "${" in parts.netloc:
        return "url-host", "placeholders may stand in the path and the query of a URL, not in its host"
    if "@" in parts.netloc:
        return "url-userinfo", "a user name or a password in a URL ends up in logs: send it in a header"
    if not parts.hostname:
        return "url-host", f"the URL names no host: {example}"
    if port == 0:
        return "url-port", "a port is 1 to 65,535"
    return None


# --- headers, body, success -------------------------------------------------------------------------------------------


def _header_problems(http: HttpTarget) -> Iterator[Problem]:
    count = len(http.headers) + len(http.secret_headers)
    if count > HEADERS_MAX:
        message = f"at most {HEADERS_MAX} headers are sent, not {count}"
        yield problem("target.http.headers", "headers-max", message, str(count))
        return
    seen: dict[str, str] = {}
    for name, value in http.headers:
        field = f"target.http.headers.{name[:64]}"
        fault = _header_name_fault(name, seen)
        if fault is not None:
            yield problem(field, fault[0], fault[1], name)
        seen[name.lower()] = name
        if (found := _CONTROL.search(value)) is not None:
            message = f"the character {found[0]!r} cannot stand in a header value: leave it out"
            yield problem(field, "header-value", message, value)
        elif len(value) > HEADER_VALUE_LENGTH_MAX:
            message = (
                f"a header value has at most {HEADER_VALUE_LENGTH_MAX:,} characters, this one {len(value):,}"
            )
            yield problem(field, "header-length", message, value)
        elif "${" in value:
            yield from _placeholder_problems(field, value)
    for name, secret in http.secret_headers:
        field = f"target.http.headers.{name[:64]}"
        fault = _header_name_fault(name, seen)
        if fault is not None:
            yield problem(field, fault[0], fault[1], name)
        seen[name.lower()] = name
        yield from _secret_problems(f"{field}.secret", secret)


def _secret_problems(field: str, name: str) -> Iterator[Problem]:
    """The value given is never repeated: somebody may have put the secret itself there."""
    if not _ID.fullmatch(name):
        message = (
            "this is no name of a secret: a letter or digit first, then letters, digits, . _ and - (at most "
            f"{ID_LENGTH_MAX}); the secret itself does not belong here, it is a file of the workers"
        )
        yield problem(field, "secret-name", message)


def _header_name_fault(name: str, seen: Mapping[str, str]) -> tuple[str, str] | None:
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        return (
            "header-name",
            f"{name[:64]!r} is no name of a header: letters, digits and hyphens, no spaces or colons",
        )
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        return "header-reserved", f"{name} is set by Tocsin or by the connection: leave it out"
    if lower in seen:
        return "header-duplicate", f"{name} and {seen[lower]} are one header: keep one"
    return None


def _body_problems(http: HttpTarget) -> Iterator[Problem]:
    field = "target.http.body_base64" if http.body_kind == "base64" else "target.http.body"
    size = len(http.body)
    if size > BODY_BYTES_MAX:
        limit = f"a body has at most {BODY_BYTES_MAX:,} bytes (200 KiB) after encoding"
        yield problem(
            field, "body-size", f"{limit}, this one {size:,}: send a reference to it", f"{size} bytes"
        )
        return
    match http.body_kind:
        case "none":
            if size:
                yield problem(field, "body-kind", "there are bytes, and body_kind says that there is no body")
        case "base64":
            pass
        case "text" | "json":
            yield from _text_problems(field, http.body, is_json=http.body_kind == "json")


def _text_problems(field: str, body: bytes, *, is_json: bool) -> Iterator[Problem]:
    try:
        text = body.decode()
        if is_json:
            json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError:
        yield problem(field, "body-encoding", "the body is not UTF-8: give bytes as body_base64")
    except (ValueError, RecursionError):
        yield problem(
            field,
            "body-json",
            "the body is not JSON, and body_kind says that it is",
            body.decode(errors="replace"),
        )
    else:
        if "${" in text:
            yield from _placeholder_problems(field, text)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _success_problems(success: tuple[tuple[int, int], ...]) -> Iterator[Problem]:
    field = "target.http.success"
    if not 1 <= len(success) <= SUCCESS_RANGES_MAX:
        message = f"give 1 to {SUCCESS_RANGES_MAX} status codes or ranges, for example [200-299]"
        yield problem(field, "success", message, str(len(success)))
        return
    for i, (first, last) in enumerate(success):
        text = str(first) if first == last else f"{first}-{last}"
        if not STATUS_MIN <= first <= STATUS_MAX or not STATUS_MIN <= last <= STATUS_MAX:
            yield problem(f"{field}[{i}]", "success", f"a status code is {STATUS_MIN} to {STATUS_MAX}", text)
        elif first > last:
            yield problem(f"{field}[{i}]", "success", f"the range runs backwards: write {last}-{first}", text)


# --- functions --------------------------------------------------------------------------------------------------------


def _function_problems(function: FunctionTarget) -> Iterator[Problem]:
    yield from not_matching(
        "target.function.name",
        function.name,
        _FUNCTION,
        "function-name",
        "a letter or _ first, then letters, digits, _ . and -",
        ID_LENGTH_MAX,
    )
    field, size = "target.function.arguments", len(function.arguments)
    if size > BODY_BYTES_MAX:
        limit = f"arguments have at most {BODY_BYTES_MAX:,} bytes (200 KiB) as JSON"
        yield problem(field, "body-size", f"{limit}, these {size:,}: pass a reference", f"{size} bytes")
        return
    try:
        text = function.arguments.decode()
        is_object = isinstance(json.loads(text, parse_constant=_no_constant), dict)
    except (ValueError, RecursionError):
        text, is_object = "", False
    if not is_object:
        shown = function.arguments.decode(errors="replace")
        yield problem(
            field, "arguments", "arguments are a JSON object: a name and a value for each parameter", shown
        )
    elif "${" in text:
        yield from _placeholder_problems(field, text)


# --- placeholders -----------------------------------------------------------------------------------------------------


def _placeholder_problems(field: str, text: str) -> Iterator[Problem]:
    for found in _PLACEHOLDER.finditer(text):
        name, closed = found[1], found[2]
        if name in PLACEHOLDERS and closed:
            continue
        what = f"{found[0][:64]} is {'no placeholder' if closed else 'a placeholder that is not closed'}"
        near = get_close_matches(name.strip(), PLACEHOLDERS, n=1)
        if near and closed:
            hint = f"did you mean ${{{near[0]}}}?"
        else:
            hint = f"there are {', '.join(f'${{{each}}}' for each in PLACEHOLDERS)}"
        if field == "target.http.body":
            hint += " (body_base64 is sent as it is)"
        yield problem(field, "placeholder", f"{what}: {hint}", found[0])
