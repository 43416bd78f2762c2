"""librdkafka's own messages: into Python's logging, one level lower than it thinks; and what they say of troubles."""

import logging
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError

from tocsin.log.kafka.errors import describe, is_refusal

logger = logging.getLogger("tocsin.log.kafka.librdkafka")

_EXPECTED: Final = "*assign() call failed"
"""How a rebalance is put off until our own callbacks have run; see groups."""


class _Quieter(logging.Filter):
    """A connection that fails is tried again, and said each time by each of the clients of a process. Whoever is hindered
    by it gets an error that says so; here it is only for those who look closer."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _EXPECTED in record.getMessage():
            return False
        if record.levelno >= logging.WARNING:
            record.levelno, record.levelname = logging.INFO, "INFO"
        elif record.levelno == logging.INFO:
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logger.isEnabledFor(record.levelno)


logger.addFilter(_Quieter())


class Troubles:
    """The last troubles of all clients of one log, for the messages of what fails because of them. Any thread."""

    def __init__(self, bootstrap: str, now_s: Callable[[], float]) -> None:
        self._bootstrap = bootstrap
        self._now_s = now_s
        self._last: tuple[float, KafkaError] | None = None
        self._refused: tuple[float, KafkaError] | None = None

    def note(self, error: KafkaError) -> None:
        """librdkafka's error callback: what concerns a client as a whole."""
        now_s = self._now_s()
        if is_refusal(error.code()):
            self._refused = (now_s, error)
        self._last = (now_s, error)

    @property
    def refused(self) -> KafkaError | None:
        """Why the brokers do not let us in, if that was the last thing they said."""
        recent = self._refused
        return recent[1] if recent is not None and self._now_s() - recent[0] < RECENT_S else None

    def explain(self) -> str:
        """What to do about brokers that do not answer."""
        recent = self._last
        because = ""
        if recent is not None and self._now_s() - recent[0] < RECENT_S:
            because = f" (last: {describe(recent[1])})"
        return f"is a broker running at {self._bootstrap}, and reachable from here?{because}"

    def options(self) -> dict[str, Any]:
        """What every client of librdkafka is made with, beside its options."""
        return {"logger": logger, "error_cb": self.note}


RECENT_S: Final = 60.0
"""Older troubles are over: they would only mislead."""
