"""How soon the partitions of a killed streams process fire again, with a warm standby and a million armed jobs.

    python -m benchmarks.bench_kafka_takeover [--jobs 1000000] [--rounds 3] [--partitions 12]

Method: a broker, two streams processes, both started with --standby, so that each follows what the other owns, and a worker,
each a process of its own, JOBS jobs due in decades, 600 jobs of a minute spread over it, 24 jobs of each second. Each round
kills one of the two (-9) and notes, for each partition that it had, when the log first has a dispatch of it that is newer
than the kill. Bound: 10 s, of which 6 s are the session timeout. At the endpoint: how late the runs of the minute jobs were
that fell due meanwhile. Then the killed one is started again, follows until it is warm, joins, and the other is killed.
Compared with the session timeout alone, which is what a takeover costs if nothing had to be read.
"""

import argparse
import time

from benchmarks.kafka import Rig, rig, spread, start_bulk_load, until_applied
from tests.kafka.load import MINUTE_MS, every, job
from tests.kafka.roles import Role
from tests.kafka.waiting import until

BOUND_S = 10.0
SESSION_S = 6.0
MINUTES = 600
SECONDS = 24


def fires_again(target: Rig, lost: list[int], killed_ms: int) -> list[float]:
    """Per partition, the seconds from the kill to its first dispatch."""
    target.cluster.until_fires(lost, killed_ms)
    first: dict[int, int] = {}
    for events in target.cluster.evidence.runs.values():
        for event in events:
            at, stamped_ms = event.record.partition, event.record.timestamp_ms
            if stamped_ms > killed_ms and event.value.status == "scheduled":
                first[at] = min(stamped_ms, first.get(at, stamped_ms))
    return [(first[number] - killed_ms) / 1000 for number in lost]


def late_minutes(target: Rig, from_ms: int, to_ms: int) -> list[float]:
    """Lateness in ms, at the endpoint, of the runs of minute jobs that were due in this stretch."""
    first: dict[str, float] = {}
    for each in target.cluster.sink.requests:
        if each.job.startswith("default/minute-") and from_ms < each.due_ms <= to_ms:
            first.setdefault(each.run_id, each.late_ms)
    return list(first.values())


def one_round(target: Rig, victim: Role, survivor: Role) -> tuple[list[float], list[float]]:
    cluster = target.cluster
    lost = cluster.partitions_of(victim)
    victim.kill()
    killed_ms = cluster.now_ms()
    took = fires_again(target, lost, killed_ms)
    time.sleep(5.0)
    late = late_minutes(target, killed_ms, killed_ms + round(max(took) * 1000))
    victim.start()
    began = time.monotonic()
    until(lambda: victim.ready, "the killed one is ready", 1_800.0)
    cluster.until_shared(victim, survivor)
    print(
        f"  {victim.name} killed: {len(lost)} partitions fire again after {spread(took, 's')}; {len(late)} runs of minute "
        f"jobs due meanwhile, late by {spread(late)}; back and warm after {time.monotonic() - began:.0f} s"
    )
    return took, late


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=12)
    given = parser.parse_args()
    with rig(partitions=given.partitions) as target:
        cluster = target.cluster
        cluster.sink.start()
        one = cluster.streams(1, "--standby").until_ready()
        two = cluster.streams(2, "--standby").until_ready()
        cluster.worker().until_ready()
        cluster.api().until_ready()
        began = time.monotonic()
        start_bulk_load(cluster, given.jobs).wait()
        until_applied(cluster, given.jobs)
        print(f"{given.jobs:,} jobs armed after {time.monotonic() - began:.0f} s")
        url = f"{cluster.sink.url}/ok"
        cluster.define(
            *[job(f"minute-{n}", url, every("1m", n * MINUTE_MS // MINUTES)) for n in range(MINUTES)],
            *[job(f"second-{n}", url, every("1s", n * 41)) for n in range(SECONDS)],
        )
        cluster.until_shared(one, two)
        time.sleep(60.0)
        took: list[float] = []
        late: list[float] = []
        for number in range(given.rounds):
            victim, survivor = (one, two) if number % 2 == 0 else (two, one)
            found = one_round(target, victim, survivor)
            took += found[0]
            late += found[1]
    print(f"  all partitions of {given.rounds} rounds: {spread(took, 's')} (bound {BOUND_S:.0f} s)")
    print(f"  runs of minute jobs due meanwhile: {len(late)}, late by {spread(late)}")
    print(f"  the session timeout alone: {SESSION_S:.0f} s")


if __name__ == "__main__":
    main()
