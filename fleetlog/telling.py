"""Events in words: what each type says, in a few words for one line of a terminal."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fleetlog.output import duration

Event = Mapping[str, Any]


def tell(event: Event) -> str:
    """What happened, without the task's name and the time."""
    name = str(event.get("type", "")).partition(".")[0]
    teller = _TELLERS.get(name)
    return teller(event) if teller else name


def subject(event: Event) -> str:
    """What the event is about: its task, else its robot, its schedule, its pool."""
    names = (event.get(name) for name in ("task", "robot", "schedule", "pool"))
    return next((name for name in names if isinstance(name, str) and name), "")


def kind_of(event: Event) -> str:
    """The type without its version."""
    return str(event.get("type", "")).partition(".")[0]


def said(body: Any) -> str:
    """A text that the log keeps as a body."""
    if isinstance(body, Mapping):
        return str(body["json"]) if "json" in body else "(sealed)"
    return "" if body is None else str(body)


def schedule_words(schedule: Mapping[str, Any]) -> str:
    """When a schedule fires: `every 60 s`, or `30 2 * * * Europe/Berlin`. Takes events and resources."""
    if schedule.get("cron"):
        return f"{schedule['cron']} {schedule.get('zone', 'UTC')}"
    every_s = schedule["every_ms"] / 1000 if "every_ms" in schedule else schedule.get("every_s", 0)
    return f"every {every_s:g} s"


def limit_words(limit: Mapping[str, Any]) -> str:
    """What a limit lets be: `4 at once; 2.5 a second, 10 together`."""
    parts = [f"{limit['running']} at once"] if "running" in limit else []
    if "rate_per_s" in limit:
        parts.append(f"{limit['rate_per_s']:g} a second, {limit.get('burst', 1)} together")
    return "; ".join(parts)


def _because(event: Event) -> str:
    reason = event.get("reason")
    return f": {reason}" if reason else ""


def _seconds(ms: Any) -> str:
    return duration(ms / 1000) if isinstance(ms, int | float) else "?"


def _then(event: Event) -> str:
    """Where the task goes from here."""
    to = event.get("to")
    if to == "DEAD":
        return f", a dead letter ({event.get('dead_reason', 'failed')})"
    return {"WAITING": ", back in the queue", "LOST": ", held as LOST", "CANCELLED": ", cancelled"}.get(str(to), "")


def _expired(event: Event) -> str:
    why = "windows missed" if event.get("reason") == "missed_windows" else "its robot does not name it any more"
    return f"lease of {event.get('robot')} expired ({why}){_then(event)}"


def _failed(event: Event) -> str:
    error = event.get("error") or {}
    text = f"failed on {event.get('robot')} ({event.get('class')}): {said(error.get('message'))}"
    return text[:160] + _then(event)


def _missed(event: Event) -> str:
    parts = []
    for name in ("attempts", "robots", "returned"):
        count = len(event.get(name) or ())
        if count:
            parts.append(f"{count} {name if count > 1 else name.removesuffix('s')}")
    return f"a heartbeat window was missed: {', '.join(parts)}"


def _started(event: Event) -> str:
    extra = f", {len(event['held'])} attempts held" if event.get("held") else ""
    return f"robot connected with {event.get('slots')} slots (epoch {event.get('epoch')}){extra}"


def _completed(event: Event) -> str:
    who = event.get("robot") if event.get("by") == "robot" else f"operator {event.get('actor')}"
    ran = f" after {_seconds(event['ran_ms'])}" if "ran_ms" in event else ""
    return f"completed by {who}{ran}" + (" (late)" if event.get("late") else "") + _because(event)


def _late(event: Event) -> str:
    twice = ": probably done twice" if event.get("done_twice") else ""
    return f"{event.get('robot')} reported {event.get('kind')} of attempt {event.get('attempt')} too late{twice}"


def _assigned(event: Event) -> str:
    # The time counts from when the task was first due, so that for later attempts it holds the earlier ones too.
    attempt, time = event.get("attempt"), _seconds(event.get("waited_ms"))
    waited = f"{time} after it was first due" if isinstance(attempt, int) and attempt > 1 else f"waited {time}"
    return f"assigned to {event.get('robot')} (attempt {attempt}, {waited})"


def _taken(event: Event) -> str:
    return f"Fleetlog took over ({str(event.get('reason')).replace('_', ' ')}, gap {_seconds(event.get('gap_ms'))})"


def _faulted(event: Event) -> str:
    return f"robot in ERROR ({str(event.get('reason')).replace('_', ' ')}) {said(event.get('text'))}".rstrip()


def _unsatisfiable(event: Event) -> str:
    return f"no robot can run {event.get('waiting')} tasks: {', '.join(event.get('missing') or ())} is missing"


def _scope(event: Event) -> str:
    return f"{event.get('scope')} {event.get('name') or event.get('pool')}"


