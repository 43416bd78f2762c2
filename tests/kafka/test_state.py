"""Stores are a cache of the log: without them, and without a process that can read the log, nothing is lost either."""

import shutil
from dataclasses import replace

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.evidence import Evidence
from tests.kafka.telling import Tell
from tests.kafka.waiting import until
from tocsin.log.port import TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster as ClusterRecord

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_lost_state_directory_is_rebuilt_from_the_log(cluster: Cluster, tell: Tell) -> None:
    streams = cluster.start(streams=1, workers=1)["streams-1"]
    load.define(cluster)
    load.until_all_run(cluster)
    streams.kill()
    shutil.rmtree(cluster.directory / "streams-1")
    killed_ms = cluster.now_ms()
    streams.start().until_ready()
    cluster.until_fires(range(cluster.partitions), killed_ms)
    before = {f"default/{each.document['id']}" for each in cluster.defined}

    def listed() -> set[str]:
        """The API may have to find the process again first."""
        answer = cluster.client.get("/v1/jobs", params={"limit": 500})
        items = answer.json()["items"] if answer.status_code == 200 else []
        return {f"{each['namespace']}/{each['id']}" for each in items}

    until(lambda: listed() == before, lambda: f"all jobs are listed: {before - listed()} are not")
    tell("without its state directory", cluster.settled())


def cluster_record(cluster: Cluster) -> ClusterRecord:
    reader = cluster.log.reader("committed")
    at = TopicPartition(cluster.names.config, 0)
    reader.assign({at: 0})
    found: list[ClusterRecord] = []

    def read() -> bool:
        for record in reader.poll(100, 0.1):
            value = codec.decode(record.value or b"")
            if isinstance(value, ClusterRecord):
                found.append(value)
        return bool(found)

    until(read, "the cluster record")
    reader.close()
    return found[-1]


@pytest.mark.parametrize("kind", ["streams", "worker", "api"])
def test_a_process_that_does_not_know_the_schema_level_refuses_to_start(cluster: Cluster, kind: str) -> None:
    first = cluster.streams().until_ready()
    newer = replace(cluster_record(cluster), schema_level=codec.SCHEMA_LEVEL + 1)
    first.stop()
    cluster.produce(cluster.names.config, 0, b"cluster/main", codec.encode(newer))
    late = {
        "streams": lambda: cluster.streams(2),
        "worker": cluster.worker,
        "api": cluster.api,
    }[kind]()
    assert 0 != late.wait()
    assert "schema level" in late.said
    assert "upgrade" in late.said
    assert "Traceback" not in late.said
    assert [] == Evidence(cluster.log, cluster.names).refresh().dues
