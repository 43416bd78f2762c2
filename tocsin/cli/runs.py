"""`tocsin runs`."""

import sys
import threading
from collections import OrderedDict
from typing import Annotated, Any, Final, get_args

import typer

from tocsin.cli import output
from tocsin.cli.failures import EXIT_INPUT, Failure
from tocsin.cli.node import (
    DEFAULT_URL,
    Json,
    Node,
    NoWait,
    Reason,
    RunArgument,
    Url,
    job_path,
    run_path,
    waiting,
)
from tocsin.schemas.records import RunStatus

app = typer.Typer(no_args_is_help=True, help="Show, follow and cancel runs.")

HISTORY_RUNS: Final = 20
"""How many runs that have ended the processor keeps of each job, to be asked for."""
OPEN: Final = frozenset({"scheduled", "running", "retrying", "buffered", "waiting", "undecided"})
SEEN_MAX: Final = 20_000
TAIL_PAGE: Final = 500

_Job = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="Only runs of this job: namespace/id.", show_default=False),
]
_Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Only this namespace.", show_default=False)
]
STATUSES: Final = get_args(RunStatus)
_Status = Annotated[
    str,
    typer.Option(
        "--status", metavar="STATUS", help=f"Only this status: {', '.join(STATUSES)}.", show_default=False
    ),
]


@app.command("list")
def list_runs(
    job: _Job = None,
    *,
    namespace: _Namespace = "",
    status: _Status = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000)] = 50,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List runs, newest first: of one job (what is open, and the newest 20 that ended), or the latest of all."""
    _check_status(status)
    ended = 0
    with Node(url, as_json=as_json) as node:
        if job is None:
            params = {"namespace": namespace, "status": status, "limit": min(limit, 1000)}
            runs = node.page("/v1/runs", params)["items"]
        else:
            runs = list(node.pages(f"{job_path(job)}/runs", {}, limit))
            ended = sum(run["status"] not in OPEN for run in runs)
            runs.sort(key=_newest_nominal, reverse=True)  # they come with the open ones first
            runs = [run for run in runs if status in ("", run["status"])]
    if as_json:
        output.show_json(node.listed(runs))
    elif runs:
        columns = ("RUN", "STATUS", "TRIES", "LATE", "REASON")
        output.show_table(columns, [_row(run) for run in runs], whole="RUN")
    else:
        print("no runs")
    if ended >= HISTORY_RUNS and not as_json:
        print(
            f"of the runs that ended, the newest {HISTORY_RUNS} are kept here; the log has those of 30 days, in the topic "
            "`runs`",
            file=sys.stderr,
        )
    node.end()


def _check_status(status: str) -> None:
    if status and status not in STATUSES:
        raise Failure(
            f"--status is {', '.join(STATUSES[:-1])} or {STATUSES[-1]}, not {status[:100]!r}",
            exit_code=EXIT_INPUT,
        )


def _newest_nominal(run: dict[str, Any]) -> str:
    return run.get("last_nominal") or run["nominal"] or run["updated_at"] or ""


def _row(run: dict[str, Any]) -> tuple[str, str, str, str, str]:
    last = output.last_attempt(run)
    count = f" x{run['count']}{'+' if run.get('count_at_least') else ''}" if "count" in run else ""
    return (
        run["run_id"],
        f"{run['status']}{count}",
        str(last.get("attempt", 0)),
        output.lateness(last.get("lateness_ms")),
        output.one_line(run["reason"] or ""),
    )


@app.command("get")
def get_run(run: RunArgument, *, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a run with its attempts."""
    with Node(url, as_json=as_json) as node:
        found = node.ask("GET", run_path("/v1/runs", run))
    if as_json:
        output.show_json(found)
        return
    print(found["run_id"])
    print(f"  {found['status']}" + (f" ({output.one_line(found['reason'])})" if found["reason"] else ""))
    print(f"  revision {found['revision']}, cause {found['cause']}")
    print(f"  nominal {found['nominal'] or '-'}, due {found['due'] or '-'}")
    for attempt in found["attempts"]:
        print(f"  attempt {attempt['attempt']}: {_attempt(attempt)}")


def _attempt(attempt: dict[str, Any]) -> str:
    parts = [attempt["outcome"]]
    if attempt["http_status"]:
        parts.append(f"HTTP {attempt['http_status']}")
    if attempt["started_at"]:
        parts.append(f"started {attempt['started_at']}, {attempt['lateness_ms']} ms late")
    if attempt["worker"]:
        parts.append(f"on {attempt['worker']}")
    if attempt["error"]:
        parts.append(output.one_line(attempt["error"]))
    if attempt["next_attempt_at"]:
        parts.append(f"next at {attempt['next_attempt_at']}")
    return ", ".join(parts)


