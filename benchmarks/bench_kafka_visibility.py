"""How long after its emission an urgent due record is visible, with a commit every 25 ms, on a broker of this machine.

    python -m benchmarks.bench_kafka_visibility [--rate 100] [--seconds 20] [--rounds 3]

Method: a broker and one streams process of 12 partitions, each a process of its own. RATE triggers a second, evenly spread
over 200 jobs, are written to the log: each is due at once, so that the processor commits every 25 ms. A reader of committed
records compares the wall clock at which it has a due record with the instant of the tick that emitted it (`emitted_ms`,
so up to 1 ms is added). The p99 is to stay below 60 ms: 25 ms for the cadence, the rest for commit and fetch. Compared
with a bare loop on the same broker, without a scheduler: a transaction of one record, committed 25 ms after it was begun.
"""

import argparse
import time

from benchmarks.kafka import Rig, Watch, rig, spread
from benchmarks.node import percentile
from tests.kafka.load import job
from tocsin.clock import new_id
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Record, TopicSpec
from tocsin.schemas import codec
from tocsin.schemas.records import DueRun, Trigger

JOBS = 200
BOUND_MS = 60.0
CADENCE_S = 0.025
WARM_UP_S = 5.0


def of_streams(target: Rig, rate: int, seconds: float) -> list[float]:
    """Emission to visibility in ms."""
    cluster = target.cluster
    names = cluster.names
    found: list[float] = []

    def take(record: Record, seen_ms: float) -> None:
        value = codec.decode(record.value or b"")
        if isinstance(value, DueRun):
            found.append(seen_ms - value.emitted_ms)

    producer = cluster.log.producer()
    with Watch(cluster.log, (names.due_now("default"), names.due("default")), take):
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            name = f"manual-{number % JOBS}"
            key = f"default/{name}".encode()
            command = Trigger(namespace="default", id=name, trigger_id=new_id())
            producer.produce(
                names.commands,
                key=key,
                value=codec.encode(command),
                partition=partition_for(key, cluster.partitions),
            )
            producer.poll()
        producer.flush(10.0)
        time.sleep(1.0)
    producer.close()
    return found


def of_bare_loop(target: Rig, seconds: float) -> list[float]:
    log = target.cluster.log
    topic = f"bench.{new_id()[:8]}"
    log.create_topics([TopicSpec(name=topic, partitions=1)])
    found: list[float] = []

    def take(record: Record, seen_ms: float) -> None:
        found.append(seen_ms - float(record.value or b"0"))

    producer = log.transactional_producer(topic)
    producer.init()
    with Watch(log, (topic,), take):
        for _ in range(int(seconds / CADENCE_S)):
            producer.begin()
            producer.produce(topic, partition=0, key=b"k", value=str(time.time() * 1000).encode())
            time.sleep(CADENCE_S)
            producer.commit()
        time.sleep(0.5)
    producer.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with rig() as target:
        cluster = target.cluster
        cluster.streams().until_ready()
        cluster.api().until_ready()
        cluster.define(*[job(f"manual-{number}", "http://127.0.0.1:9/ok", {}) for number in range(JOBS)])
        of_streams(target, given.rate, WARM_UP_S)
        print(f"{given.rate} triggers a second; from emission to visibility:")
        p99 = []
        for number in range(given.rounds):
            cpu = (cluster["streams-1"].cpu_s(), target.broker_cpu_s())
            found = of_streams(target, given.rate, given.seconds)
            p99.append(percentile(found, 0.99))
            used = (cluster["streams-1"].cpu_s() - cpu[0], target.broker_cpu_s() - cpu[1])
            print(
                f"  round {number + 1}: {len(found)} records; p50 {percentile(found, 0.5):.1f}, "
                f"p99 {p99[-1]:.1f}, max {max(found):.1f} ms; streams {used[0] / given.seconds:.2f}, "
                f"broker {used[1] / given.seconds:.2f} cores"
            )
        bare = of_bare_loop(target, given.seconds)
    print(f"  p99 of the rounds: {spread(p99)} (bound {BOUND_MS:.0f} ms)")
    reference = percentile(bare, 0.99)
    print(
        f"  a bare loop of transactions: p50 {percentile(bare, 0.5):.1f}, p99 {reference:.1f}, max {max(bare):.1f} ms"
    )
    print(f"  ratio of p99 (median of the rounds): {sorted(p99)[len(p99) // 2] / reference:.2f}")


if __name__ == "__main__":
    main()
