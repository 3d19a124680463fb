"""How task events change the rows: the state is set to `to`; slots, target, queue and memory follow from that."""

from collections.abc import Callable
from typing import Any, Final

from commands import events as e
from commands.state import Attempt, Ended, Held, Hold, PoolState, Reported, Robot, Saved, Target, Task, Terms
from commands.vocabulary import HELD_STATES, TERMINAL_STATES

Appliers = dict[type[e.Event], Callable[[PoolState, Any, int], None]]
REPORTED_MAX: Final = 256
"""How many reports are remembered of one task; a robot repeats its newest ones only."""


def _submitted(state: PoolState, event: e.TaskSubmitted, offset: int) -> None:
    terms = Terms(
        kind=event.kind,
        requirement=tuple(event.requirement),
        prefer=tuple(event.prefer),
        slot_cost=event.slot_cost,
        priority=event.priority,
        lease_ms=event.lease_ms,
        accept_ms=event.accept_ms,
        failures_max=event.retry.failures_max,
        first_ms=event.retry.first_ms,
        factor=event.retry.factor,
        max_ms=event.retry.max_ms,
        lost_max=event.lost_max,
        policy=event.on_lost.policy,
        wait_ms=event.on_lost.wait_ms or 0,
        passing=event.passing,
        late=event.late,
        limit_key=event.limit_key,
    )
    task = Task(
        id=event.task,
        terms=state.share(terms),
        sequence=event.sequence,
        offset=offset,
        digest=bytes.fromhex(event.digest)[:16],
        base_at=event.occurred_at,
        eligible_at=max(event.occurred_at, event.not_before or 0),
    )
    if event.target is not None:
        task.target = state.intern_target(event.target)
        task.target.tasks += 1
        state.idle_targets.pop(event.target, None)
    state.tasks[task.id] = task
    if event.deadlines is not None:
        task.deadlines = event.deadlines
        ask_for_deadlines(state, task)
    state.queue.add(task, event.occurred_at)


def _changed(state: PoolState, event: e.TaskChanged, offset: int) -> None:
    task = state.tasks[event.task]
    said = {(task.terms.needed, task.terms.slot_cost)} & state.unsatisfiable
    state.queue.remove(task)
    _change(state, task, event.changed)
    state.queue.add(task, event.occurred_at)
    state.unsatisfiable |= said & {(task.terms.needed, task.terms.slot_cost)}


def _change(state: PoolState, task: Task, changed: e.TaskChanges) -> None:
    values = asdict_terms(task.terms)
    for name in ("priority", "slot_cost"):
        if getattr(changed, name) is not None:
            values[name] = getattr(changed, name)
    for name in ("requirement", "prefer"):
        if getattr(changed, name) is not None:
            values[name] = tuple(getattr(changed, name))
    task.terms = state.share(Terms(**values))
    if changed.not_before is not None:
        task.begin_at(task.base_at, max(task.base_at, changed.not_before))
    if changed.deadlines is not None:
        task.deadlines = changed.deadlines
        if task.story is not None:
            task.story.passed.clear()
        ask_for_deadlines(state, task)


def asdict_terms(terms: Terms) -> dict[str, Any]:
    """Terms as name -> value."""
    return {name: getattr(terms, name) for name in terms.__dataclass_fields__}


def ask_for_deadlines(state: PoolState, task: Task) -> None:
    """A timer for each deadline of the task as it stands; which of them act is decided when they pass."""
    for instant in task.instants:
        state.timers.push(instant, "deadline", task.id)
    current = task.current
    if current is not None and current.started_at:
        deadlines = task.deadlines
        if deadlines is not None and deadlines.run is not None:
            state.timers.push(current.started_at + deadlines.run.ms, "deadline", task.id)


