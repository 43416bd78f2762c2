"""Talking to a node: one HTTP client, errors as sentences."""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Self
from urllib.parse import quote, urlsplit

import typer

from tocsin.cli.failures import EXIT_ENVIRONMENT, EXIT_INPUT, Failure, called, of_problem

if TYPE_CHECKING:
    import httpx

DEFAULT_URL: Final = "http://127.0.0.1:8787"
TIMEOUT_S: Final = 90.0  # a node waits up to 30 s for the log and 30 s for the processor before it answers
CONNECT_TIMEOUT_S: Final = 5.0
BUSY_ATTEMPTS_MAX: Final = 10
BUSY_WAIT_S_MAX: Final = 10.0

Url = Annotated[
    str, typer.Option("--url", envvar="TOCSIN_URL", help="The node to talk to.", show_envvar=True)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="namespace/id, or an id of the namespace default.")
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run id, as `tocsin runs list` prints it; in single quotes if it holds a !."
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Recorded with the event.", show_default=False)]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return when the log has it, not when the processor has applied it.")
]


class Node:
    """A node by its URL. TOCSIN_API_KEY is sent as the key, if it is set. Close it, or use it as a context."""

    def __init__(self, url: str, *, as_json: bool = False) -> None:
        import httpx

        self.url = url.rstrip("/")
        self.missing: dict[int, dict[str, Any]] = {}
        """By number: the partitions that could not be asked, so that the lists asked for up to now lack what they hold."""
        self._as_json = as_json
        if not _is_http(self.url):
            raise Failure(
                f"{url!r} is no URL of a node: they look like {DEFAULT_URL}",
                exit_code=EXIT_INPUT,
                as_json=as_json,
            )
        headers = {"tocsin-actor": _actor()}
        key = os.environ.get("TOCSIN_API_KEY", "")
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not _is_loopback(
                self.url
            ),  # a proxy of the environment cannot reach this machine's loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The JSON of the answer. Raises Failure for whatever is none."""
        response = self.send(method, path, params=params, json_body=body, headers=headers)
        try:
            answer = response.json()
        except ValueError:
            raise self._stranger(response) from None
        if not isinstance(answer, dict):
            raise self._stranger(response)
        return answer

    def pages(self, path: str, params: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page, up to `limit`. What they lack is in `missing` afterwards."""
        cursor = ""
        left = limit
        while left > 0:
            page = self.page(path, {**params, "cursor": cursor, "limit": min(left, 1000)})
            yield from page["items"]
            left -= len(page["items"])
            cursor = page["next_cursor"] or ""
            if not cursor:
                return

    def page(self, path: str, params: Mapping[str, Any]) -> dict[str, Any]:
        page = self.ask("GET", path, params=params)
        self.missing |= {each["partition"]: each for each in page.get("missing_partitions", ())}
        return page

    def listed(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The items of all pages as one list, in the words of the API."""
        return {
            "items": items,
            "next_cursor": None,
            "missing_partitions": [self.missing[number] for number in sorted(self.missing)],
        }

    def end(self) -> None:
        """Nobody takes a list for whole that is not: says what is missing, and ends the command with exit code 1."""
        if not self.missing:
            return
        print("incomplete:", file=sys.stderr)
        for number in sorted(self.missing):
            print(f"  {self.missing[number]['detail']}", file=sys.stderr)
        raise typer.Exit(EXIT_ENVIRONMENT)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json_body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patient: bool = False,
    ) -> "httpx.Response":
        """The answer, if it is a success. `patient`: while the node is overloaded, wait as it asks and try again."""
        import httpx

        given = {name: value for name, value in (params or {}).items() if value not in ("", None, [])}
        attempt = 0
        while True:
            attempt += 1
            try:
                response = self._client.request(
                    method, path, params=given, json=json_body, content=content, headers=headers
                )
            except httpx.ConnectError as error:
                raise self._failure(
                    f"No node answers at {self.url} ({error}). Start one with `{called()} up`, or name another with "
                    "--url or TOCSIN_URL."
                ) from None
            except httpx.TransportError as error:
                raise self._failure(
                    f"{self.url} did not answer to the end ({type(error).__name__}: {error}). What was sent may or "
                    "may not stand; sending it again does no harm."
                ) from None
            if not (patient and response.status_code in (429, 503) and attempt < BUSY_ATTEMPTS_MAX):
                break
            threading.Event().wait(_retry_after(response))
        if response.is_success or _is_ndjson(response):
            return response
        raise self._problem(response)

    def _problem(self, response: "httpx.Response") -> Failure:
        try:
            problem = response.json()
        except ValueError:
            return self._stranger(response)
        if not isinstance(problem, dict):
            return self._stranger(response)
        if response.status_code == 401:
            problem["detail"] = (
                "The key in TOCSIN_API_KEY is not this node's: set TOCSIN_API_KEY to the one that it was given."
                if "authorization" in self._client.headers
                else "This node asks for a key: set TOCSIN_API_KEY to the one that it was given."
            )
        elif str(problem.get("type", "")).endswith(":unknown-job"):
            problem["detail"] = f"{problem.get('detail', '')} {self._meant(response.url.path)}"
        return of_problem(problem, response.status_code, as_json=self._as_json)

    def _meant(self, path: str) -> str:
        """What to ask instead of a job that is not there: one whose id is nearly the same, or the list of all."""
        from difflib import get_close_matches

        import httpx

        asked = re.match(r"/v1/jobs/([^/]+)/([^/]+)", path)
        near: list[str] = []
        if asked is not None:
            namespace, job_id = asked.groups()
            params: dict[str, str | int] = {"namespace": namespace, "id_prefix": job_id[:1], "limit": 1000}
            try:
                jobs = self._client.get("/v1/jobs", params=params).json()["items"]
                near = get_close_matches(job_id, [job["id"] for job in jobs], n=1)
            except (httpx.HTTPError, ValueError, LookupError, TypeError):
                pass  # the answer to what was asked stands without it
        if asked is not None and near:
            return f"Did you mean {asked[1]}/{near[0]}?"
        return f"`{called()} jobs list` shows what there is."

    def _stranger(self, response: "httpx.Response") -> Failure:
        return self._failure(
            f"{self.url} answered {response.status_code} with something that is not Tocsin's: is this the right "
            f"address? It began with: {response.text[:80]!r}"
        )

    def _failure(self, message: str) -> Failure:
        return Failure(message, as_json=self._as_json)


