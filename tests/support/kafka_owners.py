"""Owners in processes of their own, a feeder of inputs, and the check of what they decided."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streams.kafka_log import KafkaLog
from streams.port import LogBusy, LogFault, LogUnavailable, Record, Topic, partition_of
from tests.streams.contract import CEILING_S, read

ROUNDS = int(os.environ.get("FLEETLOG_ROUNDS", "1"))
"""How often each take-over is played; CI plays one."""


def wait_until(true: Callable[[], bool], what: str, ceiling_s: float = CEILING_S) -> None:
    """Returns when `true()` is; fails after the ceiling."""
    give_up = time.monotonic() + ceiling_s
    while not true():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.02)


class Owner:
    """One owner process; `lines` is what it said, `counts` how often per (word, partition)."""

    def __init__(self, bootstrap: str, prefix: str, name: str) -> None:
        self.name = name
        self.counts: Counter[tuple[str, int]] = Counter()
        self.inputs: Counter[int] = Counter()
        self._errors: list[bytes] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kafka_owner", bootstrap, prefix, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._collect, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            self.counts[words[0].decode(), int(words[1])] += 1
            if words[0] == b"committed":
                self.inputs[int(words[1])] += int(words[2])

    def _collect(self) -> None:
        assert self.process.stderr is not None
        self._errors += self.process.stderr

    @property
    def errors(self) -> str:
        """What it said on stderr."""
        return b"".join(self._errors).decode()

    def started(self) -> set[int]:
        """The partitions that it started at least once."""
        return {partition for (word, partition), _ in self.counts.items() if word == "started"}

    def count(self, word: str) -> int:
        """How often it said `word`."""
        return sum(times for (said, _), times in self.counts.items() if said == word)

    def signal(self, which: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(which)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(CEILING_S)

    def leave(self) -> None:
        """Ends it in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(CEILING_S)


@dataclass
class Feeder:
    """Appends commands and reports to all partitions, `per_s` of each together, and remembers what is durable."""

    log: KafkaLog
    per_s: float = 300.0
    acknowledged: list[tuple[Topic, int, int]] = field(default_factory=list)
    failed: list[LogFault] = field(default_factory=list)
    appended: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in range(10_000_000):
            if self._stop.wait(1 / self.per_s):
                return
            for topic in (Topic.COMMANDS, Topic.REPORTS):
                self._append(topic, f"pool-{number % 97}", f"{topic} {number}".encode())

    def _append(self, topic: Topic, pool: str, value: bytes) -> None:
        place = partition_of(pool, self.log.partitions)

        def done(fault: LogFault | None, offset: int) -> None:
            if fault:
                self.failed.append(fault)
            else:
                self.acknowledged.append((topic, place, offset))

        try:
            self.log.append(topic, pool, value, (), done)
            self.appended += 1
        except LogBusy as busy:
            self.failed.append(busy)

    def stop(self) -> None:
        """Ends feeding, when everything is answered."""
        self._stop.set()
        wait_until(lambda: len(self.acknowledged) + len(self.failed) >= self.appended, "answers")


@dataclass(slots=True)
class Decided:
    """What stands in `events` of one partition."""

    records: list[Record]
    said: list[dict[str, Any]]


def decided(log: KafkaLog, partition: int) -> Decided:
    """Everything that was decided for one partition, as a reader sees it."""
    records = read(log, Topic.EVENTS, partition)
    return Decided(records, [json.loads(record.value) for record in records])


def wait_all_decided(log: KafkaLog) -> None:
    """Returns when the committed positions stand at the ends of all inputs."""

    def decided_to_the_end(partition: int) -> bool:
        reports, commands = log._offsets.committed((Topic.REPORTS, Topic.COMMANDS), partition)
        ends = log.end(Topic.REPORTS, partition), log.end(Topic.COMMANDS, partition)
        return (max(reports, 0), max(commands, 0)) == ends

    def all_decided() -> bool:
        try:
            return all(decided_to_the_end(partition) for partition in range(log.partitions))
        except LogUnavailable:
            # A commit is under way, or a broker is coming back.
            return False

    wait_until(all_decided, "all inputs to be decided")


def check(log: KafkaLog, feeder: Feeder) -> dict[int, Decided]:
    """Each acknowledged input was decided exactly once and in order, numbers have no gap, no life writes again after a
    later one has begun; outcomes are as many."""
    by_partition = {}
    for partition in range(log.partitions):
        found = decided(log, partition)
        by_partition[partition] = found
        assert [said["number"] for said in found.said] == list(range(1, len(found.said) + 1))
        lives = [said["life"] for said in found.said]
        changes = [life for life, before in zip(lives, [None, *lives], strict=False) if life != before]
        assert len(changes) == len(set(changes)), f"a former owner wrote again: {changes}"
        causes = [said["of"] for said in found.said if said["of"] != "taken"]
        for topic in (Topic.REPORTS, Topic.COMMANDS):
            offsets = [int(cause.split("@")[1]) for cause in causes if cause.startswith(f"{topic}@")]
            assert offsets == sorted(set(offsets)), f"{topic} {partition} was decided twice or out of order"
            stored = [record.offset for record in read(log, topic, partition)]
            assert offsets == stored, f"{topic} {partition} was skipped"
            durable = {offset for t, p, offset in feeder.acknowledged if (t, p) == (topic, partition)}
            assert durable <= set(offsets)
        assert len(read(log, Topic.OUTCOMES, partition)) == len(causes)
    return by_partition


def gap_s(found: dict[int, Decided], partitions: set[int], since_ms: float) -> float:
    """The longest time from `since_ms` until the first input decided by a life that began later, in seconds."""
    gaps = []
    for partition in partitions:
        records, said = found[partition].records, found[partition].said
        begun = [i for i, one in enumerate(said) if one["of"] == "taken" and records[i].appended_at >= since_ms]
        after = next(record for record in records[begun[0] + 1 :])
        gaps.append((after.appended_at - since_ms) / 1_000)
    return max(gaps)
