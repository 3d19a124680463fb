"""What the checker of invariants knows of a pool: open tasks, robots, holds, targets, pauses; and what may change them.

A model of its own, as small as the invariants need; it shares no rule with what decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from commands.checker_limits import KnownLimits
from commands.checker_schedules import KnownSchedules
from commands.requirements import Abilities, abilities_of, meets
from commands.vocabulary import HELD_STATES, TERMINAL_STATES, TRANSITIONS

ENDED_KEPT: Final = 100_000
OFFLINE_AFTER_MISSED: Final = 3
LEASE_WINDOWS_MIN: Final = 3
DAY_MS: Final = 86_400_000

Fields = dict[str, Any]
_TRANSITIONS: Final = frozenset(name for _, name, _ in TRANSITIONS)


@dataclass(slots=True)
class OpenTask:
    """An open task; `robot` has its attempt while it is held."""

    kind: str
    sequence: int
    requirement: tuple[str, ...]
    slot_cost: int
    target: str | None
    not_before: int
    limit_key: str | None = None
    state: str = "WAITING"
    attempt: int = 0
    robot: str | None = None
    lease_ms: int = 0
    lease_sequence: int = 0
    not_again_before: int = 0
    checkpoint: int = 0
    redrives: int = 0
    cancelled_attempt: int = 0
    missed: tuple[int, int, int] = (0, 0, 0)
    reported: set[tuple[int, str]] | None = None


@dataclass(slots=True)
class KnownRobot:
    """A registered robot; `used` counts attempts and holds."""

    epoch: int = 0
    slots: int = 0
    ready: int = 0
    abilities: Abilities = field(default_factory=dict)
    online: bool = False
    silent: bool = False
    offline: bool = False
    draining: bool = False
    fault: str | None = None
    used: int = 0

    def why_not(self) -> str | None:
        """Why it may get nothing new, or None."""
        for word in ("silent", "offline", "draining", "fault"):
            if getattr(self, word):
                return "in ERROR" if word == "fault" else word
        return None if self.online else "without a session"


@dataclass(slots=True, frozen=True)
class HeldOn:
    """Slot and target that stay held after an attempt."""

    robot: str
    slot_cost: int
    target: str | None
    sequence: int


class Model:
    """The state of a pool as its events tell it; `say(rule, text)` takes what is wrong with the event at hand."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self.say = say
        self.tasks: dict[str, OpenTask] = {}
        self.robots: dict[str, KnownRobot] = {}
        self.holds: dict[tuple[str, int], HeldOn] = {}
        self.targets: dict[str, tuple[str, int]] = {}
        self.paused: set[tuple[str, str]] = set()
        self.limits = KnownLimits()
        self.schedules = KnownSchedules()
        self.frozen = False
        self.ended: dict[str, tuple[int, int]] = {}
        self.ended_count = 0
        self.remembered = (7.0, 5_000_000)

    def take(self, name: str, event: Fields) -> None:
        """Checks and applies an event of type `name`."""
        if name in _TRANSITIONS:
            self._transition(name, event)
        else:
            _OTHERS.get(name, _nothing)(self, event)

    # ---- tasks ----

    def _transition(self, name: str, event: Fields) -> None:
        task_id, origin, to = event["task"], event.get("from"), event["to"]
        task = self.tasks.get(task_id)
        if (origin, name, to) not in TRANSITIONS:
            self.say("transition", f"{name} does not lead from {origin} to {to}")
        if (to == "DEAD") != ("dead_reason" in event):
            self.say("dead reason", "what leads to DEAD says why, and nothing else does")
        if name == "TaskSubmitted":
            self._submitted(event, task)
            return
        if task is None:
            ended = task_id in self.ended
            self.say("terminal" if ended else "transition", f"task {task_id} is {'ended' if ended else 'unknown'}")
            return
        if origin != task.state:
            self.say("transition", f"task {task_id} was {task.state}, not {origin}")
        if name == "TaskAssigned":
            self._assigned(event, task)
        else:
            self._check_attempt(name, event, task)
            _TRANSITION_FACTS.get(name, _no_fact)(self, event, task)
        was, task.state = task.state, to
        if was in HELD_STATES and to not in HELD_STATES:
            self._attempt_over(event, task)
        if to in TERMINAL_STATES:
            del self.tasks[task_id]
            self._note_ended(task_id, event["occurred_at"])

    def _submitted(self, event: Fields, task: OpenTask | None) -> None:
        task_id, at = event["task"], event["occurred_at"]
        days, most = self.remembered
        ended_at, number = self.ended.pop(task_id, (0, 0))
        forgotten = not ended_at or at - ended_at >= days * DAY_MS or self.ended_count - number >= most
        if task is not None or not forgotten:
            self.say("submitted twice", f"task {task_id} is known already")
        if "schedule" in event:
            self._firing(self.schedules.fired(event))
        self.tasks[task_id] = OpenTask(
            kind=event["kind"],
            sequence=event["sequence"],
            requirement=tuple(event["requirement"]),
            slot_cost=event["slot_cost"],
            target=event.get("target"),
            not_before=event.get("not_before", 0),
            limit_key=event.get("limit_key"),
        )

    def _note_ended(self, task_id: str, at: int) -> None:
        self.ended[task_id] = (at, self.ended_count)
        self.ended_count += 1
        if len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]
        self.paused.discard(("task", task_id))

    def _assigned(self, event: Fields, task: OpenTask) -> None:
        """Invariants 1, 3 and 4 at the moment of an assignment."""
        task_id, at, name = event["task"], event["occurred_at"], event["robot"]
        if event["attempt"] != task.attempt + 1:
            self.say("attempt", f"attempt {event['attempt']} follows attempt {task.attempt}")
        if at < task.not_before or at < task.not_again_before:
            self.say("too early", f"task {task_id} was not to be assigned yet")
        scopes = (("pool", ""), ("kind", task.kind), ("task", task_id), ("target", task.target or ""))
        if self.frozen or any(scope in self.paused for scope in scopes):
            self.say("paused", f"task {task_id}, its kind, target or pool is paused, or the pool is frozen")
        if event["slot_cost"] != task.slot_cost:
            self.say("slots", f"task {task_id} costs {task.slot_cost} slots, not {event['slot_cost']}")
        above = self.limits.assigned(task.kind, task.limit_key, at)
        if above is not None:
            self.say("limit", above)
        robot = self.robots.get(name)
        if robot is None:
            self.say("not able", f"robot {name} is not registered")
            robot = self.robots[name] = KnownRobot()
        else:
            self._check_robot(event, task, robot)
        task.attempt, task.robot = event["attempt"], name
        task.lease_ms, task.missed = event["lease_ms"], (0, 0, 0)
        robot.used += task.slot_cost
        if task.target is not None:
            holder = self.targets.get(task.target)
            if holder is not None:
                self.say("target", f"target {task.target} is held by attempt {holder[1]} of task {holder[0]}")
            self.targets[task.target] = (task_id, task.attempt)

    def _check_robot(self, event: Fields, task: OpenTask, robot: KnownRobot) -> None:
        name = event["robot"]
        why = robot.why_not()
        if why is not None or robot.epoch != event["epoch"]:
            self.say("not able", f"robot {name} is {why or 'in another session'}")
        needed = (*task.requirement, f"kind:{task.kind}")
        if not meets(needed, robot.abilities):
            self.say("requirement", f"robot {name} does not meet {', '.join(needed)}")
        if robot.used + task.slot_cost > min(robot.slots, robot.ready):
            text = (
                f"has {robot.used} of {robot.slots} slots in use, {robot.ready} ready; {task.slot_cost} more do not fit"
            )
            self.say("slots", f"robot {name} {text}")

    def _check_attempt(self, name: str, event: Fields, task: OpenTask) -> None:
        """Whatever is said of an attempt is about the current one and its robot."""
        attempt, robot = event.get("attempt"), event.get("robot")
        if attempt is not None and attempt != task.attempt:
            self.say("attempt", f"{name} is about attempt {attempt}, the current one is {task.attempt}")
        if task.state in HELD_STATES and robot is not None and robot != task.robot:
            self.say("robot", f"{name} names robot {robot}, the attempt belongs to {task.robot}")

    def _attempt_over(self, event: Fields, task: OpenTask) -> None:
        """Slot and target are free, or held on."""
        key, name = (event["task"], task.attempt), task.robot or ""
        task.robot = None
        self.limits.over(task.kind, task.limit_key)
        if event.get("held"):
            self.holds[key] = HeldOn(name, task.slot_cost, task.target, task.sequence)
            return
        self._free(name, task.slot_cost, task.target, key)

    def _free(self, robot: str, slot_cost: int, target: str | None, key: tuple[str, int]) -> None:
        known = self.robots.get(robot)
        if known is not None:
            known.used -= slot_cost
        if target is not None and self.targets.get(target) == key:
            del self.targets[target]

    # ---- what single transitions must say ----

    def _lease_started(self, event: Fields, task: OpenTask) -> None:
        task.lease_sequence, task.missed = event["sequence"], (0, 0, 0)
        robot = self.robots.get(event["robot"])
        if robot is not None and robot.epoch != event["epoch"]:
            self.say("robot", f"robot {event['robot']} is in another session")

    def _expired(self, event: Fields, task: OpenTask) -> None:
        """A lease ends by silence only after n windows in a row that were missed and written down."""
        if event["reason"] != "missed_windows":
            return
        start, length_ms, missed = task.missed
        long_enough = missed >= LEASE_WINDOWS_MIN and missed * length_ms >= task.lease_ms
        first = start - (missed - 1) * length_ms
        if not long_enough or (event["first_window"], event["last_window"]) != (first, start):
            self.say("lease", f"{missed} windows of {length_ms} ms were missed, the lease has {task.lease_ms} ms")

    def _completed(self, event: Fields, task: OpenTask) -> None:
        late, by_robot = event["late"], event["by"] == "robot"
        if late != (task.state == "WAITING") or (task.state in ("WAITING", "RUNNING") and not by_robot):
            self.say("late", f"{'late' if late else 'not late'}, by {event['by']} in {task.state}")
        if task.state == "DEAD" and by_robot:
            self.say("late", "only an operator completes a dead letter")

    def _failed(self, event: Fields, task: OpenTask) -> None:
        task.not_again_before = event.get("not_again_before", 0)

    def _changed(self, event: Fields, task: OpenTask) -> None:
        changed = event.get("changed") or {}
        task.requirement = tuple(changed.get("requirement", task.requirement))
        task.slot_cost = changed.get("slot_cost", task.slot_cost)
        task.not_before = changed.get("not_before", task.not_before)

    def _redriven(self, event: Fields, task: OpenTask) -> None:
        task.redrives += 1
        task.not_before = task.not_again_before = 0
        self._changed(event, task)

    # ---- other events about tasks ----

    def _current(self, event: Fields, rule: str, states: tuple[str, ...]) -> OpenTask | None:
        """The task whose current attempt an event is about; a finding where it is not."""
        task = self.tasks.get(event["task"])
        if task is None or task.state not in states:
            state = "ended or unknown" if task is None else task.state
            self.say(rule, f"task {event['task']} is {state}")
            return None
        if (task.attempt, task.robot) != (event["attempt"], event["robot"]):
            self.say(rule, f"attempt {event['attempt']} of {event['robot']} is not the current one")
        return task

    def _checkpoint_saved(self, event: Fields) -> None:
        task = self._current(event, "checkpoint", ("RUNNING", "LOST"))
        if task is None:
            return
        if event["number"] <= task.checkpoint:
            self.say("checkpoint", f"number {event['number']} comes after {task.checkpoint}")
        task.checkpoint = event["number"]

    def _cancel_requested(self, event: Fields) -> None:
        task = self._current(event, "cancel", ("RUNNING",))
        if task is None:
            return
        if task.cancelled_attempt == task.attempt:
            self.say("cancel", f"the cancellation of attempt {task.attempt} was asked before")
        task.cancelled_attempt = task.attempt

    def _hold_ended(self, event: Fields) -> None:
        key = (event["task"], event["attempt"])
        hold = self.holds.pop(key, None)
        if hold is None or (hold.robot, hold.target) != (event["robot"], event.get("target")):
            self.say("hold", f"nothing such is held by attempt {key[1]} of task {key[0]}")
        if hold is not None:
            self._free(hold.robot, hold.slot_cost, hold.target, key)

    def _reported_late(self, event: Fields) -> None:
        task, attempt = self.tasks.get(event["task"]), event["attempt"]
        if task is None:
            return
        if attempt > task.attempt or (attempt == task.attempt and task.state in HELD_STATES):
            self.say("late", f"attempt {attempt} of task {event['task']} is not over")
        reported = task.reported = task.reported or set()
        if (attempt, event["kind"]) in reported:
            self.say("reported twice", f"a late {event['kind']} of attempt {attempt} was noted before")
        reported.add((attempt, event["kind"]))

    # ---- robots ----

    def _registered(self, event: Fields) -> None:
        if event["robot"] in self.robots:
            self.say("robot", f"robot {event['robot']} is registered already")
        self.robots[event["robot"]] = KnownRobot()

    def _session_started(self, event: Fields) -> None:
        robot = self.robots[event["robot"]]
        if event["epoch"] != event["sequence"]:
            self.say("robot", "an epoch is the sequence of its RobotSessionStarted")
        robot.epoch, robot.slots = event["epoch"], event["slots"]
        robot.abilities = abilities_of(event["capabilities"])
        robot.online, robot.silent, robot.offline, robot.ready = True, False, False, 0
        if robot.fault != "two_programs":
            robot.fault = None

    def _session_ended(self, event: Fields) -> None:
        robot = self.robots[event["robot"]]
        robot.online, robot.ready = False, 0

    def _ready_changed(self, event: Fields) -> None:
        self.robots[event["robot"]].ready = event["n"]

    def _robot_changed(self, event: Fields) -> None:
        robot = self.robots[event["robot"]]
        robot.slots, robot.abilities = event["slots"], abilities_of(event["capabilities"])

    def _drained(self, event: Fields) -> None:
        self.robots[event["robot"]].draining = event["type"] == "RobotDrained.v1"

    def _faulted(self, event: Fields) -> None:
        self.robots[event["robot"]].fault = event["reason"] if event["type"] == "RobotFaulted.v1" else None

    def _retired(self, event: Fields) -> None:
        if self.robots.pop(event["robot"]).used:
            self.say("retired", f"robot {event['robot']} still holds attempts")

    def _window_missed(self, event: Fields) -> None:
        start, length_ms = event["start"], event["length_ms"]
        for row in event["attempts"]:
            task = self.tasks[row["task"]]
            if task.state != "RUNNING" or task.attempt != row["attempt"]:
                self.say("lease", f"attempt {row['attempt']} of task {row['task']} does not run")
            if row["missed"] > 1 and task.missed != (start - length_ms, length_ms, row["missed"] - 1):
                self.say("lease", f"task {row['task']} did not miss {row['missed']} windows in a row")
            task.missed = (start, length_ms, row["missed"])
        for row in event["robots"]:
            robot = self.robots[row["robot"]]
            robot.silent, robot.offline = True, robot.offline or row["missed"] >= OFFLINE_AFTER_MISSED
        for name in event["returned"]:
            self.robots[name].silent = self.robots[name].offline = False

    # ---- the pool ----

    def _settings(self, event: Fields) -> None:
        settings = event.get("settings") or event["changed"]
        days, most = self.remembered
        self.remembered = (settings.get("remember_days", days), settings.get("remember_max", most))

    def _pause(self, event: Fields) -> None:
        scope = (event["scope"], event.get("name", ""))
        if event["type"] == "DispatchPaused.v1":
            self.paused.add(scope)
        else:
            self.paused.discard(scope)

    def _firing(self, problem: str | None) -> None:
        if problem is not None:
            self.say("firing", problem)

    def _limit(self, event: Fields) -> None:
        self.limits.changed(event)

    def _freeze(self, event: Fields) -> None:
        self.frozen = event["type"] == "PoolFrozen.v1"
        self._reset_counts(event)

    def _reset_counts(self, event: Fields) -> None:
        for task in self.tasks.values():
            task.missed = (0, 0, 0)


