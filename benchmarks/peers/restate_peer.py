"""Restate: its server from npm, a Python service behind it."""

import json
import socket
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.peers.peer import INSTALL_S, POWER_CUT, Peer, Place, Profile
from benchmarks.peers.processes import Child, Missing, PeerFailed, Processes, program, run, until
from tests.support.ports import LOOPBACK, free_ports

SERVER: Final = "@restatedev/restate-server"
SERVER_VERSION: Final = "1.7.12"
START_S: Final = 90.0


class Restate(Peer):
    """One node with all roles."""

    key = "restate"
    title = "Restate"
    survives = POWER_CUT
    durability = (
        "answered once its log has it, on the disk (write-ahead log with fsync): survives kill -9 and a power cut"
    )
    recorded = "its invocation is `completed`"
    settings: ClassVar = {
        Profile.FAST: "server as it comes (24 partitions); service on hypercorn with 4 workers; 64 sends at once "
        "over HTTP",
        Profile.DEFAULT: "as it comes; two hypercorn processes behind one address, one is killed",
        Profile.BEST: "the same: a broken connection is noticed at once",
    }
    packages = ("restate-sdk==1.3.0", "hypercorn==0.18.0")
    script = "restate_tasks.py"

    def __init__(self, place: Place, processes: Processes) -> None:
        super().__init__(place, processes)
        self._ingress = self._admin = 0
        self._door: socket.socket | None = None
        self._registered = False

    def install(self) -> None:
        self.install_packages()
        if self._server.exists():
            return
        if program("npm") is None:
            raise Missing("npm is not installed, and the server comes with it", "install Node.js with npm")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            quiet = ["--no-fund", "--no-audit", "--ignore-scripts", "--prefix", self._folder]
            run(["npm", "install", *quiet, f"{SERVER}@{SERVER_VERSION}"], timeout_s=INSTALL_S)
            run([self._server, "--version"])
        except PeerFailed as fault:
            raise Missing(f"{SERVER} cannot be installed ({fault})", "see that npm reaches a registry") from None

    def versions(self) -> dict[str, str]:
        server = run([self._server, "--version"]).split()[-1]
        return {"Restate": server, **self.package_versions("restate-sdk", "hypercorn")}

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": f"http://{LOOPBACK}:{self._ingress}"}

    def begin(self) -> None:
        node, self._ingress, self._admin = free_ports(3)
        self._registered = False
        at = {"INGRESS__BIND_PORT": self._ingress, "ADMIN__BIND_PORT": self._admin, "BIND_PORT": node}
        environment = {f"RESTATE_{name}": str(port) for name, port in at.items()}
        environment |= {"RESTATE_BIND_IP": LOOPBACK, "RESTATE_LISTEN_MODE": "tcp", "RESTATE_DISABLE_TELEMETRY": "true"}
        environment |= {"RESTATE_ADVERTISED_HOST": LOOPBACK, "RUST_LOG": "warn"}
        command = [self._server, "--no-logo", "--node-name", "peers", "--base-dir", self.place.data / "restate"]
        child = self.processes.start("restate", command, env=environment, folder=self.place.data)
        until(self._healthy, "Restate answers", within_s=START_S, child=child)
        self._door = socket.create_server((LOOPBACK, 0), backlog=1_024)

    def stop(self) -> None:
        super().stop()
        if self._door is not None:
            self._door.close()
            self._door = None

    def start_workers(self, count: int) -> list[Child]:
        if self._door is None:
            raise PeerFailed("Restate was not started")
        door = self._door.fileno()
        command = [self.bin / "hypercorn", "--bind", f"fd://{door}", "--workers", str(count), "restate_tasks:app"]
        child = self.processes.start(
            "restate-worker", command, env=self.script_environment(), folder=self.place.data, pass_fds=[door]
        )
        if not self._registered:
            until(self._register, "the service is registered", within_s=START_S, child=child)
            self._registered = True
        return [child]

    def completed(self, submitted: int) -> int:
        asked = {"query": "SELECT count(*) AS n FROM sys_invocation WHERE status = 'completed'"}
        return int(self._ask("/query", asked)["rows"][0]["n"])

    def _register(self) -> bool:
        assert self._door is not None
        try:
            self._ask("/deployments", {"uri": f"http://{LOOPBACK}:{self._door.getsockname()[1]}"})
        except (PeerFailed, OSError):
            return False
        return True

    def _healthy(self) -> bool:
        try:
            for port, path in ((self._admin, "/health"), (self._ingress, "/restate/health")):
                with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=5):
                    pass
        except (URLError, OSError):
            return False
        return True

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request(f"http://{LOOPBACK}:{self._admin}{path}", json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except URLError as fault:
            raise PeerFailed(f"Restate refused {path}: {fault}") from None

    @property
    def _folder(self) -> Path:
        return self.place.cache / "restate"

    @property
    def _server(self) -> Path:
        return self._folder / "node_modules" / ".bin" / "restate-server"
