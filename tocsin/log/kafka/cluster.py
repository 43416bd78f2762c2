"""Questions to the cluster, answered within a limit or LogUnavailable: topics and groups. Used by many threads."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, admin

from tocsin.clock import Clock
from tocsin.log.kafka import codes
from tocsin.log.kafka.client_logs import Troubles
from tocsin.log.kafka.config import KafkaConfig
from tocsin.log.kafka.errors import error_of, few, is_refusal, to_log_error, to_unavailable
from tocsin.log.kafka.settings import REQUEST_S, options_for
from tocsin.log.port import LogUnavailable, Member, TopicPartition

_ADMIN: Any = admin
"""It hands its names on without saying so, which mypy does not accept."""

AGAIN_S: Final = 0.05
"""After an answer that another one is expected to follow: a leader is being elected, a coordinator is loading."""

REFUSAL_S: Final = 0.2
"""How often it is looked whether brokers refuse us, while an answer is awaited."""

NEVER_S: Final = 3_600.0
"""Requests of the admin client have no time-out in librdkafka, where one that passes may end the process when the broker
is back; see _describing(). We stop waiting ourselves."""

METADATA_ATTEMPT_S: Final = 1.0
"""How long one attempt waits for metadata, doubled each time: in between it is looked whether brokers refuse us."""

DESCRIBE_AGAIN_S: Final = 3.0
DESCRIBE_AGAIN_MAX_S: Final = 30.0
"""One that was sent to a broker that has died since may never be answered, but another one is: after 3 s, then ever more
seldom, so that an hour without brokers does not leave a thousand of them."""

_Key = TypeVar("_Key")

_TRANSIENT: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REPLICA_NOT_AVAILABLE,
        codes.TRANSPORT,
        codes.ALL_BROKERS_DOWN,
        codes.WAIT_COORD,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the cluster has it."""

    partitions: int
    replication: int
    has_leaders: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A topic to create."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