def _nothing(model: Model, event: Fields) -> None:
    """Nothing to check beside the record."""


def _no_fact(model: Model, event: Fields, task: OpenTask) -> None:
    """Nothing to check beside the transition."""


_TRANSITION_FACTS: Final[dict[str, Callable[[Model, Fields, OpenTask], None]]] = {
    "TaskChanged": Model._changed,
    "AssignmentRejected": Model._failed,
    "LeaseStarted": Model._lease_started,
    "LeaseResumed": Model._lease_started,
    "LeaseExpired": Model._expired,
    "TaskCompleted": Model._completed,
    "AttemptFailed": Model._failed,
    "TaskRedriven": Model._redriven,
}
_OTHERS: Final[dict[str, Callable[[Model, Fields], None]]] = {
    "CheckpointSaved": Model._checkpoint_saved,
    "CancelRequested": Model._cancel_requested,
    "HoldEnded": Model._hold_ended,
    "ReportedLate": Model._reported_late,
    "RobotRegistered": Model._registered,
    "RobotSessionStarted": Model._session_started,
    "RobotSessionEnded": Model._session_ended,
    "RobotReadyChanged": Model._ready_changed,
    "RobotChanged": Model._robot_changed,
    "RobotDrained": Model._drained,
    "RobotUndrained": Model._drained,
    "RobotFaulted": Model._faulted,
    "RobotRecovered": Model._faulted,
    "RobotRetired": Model._retired,
    "WindowMissed": Model._window_missed,
    "PoolCreated": Model._settings,
    "PoolConfigured": Model._settings,
    "DispatchPaused": Model._pause,
    "DispatchResumed": Model._pause,
    "LimitSet": Model._limit,
    "LimitRemoved": Model._limit,
    "ScheduleSet": lambda model, event: model._firing(model.schedules.set(event)),
    "SchedulePaused": lambda model, event: model._firing(model.schedules.changed(event)),
    "ScheduleResumed": lambda model, event: model._firing(model.schedules.changed(event)),
    "ScheduleDeleted": lambda model, event: model._firing(model.schedules.changed(event)),
    "FiringsSkipped": lambda model, event: model._firing(model.schedules.skipped(event)),
    "PoolFrozen": Model._freeze,
    "PoolUnfrozen": Model._freeze,
    "OwnershipTaken": Model._reset_counts,
    "ClockAccepted": Model._reset_counts,
}
