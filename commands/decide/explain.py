"""Why a task is where it is: a read for people and programs, no event."""

from typing import Any, Final

from commands import inputs as i
from commands.decide.answers import Context, Decision, accepted, refused
from commands.decide.firings import why_no_task
from commands.decide.waiting import Reasons, counted, reason, span, why_waiting
from commands.events import Deadlines
from commands.reasons import Refusal
from commands.state import Attempt, Ended, Held, PoolState, Story, Task


def explain(state: PoolState, command: i.Explain, context: Context) -> Decision:
    """State, what holds the task (reason words with their data), and a sentence."""
    task_id = command.body.task
    task, ended = state.tasks.get(task_id), state.ended.get(task_id)
    if task is not None:
        return accepted(command, _open(state, task, context.now))
    if ended is not None:
        return accepted(command, _ended(state, task_id, ended, context.now))
    firing = why_no_task(state, task_id, context.now)
    if firing is not None:
        return accepted(command, firing)
    return refused(command, Refusal("no_such_task", f"there is no task {task_id} in this pool"))


def _open(state: PoolState, task: Task, now: int) -> dict[str, Any]:
    holds = [*_BY_STATE[task.state](state, task, now), *_deadlines_passed(task, now)]
    if task.target is None or task.state != "WAITING":
        holds += _still_held(state, task.id, task.attempt, now)
    return {
        "task": task.id,
        "state": task.state,
        "attempt": task.attempt,
        "holds": holds,
        "text": f"{task.id} is {task.state}: " + "; ".join(hold["text"] for hold in holds) + ".",
    }


def _ended(state: PoolState, task_id: str, ended: Ended, now: int) -> dict[str, Any]:
    """How it ended; what an attempt of it still holds, if anything."""
    holds = _still_held(state, task_id, ended.attempt, now)
    text = f"{task_id} is {ended.state}, ended {span(now - ended.ended_at)} ago"
    if ended.robot is not None:
        text += f", by robot {ended.robot} in attempt {ended.attempt}" + (", which told it late" if ended.late else "")
    answer: dict[str, Any] = {
        "task": task_id,
        "state": ended.state,
        "attempt": ended.attempt,
        "ended_at": ended.ended_at,
        "holds": holds,
        "text": "; ".join([text, *(hold["text"] for hold in holds), "nothing follows"]) + ".",
    }
    return answer | ({} if ended.robot is None else {"robot": ended.robot, "late": ended.late})


def _still_held(state: PoolState, task_id: str, attempt: int, now: int) -> Reasons:
    """Slot and target that stay held after the lease, because the robot may still work."""
    hold = state.holds.get(Held(task_id, attempt))
    if hold is None:
        return []
    what = "its slot stays" if hold.target is None else f"its slot and target {hold.target.name} stay"
    end = "until that robot says so" if hold.until is None else f"for another {span(hold.until - now)}"
    text = f"{what} held {end}: robot {hold.robot} may still work on attempt {attempt}"
    target = None if hold.target is None else hold.target.name
    return [reason("held_after", text, robot=hold.robot, target=target, until=hold.until)]


# ---- deadlines ----


def _deadlines_passed(task: Task, now: int) -> Reasons:
    """Each deadline that has passed, and what follows by its policy."""
    deadlines, passed = task.deadlines, (task.story or Story()).passed
    if deadlines is None or task.state == "DEAD":
        return []
    reasons = []
    for which, at, then in _instants(deadlines, task.current):
        counts = which != "start" or (task.state == "WAITING" and passed.get("start") != "met")
        if at <= now and counts:
            text = f"its {which} deadline passed {span(now - at)} ago: {_what_follows(task, which in passed, then)}"
            reasons.append(reason("deadline_passed", text, which=which, deadline=at, then=then))
    return reasons


def _instants(deadlines: Deadlines, current: Attempt | None) -> list[tuple[str, int, str]]:
    """(which, instant, then) of the deadlines that have an instant now."""
    found: list[tuple[str, int, str]] = []
    if deadlines.start is not None:
        found.append(("start", deadlines.start.at, deadlines.start.then))
    if deadlines.run is not None and current is not None and current.started_at:
        found.append(("run", current.started_at + deadlines.run.ms, deadlines.run.then))
    if deadlines.end is not None:
        found.append(("end", deadlines.end.at, deadlines.end.then))
    return found


def _what_follows(task: Task, told: bool, then: str) -> str:
    if then == "alarm":
        return "an alarm, it runs all the same"
    end = {"dead": "DEAD", "cancel": "CANCELLED"}[then]
    if task.state == "RUNNING" and told:
        return f"its robot was asked to stop, after which the task is {end}"
    return f"at the next change of its state it is {end}"


# ---- by state ----


def _assigned(state: PoolState, task: Task, now: int) -> Reasons:
    current = task.current
    assert current is not None  # noqa: S101
    text = f"robot {current.robot} has {span(max(0, current.accept_by - now))} left to accept"
    return [reason("accept_awaited", text, robot=current.robot, accept_by=current.accept_by)]


def _running(state: PoolState, task: Task, now: int) -> Reasons:
    current = task.current
    assert current is not None  # noqa: S101
    text = f"robot {current.robot} runs it for {span(now - current.started_at)}"
    holds = [reason("running", text, robot=current.robot, started_at=current.started_at)]
    if current.missed and current.missed_at >= state.window_start(now) - state.window_ms_at(now):
        windows = state.windows_of(current.lease_ms, now)
        holds.append(reason("missed_windows", f"{current.missed} of {windows} windows missed", missed=current.missed))
    if current.cancel_requested:
        holds.append(reason("cancel_requested", f"robot {current.robot} was asked to stop and has not yet"))
    return holds


def _lost(state: PoolState, task: Task, now: int) -> Reasons:
    current = task.current
    assert current is not None  # noqa: S101
    if current.wait_until is not None:
        text = f"robot {current.robot} fell silent and has {span(max(0, current.wait_until - now))} to come back"
        return [reason("lost_wait", text, robot=current.robot, wait_until=current.wait_until)]
    text = f"robot {current.robot} fell silent; the policy {task.terms.policy} waits for an operator"
    return [reason("lost_operator", text, robot=current.robot, verbs=["resolve", "release", "cancel"])]


def _dead(state: PoolState, task: Task, now: int) -> Reasons:
    story = task.story or Story()
    why, which = story.dead_reason, None
    if why == "deadline":
        which = next((name for name, then in story.passed.items() if then == "dead"), None)
    said = f"{which} deadline" if which else why
    tries = f"{counted(task.failures, 'failure')} and {counted(task.lost, 'lost attempt')}"
    text = f"a dead letter ({said}) after {tries}"
    verbs = ["redrive", "discard", "resolve"]
    return [reason("dead", text, dead_reason=why, which=which, verbs=verbs)]


_BY_STATE: Final = {
    "WAITING": why_waiting,
    "ASSIGNED": _assigned,
    "RUNNING": _running,
    "LOST": _lost,
    "DEAD": _dead,
}
