"""Follows the `config` topic: every process reads it in full at its start, and applies what comes later."""

from dataclasses import replace
from typing import Final

from tocsin.log.port import EventLog, LogUnavailable, Reader, Record, TopicPartition, UnknownTopic
from tocsin.schemas import codec
from tocsin.schemas.records import Cluster, Queue, Switch
from tocsin.schemas.topics import TopicNames
from tocsin.streams.config import Configuration

CLUSTER_KEY: Final = b"cluster/main"
LOOK_AGAIN_S: Final = 1.0
"""How often the log is asked for the topics of a queue that came before them: on a remote log, each is a request."""


class NotInitialised(LookupError):
    """The log has no cluster record yet: `tocsin up` (or `tocsin topics create`) writes it."""


class NewerSchemaLevel(RuntimeError):
    """The log is written at a schema level that this version does not know. Upgrade this process."""


class OtherTimeZoneData(RuntimeError):
    """The log's schedules are computed with another version of the time-zone data than this process has."""

    def __init__(self, *, wanted: str, have: str) -> None:
        super().__init__(
            f"the processors of this log compute schedules with time-zone data {wanted}, and this one has {have}: install "
            f"the same version of `tzdata` on all of them. To change it, stop all stream processors; the first one that "
            f"starts again brings its version in"
        )


class ConfigurationReader:
    """The configuration as of the last poll. Used by one thread; `current` may be read by all."""

    def __init__(self, log: EventLog, names: TopicNames) -> None:
        """Reads everything up to the topic's end. Raises NotInitialised, or NewerSchemaLevel."""
        self._log = log
        self._names = names
        self._at = TopicPartition(names.config, 0)
        self._reader = log.reader("committed")
        self._reader.assign({self._at: log.begin_offset(self._at)})
        self._current: Configuration | None = None
        self._early: dict[str, tuple[Queue, int]] = {}
        """Queues, each with the offset of its record, whose topics were not seen yet, or which stand before the cluster
        record (compaction keeps the newest of each key, so that one may come last)."""
        self._look_again_s = 0.0
        self._unknown_cluster = False
        try:
            self._read_all()
        except BaseException:
            self._reader.close()
            raise

    @property
    def current(self) -> Configuration:
        assert self._current is not None
        return self._current

    @property
    def readers(self) -> tuple[Reader, ...]:
        """To wait for."""
        return (self._reader,)

    def check(self, tzdata: str) -> None:
        """Whether a stream processor with this version of the time-zone data may work by what was applied.

        Raises NewerSchemaLevel or OtherTimeZoneData: then it must stop before it folds anything more.
        """
        cluster = self.current.cluster
        if self._unknown_cluster:
            raise self._newer()
        if cluster.schema_level > codec.SCHEMA_LEVEL:
            raise NewerSchemaLevel(
                f"the log is written at schema level {cluster.schema_level}, this version knows {codec.SCHEMA_LEVEL}: "
                "upgrade it"
            )
        if cluster.tzdata != tzdata:
            raise OtherTimeZoneData(wanted=cluster.tzdata, have=tzdata)

    def poll(self, now_s: float) -> Configuration:
        """Apply what has come, without waiting. `now_s`: the steady clock."""
        self._read(0.0)
        if self._early and now_s >= self._look_again_s:
            self._look_again_s = now_s + LOOK_AGAIN_S
            self._apply_early()
        return self.current

    def _read_all(self) -> None:
        names = self._names
        end = self._log.end_offset(self._at, "committed")
        while self._reader.position(self._at) < end:
            self._read(0.1)
        if self._unknown_cluster:
            raise self._newer()
        if self._current is None:
            raise NotInitialised(
                f"{names.config} holds no cluster record: start `tocsin up` once, which writes it"
            )

    def _newer(self) -> NewerSchemaLevel:
        return NewerSchemaLevel(
            f"the cluster record on {self._names.config} is of a schema that this version does not know: a newer one "
            "wrote it; upgrade this process"
        )

    def _read(self, timeout_s: float) -> None:
        for record in self._reader.poll(1_000, timeout_s):
            if record.value is None:
                continue
            try:
                value = codec.decode(record.value)
            except codec.CodecError as error:
                self._pass_over(record, error)
                continue
            if isinstance(value, (Cluster, Queue, Switch)):
                self._apply(value, record.offset)

    def _pass_over(self, record: Record, error: codec.CodecError) -> None:
        """What cannot be read changes nothing. But without the cluster record nobody knows how to write here."""
        if record.key == CLUSTER_KEY and isinstance(error, codec.UnknownSchema):
            self._unknown_cluster = True

    def _apply(self, value: Cluster | Queue | Switch, offset: int) -> None:
        current = self._current
        if isinstance(value, Cluster):
            self._unknown_cluster = False
            if current is None:
                self._current = Configuration(cluster=value, offset=offset + 1)
                self._apply_early()
                return
        elif isinstance(value, Queue):
            self._early.pop(value.name, None)
            if current is None or not self._usable(value):
                if current is None or not value.deleted:
                    self._early[value.name] = (value, offset)
                return
        if current is not None:
            after = current.with_record(value, offset)
            self._current = replace(after, offset=max(after.offset, current.offset))

    def _apply_early(self) -> None:
        for queue, offset in list(self._early.values()):
            self._apply(queue, offset)

    def _usable(self, queue: Queue) -> bool:
        """Nothing is ever produced to a topic that was not seen to exist."""
        assert self._current is not None
        if queue.deleted and queue.name in self._current.queues:
            return True
        names = self._names
        try:
            return all(
                self._log.partitions(topic) == queue.partitions
                for topic in (names.due(queue.name), names.due_now(queue.name), names.control(queue.name))
            )
        except (UnknownTopic, LogUnavailable):
            return False  # it is looked at again

    def close(self) -> None:
        self._reader.close()
