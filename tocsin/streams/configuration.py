"""Follows the `config` topic: every process reads it in full at its start, and applies what comes later."""

from tocsin.log.port import EventLog, TopicPartition, UnknownTopic
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster, Queue, Switch
from tocsin.schemas.topics import TopicNames
from tocsin.streams.config import Configuration


class NotInitialised(LookupError):
    """The log has no cluster record yet: `tocsin up` (or `tocsin topics create`) writes it."""


class ConfigurationReader:
    """The configuration as of the last poll. Used by one thread; `current` may be read by all."""

    def __init__(self, log: EventLog, names: TopicNames) -> None:
        """Reads everything up to the topic's end. Raises NotInitialised."""
        self._log = log
        self._names = names
        self._at = TopicPartition(names.config, 0)
        self._reader = log.reader("committed")
        self._reader.assign({self._at: log.begin_offset(self._at)})
        self._current: Configuration | None = None
        self._early: list[Queue | Switch] = []
        end = log.end_offset(self._at, "committed")
        while self._reader.position(self._at) < end:
            self._read(0.1)
        if self._current is None:
            raise NotInitialised(
                f"{names.config} holds no cluster record: start `tocsin up` once, which writes it"
            )

    @property
    def current(self) -> Configuration:
        assert self._current is not None
        return self._current

    def poll(self) -> Configuration:
        """Apply what has come, without waiting."""
        self._read(0.0)
        return self.current

    def _read(self, timeout_s: float) -> None:
        for record in self._reader.poll(1_000, timeout_s):
            if record.value is None:
                continue
            try:
                value = codec.decode(record.value)
            except codec.CodecError:
                continue  # a newer version's record: what it means for this one, the schema level says
            if isinstance(value, Cluster):
                if self._current is None:
                    self._current = Configuration(cluster=value, offset=record.offset + 1)
                else:
                    self._current = self._current.with_record(value, record.offset)
            elif isinstance(value, (Queue, Switch)) and self._current is not None and self._usable(value):
                self._current = self._current.with_record(value, record.offset)

    def _usable(self, value: Queue | Switch) -> bool:
        """Nothing is ever produced to a topic that was not seen to exist."""
        if not isinstance(value, Queue) or value.deleted:
            return True
        names = self._names
        try:
            return all(
                self._log.partitions(topic) == value.partitions
                for topic in (names.due(value.name), names.due_now(value.name), names.control(value.name))
            )
        except UnknownTopic:
            return False

    def close(self) -> None:
        self._reader.close()
