"""The log as a role meets it: opened, initialised or waited for, and felt for a pulse."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tocsin.cli.failures import Failure, called
from tocsin.cli.roles.process import NotYet
from tocsin.clock import Clock
from tocsin.log.port import EventLog, LogError, LogUnavailable, TopicPartition
from tocsin.schemas.codec import SCHEMA_LEVEL
from tocsin.schemas.topics import TopicNames
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.config import Configuration
from tocsin.streams.configuration import ConfigurationReader, NewerSchemaLevel, NotInitialised

PARTITIONS: Final = 12
"""Of the job topics and of each queue on a new Kafka: enough for a dozen processes of each role."""
PULSE_EVERY_S: Final = 2.0

OpenLog = Callable[[], EventLog]


def initialise(
    log: EventLog, names: TopicNames, *, partitions: int | None, queue_partitions: int | None
) -> Configuration:
    """Everything that the roles need exists afterwards. None: what the log was made with; on a new one, PARTITIONS.

    Raises TopicMismatch for a log that was made with another number, NewerSchemaLevel, LogUnavailable.
    """
    if partitions is None:
        current = _current(log, names)
        partitions = PARTITIONS if current is None else current.cluster.partitions
    return bootstrap(log, names, partitions=partitions, queue_partitions=queue_partitions or partitions)


def _current(log: EventLog, names: TopicNames) -> Configuration | None:
    try:
        following = Following(log, names)
    except NotYet:
        return None
    following.close()
    return following.current


class Following:
    """The configuration, followed by one thread; `current` may be read by all."""

    def __init__(self, log: EventLog, names: TopicNames) -> None:
        """Raises NotYet while nobody has initialised the cluster, NewerSchemaLevel, LogUnavailable."""
        self._log = log
        self._names = names
        self._reader: ConfigurationReader | None = None
        self.current = self._open()

    def poll(self, now_s: float) -> Configuration:
        """Apply what has come. Raises LogUnavailable; `current` stays what it was."""
        if self._reader is None:
            self.current = self._open()
            return self.current
        try:
            self.current = _known(self._reader.poll(now_s))
        except LogUnavailable:
            self.close()  # it may have passed over what it could not look into: all of it is read again
            raise
        return self.current

    def close(self) -> None:
        """Safe twice."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> Configuration:
        if self._names.config in self._log.topics():
            try:
                self._reader = ConfigurationReader(self._log, self._names)
            except NotInitialised:
                pass
            else:
                return _known(self._reader.current)
        raise NotYet(
            f"this Kafka holds no Tocsin with the prefix {self._names.prefix!r} yet; the first `{called()} streams` "
            "makes it"
        )


def _known(configuration: Configuration) -> Configuration:
    """Nobody writes to a log that is written at a level which he does not know."""
    level = configuration.cluster.schema_level
    if level > SCHEMA_LEVEL:
        raise NewerSchemaLevel(
            f"the log is written at schema level {level}, this version knows {SCHEMA_LEVEL}: upgrade it"
        )
    return configuration


class Pulse:
    """Whether the log answers. Asked from one thread, which may wait for it."""

    def __init__(self, log: EventLog, names: TopicNames, clock: Clock) -> None:
        self._log = log
        self._at = TopicPartition(names.config, 0)
        self._clock = clock
        self._next_s = 0.0
        self._trouble = ""

    def trouble(self) -> str:
        """Why it does not; "" if it does. Asks at most every two seconds."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_s:
            try:
                self._log.begin_offset(self._at)
            # What it was at first stays: the details change with every attempt, and say no more.
            except LogUnavailable as error:
                self._trouble = self._trouble or f"the log does not answer: {error}"
            except LogError as error:
                self._trouble = self._trouble or f"the log answers with an error: {error}"
            else:
                self._trouble = ""
            self._next_s = self._clock.monotonic_s() + PULSE_EVERY_S
        return self._trouble


def lock_directory(data: Path) -> int:
    """One streams process owns one directory. The lock ends with the process, however that ends; keep the descriptor."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        held = os.open(data / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Failure(
            f"--data {data}: {error.strerror or error}: name a directory that can be written"
        ) from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(held, 32).decode(errors="replace").strip()
        os.close(held)
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise Failure(
            f"--data {data} is in use by {who}: each streams process keeps its state in a directory of its own"
        ) from None
    os.ftruncate(held, 0)
    os.pwrite(held, b"%d\n" % os.getpid(), 0)
    return held
