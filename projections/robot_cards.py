"""The pure rules by which events change what is known of a robot and of a target.

Both follow from events of their own and from what becomes of the tasks that they hold.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from commands.vocabulary import HELD_STATES, TERMINAL_STATES
from projections.cards import RobotCard, Stored, TargetCard, TaskCard, pause_of

OFFLINE_AFTER_MISSED: Final = 3
"""Windows missed in a row after which a robot is OFFLINE."""

_SAID_IN_HELLO: Final = ("epoch", "gateway", "slots", "capabilities", "protocol", "agent", "inline_max_bytes")

RobotRule = Callable[[RobotCard | None, Stored], RobotCard | None]

ENDS: Final[dict[str, str]] = {
    "TaskCompleted.v1": "completed",
    "AttemptFailed.v1": "failed",
    "AttemptStopped.v1": "stopped",
    "LeaseExpired.v1": "lost",
    "AssignmentWithdrawn.v1": "withdrawn",
    "AssignmentRejected.v1": "rejected",
    "TaskReleased.v1": "released",
}
"""Events that end an attempt or its lease -> the word under which the robot's card counts them."""


def has_session(card: Mapping[str, Any]) -> bool:
    """Whether its last session has not ended; a robot that fell silent keeps it until it says hello again."""
    return "session_at" in card and "session_ended" not in card


def robot_state(card: RobotCard) -> str:
    """OFFLINE before ERROR before BUSY before IDLE."""
    if not card["online"]:
        return "OFFLINE"
    if "fault" in card:
        return "ERROR"
    return "BUSY" if card["attempts"] else "IDLE"


def _settled(new: RobotCard, event: Stored) -> RobotCard:
    state = robot_state(new)
    new["at_sequence"] = event["sequence"]
    if state != new.get("state"):
        new["state"], new["since_at"], new["cause"] = state, event["occurred_at"], event["type"]
    return new


def _changing(card: RobotCard | None, event: Stored) -> RobotCard:
    if card is not None:
        return card.copy()
    return {
        "id": event["robot"],
        "pool": event["pool"],
        "registered_at": event["occurred_at"],
        "online": False,
        "slots": 0,
        "ready": 0,
        "capabilities": [],
        "attempts": {},
        "used": 0,
        "counts": {},
    }


def _registered(card: RobotCard | None, event: Stored) -> RobotCard:
    return _settled(_changing(None, event), event)


def _session_started(card: RobotCard | None, event: Stored) -> RobotCard:
    """A hello: ready is 0, silence and faults end, except that two programs use the id."""
    new = _changing(card, event)
    for name in ("silent", "missed", "session_ended", "agent", "inline_max_bytes"):
        new.pop(name, None)  # type: ignore[misc]
    new["online"], new["ready"], new["session_at"] = True, 0, event["occurred_at"]
    for said in _SAID_IN_HELLO:
        if said in event:
            new[said] = event[said]
    if "fault" in new and new["fault"]["reason"] != "two_programs":
        del new["fault"]
    return _settled(new, event)


