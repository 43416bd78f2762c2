"""The broker dies under load: everything waits, and goes on where it was."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka import load
from tests.kafka.cluster import made
from tests.kafka.telling import Tell
from tests.kafka.waiting import pass_time
from tocsin.broker import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_kill_9_of_the_broker_loses_nothing(
    local_kafka: Callable[..., LocalKafka], tmp_path: Path, tell: Tell
) -> None:
    broker = local_kafka()
    with made(broker.bootstrap, tmp_path / "cluster") as cluster:
        cluster.start(streams=1, workers=1)
        load.define(cluster)
        load.until_all_run(cluster)
        cluster.happenings.note("broker", "broker", "kill")
        broker.kill()
        pass_time(2.0)
        broker.restart()
        cluster.happenings.note("broker", "broker", "start")
        back_ms = cluster.now_ms()
        cluster.until_fires(range(cluster.partitions), back_ms)
        tell("kill -9 of the broker", cluster.settled())


@pytest.mark.slow
def test_kill_9_of_one_of_three_brokers_loses_nothing_while_it_is_away(
    local_kafka: Callable[..., LocalKafka], tmp_path: Path, tell: Tell
) -> None:
    brokers = local_kafka(brokers=3)
    with made(brokers.bootstrap, tmp_path / "cluster") as cluster:
        cluster.start(streams=2, workers=2)
        load.define(cluster)
        load.until_all_run(cluster)
        for index in range(3):
            cluster.happenings.note("broker", f"broker-{index}", "kill")
            brokers.kill(index)
            killed_ms = cluster.now_ms()
            cluster.until_fires(range(cluster.partitions), killed_ms)
            tell(f"broker {index} of three is dead", cluster.settled())
            brokers.restart(index)
            cluster.happenings.note("broker", f"broker-{index}", "start")
            cluster.until_fires(range(cluster.partitions), cluster.now_ms())
        tell("each of three brokers was killed once", cluster.settled())