class Cluster:
    """One connection for questions, shared by all threads of a log."""

    def __init__(self, config: KafkaConfig, clock: Clock, troubles: Troubles) -> None:
        self._clock = clock
        self._troubles = troubles
        self._closed = Event()
        self._lock = Lock()
        self._descriptions: dict[str, tuple[float, float, Future[Any]]] = {}
        """By group: when the next one is sent though this one is not answered, how long after it, and this one."""
        self._admin = admin.AdminClient(options_for(config) | troubles.options())

    # --- topics -----------------------------------------------------------------------------------------------------

    def brokers(self, timeout_s: float = REQUEST_S) -> int:
        """How many brokers are up. Raises LogUnavailable."""
        return len(self._metadata("reach Kafka", None, timeout_s).brokers)

    def counts(self) -> dict[str, int]:
        """All topics, those of Kafka itself excepted, with their numbers of partitions."""
        topics = self._metadata("list the topics").topics
        return {
            name: len(topic.partitions)
            for name, topic in topics.items()
            if topic.error is None and not name.startswith("__")
        }

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """These topics, as far as they exist."""
        wanted = list(names)
        if not wanted:
            return {}
        doing = f"describe {few(wanted)}"
        found = self._metadata(doing, wanted[0] if len(wanted) == 1 else None).topics
        known = {name: found[name] for name in wanted if name in found}
        for topic in known.values():
            if topic.error is not None and is_refusal(topic.error.code()):
                raise to_log_error(topic.error, doing, self._troubles.explain)
        return {
            name: Topic(
                partitions=len(topic.partitions),
                replication=min(len(p.replicas) for p in topic.partitions.values()),
                has_leaders=all(p.leader >= 0 for p in topic.partitions.values()),
            )
            for name, topic in known.items()
            if topic.partitions
        }

    def _metadata(self, doing: str, topic: str | None = None, timeout_s: float = REQUEST_S) -> Any:
        """Of one topic, or of all.

        Not by describe_cluster() and describe_topics(): the answer of a broker that is just starting, which names no
        broker, ends the process there (librdkafka 2.16, the assertion rko_result fails in rd_kafka_admin_response_parse;
        found by killing brokers).
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        attempt_s = METADATA_ATTEMPT_S
        while True:
            left_s = max(deadline_s - self._clock.monotonic_s(), 0.1)
            try:
                found = self._admin.list_topics(topic, timeout=min(left_s, attempt_s))
            except KafkaException as exception:
                failure = error_of(exception)
            else:
                if found.brokers:
                    return found
                failure = KafkaError(codes.TRANSPORT, "the broker is just starting")
            self._admin.poll(0)  # hands over what librdkafka has to say
            refused = self._troubles.refused
            if (
                refused is not None
                or self._closed.is_set()
                or self._clock.monotonic_s() + AGAIN_S >= deadline_s
            ):
                raise to_unavailable(refused or failure, doing, self._troubles.explain)
            attempt_s *= 2
            self._closed.wait(AGAIN_S)

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """What the cluster applies to each of these topics, its defaults included."""
        resources = {_ADMIN.ConfigResource(_ADMIN.ResourceType.TOPIC, name): name for name in names}
        if not resources:
            return {}
        found = self._ask(
            f"read the settings of {few(resources.values())}",
            lambda _: self._admin.describe_configs(list(resources), request_timeout=NEVER_S),
            missing=frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART}),
        )
        return {
            resources[resource]: {entry.name: entry.value or "" for entry in entries.values()}
            for resource, entries in found.items()
        }

    def create(self, wanted: Iterable[Wanted], timeout_s: float) -> None:
        """Create these; one that exists by now is left as it is."""
        topics = [
            _ADMIN.NewTopic(each.name, each.partitions, each.replication, config=dict(each.settings))
            for each in wanted
        ]
        self._ask(
            f"create {few(topic.topic for topic in topics)}",
            lambda left_s: self._admin.create_topics(
                topics, request_timeout=NEVER_S, operation_timeout=left_s
            ),
            timeout_s,
            missing=frozenset({KafkaError.TOPIC_ALREADY_EXISTS}),
        )

    # --- groups -----------------------------------------------------------------------------------------------------

    def members(self, group: str) -> tuple[Member, ...]:
        found = self._ask(
            f"describe the group {group}",
            lambda _: self._describing(group),
            missing=frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID}),
            attempt_s=DESCRIBE_AGAIN_S,
        )
        return tuple(
            Member(
                client_id=member.client_id,
                partitions=frozenset(
                    TopicPartition(each.topic, each.partition)
                    for each in (member.assignment.topic_partitions if member.assignment else ())
                ),
            )
            for description in found.values()
            for member in description.members
        )

    def _describing(self, group: str) -> dict[str, "Future[Any]"]:
        """The one description of the group that is asked for at a time.

        It has no time-out of its own: when one passes before the group's coordinator is found, librdkafka 2.16 ends the
        process (the assertion eonce->refcnt > 0 fails in rd_kafka_enq_once_del_source_return, found by killing a broker).
        So we stop waiting, and it goes on.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            again_at_s, again_s, future = self._descriptions.get(group, (now_s, DESCRIBE_AGAIN_S, None))
            if future is None or future.done() or now_s >= again_at_s:
                is_late = future is not None and not future.done()
                again_s = min(2 * again_s, DESCRIBE_AGAIN_MAX_S) if is_late else DESCRIBE_AGAIN_S
                future = self._admin.describe_consumer_groups([group], request_timeout=NEVER_S)[group]
                self._descriptions[group] = (now_s + again_s, again_s, future)
            return {group: future}

    def close(self) -> None:
        self._closed.set()

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(
        self,
        doing: str,
        request: Callable[[float], Mapping[_Key, "Future[Any]"]],
        timeout_s: float = REQUEST_S,
        missing: frozenset[int] = frozenset(),
        attempt_s: float | None = None,
    ) -> dict[_Key, Any]:
        """The answers by key; what failed with a code in `missing` is left out. Transient failures are asked again, and
        what is not answered within `attempt_s`, if given."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = max(deadline_s - self._clock.monotonic_s(), 0.1)
            wait_s = left_s + 1.0 if attempt_s is None else min(left_s, attempt_s)
            answers, failure = self._answers(request(left_s), wait_s, missing)
            if failure is None:
                return answers
            refused = self._troubles.refused
            if refused is not None:
                raise to_log_error(refused, doing, self._troubles.explain)
            again = failure.code() in _TRANSIENT or (
                attempt_s is not None and failure.code() == codes.TIMED_OUT
            )
            if not again or self._closed.is_set() or self._clock.monotonic_s() + AGAIN_S >= deadline_s:
                raise to_log_error(failure, doing, self._troubles.explain)
            self._closed.wait(AGAIN_S)

    def _answers(
        self, asked: Mapping[_Key, "Future[Any]"], timeout_s: float, missing: frozenset[int]
    ) -> tuple[dict[_Key, Any], KafkaError | None]:
        """What was answered, and what failed."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        late: set[Future[Any]] = set(asked.values())
        while late and self._clock.monotonic_s() < deadline_s:
            late = wait(late, REFUSAL_S).not_done
            self._admin.poll(0)  # hands over what librdkafka has to say
            if late and self._troubles.refused is not None:
                break  # it would go on trying for the whole time
        answers: dict[_Key, Any] = {}
        failure: KafkaError | None = None
        for key, future in asked.items():
            if future in late:
                failure = KafkaError(codes.TIMED_OUT, f"no answer within {timeout_s:.0f} s")
                continue
            try:
                answers[key] = future.result()
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() not in missing:
                    failure = error
        return answers, failure

    def wait_until(self, done: Callable[[], bool], timeout_s: float, doing: str) -> None:
        """Ask again and again. Raises LogUnavailable."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while not done():
            if self._clock.monotonic_s() >= deadline_s or self._closed.wait(AGAIN_S):
                raise LogUnavailable(f"cannot {doing} within {timeout_s:.0f} s; {self._troubles.explain()}")
