"""A Redis server with its append-only file on: from the path, or Debian's package unpacked into the cache (no root)."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.peers.processes import Missing, PeerFailed, Processes, program, run, until
from tests.support.ports import LOOPBACK, free_port

REMEDY: Final = "install redis-server and put it on the path (Debian: apt-get install redis-server)"
START_S: Final = 30.0


class RedisServer:
    """`appendfsync`: `everysec` as Redis recommends, or `always`."""

    def __init__(self, cache: Path, processes: Processes, appendfsync: str) -> None:
        self._unpacked = cache / "redis" / "root"
        self._processes = processes
        self._appendfsync = appendfsync
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}"

    def install(self) -> None:
        """Have a server. Raises Missing."""
        if self._find() is None:
            self._unpack()

    def version(self) -> str:
        """Its version, as it says itself."""
        words = run([self._program(), "--version"], env=self._libraries()).split()
        return next((word[2:] for word in words if word.startswith("v=")), "?")

    def start(self, folder: Path) -> None:
        """Start it on an empty folder and wait until it answers."""
        self.port = free_port()
        command: list[object] = [self._program(), "--bind", LOOPBACK, "--port", str(self.port), "--dir", folder]
        command += ["--appendonly", "yes", "--appendfsync", self._appendfsync]
        child = self._processes.start("redis", command, env=self._libraries())
        until(self._answers, "Redis answers", within_s=START_S, child=child)

    def ask(self, *words: str, database: int = 0) -> int:
        """A command that is answered by a number. Raises PeerFailed."""
        with socket.create_connection((LOOPBACK, self.port), timeout=30) as connection:
            connection.sendall(_asked("SELECT", str(database)) + _asked(*words))
            with connection.makefile("rb") as answers:
                answers.readline()
                answer = answers.readline().decode().strip()
        if not answer.startswith(":"):
            raise PeerFailed(f"Redis answered {answer!r} to {' '.join(words)}")
        return int(answer[1:])

    def _answers(self) -> bool:
        try:
            return self.ask("DBSIZE") == 0
        except (OSError, PeerFailed):
            return False

    def _find(self) -> Path | None:
        return program("redis-server", self._unpacked / "usr" / "bin")

    def _program(self) -> Path:
        found = self._find()
        if found is None:
            raise PeerFailed("redis-server is gone from where it was installed")
        return found

    def _libraries(self) -> dict[str, str]:
        folders = [str(folder) for folder in (self._unpacked / "usr" / "lib").glob("*-linux-*")]
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}

    def _unpack(self) -> None:
        if program("apt-get") is None or program("dpkg") is None:
            raise Missing("there is no redis-server on this machine", REMEDY)
        folder = self._unpacked.parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            run(["apt-get", "download", *self._packages()], folder=folder)
            for package in folder.glob("*.deb"):
                run(["dpkg", "-x", package, self._unpacked])
        except PeerFailed as fault:
            raise Missing(f"Debian's package of redis-server cannot be had ({fault})", REMEDY) from None
        if self._find() is None:
            raise Missing("Debian's package holds no redis-server", REMEDY)

    def _packages(self) -> list[str]:
        """The server, and those of its libraries that are not installed."""
        said = run(["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
                    "--no-breaks", "--no-replaces", "--no-enhances", "redis-server"])  # fmt: skip
        names = {line.strip() for line in said.splitlines() if line and line[0].isalpha()}
        needed = {name for name in names if name.startswith(("redis", "lib", "lua")) and not _installed(name)}
        return sorted(needed | {"redis-server"})


def _asked(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words)


def _installed(package: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True, check=False)
    return done.stdout.endswith(" installed")
