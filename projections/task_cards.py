"""The pure rules by which events change what is known of a task.

A rule takes the card before (None where there is none) and a stored event as JSON; it gives the card after and never
changes the one before. The state of a card is what the event says in `to`; no rule of the state machine is repeated.
"""

from collections.abc import Callable
from typing import Final

from commands.vocabulary import HELD_STATES, TERMINAL_STATES
from projections.cards import CHECKPOINTS_KEPT, Stored, TaskCard, pause_of

TaskRule = Callable[[TaskCard | None, Stored], TaskCard | None]

_OF_ATTEMPT: Final = ("epoch", "accept_by", "stop_after_ms", "counts_from", "missed", "wait_until")
_OF_RUN: Final = ("progress", "note", "because", "cancel_requested")
_TAKEN_OVER: Final = (
    "kind",
    "actor",
    "caused_by",
    "priority",
    "requirement",
    "prefer",
    "slot_cost",
    "target",
    "labels",
    "limit_key",
    "schedule",
    "parent",
    "not_before",
    "deadlines",
    "lease_ms",
    "accept_ms",
    "retry",
    "lost_max",
    "on_lost",
)
_CHANGEABLE: Final = ("priority", "requirement", "prefer", "slot_cost", "not_before", "deadlines", "labels")


def submitted(card: TaskCard | None, event: Stored) -> TaskCard:
    """TaskSubmitted: a new card, whatever there was under this id."""
    at: int = event["occurred_at"]
    new: Stored = {
        "id": event["task"],
        "pool": event["pool"],
        "state": event["to"],
        "sequence": event["sequence"],
        "at_sequence": event["sequence"],
        "since_at": at,
        "submitted_at": at,
        "base_at": at,
        "eligible_at": max(at, event.get("not_before", 0)),
        "attempt": 0,
        "failures": 0,
        "lost": 0,
    }
    for name in _TAKEN_OVER:
        if name in event:
            new[name] = event[name]
    new["passing"], new["late_policy"] = event["pass"], event["late"]
    return new  # type: ignore[return-value]


def _moved(card: TaskCard, event: Stored) -> TaskCard:
    """The card in the state that the event names. What belonged to an attempt that is over goes."""
    new = card.copy()
    state = new["state"] = event["to"]
    new["at_sequence"] = event["sequence"]
    if state != card["state"]:
        new["since_at"] = event["occurred_at"]
    if state not in HELD_STATES:
        _left(new, card, event)
    return new


def _left(new: TaskCard, card: TaskCard, event: Stored) -> None:
    if card["state"] in HELD_STATES:
        for name in _OF_ATTEMPT:
            new.pop(name, None)  # type: ignore[misc]
        if "started_at" in card and card["state"] != "ASSIGNED":
            new["ran_ms"] = max(0, event["occurred_at"] - card["started_at"])
    if new["state"] == "WAITING":
        for name in _OF_RUN:
            new.pop(name, None)  # type: ignore[misc]
        if "robot" in card:
            new["last_robot"] = new.pop("robot")
        return
    new["ended_at"] = event["occurred_at"]
    new.pop("not_again_before", None)
    if "dead_reason" in event:
        new["dead_reason"] = event["dead_reason"]
    if "reason" in event:
        new["reason"] = event["reason"]
    if new["state"] in TERMINAL_STATES:
        new.pop("excluded", None)
        new.pop("paused", None)


def _hold(new: TaskCard, card: TaskCard, event: Stored) -> None:
    """The slot and target of the attempt stay held where the event says so."""
    if event.get("held") and new["state"] not in HELD_STATES:
        hold = {"attempt": card["attempt"], "robot": card.get("robot", ""), "slot_cost": card["slot_cost"]}
        if "held_until" in event:
            hold["until"] = event["held_until"]
        new["holds"] = [*card.get("holds", ()), hold]


def _freed(new: TaskCard, attempt: int) -> None:
    left = [hold for hold in new.get("holds", ()) if hold["attempt"] != attempt]
    if left:
        new["holds"] = left
    else:
        new.pop("holds", None)


def _counts_missed(new: TaskCard, event: Stored) -> None:
    new["epoch"] = event["epoch"]
    new["counts_from"] = event["counts_from"]
    new.pop("missed", None)
    new.pop("wait_until", None)


def _apply_changes(new: TaskCard, changed: Stored) -> None:
    for name in _CHANGEABLE:
        if name in changed:
            new[name] = changed[name]
    if "not_before" in changed:
        new["eligible_at"] = max(new["base_at"], changed["not_before"])
    if "deadlines" in changed:
        new.pop("deadlines_passed", None)


