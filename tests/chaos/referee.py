"""The referee of the chaos rounds: reads raw JSON with kafka-python and shares no code with what it judges.

It knows the formats by their pages alone. `read` fetches topics, `Referee` takes events one by one in the order of the
log, and `judge` puts together what is wrong. Nothing of the product is imported here, and a test sees to that.
"""

import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kafka import KafkaConsumer, TopicPartition

Fields = dict[str, Any]
HOLDING = ("ASSIGNED", "RUNNING", "LOST")
ENDED = ("COMPLETED", "CANCELLED", "DISCARDED")
READ_CEILING_S = 300.0
ALLOWED = """
none TaskSubmitted WAITING
WAITING TaskChanged WAITING
WAITING TaskAssigned ASSIGNED
WAITING TaskCancelled CANCELLED
WAITING DeadlinePassed WAITING DEAD CANCELLED
WAITING TaskCompleted COMPLETED
ASSIGNED LeaseStarted RUNNING
ASSIGNED AssignmentWithdrawn WAITING
ASSIGNED AssignmentRejected WAITING
ASSIGNED TaskReleased WAITING
ASSIGNED TaskCancelled CANCELLED
RUNNING TaskCompleted COMPLETED
RUNNING AttemptFailed WAITING DEAD CANCELLED
RUNNING AttemptStopped WAITING LOST DEAD CANCELLED
RUNNING LeaseExpired WAITING LOST DEAD CANCELLED
RUNNING TaskReleased WAITING DEAD CANCELLED
RUNNING DeadlinePassed RUNNING
LOST LeaseResumed RUNNING
LOST TaskCompleted COMPLETED
LOST AttemptFailed WAITING DEAD
LOST LostWaitEnded WAITING DEAD
LOST AttemptStopped WAITING LOST DEAD
LOST TaskReleased WAITING
LOST TaskCancelled CANCELLED
DEAD TaskRedriven WAITING
DEAD TaskDiscarded DISCARDED
DEAD TaskCompleted COMPLETED
"""
TRANSITIONS = {(start, event, end) for start, event, *ends in map(str.split, ALLOWED.split("\n")[1:-1]) for end in ends}
CONDITION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._:-]*?)(?:(>=|<=|=|>|<)(.+))?$")


@dataclass(slots=True)
class Raw:
    """A record as the broker gave it."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes
    headers: dict[str, bytes]


def read(bootstrap: str, topic: str) -> list[Raw]:
    """Every committed record of a topic, partition by partition in order."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    try:
        places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Raw] = []
        give_up = time.monotonic() + READ_CEILING_S
        while any(consumer.position(place) < ends[place] for place in places):
            if time.monotonic() > give_up:
                raise AssertionError(f"{topic} could not be read to its end")
            for records in consumer.poll(timeout_ms=500, max_records=5_000).values():
                found += [
                    Raw(topic, r.partition, r.offset, (r.key or b"").decode(), r.value, dict(r.headers))
                    for r in records
                ]
    finally:
        consumer.close()
    return sorted(found, key=lambda raw: (raw.partition, raw.offset))


@dataclass(slots=True)
class TaskSeen:
    """A task as the events tell it."""

    state: str
    target: str | None
    kind: str
    cost: int
    requirement: list[str]
    attempt: int = 0
    robot: str | None = None
    started: bool = False
    cause: str = ""


@dataclass(slots=True)
class RobotSeen:
    """A robot as the events tell it."""

    slots: int = 0
    capabilities: list[str] = field(default_factory=list)
    drained: bool = False


