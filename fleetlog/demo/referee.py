"""The referee of the demonstration: reads the exported log and the files, and nothing else.

It is told which robot was killed and when, and finds in the log what followed. Every figure that the demonstration
shows at the end is counted here.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fleetlog.archive import read_archive
from fleetlog.checking import Invariants
from fleetlog.demo.files import path_in
from projections.audit import verify
from streams.port import Record

SIZES: Final = ((4_096, "up to 4 KiB"), (16_384, "4 to 16 KiB"), (65_536, "16 to 64 KiB"), (1 << 62, "over 64 KiB"))
"""Upper bound of a class of files (bytes) -> its name."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A robot that got SIGKILL, and when (ms since 1970 UTC)."""

    robot: str
    at: int


@dataclass(slots=True)
class SizeClass:
    """Files of one class of sizes: how many, their bytes, and what they were compressed to."""

    files: int = 0
    bytes: int = 0
    compressed: int = 0


@dataclass(slots=True)
class RobotFigures:
    """What one robot came to by the log."""

    attempts: int = 0
    completed: int = 0
    lost: int = 0


@dataclass(slots=True)
class Verdict:
    """What the referee found. `waits_ms`: sorted times from submission (or requeue) to assignment."""

    events: int = 0
    verified: bool = False
    problems: list[str] = field(default_factory=list)
    tasks: int = 0
    completed: int = 0
    completed_twice: int = 0
    wrong_results: int = 0
    attempts: int = 0
    leases_lost: int = 0
    lost_after_kill: int = 0
    restarts: int = 0
    gap_ms: int = 0
    late_reports: int = 0
    resumed: int = 0
    waits_ms: list[int] = field(default_factory=list)
    span_ms: int = 0
    robots: dict[str, RobotFigures] = field(default_factory=dict)
    sizes: dict[str, SizeClass] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """Why the demonstration failed, a sentence each; nothing where all is right."""
        said = list(self.problems)
        if self.completed != self.tasks:
            said.append(f"{self.tasks - self.completed} of {self.tasks} tasks were not completed.")
        if self.completed_twice:
            said.append(f"{self.completed_twice} tasks were completed more than once.")
        if self.wrong_results:
            said.append(f"{self.wrong_results} results are not what hashlib says over the files.")
        if not self.lost_after_kill:
            said.append("no lease that the killed robot held has ended by expiry.")
        if not self.restarts:
            said.append("the log shows no restart of Fleetlog.")
        return said


def judge(export: Path, files: Iterable[Path], killed: Killed) -> Verdict:
    """Reads the export twice: once to verify it, once to count. Raises Problem where it is no export."""
    verdict = Verdict()
    report = verify(read_archive(export), [Invariants()])
    verdict.events, verdict.verified = report.events, report.verified
    verdict.problems += [f"the log does not verify: {problem.text}." for problem in report.problems[:5]]
    count = _Count(verdict, killed)
    for record in read_archive(export):
        count.take(record)
    count.finish(set(files))
    return verdict


class _Count:
    """Goes through the events once."""

    def __init__(self, verdict: Verdict, killed: Killed) -> None:
        self._verdict = verdict
        self._killed = killed
        self._payloads: dict[str, Any] = {}
        self._completions: Counter[str] = Counter()
        self._results: dict[str, Any] = {}
        self._held_at_kill: set[tuple[str, int]] = set()
        self._robots: dict[str, RobotFigures] = defaultdict(RobotFigures)
        self._first_at = self._last_at = 0

    def take(self, record: Record) -> None:
        event = json.loads(record.value)
        self._first_at = self._first_at or event["occurred_at"]
        self._last_at = event["occurred_at"]
        step = _STEPS.get(event["type"])
        if step is not None:
            step(self, event)

    def finish(self, files: set[Path]) -> None:
        verdict = self._verdict
        verdict.tasks = len(self._payloads)
        verdict.completed = sum(1 for task in self._payloads if self._completions[task])
        verdict.completed_twice = sum(1 for times in self._completions.values() if times > 1)
        verdict.waits_ms.sort()
        verdict.span_ms = self._last_at - self._first_at
        verdict.robots = dict(sorted(self._robots.items()))
        verdict.sizes = {name: SizeClass() for _, name in SIZES}
        submitted = {path_in(payload) for payload in self._payloads.values()}
        if submitted != files:
            verdict.problems.append(f"{len(files ^ submitted)} files and tasks do not belong to each other.")
        for task, payload in self._payloads.items():
            if task in self._results:
                self._compare(path_in(payload), self._results[task])

    def _compare(self, path: Path, result: Any) -> None:
        """The result against the file, read here and now."""
        content = path.read_bytes()
        right = (
            isinstance(result, dict)
            and result.get("sha256") == sha256(content).hexdigest()
            and result.get("bytes") == len(content)
            and isinstance(result.get("compressed"), int)
        )
        if not right:
            self._verdict.wrong_results += 1
            return
        name = next(name for bound, name in SIZES if len(content) <= bound)
        size = self._verdict.sizes[name]
        size.files += 1
        size.bytes += len(content)
        size.compressed += result["compressed"]

    # ---- one event ----

    def submitted(self, event: Mapping[str, Any]) -> None:
        self._payloads[event["task"]] = (event.get("payload") or {}).get("json")

    def assigned(self, event: Mapping[str, Any]) -> None:
        self._verdict.attempts += 1
        self._verdict.waits_ms.append(event["waited_ms"])
        self._robots[event["robot"]].attempts += 1
        if event.get("checkpoint_number"):
            self._verdict.resumed += 1

    def started(self, event: Mapping[str, Any]) -> None:
        if event["robot"] == self._killed.robot and event["occurred_at"] <= self._killed.at:
            self._held_at_kill.add((event["task"], event["attempt"]))

    def expired(self, event: Mapping[str, Any]) -> None:
        self._verdict.leases_lost += 1
        self._robots[event["robot"]].lost += 1
        if (event["task"], event["attempt"]) in self._held_at_kill and event["occurred_at"] > self._killed.at:
            self._verdict.lost_after_kill += 1

    def completed(self, event: Mapping[str, Any]) -> None:
        self._completions[event["task"]] += 1
        self._results[event["task"]] = (event.get("result") or {}).get("json")
        if event.get("robot"):
            self._robots[event["robot"]].completed += 1

    def taken_over(self, event: Mapping[str, Any]) -> None:
        if event["reason"] != "hand_over":
            return
        self._verdict.restarts += 1
        self._verdict.gap_ms = max(self._verdict.gap_ms, event["gap_ms"])

    def late(self, event: Mapping[str, Any]) -> None:
        self._verdict.late_reports += 1


_STEPS: Final = {
    "TaskSubmitted.v1": _Count.submitted,
    "TaskAssigned.v1": _Count.assigned,
    "LeaseStarted.v1": _Count.started,
    "LeaseExpired.v1": _Count.expired,
    "TaskCompleted.v1": _Count.completed,
    "OwnershipTaken.v1": _Count.taken_over,
    "ReportedLate.v1": _Count.late,
}