def _session_ended(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new["online"], new["ready"] = False, 0
    new["session_ended"] = {"at": event["occurred_at"], "reason": event["reason"]}
    new.pop("silent", None)
    return _settled(new, event)


def _ready_changed(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new["ready"] = event["n"]
    return _settled(new, event)


def _changed(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new["slots"], new["capabilities"] = event["slots"], event["capabilities"]
    return _settled(new, event)


def _faulted(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    said = {"reason": event["reason"], "at": event["occurred_at"]}
    new["fault"] = said | {name: event[name] for name in ("code", "text") if name in event}
    return _settled(new, event)


def _recovered(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new.pop("fault", None)
    return _settled(new, event)


def _drained(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new["draining"] = {"at": event["occurred_at"], "actor": event["actor"]}
    if "reason" in event:
        new["draining"]["reason"] = event["reason"]
    return _settled(new, event)


def _undrained(card: RobotCard, event: Stored) -> RobotCard:
    new = card.copy()
    new.pop("draining", None)
    return _settled(new, event)


def _retired(card: RobotCard, event: Stored) -> None:
    """The robot is forgotten until it says hello again."""


def _of_known(rule: Callable[[RobotCard, Stored], RobotCard | None]) -> RobotRule:
    def apply(card: RobotCard | None, event: Stored) -> RobotCard | None:
        return None if card is None else rule(card, event)

    return apply


ROBOT_RULES: Final[dict[str, RobotRule]] = {
    "RobotRegistered.v1": _registered,
    "RobotSessionStarted.v1": _session_started,
    "RobotSessionEnded.v1": _of_known(_session_ended),
    "RobotReadyChanged.v1": _of_known(_ready_changed),
    "RobotChanged.v1": _of_known(_changed),
    "RobotFaulted.v1": _of_known(_faulted),
    "RobotRecovered.v1": _of_known(_recovered),
    "RobotDrained.v1": _of_known(_drained),
    "RobotUndrained.v1": _of_known(_undrained),
    "RobotRetired.v1": _of_known(_retired),
}
"""Events about one robot."""


def robot_missed(card: RobotCard, item: Stored, event: Stored) -> RobotCard:
    """WindowMissed, one silent robot of it: OFFLINE at the third in a row."""
    new = card.copy()
    new["missed"], new["silent"] = [item["missed"], event["start"]], True
    if item["missed"] >= OFFLINE_AFTER_MISSED:
        new["online"] = False
    return _settled(new, event)


def robot_returned(card: RobotCard, event: Stored) -> RobotCard:
    """WindowMissed, one robot that was heard again: in its session, so it is online."""
    new = card.copy()
    new.pop("missed", None)
    new.pop("silent", None)
    new["online"] = has_session(new)
    return _settled(new, event)


def robot_worked(card: RobotCard, task: TaskCard, event: Stored) -> None:
    """Changes in place what a robot holds, after an event about a task that it holds, held or is given.

    In place, because a robot of some hundred slots would be copied at every event of its tasks.
    """
    name, robot, attempts = task["id"], card["id"], card["attempts"]
    former = attempts.pop(name, None)
    used = card["used"] - (former[1] if former is not None else 0)
    if task["state"] in HELD_STATES and task.get("robot") == robot:
        attempts[name] = [task["attempt"], task["slot_cost"]]
        used += task["slot_cost"]
    if "holds" in task or "holds" in card:
        used += _hold_slots(card, task)
    card["used"] = used
    if event["type"] == "TaskAssigned.v1":
        card["assigned_at"] = event["occurred_at"]
    word = ENDS.get(event["type"])
    if word is not None and event.get("robot") == robot:
        card["counts"][word] = card["counts"].get(word, 0) + 1
    _settled(card, event)


def _hold_slots(card: RobotCard, task: TaskCard) -> int:
    """Sets the robot's holds from the task's; returns by how much the slots in use change."""
    before = card.pop("holds", {})
    own = f"{task['id']}/"
    holds = {name: cost for name, cost in before.items() if not name.startswith(own)}
    for hold in task.get("holds", ()):
        if hold["robot"] == card["id"]:
            holds[f"{own}{hold['attempt']}"] = hold["slot_cost"]
    if holds:
        card["holds"] = holds
    return sum(holds.values()) - sum(before.values())


def target_after_task(
    card: TargetCard | None, target: str, before: TaskCard | None, after: TaskCard | None, event: Stored
) -> TargetCard | None:
    """A target after an event about a task of it; None when nothing is left to say about it."""
    was = before if before is not None and before.get("target") == target else None
    now = after if after is not None and after.get("target") == target else None
    new: TargetCard = _new_target(event["pool"], target) if card is None else card.copy()
    new["open"] += _open(now) - _open(was)
    new["waiting"] += _waiting(now) - _waiting(was)
    holder = _holder(now)
    if holder is not None:
        new["holder"] = holder
    elif new.get("holder", {}).get("task") == event.get("task"):
        new.pop("holder", None)
    if event["type"] == "TaskAssigned.v1":
        new["last_served_at"] = event["occurred_at"]
    return _needed(new)


def target_paused(card: TargetCard | None, event: Stored) -> TargetCard | None:
    """DispatchPaused or DispatchResumed of one target."""
    new = _new_target(event["pool"], event["name"]) if card is None else card.copy()
    if event["type"] == "DispatchPaused.v1":
        new["paused"] = pause_of(event)
    else:
        new.pop("paused", None)
    return _needed(new)


def _new_target(pool: str, target: str) -> TargetCard:
    return {"name": target, "pool": pool, "open": 0, "waiting": 0}


def _needed(card: TargetCard) -> TargetCard | None:
    """The card, or None where the target has no open task, is not held and not paused."""
    return card if card["open"] or "holder" in card or "paused" in card else None


def _open(task: TaskCard | None) -> int:
    return task is not None and task["state"] not in TERMINAL_STATES


def _waiting(task: TaskCard | None) -> int:
    return task is not None and task["state"] == "WAITING"


def _holder(task: TaskCard | None) -> dict[str, Any] | None:
    if task is None:
        return None
    if task["state"] in HELD_STATES:
        return {"task": task["id"], "attempt": task["attempt"], "robot": task.get("robot")}
    if "holds" in task:
        last = task["holds"][-1]
        return {"task": task["id"], "attempt": last["attempt"], "robot": last["robot"], "held": True}
    return None
