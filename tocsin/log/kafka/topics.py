"""What topics there are, how they are made, and what is wrong with those that were made otherwise."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from tocsin.clock import Clock
from tocsin.log.kafka.cluster import Cluster, Topic, Wanted
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.errors import LogRefused, few
from tocsin.log.kafka.settings import CREATE_TOPICS_S
from tocsin.log.port import LogUnavailable, TopicMismatch, TopicPartition, TopicSpec, UnknownTopic
from tocsin.schemas.topics import DAY_MS

KNOWN_FOR_S: Final = 60.0
"""How long it is believed that a topic is still as it was seen. Nothing here deletes topics."""

RESTORED_RETENTION_MAX_MS: Final = 8 * DAY_MS
"""Compacted topics that keep records for ever, or no longer than this, are read from the start to restore what they hold:
small segments keep little of them from the cleaner. The long archives (runs, dead letters) keep large ones, since a
thousand segments a day of each partition would cost the broker its file handles."""

SEGMENT_BYTES: Final = 64 * 1024 * 1024
DIRTY_RATIO: Final = "0.2"
LAG_AFTER_MS: Final = DAY_MS
"""How long after the least lag the cleaner must have come by, if a topic does not say. Without a greatest lag a record
stays uncompacted as long as its segment is the active one."""

MAX_MESSAGE_BYTES: Final = 1_048_588

ADVICE: Final = frozenset(
    {
        "min.insync.replicas",
        "segment.bytes",
        "min.cleanable.dirty.ratio",
        "retention.bytes",
        "unclean.leader.election.enable",
    }
)
"""Settings that an operator may have set otherwise with reason: `verify` tells them, and no start is refused for them."""


def settings_of(spec: TopicSpec) -> dict[str, str]:
    """The settings that a topic is created with, but for those that follow from the number of brokers."""
    compacted = "compact" in spec.cleanup
    settings = {
        "cleanup.policy": spec.cleanup,
        # The log's clock orders edits and occurrences; a producer with a wrong clock is neither refused nor believed.
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1" if spec.retention_ms is None else str(spec.retention_ms),
        # A default of the cluster's must not take records early, or refuse large ones.
        "retention.bytes": "-1",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "unclean.leader.election.enable": "false",
    }
    if compacted:
        settings |= {
            "min.compaction.lag.ms": str(spec.min_compaction_lag_ms),
            "max.compaction.lag.ms": str(
                spec.max_compaction_lag_ms or spec.min_compaction_lag_ms + LAG_AFTER_MS
            ),
            "delete.retention.ms": str(spec.delete_retention_ms),
        }
        if spec.retention_ms is None or spec.retention_ms <= RESTORED_RETENTION_MAX_MS:
            settings |= {"segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": DIRTY_RATIO}
    if spec.segment_ms is not None:
        settings["segment.ms"] = str(spec.segment_ms)
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    partitions: int
    cleanup: str
    seen_s: float


class Topics:
    """The topics of one cluster, remembered for a while. Used by many threads."""

    def __init__(self, config: KafkaConfig, clock: Clock, cluster: Cluster) -> None:
        self._replication = config.replication
        self._bootstrap = config.bootstrap
        self._clock = clock
        self._cluster = cluster
        self._lock = Lock()
        self._known: dict[str, _Known] = {}

    # --- what there is ------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        return self._look(topic).partitions

    def check(self, where: TopicPartition) -> str:
        """The topic's cleanup policy. Raises UnknownTopic; partitions that were added lately are looked for."""
        known = self._known.get(where.topic)
        if known is None or not 0 <= where.partition < known.partitions or self._is_old(known):
            known = self._look(where.topic, again=known is not None and where.partition >= known.partitions)
        if not 0 <= where.partition < known.partitions:
            raise UnknownTopic(
                f"topic {where.topic} has the partitions 0 to {known.partitions - 1}, not {where.partition}"
            )
        return known.cleanup

    def _is_old(self, known: _Known) -> bool:
        return self._clock.monotonic_s() - known.seen_s > KNOWN_FOR_S

    def _look(self, topic: str, *, again: bool = False) -> _Known:
        known = self._known.get(topic)
        if known is not None and not again and not self._is_old(known):
            return known
        try:
            found = self._cluster.describe([topic]).get(topic)
        except LogUnavailable:
            if known is None or again:
                raise
            # What was known a minute ago is better than nothing; the log itself will say whether it is there.
            return self._remember(topic, known.partitions, known.cleanup)
        if found is None:
            with self._lock:
                self._known.pop(topic, None)
            raise UnknownTopic(f"topic {topic} does not exist: `tocsin topics create` makes what is missing")
        cleanup = known.cleanup if known is not None else self._cleanup_of(topic)
        return self._remember(topic, found.partitions, cleanup)

    def _cleanup_of(self, topic: str) -> str:
        """Whoever may write to a topic need not be allowed to see its settings: then the broker refuses what it must."""
        try:
            settings = self._cluster.settings([topic]).get(topic, {})
        except LogRefused:
            return "delete"
        return settings.get("cleanup.policy", "delete")

    def _remember(self, topic: str, partitions: int, cleanup: str) -> _Known:
        known = _Known(partitions=partitions, cleanup=cleanup, seen_s=self._clock.monotonic_s())
        with self._lock:
            self._known[topic] = known
        return known

    # --- making and verifying -----------------------------------------------------------------------------------------

    def create(self, specs: Iterable[TopicSpec]) -> None:
        """See EventLog.create_topics. Nothing is created if one of them exists otherwise."""
        wanted = {spec.name: spec for spec in specs}
        wrong = [
            f"topic {s.name}: partitions must be at least 1" for s in wanted.values() if s.partitions < 1
        ]
        have = self._cluster.describe(wanted)
        wrong += self._mismatches([wanted[name] for name in have], have, advice=False)
        if wrong:
            raise TopicMismatch("\n".join(wrong))
        missing = [spec for name, spec in wanted.items() if name not in have]
        if missing:
            made = self._create(missing)
            # Somebody else may have created some of them at the same time, in another way.
            wrong = self._mismatches(missing, made, advice=False)
            if wrong:
                raise TopicMismatch("\n".join(wrong))
        for name, spec in wanted.items():
            self._remember(name, spec.partitions, spec.cleanup)

    def _create(self, missing: list[TopicSpec]) -> dict[str, Topic]:
        """As they were made. Each broker learns of a topic in its own time: one that has told of it may be followed by one
        that has not heard of it yet, so that a complete answer is kept."""
        replication = self._target_replication()
        in_sync = {"min.insync.replicas": str(_in_sync(replication))}
        self._cluster.create(
            [
                Wanted(
                    name=spec.name,
                    partitions=spec.partitions,
                    replication=replication,
                    settings=settings_of(spec) | in_sync,
                )
                for spec in missing
            ],
            CREATE_TOPICS_S,
        )
        names = [spec.name for spec in missing]
        made: dict[str, Topic] = {}

        def have_leaders() -> bool:
            made.update(self._cluster.describe(names))
            return len(made) == len(names) and all(topic.has_leaders for topic in made.values())

        self._cluster.wait_until(have_leaders, CREATE_TOPICS_S, "see leaders for the new topics")
        return made

    def differences(self, specs: Iterable[TopicSpec]) -> list[str]:
        """What differs from the specifications, as sentences; [] if all is as specified."""
        wanted = {spec.name: spec for spec in specs}
        have = self._cluster.describe(wanted)
        missing = [
            f"Topic {name} does not exist: `tocsin topics create` makes it."
            for name in wanted
            if name not in have
        ]
        return missing + self._mismatches([wanted[name] for name in have], have, advice=True)

    def _mismatches(self, specs: list[TopicSpec], have: Mapping[str, Topic], *, advice: bool) -> list[str]:
        settings = self._settings([spec.name for spec in specs])
        replication = self._target_replication() if advice and specs else 0
        found = []
        for spec in specs:
            topic = have[spec.name]
            if topic.partitions != spec.partitions:
                found.append(
                    f"Topic {spec.name} has {topic.partitions} partitions, not {spec.partitions}: keys would move, so "
                    f"the number cannot be changed in place."
                )
            wanted = settings_of(spec)
            if advice:
                wanted["min.insync.replicas"] = str(_in_sync(min(replication, topic.replication)))
                if topic.replication < replication:
                    found.append(
                        f"Topic {spec.name} has {topic.replication} replicas, not {replication}: with one fewer broker it "
                        f"may be unreadable or lost."
                    )
            found += [
                f"Topic {spec.name} has {name}={settings[spec.name].get(name, '')}, not {value}: set it with "
                f"`kafka-configs --bootstrap-server {self._bootstrap} --alter --entity-type topics "
                f"--entity-name {spec.name} --add-config {name}={_argument(value)}`."
                for name, value in wanted.items()
                if (advice or name not in ADVICE) and not _equal(settings[spec.name].get(name, ""), value)
            ]
        return found

    def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Of topics that exist, though a broker may not have heard of each yet."""
        found: dict[str, dict[str, str]] = {}

        def complete() -> bool:
            found.update(self._cluster.settings([name for name in names if name not in found]))
            return len(found) == len(names)

        self._cluster.wait_until(complete, CREATE_TOPICS_S, f"read the settings of {few(names)}")
        return found

    def _target_replication(self) -> int:
        return self._replication or min(3, self._cluster.brokers())


def _in_sync(replication: int) -> int:
    """With three replicas one may be away and nothing that was acknowledged is on one disk alone."""
    return 2 if replication >= 3 else 1


def _equal(have: str, want: str) -> bool:
    """Kafka gives a list back in any order, and a number as it likes."""
    if "," in want:
        return set(have.split(",")) == set(want.split(","))
    try:
        return float(have) == float(want)
    except ValueError:
        return have == want


def _argument(value: str) -> str:
    return f"[{value}]" if "," in value else value
