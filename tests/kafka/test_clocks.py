"""A machine whose clock is an hour off starts nothing, and says why; the others' work does not wait for it for ever."""

from collections.abc import Iterable

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.roles import Role
from tests.kafka.telling import Tell
from tests.kafka.waiting import pass_time, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

HOUR_MS = 3_600_000


def shifted(ms: int) -> tuple[str, ...]:
    return ("tests.kafka.faulty", "--shift", str(ms), "--")


def says(role: Role, *words: str) -> bool:
    said = role.said.lower() + str(role.status()).lower()
    return all(word in said for word in words)


def dispatched(cluster: Cluster) -> Iterable[str]:
    return [each.value.run_id for each in cluster.evidence.refresh().dues]


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS], ids=["an-hour-fast", "an-hour-slow"])
def test_a_streams_process_whose_clock_is_an_hour_off_fires_nothing_and_says_so(
    cluster: Cluster, tell: Tell, ms: int
) -> None:
    cluster.sink.start()
    wrong = cluster.streams(1, module=shifted(ms))
    cluster.worker()
    api = cluster.api()
    until(lambda: wrong.url and says(wrong, "clock"), "it says what is wrong with its clock")
    until(lambda: not api.ready_reason() or "clock" in api.ready_reason(), "the API can be written to")
    load.define(cluster, each=2)  # definitions are applied all the same
    pass_time(5.0)
    assert [] == dispatched(cluster)
    assert [] == cluster.sink.requests
    wrong.stop()
    right = cluster.streams(2).until_ready()
    cluster.until_shared(right)
    load.until_all_run(cluster)
    tell("after a streams process an hour off", cluster.settled())


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS], ids=["an-hour-fast", "an-hour-slow"])
def test_a_worker_whose_clock_is_an_hour_off_starts_nothing_and_says_so(
    cluster: Cluster, tell: Tell, ms: int
) -> None:
    cluster.sink.start()
    cluster.streams().until_ready()
    cluster.api().until_ready()
    wrong = cluster.worker(1, module=shifted(ms))
    cluster.until_workers_share(wrong)
    load.define(cluster, each=2)
    until(lambda: dispatched(cluster), "runs are dispatched")
    until(lambda: says(wrong, "clock"), "it says what is wrong with its clock")
    pass_time(5.0)
    assert [] == cluster.sink.requests
    wrong.stop()
    cluster.worker(2)
    load.until_all_run(cluster)
    tell("after a worker an hour off", cluster.settled())
