"""The product as processes that can be killed: one `up` on the embedded log, four processes on Kafka."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from fleetlog.composition import open_reader
from fleetlog.settings import Settings
from streams.port import LogReader
from tests.support.broker import Broker
from tests.support.ending import with_us
from tests.support.ports import free_port

POOL = ("--set", "pool.window_s=1", "--set", "pool.lease_s=3", "--set", "pool.accept_s=2")
QUICK = ("--set", "disk.min_free_bytes=0", "--set", "processor.snapshot_events=2000", *POOL)
ALIVE_S = 60.0


def wait_until(what: Callable[[], Any], seconds: float = ALIVE_S) -> Any:
    """What `what` gives once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about in time")


class Part:
    """One process of the product; `lines` is the file for what it logs, if anybody wants to read that."""

    def __init__(self, name: str, *arguments: str, lines: Path | None = None) -> None:
        self.name = name
        self._arguments = arguments
        self._lines = lines
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins, or begins again."""
        command = [sys.executable, "-m", "fleetlog", *self._arguments]
        with (self._lines or Path(os.devnull)).open("ab") as lines:
            self._process = subprocess.Popen(with_us(command), stdout=subprocess.DEVNULL, stderr=lines)

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        """A signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def children(self) -> list[int]:
        """The ids of its child processes."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def stop(self) -> None:
        """SIGTERM, and gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()


class Product:
    """Its parts, its gateway's address, its log for a judge, and the brokers that are its own, to be killed."""

    def __init__(self, settings: Settings, url: str, parts: list[Part], brokers: Sequence[Broker] = ()) -> None:
        self.settings, self.url, self.parts, self.brokers = settings, url, parts, brokers

    def start(self) -> None:
        """Everything begins."""
        for part in self.parts:
            part.start()
        self.until_ready()

    def stop(self) -> None:
        """Everything ends in order."""
        for part in reversed(self.parts):
            part.stop()

    def until_ready(self) -> None:
        """Waits for `/readyz`."""
        wait_until(self._ready)

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except (URLError, OSError):
            return False

    def reader(self) -> LogReader:
        """The log, beside the product."""
        return open_reader(self.settings)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One HTTP request; retries until the gateway answers 2xx."""

        def once() -> Any:
            data = None if body is None else json.dumps(body).encode()
            request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
            try:
                with urlopen(request, timeout=40) as answer:
                    return json.load(answer) or True
            except (URLError, OSError):
                return None

        return wait_until(once, 120)

    def probe(self) -> float:
        """Seconds until a task submitted now has been completed."""
        began = time.monotonic()
        task = f"probe-{uuid.uuid4()}"
        body = {"id": task, "kind": "work", "payload": {"target": task}, "priority": 9}
        self.ask("POST", "/v1/pools/default/tasks", body)
        wait_until(lambda: self.ask("GET", f"/v1/pools/default/tasks/{task}?wait_s=5")["state"] == "COMPLETED", 120)
        return time.monotonic() - began

    def counts(self) -> dict[str, int]:
        """How many tasks stand in which state."""
        return {
            state: self.ask("GET", f"/v1/tasks/count?where=state={state}")["count"]
            for state in ("WAITING", "ASSIGNED", "RUNNING", "LOST")
        }


def embedded(folder: Path) -> Product:
    """One process tree on the embedded log."""
    port = free_port()
    up = Part("main", "up", "--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}", *QUICK)
    settings = Settings.model_validate({"log": {"at": f"embedded:{folder / 'data'}"}})
    return Product(settings, f"http://127.0.0.1:{port}", [up])


def on_kafka(folder: Path, bootstrap: str, own: Sequence[Broker] = ()) -> Product:
    """Two owners, a gateway and a projector on Kafka, on a log of their own; `own` are brokers that may die."""
    from streams.kafka_log import init_log

    prefix, port = f"sys-{uuid.uuid4().hex[:8]}", free_port()
    init_log(bootstrap, prefix, 4)
    shared = ("--kafka", bootstrap, "--set", f"log.prefix={prefix}", "--set", f"projector.folder={folder / 'tables'}")
    parts = [
        Part("owner-a", "processor", *shared, *QUICK),
        Part("owner-b", "processor", *shared, *QUICK),
        Part("projector", "projector", *shared),
        Part("gateway", "gateway", *shared, "--listen", f"127.0.0.1:{port}", *QUICK),
    ]
    settings = Settings.model_validate({"log": {"at": f"kafka:{bootstrap}", "prefix": prefix}})
    return Product(settings, f"http://127.0.0.1:{port}", parts, own)


def freeze(part: Part, seconds: float) -> None:
    """SIGSTOP for so long, then SIGCONT."""
    part.send(signal.SIGSTOP)
    time.sleep(seconds)
    part.send(signal.SIGCONT)
