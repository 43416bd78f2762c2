"""`${nominal}`, `${run_id}`, `${job}` and `${date}`: what a job may put into its request. Equal for each attempt."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from tocsin.schedules import format_instant
from tocsin.schemas.job import Pairs
from tocsin.schemas.records import DueRun

_MARK: Final = "${"
_MARK_BYTES: Final = b"${"


class Placeholders:
    """The values for one run. Each `expand_` returns its argument itself when there is nothing to replace."""

    __slots__ = ("_run", "_values")

    def __init__(self, run: DueRun) -> None:
        self._run = run
        self._values: Mapping[str, str] | None = None

    def expand_url(self, url: str) -> str:
        """Values are percent-encoded: `/` and `:` inside a value are part of it, not of the URL."""
        if _MARK not in url:
            return url
        return _replace(url, {mark: quote(value, safe="") for mark, value in self._of_run().items()})

    def expand_headers(self, headers: Pairs) -> Pairs:
        if not any(_MARK in value for _, value in headers):
            return headers
        return tuple((name, _replace(value, self._of_run())) for name, value in headers)

    def expand_body(self, body: bytes) -> bytes:
        """The body is text (JSON included, where values need no escapes, by the grammar of ids) or bytes as they are."""
        if _MARK_BYTES not in body:
            return body
        for mark, value in self._of_run().items():
            body = body.replace(mark.encode(), value.encode())
        return body

    def _of_run(self) -> Mapping[str, str]:
        if self._values is None:
            run = self._run
            nominal = format_instant(run.nominal_ms)
            self._values = {
                "${nominal}": nominal,
                "${run_id}": run.run_id,
                "${job}": f"{run.namespace}/{run.job_id}",
                "${date}": nominal[:10],
            }
        return self._values


def _replace(text: str, values: Mapping[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
