"""What all peers have in common: to be installed, started, given tasks and workers, and stopped.

A peer's client and workers live in an environment of their own, so all that speaks its language is in one script of
`benchmarks/peers/scripts`: `SCRIPT submit KIND COUNT RATE` submits and prints when it began and ended; how workers
begin is the peer's own way. The kinds are `nothing`, `note` (stamps when it starts) and `slow` (3 s).
"""

import json
import sys
import venv
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.peers.processes import Child, Missing, PeerFailed, Processes, run

SCRIPTS: Final = Path(__file__).parent / "scripts"
INSTALL_S: Final = 900.0
SILENCE_S: Final = 5
"""Best sensible settings take a worker for dead after so many seconds of silence, wherever a peer can be told so."""


KILL: Final = "kill -9"
POWER_CUT: Final = "kill -9, power cut"


class Profile(StrEnum):
    """`fast`: what the documentation recommends for many short tasks; `default`: as it comes; `best`: to notice soon
    that a worker has died, and to lose nothing by it."""

    FAST = "fast"
    DEFAULT = "default"
    BEST = "best"


class Kind(StrEnum):
    """What a task does."""

    NOTHING = "nothing"
    NOTE = "note"
    SLOW = "slow"


@dataclass(slots=True, frozen=True)
class Submitted:
    """When a submission began and ended, in seconds of the machine's monotonic clock."""

    count: int
    began_s: float
    ended_s: float


@dataclass(slots=True, frozen=True)
class Place:
    """`cache` keeps what was installed; `data` is emptied before each start; `stamps` is written by handlers."""

    cache: Path
    data: Path

    @property
    def stamps(self) -> Path:
        return self.data / "stamps"


class Peer(ABC):
    """One row of the table. `survives`, `durability`: what does not lose an acknowledged task, in short and in full;
    `recorded`: what counts as completed."""

    key: ClassVar[str]
    title: ClassVar[str]
    survives: ClassVar[str]
    durability: ClassVar[str]
    recorded: ClassVar[str]
    settings: ClassVar[Mapping[Profile, str]]
    packages: ClassVar[tuple[str, ...]] = ()
    script: ClassVar[str]
    crashes: ClassVar[bool] = True
    """Whether killed workers are measured: not where only the disk differs from another row."""

    def __init__(self, place: Place, processes: Processes) -> None:
        self.place = place
        self.processes = processes
        self.profile = Profile.FAST

    # ---- what a peer says ----

    @abstractmethod
    def install(self) -> None:
        """Get all that it needs into the cache. Raises Missing."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """What was installed: name -> version."""

    @abstractmethod
    def begin(self) -> None:
        """Start its servers on empty data and wait until they answer. Raises PeerFailed."""

    @abstractmethod
    def start_workers(self, count: int) -> list[Child]:
        """Start `count` workers, in the layout that suits the peer best."""

    @abstractmethod
    def completed(self, submitted: int) -> int:
        """How many of all tasks are recorded as completed, where `submitted` were submitted since the start."""

    def environment(self) -> dict[str, str]:
        """What its script needs to know beside the profile: where the servers are."""
        return {}

    # ---- what all do alike ----

    def start(self, profile: Profile) -> None:
        """Start it for works of this profile."""
        self.profile = profile
        self.begin()

    def stop(self) -> None:
        """End all its processes."""
        self.processes.stop_all()

    def kill_worker(self, worker: Child) -> None:
        """SIGKILL to the whole worker, its child processes included."""
        worker.kill()

    def submit_many(self, kind: Kind, count: int) -> Submitted:
        """Submit as fast as suits the peer. Raises PeerFailed."""
        return self._submit(kind, count, 0)

    def submit_paced(self, kind: Kind, count: int, rate_per_s: float) -> Submitted:
        """Submit one after another, spread evenly. Raises PeerFailed."""
        return self._submit(kind, count, rate_per_s)

    def submit_one(self, kind: Kind) -> Submitted:
        """Submit one task. Raises PeerFailed."""
        return self._submit(kind, 1, 0)

    def _submit(self, kind: Kind, count: int, rate_per_s: float) -> Submitted:
        said = run(
            [self.python, SCRIPTS / self.script, "submit", kind, str(count), f"{rate_per_s:g}"],
            env=self.script_environment(),
            folder=SCRIPTS,
            timeout_s=1_800,
        )
        told: dict[str, Any] = json.loads(said.splitlines()[-1])
        return Submitted(count, told["began"], told["ended"])

    def script_environment(self) -> dict[str, str]:
        """What the peer's script finds in its environment."""
        common = {"PEER_PROFILE": self.profile, "PEER_STAMPS": str(self.place.stamps), "PYTHONPATH": str(SCRIPTS)}
        return {**common, **self.environment()}

    def work(self, *words: str) -> Child:
        """Start the peer's script as a worker."""
        command = [self.python, SCRIPTS / self.script, *words]
        return self.processes.start(f"{self.key}-worker", command, env=self.script_environment(), folder=SCRIPTS)

    @property
    def python(self) -> Path:
        """The interpreter of the peer's own environment."""
        return self.bin / "python"

    @property
    def bin(self) -> Path:
        return self.place.cache / "environments" / self.script.removesuffix("_tasks.py") / "bin"

    def install_packages(self) -> None:
        """Make the environment with `packages`, unless it is there. Raises Missing."""
        done = self.bin.parent / "installed.json"
        if done.exists() and json.loads(done.read_text()) == list(self.packages):
            return
        try:
            venv.EnvBuilder(with_pip=True, clear=True, symlinks=True).create(self.bin.parent)
            pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, *self.packages], timeout_s=INSTALL_S)
        except (PeerFailed, OSError) as fault:
            raise Missing(
                f"{', '.join(self.packages)} cannot be installed ({fault})",
                f"see that pip of Python {sys.version_info.major}.{sys.version_info.minor} reaches a package index",
            ) from None
        done.write_text(json.dumps(list(self.packages)))

    def package_versions(self, *names: str) -> dict[str, str]:
        """Versions of packages in the peer's environment."""
        listed = json.loads(run([self.python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]))
        found = {entry["name"].lower(): entry["version"] for entry in listed}
        return {name: found.get(name.lower(), "?") for name in names}
