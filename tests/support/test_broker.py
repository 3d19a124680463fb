"""The genuine broker of the tests: it starts, dies, sleeps and comes back as told, and is always the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import detached, kafka_home
from tests.support.broker import Broker, Brokers

PROJECT = Path(__file__).parents[2]


def new_topic(address: str, *, copies: int = 1) -> str:
    """A topic of one partition that nobody else uses."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, copies)])[name].result(60)
    return name


def write(address: str, topic: str, value: bytes) -> None:
    """Write one record and wait until the broker has it."""
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    failures: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    producer.flush(60)
    assert failures == [None]


def read(address: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` records of the topic."""
    settings = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, 60)]
    finally:
        consumer.close()


def test_records_survive_a_stop_and_a_kill(own_broker: Broker) -> None:
    """The same address and data after an ordered restart, and after SIGKILL and a new start."""
    address = own_broker.address
    topic = new_topic(address)
    write(address, topic, b"first")

    own_broker.restart()
    write(address, topic, b"second")
    own_broker.kill()
    assert not own_broker.running
    own_broker.start()

    assert own_broker.address == address
    assert read(address, topic, 2) == [b"first", b"second"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(own_broker: Broker) -> None:
    """SIGSTOP leaves clients without an answer; after SIGCONT the same broker answers."""
    client = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 0})
    pid = own_broker.pid

    own_broker.pause()
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    own_broker.resume()

    assert client.list_topics(timeout=60).brokers
    assert own_broker.pid == pid


def test_a_misspelt_topic_is_not_made(broker: Broker) -> None:
    """Topics are made on purpose only."""
    client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    name = f"nobody-made-{uuid.uuid4().hex}"

    client.list_topics(name, timeout=60)

    assert name not in client.list_topics(timeout=60).topics


def test_three_brokers_keep_three_copies() -> None:
    """A cluster goes on with two of three brokers, and what was acknowledged is there."""
    with Brokers(3) as brokers:
        topic = new_topic(brokers.address, copies=3)
        write(brokers.address, topic, b"kept")

        brokers[0].kill()

        assert read(brokers[1].address, topic, 1) == [b"kept"]


def test_the_broker_ends_with_its_parent(tmp_path: Path) -> None:
    """A test run that is killed leaves no broker behind."""
    program = (
        "import os, signal, sys; from tests.support.broker import Broker; from pathlib import Path\n"
        f"broker = Broker(folder=Path({str(tmp_path)!r})).start(); print(broker.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    pid = int(run.stdout)

    while (state := Path(f"/proc/{pid}/stat")).exists() and state.read_text().split()[2] != "Z":
        os.sched_yield()
    assert str(tmp_path) not in _arguments(pid)


def _arguments(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline")
    return command.read_text() if command.exists() else ""


def test_a_detached_broker_is_found_again_and_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `make kafka` starts is one broker however often it is asked for, until `make kafka-stop`."""
    monkeypatch.setattr(detached, "RUNNING", tmp_path / "running.json")
    try:
        address = detached.start_detached(backoff_ms=20)
        assert detached.start_detached(backoff_ms=20) == address
        assert AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=60).brokers
    finally:
        assert detached.stop_detached()

    assert not detached.stop_detached()


def test_a_record_of_another_process_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A recorded id that now belongs to somebody else (here: this test) is never ended."""
    running = tmp_path / "running.json"
    monkeypatch.setattr(detached, "RUNNING", running)
    running.write_text(json.dumps({"pid": os.getpid(), "address": "x", "folder": str(tmp_path), "container": None}))

    assert not detached.stop_detached()
    assert not running.exists()


def test_without_java_and_maven_the_next_way_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java and Maven are installed where that is allowed, else Docker is used, else one sentence tells what to do."""
    installed: list[str] = []
    monkeypatch.setenv("FLEETLOG_KAFKA_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_home, "find_java", lambda: None)
    monkeypatch.setattr(kafka_home, "find_docker", lambda: "/usr/bin/docker")
    monkeypatch.setattr(kafka_home, "install", lambda: installed.append("java and maven"))

    monkeypatch.setattr(kafka_home, "may_install", lambda: True)
    assert isinstance(kafka_home.runtime(), kafka_home.InDocker)
    assert installed == ["java and maven"]

    monkeypatch.setattr(kafka_home, "may_install", lambda: False)
    assert isinstance(kafka_home.runtime(), kafka_home.InDocker)
    assert installed == ["java and maven"]

    monkeypatch.setattr(kafka_home, "find_docker", lambda: None)
    with pytest.raises(kafka_home.CannotRunKafka, match="install a Java runtime 17 or newer and Maven"):
        kafka_home.runtime()


def test_jars_that_are_there_need_no_maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A named Kafka home with jars is used as it is."""
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.2.2.jar").touch()
    monkeypatch.setenv("FLEETLOG_KAFKA_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_home, "fetch_jars", lambda jars: pytest.fail("fetched"))

    found = kafka_home.runtime()

    assert isinstance(found, kafka_home.LocalJava)
    assert found.jars == tmp_path / "libs"


def test_docker_runs_the_same_classes_on_this_machines_network(tmp_path: Path) -> None:
    """The official image gets our folder, our user and our command line."""
    command = kafka_home.InDocker("docker", "apache/kafka:4.2.2").command(
        "kafka.Kafka", "server.properties", folder=tmp_path, name="k1"
    )

    assert command[:7] == ["docker", "run", "--rm", "--network", "host", "--name", "k1"]
    assert f"{tmp_path}:{tmp_path}" in command
    assert command[-4:] == ["-cp", "/opt/kafka/libs/*", "kafka.Kafka", "server.properties"]
