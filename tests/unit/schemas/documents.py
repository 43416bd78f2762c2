"""Documents for the tests: the smallest, the whole of the manual, and small changes of the smallest."""

from typing import Any

from tocsin.schemas.document import parse
from tocsin.schemas.job import Job

HTTP: dict[str, Any] = {"url": "https://example.com/"}
MINIMAL: dict[str, Any] = {"id": "a", "target": {"http": HTTP}}
NINE = 1_796_112_000_000  # 2026-12-01T08:00:00Z, nine o'clock in Berlin
NEW_YEARS_EVE = 1_798_671_600_000  # midnight in Berlin

WHOLE = """
namespace: billing
id: send-invoices
description: Sends yesterday's invoices
labels: {team: billing, tier: "1"}
paused: false
queue: default
priority: normal

schedule:
  cron: "0 9 * * MON-FRI"
  timezone: Europe/Berlin
  gap: at_end
  fold: first
  exclude:
    - {cron: "* * 24 12 *"}
    - {from: 2026-12-31, to: 2027-01-01}
  spread: 10m
  starts_at: 2026-12-01T00:00:00+01:00
  ends_at: 2027-12-01T00:00:00+01:00
  max_runs: 250

target:
  http:
    url: https://api.example.com/hooks/invoices
    method: POST
    headers: {X-Team: billing}
    body: {day: "${nominal}"}
    timeout: 30s
    success: [200-299]

retry:
  max_attempts: 5
  backoff: exponential
  base: 30s
  factor: 4
  max: 1h
  jitter: 0.2
  max_age: 24h
  until_next: true
lease: 60s
overlap: skip
catchup: {mode: latest, window: 24h, limit: 100, grace: 30s}
auto_pause_after: 20
when_finished: delete
"""


def with_(**changes: Any) -> dict[str, Any]:
    return MINIMAL | changes


def with_http(**changes: Any) -> dict[str, Any]:
    return with_(target={"http": HTTP | changes})


def with_schedule(**schedule: Any) -> dict[str, Any]:
    return with_(schedule=schedule)


def good(document: Any) -> Job:
    job, found = parse(document)
    assert () == found
    assert job is not None
    return job