_TELLERS: Final[dict[str, Callable[[Event], str]]] = {
    "TaskSubmitted": lambda e: f"submitted: {e.get('kind')}, priority {e.get('priority', 0)}, by {e.get('actor')}",
    "TaskChanged": lambda e: f"changed: {', '.join(e.get('changed') or ())}{_because(e)}",
    "TaskAssigned": _assigned,
    "AssignmentWithdrawn": lambda e: f"withdrawn from {e.get('robot')}: {str(e.get('reason')).replace('_', ' ')}",
    "AssignmentRejected": lambda e: f"rejected by {e.get('robot')}{_because(e)}",
    "LeaseStarted": lambda e: f"running on {e.get('robot')}",
    "CheckpointSaved": lambda e: f"checkpoint {e.get('number')} saved by {e.get('robot')}",
    "ProgressNoted": lambda e: f"progress of {len(e.get('items') or ())} attempts",
    "TaskCompleted": _completed,
    "AttemptFailed": _failed,
    "AttemptStopped": lambda e: f"stopped on {e.get('robot')} ({str(e.get('why')).replace('_', ' ')}){_then(e)}",
    "LeaseExpired": _expired,
    "LeaseResumed": lambda e: f"resumed by {e.get('robot')}",
    "LostWaitEnded": lambda e: f"the wait for {e.get('robot')} is over{_then(e)}",
    "TaskReleased": lambda e: f"released from {e.get('robot')}{_because(e)}{_then(e)}",
    "HoldEnded": lambda e: f"slot and target held for attempt {e.get('attempt')} are free ({e.get('why')})",
    "CancelRequested": lambda e: f"{e.get('robot')} is asked to stop{_because(e)}",
    "TaskCancelled": lambda e: f"cancelled{_because(e)}",
    "DeadlinePassed": lambda e: f"{e.get('which')} deadline passed{_then(e)}",
    "TaskRedriven": lambda e: f"redriven by {e.get('actor')}{_because(e)}",
    "TaskDiscarded": lambda e: f"discarded by {e.get('actor')}{_because(e)}",
    "ReportedLate": _late,
    "RobotRegistered": lambda e: "robot seen for the first time",
    "RobotSessionStarted": _started,
    "RobotSessionEnded": lambda e: f"robot left ({e.get('reason')})",
    "RobotReadyChanged": lambda e: f"robot ready for {e.get('n')} slots",
    "RobotChanged": lambda e: f"robot has {e.get('slots')} slots now",
    "RobotFaulted": _faulted,
    "RobotRecovered": lambda e: f"robot out of ERROR ({e.get('reason')})",
    "RobotDrained": lambda e: f"robot drained{_because(e)}",
    "RobotUndrained": lambda e: f"robot gets work again{_because(e)}",
    "RobotRetired": lambda e: f"robot retired{_because(e)}",
    "WindowMissed": _missed,
    "ExpiryHeld": lambda e: f"expiry of {e.get('leases')} leases held: more than half of the pool fell silent at once",
    "OwnershipTaken": _taken,
    "ClockAccepted": lambda e: f"clock step accepted{_because(e)}",
    "PoolCreated": lambda e: f"pool created by {e.get('actor')}",
    "PoolConfigured": lambda e: f"pool set: {', '.join(e.get('changed') or ())}{_because(e)}",
    "FormatRaised": lambda e: f"format raised from {e.get('from_format')} to {e.get('to_format')}",
    "DispatchPaused": lambda e: f"{_scope(e)} paused by {e.get('actor')}{_because(e)}",
    "DispatchResumed": lambda e: f"{_scope(e)} resumed{_because(e)}",
    "LimitSet": lambda e: f"limit of {e.get('scope')} {e.get('name')} set by {e.get('actor')}: {limit_words(e)}",
    "LimitRemoved": lambda e: f"limit of {e.get('scope')} {e.get('name')} removed",
    "ScheduleSet": lambda e: f"schedule {e.get('schedule')} set by {e.get('actor')}: {schedule_words(e)}",
    "SchedulePaused": lambda e: f"schedule {e.get('schedule')} paused{_because(e)}",
    "ScheduleResumed": lambda e: f"schedule {e.get('schedule')} resumed",
    "ScheduleDeleted": lambda e: f"schedule {e.get('schedule')} deleted{_because(e)}",
    "FiringsSkipped": lambda e: f"{e.get('count')} firings of {e.get('schedule')} skipped{_because(e)}",
    "RequirementUnsatisfiable": _unsatisfiable,
    "RequirementSatisfiable": lambda e: f"{e.get('robot')} can run {e.get('waiting')} tasks that nobody could",
    "CommandNoted": lambda e: f"{e.get('actor')} asked for what was so already",
    "PoolFrozen": lambda e: f"pool frozen after a fault of {e.get('where')}: see `fleetlog unfreeze`",
    "PoolUnfrozen": lambda e: f"pool unfrozen{_because(e)}",
    "RecordQuarantined": lambda e: f"a record of {e.get('topic')} was set aside: {e.get('error')}",
}  # fmt: skip
