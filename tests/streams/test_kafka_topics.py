"""The log's topics: made once, compared at each start, differences named with what to do; and snapshots' own rules."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from commands.settings import FORMAT
from streams import kafka_log_follower, kafka_log_offsets, kafka_log_snapshots, kafka_log_watch
from streams.kafka_log import KafkaLog, check_log, init_log
from streams.kafka_log_clients import OURS, Clients
from streams.kafka_log_follower import KafkaFollower
from streams.kafka_log_topics import topic_names
from streams.port import (
    CHUNK_BYTES_MAX,
    Fenced,
    LogFault,
    LogMisconfigured,
    LogState,
    LogUnavailable,
    MadeAnew,
    Output,
    RecordTooLarge,
    SeatLost,
    Topic,
)
from tests.streams.contract import CEILING_S, Acks, Members, snapshot
from tests.support.broker import Broker
from tests.support.kafka_owners import wait_until
from tests.support.kafka_settings import TOPIC, change_settings
from tests.support.kafka_site import KafkaSite, held
from tests.support.ports import free_port
from tests.support.proxy import KafkaProxy


@pytest.fixture
def prefix() -> str:
    return f"topics-{uuid.uuid4().hex[:12]}"


def create(clients: Clients, name: str, partitions: int) -> None:
    admin = clients.admin()
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    wait_until(lambda: name in admin.list_topics(timeout=CEILING_S).topics, "the topic")


def test_a_log_is_made_once(broker: Broker, prefix: str) -> None:
    """Made again, also by several at once, it keeps its name; the check finds nothing; every opening sees the same."""
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(init_or_wait, broker.address, prefix) for _ in range(4)]
        names = {one.result(CEILING_S) for one in made}
    assert len(names) == 1
    assert init_log(broker.address, prefix, 2) in names
    assert check_log(broker.address, prefix) == []
    log = KafkaLog(broker.address, prefix)
    assert {log.log_id} == names
    assert (log.format, log.partitions) == (FORMAT, 2)
    log.close()


def init_or_wait(address: str, prefix: str) -> str:
    """`init_log`, again where another one is at it."""
    while True:
        try:
            return init_log(address, prefix, 2)
        except LogFault:
            time.sleep(0.1)


class SlowToLearn:
    """The admin of a cluster in which each new topic is unknown to the broker that is asked first."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.asked: set[str] = set()

    def describe_configs(self, resources: list[ConfigResource], **more: object) -> object:
        """Of a name that does not exist, the first time."""
        (resource,) = resources
        if resource.name in self.asked:
            return self._admin.describe_configs(resources, **more)
        self.asked.add(resource.name)
        elsewhere = ConfigResource(ConfigResource.Type.TOPIC, f"not-{resource.name}")
        return {resource: self._admin.describe_configs([elsewhere], **more)[elsewhere]}

    def __getattr__(self, name: str) -> object:
        return getattr(self._admin, name)