@app.command("tail")
def tail(
    job: _Job = None,
    *,
    namespace: _Namespace = "",
    status: _Status = "",
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 0.5,
    last: Annotated[
        int, typer.Option("--last", min=0, max=TAIL_PAGE, help="How many of the past to begin with.")
    ] = 10,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Follow runs: a line whenever one changes, until interrupted."""
    _check_status(status)
    pause = threading.Event()
    seen: OrderedDict[str, tuple[object, ...]] = OrderedDict()
    first = True
    gaps = _Gaps()
    with Node(url, as_json=as_json) as node:
        while True:
            try:
                runs = _latest(node, job, namespace, status)
            except Failure as failure:
                if not gaps.is_one(failure):
                    raise
                pause.wait(interval)
                continue
            gaps.say(node)
            fresh = [run for run in reversed(runs) if _is_new(run, seen)]
            if first:
                fresh = fresh[len(fresh) - min(last, len(fresh)) :]
                first = False
            for run in fresh:
                if as_json:
                    output.show_json_line(run)
                else:
                    print(_line(run), flush=True)
            pause.wait(interval)


class _Gaps:
    """What cannot be followed for a while, as partitions move between processes: said when it changes."""

    def __init__(self) -> None:
        self._said = ""

    def is_one(self, failure: Failure) -> bool:
        """Whether the node, which is there, could ask nobody just now."""
        problem = failure.problem or {}
        if not str(problem.get("type", "")).endswith(":partitions-missing"):
            return False
        self._tell(str(problem.get("detail", "")))
        return True

    def say(self, node: Node) -> None:
        self._tell("; ".join(node.missing[number]["detail"] for number in sorted(node.missing)))
        node.missing.clear()

    def _tell(self, gap: str) -> None:
        if bool(gap) != bool(self._said):
            print(f"incomplete: {gap}" if gap else "complete again", file=sys.stderr, flush=True)
        self._said = gap


def _latest(node: Node, job: str | None, namespace: str, status: str) -> list[dict[str, Any]]:
    if job is None:
        params = {"namespace": namespace, "status": status, "limit": TAIL_PAGE}
        found: list[dict[str, Any]] = node.page("/v1/runs", params)["items"]
        return found
    runs = node.ask("GET", f"{job_path(job)}/runs", params={"limit": 100})["items"]
    return [run for run in runs if status in ("", run["status"])]


def _is_new(run: dict[str, Any], seen: OrderedDict[str, tuple[object, ...]]) -> bool:
    attempts = run["attempts"]
    state = (run["status"], len(attempts), attempts[-1]["outcome"] if attempts else "", run.get("count"))
    if seen.get(run["run_id"]) == state:
        seen.move_to_end(run["run_id"])
        return False
    seen[run["run_id"]] = state
    seen.move_to_end(run["run_id"])
    while len(seen) > SEEN_MAX:
        seen.popitem(last=False)
    return True


def _line(run: dict[str, Any]) -> str:
    last = output.last_attempt(run)
    parts = [f"{str(run['updated_at'] or '')[11:23] or '-':12}", f"{run['status']:10}", run["run_id"]]
    if last.get("attempt", 0) > 1 or run["status"] in ("failed", "retrying"):
        parts.append(f"try {last.get('attempt', 0)}")
    if last.get("lateness_ms") is not None:
        parts.append(f"late {last['lateness_ms']} ms")
    if run["status"] in ("failed", "retrying") and last.get("error"):
        parts.append(output.one_line(last["error"]))
    if run["reason"]:
        parts.append(f"({output.one_line(run['reason'])})")
    return "  ".join(parts)


@app.command("cancel")
def cancel(
    run: RunArgument,
    *,
    reason: Reason = "",
    no_wait: NoWait = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Cancel a run: what has not begun will not begin, and a request under way is aborted."""
    with Node(url, as_json=as_json) as node:
        answer = node.ask(
            "POST",
            run_path("/v1/runs", run, "/cancel"),
            params={"wait": waiting(no_wait)},
            body={"reason": reason},
        )
    if as_json:
        output.show_json(answer)
        return
    words = {
        "cancelled": f"cancelled {run}",
        "requested": f"cancel requested: {run} is under way, and its worker was told to abort it",
    }
    print(words.get(answer["result"], f"{answer['result']} {run}"))
