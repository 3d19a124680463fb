"""What a gateway says of owners in other processes, on a genuine broker."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetlog.composition import open_log, run_gateway, run_processor, run_projector
from fleetlog.log_work import make_log
from fleetlog.settings import Settings
from robot_gateway import health
from streams.port import Topic, partition_of
from tests.support.broker import Broker
from tests.support.fleet import until


@contextmanager
def running(run: Callable[..., None], settings: Settings, *more: Any) -> Iterator[None]:
    """One part of the product, with a log of its own, as in a process of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(settings, stop, *more), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def test_f07_a_gateway_alone_says_what_owners_set_aside(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F07 on Kafka: the processor quarantines and goes on; the gateway, elsewhere, is degraded and says why."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.1)
    settings = Settings.model_validate(
        {
            "log": {"at": f"kafka:{broker.address}", "prefix": f"health-{uuid.uuid4().hex[:8]}", "partitions": 2},
            "gateway": {"listen": "127.0.0.1:0"},
            "projector": {"folder": tmp_path / "tables"},
            "disk": {"min_free_bytes": 0},
        }
    )
    make_log(settings)
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ExitStack() as parts:
        parts.enter_context(running(run_processor, settings, lambda _: None))
        parts.enter_context(running(run_projector, settings))
        parts.enter_context(running(run_gateway, settings, told.put))
        client = parts.enter_context(httpx.Client(base_url=told.get(timeout=60), timeout=60))

        def lines() -> dict[str, str]:
            return dict(line.split(": ", 1) for line in client.get("/readyz").text.splitlines())

        def lag() -> float:
            found = (
                line for line in client.get("/metrics").text.splitlines() if line.startswith("fleetlog_tables_lag")
            )
            return sum(float(line.rsplit(" ", 1)[1]) for line in found)

        parts_of_it = {"log", "outcomes", "tables", "clock", "pools", "records", "disk", "load"}
        until(lambda: lines() == dict.fromkeys(parts_of_it, "ready"), "readiness")
        assert client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"}, timeout=60).status_code == 201
        log = open_log(settings)
        appended = threading.Event()
        log.append(Topic.COMMANDS, "hall-a", b"not json", (), lambda fault, offset: appended.set())
        assert appended.wait(60)
        log.close()
        place = f"(commands, partition {partition_of('hall-a', 2)}, offset 1)"
        until(lambda: place in lines()["records"], "the line")
        assert client.get("/healthz").text == "alive, degraded: records; see /readyz\n"
        assert client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"}, timeout=60).status_code == 201
        until(lambda: lag() == 0, "the tables to be at the end, markers of commits included")
        assert lines()["clock"] == "ready"
