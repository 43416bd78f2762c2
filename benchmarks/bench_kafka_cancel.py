"""How soon a cancel is applied while a million definitions are loaded behind and before it.

    python -m benchmarks.bench_kafka_cancel [--jobs 1000000] [--cancels 100] [--streams 1]

Method: a broker and a streams process (12 partitions) as processes of their own; as many open runs as there will be cancels
(triggered, dispatched, and held back by nobody: there is no worker). A process of its own writes the definitions to the log
as fast as the broker takes them. From the first one to the last one that is applied, a cancel is written to the log every
now and then: measured from just before it is sent until a reader of committed records sees the withdrawal that it causes.
Bound: 1 s. Compared with the same cancels on the same processes before the load.
"""

import argparse
import threading
import time

from benchmarks.kafka import Rig, Watch, applied_definitions, rig, spread, start_bulk_load
from benchmarks.node import percentile
from tests.kafka.load import job
from tests.kafka.waiting import until
from tocsin.log.partitioner import partition_for
from tocsin.log.port import Record
from tocsin.schemas import codec
from tocsin.schemas.records import CancelRun, Control, DueRun, Trigger

BOUND_MS = 1_000.0
BEFORE = 30
ANSWERED_WITHIN_S = 60.0


class Cancels:
    """Triggers runs, and cancels one after the other."""

    def __init__(self, target: Rig) -> None:
        self._cluster = target.cluster
        self._producer = target.cluster.log.producer()
        self._open: list[str] = []
        self._withdrawn: dict[str, float] = {}
        self._seen = threading.Event()

    def take(self, record: Record, seen_ms: float) -> None:
        value = codec.decode(record.value or b"")
        if isinstance(value, DueRun):
            self._open.append(value.run_id)
        elif isinstance(value, Control) and value.withdrawn_how == "cancel":
            self._withdrawn.setdefault(value.run_id, seen_ms)
            self._seen.set()

    def _send(self, key: str, record: Trigger | CancelRun) -> None:
        partition = partition_for(key.encode(), self._cluster.partitions)
        names = self._cluster.names
        self._producer.produce(
            names.commands, key=key.encode(), value=codec.encode(record), partition=partition
        )

    def open(self, count: int) -> None:
        for number in range(count):
            name = f"manual-{number % 200}"
            self._send(f"default/{name}", Trigger(namespace="default", id=name, trigger_id=f"t{number}"))
        self._producer.flush(30.0)
        until(lambda: len(self._open) >= count, f"{count} runs are open")

    def cancel(self) -> float:
        """One; returns after how many ms it showed."""
        run_id = self._open.pop()
        job_key = run_id.partition("!")[0]
        self._seen.clear()
        sent_ms = time.time() * 1000
        self._send(job_key, CancelRun(namespace="default", id=job_key.partition("/")[2], run_id=run_id))
        self._producer.flush(10.0)
        end_s = time.monotonic() + ANSWERED_WITHIN_S
        while run_id not in self._withdrawn and time.monotonic() < end_s:
            self._seen.wait(0.5)
            self._seen.clear()
        return self._withdrawn.get(run_id, float("inf")) - sent_ms

    def close(self) -> None:
        self._producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--cancels", type=int, default=100)
    parser.add_argument("--streams", type=int, default=1)
    given = parser.parse_args()
    with rig() as target:
        cluster = target.cluster
        for number in range(given.streams):
            cluster.streams(number + 1).until_ready()
        api = cluster.api().until_ready()
        cluster.define(*[job(f"manual-{number}", "http://127.0.0.1:9/ok", {}) for number in range(200)])
        api.stop()
        names = cluster.names
        cancels = Cancels(target)
        watched = (names.due_now("default"), names.due("default"), names.control("default"))
        with Watch(cluster.log, watched, cancels.take):
            cancels.open(given.cancels + BEFORE)
            before = [cancels.cancel() for _ in range(BEFORE)]
            began = time.monotonic()
            applied = applied_definitions(cluster)
            load = start_bulk_load(cluster, given.jobs)
            until(lambda: applied_definitions(cluster) > applied, "the first definitions are applied")
            found: list[float] = []
            pause_s = 0.5
            while len(found) < given.cancels and applied_definitions(cluster) < applied + given.jobs:
                found.append(cancels.cancel())
                time.sleep(pause_s)
            during_s = time.monotonic() - began
            rate = (applied_definitions(cluster) - applied) / during_s
            load.wait()
        cancels.close()
    print(
        f"{len(found)} cancels during {during_s:.0f} s of a load of {given.jobs:,} definitions ({rate:,.0f} applied/s):"
    )
    print(
        f"  from sending to the withdrawal: {spread(found)}, p99 {percentile(found, 0.99):.0f} ms (bound {BOUND_MS:.0f} ms)"
    )
    print(f"  without the load: {spread(before)}")


if __name__ == "__main__":
    main()
