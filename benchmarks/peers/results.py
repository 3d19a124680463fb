"""What a run found, as it is written to JSON and read again by the report."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

WORKS: Final = ("throughput", "latency", "crash_default", "crash_best")


@dataclass(slots=True)
class Measured:
    """One work in one round: what was found, or why it failed, and the machine's load just before."""

    work: str
    round: int
    load: float
    found: dict[str, Any] = field(default_factory=dict)
    failed: str = ""


@dataclass(slots=True)
class RowFound:
    """One row of the table; `missing` and `remedy` where the peer could not be installed."""

    key: str
    title: str
    durability: str = ""
    recorded: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: str = ""
    remedy: str = ""
    crashes: bool = True
    survives: str = ""
    measured: list[Measured] = field(default_factory=list)

    def of(self, work: str) -> list[Measured]:
        """What was measured of a work, in the order of the rounds."""
        return sorted((one for one in self.measured if one.work == work), key=lambda one: one.round)

    def figures(self, work: str, name: str) -> list[float]:
        """One figure of a work, round by round, without rounds that failed."""
        return [one.found[name] for one in self.of(work) if one.found.get(name) is not None]


@dataclass(slots=True)
class Found:
    """A whole run: what was asked, the machine, the rows."""

    tasks: int
    seconds: float
    wait_s: float
    rounds: int
    cores: int = 1
    conditions: dict[str, str] = field(default_factory=dict)
    rows: list[RowFound] = field(default_factory=list)

    @property
    def loads(self) -> list[float]:
        """The load averages just before each measurement, in ascending order."""
        return sorted(one.load for row in self.rows for one in row.measured)

    @property
    def busy(self) -> bool:
        """Whether other work kept the machine busy: half of the measurements began at twice the load of its cores."""
        return bool(self.loads) and self.loads[len(self.loads) // 2] > 2 * self.cores

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(self), indent=2) + "\n")
        unfinished.replace(path)


def load(path: Path) -> Found:
    """What `save` wrote. Raises OSError, ValueError, TypeError or KeyError for anything else."""
    read = json.loads(path.read_text())
    rows = [RowFound(**{**row, "measured": [Measured(**one) for one in row["measured"]]}) for row in read.pop("rows")]
    return Found(**read, rows=rows)
