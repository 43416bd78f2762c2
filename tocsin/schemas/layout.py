"""The job document's fields: their names, what they hold, what they say to people. The one table of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from tocsin.schemas.job import (
    Backoff,
    CatchUp,
    CatchUpMode,
    Exclusion,
    Fold,
    FunctionTarget,
    Gap,
    HttpTarget,
    Job,
    Overlap,
    OverlapMode,
    Priority,
    Retry,
    Schedule,
    WhenFinished,
)
from tocsin.schemas.kinds import (
    Choice,
    Duration,
    Flag,
    Instant,
    JsonSchema,
    Number,
    Reading,
    Several,
    Text,
    Texts,
    Whole,
)
from tocsin.schemas.limits import (
    ATTEMPTS_MAX,
    CATCHUP_RUNS_MAX,
    DESCRIPTION_LENGTH_MAX,
    EXCLUSIONS_MAX,
    EXPRESSIONS_MAX,
    FACTOR_MAX,
    FUNCTION_PATTERN,
    ID_PATTERN,
    LABEL_VALUE_LENGTH_MAX,
    LABELS_MAX,
    RUNS_MAX,
    SUCCESS_RANGES_MAX,
    URL_LENGTH_MAX,
    WAITING_MAX,
)
from tocsin.schemas.payloads import Base64, Body, Headers, Json, SecretName, StatusCodes
from tocsin.schemas.sections import Field, Given, Section, Short
from tocsin.schemas.target_problems import METHODS

_DURATION: Final = Duration()
_EXPRESSION: Final = Text(longest=1_000)
_FLAG: Final = Flag()
_ID: Final = Text(pattern=ID_PATTERN)
_INSTANT: Final = Instant()
_TEXT: Final = Text()


def _at_most_one(*names: str) -> JsonSchema:
    pairs = [{"required": [a, b]} for i, a in enumerate(names) for b in names[i + 1 :]]
    return {"not": {"anyOf": pairs}}


# --- schedule ---------------------------------------------------------------------------------------------------------

EXCLUSION: Final = Section(
    Exclusion,
    Field(
        "cron", "cron", _EXPRESSION, "What this expression names, in the schedule's zone.", ("* * 24 12 *",)
    ),
    Field("from", "from_ms", _INSTANT, "Start of an excluded range, included.", ("2026-12-31",)),
    Field("to", "to_ms", _INSTANT, "End of an excluded range, not included.", ("2027-01-01",)),
    expected="an exclusion: {cron: ...} or {from: ..., to: ...}",
    unavailable=("calendar",),
    terse=True,
)

_CRONS: Final = Several(
    of=_EXPRESSION, most=EXPRESSIONS_MAX, least=1, alone=True, expected="a cron expression, or a list of them"
)
_EXCLUSIONS: Final = Several(of=EXCLUSION, most=EXCLUSIONS_MAX, expected="a list of exclusions")
_RUNS: Final = Whole(low=1, high=RUNS_MAX)


def _prepare_schedule(document: Mapping[Any, Any], reading: Reading) -> None:
    timezone = document.get("timezone")
    if isinstance(timezone, str):
        reading.timezone = timezone


SCHEDULE: Final = Section(
    Schedule,
    Field(
        "cron",
        "cron",
        _CRONS,
        "A cron expression of five fields, or six with the second first; or a list: their union.",
        ("0 9 * * MON-FRI",),
    ),
    Field(
        "every",
        "every_ms",
        _DURATION,
        "Again and again after this time, from start to start; 1s or more.",
        ("90s",),
    ),
    Field("at", "at_ms", _INSTANT, "Once, at this instant."),
    Field("delay", "delay_ms", _DURATION, "Once, so long after the definition.", ("30s",)),
    Field(
        "timezone",
        "timezone",
        _TEXT,
        "The IANA zone of expressions and of times without an offset.",
        ("Europe/Berlin",),
    ),
    Field(
        "gap",
        "gap",
        Choice(names=get_args(Gap)),
        "What a local time that the clocks skip does: run at the end of the gap, not at all, or later by its length.",
    ),
    Field(
        "fold",
        "fold",
        Choice(names=get_args(Fold)),
        "Which pass of a local time that the clocks repeat runs.",
    ),
    Field("anchor", "anchor_ms", _INSTANT, "Where every counts from; by default the creation of the job."),
    Field(
        "after_completion", "after_completion", _FLAG, "Whether every counts from the end of the run before."
    ),
    Field("exclude", "exclude", _EXCLUSIONS, "Instants at which the job does not run."),
    Field(
        "spread",
        "spread_ms",
        _DURATION,
        "Each job starts later by an offset of its own below this; 24h or less.",
        ("10m",),
    ),
    Field("starts_at", "starts_at_ms", _INSTANT, "Nothing runs for an instant before this one."),
    Field("ends_at", "ends_at_ms", _INSTANT, "Nothing runs for this instant or a later one."),
    Field("max_runs", "max_runs", _RUNS, "After this many runs the schedule has ended."),
    expected="an object such as {cron: 0 9 * * MON-FRI} or {every: 90s}",
    unavailable=("after",),
    prepare=_prepare_schedule,
    rules=_at_most_one("cron", "every", "at", "delay"),
)

# --- target -----------------------------------------------------------------------------------------------------------


def _complete_http(given: Given, where: str, reading: Reading) -> None:
    body, base64 = given.pop("as_body", None), given.pop("as_base64", None)
    if body is not None and base64 is not None:
        message = "a request has one body: keep body or body_base64"
        reading.refuse(where, "one-of", message, "body, body_base64")
    elif (found := body or base64) is not None:
        given["body"], given["body_kind"] = found
    if (headers := given.pop("as_headers", None)) is not None:
        given["headers"], given["secret_headers"] = headers


def _spread_http(http: HttpTarget) -> Given:
    spread: Given = {
        "as_headers": (http.headers, http.secret_headers) if http.headers or http.secret_headers else None,
        "signing_secret": http.signing_secret or None,
    }
    match http.body_kind:
        case "none":
            return spread
        case "base64":
            return spread | {"as_base64": (http.body, http.body_kind)}
        case _:
            return spread | {"as_body": (http.body, http.body_kind)}


_SUCCESS: Final = Several(
    of=StatusCodes(),
    most=SUCCESS_RANGES_MAX,
    expected="a list of status codes and ranges, for example [200-299, 404]",
)

HTTP: Final = Section(
    HttpTarget,
    Field(
        "url",
        "url",
        Text(longest=URL_LENGTH_MAX),
        "Where the request goes, http or https. ${nominal}, ${run_id}, ${job} and ${date} stand for the run's.",
        ("https://api.example.com/hooks/invoices",),
        required=True,
    ),
    Field("method", "method", Text(pattern=f"({'|'.join(METHODS)})"), "The request's method."),
    Field(
        "headers",
        "as_headers",
        Headers(),
        "Headers of the request. A value may be {secret: NAME}.",
        ({"X-Team": "billing", "Authorization": {"secret": "invoices-token"}},),
    ),
    Field(
        "body",
        "as_body",
        Body(),
        "What is sent: an object or a list as JSON, text as it is.",
        ({"day": "${nominal}"},),
    ),
    Field("body_base64", "as_base64", Base64(), "What is sent, as bytes in base64."),
    Field("timeout", "timeout_ms", _DURATION, "How long one attempt may take, 1s to 15m."),
    Field("success", "success", _SUCCESS, "The status codes that count as success."),
    Field(
        "signing_secret",
        "signing_secret",
        SecretName(),
        "The secret that each request is signed with (Standard Webhooks).",
        ({"secret": "invoice-hook"},),
    ),
    expected="an object with a url",
    complete=_complete_http,
    spread=_spread_http,
    rules=_at_most_one("body", "body_base64"),
)

FUNCTION: Final = Section(
    FunctionTarget,
    Field(
        "name",
        "name",
        Text(pattern=FUNCTION_PATTERN),
        "The name under which a worker has registered the function.",
        ("send_invoices",),
        required=True,
    ),
    Field(
        "arguments",
        "arguments",
        Json(objects=True),
        "The function's keyword arguments.",
        ({"day": "${nominal}"},),
    ),
    expected="an object with the name of a function",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a job executes, before the job takes it apart."""

    http: HttpTarget | None = None
    function: FunctionTarget | None = None