def _after_change(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    _apply_changes(new, event["changed"])
    return new


def _after_assignment(card: TaskCard, event: Stored) -> TaskCard:
    new = card.copy()
    new["state"] = event["to"]
    new["since_at"] = new["assigned_at"] = event["occurred_at"]
    new["at_sequence"] = event["sequence"]
    for name in ("attempt", "robot", "epoch", "accept_by", "lease_ms", "waited_ms", "because"):
        new[name] = event[name]
    if "stop_after_ms" in event:
        new["stop_after_ms"] = event["stop_after_ms"]
    new.pop("not_again_before", None)
    new.pop("started_at", None)
    return new


def _after_rejection(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    new["rejected"] = {"robot": event["robot"], "reason": event["reason"], "at": event["occurred_at"]}
    if "text" in event:
        new["rejected"]["text"] = event["text"]
    if event.get("clears_exclusions"):
        new.pop("excluded", None)
    else:
        new["excluded"] = {**card.get("excluded", {}), event["robot"]: event["excluded_until"]}
    if "not_again_before" in event:
        new["not_again_before"] = event["not_again_before"]
    return new


def _after_lease(card: TaskCard, event: Stored) -> TaskCard:
    new = card.copy()
    new["state"] = event["to"]
    new["since_at"] = new["started_at"] = event["occurred_at"]
    new["at_sequence"] = event["sequence"]
    _counts_missed(new, event)
    new.pop("accept_by", None)
    return new


def _after_resumption(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    _counts_missed(new, event)
    return new


def _after_completion(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    new["completed_by"] = event["by"]
    for name in ("robot", "ran_ms"):
        if name in event:
            new[name] = event[name]
    if event.get("late"):
        new["late"] = True
    for name in ("progress", "dead_reason"):
        new.pop(name, None)  # type: ignore[misc]
    return new


def _after_failure(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    error = event["error"]
    new["failures"] = event["failures"]
    new["error"] = {
        "type": error["type"],
        "message": error["message"],
        "class": event["class"],
        "attempt": event["attempt"],
        "robot": event["robot"],
        "at": event["occurred_at"],
    }
    if "not_again_before" in event:
        new["not_again_before"] = event["not_again_before"]
    return new


def _after_lost(card: TaskCard, event: Stored) -> TaskCard:
    """AttemptStopped, LeaseExpired, LostWaitEnded: the attempt is over, or its lease."""
    new = _moved(card, event)
    new["lost"] = event["lost"]
    if event["to"] == "LOST":
        new.pop("wait_until", None)
        if "wait_until" in event:
            new["wait_until"] = event["wait_until"]
    _hold(new, card, event)
    return new


def _after_release(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    _hold(new, card, event)
    if event.get("force"):
        _freed(new, event["attempt"])
        new["exclusion_not_guaranteed"] = True
    return new


def _after_cancel(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    _hold(new, card, event)
    return new


def _after_deadline(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    new["deadlines_passed"] = {**card.get("deadlines_passed", {}), event["which"]: event["then"]}
    return new


def _after_redrive(card: TaskCard, event: Stored) -> TaskCard:
    new = _moved(card, event)
    new["failures"] = new["lost"] = 0
    new["redrives"] = card.get("redrives", 0) + 1
    new["base_at"] = new["eligible_at"] = event["occurred_at"]
    for name in ("dead_reason", "ended_at", "deadlines_passed", "excluded", "not_again_before"):
        new.pop(name, None)  # type: ignore[misc]
    new["reason"] = event["reason"]
    if "changed" in event:
        _apply_changes(new, event["changed"])
    return new


def _noted(card: TaskCard, event: Stored) -> TaskCard:
    new = card.copy()
    new["at_sequence"] = event["sequence"]
    return new


def _after_checkpoint(card: TaskCard, event: Stored) -> TaskCard:
    new = _noted(card, event)
    new["checkpoint_number"] = event["number"]
    saved = [event["number"], event["attempt"], event["occurred_at"]]
    new["checkpoints"] = [*card.get("checkpoints", ()), saved][-CHECKPOINTS_KEPT:]
    return new


def _after_hold(card: TaskCard, event: Stored) -> TaskCard:
    new = _noted(card, event)
    _freed(new, event["attempt"])
    if event["why"] == "force":
        new["exclusion_not_guaranteed"] = True
    return new


def _after_cancel_request(card: TaskCard, event: Stored) -> TaskCard:
    new = _noted(card, event)
    new["cancel_requested"] = {"at": event["occurred_at"], "actor": event["actor"]}
    if "reason" in event:
        new["cancel_requested"]["reason"] = event["reason"]
    return new


def _after_late_report(card: TaskCard, event: Stored) -> TaskCard:
    new = _noted(card, event)
    new["late_reports"] = card.get("late_reports", 0) + 1
    new["late_report"] = {name: event[name] for name in ("kind", "attempt", "robot")}
    new["late_report"]["at"] = event["occurred_at"]
    if event.get("done_twice"):
        new["done_twice"] = True
    return new


def _of_known(rule: Callable[[TaskCard, Stored], TaskCard]) -> TaskRule:
    """A rule about a task that left the tables changes nothing."""

    def apply(card: TaskCard | None, event: Stored) -> TaskCard | None:
        return None if card is None else rule(card, event)

    return apply


# ---- events that name several tasks, or name one beside other things ----


def progressed(card: TaskCard, item: Stored, event: Stored) -> TaskCard:
    """ProgressNoted, one item of it; about an attempt that is over it changes nothing."""
    if item["attempt"] != card["attempt"] or card["state"] not in HELD_STATES:
        return card
    new = _noted(card, event)
    for name in ("progress", "note"):
        if name in item:
            new[name] = item[name]
    return new


def window_missed(card: TaskCard, item: Stored, event: Stored) -> TaskCard:
    """WindowMissed, one attempt of it."""
    if item["attempt"] != card["attempt"] or card["state"] != "RUNNING":
        return card
    new = _noted(card, event)
    new["missed"] = [item["missed"], event["start"]]
    return new


def named_in_hello(card: TaskCard, item: Stored, event: Stored) -> TaskCard:
    """RobotSessionStarted, one held attempt of it: what goes on does so in the new epoch."""
    current = item["attempt"] == card["attempt"] and card["state"] in HELD_STATES
    if not current or item["verdict"] == "stop" or card.get("robot") != event["robot"]:
        return card
    new = _noted(card, event)
    new["epoch"] = event["epoch"]
    return new


def clock_moved(card: TaskCard, event: Stored) -> TaskCard:
    """ClockAccepted: open accept_by, wait_until and held_until move with a clock that goes forward."""
    shift = event["to_at"] - event["from_at"]
    if shift <= 0:
        return card
    new = _noted(card, event)
    if "accept_by" in card:
        new["accept_by"] = card["accept_by"] + shift
    _move_waits(new, shift)
    return new


def waits_moved(card: TaskCard, event: Stored) -> TaskCard:
    """OwnershipTaken: open wait_until and held_until move by the time without an owner."""
    if event["gap_ms"] <= 0 or not ("wait_until" in card or "holds" in card):
        return card
    new = _noted(card, event)
    _move_waits(new, event["gap_ms"])
    return new


def _move_waits(card: TaskCard, shift: int) -> None:
    if "wait_until" in card:
        card["wait_until"] += shift
    if "holds" in card:
        held = card["holds"]
        card["holds"] = [{**hold, "until": hold["until"] + shift} if "until" in hold else hold for hold in held]


def paused(card: TaskCard, event: Stored) -> TaskCard:
    """DispatchPaused of this task."""
    new = _noted(card, event)
    new["paused"] = pause_of(event)
    return new


def resumed(card: TaskCard, event: Stored) -> TaskCard:
    """DispatchResumed of this task."""
    new = _noted(card, event)
    new.pop("paused", None)
    return new


TASK_RULES: Final[dict[str, TaskRule]] = {
    "TaskSubmitted.v1": submitted,
    "TaskChanged.v1": _of_known(_after_change),
    "TaskAssigned.v1": _of_known(_after_assignment),
    "AssignmentWithdrawn.v1": _of_known(_moved),
    "AssignmentRejected.v1": _of_known(_after_rejection),
    "LeaseStarted.v1": _of_known(_after_lease),
    "CheckpointSaved.v1": _of_known(_after_checkpoint),
    "TaskCompleted.v1": _of_known(_after_completion),
    "AttemptFailed.v1": _of_known(_after_failure),
    "AttemptStopped.v1": _of_known(_after_lost),
    "LeaseExpired.v1": _of_known(_after_lost),
    "LeaseResumed.v1": _of_known(_after_resumption),
    "LostWaitEnded.v1": _of_known(_after_lost),
    "TaskReleased.v1": _of_known(_after_release),
    "HoldEnded.v1": _of_known(_after_hold),
    "CancelRequested.v1": _of_known(_after_cancel_request),
    "TaskCancelled.v1": _of_known(_after_cancel),
    "DeadlinePassed.v1": _of_known(_after_deadline),
    "TaskRedriven.v1": _of_known(_after_redrive),
    "TaskDiscarded.v1": _of_known(_moved),
    "ReportedLate.v1": _of_known(_after_late_report),
}
"""Events with a `task` of their own: these, and no others, make up the task's history."""
