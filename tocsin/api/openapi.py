"""The OpenAPI 3.1 document: what FastAPI derives from the routes, plus the shapes of bodies, which are read and written
by hand, and the JSON Schema of the job definition."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tocsin.api.examples import BODIES
from tocsin.schemas.document import json_schema
from tocsin.streams.queries import MissingReason

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_INSTANT_OR_NULL: Final[Schema] = {"type": ["string", "null"], "format": "date-time"}
_INT: Final[Schema] = {"type": "integer"}
_INT_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER_OR_NULL: Final[Schema] = {"type": ["number", "null"]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _object(properties: Mapping[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, **more}


def _request(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _page_of(name: str) -> Schema:
    return _object(
        {
            "items": _list(_ref(name)),
            "next_cursor": _TEXT_OR_NULL,
            "missing_partitions": _list(_ref("MissingPartition")),
        }
    )


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_COORDINATES: Final = {"topic": _TEXT, "partition": _INT, "offset": _INT, "note": _TEXT}
_RUN_STATUS: Final = _choice(
    "scheduled", "running", "retrying", "buffered", "waiting", "undecided",
    "succeeded", "failed", "cancelled", "superseded", "skipped",
)  # fmt: skip
_MISSING_REASON: Final = _choice(*get_args(MissingReason))
_ERROR: Final = _object({"field": _TEXT, "rule": _TEXT, "message": _TEXT, "value": _TEXT})

_JOB_LINE: Final = {
    "key": _TEXT,
    "namespace": _TEXT,
    "id": _TEXT,
    "description": _TEXT,
    "labels": {"type": "object", "additionalProperties": _TEXT},
    "queue": _TEXT_OR_NULL,
    "schedule": _TEXT_OR_NULL,
    "revision": _INT,
    "state": _choice("active", "paused", "broken", "finished"),
    "broken": _TEXT_OR_NULL,
    "next_nominal": _INSTANT_OR_NULL,
    "next_due": _INSTANT_OR_NULL,
    "none_before": _INSTANT_OR_NULL
    | {
        "description": "Set while the next occurrence is not known: exclusions left none before this instant, and the "
        "search goes on there."
    },
    "open_runs": _INT,
    "consecutive_failures": _INT,
    "last_run": _or_null(
        _object({"run_id": _TEXT, "status": _TEXT, "ended_at": _INSTANT_OR_NULL, "lateness_ms": _INT})
    ),
}
_RUN: Final = {
    "run_id": _TEXT,
    "job": _TEXT,
    "revision": _INT,
    "cause": _choice("schedule", "trigger", "backfill", "redrive", "after", "callback", "catchup"),
    "nominal": _INSTANT_OR_NULL,
    "due": _INSTANT_OR_NULL,
    "status": _RUN_STATUS,
    "reason": _TEXT_OR_NULL,
    "updated_at": _INSTANT_OR_NULL,
    "attempts": _list(_ref("Attempt")),
    "last_nominal": _INSTANT_OR_NULL,
    "count": _INT,
    "count_at_least": _FLAG,
}
_SERIES: Final = ("last_nominal", "count", "count_at_least")

SCHEMAS: Final[dict[str, Schema]] = {
    "JobLine": _object(_JOB_LINE),
    "JobView": _object(
        {
            **_JOB_LINE,
            "definition": _or_null(_ref("Job")),
            "pause": _or_null(
                _object({"by": _TEXT_OR_NULL, "reason": _TEXT_OR_NULL, "until": _INSTANT_OR_NULL})
            ),
            "skip_next": _INT,
            "created_at": _INSTANT_OR_NULL,
            "defined_at": _INSTANT_OR_NULL,
            "defined_by": _TEXT_OR_NULL,
            "definition_offset": _INT,
            "finished_at": _INSTANT_OR_NULL,
            "delete_at": _INSTANT_OR_NULL,
            "last_failure": _or_null(_object({"at": _INSTANT_OR_NULL, "error": _TEXT_OR_NULL})),
        }
    ),
    "JobList": _page_of("JobLine"),
    "Attempt": _object(
        {
            "attempt": _INT,
            "dispatch": _INT,
            "due": _INSTANT_OR_NULL,
            "dispatched_at": _INSTANT_OR_NULL,
            "started_at": _INSTANT_OR_NULL,
            "ended_at": _INSTANT_OR_NULL,
            "lateness_ms": _INT_OR_NULL,
            "outcome": _choice(
                "pending", "running", "succeeded", "failed", "cancelled", "dropped", "expired", "lost"
            ),
            "http_status": _INT_OR_NULL,
            "error": _TEXT_OR_NULL,
            "response": _TEXT_OR_NULL,
            "worker": _TEXT_OR_NULL,
            "next_attempt_at": _INSTANT_OR_NULL,
        }
    ),
    "Run": _object(
        _RUN,
        _SERIES,
        description="A run with its last 20 attempts; or, with status skipped and a count, a series of occurrences "
        "from nominal to last_nominal that were skipped for one reason.",
    ),
    "RunList": _page_of("Run"),
    "DeadLetter": _object({**_RUN, "died_at": _INSTANT_OR_NULL}, _SERIES),
    "DeadLetterList": _page_of("DeadLetter"),
    "Written": _object(
        {"key": _TEXT, "result": _choice("acknowledged", "deleted", "superseded"), **_COORDINATES}, ("note",)
    ),
    "Defined": _object(
        {
            "key": _TEXT,
            "result": _choice("created", "changed", "unchanged", "superseded"),
            **_COORDINATES,
            "revision": _INT,
            "state": _TEXT,
            "next_due": _INSTANT_OR_NULL,
        },
        ("note", "revision", "state", "next_due"),
        description="superseded: another write to the same job was applied in between.",
    ),
    "CommandApplied": _object(
        {"key": _TEXT, "result": _choice("changed", "unchanged"), **_COORDINATES, "job": _ref("JobView")},
        ("note",),
    ),
    "Triggered": _object(
        {
            "run_id": _TEXT,
            "key": _TEXT,
            "result": _choice("acknowledged", "created", "unchanged"),
            **_COORDINATES,
            "run": _ref("Run"),
        },
        ("note", "run"),
    ),
    "RunCommand": _object(
        {
            "run_id": _TEXT,
            "key": _TEXT,
            "result": _choice("acknowledged", "requested", "cancelled", "redriven", "unchanged"),
            **_COORDINATES,
            "run": _ref("Run"),
        },
        ("note", "run"),
        description="requested: the run is under way, and its worker has been told to abort it.",
    ),
    "TriggerRequest": _request({"body": {}, "body_base64": _TEXT, "reason": _TEXT}),
    "PauseRequest": _request({"reason": _TEXT, "until": _INSTANT}),
    "ReasonRequest": _request({"reason": _TEXT}),
    "HeartbeatRequest": _request({"lease": _TEXT}),
    "HeartbeatTaken": _object(
        {"run_id": _TEXT, "result": _choice("acknowledged"), "cancel_requested": _FLAG}
    ),
    "CompletionRequest": _request(
        {
            "status": _choice("succeeded", "failed", "cancelled"),
            "error": _TEXT,
            "retryable": _FLAG,
            "response": _TEXT,
        }
    )
    | {"required": ["status"]},
    "CallbackTaken": _object({"run_id": _TEXT, "result": _choice("acknowledged")}),
    "SkipNextRequest": _request(
        {"count": {"type": "integer", "minimum": 0, "maximum": 10_000}, "reason": _TEXT}
    ),
    "RedriveRequest": _request(
        {
            "namespace": _TEXT,
            "cursor": _TEXT,
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "dry_run": _FLAG,
            "reason": _TEXT,
        }
    ),
    "RedriveResult": _object(
        {"run_ids": _list(_TEXT), "count": _INT, "dry_run": _FLAG, "next_cursor": _TEXT_OR_NULL}
    ),
    "BatchResult": _object(
        {
            "key": _TEXT,
            "result": _choice(
                "acknowledged",
                "created",
                "changed",
                "unchanged",
                "superseded",
                "valid",
                "invalid",
                "rejected",
                "skipped",
                "failed",
            ),
            "errors": _list(_ref("FieldError")),
        }
    ),
    "QueueRequest": _request(
        {
            "kind": _choice("http", "function", "topic"),
            "partitions": {"type": "integer", "minimum": 1, "maximum": 256},
        }
    ),
    "Queue": _object(
        {
            "name": _TEXT,
            "kind": _TEXT,
            "partitions": _INT,
            "live_workers": _INT,
            "served_by": _choice("node", "workers"),
        }
    ),
    "QueueList": _page_of("Queue"),
    "PreviewRequest": _request(
        {
            "document": _ref("Job"),
            "schedule": {"type": "object"},
            "count": {"type": "integer", "minimum": 1, "maximum": 1000},
            "after": _INSTANT,
        }
    ),
    "Preview": _object(
        {
            "kind": _TEXT,
            "reading": _TEXT,
            "warnings": _list(_TEXT),
            "next": _list(_object({"nominal": _INSTANT, "local": _TEXT})),
        }
    ),
    "Live": _object({"status": _TEXT}),
    "Ready": _object(
        {
            "status": _choice("ready", "degraded", "not-ready"),
            "reason": _TEXT_OR_NULL,
            "partitions": _list(
                _object(
                    {
                        "partition": _INT,
                        "ready": _FLAG,
                        "reason": _or_null(_MISSING_REASON),
                        "watermark": _INSTANT_OR_NULL,
                        "restore_done": _INT,
                        "restore_total": _INT,
                        "restore_eta_s": _NUMBER_OR_NULL,
                    }
                )
            ),
        }
    ),
    "MissingPartition": _object(
        {
            "partition": _INT,
            "reason": _MISSING_REASON,
            "detail": _TEXT,
            "restore_done": _INT,
            "restore_total": _INT,
            "restore_eta_s": _NUMBER_OR_NULL,
        },
        description="A partition that could not be asked, so that what it holds is not in the answer.",
    ),
    "FieldError": _ERROR,
    "Problem": _object(
        {
            "type": {"type": "string", "format": "uri"},
            "title": _TEXT,
            "status": _INT,
            "detail": _TEXT,
            "errors": _list(_ref("FieldError")),
            "missing_partitions": _list(_ref("MissingPartition")),
        },
        ("detail", "errors", "missing_partitions"),
        description="RFC 9457 problem details. `type` is urn:tocsin:problem: and a slug; `errors` names each wrong field.",
    ),
}

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PROBLEM_JSON: Final = "application/problem+json"


def operation(
    name: str,
    *,
    done: str,
    body: str = "",
    accepted: str = "",
    created: bool = False,
    failed: Mapping[int, tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a route: its id, its bodies by their names in BODIES, and the errors that all share.

    `done` is answered with 200 (and with 201 if it may create), `accepted` with 202 while the processor has yet to apply.
    """
    responses: dict[int | str, dict[str, Any]] = {200: _response("Done.", done)}
    if created:
        responses[201] = _response("Created.", done)
    if accepted:
        responses[202] = _response("The log has it; the processor will apply it.", accepted)
    for status, (description, example) in (failed or {}).items():
        responses[status] = _response(description, example)
    responses["default"] = _response("What is wrong, and with which fields.", "problem")
    route: dict[str, Any] = {"operation_id": name, "responses": responses, "response_model": None}
    if body:
        route["openapi_extra"] = {"requestBody": {"required": body in _REQUIRED, "content": _content(body)}}
    return route