def test_brokers_learn_of_new_topics_one_after_the_other(
    broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on three brokers: the one that is asked for the settings of a new topic does not know it yet. It is asked
    again; only a check by itself says that the topic is not there."""
    plain = Clients.admin
    monkeypatch.setattr(Clients, "admin", lambda clients: SlowToLearn(plain(clients)))
    assert init_log(broker.address, prefix, 2)
    with pytest.raises(LogMisconfigured, match="no such topic or partition"):
        check_log(broker.address, prefix)


def test_every_difference_is_named_with_what_to_do(broker: Broker, prefix: str) -> None:
    """Retention of events, compaction, time stamps, sizes: one sentence each; opening refuses with all of them."""
    init_log(broker.address, prefix, 2)
    clients = Clients(broker.address, prefix)
    change_settings(clients.admin(), TOPIC, f"{prefix}.events", {"retention.ms": "1000", "cleanup.policy": "compact"})
    change_settings(clients.admin(), TOPIC, f"{prefix}.reports", {"message.timestamp.type": "CreateTime"})
    change_settings(clients.admin(), TOPIC, f"{prefix}.outcomes", {"max.message.bytes": "1000"})
    said = check_log(broker.address, prefix)
    assert len(said) == 4
    for part in (
        "events has retention.ms=1000, Fleetlog needs -1",
        "events has cleanup.policy=compact, Fleetlog needs delete",
        "reports has message.timestamp.type=CreateTime, Fleetlog needs LogAppendTime",
        "outcomes has max.message.bytes=1000, Fleetlog needs 1048576",
    ):
        assert any(part in sentence and "kafka-configs.sh" in sentence for sentence in said), part
    with pytest.raises(LogMisconfigured) as refused:
        KafkaLog(broker.address, prefix)
    assert all(sentence in str(refused.value) for sentence in said)
    with pytest.raises(LogMisconfigured):
        init_log(broker.address, prefix, 2)


def test_differing_numbers_of_partitions_are_refused(broker: Broker, prefix: str) -> None:
    """A pool's records would part: refused at start, and by `init_log` asked for another number."""
    init_log(broker.address, prefix, 2)
    with pytest.raises(LogMisconfigured, match="has 2 partitions, asked for are 3"):
        init_log(broker.address, prefix, 3)
    other = f"{prefix}b"
    clients = Clients(broker.address, other)
    for number, name in enumerate(topic_names(clients).values()):
        create(clients, name, 2 + (number == 2))
    assert any("different numbers of partitions" in sentence for sentence in check_log(broker.address, other))
    with pytest.raises(LogMisconfigured, match="different numbers of partitions"):
        KafkaLog(broker.address, other)


def test_more_partitions_than_the_log_has_are_left_alone(broker: Broker, prefix: str) -> None:
    """Kafka cannot take partitions away again: pools stay where they are, nobody owns the new ones, the check names
    them with what to do. A topic with fewer than the log has is refused."""
    init_log(broker.address, prefix, 2)
    clients = Clients(broker.address, prefix)
    admin = clients.admin()
    for name in topic_names(clients).values():
        admin.create_partitions([NewPartitions(name, 4)])[name].result()
    wait_until(lambda: bool(check_log(broker.address, prefix)), "the check to see them")
    (said,) = check_log(broker.address, prefix)
    assert said.startswith("Topics have more partitions than the log, which has 2: ")
    assert f"delete the topic and run `fleetlog log init --kafka {broker.address} --set log.prefix={prefix} " in said
    log = KafkaLog(broker.address, prefix)
    assert log.partitions == 2
    members = Members(log)
    for partition in range(2):
        members.seat(partition).take_over()
    assigned = [one.partition for one in log._members[0]._seats.values()]
    assert sorted(assigned) == [0, 1]
    log.close()
    outcomes = f"{prefix}.outcomes"
    admin.delete_topics([outcomes])[outcomes].result()
    wait_until(lambda: "missing" in check_log(broker.address, prefix)[0], "the topic to go")
    create(clients, outcomes, 1)
    wait_until(lambda: "missing" not in check_log(broker.address, prefix)[0], "the topic to come")
    with pytest.raises(
        LogMisconfigured, match=f"fewer partitions than the log, which has 2: {outcomes} 1; delete them"
    ):
        KafkaLog(broker.address, prefix)


A_RECORD: Final[Any] = (Topic.COMMANDS, "p", b"x", (), lambda fault, offset: None)


def looked(log: KafkaLog) -> LogState:
    """What a look now finds."""
    log._watch.look()
    return log.state()


def test_settings_that_change_under_a_running_log_are_said(
    broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that somebody lets run out: a warning with what to do, until it is mended; nothing stops for it."""
    monkeypatch.setattr(kafka_log_watch, "SETTINGS_EVERY", 1)
    init_log(broker.address, prefix, 1)
    log = KafkaLog(broker.address, prefix)
    assert log.state() == LogState()
    change_settings(Clients(broker.address, prefix).admin(), TOPIC, f"{prefix}.events", {"retention.ms": "1000"})
    wait_until(lambda: looked(log).warning is not None, "the warning")
    assert f"{prefix}.events has retention.ms=1000, Fleetlog needs -1: run kafka-configs.sh" in str(log.state().warning)
    assert log.state().problem is None
    log._watch.require()
    change_settings(Clients(broker.address, prefix).admin(), TOPIC, f"{prefix}.events", {"retention.ms": "-1"})
    wait_until(lambda: looked(log) == LogState(), "the end of it")
    log.close()


def test_every_client_begins_anew_with_topics_that_were_made_anew(broker: Broker, prefix: str) -> None:
    """What librdkafka remembers of a deleted topic, for minutes, meets nobody: seats are given anew, appends go out by
    another producer, whoever follows the topic is told to begin at its beginning."""
    init_log(broker.address, prefix, 1)
    log = KafkaLog(broker.address, prefix)
    members = Members(log)
    former = members.seat(0)
    former.take_over()
    former.start()
    follower = log.follow(Topic.OUTCOMES, {0: 0})
    producer, outcomes = log._appender._producer, f"{prefix}.outcomes"
    admin = Clients(broker.address, prefix).admin()
    admin.delete_topics([outcomes])[outcomes].result()
    wait_until(lambda: looked(log).problem is not None, "the topic to be missed")
    for use in (lambda: follower.poll(1, 0), lambda: former.fetch(1, 0), lambda: log.append(*A_RECORD)):
        with pytest.raises(LogUnavailable, match=f"Topics are missing: {outcomes}; run "):
            use()
    assert init_log(broker.address, prefix, 1) == log.log_id
    wait_until(lambda: looked(log) == LogState(), "the topic to be back")
    with pytest.raises((Fenced, SeatLost)):
        former.fetch(1, 0)
    with pytest.raises(MadeAnew):
        follower.poll(1, 0)
    wait_until(lambda: former in members.lost and 0 in members.seats, "another seat")
    seat = members.seat(0)
    seat.take_over()
    seat.start()
    wait_until(lambda: log._appender._producer is not producer, "another producer")
    acks = Acks()
    log.append(Topic.COMMANDS, "p", b"x", (), acks)
    acks.wait(1)
    assert [record.value for record in seat.fetch(10, CEILING_S).commands] == [b"x"]
    assert seat.commit([Output(Topic.OUTCOMES, "p", b"y")], 0, 1) == []
    log.close()


def test_one_look_that_misses_a_topic_says_nothing(broker: Broker, prefix: str) -> None:
    """A broker that has just begun may know less; two looks in a row count, and the next good one ends it."""
    init_log(broker.address, prefix, 1)
    log = KafkaLog(broker.address, prefix)
    watch = log._watch
    watch.close()
    good = watch._found()
    bad = good | {f"{prefix}.commands": None}
    for found, known in ((bad, True), (good, True), (bad, True), (bad, False), (bad, False), (good, True)):
        watch._judge(found)
        assert (log.state().problem is None) is known
    log.close()


def test_missing_topics_and_a_missing_name_are_named(broker: Broker, prefix: str) -> None:
    """Nothing there; a topic deleted; topics without the record that names the log."""
    with pytest.raises(LogMisconfigured, match=f"missing: {prefix}.commands, .*fleetlog log init"):
        KafkaLog(broker.address, prefix)
    init_log(broker.address, prefix, 1)
    clients = Clients(broker.address, prefix)
    admin = clients.admin()
    admin.delete_topics([f"{prefix}.outcomes"])[f"{prefix}.outcomes"].result()
    wait_until(lambda: bool(check_log(broker.address, prefix)), "the topic to go")
    init = f"`fleetlog log init --kafka {broker.address} --set log.prefix={prefix}`"
    assert check_log(broker.address, prefix) == [f"Topics are missing: {prefix}.outcomes; run {init}."]
    admin.delete_topics([f"{prefix}.snapshots"])[f"{prefix}.snapshots"].result()
    wait_until(lambda: "snapshots" in check_log(broker.address, prefix)[0], "the topic to go")
    before = init_log(broker.address, prefix, 1)
    assert before
    assert check_log(broker.address, prefix) == []


@pytest.mark.parametrize("name", ["linger.ms", "group.id", "transactional.id", "enable.idempotence"])
def test_settings_of_our_own_are_refused_by_name(broker: Broker, prefix: str, name: str) -> None:
    """`log.kafka.*` may not change what the log's promises rest on."""
    assert name in OURS
    with pytest.raises(LogMisconfigured, match=f"log.kafka.{name} is set by Fleetlog itself"):
        KafkaLog(broker.address, prefix, {name: "1"})


def test_unknown_and_impossible_settings_are_refused(broker: Broker, prefix: str) -> None:
    """What librdkafka does not know is said in its words; three replicas need three brokers."""
    with pytest.raises(LogMisconfigured, match=r"security[.]protokol"):
        KafkaLog(broker.address, prefix, {"security.protokol": "ssl"})
    with pytest.raises(LogMisconfigured, match="3 replicas need 3 brokers, 1 answered"):
        init_log(broker.address, prefix, 1, replication=3)


def test_a_broker_that_is_away_is_said_in_one_sentence() -> None:
    """Nobody listens there: LogUnavailable that names the address."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(LogUnavailable, match=f"Kafka at {address} does not answer: start it, or correct log.at"):
        KafkaLog(address)


def test_librdkafka_prints_nothing(broker: Broker, prefix: str) -> None:
    """Its lines go to the logger `fleetlog`; without handlers nothing reaches stderr, also when the broker is away."""
    init_log(broker.address, prefix, 1)
    program = (
        "import sys; from streams.kafka_log import KafkaLog; from streams.port import *\n"
        "log = KafkaLog(sys.argv[1], sys.argv[2], {'topic.metadata.refresh.interval.ms': '100'})\n"
        "follower = log.follow(Topic.EVENTS, {0: 0}); follower.poll(1, 0.5); follower.close(); log.close()\n"
        "try: KafkaLog('127.0.0.1:1')\n"
        "except LogUnavailable: print('unavailable')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broker.address, prefix], capture_output=True, text=True, timeout=CEILING_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "unavailable\n", "")


def test_librdkafkas_lines_go_to_our_logger(caplog: pytest.LogCaptureFixture) -> None:
    """A connection that cannot be made is told there."""
    caplog.set_level(logging.INFO, "fleetlog")
    follower = KafkaFollower(Clients(f"127.0.0.1:{free_port()}", "nowhere"), Topic.EVENTS, {0: 0})

    def told() -> bool:
        follower.poll(1, 0.1)
        return any(record.name.startswith("fleetlog") and "refused" in record.getMessage() for record in caplog.records)

    wait_until(told, "a line about the connection")
    follower.close()


# ---- what a log that is away says ----


def test_questions_to_a_broker_that_does_not_answer(
    broker: Broker, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`end` and `read_at` say LogUnavailable and work again afterwards; followers just wait."""
    monkeypatch.setattr(kafka_log_offsets, "QUESTION_S", 1.0)
    monkeypatch.setattr(kafka_log_offsets, "MOMENT_S", 1.0)
    monkeypatch.setattr(kafka_log_follower, "ANSWER_S", 1.0)
    site = KafkaSite(broker, proxy, partitions=1)
    log = site.open()
    acks = Acks()
    log.append(Topic.EVENTS, "p", b"x", (), acks)
    ((_, offset),) = acks.wait(1)
    follower = log.follow(Topic.EVENTS, {0: 0})
    assert len(follower.poll(10, CEILING_S)) == 1
    proxy.cut()
    with pytest.raises(LogUnavailable):
        log.end(Topic.EVENTS, 0)
    with pytest.raises(LogUnavailable):
        log.read_at(Topic.EVENTS, 0, offset)
    assert follower.poll(10, 0.2) == []
    proxy.restore()
    wait_until(lambda: answers(log, offset), "the log to answer")
    log.append(Topic.EVENTS, "p", b"y", (), acks)
    assert [record.value for record in follower.poll(10, CEILING_S)] == [b"y"]
    follower.close()
    site.close()


def answers(log: KafkaLog, offset: int) -> bool:
    """Whether both kinds of question are answered."""
    try:
        found = log.read_at(Topic.EVENTS, 0, offset)
        return found is not None and log.end(Topic.EVENTS, 0) > offset
    except LogUnavailable:
        return False


# ---- snapshots ----


@pytest.fixture
def site(broker: Broker, proxy: KafkaProxy) -> Iterator[KafkaSite]:
    site = KafkaSite(broker, proxy, partitions=1)
    yield site
    site.close()


def live_keys(log: KafkaLog) -> set[str]:
    """The places that hold something, by what is in the topic now."""
    log.find_snapshots(0)
    return {f"{slot}/{life}" for slot, life in log._snapshots._known[0]}


def test_a_snapshot_without_its_manifest_is_never_found(site: KafkaSite) -> None:
    """A process that dies while it keeps one leaves chunks; the last good one is found; another life tidies up."""
    log = site.open()
    log.keep_snapshot(0, snapshot(10, "first"))
    half_written(site.clients, "first", 1)
    assert log.find_snapshots(0) == [snapshot(10, "first")]
    assert log.bad_snapshots() == 0
    again = site.open()
    again.keep_snapshot(0, snapshot(20, "second"))
    assert [found.position for found in again.find_snapshots(0)] == [20, 10]
    again.keep_snapshot(0, snapshot(30, "second"))
    assert [found.position for found in again.find_snapshots(0)] == [30, 20]
    assert live_keys(again) >= {"0/second", "1/second"}
    assert "0/first" not in live_keys(again)


def half_written(clients: Clients, life: str, slot: int) -> None:
    producer: Producer = clients.keeper()
    producer.produce(clients.snapshots, b"half", f"0/{slot}/{life}/0", 0)
    producer.flush()


def test_a_slot_that_is_being_written_again_is_empty_not_damaged(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dying between new chunks and their manifest: the old manifest is gone already, nobody mixes the two."""
    log = site.open()
    log.keep_snapshot(0, snapshot(10))
    log.keep_snapshot(0, snapshot(20))
    with monkeypatch.context() as dying:
        dying.setattr(kafka_log_snapshots, "_manifest", lambda snapshot: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            log.keep_snapshot(0, snapshot(30))
    assert log.find_snapshots(0) == [snapshot(20)]
    assert log.bad_snapshots() == 0
    log.keep_snapshot(0, snapshot(40))
    assert log.find_snapshots(0) == [snapshot(40), snapshot(20)]


def test_chunks_that_do_not_match_their_manifest_are_never_given(site: KafkaSite) -> None:
    """Whole records with the wrong content: the manifest's own digest finds them."""
    log = site.open()
    log.keep_snapshot(0, snapshot(10))
    log.keep_snapshot(0, snapshot(20))
    half_written(site.clients, "a", 1)
    assert log.find_snapshots(0) == [snapshot(10)]
    assert log.bad_snapshots() == 1


def test_chunks_that_nobody_finished_go_after_an_hour(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once: a newer life may be about to finish them."""
    log = site.open()
    half_written(site.clients, "unfinished", 0)
    log.keep_snapshot(0, snapshot(10, "next"))
    assert "0/unfinished" in live_keys(log)
    monkeypatch.setattr(kafka_log_snapshots, "ORPHAN_MS", -10_000)
    log.keep_snapshot(0, snapshot(20, "next"))
    assert live_keys(log) == {"0/next", "1/next"}


def test_a_slot_that_is_written_again_with_fewer_chunks_keeps_no_others(site: KafkaSite) -> None:
    """Surplus chunks of the slot's former snapshot are taken away."""
    log = site.open()
    log.keep_snapshot(0, snapshot(10, "a", [b"x"] * 5))
    log.keep_snapshot(0, snapshot(20, "a", []))
    log.keep_snapshot(0, snapshot(30, "a", []))
    log.find_snapshots(0)
    assert {slot: kept.numbers for (slot, _), kept in log._snapshots._known[0].items()} == {0: {"0"}, 1: {"0"}}


def test_a_snapshot_that_cannot_be_written_is_a_fault(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks beyond the limit are refused at once; without a broker LogUnavailable; the last good one stays."""
    log = site.open()
    log.keep_snapshot(0, snapshot(10))
    with pytest.raises(RecordTooLarge):
        log.keep_snapshot(0, snapshot(20, chunks=[bytes(CHUNK_BYTES_MAX + 1)]))
    monkeypatch.setattr(kafka_log_snapshots, "WRITE_S", 0.5)
    with held(site.proxy), pytest.raises(LogUnavailable):
        log.keep_snapshot(0, snapshot(20))
    monkeypatch.undo()
    assert site.open().find_snapshots(0)[-1] == snapshot(10)
