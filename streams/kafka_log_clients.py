"""Kafka clients of one log: names, settings by role, librdkafka's own lines, and its errors in our words."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient

from streams.port import (
    RECORD_BYTES_MAX,
    Headers,
    LogBusy,
    LogFault,
    LogMisconfigured,
    LogUnavailable,
    RecordTooLarge,
    Topic,
)

logging.getLogger("fleetlog").addHandler(logging.NullHandler())
LOGGER: Final = logging.getLogger("fleetlog.kafka")

Settings = Mapping[str, str]
Client = TypeVar("Client", AdminClient, Consumer, Producer)

ANSWER_S: Final = 10.0
"""How long a question to the broker may take before it counts as unanswered."""
TRANSACTION_MS: Final = 10_000
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_500
RECORD_FRAME_BYTES: Final = 160
"""What Kafka's batch and record frames add to one record at most, headers' lengths aside."""
HEADER_FRAME_BYTES: Final = 10

FORGETS_BROKERS: Final = 0x020A0000
"""From librdkafka 2.10 on, a client forgets the brokers that an answer does not name: decision 0019."""

COMMON: Final[dict[str, Any]] = {
    "socket.keepalive.enable": True,
    # After a restart of the broker all flows again within a second, not within librdkafka's ten.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "log.connection.close": False,
    "enable.metrics.push": False,
}
if libversion()[1] >= FORGETS_BROKERS:
    # Where no broker answers, the default begins at the bootstrap again, and questions to a coordinator that is still
    # remembered then hang for ever (librdkafka issues 5456 and 5511).
    COMMON["metadata.recovery.strategy"] = "none"
PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "message.max.bytes": RECORD_BYTES_MAX,
}
APPENDING: Final[dict[str, Any]] = {
    "linger.ms": 0,
    "message.timeout.ms": 30_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 262_144,
}
KEEPING: Final[dict[str, Any]] = {
    # Written twice is written once on a compacted topic, and a producer without numbering is ready at once.
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
    "message.timeout.ms": 30_000,
    "linger.ms": 0,
}
OWNING: Final[dict[str, Any]] = {
    "transaction.timeout.ms": TRANSACTION_MS,
    # A transaction that begins while the former's markers are being written is refused, and tried again after this:
    # librdkafka's default of 100 makes batches that follow each other closely take that long.
    "retry.backoff.ms": 5,
    # A commit flushes at once, whatever this says; until then records gather into large batches.
    "linger.ms": 5,
    # The batch is in memory already and its size is the caller's: the producer's queue is no second bound.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
}
CONSUMER: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    # librdkafka's default postpones a partition's next fetch by a whole second once enough is queued.
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 32_768,
}
FOLLOWING: Final[dict[str, Any]] = {"enable.partition.eof": True, "queued.min.messages": 50_000}
READING_ONE: Final[dict[str, Any]] = {
    # It is polled only while somebody waits for a record, and what fails is raised to them.
    "log_level": 0,
    "enable.partition.eof": True,
    "queued.min.messages": 100,
    "fetch.message.max.bytes": 65_536,
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 1,
}
MEMBER: Final[dict[str, Any]] = {
    # Range takes everything anew at each rebalance; with this one, owners that keep a partition go on.
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "max.poll.interval.ms": 30_000,
    "queued.min.messages": 20_000,
}
OURS: Final = frozenset(
    {"bootstrap.servers", "client.id", "group.id", "transactional.id", "log_level", "log.queue"}
    | COMMON.keys()
    | PRODUCER.keys()
    | APPENDING.keys()
    | KEEPING.keys()
    | OWNING.keys()
    | CONSUMER.keys()
    | FOLLOWING.keys()
    | READING_ONE.keys()
    | MEMBER.keys()
)
"""What Fleetlog sets itself: refused by name in `log.kafka.*`."""


@dataclass(slots=True, frozen=True)
class Clients:
    """Makes the clients of the log whose topics begin with `prefix`.

    `settings` go to librdkafka as they are (`log.kafka.*`); LogMisconfigured names those that are ours or unknown.
    """

    bootstrap: str
    prefix: str
    settings: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.settings:
            if name in OURS:
                raise LogMisconfigured(f"log.kafka.{name} is set by Fleetlog itself: take it out of the settings.")

    @property
    def init_command(self) -> str:
        """What makes the log where it is missing."""
        prefix = "" if self.prefix == "fleetlog" else f" --set log.prefix={self.prefix}"
        return f"`fleetlog log init --kafka {self.bootstrap}{prefix}`"

    def topic(self, topic: Topic) -> str:
        """The topic's name at the broker."""
        return f"{self.prefix}.{topic.value}"

    @property
    def snapshots(self) -> str:
        """The name of the compacted topic of snapshots."""
        return f"{self.prefix}.snapshots"

    @property
    def owners(self) -> str:
        """The consumer group of the owners; their input positions are committed in its name."""
        return f"{self.prefix}-owners"

    def at(self, topic: Topic, partition: int, offset: int = 0) -> TopicPartition:
        """librdkafka's triple of topic, partition and offset."""
        return TopicPartition(self.topic(topic), partition, offset)

    def admin(self) -> AdminClient:
        """A client for topics and their settings. It says nothing itself: what fails is raised at the question."""
        return self._made(AdminClient, {**COMMON, "log_level": 0})

    def appender(self) -> Producer:
        """A producer for single records."""
        return self._made(Producer, {**COMMON, **PRODUCER, **APPENDING})

    def keeper(self) -> Producer:
        """A producer for the records of snapshots, in order."""
        return self._made(Producer, {**COMMON, **PRODUCER, **KEEPING})

    def transactional(self, identity: str) -> Producer:
        """A producer of transactions; whoever initialises `identity` later fences it."""
        return self._made(Producer, {**COMMON, **PRODUCER, **OWNING, "transactional.id": f"{self.prefix}-{identity}"})

    def follower(self) -> Consumer:
        """A consumer for whole partitions, of no group."""
        return self._made(Consumer, {**COMMON, **CONSUMER, **FOLLOWING, "group.id": f"{self.prefix}-no-group"})

    def scanner(self) -> Consumer:
        """A consumer that reads one partition to its end, of no group; it learns soon that it is there."""
        role = {**COMMON, **CONSUMER, **FOLLOWING, "fetch.wait.max.ms": 5, "group.id": f"{self.prefix}-no-group"}
        return self._made(Consumer, role)

    def reader(self) -> Consumer:
        """A consumer for single records, of no group; it fetches little beyond them."""
        return self._made(Consumer, {**COMMON, **CONSUMER, **READING_ONE, "group.id": f"{self.prefix}-no-group"})

    def asker(self, isolation: str) -> Consumer:
        """A consumer that only asks for offsets, in the owners' name; what fails is raised at the question."""
        role = {**COMMON, **CONSUMER, "isolation.level": isolation, "group.id": self.owners, "log_level": 0}
        return self._made(Consumer, role)

    def member(self, name: str) -> Consumer:
        """A consumer that may join the owners as `name`."""
        return self._made(Consumer, {**COMMON, **CONSUMER, **MEMBER, "group.id": self.owners, "client.id": name})

    def _made(self, kind: type[Client], role: Mapping[str, Any]) -> Client:
        try:
            return kind({"bootstrap.servers": self.bootstrap, **role, **self.settings}, logger=LOGGER)
        except KafkaException as refused:
            error = error_of(refused)
            raise LogMisconfigured(
                f"librdkafka takes these settings not: {error.str()}: correct log.at or log.kafka.*."
            ) from None


