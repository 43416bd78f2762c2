"""Kill -9 and SIGSTOP under load: nothing is lost, nothing is dispatched twice, and what runs again is explained.

One cluster goes through all of it, two streams processes and two workers: each test judges everything up to its end.
"""

from itertools import pairwise

import pytest

from tests.kafka import load
from tests.kafka.cluster import Cluster
from tests.kafka.telling import Tell
from tests.kafka.waiting import WITHIN_S, pass_time
from tocsin.log.port import TopicPartition
from tocsin.schemas.records import RunReport

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("crashes"), pytest.mark.timeout(600)]

SESSION_S = 6.0


@pytest.fixture(scope="module")
def busy(shared_cluster: Cluster) -> Cluster:
    shared_cluster.start(streams=2, workers=2)
    shared_cluster.until_shared(shared_cluster["streams-1"], shared_cluster["streams-2"])
    shared_cluster.until_workers_share(shared_cluster["worker-1"], shared_cluster["worker-2"])
    load.define(shared_cluster)
    load.until_all_run(shared_cluster)
    return shared_cluster


@pytest.fixture
def whole(busy: Cluster) -> Cluster:
    """Everything runs, whatever the test before did to it."""
    for role in busy.roles.values():
        if role.frozen:
            role.thaw()
        if not role.alive:
            role.start()
    busy.until_ready()
    busy.until_shared(busy["streams-1"], busy["streams-2"])
    busy.until_workers_share(busy["worker-1"], busy["worker-2"])
    return busy


def test_kill_9_of_a_streams_process_loses_nothing_and_delays_no_run_of_a_minute(
    whole: Cluster, tell: Tell
) -> None:
    victim, other = whole["streams-1"], whole["streams-2"]
    lost = whole.partitions_of(victim)
    assert lost
    victim.kill()
    killed_ms = whole.now_ms()
    fires_ms = whole.until_fires(lost, killed_ms)
    assert {other.url} == set(whole.owners().values())
    took_s = (fires_ms - killed_ms) / 1000
    verdict = whole.settled()
    # What was due in the outage had left before it: look-ahead is longer than a takeover.
    outage = (killed_ms, killed_ms + 9_000)
    minutes = [each for each in whole.evidence.dues if "/minute-" in each.value.run_id]
    due_meanwhile = [each for each in minutes if outage[0] < each.value.due_ms <= min(outage[1], fires_ms)]
    assert due_meanwhile
    late = [each for each in due_meanwhile if each.record.timestamp_ms > killed_ms + 1_000]
    assert [] == [each.value.run_id for each in late]
    at_sink = whole.sink.by_run()
    late_ms = max(at_sink[each.value.run_id][0].late_ms for each in due_meanwhile)
    tell(
        f"kill -9 of streams: partitions {lost} fire again after {took_s:.1f} s; {len(due_meanwhile)} minute runs due "
        f"meanwhile, the latest {late_ms} ms late",
        verdict,
    )
    assert late_ms < SESSION_S * 1000, "a minute run waited for the takeover"


def test_kill_9_of_a_worker_loses_nothing_and_repeats_only_what_it_had_in_flight(
    whole: Cluster, tell: Tell
) -> None:
    survivor = whole["worker-2"]
    whole["worker-1"].kill()
    whole.until_workers_share(survivor)
    tell("kill -9 of a worker", whole.settled())


def test_a_frozen_worker_starts_nothing_it_lost_once_it_thaws(whole: Cluster, tell: Tell) -> None:
    zombie, other = whole["worker-1"], whole["worker-2"]
    whole.evidence.refresh()
    zombie.freeze()
    frozen_ms = whole.now_ms()
    whole.until_workers_share(other)
    taken_ms = whole.now_ms()
    # The other one works on what the zombie still holds in its memory.
    whole.until_requests(
        lambda requests: sum(each.received_ms > taken_ms and each.status == 200 for each in requests) > 20,
        "the other worker runs what the frozen one had",
    )
    zombie.thaw()
    thawed_ms = whole.now_ms()
    whole.until_workers_share(zombie, other)
    pass_time(2.0)
    verdict = whole.settled()
    again = [
        (str(one), str(two))
        for found in whole.sink.by_run().values()
        for one, two in pairwise(found)
        if one.attempt == two.attempt
        and one.received_ms > frozen_ms + SESSION_S * 1000
        and two.received_ms >= thawed_ms
    ]
    assert [] == again, "what ran while it was frozen ran again"
    stale = stale_starts(whole, zombie.name, frozen_ms)
    assert [] == stale, "it started something under an assignment that was over"
    tell("SIGSTOP of a worker", verdict)


def stale_starts(cluster: Cluster, worker: str, frozen_ms: int) -> list[RunReport]:
    """What a worker says that it started after it was frozen, under an epoch that it had before."""
    partitions = {
        (due.value.run_id, due.value.dispatch): due.record.partition for due in cluster.evidence.dues
    }
    before: dict[int, int] = {}
    after: list[tuple[int, RunReport]] = []
    for reports in cluster.evidence.reports.values():
        for each in reports:
            if each.worker == worker and each.started_ms:
                partition = partitions[(each.run_id, each.dispatch)]
                if each.started_ms <= frozen_ms:
                    before[partition] = max(before.get(partition, 0), each.epoch)
                else:
                    after.append((partition, each))
    assert before, f"{worker} had started nothing before"
    return [each for partition, each in after if each.epoch <= before.get(partition, 0)]


@pytest.mark.slow
def test_a_frozen_streams_process_dispatches_nothing_once_it_thaws_and_becomes_an_owner_again(
    whole: Cluster, tell: Tell
) -> None:
    zombie, other = whole["streams-1"], whole["streams-2"]
    lost = whole.partitions_of(zombie)
    assert lost
    zombie.freeze()
    frozen_ms = whole.now_ms()
    fires_ms = whole.until_fires(lost, frozen_ms)
    whole.until_shared(other)
    zombie.thaw()
    whole.until_shared(zombie, other)
    whole.until_fires(range(whole.partitions), whole.now_ms())
    took_s = (fires_ms - frozen_ms) / 1000
    tell(f"SIGSTOP of streams: partitions {lost} fire again after {took_s:.1f} s", whole.settled())


def test_no_partition_is_read_by_halves(whole: Cluster) -> None:
    """The group, the processes and the log say the same of who reads what, of all inputs of a partition."""
    owners = whole.owners()
    for role in (whole["streams-1"], whole["streams-2"]):
        said = sorted(each["partition"] for each in role.status()["partitions"])
        assert whole.partitions_of(role) == said, role.name
    names = whole.names
    inputs = (names.commands, names.outcomes, names.jobs)
    group = whole.log.group_consumer(names.streams_group, client_id="onlooker")
    at = [TopicPartition(topic, number) for number in owners for topic in inputs]
    committed = group.committed(at, WITHIN_S)
    group.close()
    whole.evidence.refresh()
    by_url = {f"{names.streams_group}.{url}": url for url in owners.values()}
    for number, url in owners.items():
        offsets = [commit.offset for topic in inputs if (commit := committed[TopicPartition(topic, number)])]
        rows = [
            row.value
            for row in whole.evidence.journals[number]
            if offsets == [row.value.commands_offset, row.value.outcomes_offset, row.value.jobs_offset]
        ]
        assert rows, f"partition {number}: no tick consumed just {offsets} of {inputs}"
        assert url == by_url.get(rows[-1].transactional_id), f"partition {number}"
