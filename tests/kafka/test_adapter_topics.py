"""Creating and verifying topics, on Kafka."""

from collections.abc import Iterator

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.contract.rigs import KafkaRig, until
from tests.kafka.adapter import admin, rig_on
from tocsin.clock import SystemClock
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.log.port import LogUnavailable, TopicMismatch
from tocsin.schemas.topics import DAY_MS, TopicNames, TopicSpec, base_topics, queue_topics

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def rig(kafka_bootstrap: str) -> Iterator[KafkaRig]:
    with rig_on(kafka_bootstrap) as made:
        yield made


def test_all_topics_are_created_as_specified_and_found_so(rig: KafkaRig) -> None:
    names = TopicNames(rig.own("t") + ".")
    specs = (*base_topics(names, 3), *queue_topics(names, "default", 3))
    missing = rig.new_log().differences(specs)
    assert [
        f"Topic {spec.name} does not exist: `tocsin topics create` makes it." for spec in specs
    ] == missing
    rig.log.create_topics(specs)
    rig.log.create_topics(specs)
    assert rig.new_log().differences(specs) == []
    assert {spec.name: 3 for spec in specs} | {names.config: 1} == {
        name: count for name, count in rig.log.topics().items() if name.startswith(names.prefix)
    }


def test_each_difference_is_a_sentence_that_says_how_it_is_mended(
    rig: KafkaRig, kafka_bootstrap: str
) -> None:
    operator = admin(kafka_bootstrap)
    name = rig.own("other")
    settings = {
        "retention.ms": "1000",
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
    }
    operator.create_topics([NewTopic(name, 2, 1, config=settings)])[name].result()
    until(lambda: rig.log.topics().get(name) == 2, lambda: None)
    spec = TopicSpec(name=name, partitions=3, cleanup="compact,delete", retention_ms=7 * DAY_MS)
    log = rig.new_log()
    differences = log.differences([spec])
    set_it = (
        f"set it with `kafka-configs --bootstrap-server {kafka_bootstrap} --alter --entity-type topics "
        f"--entity-name {name} --add-config"
    )
    assert differences[0] == (
        f"Topic {name} has 2 partitions, not 3: keys would move, so the number cannot be changed in place."
    )
    assert (
        f"Topic {name} has cleanup.policy=compact, not compact,delete: {set_it} cleanup.policy=[compact,delete]`."
        in (differences)
    )
    assert (
        f"Topic {name} has retention.ms=1000, not 604800000: {set_it} retention.ms=604800000`." in differences
    )
    with pytest.raises(
        TopicMismatch,
        match=r"has 2 partitions, not 3[^\n]*\n.*cleanup\.policy=compact[^\n]*\n.*retention\.ms=1000",
    ):
        log.create_topics([spec, TopicSpec(name=rig.own("new"), partitions=1)])
    assert rig.own("new") not in log.topics()


def test_what_an_operator_may_tune_is_told_and_refused_nowhere(rig: KafkaRig, kafka_bootstrap: str) -> None:
    operator = admin(kafka_bootstrap)
    name = rig.own("tuned")
    spec = TopicSpec(name=name, partitions=1, cleanup="compact")
    log = rig.new_log()
    log.create_topics([spec])
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

    change = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    for future in operator.incremental_alter_configs([resource]).values():
        future.result()
    until(lambda: bool(log.differences([spec])), lambda: None)
    (difference,) = log.differences([spec])
    assert f"Topic {name} has segment.bytes=1048576, not 67108864" in difference
    rig.new_log().create_topics([spec])


# --- getting in -------------------------------------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_is_named_with_what_to_look_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin.log.kafka.log.OPEN_S", 1.0)
    with pytest.raises(
        LogUnavailable, match=r"is a broker running at 127\.0\.0\.1:1, and reachable from here\?"
    ):
        KafkaLog.open(KafkaConfig(bootstrap="127.0.0.1:1"), SystemClock())


def test_who_speaks_tls_to_a_broker_that_does_not_is_told_what_the_handshake_ended_with(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.log.kafka.log.OPEN_S", 1.0)
    config = KafkaConfig(bootstrap=kafka_bootstrap, properties={"security.protocol": "ssl"})
    with pytest.raises(LogUnavailable, match="SSL"):
        KafkaLog.open(config, SystemClock())


def test_a_shared_log_makes_clients_with_the_users_options(kafka_bootstrap: str) -> None:
    config = KafkaConfig(bootstrap=kafka_bootstrap, properties={"client.rack": "a"}, client_id="tests")
    log = KafkaLog.open(config, SystemClock())
    assert log.members("nobody.at.all") == ()
    log.close()
    log.close()