_NDJSON: Final = frozenset({"batch", "batch_results", "batch_refused"})
_REQUIRED: Final = frozenset({"job", "batch", "queue", "preview", "completion"})


def _response(description: str, example: str) -> dict[str, Any]:
    return {"description": description, "content": _content(example)}


def _content(example: str) -> dict[str, Any]:
    schema, value = BODIES[example]
    if example in _NDJSON:
        return {NDJSON: {"schema": _ref(schema), "example": value}}
    media_type = PROBLEM_JSON if example == "problem" else JSON
    return {media_type: {"schema": _ref(schema), "example": value}}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole OpenAPI document of `app`, made once and kept."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas.update(SCHEMAS)
        schemas.update(_job_schemas())
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{}, {"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _job_schemas() -> dict[str, Schema]:
    """The definition's schema as components: its own `$defs` become `Job...` beside it."""
    whole = dict(json_schema())
    definitions = whole.pop("$defs", {})
    whole.pop("$schema", None)
    whole.pop("$id", None)
    renamed = {f"#/$defs/{name}": f"#/components/schemas/Job{name}" for name in definitions}
    return {
        "Job": _renamed(whole, renamed),
        **{f"Job{name}": _renamed(schema, renamed) for name, schema in definitions.items()},
    }


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            key: names.get(value, value)
            if key == "$ref" and isinstance(value, str)
            else _renamed(value, names)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_renamed(item, names) for item in node]
    return node
