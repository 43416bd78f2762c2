"""kill -9 of the whole node, under load: nothing is lost, nothing dispatched twice."""

import threading
from collections import Counter
from itertools import pairwise

from tests.node.conftest import Node, Receiver, until
from tocsin.clock import SystemClock
from tocsin.log.embedded import EmbeddedLog
from tocsin.log.port import EventLog, Record, TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import DueRun, JobEvent, Journal, RunEvent
from tocsin.schemas.topics import TopicNames

NAMES = TopicNames()
JOBS = 20
KILLS = 4


def records_of(log: EventLog, topic: str) -> list[Record]:
    """Every committed record of the topic."""
    found: list[Record] = []
    reader = log.reader("committed")
    for partition in range(log.partitions(topic)):
        at = TopicPartition(topic, partition)
        end = log.end_offset(at, "committed")
        reader.assign({at: log.begin_offset(at)})
        while reader.position(at) < end:
            found += reader.poll(10_000, 1.0)
    reader.close()
    return found


def test_after_kill_9_no_occurrence_is_lost_and_no_run_is_dispatched_twice(
    node: Node, receiver: Receiver
) -> None:
    node.start()
    for number in range(JOBS):
        node.define(
            {
                "id": f"tick-{number}",
                "schedule": {"every": "1s", "anchor": f"2026-01-01T00:00:00.{number * 47:03d}Z"},
                "target": {"http": {"url": f"{receiver.url}/ok"}},
                "overlap": "allow",
                "catchup": {"mode": "all", "limit": 1000},
            }
        )
    node.define(
        {
            "id": "patient",
            "schedule": {"delay": "1s"},
            "target": {"http": {"url": f"{receiver.url}/fail/2"}},
            "retry": {"base": "4s", "backoff": "fixed", "jitter": 0},
        }
    )
    pause = threading.Event()
    for kill in range(KILLS):
        seen = len(receiver.seen)
        until(lambda seen=seen: len(receiver.seen) >= seen + 2 * JOBS, "runs arrive")  # type: ignore[misc]
        pause.wait(0.13 * kill)  # another moment of the commit each time
        node.kill()
        node.start()
    until(lambda: 3 in receiver.attempts("default/patient"), "a retry that was pending at the kill is made")
    until(lambda: node.runs("default/patient")[0]["status"] == "succeeded", "its run succeeds")
    node.stop()

    log = EmbeddedLog.open(node.data / "log", SystemClock())
    try:
        _check_dispatches(log)
        _check_dispositions(log)
    finally:
        log.close()
    delivered = {each["run_id"] for each in receiver.seen}
    assert len(delivered) > KILLS * 2 * JOBS


def _check_dispatches(log: EventLog) -> None:
    dues = [
        codec.decode(record.value or b"")
        for topic in (NAMES.due("default"), NAMES.due_now("default"))
        for record in records_of(log, topic)
    ]
    times = Counter((due.run_id, due.dispatch) for due in dues if isinstance(due, DueRun))
    assert [at for at, count in times.items() if count > 1] == []


def _check_dispositions(log: EventLog) -> None:
    """Each second of each job, from its definition to the watermark, became a run or was skipped with a reason."""
    decided: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for record in records_of(log, NAMES.runs):
        event = codec.decode(record.value or b"")
        if isinstance(event, JobEvent):
            first.setdefault(event.job_id, event.effective_ms)
        elif isinstance(event, RunEvent) and event.job_id.startswith("tick-"):
            decided.setdefault(event.job_id, set()).update(
                range(event.nominal_ms, event.last_nominal_ms + 1, 1_000)
            )
    watermarks: dict[int, int] = {}
    for record in records_of(log, NAMES.journal):
        row = codec.decode(record.value or b"")
        assert isinstance(row, Journal)
        watermarks[record.partition] = row.watermark_ms
    through = min(watermarks.values())
    assert len(decided) == JOBS
    for job, nominals in decided.items():
        settled = sorted(nominal for nominal in nominals if nominal <= through)
        gaps = [(before, after) for before, after in pairwise(settled) if after - before != 1_000]
        assert gaps == [], f"{job}: no disposition between {gaps}"
        assert settled[0] - first[job] <= 1_000
        assert through - settled[-1] < 1_000
