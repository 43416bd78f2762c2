"""One example for every body that the API takes or gives; the OpenAPI document and /docs show them, tests hold them
against their schemas."""

from typing import Any, Final

_RUN_ID = "billing/send-invoices@20260309T080000.000Z"

JOB: Final[dict[str, Any]] = {
    "description": "Sends yesterday's invoices",
    "labels": {"team": "billing"},
    "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "spread": "10m"},
    "target": {
        "http": {
            "url": "https://api.example.com/hooks/invoices",
            "body": {"day": "${nominal}"},
            "timeout": "30s",
        }
    },
    "retry": {"max_attempts": 5, "base": "30s"},
}

_WRITTEN: dict[str, Any] = {
    "key": "billing/send-invoices",
    "result": "acknowledged",
    "topic": "tocsin.jobs",
    "partition": 2,
    "offset": 4711,
}

_ATTEMPTS: list[dict[str, Any]] = [
    {
        "attempt": 1,
        "dispatch": 1,
        "due": "2026-03-09T08:03:12.000Z",
        "dispatched_at": "2026-03-09T08:03:02.014Z",
        "started_at": "2026-03-09T08:03:12.004Z",
        "ended_at": "2026-03-09T08:03:12.131Z",
        "lateness_ms": 4,
        "outcome": "failed",
        "http_status": 503,
        "error": "the endpoint answered 503",
        "response": "upstream is down",
        "worker": "worker-7f",
        "next_attempt_at": "2026-03-09T08:03:42.310Z",
    },
    {
        "attempt": 2,
        "dispatch": 2,
        "due": "2026-03-09T08:03:42.310Z",
        "dispatched_at": "2026-03-09T08:03:32.320Z",
        "started_at": "2026-03-09T08:03:42.312Z",
        "ended_at": "2026-03-09T08:03:42.402Z",
        "lateness_ms": 2,
        "outcome": "succeeded",
        "http_status": 200,
        "error": None,
        "response": "ok",
        "worker": "worker-7f",
        "next_attempt_at": None,
    },
]

RUN: Final[dict[str, Any]] = {
    "run_id": _RUN_ID,
    "job": "billing/send-invoices",
    "revision": 3,
    "cause": "schedule",
    "nominal": "2026-03-09T08:00:00.000Z",
    "due": "2026-03-09T08:03:12.000Z",
    "status": "succeeded",
    "reason": None,
    "updated_at": "2026-03-09T08:03:42.420Z",
    "attempts": _ATTEMPTS,
}

_TRIGGER_RUN: dict[str, Any] = {
    "run_id": "billing/send-invoices!t.order-1017",
    "job": "billing/send-invoices",
    "revision": 3,
    "cause": "trigger",
    "nominal": "2026-03-09T08:10:00.120Z",
    "due": "2026-03-09T08:10:00.120Z",
    "status": "scheduled",
    "reason": None,
    "updated_at": "2026-03-09T08:10:00.120Z",
    "attempts": [],
}

JOB_LINE: Final[dict[str, Any]] = {
    "key": "billing/send-invoices",
    "namespace": "billing",
    "id": "send-invoices",
    "description": "Sends yesterday's invoices",
    "labels": {"team": "billing"},
    "queue": "default",
    "schedule": "cron 0 9 * * MON-FRI (Europe/Berlin)",
    "revision": 3,
    "state": "active",
    "broken": None,
    "next_nominal": "2026-03-10T08:00:00.000Z",
    "next_due": "2026-03-10T08:03:12.000Z",
    "none_before": None,
    "open_runs": 0,
    "consecutive_failures": 0,
    "last_run": {
        "run_id": _RUN_ID,
        "status": "succeeded",
        "ended_at": "2026-03-09T08:03:42.402Z",
        "lateness_ms": 2,
    },
}

