"""A whole Fleetlog in one process on the memory log: owners or a script, projector, gateway. All parts are real.

with Site() as site:
    site.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"})
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from projections.projector import Projector
from projections.queries import Tables
from robot_gateway.conformance.raw_robot import PollingRobot, WebSocketRobot
from robot_gateway.gateway import Gateway
from robot_gateway.serve import Served
from robot_gateway.settings import GatewaySettings
from streams.memory_log import MemoryLog, MemoryStore
from streams.owner import OwnerSettings
from streams.pool_clock import wall_ms
from streams.processor import Processor
from tests.support.scripted_owner import ScriptedOwner

CEILING_S = 60.0
"""No test waits longer than this for something that must come."""


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Waits until `condition` gives something true, and gives it."""
    give_up = time.monotonic() + CEILING_S
    while time.monotonic() < give_up:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true")


class Site:
    """`scripted`: a ScriptedOwner instead of real ones (`site.owner`). `projector`: whether tables are written. `wall`:
    the clock of the log.

    Further keywords are gateway settings; `defaults` are pool settings in log units for pools that are made.
    """

    def __init__(
        self,
        *,
        scripted: bool = False,
        projector: bool = True,
        partitions: int = 3,
        defaults: dict[str, Any] | None = None,
        after_wait_s: float = 5.0,
        wall: Callable[[], int] = wall_ms,
        **settings: Any,
    ) -> None:
        self.store = MemoryStore(partitions=partitions, clock=wall)
        self.name = f"gateway-{uuid.uuid4().hex[:8]}"
        self.settings = GatewaySettings.model_validate({"listen": "127.0.0.1:0", **settings})
        self._scripted, self._projects, self._defaults = scripted, projector, defaults or {}
        self._after_wait_s = after_wait_s
        self._parts = ExitStack()
        self._threads: list[threading.Thread] = []
        self.stop_projector: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="fleetlog-site-")))
            if self._scripted:
                self.owner = ScriptedOwner(MemoryLog(self.store)).start()
                parts.callback(self.owner.stop)
            else:
                owners = OwnerSettings(name="owner", software="test", defaults=self._defaults)
                self.processor = Processor(MemoryLog(self.store), owners)
                self.processor.start()
                parts.callback(self.processor.close)
            self.folder = folder / "tables"
            if self._projects:
                self.start_projector(parts)
            log = MemoryLog(self.store)
            self.tables = Tables(self.folder, log)
            parts.callback(self.tables.close)
            self.gateway = Gateway(
                log, self.tables, self.settings, self.name, folder / "bulk", after_wait_s=self._after_wait_s
            )
            if not self._scripted:
                self.gateway.watch_owners(self.processor.statuses, self.processor.why_not_ready)
            self.served = Served(self.gateway).start()
            parts.callback(self.served.stop)
            self.url = self.served.url
            self.client = parts.enter_context(httpx.Client(base_url=self.url, timeout=CEILING_S))
            until(lambda: self.client.get("/healthz").status_code == 200, "the gateway's life")
            if self._projects:
                until(lambda: self.client.get("/readyz").status_code == 200, "readiness")
            else:
                until(lambda: self.gateway.follower.problem is None, "following")
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *rest: object) -> None:
        self._parts.close()
        if self.served.failure is not None:
            raise self.served.failure

    def start_projector(self, parts: ExitStack | None = None) -> None:
        """Writes tables from now on, until the site ends."""
        projector = Projector(MemoryLog(self.store), self.folder)
        thread = threading.Thread(target=projector.run, name="projector", daemon=True)
        thread.start()

        def end() -> None:
            projector.stop()
            thread.join()
            projector.close()

        self.stop_projector = end
        (parts or self._parts).callback(end)

    # ---- what tests do ----

    def submit(self, pool: str = "hall-a", **task: Any) -> dict[str, Any]:
        """Submits one task and gives it as it stands."""
        answer = self.client.post(f"/v1/pools/{pool}/tasks", json={"kind": "weld", **task})
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def settled(self, answer: dict[str, Any]) -> None:
        """Waits until the tables include what was answered."""
        after = {"after": answer["position"]}
        until(lambda: self.client.get("/v1/tasks/count", params=after).status_code == 200, "the tables")

    def task(self, task: str, pool: str = "hall-a") -> dict[str, Any]:
        """A task as it stands."""
        answer = self.client.get(f"/v1/pools/{pool}/tasks/{task}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def wait_for_state(self, task: str, state: str, pool: str = "hall-a") -> dict[str, Any]:
        """The task when it has come into `state`."""

        def look() -> dict[str, Any] | None:
            found = self.client.get(f"/v1/pools/{pool}/tasks/{task}")
            return dict(found.json()) if found.status_code == 200 and found.json()["state"] == state else None

        found: dict[str, Any] = until(look, f"task {task} in {state}")
        return found

    def robot(self, robot: str = "r1", pool: str = "hall-a", token: str | None = None) -> WebSocketRobot:
        """A robot over WebSocket, before its hello."""
        return WebSocketRobot(self.url, pool, robot, token)

    def polling_robot(self, robot: str = "r1", pool: str = "hall-a", token: str | None = None) -> PollingRobot:
        """A robot by long polling, before its hello."""
        return PollingRobot(self.url, pool, robot, token)