TARGET: Final = Section(
    Target,
    Field("http", "http", HTTP, "Send an HTTP request."),
    Field("function", "function", FUNCTION, "Call a function that a worker has registered."),
    expected="an object with http or function",
    unavailable=("topic",),
    rules={"minProperties": 1, "maxProperties": 1},
)

# --- policies ---------------------------------------------------------------------------------------------------------

_DELAYS: Final = Several(
    of=_DURATION, most=ATTEMPTS_MAX - 1, expected="a list of durations, for example [10s, 1m, 10m]"
)

RETRY: Final = Section(
    Retry,
    Field(
        "max_attempts", "max_attempts", Whole(low=1, high=ATTEMPTS_MAX), "Attempts at most; 1: never again."
    ),
    Field(
        "backoff",
        "backoff",
        Choice(names=get_args(Backoff)),
        "How the delays grow: times factor, by base, not at all, or as delays lists them.",
    ),
    Field("base", "base_ms", _DURATION, "The first delay."),
    Field(
        "factor",
        "factor",
        Number(low=1, high=FACTOR_MAX),
        "By what an exponential delay is multiplied each time.",
    ),
    Field(
        "max", "max_ms", _DURATION, "No delay is longer, also none that the endpoint asks for (Retry-After)."
    ),
    Field(
        "jitter",
        "jitter",
        Number(low=0, high=1),
        "Each delay is longer or shorter by up to this share of itself.",
    ),
    Field(
        "delays",
        "delays_ms",
        _DELAYS,
        "For backoff: list, the delays; the last one goes on.",
        (["10s", "1m", "10m"],),
    ),
    Field(
        "max_age", "max_age_ms", _DURATION, "No attempt starts later than this after the run was first due."
    ),
    Field(
        "until_next",
        "until_next",
        _FLAG,
        "Whether a run that waits for a retry gives way to the next occurrence.",
    ),
    expected="an object such as {max_attempts: 5, base: 30s}",
)