JOB_VIEW: Final[dict[str, Any]] = {
    **JOB_LINE,
    "definition": {"namespace": "billing", "id": "send-invoices", **JOB},
    "pause": None,
    "skip_next": 0,
    "created_at": "2026-01-12T10:00:00.000Z",
    "defined_at": "2026-02-03T14:31:07.215Z",
    "defined_by": "api",
    "definition_offset": 4711,
    "finished_at": None,
    "delete_at": None,
    "last_failure": {"at": "2026-02-20T08:03:12.131Z", "error": "the endpoint answered 503"},
}

_PAUSED: dict[str, Any] = {
    **JOB_VIEW,
    "state": "paused",
    "next_nominal": None,
    "next_due": None,
    "pause": {"by": "anna", "reason": "ERP is down for maintenance", "until": "2026-03-10T06:00:00.000Z"},
}

_COMMAND: dict[str, Any] = {**_WRITTEN, "topic": "tocsin.commands", "offset": 815}

_DEAD_LETTER: dict[str, Any] = {
    **RUN,
    "status": "failed",
    "reason": "attempts_exhausted",
    "attempts": _ATTEMPTS[:1],
    "died_at": "2026-03-09T09:31:44.020Z",
}

_INVALID: dict[str, Any] = {
    "field": "schedule.cron[0]",
    "rule": "cron-minute",
    "message": "minute 75 is outside 0-59",
    "value": "75 * * * *",
}

PROBLEM: Final[dict[str, Any]] = {
    "type": "urn:tocsin:problem:invalid-job",
    "title": "The job definition is not valid",
    "status": 422,
    "errors": [_INVALID],
}

_QUEUE: dict[str, Any] = {
    "name": "reports",
    "kind": "http",
    "partitions": 4,
    "live_workers": 1,
    "served_by": "node",
}

_PARTITION: dict[str, Any] = {
    "partition": 0,
    "ready": True,
    "reason": None,
    "watermark": "2026-03-09T08:03:41.990Z",
    "restore_done": 0,
    "restore_total": 0,
    "restore_eta_s": None,
}

_MISSING: dict[str, Any] = {
    "partition": 3,
    "reason": "restoring",
    "detail": "partition 3 is being restored: 120,000 of 500,000, about 4 s left",
    "restore_done": 120_000,
    "restore_total": 500_000,
    "restore_eta_s": 4.2,
}