def _is_ndjson(response: "httpx.Response") -> bool:
    """A batch answers with a result for each line also when it refused to write anything."""
    return str(response.headers.get("content-type", "")).startswith("application/x-ndjson")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _retry_after(response: "httpx.Response") -> float:
    try:
        return min(float(response.headers.get("retry-after", "1")), BUSY_WAIT_S_MAX)
    except ValueError:
        return 1.0


def _actor() -> str:
    """Who is at the keyboard, for the log: the user's name, or `cli`."""
    name = (
        os.environ.get("TOCSIN_ACTOR") or os.environ.get("USER") or os.environ.get("LOGNAME") or _own_name()
    )
    return f"cli:{name}" if name.isascii() and name.isprintable() and name else "cli"


def _own_name() -> str:
    """As the system knows us: a container, a cron job and a service have no USER."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # not a Unix; or a number without an entry, as in many containers
        return ""


def job_path(job: str) -> str:
    """`/v1/jobs/namespace/id` of `namespace/id`, or of an id in the namespace default."""
    namespace, slash, job_id = job.partition("/")
    if not slash:
        namespace, job_id = "default", job
    if not namespace or not job_id or "/" in job_id:
        raise Failure(
            f"{job!r} is no job: write namespace/id, or an id of the namespace default", exit_code=EXIT_INPUT
        )
    return f"/v1/jobs/{quote(namespace, safe='')}/{quote(job_id, safe='')}"


def run_path(prefix: str, run_id: str, action: str = "") -> str:
    namespace, slash, rest = run_id.partition("/")
    if not slash or not namespace or not rest:
        raise Failure(
            f"{run_id!r} is no run id: they look like 'default/hello@20260309T080000.000Z'",
            exit_code=EXIT_INPUT,
        )
    return f"{prefix}/{quote(namespace, safe='')}/{quote(rest, safe='/@!:')}{action}"


def waiting(no_wait: bool) -> str:
    return "acknowledged" if no_wait else "applied"


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]
