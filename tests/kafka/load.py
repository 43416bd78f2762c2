"""Jobs that keep a cluster busy in all the ways that a fault may hit: short, slow, failing, held back, of the minute."""

from collections.abc import Iterator
from typing import Any, Final

from tests.kafka.cluster import Cluster
from tests.kafka.expected import iso

ANCHOR_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTE_MS: Final = 60_000

LATE_IS_NOT_MISSED: Final = {"mode": "all", "limit": 1000, "window": "24h", "grace": "1h"}
"""However long an outage lasts on a noisy machine: no occurrence may be skipped for being late."""

RETRY: Final = {
    "max_attempts": 20,
    "backoff": "fixed",
    "base": "1s",
    "jitter": 0,
    "until_next": False,
}
LEASE: Final = "5s"
"""After this time an attempt whose worker was killed is tried again."""


def job(name: str, url: str, schedule: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "schedule": schedule,
        "target": {"http": {"url": url, "timeout": "60s"}},
        "overlap": "allow",
        "catchup": LATE_IS_NOT_MISSED,
        "retry": RETRY,
        "lease": LEASE,
        **more,
    }


def every(period: str, phase_ms: int = 0) -> dict[str, Any]:
    return {"every": period, "anchor": iso(ANCHOR_MS + phase_ms)}


def steady(url: str, each: int = 3) -> Iterator[dict[str, Any]]:
    """Jobs of which every occurrence becomes a run that succeeds, whatever is killed."""
    for number in range(each):
        phase_ms = number * 337 % 1000
        yield job(f"second-{number}", f"{url}/ok", every("1s", phase_ms))
        yield job(f"cron-{number}", f"{url}/ok", {"cron": "*/2 * * * * *"})
        yield job(f"slow-{number}", f"{url}/slow/1500", every("3s", phase_ms))
        yield job(f"failing-{number}", f"{url}/fail/2", every("5s", phase_ms))


def skipping(url: str, each: int = 2) -> Iterator[dict[str, Any]]:
    """Jobs that skip an occurrence while the one before is under way: allowed to, whenever something was slow."""
    for number in range(each):
        yield job(f"skipping-{number}", f"{url}/slow/200", every("2s", number * 500), overlap="skip")


def minutes(url: str, count: int = 60) -> Iterator[dict[str, Any]]:
    """Jobs of a minute, one due every second of it: of these, none may be late by the death of a streams process."""
    for number in range(count):
        yield job(f"minute-{number}", f"{url}/ok", every("1m", number * MINUTE_MS // count))


def define(cluster: Cluster, *, each: int = 3) -> None:
    cluster.define(*steady(cluster.sink.url, each), *minutes(cluster.sink.url))
    cluster.define(*skipping(cluster.sink.url), skips=["overlap"])


def until_all_run(cluster: Cluster) -> None:
    """Every kind of job was seen at the endpoint."""
    wanted = {"default/second-0", "default/cron-0", "default/slow-0", "default/failing-0"}
    cluster.until_requests(
        lambda requests: wanted <= {each.job for each in requests if each.status == 200},
        "each kind of job has run",
    )
