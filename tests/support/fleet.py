"""The whole product as it runs for people, in the background of a test: embedded log in a folder, owners, gateway,
and the projector as a child process, put together by `fleetlog.composition`.

with Fleet(folder) as fleet:
    fleet.client().submit("weld", {"seam": 3}).result(timeout_s=60)
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx

from fleetlog.composition import run_up
from fleetlog.settings import Settings
from robot_gateway.sdk import Client

CEILING_S = 60.0
"""No test waits longer than this for something that must come."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` gives something true, and give it."""
    give_up = time.monotonic() + CEILING_S
    while time.monotonic() < give_up:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true")


class Fleet:
    """`pool`: what new pools begin with, in the words of `fleetlog pool set`; `gateway`: settings of the gateway."""

    def __init__(
        self, folder: Path, *, pool: dict[str, Any] | None = None, gateway: dict[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.settings = Settings.model_validate(
            {
                "log": {"at": f"embedded:{folder}", "partitions": 2, "sync": False},
                "gateway": {"listen": "127.0.0.1:0", **(gateway or {})},
                "disk": {"min_free_bytes": 0},
                "pool": pool or {},
            }
        )
        self.url = ""
        self._stop = threading.Event()
        self._ready: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        told = self._ready.get(timeout=CEILING_S)
        if isinstance(told, BaseException):
            raise told
        self.url = told
        until(lambda: httpx.get(f"{self.url}/readyz", timeout=CEILING_S).status_code == 200, "readiness")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(CEILING_S)

    def _run(self) -> None:
        try:
            run_up(self.settings, self._stop, self._ready.put)
        except BaseException as failure:
            self._ready.put(failure)
            raise

    def client(self, pool: str = "default", **options: Any) -> Client:
        """A client of this fleet."""
        return Client(self.url, pool=pool, **options)

    def robot_state(self, robot: str, pool: str = "default") -> dict[str, Any]:
        """What the gateway tells of a robot."""
        answer = httpx.get(f"{self.url}/v1/pools/{pool}/robots/{robot}", timeout=CEILING_S)
        return dict(answer.json())
