"""Owners that die with a transaction open: whoever follows ends it at once, whoever it was."""

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.telling import Tell
from tests.kafka.waiting import until
from tocsin.log.port import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TRANSACTION_TIMEOUT_S = 30.0
"""Without fencing, a dead owner's transaction hides what lies behind it for at least so long."""


def dies_in(transaction: int) -> tuple[str, ...]:
    return ("tests.kafka.faulty", "--die-in-transaction", str(transaction), "--")


def test_two_owners_in_a_row_that_die_in_a_transaction_leave_nothing_lost_hidden_or_double(
    cluster: Cluster, tell: Tell
) -> None:
    first = cluster.start(streams=1, workers=1)["streams-1"]
    load.define(cluster, each=2)
    load.until_all_run(cluster)
    first.kill()
    # Its successor restores, commits its own journal rows (transaction 1), and dies with the next one open.
    second = cluster.streams(2, module=dies_in(2))
    assert -9 == second.wait()
    assert "transaction 2 is open" in second.said
    died_ms = cluster.now_ms()
    third = cluster.streams(3).until_ready()
    cluster.until_shared(third)
    fires_ms = cluster.until_fires(range(cluster.partitions), died_ms)
    verdict = cluster.settled()
    tell(
        f"two hand-overs with an open transaction: fires again {(fires_ms - died_ms) / 1000:.1f} s after",
        verdict,
    )


@pytest.mark.slow
def test_what_others_write_behind_a_dead_owners_open_transaction_is_visible_again_within_seconds(
    cluster: Cluster, tell: Tell
) -> None:
    cluster.start(streams=1, workers=1)
    load.define(cluster, each=2)
    load.until_all_run(cluster)
    survivor = cluster["streams-1"]
    doomed = cluster.streams(2, module=dies_in(40))
    assert -9 == doomed.wait()
    died_ms = cluster.now_ms()
    due = [
        TopicPartition(topic, number)
        for topic in (cluster.names.due("default"), cluster.names.runs)
        for number in range(cluster.partitions)
    ]
    hidden = cluster.log.end_offsets(due, "uncommitted")
    until(
        lambda: all(cluster.log.end_offsets(due, "committed")[each] >= end for each, end in hidden.items()),
        "what was on the log when the owner died is visible",
        within_s=TRANSACTION_TIMEOUT_S - 2.0,
    )
    took_s = (cluster.now_ms() - died_ms) / 1000
    cluster.until_shared(survivor)
    tell(f"a dead owner's open transaction was ended after {took_s:.1f} s", cluster.settled())
