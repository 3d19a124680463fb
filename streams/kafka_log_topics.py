"""The log's topics at the broker: made by `init_log`, compared by `check_log`, and the record that names the log."""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    TopicMetadata,
)

from commands.settings import FORMAT
from streams.kafka_log_clients import ANSWER_S, Clients, Settings, error_of, fault
from streams.kafka_log_follower import scan
from streams.kafka_log_offsets import Offsets
from streams.log_format import check_raise
from streams.port import RECORD_BYTES_MAX, LogMisconfigured, LogUnavailable, Topic

LOG_KEY: Final = "_log"
FIRST_ANSWER_S: Final = 5.0
"""How long the very first question waits: where nobody listens, people want to know."""
HOUR_MS: Final = 3_600_000
REQUIRED: Final[dict[str, str]] = {
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(RECORD_BYTES_MAX),
    "unclean.leader.election.enable": "false",
}
FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
WEEK: Final = FOR_EVER | {"retention.ms": str(7 * 24 * HOUR_MS)}
HOURS: Final = FOR_EVER | {"retention.ms": str(6 * HOUR_MS)}
BY_TOPIC: Final[dict[str, dict[str, str]]] = {
    Topic.COMMANDS: WEEK,
    Topic.REPORTS: WEEK,
    Topic.EVENTS: FOR_EVER,
    Topic.OUTCOMES: HOURS,
    "snapshots": {"cleanup.policy": "compact"},
}
# Given when a topic is made, not compared later: how soon old segments go.
AT_FIRST: Final[dict[str, Mapping[str, str]]] = {
    Topic.OUTCOMES: {"segment.ms": str(HOUR_MS)},
    "snapshots": {"segment.bytes": str(100 * 1024 * 1024), "min.cleanable.dirty.ratio": "0.3"},
}


@dataclass(slots=True, frozen=True)
class Found:
    """What is at the broker: brokers, and for each topic name its partitions and replicas (least of all)."""

    brokers: int
    partitions: dict[str, int]
    replicas: dict[str, int]


@dataclass(slots=True, frozen=True)
class LogName:
    """What the `_log` record says. `partitions` None: it was written before that was noted."""

    log_id: str
    format: int
    partitions: int | None = None


class _TopicUnknown(LogMisconfigured):
    """The broker that was asked does not know the topic, or not yet."""


def topic_names(clients: Clients) -> dict[str, str]:
    """Our word for each topic, and its name at the broker."""
    return {topic.value: clients.topic(topic) for topic in Topic} | {"snapshots": clients.snapshots}


def expected_settings(topic: str, replicas: int) -> dict[str, str]:
    """What the topic called `topic` in our words must be set to."""
    return REQUIRED | BY_TOPIC[topic] | {"min.insync.replicas": "2" if replicas >= 3 else "1"}


def find_topics(clients: Clients, admin: AdminClient) -> Found:
    """What is there now. Raises LogUnavailable."""
    try:
        metadata = admin.list_topics(timeout=FIRST_ANSWER_S)
    except KafkaException as failed:
        if error_of(failed).code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            raise LogUnavailable(
                f"Kafka at {clients.bootstrap} does not answer: start it, or correct log.at."
            ) from None
        raise fault(error_of(failed), f"asking {clients.bootstrap} for its topics") from None
    ours = {name: metadata.topics[name] for name in topic_names(clients).values() if name in metadata.topics}
    there = {name: topic for name, topic in ours.items() if topic.error is None and topic.partitions}
    return Found(
        len(metadata.brokers),
        {name: len(topic.partitions) for name, topic in there.items()},
        {name: _replicas(topic) for name, topic in there.items()},
    )


def _replicas(topic: TopicMetadata) -> int:
    return min(len(partition.replicas) for partition in topic.partitions.values())