def _assigned(state: PoolState, event: e.TaskAssigned, offset: int) -> None:
    task = state.tasks[event.task]
    if task.target is not None:
        task.target.last_served = event.occurred_at
        task.target.level = event.level
        task.target.holder = Held(task.id, event.attempt)
    state.queue.remove(task)
    task.state = event.to
    task.attempt = event.attempt
    if task.story is not None:
        task.story.passed.pop("run", None)
    task.current = Attempt(
        robot=event.robot,
        assigned_at=event.occurred_at,
        accept_by=event.accept_by,
        lease_ms=event.lease_ms,
        stop_after_ms=event.stop_after_ms,
        slot_cost=event.slot_cost,
    )
    robot = state.robots[event.robot]
    robot.served = event.sequence
    robot.used += event.slot_cost
    robot.tasks[task.id] = None
    state.queue.room_changed(robot)
    state.timers.push(event.accept_by, "accept", task.id)
    for (scope, name), opens_at in state.limits.take(task.terms.kind, task.terms.limit_key, event.occurred_at):
        state.timers.push(opens_at, "limit", f"{scope}/{name}")


def _withdrawn(state: PoolState, event: e.AssignmentWithdrawn, offset: int) -> None:
    task = state.tasks[event.task]
    if event.reason == "accept_timeout":
        _note_lapse(state.robots[event.robot], task, event.occurred_at)
    _attempt_over(state, task, event, "withdrawn")


def _note_lapse(robot: Robot, task: Task, now: int) -> None:
    """What was given before the lapse that was counted last, or before all counts began anew, says nothing new of the
    robot: a moment without network is one lapse, however many slots it has, and an outage is none."""
    if _current(task).assigned_at >= robot.lapsed_at:
        robot.lapses += 1
        robot.lapsed_at = now


def _rejected(state: PoolState, event: e.AssignmentRejected, offset: int) -> None:
    task = state.tasks[event.task]
    story = task.told()
    _note_report(story.reported, event.attempt, "reject", False)
    state.robots[event.robot].rejects += 1
    if event.clears_exclusions:
        _end_exclusions(state, task)
        story.clearings += 1
        task.again_at = event.not_again_before or 0
    else:
        story.excluded[event.robot] = event.excluded_until
        state.robots[event.robot].excluding.add(task.id)
        state.timers.push(event.excluded_until, "excluded", task.id)
    _attempt_over(state, task, event, "reject")


def _end_exclusions(state: PoolState, task: Task) -> None:
    if task.story is not None:
        for name in task.story.excluded:
            if name in state.robots:
                state.robots[name].excluding.discard(task.id)
        task.story.excluded.clear()


def _lease_started(state: PoolState, event: e.LeaseStarted | e.LeaseResumed, offset: int) -> None:
    task = state.tasks[event.task]
    current = _current(task)
    task.state = event.to
    current.counts_from = event.counts_from
    current.lease_sequence = event.sequence
    current.missed = 0
    current.wait_until = None
    if isinstance(event, e.LeaseStarted):
        current.started_at = event.occurred_at
        robot = state.robots[event.robot]
        robot.lapses = robot.rejects = 0
        if (deadlines := task.deadlines) is not None and deadlines.start is not None:
            task.told().passed.setdefault("start", "met")
    ask_for_deadlines(state, task)
    state.running[task.id] = task


def _checkpoint_saved(state: PoolState, event: e.CheckpointSaved, offset: int) -> None:
    state.tasks[event.task].told().checkpoint = Saved(event.number, event.sequence, offset, event.occurred_at)


def _completed(state: PoolState, event: e.TaskCompleted, offset: int) -> None:
    task = state.tasks[event.task]
    _attempt_over(state, task, event, "complete")
    ended = state.ended[event.task]
    ended.late = event.late
    ended.robot = event.robot
    if event.attempt is not None:
        ended.attempt = max(ended.attempt, event.attempt)


