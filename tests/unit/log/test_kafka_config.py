"""KafkaConfig and properties files: every problem is named, at once, with what to do."""

from pathlib import Path

import pytest

from tocsin.clock import FakeClock
from tocsin.log.kafka import InvalidKafkaConfig, KafkaConfig, KafkaLog, read_properties
from tocsin.log.kafka import settings as kafka_settings


def _problems(**fields: object) -> list[str]:
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaConfig(**{"bootstrap": "127.0.0.1:9092", **fields})  # type: ignore[arg-type]
    return caught.value.problems


@pytest.mark.parametrize(
    "bootstrap",
    [
        "localhost:9092",
        "a.example:1,b-2.example:65535",
        "[::1]:9092",
        "SASL_SSL://broker:9093",
        "10.0.0.1:9092 , b:2",
    ],
)
def test_addresses_of_every_usual_form_are_taken(bootstrap: str) -> None:
    assert bootstrap == KafkaConfig(bootstrap=bootstrap).bootstrap


@pytest.mark.parametrize(
    ("bootstrap", "problem"),
    [
        ("", "bootstrap: no address is given; write host:port, several separated by commas"),
        (" , ", "bootstrap: no address is given; write host:port, several separated by commas"),
        ("localhost", "bootstrap: 'localhost' is not host:port"),
        ("http://localhost/x:1", "bootstrap: 'http://localhost/x:1' is not host:port"),
        ("a:1,b", "bootstrap: 'b' is not host:port"),
        ("a:0", "bootstrap: 'a:0' has a port outside 1 to 65535"),
        ("a:70000", "bootstrap: 'a:70000' has a port outside 1 to 65535"),
    ],
)
def test_a_wrong_address_is_named(bootstrap: str, problem: str) -> None:
    assert [problem] == _problems(bootstrap=bootstrap)


def test_what_our_guarantees_rest_on_cannot_be_set_and_all_of_it_is_named() -> None:
    problems = _problems(
        properties={"isolation.level": "read_uncommitted", "acks": "1", "ssl.ca.location": "ca.pem"},
        replication=0,
    )
    assert [
        "acks: is set by Tocsin, whose guarantees rest on it; remove it from the properties",
        "isolation.level: is set by Tocsin, whose guarantees rest on it; remove it from the properties",
        "replication: must be at least 1, not 0",
    ] == problems


def test_an_option_of_the_java_client_is_told_what_it_is_called_here() -> None:
    (problem,) = _problems(properties={"sasl.jaas.config": "..."})
    assert problem == (
        "sasl.jaas.config: only the Java client knows this option; use sasl.username and sasl.password"
    )


def test_the_addresses_are_no_property() -> None:
    (problem,) = _problems(properties={"bootstrap.servers": "x:1"})
    assert problem == "bootstrap.servers: the addresses are given as bootstrap, not as a property"


def test_an_option_that_librdkafka_does_not_take_is_named_with_the_others() -> None:
    config = KafkaConfig(
        bootstrap="127.0.0.1:1",
        properties={"no.such.option": "1", "socket.keepalive.enable": "perhaps", "client.rack": "a"},
    )
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaLog.open(config, FakeClock())
    assert len(caught.value.problems) == 2
    assert any(problem.startswith("no.such.option: ") for problem in caught.value.problems)
    assert any(problem.startswith("socket.keepalive.enable: ") for problem in caught.value.problems)


def test_a_users_property_reaches_every_client_and_wins_over_a_preference_alone() -> None:
    config = KafkaConfig(
        bootstrap="127.0.0.1:9092",
        properties={"security.protocol": "ssl", "reconnect.backoff.max.ms": "5000"},
        client_id="me",
    )
    options = kafka_settings.options_for(config, kafka_settings.CONSUMING, group_id="g")
    assert options["security.protocol"] == "ssl"
    assert options["reconnect.backoff.max.ms"] == "5000"
    assert options["fetch.wait.max.ms"] == kafka_settings.CONSUMING["fetch.wait.max.ms"]
    assert {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "me",
        "group.id": "g",
    }.items() <= options.items()


def test_every_option_of_ours_but_preferences_is_guarded() -> None:
    parts = (
        kafka_settings.CONNECTION,
        kafka_settings.PRODUCING,
        kafka_settings.PLAIN_PRODUCER,
        kafka_settings.TRANSACTIONAL_PRODUCER,
        kafka_settings.CONSUMING,
        kafka_settings.GROUP,
    )
    assert {name for part in parts for name in part} <= kafka_settings.OURS
    assert not kafka_settings.OURS & kafka_settings.PREFERENCES.keys()


def test_the_timeouts_that_depend_on_each_other_fit() -> None:
    transaction_ms = kafka_settings.TRANSACTIONAL_PRODUCER["transaction.timeout.ms"]
    assert kafka_settings.TRANSACTIONAL_PRODUCER["message.timeout.ms"] < transaction_ms  # type: ignore[operator]
    assert kafka_settings.CONNECTION["socket.timeout.ms"] < transaction_ms  # type: ignore[operator]
    assert kafka_settings.COMMIT_OFFSETS_S * 1000 < kafka_settings.SESSION_TIMEOUT_MS
    longest_s = kafka_settings.COMMIT_TRANSACTION_S + kafka_settings.ABORT_S + kafka_settings.INIT_S
    assert longest_s * 1000 < kafka_settings.GROUP["max.poll.interval.ms"]  # type: ignore[operator]


# --- properties files -------------------------------------------------------------------------------------------------


def test_a_properties_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(
        "# credentials\n"
        "security.protocol = SASL_SSL\n"
        "! another comment\n"
        "\n"
        "sasl.username=alice\n"
        "sasl.password = a=b#c \n"
        "ssl.ca.location = \\\n"
        "    ca.pem\n",
        encoding="utf-8",
    )
    assert read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "alice",
        "sasl.password": "a=b#c",
        "ssl.ca.location": "ca.pem",
    }


def test_every_wrong_line_of_a_properties_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(
        "security.protocol\nSasl.Username = x\nclient.rack = a\nclient.rack = b\n= c\n", encoding="utf-8"
    )
    with pytest.raises(InvalidKafkaConfig) as caught:
        read_properties(path)
    assert [
        f"{path}, line 1: expected `name = value`, found 'security.protocol'",
        f"{path}, line 2: 'Sasl.Username' is no option's name (small letters, digits, dots)",
        f"{path}, line 4: client.rack is given twice",
        f"{path}, line 5: expected `name = value`, found '= c'",
    ] == caught.value.problems


def test_an_option_that_is_no_users_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(
        "client.rack = a\n\nacks = 1\nsasl.jaas.config = org.x \\\n  y;\nbootstrap.servers = x:1\n"
    )
    with pytest.raises(InvalidKafkaConfig) as caught:
        read_properties(path)
    assert [
        f"{path}, line 3: acks: is set by Tocsin, whose guarantees rest on it; remove it from the properties",
        f"{path}, line 4: sasl.jaas.config: only the Java client knows this option; use sasl.username and sasl.password",
        f"{path}, line 6: bootstrap.servers: the addresses are given as bootstrap, not as a property",
    ] == caught.value.problems


def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKafkaConfig, match="cannot be read: No such file"):
        read_properties(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"a = \xff\n")
    with pytest.raises(InvalidKafkaConfig, match="is not UTF-8 text"):
        read_properties(tmp_path / "binary")
