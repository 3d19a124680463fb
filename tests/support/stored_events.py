"""Events for tests of whatever reads them: a log kept in a list, events written by hand, and whole lives by chance."""

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands import events as e
from commands.events import Event, encode_event
from commands.ids import ZERO_HASH, chain_hash, name_id
from commands.settings import PoolSettings
from projections.audit import export_line, import_line
from streams.port import Follower, LogCorrupt, LogReader, LogState, Record, Snapshot, Topic, partition_of

START_AT = 1_790_000_000_000
LOG_ID = "11111111-2222-4333-8444-555555555555"


class ListFollower:
    """Follows a ListLog. Only what was written before `poll` is delivered."""

    def __init__(self, log: "ListLog", starts: Mapping[int, int]) -> None:
        self._log = log
        self._next = dict(starts)
        self._woken = threading.Event()

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """As in the port; waits for `wake` or the time when there is nothing."""
        found: list[Record] = []
        for partition in self._next:
            found += self._take(partition, records_max - len(found))
        if not found:
            self._woken.wait(timeout_s)
            self._woken.clear()
        return found

    def _take(self, partition: int, records_max: int) -> list[Record]:
        rows, index = self._log.rows[partition], self._log.index(partition, self._next[partition])
        taken = rows[index : index + records_max]
        for record in taken:
            if (partition, record.offset) in self._log.corrupt:
                raise LogCorrupt(f"events[{partition}] offset {record.offset} does not match its checksum")
        last = index + len(taken) == len(rows)
        if records_max > 0:
            self._next[partition] = self._log.ends[partition] if last else rows[index + len(taken)].offset
        return taken

    def positions(self) -> dict[int, int]:
        """As in the port."""
        return dict(self._next)

    def wake(self) -> None:
        """As in the port."""
        self._woken.set()

    def close(self) -> None:
        """As in the port."""


