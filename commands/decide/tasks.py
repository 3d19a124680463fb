"""Verbs on tasks: change, cancel, redrive, discard, resolve, release, pause and resume."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands.decide import answers as a
from commands.decide.answers import Context, Decision, Draft, accepted, refused, task_answer
from commands.decide.losing import exclusion_ends_at, unwanted
from commands.decide.submit import (
    SLOT_COST_MAX,
    deadlines_problem,
    labels_problem,
    lane_problem,
    requirement_problem,
)
from commands.reasons import Refusal
from commands.schedules import firing_of
from commands.state import Attempt, Ended, Held, PoolState, Task
from commands.vocabulary import INTEGER_MAX, PRIORITY_MAX, is_name

ALLOWED_VERBS: Final[dict[str, tuple[str, ...]]] = {
    "WAITING": ("change", "cancel", "pause", "resume"),
    "ASSIGNED": ("cancel", "release", "pause", "resume"),
    "RUNNING": ("cancel", "release", "pause", "resume"),
    "LOST": ("cancel", "release", "resolve"),
    "DEAD": ("redrive", "discard", "resolve"),
}
"""State -> verbs; ended tasks allow none."""


def change(state: PoolState, command: i.ChangeTask, context: Context) -> Decision:
    """Priority, requirement, deadlines, not-before or labels of a waiting task."""
    task = _open(state, command, context, "change")
    if isinstance(task, Decision):
        return task
    changed = _normalised(command.body.changed)
    problem = changes_problem(changed, context.now) or _changed_lane_problem(state, task, changed)
    if problem is not None:
        return refused(command, problem)
    if _in_place(task, changed):
        return _noted(state, command, task.id, task, context)
    event = e.TaskChanged(
        task=task.id,
        origin=task.state,
        to="WAITING",
        changed=changed,
        reason=command.body.reason,
    )
    return _accepted(state, command, task, "WAITING", context, event)


def changes_problem(changed: e.TaskChanges, now: int) -> Refusal | None:
    """What is wrong with new values for a task, or None."""
    if changed.priority is not None and not 0 <= changed.priority <= PRIORITY_MAX:
        return Refusal("invalid_field", "a priority is 0 to 9", "/priority")
    if changed.slot_cost is not None and not 1 <= changed.slot_cost <= SLOT_COST_MAX:
        return Refusal("invalid_field", "a slot cost is 1 to 1024", "/slot_cost")
    if changed.not_before is not None and not 0 <= changed.not_before <= INTEGER_MAX:
        return Refusal("invalid_field", "not an instant", "/not_before")
    return (
        labels_problem(changed.labels or {})
        or requirement_problem(changed.requirement, "/requirement")
        or requirement_problem(changed.prefer, "/prefer")
        or deadlines_problem(changed.deadlines, now)
    )


def _normalised(changed: e.TaskChanges) -> e.TaskChanges:
    """Requirements as a submission would store them: sorted, each once."""
    requirement = None if changed.requirement is None else sorted(set(changed.requirement))
    prefer = None if changed.prefer is None else list(dict.fromkeys(changed.prefer))
    return replace(changed, requirement=requirement, prefer=prefer)


def _in_place(task: Task, changed: e.TaskChanges) -> bool:
    """Whether the task is so already. Labels are not known here: with them it is a change."""
    terms = task.terms
    wanted = (changed.priority, changed.slot_cost, changed.requirement, changed.prefer, changed.deadlines)
    has = (terms.priority, terms.slot_cost, list(terms.requirement), list(terms.prefer), task.deadlines)
    if changed.labels is not None or changed.not_before not in (None, task.eligible_at):
        return False
    return all(new is None or new == old for new, old in zip(wanted, has, strict=True))


def _changed_lane_problem(state: PoolState, task: Task, changed: e.TaskChanges) -> Refusal | None:
    terms = task.terms
    requirement = terms.requirement if changed.requirement is None else tuple(sorted(set(changed.requirement)))
    return lane_problem(state, (requirement, changed.slot_cost or terms.slot_cost, terms.kind, terms.limit_key), {})


def cancel(state: PoolState, command: i.CancelTask, context: Context) -> Decision:
    """Somebody no longer wants the task: at once where it does not run, by its robot where it does."""
    task = _open(state, command, context, "cancel", done_in="CANCELLED")
    if isinstance(task, Decision):
        return task
    current, reason = task.current, command.body.reason
    if task.state == "RUNNING" and current is not None:
        if current.cancel_requested:
            return _noted(state, command, task.id, task, context)
        robot = state.robots[current.robot]
        event = e.CancelRequested(task=task.id, attempt=task.attempt, robot=robot.id, reason=reason)
        told = a.cancel(robot, task.id, task.attempt, reason)
        return _accepted(state, command, task, "RUNNING", context, event, told=[told])
    held, held_until = _held_after_cancel(state, task, current, context.now)
    cancelled = e.TaskCancelled(
        task=task.id,
        origin=task.state,
        attempt=None if current is None else task.attempt,
        robot=None if current is None else current.robot,
        held=held,
        held_until=held_until,
        reason=reason,
    )
    return _accepted(state, command, task, "CANCELLED", context, cancelled, told=_stop(state, task, "ended"))


def _held_after_cancel(state: PoolState, task: Task, current: Attempt | None, now: int) -> tuple[bool, int | None]:
    """A LOST robot may still work, and be answered until its gateway knows: held as after a release."""
    if task.state != "LOST" or current is None:
        return False, None
    return True, exclusion_ends_at(state, current, now)


def redrive(state: PoolState, command: i.RedriveTask, context: Context) -> Decision:
    """Put a dead letter back."""
    task = _open(state, command, context, "redrive", done_in="WAITING")
    if isinstance(task, Decision):
        return task
    changed = command.body.changed or e.TaskChanges()
    problem = (
        changes_problem(changed, context.now)
        or _changed_lane_problem(state, task, changed)
        or _passed_deadline_problem(task, changed, context.now)
    )
    if problem is not None:
        return refused(command, problem)
    event = e.TaskRedriven(
        task=task.id,
        origin=task.state,
        reason=command.body.reason or "",
        changed=None if command.body.changed is None else _normalised(changed),
    )
    return _accepted(state, command, task, "WAITING", context, event)


def _passed_deadline_problem(task: Task, changed: e.TaskChanges, now: int) -> Refusal | None:
    """Deadlines count anew after a redrive: one that ends the task and has passed would end it again at once."""
    deadlines = task.deadlines if changed.deadlines is None else None
    for name in ("start", "end"):
        deadline = getattr(deadlines, name, None)
        if deadline is not None and deadline.then != "alarm" and deadline.at <= now:
            text = f"the {name} deadline has passed; redrive it with other deadlines"
            return Refusal("deadline_passed", text, f"/deadlines/{name}/at")
    return None


def discard(state: PoolState, command: i.DiscardTask, context: Context) -> Decision:
    """Give a dead letter up."""
    task = _open(state, command, context, "discard", done_in="DISCARDED", reason_needed=True)
    if isinstance(task, Decision):
        return task
    event = e.TaskDiscarded(task=task.id, origin=task.state, reason=command.body.reason or "")
    return _accepted(state, command, task, "DISCARDED", context, event)


def resolve(state: PoolState, command: i.ResolveTask, context: Context) -> Decision:
    """An operator says that a LOST or DEAD task is done; what it holds is free at once."""
    task = _open(state, command, context, "resolve", done_in="COMPLETED", reason_needed=True)
    if isinstance(task, Decision):
        return task
    event = e.TaskCompleted(
        task=task.id,
        origin=task.state,
        by="operator",
        attempt=task.attempt or None,
        result=command.body.result,
        reason=command.body.reason,
    )
    freed = [_hold_ended(state, key, command.body.reason) for key in _holds_of(state, task.id)]
    return _accepted(state, command, task, "COMPLETED", context, event, *freed, told=_stop(state, task, "ended"))


def release(state: PoolState, command: i.ReleaseTask, context: Context) -> Decision:
    """End a lease. Slot and target stay held until the robot has surely stopped, unless forced."""
    body = command.body
    if body.force and not body.reason:
        return refused(command, _reason_required())
    only_holds = _holds_of(state, body.task)
    if body.force and only_holds and (body.task not in state.tasks or state.tasks[body.task].current is None):
        freed = [_hold_ended(state, key, body.reason) for key in only_holds]
        row = state.tasks.get(body.task) or state.ended[body.task]
        answer = task_answer(body.task, row.state, row.attempt, state.sequence + 1, context.now)
        return accepted(command, answer, *freed)
    task = _open(state, command, context, "release", reason_needed=True)
    if isinstance(task, Decision):
        return task
    current = task.current
    if current is None:
        raise AssertionError(f"{task.id} is {task.state} without an attempt")
    end = unwanted(task, current) if task.state == "RUNNING" else None
    to = "WAITING" if end is None else end.to
    held = not body.force and task.state != "ASSIGNED"
    event = e.TaskReleased(
        task=task.id,
        origin=task.state,
        to=to,
        dead_reason=None if end is None else end.dead_reason,
        attempt=task.attempt,
        robot=current.robot,
        reason=body.reason or "",
        held=held,
        held_until=exclusion_ends_at(state, current, context.now) if held else None,
        force=body.force,
    )
    return _accepted(state, command, task, to, context, event, told=_stop(state, task, "released"))


def pause(state: PoolState, command: i.Pause, context: Context) -> Decision:
    """Assign nothing of a pool, target, kind or task."""
    body = command.body
    problem = _scope_problem(state, body)
    if problem is not None:
        return refused(command, problem)
    name = _scope_name(body)
    known = state.paused.get((body.scope, name or ""))
    if known is not None and known.until == body.until:
        return _scope_noted(state, command, context)
    event = e.DispatchPaused(scope=body.scope, name_=name, until=body.until, reason=body.reason)
    return _scope_accepted(state, command, context, event)


def resume(state: PoolState, command: i.Resume, context: Context) -> Decision:
    """Assign it again."""
    body = command.body
    problem = _scope_problem(state, body)
    if problem is not None:
        return refused(command, problem)
    name = _scope_name(body)
    if (body.scope, name or "") not in state.paused:
        return _scope_noted(state, command, context)
    event = e.DispatchResumed(scope=body.scope, name_=name, reason=body.reason)
    return _scope_accepted(state, command, context, event)


def _scope_name(body: i.ScopeBody) -> str | None:
    return None if body.scope == "pool" else body.name


def _scope_problem(state: PoolState, body: i.ScopeBody) -> Refusal | None:
    if body.scope == "pool":
        return None
    if body.name is None or not (is_name(body.name) or (body.scope == "task" and firing_of(body.name))):
        return Refusal("invalid_field", f"which {body.scope}?", "/name")
    if body.scope == "task" and body.name not in state.tasks:
        if body.name in state.ended:
            return _wrong_state(body.name, state.ended[body.name].state)
        return _no_such_task(body.name)
    return None


def _scope_answer(state: PoolState, body: i.ScopeBody, context: Context, changed: bool) -> dict[str, Any]:
    return {
        "scope": body.scope,
        "name": body.name,
        "changed": changed,
        "sequence": state.sequence + 1,
        "at": context.now,
    }


def _scope_accepted(state: PoolState, command: i.Pause | i.Resume, context: Context, event: e.Event) -> Decision:
    return accepted(command, _scope_answer(state, command.body, context, True), event)


def _scope_noted(state: PoolState, command: i.Pause | i.Resume, context: Context) -> Decision:
    answer = _scope_answer(state, command.body, context, False)
    return accepted(command, answer, e.CommandNoted(command=command.id, answer={"changed": False}))


# ---- what the verbs share ----


def _open(
    state: PoolState,
    command: Any,
    context: Context,
    verb: str,
    done_in: str | None = None,
    reason_needed: bool = False,
) -> Task | Decision:
    """The task the verb is for, or the answer: unknown, effect in place already, reason missing, wrong state."""
    task_id = command.body.task
    if reason_needed and not command.body.reason:
        return refused(command, _reason_required())
    row = state.tasks.get(task_id) or state.ended.get(task_id)
    if row is None:
        return refused(command, _no_such_task(task_id))
    if row.state == done_in:
        return _noted(state, command, task_id, row, context)
    if verb not in ALLOWED_VERBS.get(row.state, ()):
        return refused(command, _wrong_state(task_id, row.state))
    return state.tasks[task_id]


def _noted(state: PoolState, command: Any, task_id: str, row: Task | Ended, context: Context) -> Decision:
    """The effect is in place already: nothing changes, but the command is remembered."""
    noted = e.CommandNoted(command=command.id, answer={"task": task_id, "state": row.state, "attempt": row.attempt})
    answer = task_answer(task_id, row.state, row.attempt, state.sequence + 1, context.now, False)
    return accepted(command, answer, noted)


def _reason_required() -> Refusal:
    return Refusal("reason_required", "say why; it is recorded", "/reason")


def _no_such_task(task_id: str) -> Refusal:
    return Refusal("no_such_task", f"there is no task {task_id} in this pool")


def _wrong_state(task_id: str, state: str) -> Refusal:
    allowed = list(ALLOWED_VERBS.get(state, ()))
    text = f"task {task_id} is {state}, which allows {', '.join(allowed) or 'nothing more'}"
    return Refusal("wrong_state", text, extra={"state": state, "allowed": allowed})


def _accepted(
    state: PoolState,
    command: Any,
    task: Task,
    to: str,
    context: Context,
    *events: e.Event,
    told: list[Draft] | None = None,
) -> Decision:
    answer = task_answer(task.id, to, task.attempt, state.sequence + 1, context.now)
    decision = accepted(command, answer, *events)
    decision.drafts += told or []
    return decision


def _stop(state: PoolState, task: Task, reason: str) -> list[Draft]:
    current = task.current
    robot = None if current is None else state.robots.get(current.robot)
    return [] if robot is None or not robot.online else [a.stop(robot, task.id, task.attempt, reason)]


def _holds_of(state: PoolState, task_id: str) -> list[Held]:
    return [key for key in state.holds if key.task == task_id]


def _hold_ended(state: PoolState, key: Held, reason: str | None) -> e.HoldEnded:
    hold = state.holds[key]
    target = None if hold.target is None else hold.target.name
    return e.HoldEnded(task=key.task, attempt=key.attempt, robot=hold.robot, target=target, why="force", reason=reason)


VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "change": change,
    "cancel": cancel,
    "redrive": redrive,
    "discard": discard,
    "resolve": resolve,
    "release": release,
    "pause": pause,
    "resume": resume,
}