def differences(clients: Clients, admin: AdminClient, found: Found, partitions: int | None) -> list[str]:
    """Each way in which topics are not what Fleetlog needs, one sentence each with what to do. `partitions`: those of
    the log, where its name says so; topics that were given more are no difference (`grown`)."""
    said: list[str] = []
    names = topic_names(clients)
    missing = [name for name in names.values() if name not in found.partitions]
    if missing:
        said.append(f"Topics are missing: {', '.join(missing)}; run {clients.init_command}.")
    counts = {found.partitions[name] for name in names.values() if name in found.partitions}
    if partitions is not None:
        few = [f"{name} {count}" for name, count in found.partitions.items() if count < partitions]
        if few:
            said.append(
                f"Topics have fewer partitions than the log, which has {partitions}: {', '.join(few)}; "
                f"delete them and run {init_with(clients, partitions)}."
            )
    elif len(counts) > 1:
        listed = ", ".join(f"{name} {found.partitions[name]}" for name in names.values() if name in found.partitions)
        said.append(
            f"Topics have different numbers of partitions ({listed}): a pool's records would part; "
            "make the log anew with `fleetlog log init` under another prefix."
        )
    for topic, name in names.items():
        if name in found.partitions:
            actual = _settings_of(admin, name)
            for setting, value in expected_settings(topic, found.replicas[name]).items():
                if actual.get(setting) != value:
                    said.append(
                        f"Topic {name} has {setting}={actual.get(setting)}, Fleetlog needs {value}: run "
                        f"kafka-configs.sh --bootstrap-server {clients.bootstrap} --alter --topic {name} "
                        f"--add-config {setting}={value}."
                    )
    return said


def grown(clients: Clients, found: Found, partitions: int | None) -> str | None:
    """What is to be said of topics that were given more partitions than the log has: the others are left alone."""
    if partitions is None:
        return None
    more = [f"{name} {count}" for name, count in found.partitions.items() if count > partitions]
    return grown_text(clients, more, partitions) if more else None


def grown_text(clients: Clients, more: Sequence[str], partitions: int) -> str:
    """The same for those in `more`, each with its number."""
    return (
        f"Topics have more partitions than the log, which has {partitions}: {', '.join(more)}; the others are left "
        f"alone. To be rid of them delete the topic and run {init_with(clients, partitions)}; with events or snapshots "
        "that would be another log: `fleetlog log export` it, and import it under another prefix"
    )


def init_with(clients: Clients, partitions: int) -> str:
    """The command that makes what is missing of a log with so many partitions."""
    return f"{clients.init_command[:-1]} --partitions {partitions}`"