@dataclass
class ListLog:
    """A log of events in lists. With `gap` > 1, offsets have gaps, as transaction markers make them."""

    partitions: int = 3
    log_id: str = LOG_ID
    format: int = 1
    gap: int = 1
    now: int = START_AT
    rows: dict[int, list[Record]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    corrupt: set[tuple[int, int]] = field(default_factory=set)
    sequences: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for partition in range(self.partitions):
            self.rows.setdefault(partition, [])
            self.ends.setdefault(partition, 0)

    def save(self, path: Path) -> None:
        """Writes all records as an export, for `load_log` in another process."""
        path.write_bytes(b"".join(map(export_line, self.records())))

    def index(self, partition: int, offset: int) -> int:
        """The index of the first record at or after `offset`."""
        rows = self.rows[partition]
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            if rows[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def write(self, pool: str, event: Event, after_ms: int = 1) -> Event:
        """Fills the envelope of an event, `after_ms` after the last one, and appends it."""
        self.now += after_ms
        event.pool = pool
        event.sequence = self.sequences.get(pool, 0) + 1
        event.occurred_at = self.now
        event.id = name_id(pool, event.type, event.sequence)
        event.caused_by = event.caused_by or "dispatch"
        event.actor = event.actor or "fleetlog"
        self.append(pool, encode_event(event))
        return event

    def append(self, pool: str, value: bytes) -> Record:
        """Appends a value as it is, with its chain hash."""
        partition = partition_of(pool, self.partitions)
        self.sequences[pool] = self.sequences.get(pool, 0) + 1
        digest = self.hashes[pool] = chain_hash(self.hashes.get(pool, ZERO_HASH), value)
        headers = (("type", b""), ("hash", digest))
        record = Record(Topic.EVENTS, partition, self.ends[partition], pool, value, headers, self.now)
        self.rows[partition].append(record)
        self.ends[partition] += self.gap
        return record

    def records(self) -> Iterator[Record]:
        """All records, partition by partition."""
        for partition in range(self.partitions):
            yield from self.rows[partition]

    def follow(self, topic: Topic, starts: Mapping[int, int]) -> Follower:
        """As in the port."""
        return ListFollower(self, starts)

    def beginning(self, topic: Topic, partition: int) -> int:
        """As in the port."""
        return 0

    def end(self, topic: Topic, partition: int) -> int:
        """As in the port."""
        return self.ends[partition]

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """As in the port."""
        index = self.index(partition, offset)
        rows = self.rows[partition]
        return rows[index] if index < len(rows) and rows[index].offset == offset else None

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """As in the port; there are none."""
        return []

    def state(self) -> LogState:
        """See `port.LogReader`: nobody takes it away."""
        return LogState()

    def bad_snapshots(self) -> int:
        """As in the port."""
        return 0

    def close(self) -> None:
        """As in the port."""


def load_log(path: Path, partitions: int = 3, gap: int = 1) -> ListLog:
    """The log that `save` wrote."""
    log = ListLog(partitions, gap=gap)
    for record in map(import_line, path.read_bytes().splitlines()):
        log.rows[record.partition].append(record)
        log.ends[record.partition] = record.offset + gap
    return log


_READER: type[LogReader] = ListLog


# ---- events by hand ----


def pool_created(**own: Any) -> e.PoolCreated:
    """The first event of a pool."""
    values: dict[str, Any] = {"log_id": LOG_ID, "format": 1, "settings": PoolSettings().as_json()}
    return e.PoolCreated(**(values | own))


def submitted(task: str, **own: Any) -> e.TaskSubmitted:
    """A submission with the defaults of a pool."""
    values: dict[str, Any] = {
        "kind": "weld",
        "payload": {"json": {"path": "/a/b.py"}},
        "lease_ms": 15_000,
        "windows": 3,
        "accept_ms": 5_000,
        "retry": e.Retry(failures_max=3, first_ms=1_000, factor=2.0, max_ms=300_000),
        "lost_max": 5,
        "on_lost": e.OnLost(policy="requeue"),
        "digest": "cd" * 32,
        "caused_by": f"command:{task}",
        "actor": "local",
    }
    return e.TaskSubmitted(task=task, **(values | own))


def assigned(task: str, robot: str = "r1", attempt: int = 1, **own: Any) -> e.TaskAssigned:
    """An assignment."""
    values: dict[str, Any] = {
        "origin": "WAITING",
        "epoch": 3,
        "accept_by": START_AT + 5_000,
        "lease_ms": 15_000,
        "windows": 3,
        "stop_after_ms": 15_000,
        "slot_cost": 1,
        "level": 0,
        "waited_ms": 1,
        "because": e.Because(rule="id"),
    }
    return e.TaskAssigned(task=task, robot=robot, attempt=attempt, **(values | own))


def leased(task: str, robot: str = "r1", attempt: int = 1, **own: Any) -> e.LeaseStarted:
    """An accept."""
    values: dict[str, Any] = {"origin": "ASSIGNED", "epoch": 3, "counts_from": START_AT}
    return e.LeaseStarted(task=task, robot=robot, attempt=attempt, **(values | own))


def completed(task: str, robot: str | None = "r1", attempt: int | None = 1, **own: Any) -> e.TaskCompleted:
    """A completion by the robot."""
    values: dict[str, Any] = {"origin": "RUNNING", "by": "robot", "result": {"json": {"ok": True}}, "ran_ms": 7}
    return e.TaskCompleted(task=task, robot=robot, attempt=attempt, **(values | own))


def failed(task: str, robot: str = "r1", attempt: int = 1, to: str = "WAITING", **own: Any) -> e.AttemptFailed:
    """A failure."""
    values: dict[str, Any] = {
        "origin": "RUNNING",
        "failure_class": "retryable",
        "error": e.Failure(type="OSError", message={"json": "disk full"}, detail={"json": "a trace"}),
        "failures": 1,
    }
    return e.AttemptFailed(task=task, robot=robot, attempt=attempt, to=to, **(values | own))


def expired(task: str, to: str, robot: str = "r1", attempt: int = 1, **own: Any) -> e.LeaseExpired:
    """The end of a lease."""
    values: dict[str, Any] = {
        "origin": "RUNNING",
        "epoch": 3,
        "reason": "missed_windows",
        "lost": 1,
        "policy": "requeue",
    }
    return e.LeaseExpired(task=task, robot=robot, attempt=attempt, to=to, **(values | own))


def registered(robot: str = "r1") -> e.RobotRegistered:
    """A robot's first hello."""
    return e.RobotRegistered(robot=robot)


def hello(robot: str = "r1", epoch: int = 3, **own: Any) -> e.RobotSessionStarted:
    """A robot's session."""
    values: dict[str, Any] = {"gateway": "g1", "slots": 2, "capabilities": ["gpu"], "hello": f"{robot}.1"}
    return e.RobotSessionStarted(robot=robot, epoch=epoch, **(values | own))


# ---- lives by chance ----


def write_lives(
    log: ListLog,
    seed: int,
    tasks: int,
    pools: tuple[str, ...] = ("hall-a", "hall-b"),
    robots: int = 8,
    open_max: int = 64,
) -> None:
    """Writes whole lives of tasks, interleaved: most complete, some fail, are lost, cancelled, released, redriven."""
    rng = random.Random(seed)
    for pool in pools:
        if not log.sequences.get(pool):
            log.write(pool, pool_created(settings={"window_ms": 5_000}))
            for number in range(robots):
                log.write(pool, registered(f"r{number}"))
                log.write(pool, hello(f"r{number}", epoch=log.sequences[pool] + 1))
    made = 0
    alive: list[Iterator[None]] = []
    while made < tasks or alive:
        if made < tasks and len(alive) < open_max:
            made += 1
            alive.append(_life(log, rng, rng.choice(pools), f"task-{seed}-{made:07d}-a8b1-4f6e", robots))
        one = rng.randrange(len(alive))
        if next(alive[one], _OVER) is _OVER:
            alive[one] = alive[-1]
            alive.pop()


_OVER = object()


def _life(log: ListLog, rng: random.Random, pool: str, task: str, robots: int) -> Iterator[None]:
    own: dict[str, Any] = {"kind": rng.choice(["weld", "paint", "checksum"])}
    if rng.random() < 0.2:
        own["target"] = f"dock-{rng.randrange(5)}"
    log.write(pool, submitted(task, labels={"line": str(rng.randrange(4))}, priority=rng.randrange(10), **own))
    yield
    for attempt in range(1, 4):
        robot = f"r{rng.randrange(robots)}"
        log.write(pool, assigned(task, robot, attempt))
        yield
        log.write(pool, leased(task, robot, attempt))
        yield
        chance = rng.random()
        if chance < 0.1:
            item = e.ProgressItem(task=task, attempt=attempt, progress=rng.randrange(100), note={"json": "on"})
            log.write(pool, e.ProgressNoted(items=[item]))
            yield
        if chance < 0.05:
            saved = {"json": {"at": attempt}}
            log.write(
                pool, e.CheckpointSaved(task=task, attempt=attempt, robot=robot, number=attempt, checkpoint=saved)
            )
            yield
        if chance > 0.1:
            result = {"json": {"sha256": "ab" * 32}}
            log.write(pool, completed(task, robot, attempt, result=result))
            return
        if chance < 0.03:
            log.write(pool, expired(task, "WAITING", robot, attempt))
        else:
            log.write(pool, failed(task, robot, attempt, failures=attempt))
        yield
    log.write(pool, e.TaskCancelled(task=task, origin="WAITING"))
