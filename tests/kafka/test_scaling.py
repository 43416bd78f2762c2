"""Processes come and go in peace, under load: nothing is lost or doubled, and nothing is even executed twice."""

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.telling import Tell
from tests.kafka.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


def whole(cluster: Cluster) -> None:
    """Each partition has one owner, which alone reads all inputs of it: the group and the processes say the same."""

    def agrees() -> bool:
        owners = cluster.owners()
        alive = [each for each in cluster.roles.values() if each.kind == "streams" and each.alive]
        said = {
            each["partition"]: role.url
            for role in alive
            for each in role.status()["partitions"]
            if each.get("role", "owner") == "owner"
        }
        return len(owners) == cluster.partitions and owners == said

    until(agrees, lambda: f"the group says {cluster.owners()}")


def test_streams_processes_scale_from_one_to_three_and_back(cluster: Cluster, tell: Tell) -> None:
    cluster.start(streams=1, workers=1)
    load.define(cluster)
    load.until_all_run(cluster)
    one = cluster["streams-1"]
    whole(cluster)
    two = cluster.streams(2).until_ready()
    cluster.until_shared(one, two)
    whole(cluster)
    three = cluster.streams(3, "--standby")
    three.until_ready()
    cluster.until_shared(one, two, three)
    whole(cluster)
    cluster.until_fires(range(cluster.partitions), cluster.now_ms())
    tell("three streams processes", cluster.settled())
    for role, left in ((one, (two, three)), (three, (two,))):
        assert 0 == role.stop()
        cluster.until_shared(*left)
        whole(cluster)
    cluster.until_fires(range(cluster.partitions), cluster.now_ms())
    verdict = cluster.settled()
    tell("one streams process again", verdict)
    assert 0 == verdict.second.total(), verdict.second


def test_a_rolling_restart_of_every_role_under_load_loses_nothing(cluster: Cluster, tell: Tell) -> None:
    cluster.start(streams=2, workers=2)
    cluster.until_shared(cluster["streams-1"], cluster["streams-2"])
    load.define(cluster)
    load.until_all_run(cluster)
    for name in ("streams-1", "streams-2"):
        assert 0 == cluster[name].stop()
        cluster[name].start().until_ready()
        cluster.until_shared(cluster["streams-1"], cluster["streams-2"])
        whole(cluster)
    for name in ("worker-1", "worker-2"):
        assert 0 == cluster[name].stop()
        cluster[name].start().until_ready()
        cluster.until_workers_share(cluster["worker-1"], cluster["worker-2"])
    assert 0 == cluster["api"].stop()
    cluster["api"].start().until_ready()
    cluster.define(load.job("after", f"{cluster.sink.url}/ok", load.every("1s")))
    cluster.until_requests(lambda requests: any(each.job == "default/after" for each in requests), "it runs")
    tell("rolling restart", cluster.settled())
