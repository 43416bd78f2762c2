"""Writes reports: hands each to the log until the log has it, and says so to whoever waits for the acknowledgement."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tocsin.clock import Clock
from tocsin.log.port import Delivery, LogError, LogUnavailable, Producer, UnknownTopic
from tocsin.schemas.codec import encode
from tocsin.schemas.records import Quarantined, RunReport
from tocsin.worker.clock_offset import ClockOffset
from tocsin.worker.config import CoreConfig
from tocsin.worker.metrics import WorkerMetrics

logger = logging.getLogger(__name__)

AGAIN_AFTER_S: Final = 0.25
"""How soon a report that the log did not take is handed over again, the first time; then twice as late each time."""
AGAIN_AFTER_S_MAX: Final = 5.0
"""A disk that was full for an hour holds up nothing for longer than this once it has space again."""
COMPLAIN_EVERY_S: Final = 60.0

QUARANTINED_KEY_BYTES_MAX: Final = 64 * 1024
QUARANTINED_VALUE_BYTES_MAX: Final = 512 * 1024
"""More of what cannot be decoded is not kept: key, value, reason and coordinates have to fit in one record."""

Acknowledged = Callable[[], None]
Wanted = Callable[[], bool]


@dataclass(slots=True, kw_only=True)
class _Outgoing:
    topic: str
    key: bytes
    value: bytes
    acknowledged: Acknowledged | None
    wanted: Wanted | None
    again: bool
    sent_s: float = 0.0


class Reports:
    """All that a worker writes to the log, through one idempotent producer."""

    def __init__(
        self,
        config: CoreConfig,
        clock: Clock,
        producer: Producer,
        clock_offset: ClockOffset,
        metrics: WorkerMetrics,
    ) -> None:
        self._outcomes = config.topics.outcomes
        self._quarantine = config.topics.quarantine
        self._clock = clock
        self._producer = producer
        self._clock_offset = clock_offset
        self._worker = config.worker
        self._metrics = metrics
        # Order matters (a claim before its final report), so while anything waits, everything waits behind it.
        self._waiting: deque[_Outgoing] = deque()
        self._refused_s = 0.0
        self._again_after_s = AGAIN_AFTER_S
        self._complain_s = float("-inf")
        self.unacknowledged = 0

    def send(
        self,
        report: RunReport,
        *,
        acknowledged: Acknowledged | None = None,
        wanted: Wanted | None = None,
        again: bool = True,
    ) -> None:
        """Hand the report over. If the log does not take it, it is handed over again, as long as it is wanted.

        again False: a lost one is not worth repeating (heartbeats).
        """
        self._metrics.reports += 1
        self._send(
            _Outgoing(
                topic=self._outcomes,
                key=f"{report.namespace}/{report.job_id}".encode(),
                value=encode(report),
                acknowledged=acknowledged,
                wanted=wanted,
                again=again,
            )
        )

    def ask_the_time(self) -> None:
        """Send a heartbeat of no dispatch, which the processor ignores as stale: its delivery tells the log's time."""
        self._clock_offset.asked()
        self.send(
            RunReport(
                kind="heartbeat",
                run_id="",
                namespace="tocsin",
                job_id="clock",
                seq=0,
                dispatch=0,
                attempt=0,
                worker=self._worker,
                clock_offset_ms=self._clock_offset.offset_ms(),
            ),
            again=False,
        )

    def quarantine(self, record: Quarantined, *, acknowledged: Acknowledged) -> None:
        self._metrics.quarantined += 1
        where = f"{record.topic}[{record.partition}]@{record.offset}"
        logger.error("quarantined %s: %s", where, record.reason)
        self._send(
            _Outgoing(
                topic=self._quarantine,
                key=where.encode(),
                value=encode(record),
                acknowledged=acknowledged,
                wanted=None,
                again=True,
            )
        )

    def poll(self) -> None:
        """Learn what was acknowledged, and hand over what was not taken."""
        self._producer.poll()
        self._send_again(self._again_after_s)

    def flush(self, timeout_s: float) -> None:
        """Wait until everything handed over was acknowledged, for at most timeout_s. It may be the last chance for what
        was not taken, however rarely that was tried of late."""
        self._producer.poll()
        self._send_again(AGAIN_AFTER_S)
        self._producer.flush(timeout_s)

    def outstanding(self) -> int:
        return self.unacknowledged + len(self._waiting)

    def close(self) -> None:
        self._producer.close()

    def _send_again(self, after_s: float) -> None:
        """Hand over what was not taken, all of it, if the log refused the last one so long ago."""
        if not self._waiting or self._clock.monotonic_s() < self._refused_s + after_s:
            return
        self._again_after_s = min(self._again_after_s * 2, AGAIN_AFTER_S_MAX)
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            outgoing = waiting.popleft()
            if outgoing.wanted is None or outgoing.wanted():
                self._send(outgoing)

    def _send(self, outgoing: _Outgoing) -> None:
        if self._waiting:
            self._waiting.append(outgoing)
            return
        outgoing.sent_s = self._clock.monotonic_s()
        try:
            self._producer.produce(
                outgoing.topic,
                key=outgoing.key,
                value=outgoing.value,
                on_delivery=lambda delivery: self._delivered(outgoing, delivery),
            )
        except (LogUnavailable, UnknownTopic) as error:
            self._repeat(outgoing, error)
        else:
            self.unacknowledged += 1

    def _delivered(self, outgoing: _Outgoing, delivery: Delivery) -> None:
        self.unacknowledged -= 1
        if delivery.error is not None:
            self._repeat(outgoing, delivery.error)
            return
        self._again_after_s = AGAIN_AFTER_S
        self._clock_offset.delivered(outgoing.sent_s, delivery.timestamp_ms)
        if outgoing.acknowledged is not None:
            outgoing.acknowledged()

    def _repeat(self, outgoing: _Outgoing, error: LogError) -> None:
        if not outgoing.again or not (outgoing.wanted is None or outgoing.wanted()):
            return
        self._metrics.reports_again += 1
        self._waiting.append(outgoing)
        now_s = self._refused_s = self._clock.monotonic_s()
        if now_s >= self._complain_s:
            self._complain_s = now_s + COMPLAIN_EVERY_S
            logger.warning("a record for %s was not taken, and is sent again: %s", outgoing.topic, error)