def _failed(state: PoolState, event: e.AttemptFailed, offset: int) -> None:
    task = state.tasks[event.task]
    task.failures = event.failures
    task.again_at = event.not_again_before or 0
    _note_report(task.told().reported, event.attempt, "fail", False)
    _attempt_over(state, task, event, "fail")


def _stopped(state: PoolState, event: e.AttemptStopped, offset: int) -> None:
    task = state.tasks[event.task]
    task.lost = event.lost
    _note_report(task.told().reported, event.attempt, "stopped", False)
    _attempt_over(state, task, event, "stopped")


def _expired(state: PoolState, event: e.LeaseExpired, offset: int) -> None:
    task = state.tasks[event.task]
    task.lost = event.lost
    _attempt_over(state, task, event, "expired", event.held, event.held_until)


def _released(state: PoolState, event: e.TaskReleased, offset: int) -> None:
    how = "withdrawn" if event.origin == "ASSIGNED" else "released"
    _attempt_over(state, state.tasks[event.task], event, how, event.held, event.held_until)


def _cancelled(state: PoolState, event: e.TaskCancelled, offset: int) -> None:
    _attempt_over(state, state.tasks[event.task], event, "cancelled", event.held, event.held_until)


def _attempt_over(
    state: PoolState,
    task: Task,
    event: e.TaskTransition,
    how: str,
    held: bool = False,
    held_until: int | None = None,
) -> None:
    """The task goes to `event.to`; what its attempt held is freed, or stays held as a Hold."""
    robot = None if task.story is None else task.story.last_robot
    final = event.to in TERMINAL_STATES
    if task.state == "WAITING":
        state.queue.remove(task)
    elif task.state in HELD_STATES:
        if event.to == "LOST":
            _to_lost(state, task, event)
            return
        robot = _leave_attempt(state, task, how, final, held, held_until)
    task.state = event.to
    if event.to == "WAITING":
        state.queue.add(task, event.occurred_at)
        ask_for_deadlines(state, task)
    elif event.to == "DEAD":
        task.told().dead_reason = event.dead_reason
    elif final:
        _end(state, task, event, robot)


def _to_lost(state: PoolState, task: Task, event: e.TaskTransition) -> None:
    current = _current(task)
    task.state = "LOST"
    current.wait_until = event.wait_until
    state.running.pop(task.id, None)
    if event.wait_until is not None:
        state.timers.push(event.wait_until, "lost_wait", task.id)


def _leave_attempt(state: PoolState, task: Task, how: str, final: bool, held: bool, held_until: int | None) -> str:
    """Frees or holds what the attempt had; returns its robot. A task without a past that ends needs no story."""
    current = _current(task)
    if task.story is not None or not final:
        story = task.told()
        story.last_robot, story.last_end = current.robot, how
    state.running.pop(task.id, None)
    state.limits.leave(task.terms.kind, task.terms.limit_key)
    task.current = None
    robot = state.robots.get(current.robot)
    if robot is not None:
        robot.tasks.pop(task.id, None)
    if held:
        key = Held(task.id, task.attempt)
        state.holds[key] = Hold(
            task.id, task.attempt, task.sequence, current.robot, current.slot_cost, task.target, held_until
        )
        if held_until is not None:
            state.timers.push(held_until, "hold", f"{task.id}/{task.attempt}")
    else:
        _free(state, current.robot, current.slot_cost, task.target)
    return current.robot


def _free(state: PoolState, robot_id: str, slot_cost: int, target: Target | None) -> None:
    robot = state.robots.get(robot_id)
    if robot is not None:
        robot.used -= slot_cost
        state.queue.room_changed(robot)
    if target is not None:
        target.holder = None
        state.queue.rekey(target)
        _note_idle(state, target)


