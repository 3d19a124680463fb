"""Temporal's dev server with its file store, built from Go modules."""

import json
import re
from pathlib import Path
from typing import ClassVar, Final
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from benchmarks.peers.peer import POWER_CUT, SILENCE_S, Peer, Place, Profile
from benchmarks.peers.processes import Child, Missing, PeerFailed, Processes, program, run, until
from tests.support.ports import LOOPBACK, free_ports

MODULE: Final = "github.com/temporalio/cli"
COMMAND: Final = f"{MODULE}/cmd/temporal"
VERSION: Final = "v1.5.1"
"""The newest version that builds as a dependency: later ones replace one of their modules by a folder."""
BUILD_S: Final = 3_600.0
START_S: Final = 90.0
REMEDY: Final = (
    "put Temporal's command `temporal` on the path, or install Go 1.25 or newer and have it reach a module proxy"
)


class Temporal(Peer):
    """`temporal server start-dev --db-filename`: all services in one process, on SQLite."""

    key = "temporal"
    title = "Temporal dev server, SQLite"
    survives = POWER_CUT
    durability = "answered once SQLite has committed (synchronous FULL): survives kill -9 and a power cut"
    recorded = "its workflow is `Completed` in the visibility store"
    settings: ClassVar = {
        Profile.FAST: "a workflow a task with one local activity (its guide for many short ones), four workers without "
        "the workflow sandbox; SQLite with journal_mode WAL; 64 starts at once",
        Profile.DEFAULT: "an activity with start_to_close_timeout 10 s (one must be given), no heartbeat timeout",
        Profile.BEST: f"the same with heartbeat_timeout {SILENCE_S} s, heartbeats each second",
    }
    packages = ("temporalio==1.35.0",)
    script = "temporal_tasks.py"

    def __init__(self, place: Place, processes: Processes) -> None:
        super().__init__(place, processes)
        self._port = self._http = 0

    def install(self) -> None:
        self.install_packages()
        if self._find() is None:
            self._build()

    def versions(self) -> dict[str, str]:
        server = re.search(r"Server ([\w.-]+)", run([self._program(), "--version"]))
        return {"Temporal server": server[1] if server else "?", **self.package_versions("temporalio")}

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": f"{LOOPBACK}:{self._port}"}

    def begin(self) -> None:
        self._port, self._http, metrics = free_ports(3)
        at = ["--ip", LOOPBACK, "--port", str(self._port), "--http-port", str(self._http)]
        at += ["--metrics-port", str(metrics), "--headless", "--log-level", "error"]
        at += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"]
        command = [self._program(), "server", "start-dev", "--db-filename", self.place.data / "temporal.db", *at]
        child = self.processes.start("temporal", command, folder=self.place.data)
        until(self._answers, "Temporal answers", within_s=START_S, child=child)

    def start_workers(self, count: int) -> list[Child]:
        return [self.work("work") for _ in range(count)]

    def completed(self, submitted: int) -> int:
        query = quote('WorkflowType="Task" AND ExecutionStatus="Completed"')
        with urlopen(f"{self._api}/workflow-count?query={query}", timeout=60) as answer:
            return int(json.load(answer).get("count", 0))

    def _answers(self) -> bool:
        try:
            return self.completed(0) == 0
        except (URLError, OSError):
            return False

    @property
    def _api(self) -> str:
        return f"http://{LOOPBACK}:{self._http}/api/v1/namespaces/default"

    @property
    def _built(self) -> Path:
        return self.place.cache / "temporal" / "bin"

    def _find(self) -> Path | None:
        return program("temporal", self._built)

    def _program(self) -> Path:
        found = self._find()
        if found is None:
            raise PeerFailed("the command `temporal` is gone from where it was installed")
        return found

    def _build(self) -> None:
        if program("go") is None:
            raise Missing("there is neither the command `temporal` nor Go to build it", REMEDY)
        folder = self._built.parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text("module peers.invalid/temporal\n\ngo 1.25.0\n")
        environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        try:
            run(["go", "get", f"{COMMAND}@{VERSION}"], env=environment, folder=folder, timeout_s=BUILD_S)
            command = ["go", "build", "-o", self._built / "temporal", COMMAND]
            run(command, env=environment, folder=folder, timeout_s=BUILD_S)
        except PeerFailed as fault:
            raise Missing(f"{MODULE} {VERSION} cannot be built ({fault})", REMEDY) from None