BODIES: Final[dict[str, tuple[str, Any]]] = {
    # name: (schema, example). NDJSON examples are lists, a line for each item.
    "job": ("Job", JOB),
    "batch": (
        "Job",
        [
            {"namespace": "billing", "id": "send-invoices", **JOB},
            {
                "id": "sweep",
                "schedule": {"every": "90s"},
                "target": {"http": {"url": "https://example.com/sweep"}},
            },
        ],
    ),
    "batch_results": (
        "BatchResult",
        [
            {"key": "billing/send-invoices", "result": "acknowledged", "errors": []},
            {"key": "default/sweep", "result": "invalid", "errors": [_INVALID]},
        ],
    ),
    "batch_refused": (
        "BatchResult",
        [
            {"key": "billing/send-invoices", "result": "skipped", "errors": []},
            {"key": "default/sweep", "result": "invalid", "errors": [_INVALID]},
        ],
    ),
    "written": ("Written", _WRITTEN),
    "defined": (
        "Defined",
        {
            **_WRITTEN,
            "result": "changed",
            "revision": 3,
            "state": "active",
            "next_due": "2026-03-10T08:03:12.000Z",
        },
    ),
    "deleted": ("Written", {**_WRITTEN, "result": "deleted"}),
    "job_view": ("JobView", JOB_VIEW),
    "job_list": (
        "JobList",
        {"items": [JOB_LINE], "next_cursor": "billing/send-invoices", "missing_partitions": [_MISSING]},
    ),
    "run": ("Run", RUN),
    "run_list": ("RunList", {"items": [RUN], "next_cursor": None, "missing_partitions": []}),
    "trigger": ("TriggerRequest", {"body": {"day": "2026-03-08"}, "reason": "sent again for order 1017"}),
    "triggered": ("Triggered", {"run_id": _TRIGGER_RUN["run_id"], **_COMMAND}),
    "triggered_applied": (
        "Triggered",
        {"run_id": _TRIGGER_RUN["run_id"], **_COMMAND, "result": "created", "run": _TRIGGER_RUN},
    ),
    "pause": ("PauseRequest", {"reason": "ERP is down for maintenance", "until": "2026-03-10T06:00:00Z"}),
    "reason": ("ReasonRequest", {"reason": "ERP is back"}),
    "skip_next": ("SkipNextRequest", {"count": 2, "reason": "inventory"}),
    "command": ("Written", _COMMAND),
    "paused": ("CommandApplied", {**_COMMAND, "result": "changed", "job": _PAUSED}),
    "resumed": ("CommandApplied", {**_COMMAND, "result": "changed", "job": JOB_VIEW}),
    "cancelled": (
        "RunCommand",
        {"run_id": _RUN_ID, **_COMMAND, "result": "cancelled", "run": {**RUN, "status": "cancelled"}},
    ),
    "run_command": ("RunCommand", {"run_id": _RUN_ID, **_COMMAND}),
    "redriven": (
        "RunCommand",
        {"run_id": _RUN_ID, **_COMMAND, "result": "redriven", "run": {**RUN, "status": "scheduled"}},
    ),
    "heartbeat": ("HeartbeatRequest", {"lease": "10m"}),
    "heartbeat_taken": (
        "HeartbeatTaken",
        {"run_id": _RUN_ID, "result": "acknowledged", "cancel_requested": False},
    ),
    "completion": ("CompletionRequest", {"status": "failed", "error": "no paper", "retryable": True}),
    "completed": ("CallbackTaken", {"run_id": _RUN_ID, "result": "acknowledged"}),
    "dead_letter_list": (
        "DeadLetterList",
        {"items": [_DEAD_LETTER], "next_cursor": None, "missing_partitions": []},
    ),
    "redrive": (
        "RedriveRequest",
        {"namespace": "billing", "limit": 100, "dry_run": False, "reason": "endpoint fixed"},
    ),
    "redrive_results": (
        "RedriveResult",
        {"run_ids": [_RUN_ID], "count": 1, "dry_run": False, "next_cursor": None},
    ),
    "queue": ("QueueRequest", {"kind": "http"}),
    "queue_view": ("Queue", _QUEUE),
    "queue_list": ("QueueList", {"items": [_QUEUE], "next_cursor": None, "missing_partitions": []}),
    "preview": ("PreviewRequest", {"schedule": JOB["schedule"], "count": 2}),
    "previewed": (
        "Preview",
        {
            "kind": "cron",
            "reading": "at 09:00 on Monday to Friday, Europe/Berlin",
            "warnings": [],
            "next": [
                {"nominal": "2026-03-09T08:00:00.000Z", "local": "2026-03-09T09:00:00+01:00"},
                {"nominal": "2026-03-10T08:00:00.000Z", "local": "2026-03-10T09:00:00+01:00"},
            ],
        },
    ),
    "live": ("Live", {"status": "alive"}),
    "ready": ("Ready", {"status": "ready", "reason": None, "partitions": [_PARTITION]}),
    "not_ready": (
        "Ready",
        {
            "status": "not-ready",
            "reason": "partition 0 is being restored: 120,000 of 500,000, about 4 s left",
            "partitions": [
                {
                    **_PARTITION,
                    "ready": False,
                    "reason": "restoring",
                    "watermark": None,
                    "restore_done": 120_000,
                    "restore_total": 500_000,
                    "restore_eta_s": 4.2,
                }
            ],
        },
    ),
    "problem": ("Problem", PROBLEM),
}