class Referee:
    """Holds the events of one pool against the invariants; `findings` are sentences."""

    def __init__(self, pool: str, ids: set[str] | None = None) -> None:
        self.pool = pool
        self.findings: list[str] = []
        self.tasks: dict[str, TaskSeen] = {}
        self.robots: dict[str, RobotSeen] = defaultdict(RobotSeen)
        self.counts: dict[str, int] = defaultdict(int)
        self.sequence = 0
        self._chain = bytes(32)
        self._at = 0
        self._ids = set() if ids is None else ids
        self._holds: dict[tuple[str, int], TaskSeen] = {}
        self._paused: set[tuple[str, str | None]] = set()

    def event(self, value: bytes, chain: bytes | None) -> None:
        """The next event of the pool, as stored."""
        event: Fields = json.loads(value)
        name = str(event["type"]).partition(".")[0]
        self.counts[name] += 1
        self._record(event, value, chain)
        if "to" in event:
            self._transition(name, event)
        handler = HANDLERS.get(name)
        if handler is not None:
            handler(self, event)

    def _say(self, text: str) -> None:
        self.findings.append(f"{self.pool} {self.sequence}: {text}")

    # ---- 6 and 7: the record ----

    def _record(self, event: Fields, value: bytes, chain: bytes | None) -> None:
        self.sequence += 1
        self._chain = hashlib.sha256(self._chain + value).digest()
        if chain != self._chain:
            self._say("6: the hash does not follow")
            self._chain = chain or self._chain
        if event["sequence"] != self.sequence:
            self._say(f"6: sequence {event['sequence']} where {self.sequence} was due")
            self.sequence = event["sequence"]
        if event["occurred_at"] < self._at:
            self._say("6: time fell")
        self._at = event["occurred_at"]
        if event["id"] in self._ids:
            self._say(f"7: the id {event['id']} came before")
        self._ids.add(event["id"])

    # ---- 1 and 3: states ----

    def _transition(self, name: str, event: Fields) -> None:
        task_id, before, after = event["task"], event.get("from", "none"), event["to"]
        task = self.tasks.get(task_id)
        was = "none" if task is None else task.state
        if was in ENDED:
            self._say(f"3: {name} leads {task_id} out of {was}")
        if was != before and not (task is None and before in (None, "none")):
            self._say(f"3: {name} says {task_id} was {before}, it was {was}")
        if (was, name, after) not in TRANSITIONS:
            self._say(f"3: {name} leads {task_id} from {was} to {after}")
        if task is None and name != "TaskSubmitted":
            return
        if task is None:
            self.tasks[task_id] = task = TaskSeen(
                after, event.get("target"), event["kind"], event["slot_cost"], event["requirement"]
            )
            task.cause = event["caused_by"]
            return
        if name == "TaskAssigned":
            self._assigned(task_id, task, event)
        elif was in HOLDING and event.get("attempt") != task.attempt and name != "TaskCancelled":
            self._say(f"3: {name} is about attempt {event.get('attempt')} of {task_id}, current is {task.attempt}")
        if name == "LeaseStarted":
            if task.started:
                self._say(f"3: attempt {task.attempt} of {task_id} starts twice")
            task.started = True
        if was in HOLDING and after not in HOLDING and event.get("held"):
            copy = TaskSeen(was, task.target, task.kind, task.cost, task.requirement, task.attempt, task.robot)
            self._holds[task_id, task.attempt] = copy
        task.state = after

    def _assigned(self, task_id: str, task: TaskSeen, event: Fields) -> None:
        robot = self.robots[event["robot"]]
        if event["attempt"] <= task.attempt:
            self._say(f"3: attempt {event['attempt']} of {task_id} after {task.attempt}")
        holding = [t for t in self.tasks.values() if t.state in HOLDING] + list(self._holds.values())
        if task.target is not None and any(other.target == task.target for other in holding):
            self._say(f"1: {task_id} is assigned although its target {task.target} is held")
        used = sum(other.cost for other in holding if other.robot == event["robot"])
        if used + task.cost > robot.slots:
            self._say(f"1: {event['robot']} has {robot.slots} slots, {used} used, and gets {task_id} of {task.cost}")
        lacking = [condition for condition in task.requirement if not meets(condition, robot.capabilities)]
        kinds = [name for name in robot.capabilities if name.startswith("kind:")]
        if kinds and f"kind:{task.kind}" not in kinds:
            lacking.append(f"kind:{task.kind}")
        if lacking:
            self._say(f"4: {event['robot']} gets {task_id} and lacks {lacking}")
        if robot.drained:
            self._say(f"4: {event['robot']} is drained and gets {task_id}")
        scopes = {("pool", None), ("kind", task.kind), ("task", task_id), ("target", task.target)}
        if self._paused & scopes:
            self._say(f"4: {task_id} is assigned while {self._paused & scopes} is paused")
        task.attempt, task.robot, task.started = event["attempt"], event["robot"], False

    # ---- what else is needed for 1 and 4 ----

    def _changed(self, event: Fields) -> None:
        task, changed = self.tasks[event["task"]], event.get("changed") or {}
        task.requirement = changed.get("requirement", task.requirement)
        task.cost = changed.get("slot_cost", task.cost)

    def _robot_is(self, event: Fields) -> None:
        robot = self.robots[event["robot"]]
        robot.slots, robot.capabilities = event["slots"], event["capabilities"]

    def _drained(self, event: Fields) -> None:
        self.robots[event["robot"]].drained = True

    def _undrained(self, event: Fields) -> None:
        self.robots[event["robot"]].drained = False

    def _retired(self, event: Fields) -> None:
        self.robots.pop(event["robot"], None)

    def _hold_ended(self, event: Fields) -> None:
        self._holds.pop((event["task"], event["attempt"]), None)

    def _pause(self, event: Fields) -> None:
        self._paused.add((event["scope"], event.get("name")))

    def _resume(self, event: Fields) -> None:
        self._paused.discard((event["scope"], event.get("name")))


