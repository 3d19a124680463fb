"""Dramatiq on Redis: a message is removed when its handler has ended."""

from typing import ClassVar, Final

from benchmarks.peers.celery_peer import ALWAYS, EVERY_SECOND
from benchmarks.peers.peer import KILL, POWER_CUT, SILENCE_S, Peer, Place, Profile
from benchmarks.peers.processes import Child, Processes
from benchmarks.peers.redis_server import RedisServer

MESSAGES: Final = "dramatiq:default.msgs"


class Dramatiq(Peer):
    """Redis flushes its append-only file each second, as it recommends."""

    key = "dramatiq"
    title = "Dramatiq, Redis everysec"
    survives = KILL
    durability = EVERY_SECOND
    recorded = "its message is acknowledged and removed"
    settings: ClassVar = {
        Profile.FAST: "one worker with --processes 4 and its default of 8 threads each; "
        "four threads submit (16 with always)",
        Profile.DEFAULT: "as it comes: heartbeat_timeout 60 s, one command in 1,000 looks for dead workers",
        Profile.BEST: f"heartbeat_timeout {SILENCE_S} s, every command looks for dead workers",
    }
    packages = ("dramatiq[redis]==2.2.1",)
    script = "dramatiq_tasks.py"
    appendfsync: ClassVar[str] = "everysec"
    threads: ClassVar[int] = 4
    """That submit: as many as were fastest here."""

    def __init__(self, place: Place, processes: Processes) -> None:
        super().__init__(place, processes)
        self._redis = RedisServer(place.cache, processes, self.appendfsync)

    def install(self) -> None:
        self._redis.install()
        self.install_packages()

    def versions(self) -> dict[str, str]:
        return {**self.package_versions("dramatiq", "redis"), "Redis": self._redis.version()}

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": self._redis.url, "PEER_THREADS": str(self.threads)}

    def begin(self) -> None:
        self._redis.start(self.place.data)

    def start_workers(self, count: int) -> list[Child]:
        command = [self.bin / "dramatiq", "dramatiq_tasks", "--processes", str(count)]
        environment = self.script_environment()
        return [self.processes.start("dramatiq-worker", command, env=environment, folder=self.place.data)]

    def completed(self, submitted: int) -> int:
        return submitted - self._redis.ask("HLEN", MESSAGES)


class DramatiqAlways(Dramatiq):
    """The same, on the disk before each answer."""

    key = "dramatiq-always"
    title = "Dramatiq, Redis always"
    survives = POWER_CUT
    durability = ALWAYS
    appendfsync = "always"
    threads = 16
    crashes = False
