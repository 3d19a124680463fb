"""The referee of the killing rounds: reads the log and what the crew wrote, and shares no state with the product."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pydantic_core import from_json

from commands.checker import Checker
from streams.port import LogReader, Record, Topic
from streams.reading import read_range

ENDS = ("TaskCompleted", "TaskCancelled", "TaskDiscarded")


@dataclass(slots=True)
class Verdict:
    """What was found; `findings` name every broken invariant."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    completed: int = 0
    unended: list[str] = field(default_factory=list)
    overlapping: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Any] = field(default_factory=list)
    events: int = 0
    leases_expired: int = 0
    attempts: int = 0

    @property
    def good(self) -> bool:
        """Nothing lost, nothing stuck, nobody worked on one target twice at once, every invariant holds."""
        return not (self.lost or self.unended or self.overlapping or self.findings)


def judge(log: LogReader, acknowledged: set[str], work: list[tuple[str, int, str, float, float]]) -> Verdict:
    """Everything acknowledged is in `events` and has ended; invariants 1 to 7; no two robots at one target."""
    verdict = Verdict(acknowledged=len(acknowledged))
    checkers: dict[str, Checker] = {}
    submitted: set[str] = set()
    ended: set[str] = set()
    for record in all_events(log):
        checker = checkers.setdefault(record.key, Checker(record.key))
        verdict.findings += checker.event(record.value, record.header("hash"))
        _count(verdict, from_json(record.value), submitted, ended)
    for checker in checkers.values():
        verdict.findings += checker.finish()
    verdict.lost = sorted(acknowledged - submitted)
    verdict.unended = sorted(submitted - ended)
    verdict.overlapping = overlaps(work)
    return verdict


def _count(verdict: Verdict, event: dict[str, Any], submitted: set[str], ended: set[str]) -> None:
    name = event["type"].partition(".")[0]
    verdict.events += 1
    verdict.leases_expired += name == "LeaseExpired"
    verdict.attempts += name == "LeaseStarted"
    verdict.completed += name == "TaskCompleted"
    if name == "TaskSubmitted":
        submitted.add(event["task"])
    if name in ENDS:
        ended.add(event["task"])


def all_events(log: LogReader) -> Iterator[Record]:
    """Every event, partition by partition in order."""
    for partition in range(log.partitions):
        yield from whole_partition(log, Topic.EVENTS, partition)


def whole_partition(log: LogReader, topic: Topic, partition: int) -> Iterator[Record]:
    """Everything that lies in a partition now."""
    return read_range(log, topic, partition, log.beginning(topic, partition), log.end(topic, partition))


def overlaps(work: list[tuple[str, int, str, float, float]]) -> list[tuple[str, str]]:
    """Pairs of tasks or attempts whose robots worked on one target at the same time, by the robots' own records."""
    by_target = defaultdict(list)
    for task, attempt, target, began, ended in work:
        by_target[target].append((began, ended, f"{task}/{attempt}"))
    found = []
    for spans in by_target.values():
        spans.sort()
        found += [(a[2], b[2]) for a, b in pairwise(spans) if b[0] < a[1]]
    return found
