"""What the endpoint of a long run reports: that it is alive, and how it ended.

The token in the URL was given to it with the request (`Tocsin-Callback`): it names one dispatch of one run and is signed by
the cluster, so it needs no key, and opens nothing else.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse

from tocsin.api.context import Api, Context
from tocsin.api.openapi import operation
from tocsin.api.problems import ApiProblem, invalid
from tocsin.api.requests import read_object
from tocsin.schedules import ScheduleError, parse_duration
from tocsin.schemas.callbacks import TOKEN_LENGTH_MAX, CallbackToken, InvalidToken, read_token
from tocsin.schemas.limits import LEASE_MS_MAX, LEASE_MS_MIN
from tocsin.schemas.records import CALLBACK_EPOCH, Attempt, ReportKind, RunEvent, RunReport
from tocsin.streams.queries import PartitionsMissing

router = APIRouter(prefix="/v1/callbacks", tags=["runs"])

RESPONSE_BYTES_MAX: Final = 4_096
ERROR_LENGTH_MAX: Final = 1_000
WORKER: Final = "endpoint"
"""Who reports, as the history shows it."""
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "superseded", "skipped"})
OPEN: Final = frozenset({"pending", "running"})

Token = Annotated[
    str,
    Path(
        max_length=TOKEN_LENGTH_MAX,
        description="As the header `Tocsin-Callback` has it.",
        examples=["WyJ...In0.mac"],
    ),
]


@router.post("/{token}/heartbeat", **operation("heartbeat", body="heartbeat", done="heartbeat_taken"))
async def heartbeat(api: Api, request: Request, token: Token) -> JSONResponse:
    """The run is worked on: its lease begins anew, as long as `lease` says (otherwise as long as the job's).

    `cancel_requested` asks the endpoint to stop, and to complete the run as cancelled. 409: the run has ended or another
    attempt has taken its place, and nothing that is said of this one counts.
    """
    meant = _meant(api, token)
    fields = await read_object(request, {"lease": (str,)})
    lease_ms = _lease(fields)
    run = await _current(api, meant)
    await _report(api, meant, "heartbeat", lease_ms=lease_ms)
    return JSONResponse(
        {"run_id": meant.run_id, "result": "acknowledged", "cancel_requested": _is_cancelled(run)}
    )


@router.post("/{token}/complete", **operation("complete", body="completion", done="completed"))
async def complete(api: Api, request: Request, token: Token) -> JSONResponse:
    """The run has ended: `status` is succeeded, failed (with `error`; `retryable` is true unless given) or cancelled.

    409: the run has ended already, or another attempt has taken its place.
    """
    meant = _meant(api, token)
    fields = await read_object(
        request, {"status": (str,), "error": (str,), "retryable": (bool,), "response": (str,)}
    )
    status = fields.get("status", "")
    kinds: dict[str, ReportKind] = {"succeeded": "succeeded", "failed": "failed", "cancelled": "cancelled"}
    if status not in kinds:
        raise invalid("status", "choice", "succeeded, failed or cancelled", str(status))
    error, response = fields.get("error", ""), fields.get("response", "")
    if len(error) > ERROR_LENGTH_MAX:
        raise invalid("error", "length", f"at most {ERROR_LENGTH_MAX:,} characters", error)
    if len(response.encode()) > RESPONSE_BYTES_MAX:
        raise invalid("response", "length", f"at most {RESPONSE_BYTES_MAX:,} bytes", response)
    run = await _current(api, meant)
    attempt = _attempt(run, meant)
    await _report(
        api,
        meant,
        kinds[status],
        started_ms=0 if attempt is None else attempt.started_ms,
        lateness_ms=0 if attempt is None else attempt.lateness_ms,
        ended_ms=api.services.clock.now_ms(),
        error=error if status == "failed" else "",
        retryable=fields.get("retryable", True),
        response=response,
    )
    return JSONResponse({"run_id": meant.run_id, "result": "acknowledged"})


def _meant(api: Context, token: str) -> CallbackToken:
    try:
        return read_token(token, api.services.secret())
    except InvalidToken as error:
        raise ApiProblem("unknown-callback", f"{error}; use the URL that came with the request.") from None


def _lease(fields: dict[str, Any]) -> int:
    if "lease" not in fields:
        return 0
    try:
        lease_ms = parse_duration(fields["lease"])
    except ScheduleError as error:
        raise invalid("lease", error.rule, error.message, fields["lease"]) from None
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise invalid("lease", "range", "a lease is 1s to 24h", fields["lease"])
    return lease_ms


async def _current(api: Context, meant: CallbackToken) -> RunEvent | None:
    """The run as it stands; None if nobody can be asked just now. What is known to be over is refused here; the processor
    has the last word in any case."""
    try:
        run = await api.asks.get_run(meant.run_id)
    except PartitionsMissing:
        return None
    if run is None:
        raise ApiProblem("run-ended", f"{meant.run_id} is not known any more.")
    if run.status in ENDED:
        raise ApiProblem("run-ended", f"{meant.run_id} has ended ({run.status}); nothing more is expected.")
    attempt = _attempt(run, meant)
    if run.dispatch != meant.dispatch or (attempt is not None and attempt.outcome not in OPEN):
        outcome = "over" if attempt is None else f"over ({attempt.outcome})"
        raise ApiProblem(
            "run-ended", f"attempt {meant.attempt} of {meant.run_id} is {outcome}; another follows."
        )
    return run


def _is_cancelled(run: RunEvent | None) -> bool:
    return run is not None and run.reason == "cancel_requested"


def _attempt(run: RunEvent | None, meant: CallbackToken) -> Attempt | None:
    """None: not known."""
    return None if run is None else next((a for a in run.attempts if a.dispatch == meant.dispatch), None)


async def _report(api: Context, meant: CallbackToken, kind: ReportKind, **fields: Any) -> None:
    await api.writes.report(
        RunReport(
            kind=kind,
            run_id=meant.run_id,
            namespace=meant.namespace,
            job_id=meant.job_id,
            seq=meant.seq,
            dispatch=meant.dispatch,
            attempt=meant.attempt,
            epoch=CALLBACK_EPOCH,
            worker=WORKER,
            **fields,
        )
    )
