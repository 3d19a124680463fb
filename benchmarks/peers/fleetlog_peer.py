"""Fleetlog itself, as `fleetlog up` runs it: on the embedded log, and on a genuine Kafka."""

import sys
import uuid
from pathlib import Path
from typing import ClassVar, Final
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.peers.peer import KILL, POWER_CUT, SILENCE_S, Peer, Place, Profile
from benchmarks.peers.processes import Child, Missing, PeerFailed, Processes, run, until
from fleetlog.composition import open_reader
from fleetlog.settings import Settings
from robot_gateway.version import VERSION
from streams.port import Follower, LogReader, Topic
from tests.support.broker import Broker, BrokerFailed, guard
from tests.support.kafka_home import CannotRunKafka, kafka_version, runtime
from tests.support.ports import LOOPBACK, free_port

START_S: Final = 90.0
READ_MAX: Final = 10_000
COMPLETED: Final = b"TaskCompleted.v1"
BEST_POOL: Final = ("pool.window_s=1", f"pool.lease_s={SILENCE_S}")


class FleetlogEmbedded(Peer):
    """Log in a folder, `log.sync` on."""

    key = "fleetlog-embedded"
    title = "Fleetlog, embedded log"
    survives = POWER_CUT
    durability = "answered once the log has it, on the disk (fsync): survives kill -9 and a power cut"
    recorded = "its TaskCompleted is in the log"
    settings: ClassVar = {
        Profile.FAST: "as it comes; four robots of 256 slots with async handlers; one submitter connection, up to "
        "1,024 unanswered",
        Profile.DEFAULT: "as it comes: window 5 s, lease 15 s",
        Profile.BEST: f"window 1 s, lease {SILENCE_S} s",
    }
    script = "fleetlog_tasks.py"

    def __init__(self, place: Place, processes: Processes) -> None:
        super().__init__(place, processes)
        self._url = ""
        self._log: LogReader | None = None
        self._follower: Follower | None = None
        self._seen = self._robots = 0

    def install(self) -> None:
        """Nothing: it runs from this checkout's environment."""

    def versions(self) -> dict[str, str]:
        return {"Fleetlog": VERSION}

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    def environment(self) -> dict[str, str]:
        return {"PEER_URL": self._url}

    def begin(self) -> None:
        self._up([f"log.at=embedded:{self.place.data / 'fleetlog'}"])

    def stop(self) -> None:
        for opened in (self._follower, self._log):
            if opened is not None:
                _close(opened)
        self._follower = self._log = None
        super().stop()

    def start_workers(self, count: int) -> list[Child]:
        names = [f"r{self._robots + number}" for number in range(count)]
        self._robots += count
        return [self.work("work", name) for name in names]

    def completed(self, submitted: int) -> int:
        assert self._follower is not None
        while records := self._follower.poll(READ_MAX, 0):
            self._seen += sum(1 for record in records if record.header("type") == COMPLETED)
        return self._seen

    def _up(self, chosen: list[str]) -> None:
        """`fleetlog up` with these settings, and a reader that counts in its log."""
        port = free_port()
        self._url = f"http://{LOOPBACK}:{port}"
        values = [*chosen, f"gateway.listen={LOOPBACK}:{port}", "logs.level=warning"]
        values += BEST_POOL if self.profile is Profile.BEST else ()
        words = [word for value in values for word in ("--set", value)]
        command = [sys.executable, "-m", "fleetlog"]
        if any(value.startswith("log.at=kafka:") for value in values):
            run([*command, "log", "init", *words], folder=self.place.data)
        child = self.processes.start("fleetlog", [*command, "up", *words], folder=self.place.data)
        until(self._ready, "Fleetlog is ready", within_s=START_S, child=child)
        self._log = open_reader(_settings_of(values))
        starts = {p: self._log.beginning(Topic.EVENTS, p) for p in range(self._log.partitions)}
        self._follower, self._seen = self._log.follow(Topic.EVENTS, starts), 0

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/readyz", timeout=5):
                return True
        except (URLError, OSError):
            return False


class FleetlogKafka(FleetlogEmbedded):
    """On one genuine broker."""

    key = "fleetlog-kafka"
    title = "Fleetlog, Kafka"
    survives = KILL
    durability = (
        "answered once the broker has committed it (acks=all, transactions), written to its log but not flushed, as "
        "Kafka recommends: survives kill -9; against a power cut Kafka has replicas, here there is one broker"
    )
    settings: ClassVar = {
        **FleetlogEmbedded.settings,
        Profile.FAST: FleetlogEmbedded.settings[Profile.FAST]
        + "; one broker with 512 MB, add.partitions.to.txn.retry.backoff.ms 1",
    }
    _broker: Broker | None = None

    def install(self) -> None:
        try:
            runtime()
        except CannotRunKafka as fault:
            raise Missing("there is no Kafka", str(fault)) from None

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "Apache Kafka": kafka_version()}

    def begin(self) -> None:
        self._broker = Broker(folder=self.place.data / "kafka", detached=True)
        self._broker.folder.mkdir()
        try:
            self._broker.start()
        except (BrokerFailed, CannotRunKafka) as fault:
            raise PeerFailed(f"Kafka did not start: {fault}") from None
        self._guard = guard("kill", "-KILL", str(self._broker.pid))
        tables = self.place.data / "tables"
        prefix = f"peers-{uuid.uuid4().hex[:8]}"
        self._up([f"log.at=kafka:{self._broker.address}", f"log.prefix={prefix}", f"projector.folder={tables}"])

    def stop(self) -> None:
        super().stop()
        if self._broker is not None:
            self._broker.close()
            self._broker = None
            self._guard.kill()
            self._guard.communicate()


def _close(opened: LogReader | Follower) -> None:
    opened.close()


def _settings_of(values: list[str]) -> Settings:
    sections: dict[str, dict[str, str]] = {}
    for value in values:
        name, _, chosen = value.partition("=")
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = chosen
    sections.pop("pool", None)
    return Settings.model_validate(sections)