def _end(state: PoolState, task: Task, event: e.Event, robot: str | None) -> None:
    _end_exclusions(state, task)
    state.paused.pop(("task", task.id), None)
    story = task.story
    state.tasks.pop(task.id)
    state.ended_order.append(task.id)
    state.ended[task.id] = Ended(
        task.state,
        task.attempt,
        task.sequence,
        task.digest,
        event.occurred_at,
        robot=robot,
        reported=None if story is None or not story.reported else story.reported,
    )
    if task.target is not None:
        task.target.tasks -= 1
        _note_idle(state, task.target)


def _note_idle(state: PoolState, target: Target) -> None:
    if not target.tasks and target.holder is None:
        state.idle_targets[target.name] = None


def _lost_wait_ended(state: PoolState, event: e.LostWaitEnded, offset: int) -> None:
    task = state.tasks[event.task]
    task.lost = event.lost
    _attempt_over(state, task, event, "expired")


def _hold_ended(state: PoolState, event: e.HoldEnded, offset: int) -> None:
    hold = state.holds.pop(Held(event.task, event.attempt))
    _free(state, hold.robot, hold.slot_cost, hold.target)


def _cancel_requested(state: PoolState, event: e.CancelRequested, offset: int) -> None:
    _current(state.tasks[event.task]).cancel_requested = True


def _deadline_passed(state: PoolState, event: e.DeadlinePassed, offset: int) -> None:
    task = state.tasks[event.task]
    task.told().passed[event.which] = event.then
    if event.to != event.origin:
        _attempt_over(state, task, event, "deadline")


def _redriven(state: PoolState, event: e.TaskRedriven, offset: int) -> None:
    task = state.tasks[event.task]
    story = task.told()
    task.failures = task.lost = task.again_at = story.clearings = 0
    story.dead_reason = None
    story.redrives += 1
    story.passed.clear()
    _end_exclusions(state, task)
    task.begin_at(event.occurred_at, event.occurred_at)
    if event.changed is not None:
        _change(state, task, event.changed)
    task.state = event.to
    state.queue.add(task, event.occurred_at)
    ask_for_deadlines(state, task)


def _discarded(state: PoolState, event: e.TaskDiscarded, offset: int) -> None:
    _attempt_over(state, state.tasks[event.task], event, "discarded")


def _reported_late(state: PoolState, event: e.ReportedLate, offset: int) -> None:
    task, ended = state.tasks.get(event.task), state.ended.get(event.task)
    if task is not None:
        _note_report(task.told().reported, event.attempt, event.kind, True)
        task.told().done_twice |= event.done_twice
    elif ended is not None:
        ended.reported = ended.reported or {}
        _note_report(ended.reported, event.attempt, event.kind, True)


def _note_report(reported: Reported, attempt: int, kind: str, late: bool) -> None:
    """Remembers a report, so that its repeat is known whatever happened to the task since."""
    reported[attempt, kind] = late
    if len(reported) > REPORTED_MAX:
        del reported[next(iter(reported))]


def _current(task: Task) -> Attempt:
    if task.current is None:
        raise AssertionError(f"task {task.id} has no attempt in {task.state}")
    return task.current


TASK_EVENTS: Final[Appliers] = {
    e.TaskSubmitted: _submitted,
    e.TaskChanged: _changed,
    e.TaskAssigned: _assigned,
    e.AssignmentWithdrawn: _withdrawn,
    e.AssignmentRejected: _rejected,
    e.LeaseStarted: _lease_started,
    e.LeaseResumed: _lease_started,
    e.CheckpointSaved: _checkpoint_saved,
    e.TaskCompleted: _completed,
    e.AttemptFailed: _failed,
    e.AttemptStopped: _stopped,
    e.LeaseExpired: _expired,
    e.LostWaitEnded: _lost_wait_ended,
    e.TaskReleased: _released,
    e.HoldEnded: _hold_ended,
    e.CancelRequested: _cancel_requested,
    e.TaskCancelled: _cancelled,
    e.DeadlinePassed: _deadline_passed,
    e.TaskRedriven: _redriven,
    e.TaskDiscarded: _discarded,
    e.ReportedLate: _reported_late,
}
