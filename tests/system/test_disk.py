"""A disk that fills up and gets room again: a real file system in memory, and a process that may write no more."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fleetlog import composition
from fleetlog.composition import LowDisk
from robot_gateway import health
from tests.support.ports import free_port
from tests.support.site import Site, until
from tests.system.product import QUICK, Part

IN_MEMORY = Path("/dev/shm")
MIB = 1 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of a file system that hardly anybody else writes to."""
    if not IN_MEMORY.is_dir():
        pytest.skip("this system has no /dev/shm")
    with tempfile.TemporaryDirectory(prefix="fleetlog-disk-", dir=IN_MEMORY) as folder:
        yield Path(folder)


def test_i4_a_full_disk_stops_submissions_until_there_is_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below `disk.min_free_bytes`: 503 with a time and the sentence, in /readyz too; robots and verbs are served; with
    room all goes on without a hand."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(composition, "LOOK_AT_DISK_S", 0.02)
    free = shutil.disk_usage(folder).free
    low = LowDisk(folder, free - 32 * MIB)
    with Site(partitions=1) as site, site.robot("r1") as robot:
        site.gateway.submissions_stopped = site.gateway.health._disk = low
        task = site.submit()["id"]

        def line() -> str:
            said = site.client.get("/readyz")
            assert said.status_code == 200
            return dict(line.split(": ", 1) for line in said.text.splitlines())["disk"]

        assert line() == "ready"
        with (folder / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, 64 * MIB)
        said = until(lambda: (s := line()) != "ready" and s, "the line")
        assert said.startswith(f"degraded: the disk under {folder} has ")
        assert said.endswith("no submissions are taken: make room")
        answer = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "x"})
        assert (answer.status_code, answer.json()["reason"]) == (503, "not_ready")
        assert answer.headers["Retry-After"] == "5"
        robot.hello()
        robot.ask("ready", n=1)
        robot.ask("accept", task=task, attempt=robot.expect("assign")["attempt"])
        (folder / "filler").unlink()
        until(lambda: line() == "ready", "room")
        assert site.submit()["state"] == "WAITING"


def test_i4_a_log_that_cannot_be_written_is_said_and_goes_on_by_itself(tmp_path: Path) -> None:
    """No file of `fleetlog up` may grow any more, which is what a full disk is to it: nothing is acknowledged, and
    /readyz says why; allowed again, everything that was acknowledged is there and all goes on."""
    listen = f"127.0.0.1:{free_port()}"
    up = Part("up", "up", "--data", str(tmp_path / "data"), "--listen", listen, *QUICK)
    up.start()
    try:
        with httpx.Client(base_url=f"http://{listen}", timeout=60) as client:

            def answers(status: int, task: str) -> httpx.Response | None:
                try:
                    answer = client.post("/v1/pools/hall-a/tasks", json={"kind": "x", "id": task})
                except httpx.TransportError:
                    return None
                return answer if answer.status_code == status else None

            def line() -> str:
                said = client.get("/readyz").text
                return dict(line.split(": ", 1) for line in said.splitlines())["log"]

            until(lambda: answers(201, "t0"), "the first task")
            limits = resource.prlimit(up.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
            refused = until(lambda: answers(503, "t1"), "a refusal")
            assert refused.json()["reason"] in ("log_unavailable", "not_ready")
            assert refused.headers["Retry-After"]
            said = until(lambda: (s := line()) != "ready" and s, "the line")
            assert said.startswith(f"degraded: The log in {tmp_path / 'data' / 'log'} does not work: ")
            resource.prlimit(up.pid, resource.RLIMIT_FSIZE, limits)
            until(lambda: answers(201, "t1"), "the log to take it")
            until(lambda: client.get("/readyz").status_code == 200 and line() == "ready", "readiness")
            assert answers(200, "t0")
    finally:
        up.stop()