def _settings_of(admin: AdminClient, name: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    try:
        entries = admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result()
    except KafkaException as failed:
        problem = fault(error_of(failed), f"reading the settings of {name}")
        if error_of(failed).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise _TopicUnknown(str(problem)) from None
        raise problem from None
    return {setting: entry.value for setting, entry in entries.items()}


def _are_known(clients: Clients, admin: AdminClient, partitions: int | None) -> bool:
    """Whether the topics are there and good. Brokers learn of new topics one after the other, and each question may go
    to another broker: one that does not know a topic yet says nothing. Raises LogMisconfigured, LogUnavailable."""
    found = find_topics(clients, admin)
    if len(found.partitions) < len(topic_names(clients)):
        return False
    try:
        said = differences(clients, admin, found, partitions)
    except _TopicUnknown:
        return False
    if said:
        raise LogMisconfigured(" ".join(said))
    return True


def require_good(clients: Clients, admin: AdminClient, offsets: Offsets) -> tuple[LogName, int]:
    """The log's name and number of partitions. Raises LogMisconfigured with every difference, LogUnavailable."""
    found = find_topics(clients, admin)
    name = read_name(clients, offsets) if clients.snapshots in found.partitions else None
    said = differences(clients, admin, found, name.partitions if name else None)
    if said:
        raise LogMisconfigured(" ".join(said))
    if name is None:
        raise LogMisconfigured(f"The topics of {clients.prefix} have no name yet: run {clients.init_command}.")
    return name, name.partitions or found.partitions[clients.snapshots]


# ---- the record that names the log ----


def read_name(clients: Clients, offsets: Offsets) -> LogName | None:
    """What the last `_log` record in `snapshots` says, None where there is none."""
    at, end = offsets.snapshots(0)
    newest = None
    for messages in scan(clients, at, end):
        for message in messages:
            if message.key() == LOG_KEY.encode() and message.value():
                newest = message.value()
    if newest is None:
        return None
    said = json.loads(newest)
    return LogName(said["log_id"], said["format"], said.get("partitions"))


def require_name(clients: Clients, offsets: Offsets) -> LogName:
    """The name of the log. Raises LogMisconfigured where `log init` did not come to its end."""
    name = read_name(clients, offsets)
    if name is None:
        raise LogMisconfigured(f"The topics of {clients.prefix} have no name yet: run {clients.init_command}.")
    return name


def raise_name(clients: Clients, offsets: Offsets, to: int) -> LogName:
    """The log's name with a higher format, once readers see it. Raises LogMisconfigured, LogUnavailable."""
    name = require_name(clients, offsets)
    check_raise(name.format, to)
    return name if to == name.format else _write_name(clients, offsets, LogName(name.log_id, to, name.partitions))


def _write_name(clients: Clients, offsets: Offsets, change: LogName | None, partitions: int | None = None) -> LogName:
    """Writes the `_log` record: `change`, or a new name where there is none. One process at a time: the last to
    initialise fences the others before anybody reads."""
    producer = clients.transactional("log-name")
    try:
        producer.init_transactions(ANSWER_S)
        name = change or read_name(clients, offsets)
        if name is None or change is not None:
            name = name or LogName(str(uuid.uuid4()), FORMAT, partitions)
            said = {"v": 1, "log_id": name.log_id, "format": name.format, "partitions": name.partitions}
            value = json.dumps({field: value for field, value in said.items() if value is not None}).encode()
            producer.begin_transaction()
            producer.produce(clients.snapshots, value, LOG_KEY, 0)
            producer.commit_transaction(ANSWER_S)
    except KafkaException as failed:
        raise fault(error_of(failed), "naming the log") from None
    # A commit is answered a moment before readers see it.
    _wait_until(lambda: read_name(clients, offsets) == name, "named the log but does not show the name yet")
    return name


def _wait_until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + ANSWER_S
    while not true():
        if time.monotonic() > give_up:
            raise LogUnavailable(f"Kafka {what}: run `fleetlog log init` again.")
        time.sleep(0.05)


# ---- what the command line calls ----


def init_log(
    bootstrap: str,
    prefix: str = "fleetlog",
    partitions: int = 12,
    replication: int | None = None,
    kafka_settings: Settings | None = None,
) -> str:
    """Makes what is missing of the topics, names the log, and gives its id; again it changes nothing.

    `replication`: 3 where there are three brokers or more, else 1. Raises LogMisconfigured where topics are there
    that are not what Fleetlog needs (also with another number of partitions than asked for), LogUnavailable.
    """
    clients = Clients(bootstrap, prefix, kafka_settings or {})
    admin = clients.admin()
    found = find_topics(clients, admin)
    offsets = Offsets(clients)
    named = read_name(clients, offsets) if clients.snapshots in found.partitions else None
    noted = named.partitions if named else None
    if noted not in (None, partitions):
        raise LogMisconfigured(
            f"The log of {prefix} has {noted} partitions, asked for are {partitions}: their number is fixed; "
            f"ask for {noted}, or use another prefix."
        )
    for name, count in found.partitions.items():
        if count != partitions and not (noted and count > noted):
            raise LogMisconfigured(
                f"Topic {name} has {count} partitions already, asked for are {partitions}: their number is fixed; "
                f"ask for {count}, or use another prefix."
            )
    copies = replication or (3 if found.brokers >= 3 else 1)
    if copies > found.brokers:
        raise LogMisconfigured(f"{copies} replicas need {copies} brokers, {found.brokers} answered: ask for fewer.")
    new = [
        NewTopic(name, partitions, copies, config={**expected_settings(topic, copies), **AT_FIRST.get(topic, {})})
        for topic, name in topic_names(clients).items()
        if name not in found.partitions
    ]
    for name, made in admin.create_topics(new, request_timeout=ANSWER_S).items() if new else ():
        try:
            made.result()
        except KafkaException as failed:
            if error_of(failed).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise fault(error_of(failed), f"making topic {name}") from None
    _wait_until(lambda: _are_known(clients, admin, noted), "made the topics but does not show them yet")
    return _write_name(clients, offsets, None, partitions).log_id


def check_log(bootstrap: str, prefix: str = "fleetlog", kafka_settings: Settings | None = None) -> list[str]:
    """Every difference between the topics and what Fleetlog needs, one sentence each with what to do; [] if none.

    Raises LogUnavailable, and LogMisconfigured where the broker may not be asked.
    """
    clients = Clients(bootstrap, prefix, kafka_settings or {})
    admin = clients.admin()
    found = find_topics(clients, admin)
    there = clients.snapshots in found.partitions
    name = read_name(clients, Offsets(clients)) if there else None
    partitions = name.partitions if name else None
    said = differences(clients, admin, found, partitions)
    more = grown(clients, found, partitions)
    if more is not None:
        said.append(f"{more}.")
    if there and name is None:
        said.append(f"The log of {prefix} has no name yet: run {clients.init_command}.")
    return said
