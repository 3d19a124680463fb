"""Celery on Redis: broker and result backend on one server."""

from typing import ClassVar, Final

from benchmarks.peers.peer import KILL, POWER_CUT, SILENCE_S, Peer, Place, Profile
from benchmarks.peers.processes import Child, Processes
from benchmarks.peers.redis_server import RedisServer

RESULTS: Final = 1
CONFIRMED: Final = (
    "answered once Redis has written it to its append-only file; that is on the disk {}: survives kill -9 of Redis{}"
)
EVERY_SECOND: Final = CONFIRMED.format("within a second or two", ", a power cut loses the last second or two")
ALWAYS: Final = CONFIRMED.format("before the answer", " and a power cut")


class Celery(Peer):
    """Redis flushes its append-only file each second, as it recommends."""

    key = "celery"
    title = "Celery, Redis everysec"
    survives = KILL
    durability = EVERY_SECOND
    recorded = "its result is in the result backend"
    settings: ClassVar = {
        Profile.FAST: "one worker with --concurrency 4, worker_prefetch_multiplier 64 (the guide: 64 or 128 for many "
        "short tasks), result backend Redis; four threads submit (16 with always)",
        Profile.DEFAULT: "as it comes: acknowledged before it runs",
        Profile.BEST: "task_acks_late, task_reject_on_worker_lost, worker_prefetch_multiplier 1, visibility_timeout "
        f"{SILENCE_S} s looked at each second (a task that takes longer is then run twice)",
    }
    packages = ("celery[redis]==5.7.0",)
    script = "celery_tasks.py"
    appendfsync: ClassVar[str] = "everysec"
    threads: ClassVar[int] = 4
    """That submit: as many as were fastest here."""

    def __init__(self, place: Place, processes: Processes) -> None:
        super().__init__(place, processes)
        self._redis = RedisServer(place.cache, processes, self.appendfsync)
        self._workers: list[Child] = []

    def install(self) -> None:
        self._redis.install()
        self.install_packages()

    def versions(self) -> dict[str, str]:
        return {**self.package_versions("celery", "kombu", "redis"), "Redis": self._redis.version()}

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": self._redis.url, "PEER_THREADS": str(self.threads)}

    def begin(self) -> None:
        self._redis.start(self.place.data)

    def start_workers(self, count: int) -> list[Child]:
        named = ["-n", f"w{len(self._workers)}@peers"]
        command = [self.bin / "celery", "-A", "celery_tasks", "worker", "-l", "WARNING", "-c", str(count), *named]
        self._workers.append(
            self.processes.start("celery-worker", command, env=self.script_environment(), folder=self.place.data)
        )
        return self._workers[-1:]

    def completed(self, submitted: int) -> int:
        return self._redis.ask("DBSIZE", database=RESULTS)


class CeleryAlways(Celery):
    """The same, on the disk before each answer."""

    key = "celery-always"
    title = "Celery, Redis always"
    survives = POWER_CUT
    durability = ALWAYS
    appendfsync = "always"
    threads = 16
    crashes = False
