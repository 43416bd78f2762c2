"""Which occurrences there must be, by plain arithmetic from the document as it was sent: nothing of the product helps."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """A job as it was defined, once, and acknowledged."""

    document: dict[str, Any]
    sent_ms: int
    answered_ms: int
    applied: bool = True
    """Whether the answer was given for a definition in force (else only for one on the log)."""
    acknowledged: bool = True
    """Else it may be in force, or not."""
    skips: frozenset[str] = field(default=frozenset())
    """The reasons for which one of its occurrences may be skipped in this scenario."""
    ends: frozenset[str] = field(default=frozenset(("succeeded",)))
    """How a run of it may end."""

    @property
    def key(self) -> str:
        return f"{self.document.get('namespace', 'default')}/{self.document['id']}"


def nominals(document: dict[str, Any], from_ms: int, to_ms: int, *, defined_ms: int) -> list[int]:
    """Every nominal instant in (from, to]. `defined_ms`: the log's timestamp of the definition."""
    schedule = document.get("schedule", {})
    if "every" in schedule:
        every_ms = milliseconds(schedule["every"])
        anchor_ms = instant(schedule["anchor"])
        first = (from_ms - anchor_ms) // every_ms + 1
        last = (to_ms - anchor_ms) // every_ms
        return [anchor_ms + number * every_ms for number in range(first, last + 1)]
    if "cron" in schedule:
        step = cron_seconds(schedule["cron"])
        return [
            at_ms
            for at_ms in range(from_ms // 1000 * 1000, to_ms + 1, 1000)
            if from_ms < at_ms <= to_ms and at_ms % MINUTE_MS // 1000 % step == 0
        ]
    if "delay" in schedule:
        found = defined_ms + milliseconds(schedule["delay"])
    elif "at" in schedule:
        found = instant(schedule["at"])
    else:
        return []
    return [found] if from_ms < found <= to_ms else []


def is_once(document: dict[str, Any]) -> bool:
    return not {"at", "delay"}.isdisjoint(document.get("schedule", {}))


def milliseconds(text: str) -> int:
    """`90s`, `250ms`, `1m`: one part only."""
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS_MS[unit]


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def cron_seconds(expression: str) -> int:
    """The step of `*/N * * * * *`, `* * * * * *` (1) or `* * * * *` (60: the full minute): all that scenarios use."""
    fields = expression.split()
    if fields == ["*"] * 5:
        return 60
    assert ["*"] * 5 == fields[1:], expression
    return 1 if fields[0] == "*" else int(fields[0].removeprefix("*/"))


def iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def run_id_of(key: str, nominal_ms: int) -> str:
    """`ns/id@20260308T070000.000Z`, as the documents promise it."""
    at = datetime.fromtimestamp(nominal_ms // 1000, UTC)
    return f"{key}@{at:%Y%m%dT%H%M%S}.{nominal_ms % 1000:03d}Z"