HANDLERS = {
    "TaskChanged": Referee._changed,
    "TaskRedriven": Referee._changed,
    "RobotSessionStarted": Referee._robot_is,
    "RobotChanged": Referee._robot_is,
    "RobotDrained": Referee._drained,
    "RobotUndrained": Referee._undrained,
    "RobotRetired": Referee._retired,
    "HoldEnded": Referee._hold_ended,
    "DispatchPaused": Referee._pause,
    "DispatchResumed": Referee._resume,
}


def meets(condition: str, capabilities: Iterable[str]) -> bool:
    """Whether a robot with these capabilities meets one condition, as the protocol's page defines it."""
    own = dict(pair.partition("=")[::2] for pair in capabilities)
    found = CONDITION.match(condition)
    if found is None or found[1] not in own:
        return False
    name, comparison, wanted = found.groups()
    if comparison is None:
        return True
    if comparison == "=":
        return own[name] == wanted
    try:
        has, bound = float(own[name]), float(wanted)
    except ValueError:
        return False
    return {">=": has >= bound, "<=": has <= bound, ">": has > bound, "<": has < bound}[comparison]


# ---- the verdict ----

Span = tuple[str, int, str, float, float]
"""(task, attempt, target, began, ended) on the clock of the machine that all robots share."""


@dataclass(slots=True)
class Verdict:
    """What was found. `good`: nothing lost, nothing unended, nobody at one target twice at once, no finding."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    never_asked: list[str] = field(default_factory=list)
    unended: list[str] = field(default_factory=list)
    overlapping: list[tuple[str, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    events: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.never_asked or self.unended or self.overlapping or self.findings)


def judge(
    events: Iterable[Raw],
    commands: Iterable[Raw],
    acknowledged: Mapping[str, set[str]],
    work: Iterable[Span],
    answers: Iterable[Fields] = (),
) -> Verdict:
    """`acknowledged`: pool -> tasks that a submitter was told of; `answers`: every task as each gateway shows it."""
    verdict = Verdict(acknowledged=sum(map(len, acknowledged.values())))
    ids: set[str] = set()
    referees: dict[str, Referee] = {}
    for raw in events:
        referee = referees.setdefault(raw.key, Referee(raw.key, ids))
        referee.event(raw.value, raw.headers.get("hash"))
    asked = tasks_asked_for(commands)
    for pool, referee in referees.items():
        verdict.findings += referee.findings
        verdict.events += sum(referee.counts.values())
        for name, count in referee.counts.items():
            verdict.counts[name] = verdict.counts.get(name, 0) + count
        open_tasks = (f"{pool}/{task}: {seen.state}" for task, seen in referee.tasks.items() if seen.state not in ENDED)
        verdict.unended += sorted(open_tasks)
        for task, seen in referee.tasks.items():
            if seen.cause.removeprefix("command:") not in asked.get((pool, task), ()):
                verdict.never_asked.append(f"{pool}/{task}")
    for pool, tasks in acknowledged.items():
        known: Iterable[str] = referees[pool].tasks if pool in referees else ()
        verdict.lost += sorted(f"{pool}/{task}" for task in tasks - set(known))
    verdict.findings += differences(referees, answers)
    verdict.overlapping = overlaps(work)
    return verdict


def tasks_asked_for(commands: Iterable[Raw]) -> dict[tuple[str, str], set[str]]:
    """(pool, task) -> the ids of the commands that asked for it."""
    found = defaultdict(set)
    for raw in commands:
        command = json.loads(raw.value)
        if command["type"] == "submit":
            found[command["pool"], command["body"]["task"]].add(command["id"])
    return found


def differences(referees: Mapping[str, Referee], answers: Iterable[Fields]) -> list[str]:
    """5, seen from outside: what a gateway says of a task and what its events say."""
    found = []
    for told in answers:
        seen = referees[told["pool"]].tasks.get(told["id"])
        if seen is None:
            found.append(f"5: {told['pool']}/{told['id']} is shown and has no event")
        elif (told["state"], told.get("attempt", 0)) != (seen.state, seen.attempt):
            found.append(f"5: {told['pool']}/{told['id']} is shown as {told['state']}, events say {seen.state}")
    return found


def overlaps(work: Iterable[Span]) -> list[tuple[str, str]]:
    """Pairs of attempts whose robots were at one target at the same time, by the robots' own records."""
    by_target = defaultdict(list)
    for task, attempt, target, began, ended in work:
        by_target[target].append((began, ended, f"{task}/{attempt}"))
    return [
        (one[2], other[2])
        for spans in by_target.values()
        for one, other in pairwise(sorted(spans))
        if other[0] < one[1]
    ]