_OVERLAP_MODE: Final = Choice(names=get_args(OverlapMode))

OVERLAP: Final = Section(
    Overlap,
    Field(
        "mode",
        "mode",
        _OVERLAP_MODE,
        "Skip it, run it beside the earlier run, let it wait (one, or all), or replace the earlier run.",
    ),
    Field("limit", "limit", Whole(low=1, high=WAITING_MAX), "How many may wait under buffer_all."),
    expected="skip, allow, buffer_one, buffer_all or replace, or {mode: buffer_all, limit: 10}",
)

CATCHUP: Final = Section(
    CatchUp,
    Field(
        "mode",
        "mode",
        Choice(names=get_args(CatchUpMode)),
        "Run none of the missed occurrences, the latest, or all of them up to limit.",
    ),
    Field("window", "window_ms", _DURATION, "Occurrences missed by more than this never run."),
    Field("limit", "limit", Whole(low=1, high=CATCHUP_RUNS_MAX), "How many run at most under all."),
    Field("grace", "grace_ms", _DURATION, "Up to this lateness an occurrence is late, not missed."),
    expected="an object such as {mode: latest, window: 24h}",
)

# --- the job ----------------------------------------------------------------------------------------------------------


def _complete_job(given: Given, _where: str, _reading: Reading) -> None:
    target = given.pop("target", None)
    if target is not None:
        given["http"], given["function"] = target.http, target.function


def _spread_job(job: Job) -> Given:
    return {"target": Target(http=job.http, function=job.function)}


_LABELS: Final = Texts(
    of=Text(longest=LABEL_VALUE_LENGTH_MAX), most=LABELS_MAX, expected="an object of names and texts"
)

DOCUMENT: Final = Section(
    Job,
    Field(
        "namespace",
        "namespace",
        _ID,
        "What the job belongs to; with the id it is the job's key.",
        ("billing",),
    ),
    Field("id", "id", _ID, "The name of the job in its namespace.", ("send-invoices",), required=True),
    Field("description", "description", Text(longest=DESCRIPTION_LENGTH_MAX), "What the job is for."),
    Field("labels", "labels", _LABELS, "Labels to search by.", ({"team": "billing"},)),
    Field("paused", "paused", _FLAG, "Whether the job starts paused. Counts at creation only."),
    Field(
        "queue", "queue", _ID, "Which workers execute it. The queue must exist and hold this kind of target."
    ),
    Field("priority", "priority", Choice(names=get_args(Priority)), "high: read first by the workers."),
    Field(
        "schedule",
        "schedule",
        SCHEDULE,
        "When it runs: one of cron, every, at and delay. None: when it is triggered.",
    ),
    Field("target", "target", TARGET, "What the job does: one of http and function.", required=True),
    Field("retry", "retry", RETRY, "What happens after an attempt fails."),
    Field(
        "lease",
        "lease_ms",
        _DURATION,
        "How long a started attempt may stay silent before it is lost, 1s to 24h.",
    ),
    Field(
        "overlap",
        "overlap",
        Short(section=OVERLAP, name="mode", attribute="mode", kind=_OVERLAP_MODE),
        "What an occurrence does while an earlier run of the job is active.",
    ),
    Field("catchup", "catchup", CATCHUP, "What becomes of occurrences that could not run in their time."),
    Field(
        "auto_pause_after",
        "auto_pause_after",
        _RUNS,
        "Paused after this many failed runs in a row; by default never.",
    ),
    Field(
        "when_finished",
        "when_finished",
        Choice(names=get_args(WhenFinished)),
        "What becomes of the job when its schedule has ended: deleted 7 days after its last run, or kept.",
    ),
    expected="an object with at least id and target",
    unavailable=("limits", "on_success", "on_failure"),
    complete=_complete_job,
    spread=_spread_job,
)