def require_fitting(key: str, value: bytes, headers: Headers) -> None:
    """Raises RecordTooLarge where value, key, headers and Kafka's frames together pass what the topics take."""
    size = RECORD_FRAME_BYTES + len(key.encode()) + len(value)
    for name, content in headers:
        size += HEADER_FRAME_BYTES + len(name) + len(content)
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(f"A record of {size} bytes with its frame is larger than the {RECORD_BYTES_MAX} taken.")


NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
PASSING: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
        KafkaError._DESTROY,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)


def error_of(raised: KafkaException) -> KafkaError:
    """The error inside librdkafka's exception."""
    error: KafkaError = raised.args[0]
    return error


def passes(error: KafkaError) -> bool:
    """Whether the same call may succeed later."""
    return error.code() in PASSING or error.retriable()


def fault(error: KafkaError, doing: str) -> LogFault:
    """librdkafka's error in the port's words; `doing` says what was tried ("reading events 3")."""
    code, text = error.code(), error.str()
    if code in NOT_ALLOWED:
        return LogMisconfigured(f"Kafka refused {doing}: {text}: correct log.kafka.* or give this user the right.")
    if code in MISSING:
        return LogMisconfigured(
            f"Kafka has no such topic or partition ({doing}): `fleetlog log check --kafka ...` says more."
        )
    if code in TOO_LARGE:
        return RecordTooLarge(f"Kafka found a record too large ({doing}): {text}.")
    if code == KafkaError._QUEUE_FULL:
        return LogBusy(f"Too much waits to be written ({doing}): send later.")
    if passes(error):
        return LogUnavailable(f"Kafka does not answer ({doing}): {text}; the same call may succeed later.")
    return LogFault(f"Kafka failed ({doing}): {error.name()}: {text}.")


def in_time(call: Callable[[], None], seconds: float) -> bool:
    """Whether `call`, which should end within so many seconds by itself, did so within twice the time; what it raised
    is raised here. Otherwise its thread goes on alone."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failed:
            raised.append(failed)

    thread = threading.Thread(target=run, name="kafka call", daemon=True)
    thread.start()
    thread.join(2 * seconds)
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True
