"""Why a task is where it is: a read for people and programs, no event."""

from itertools import islice, takewhile
from typing import Any, Final

from commands import inputs as i
from commands.decide.answers import Context, Decision, accepted, refused
from commands.queue import Need
from commands.reasons import Refusal
from commands.requirements import missing
from commands.state import PoolState, Robot, Task

ROBOTS_NAMED_MAX: Final = 5
COUNT_MAX: Final = 10_000


def explain(state: PoolState, command: i.Explain, context: Context) -> Decision:
    """State, what holds the task (reason words with their data), and a sentence."""
    task_id = command.body.task
    task, ended = state.tasks.get(task_id), state.ended.get(task_id)
    if task is not None:
        return accepted(command, _open(state, task, context.now))
    if ended is None:
        return refused(command, Refusal("no_such_task", f"there is no task {task_id} in this pool"))
    text = f"{task_id} is {ended.state} since attempt {ended.attempt}; nothing follows."
    return accepted(command, {"task": task_id, "state": ended.state, "attempt": ended.attempt, "text": text})


def _open(state: PoolState, task: Task, now: int) -> dict[str, Any]:
    holds = _HOLDING[task.state](state, task, now)
    return {
        "task": task.id,
        "state": task.state,
        "attempt": task.attempt,
        "holds": holds,
        "text": f"{task.id} is {task.state}: " + "; ".join(hold["text"] for hold in holds) + ".",
    }


def _hold(word: str, text: str, **data: Any) -> dict[str, Any]:
    return {"reason": word, "text": text, **data}


