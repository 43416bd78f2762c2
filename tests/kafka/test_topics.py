"""`tocsin topics` on a real broker: what it makes, and what it says of topics that were made otherwise."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers import ROOT
from tocsin.clock import new_id

pytestmark = pytest.mark.kafka

LIMIT_S = 60


@pytest.fixture
def prefix() -> str:
    return f"t.{new_id()[:8]}."


class Topics:
    """`tocsin topics` with the options of one test."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._environment = {
            **os.environ,
            "TOCSIN_KAFKA": bootstrap,
            "TOCSIN_PREFIX": prefix,
            "PYTHONPATH": str(ROOT),
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tocsin.cli", "topics", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@pytest.fixture
def topics(kafka_bootstrap: str, prefix: str) -> Topics:
    return Topics(kafka_bootstrap, prefix)


@pytest.fixture
def admin(kafka_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_bootstrap})


def test_what_create_makes_verify_finds_right_and_the_same_again_changes_nothing(
    topics: Topics, prefix: str
) -> None:
    made = topics("create", "--partitions", "3", "--queue-partitions", "2")
    assert 0 == made.returncode, made.stderr
    # Nine for all, and three for each of the queues `default` and `functions`.
    assert f"15 topics begin with {prefix}, 15 of them are new" in made.stdout
    assert "topics verify" in made.stdout
    right = topics("verify")
    assert (0, "15 topics compared, no differences\n") == (right.returncode, right.stdout)
    again = topics("create")
    assert (0, f"15 topics begin with {prefix}, 0 of them are new\n") == (again.returncode, again.stdout)
    assert {"topics": 15, "differences": []} == json.loads(topics("verify", "--json").stdout)


def test_create_refuses_another_number_of_partitions(topics: Topics) -> None:
    assert 0 == topics("create", "--partitions", "2").returncode
    refused = topics("create", "--partitions", "3")
    assert 1 == refused.returncode
    assert "this log was made with 2 partitions, and 3 were asked for" in refused.stderr


def test_verify_names_each_difference_and_what_to_do(topics: Topics, prefix: str, admin: AdminClient) -> None:
    assert 0 == topics("create", "--partitions", "2").returncode
    api: Any = kafka_admin  # it does not say which of its names are its own
    other = api.ConfigEntry("cleanup.policy", "delete", incremental_operation=api.AlterConfigOpType.SET)
    runs = api.ConfigResource("topic", f"{prefix}runs", incremental_configs=[other])
    for future in [
        *admin.incremental_alter_configs([runs]).values(),
        *admin.create_partitions([api.NewPartitions(f"{prefix}commands", 5)]).values(),
        *admin.delete_topics([f"{prefix}due.functions"]).values(),
    ]:
        future.result(LIMIT_S)
    found = topics("verify", "--json")
    assert 1 == found.returncode
    said = json.loads(found.stdout)["differences"]
    assert any(
        f"{prefix}runs" in line and "cleanup.policy" in line and "kafka-configs" in line for line in said
    )
    assert any(f"Topic {prefix}commands has 5 partitions, not 2" in line for line in said)
    assert any(f"{prefix}due.functions does not exist" in line and "topics create" in line for line in said)
    lines = topics("verify").stdout.splitlines()
    assert said == lines[:-1]
    assert f"15 topics compared, {len(said)} differences" == lines[-1]


def test_topics_that_somebody_else_made_are_compared_before_the_first_start(
    topics: Topics, prefix: str, admin: AdminClient
) -> None:
    made = [NewTopic(f"{prefix}{name}", 3, 1) for name in ("jobs", "runs")]
    for future in admin.create_topics(made).values():
        future.result(LIMIT_S)
    found = topics("verify", "--partitions", "3", "--queue-partitions", "2")
    assert 1 == found.returncode
    assert "nothing has been started on this Kafka with the prefix " in found.stderr
    assert "3 partitions, queues with 2" in found.stderr
    lines = found.stdout.splitlines()
    assert f"Topic {prefix}due.default does not exist: `tocsin topics create` makes it." in lines
    assert any(f"Topic {prefix}jobs has cleanup.policy=delete, not compact" in line for line in lines)
    assert not any("has 3 partitions" in line for line in lines)
    assert f"15 topics compared, {len(lines) - 1} differences" == lines[-1]
    usual = topics("verify")
    assert 1 == usual.returncode
    assert f"Topic {prefix}jobs has 3 partitions, not 12" in usual.stdout
    refused = topics("create", "--partitions", "3").stderr.splitlines()
    assert len(refused) > 1
    assert all(line.startswith(f"Topic {prefix}") for line in refused), "one difference on each line"


def test_verify_tells_when_the_log_was_made_with_another_number_than_is_asked_for(topics: Topics) -> None:
    assert 0 == topics("create", "--partitions", "2").returncode
    found = topics("verify", "--partitions", "3")
    assert 1 == found.returncode
    assert "this log was made with 2 partitions, and 3 were asked for" in found.stdout


def test_verify_of_a_prefix_that_nobody_used_says_so(topics: Topics) -> None:
    nothing = topics("verify")
    assert 2 == nothing.returncode
    assert "holds no Tocsin with the prefix" in nothing.stderr
    assert "topics create" in nothing.stderr


@pytest.mark.slow  # ten seconds of waiting, which another test of the log has, too
def test_a_kafka_that_does_not_answer_is_said(prefix: str) -> None:
    away = Topics("127.0.0.1:9", prefix)("verify")
    assert 1 == away.returncode
    assert "127.0.0.1:9" in away.stderr
    assert "Traceback" not in away.stderr
