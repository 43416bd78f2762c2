"""What a cluster costs while nothing is due: the processor time of broker and streams process together.

    python -m benchmarks.bench_kafka_idle [--warm-up 300] [--seconds 60] [--streams 1]

Method: a broker and streams processes (12 partitions) as processes of their own, with 1,000 jobs that are due in years. The
processor time that the system has counted for both is read every 10 s, after the warm-up (a young Java process compiles
itself). Bound: 15 % of one core over the 60 s. Compared with the same broker before the streams process was started, after a
warm-up of its own.
"""

import argparse
import time

from benchmarks.kafka import Rig, rig, spread
from tests.kafka.load import job
from tests.kafka.roles import Role

JOBS = 1_000
BOUND = 0.15
SAMPLE_S = 10.0


def measure(target: Rig, roles: list[Role], seconds: float) -> tuple[list[float], list[float]]:
    """Shares of a core in each sample: of the broker, of the roles."""
    broker: list[float] = []
    streams: list[float] = []
    for _ in range(int(seconds / SAMPLE_S)):
        before = (target.broker_cpu_s(), sum(each.cpu_s() for each in roles), time.monotonic())
        time.sleep(SAMPLE_S)
        passed = time.monotonic() - before[2]
        broker.append((target.broker_cpu_s() - before[0]) / passed)
        streams.append((sum(each.cpu_s() for each in roles) - before[1]) / passed)
    return broker, streams


def percent(values: list[float]) -> str:
    return spread([100 * each for each in values], "% of a core")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warm-up", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=1)
    given = parser.parse_args()
    with rig() as target:
        cluster = target.cluster
        time.sleep(min(60.0, given.warm_up))
        alone, _ = measure(target, [], min(30.0, given.seconds))
        roles = [cluster.streams(number + 1).until_ready() for number in range(given.streams)]
        api = cluster.api().until_ready()
        far = {"at": "2096-01-01T00:00:00Z"}
        cluster.define(*[job(f"far-{number}", "http://127.0.0.1:9/ok", far) for number in range(JOBS)])
        api.stop()
        time.sleep(given.warm_up)
        broker, streams = measure(target, roles, given.seconds)
    both = [one + two for one, two in zip(broker, streams, strict=True)]
    print(
        f"nothing due, {given.warm_up:.0f} s of warm-up, samples of {SAMPLE_S:.0f} s over {given.seconds:.0f} s:"
    )
    print(f"  broker:   {percent(broker)}")
    print(f"  streams:  {percent(streams)}  ({given.streams} processes)")
    print(
        f"  together: {percent(both)}; mean {100 * sum(both) / len(both):.1f} % (bound {100 * BOUND:.0f} %)"
    )
    print(f"  the broker alone, before: {percent(alone)}")


if __name__ == "__main__":
    main()