def _waiting(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    holds = [*_paused(state, task), *_not_yet(task, now), *_target_held(task), *_limits_reached(state, task, now)]
    if state.frozen:
        holds.insert(0, _hold("pool_frozen", "the pool is frozen after a fault; see `fleetlog unfreeze`"))
    holds += _robots(state, task, now) or []
    return holds or [_hold("in_queue", "it waits for its turn", ahead=_ahead(state, task))]


def _paused(state: PoolState, task: Task) -> list[dict[str, Any]]:
    scopes = [("pool", ""), ("kind", task.terms.kind), ("task", task.id)]
    if task.target is not None:
        scopes.append(("target", task.target.name))
    return [_hold(f"{scope}_paused", f"{scope} {name} is paused".replace("  ", " "), name=name or state.pool)
            for scope, name in scopes if (scope, name) in state.paused]  # fmt: skip


def _not_yet(task: Task, now: int) -> list[dict[str, Any]]:
    holds = []
    if task.eligible_at > now:
        holds.append(_hold("not_before", f"not before {task.eligible_at - now} ms from now", at=task.eligible_at))
    if task.again_at > now:
        text = f"it backs off after {task.failures} failures for another {task.again_at - now} ms"
        holds.append(_hold("back_off", text, at=task.again_at, failures=task.failures))
    return holds


def _target_held(task: Task) -> list[dict[str, Any]]:
    target = task.target
    if target is None:
        return []
    if target.holder is not None:
        holder = target.holder.task
        text = f"target {target.name} is held by task {holder}"
        return [_hold("target_held", text, target=target.name, by=holder, attempt=target.holder.attempt)]
    if target.backing and task.id not in target.backing:
        text = f"an earlier task of target {target.name} backs off"
        return [_hold("target_backs_off", text, target=target.name, by=next(iter(target.backing)))]
    return []


def _limits_reached(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    """The limits that let nothing more of its kind or limit key begin: how many there are, or when the next may."""
    holds, limits = [], state.limits
    for (scope, name), limit in limits.of(task.terms.kind, task.terms.limit_key):
        which: dict[str, Any] = {"scope": scope, "name": name}
        if limits.full((scope, name), limit):
            held = limits.held[scope, name]
            text = f"the limit of {scope} {name} is reached: {held} of {limit.running} run"
            holds.append(_hold("limit_reached", text, **which, held=held, running=limit.running))
        opens_at = limit.opens_at()
        if opens_at > now:
            text = (
                f"the rate of {scope} {name} ({limit.rate_per_s:g} a second) lets the next begin in {opens_at - now} ms"
            )
            rate = {"rate_per_s": limit.rate_per_s, "burst": limit.burst}
            holds.append(_hold("rate_reached", text, **which, **rate, at=opens_at))
    return holds


def _robots(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    need = state.queue.need_of(task.terms)
    if not need.able:
        return [_nobody_able(state, task, need)]
    from commands.dispatch import why_not

    reasons: dict[str, list[str]] = {}
    for robot in need.able.values():
        word = why_not(need, task, robot, now)
        if word is None:
            return []
        reasons.setdefault(word, []).append(robot.id)
    said = ", ".join(f"{len(names)} {word}" for word, names in reasons.items())
    return [
        _hold(
            "no_robot_free",
            f"of the able robots none is free ({said})",
            robots={word: names[:ROBOTS_NAMED_MAX] for word, names in reasons.items()},
        )
    ]


def _nobody_able(state: PoolState, task: Task, need: Need) -> dict[str, Any]:
    robots = list(islice(state.robots.values(), COUNT_MAX))
    if not robots:
        return _hold("no_robots", "no robot is registered in this pool")
    lacks = {robot.id: _lacks(need, robot) for robot in robots[:ROBOTS_NAMED_MAX]}
    wanted = [*need.requirement, f"slots>={need.slot_cost}"]
    return _hold("unsatisfiable", f"no registered robot has {', '.join(wanted)}", lacks=lacks, requirement=wanted)


def _lacks(need: Need, robot: Robot) -> list[str]:
    lacks = missing(need.requirement, robot.abilities)
    return lacks if robot.slots >= need.slot_cost else [*lacks, f"slots>={need.slot_cost}"]


def _ahead(state: PoolState, task: Task) -> int:
    """How many waiting tasks were submitted before it (counted up to 10,000)."""
    earlier = takewhile(lambda other: other is not task, state.tasks.values())
    return sum(1 for _ in islice((other for other in earlier if other.state == "WAITING"), COUNT_MAX))


def _assigned(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    current = task.current
    assert current is not None  # noqa: S101
    text = f"robot {current.robot} has {max(0, current.accept_by - now)} ms left to accept"
    return [_hold("accept_awaited", text, robot=current.robot, accept_by=current.accept_by)]


def _running(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    current = task.current
    assert current is not None  # noqa: S101
    text = f"robot {current.robot} runs it for {now - current.started_at} ms"
    holds = [_hold("running", text, robot=current.robot, started_at=current.started_at)]
    if current.missed and current.missed_at >= state.window_start(now) - state.window_ms_at(now):
        windows = state.windows_of(current.lease_ms, now)
        holds.append(_hold("missed_windows", f"{current.missed} of {windows} windows missed", missed=current.missed))
    if current.cancel_requested:
        holds.append(_hold("cancel_requested", f"robot {current.robot} was asked to stop and has not yet"))
    return holds


def _lost(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    current = task.current
    assert current is not None  # noqa: S101
    if current.wait_until is not None:
        text = f"robot {current.robot} fell silent and has {max(0, current.wait_until - now)} ms to come back"
        return [_hold("lost_wait", text, robot=current.robot, wait_until=current.wait_until)]
    text = f"robot {current.robot} fell silent; the policy {task.terms.policy} waits for an operator"
    return [_hold("lost_operator", text, robot=current.robot, verbs=["resolve", "release", "cancel"])]


def _dead(state: PoolState, task: Task, now: int) -> list[dict[str, Any]]:
    reason = None if task.story is None else task.story.dead_reason
    text = f"a dead letter ({reason}) after {task.failures} failures and {task.lost} lost attempts"
    return [_hold("dead", text, dead_reason=reason, verbs=["redrive", "discard", "resolve"])]


_HOLDING: Final = {"WAITING": _waiting, "ASSIGNED": _assigned, "RUNNING": _running, "LOST": _lost, "DEAD": _dead}
