"""Topics that are deleted, made anew or given more partitions under a running fleet, on a genuine broker."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import NewPartitions

from fleetlog.composition import new_processor, open_log, run_gateway, run_projector
from fleetlog.log_work import make_log
from fleetlog.settings import Settings
from robot_gateway import health
from streams import kafka_log_offsets, kafka_log_watch
from streams.kafka_log import KafkaLog, check_log
from streams.kafka_log_clients import Clients
from streams.port import LogFault, LogReplaced, Topic
from tests.support.broker import Broker
from tests.support.fleet import until
from tests.support.proxy import KafkaProxy


class World:
    """A processor, a projector and a gateway on a log of their own, each with its own clients as in its own process."""

    def __init__(self, address: str, folder: Path, parts: ExitStack) -> None:
        self.prefix = f"topics-{uuid.uuid4().hex[:8]}"
        self.address = address
        self.settings = Settings.model_validate(
            {
                # For half a minute librdkafka believes that a topic which it does not find is only on its way.
                "log": {
                    "at": f"kafka:{address}",
                    "prefix": self.prefix,
                    "partitions": 2,
                    "kafka": {"topic.metadata.propagation.max.ms": "0"},
                },
                "gateway": {"listen": "127.0.0.1:0"},
                "projector": {"folder": folder / "tables"},
                "disk": {"min_free_bytes": 0},
            }
        )
        self.log_id = make_log(self.settings)
        self.faults: dict[str, LogFault] = {}
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        log = parts.enter_context(closing(open_log(self.settings)))
        self.processor = new_processor(self.settings, log)
        parts.callback(self.processor.close)
        self.processor.start()
        parts.enter_context(self.running(run_projector))
        parts.enter_context(self.running(run_gateway, told.put))
        self.client = parts.enter_context(httpx.Client(base_url=told.get(timeout=60), timeout=60))
        self.admin = Clients(address, self.prefix).admin()
        self.until_ready()

    @contextmanager
    def running(self, run: Callable[..., None], *more: Any) -> Iterator[None]:
        """One part of the product; the fault that ends it is kept."""
        stop = threading.Event()

        def guarded() -> None:
            try:
                run(self.settings, stop, *more)
            except LogFault as fault:
                self.faults[run.__name__] = fault

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    def delete(self, *topics: str) -> None:
        """As an operator by mistake."""
        names = [f"{self.prefix}.{topic}" for topic in topics]
        for asked in self.admin.delete_topics(names).values():
            asked.result()

    def line(self, part: str) -> str:
        """What /readyz says of one part."""
        return dict(line.split(": ", 1) for line in self.client.get("/readyz").text.splitlines())[part]

    def until_said(self, part: str, words: str) -> str:
        """Waits until /readyz says those words of a part, and gives its line."""
        return str(until(lambda: (said := self.line(part)) and words in said and said, f"{words!r} of {part}"))

    def owners_wait(self) -> bool:
        """Whether no partition is decided for, and each owner says why."""
        statuses = self.processor.statuses()
        return all(status.phase != "deciding" and "missing" in status.why for status in statuses)

    def until_ready(self) -> None:
        """Waits for every part."""
        until(lambda: self.client.get("/readyz").status_code == 200, "readiness")

    def submit(self, task: str) -> httpx.Response:
        """One submission."""
        return self.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld", "id": task})

    def until_taken(self, task: str) -> None:
        """Waits until a submission is acknowledged: owners decide and answers arrive."""
        until(lambda: self.submit(task).status_code in (200, 201), "a submission")


@pytest.fixture
def world(broker: Broker, proxy: KafkaProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A fleet that looks often, behind a proxy."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(kafka_log_watch, "LOOK_EVERY_S", 0.1)
    with ExitStack() as parts:
        yield World(proxy.address, tmp_path, parts)


def test_i4_brokers_that_are_away_are_said_and_the_fleet_goes_on_when_they_are_back(
    world: World, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off from the broker: 503 in words, submissions are refused with a time; then without a hand as before."""
    assert world.submit("t0").status_code == 201
    monkeypatch.setattr(kafka_log_offsets, "QUESTION_S", 1.0)
    monkeypatch.setattr(kafka_log_offsets, "MOMENT_S", 1.0)
    proxy.cut()
    said = world.until_said("outcomes", "does not answer")
    assert said.startswith("Kafka does not answer (asking for an offset of ")
    answer = world.client.get("/readyz")
    assert answer.status_code == 503
    assert world.line("log") == "ready"
    refused = world.submit("t1")
    assert (refused.status_code, refused.json()["reason"]) == (503, "not_ready")
    assert refused.headers["Retry-After"]
    proxy.restore()
    world.until_ready()
    world.until_taken("t1")
    assert world.submit("t0").status_code == 200


def test_i4_topics_that_go_are_said_and_the_fleet_goes_on_when_they_are_back(world: World) -> None:
    """One after the other `commands`, `reports` and `outcomes` are deleted: 503 with the command that makes them again;
    nobody restarts anything. Then a topic gets more partitions: said, and all goes on, also in processes that begin.
    At last the whole log is deleted and made again: another log, to which nobody writes what belongs to the old one."""
    assert world.submit("t0").status_code == 201
    init = f"`fleetlog log init --kafka {world.address} --set log.prefix={world.prefix} --partitions 2`"
    for topic in ("commands", "reports", "outcomes"):
        world.delete(topic)
        said = world.until_said("log", "missing")
        assert said == f"Topics are missing: {world.prefix}.{topic}; run {init}: all goes on by itself then"
        refused = world.submit(f"t-{topic}")
        assert (refused.status_code, refused.json()["reason"]) == (503, "not_ready")
        assert refused.headers["Retry-After"]
        until(world.owners_wait, "the owners to wait")
        assert make_log(world.settings) == world.log_id
        world.until_ready()
        world.until_taken(f"t-{topic}")
    assert world.submit("t0").status_code == 200, "what was there before is still known"

    grown = f"{world.prefix}.commands"
    world.admin.create_partitions([NewPartitions(grown, 4)])[grown].result()
    said = world.until_said("log", "more partitions")
    assert said.startswith(f"degraded: Topics have more partitions than the log, which has 2: {grown} 4; ")
    assert world.submit("t4").status_code == 201
    late = KafkaLog(world.address, world.prefix)
    assert (late.partitions, late.log_id) == (2, world.log_id)
    late.close()
    assert [said.split(",")[0] for said in check_log(world.address, world.prefix)] == [
        "Topics have more partitions than the log"
    ]

    world.delete(*(topic.value for topic in Topic), "snapshots")
    assert "it will be another log" in world.until_said("log", "missing")
    other = make_log(world.settings)
    assert other != world.log_id
    said = world.until_said("log", "Another log")
    assert f"({other}; this process began with {world.log_id})" in said
    assert said.endswith("then restart this process")
    assert world.client.get("/readyz").status_code == 503
    assert world.submit("t5").status_code == 503
    until(lambda: isinstance(world.faults.get("run_projector"), LogReplaced), "the projector to end with the sentence")
    fresh = KafkaLog(world.address, world.prefix)
    assert (fresh.log_id, fresh.state().problem) == (other, None)
    assert [fresh.end(topic, p) for topic in Topic for p in range(2)] == [0] * 8
    fresh.close()
