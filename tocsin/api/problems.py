"""Errors as RFC 9457 problem details: what went wrong, which fields, and what to do about it. Every error of the API
leaves through here, also those that FastAPI and Starlette raise by themselves."""

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tocsin.api.appender import AppenderFull
from tocsin.api.views import missing_partition
from tocsin.log.port import LogError, LogFull, LogUnavailable, RecordTooLarge
from tocsin.schemas.job import Problem
from tocsin.streams.queries import MissingPartition, PartitionsMissing, sentence

PROBLEM_JSON: Final = "application/problem+json"
VALUE_SHOWN_MAX: Final = 200
"""Characters of an offending value that an answer repeats."""

ID_SENTENCE: Final = (
    "use 1 to 128 letters, digits, dots, underscores or hyphens, and begin with a letter or a digit"
)

RETRY_LATEST_S: Final = 30.0
MISSING_SHOWN_MAX: Final = 3

_log = logging.getLogger(__name__)

TITLES: Final[Mapping[str, tuple[int, str]]] = {
    "invalid-job": (422, "The job definition is not valid"),
    "invalid-request": (422, "The request is not valid"),
    "invalid-json": (400, "The body is not JSON"),
    "not-found": (404, "There is no such thing"),
    "unknown-job": (404, "There is no such job"),
    "unknown-run": (404, "There is no such run"),
    "unknown-callback": (404, "There is no such callback"),
    "unknown-dead-letter": (404, "There is no such dead letter"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "run-ended": (409, "The run has ended"),
    "queue-exists": (409, "The queue exists and holds another kind of target"),
    "too-large": (413, "The request is too large"),
    "rejected": (422, "The processor did not accept it"),
    "unauthorized": (401, "An API key is needed"),
    "foreign-origin": (403, "The request comes from another site"),
    "overloaded": (429, "Too much is waiting for the log"),
    "internal": (500, "Tocsin made an error"),
    "log-unavailable": (503, "The log does not answer"),
    "log-full": (503, "The log has no space left"),
    "not-ready": (503, "This node is not ready"),
    "partitions-missing": (503, "A part of the state cannot be asked at the moment"),
}
"""slug -> status, title. The type of a problem is urn:tocsin:problem:<slug>."""


@dataclass(eq=False)
class ApiProblem(Exception):  # an error of the caller, or of the environment, as the caller reads it
    slug: str
    detail: str = ""
    errors: Sequence[Mapping[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return TITLES[self.slug][0]

    def body(self) -> dict[str, object]:
        status, title = TITLES[self.slug]
        body: dict[str, object] = {
            "type": f"urn:tocsin:problem:{self.slug}",
            "title": title,
            "status": status,
        }
        if self.detail:
            body["detail"] = self.detail
        body.update(self.extra)
        if self.errors:
            body["errors"] = list(self.errors)
        return body


def errors_of(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [
        {"field": p.field, "rule": p.rule, "message": p.message, "value": p.value[:VALUE_SHOWN_MAX]}
        for p in problems
    ]


def invalid_job(problems: Iterable[Problem]) -> ApiProblem:
    return ApiProblem("invalid-job", errors=errors_of(problems))


def invalid(field_: str, rule: str, message: str, value: str = "") -> ApiProblem:
    """One field of a request that is no job definition."""
    return ApiProblem(
        "invalid-request", errors=errors_of([Problem(field=field_, rule=rule, message=message, value=value)])
    )


def log_problem(error: LogError) -> ApiProblem:
    """What a failed append means to the caller. Every write may be repeated: a PUT is an upsert, and a trigger with
    an Idempotency-Key is one run."""
    match error:
        case PartitionsMissing():
            return partitions_missing(error.missing)
        case AppenderFull():
            return ApiProblem("overloaded", f"{error}; try again in a second", headers={"Retry-After": "1"})
        case LogFull():
            return ApiProblem(
                "log-full", "Free space where the log lives; nothing was kept.", headers={"Retry-After": "30"}
            )
        case RecordTooLarge():
            return ApiProblem("too-large", f"The record does not fit the log: {error}")
        case LogUnavailable():
            return ApiProblem(
                "log-unavailable", f"{error}; try again in a second", headers={"Retry-After": "1"}
            )
        case _:
            return ApiProblem("log-unavailable", str(error), headers={"Retry-After": "5"})


def partitions_missing(missing: Sequence[MissingPartition]) -> ApiProblem:
    """A question that only partitions can answer which nobody can ask now. It may be asked again soon."""
    etas = [each.restore_eta_s for each in missing if each.restore_eta_s is not None]
    retry_s = min(max([1.0, *etas]), RETRY_LATEST_S)
    shown = "; ".join(map(sentence, missing[:MISSING_SHOWN_MAX]))
    more = len(missing) - MISSING_SHOWN_MAX
    return ApiProblem(
        "partitions-missing",
        f"{shown}{f'; and {more} more' if more > 0 else ''}. /readyz shows the progress.",
        headers={"Retry-After": str(math.ceil(retry_s))},
        extra={"missing_partitions": [missing_partition(each) for each in missing]},
    )


def problem_response(problem: ApiProblem) -> Response:
    return Response(
        encodable(json.dumps(problem.body(), ensure_ascii=False)),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type=PROBLEM_JSON,
    )


def encodable(text: str) -> str:
    """The text with U+FFFD for each half of a character (a lone surrogate): JSON can spell these, UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def install(app: FastAPI) -> None:
    """Every error of `app` is answered as a problem from now on."""
    # Starlette's types ask for handlers of Exception; each is called with what it is registered for.
    app.add_exception_handler(ApiProblem, _on_problem)
    app.add_exception_handler(LogError, _on_log_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_bug)


async def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiProblem)
    return problem_response(error)


async def _on_log_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, LogError)
    return problem_response(log_problem(error))


async def _on_validation(_: Request, error: Exception) -> Response:
    """Parameters of the path and the query (bodies are read by hand)."""
    assert isinstance(error, RequestValidationError)
    return problem_response(
        ApiProblem("invalid-request", errors=[_field_error(entry) for entry in error.errors()])
    )


def _field_error(entry: Mapping[str, Any]) -> dict[str, str]:
    location = [str(part) for part in entry.get("loc", ()) if part not in ("path", "query", "header", "body")]
    context = entry.get("ctx") or {}
    message = str(entry.get("msg", ""))
    if "pattern" in context:
        message = ID_SENTENCE
    elif entry.get("type") == "literal_error":  # "" stands for what is left out: nothing that one could write
        names = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        message = f"write one of {', '.join(filter(None, names))}"
    return {
        "field": ".".join(location),
        "rule": str(entry.get("type", "invalid")).replace("_", "-"),
        "message": message,
        "value": str(entry.get("input", ""))[:VALUE_SHOWN_MAX],
    }


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            problem = ApiProblem(
                "not-found", f"Nothing is served at {request.url.path}; /docs lists what is."
            )
        case 405:
            allowed = headers.get("Allow", headers.get("allow", ""))
            problem = ApiProblem(
                "method-not-allowed", f"{request.url.path} takes {allowed or 'other methods'}."
            )
        case 413:
            problem = ApiProblem("too-large", str(error.detail))
        case status if status < 500:
            problem = ApiProblem("invalid-request", str(error.detail))
        case _:
            problem = ApiProblem("internal", str(error.detail))
    problem.headers = headers
    return problem_response(problem)


async def _on_disconnect(_: Request, error: Exception) -> Response:  # noqa: ARG001
    """The client went away while it sent its body. Nobody reads this; without it a defect would be logged."""
    return problem_response(ApiProblem("invalid-request", "The body ended early."))


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(
        ApiProblem("internal", "The error was logged. It is a defect of Tocsin, please report it.")
    )
