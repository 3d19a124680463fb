"""Why a task waits: everything that holds it now, each as a reason word with its data and a piece of a sentence."""

from itertools import islice
from typing import Any, Final

from commands.candidates import reserved_for, why_not
from commands.queue import Need, held_up_to
from commands.requirements import missing
from commands.standing import COUNT_MAX, tasks_before
from commands.state import Held, PoolState, Robot, Target, Task

ROBOTS_NAMED_MAX: Final = 5
ROBOTS_LOOKED_AT_MAX: Final = 10_000

Reasons = list[dict[str, Any]]


def reason(word: str, text: str, **data: Any) -> dict[str, Any]:
    """One thing that holds a task; data that is not known is left out."""
    return {"reason": word, "text": text, **{name: value for name, value in data.items() if value is not None}}


def counted(number: int, what: str) -> str:
    """`1 failure`, `2 failures`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def span(ms: int) -> str:
    """A time for people: 250 ms, 12.5 s, 3 min, 5.5 h, 2 d."""
    for unit, length_ms, up_to_ms in (("ms", 1, 1_000), ("s", 1_000, 120_000), ("min", 60_000, 7_200_000)):
        if ms < up_to_ms:
            return f"{round(ms / length_ms, 1):g} {unit}"
    return f"{round(ms / 3_600_000, 1):g} h" if ms < 172_800_000 else f"{round(ms / 86_400_000, 1):g} d"


def why_waiting(state: PoolState, task: Task, now: int) -> Reasons:
    """Everything that holds a waiting task; where nothing does, its place in line."""
    reasons = [
        *_frozen(state),
        *_paused(state, task, now),
        *_not_yet(task, now),
        *_target_held(state, task),
        *_limits_reached(state, task, now),
        *_behind_limited(state, task, now),
        *_nobody_able(state, task),
    ]
    return reasons or [_in_line(state, task, now)]


def _frozen(state: PoolState) -> Reasons:
    text = "the pool is frozen after a fault; see `fleetlog unfreeze`"
    return [reason("pool_frozen", text)] if state.frozen else []


def _paused(state: PoolState, task: Task, now: int) -> Reasons:
    """Each pause that concerns the task: by whom, since when, until when and why."""
    scopes = [("pool", ""), ("kind", task.terms.kind), ("task", task.id)]
    if task.target is not None:
        scopes.append(("target", task.target.name))
    reasons = []
    for scope, name in scopes:
        paused = state.paused.get((scope, name))
        if paused is not None:
            text = " ".join(word for word in (scope, name, "is paused") if word)
            text += f" by {paused.by}" if paused.by else ""
            text += f" for another {span(paused.until - now)}" if paused.until is not None else ""
            text += f": {paused.reason}" if paused.reason else ""
            data = {"paused_by": paused.by, "paused_at": paused.at, "until": paused.until, "why": paused.reason}
            reasons.append(reason(f"{scope}_paused", text, name=name or state.pool, **data))
    return reasons


def _not_yet(task: Task, now: int) -> Reasons:
    reasons = []
    if task.eligible_at > now:
        reasons.append(
            reason("not_before", f"it may not start for another {span(task.eligible_at - now)}", at=task.eligible_at)
        )
    if task.again_at > now:
        after = counted(task.failures, "failure") if task.failures else "rejections by all"
        text = f"it backs off after {after} for another {span(task.again_at - now)}"
        reasons.append(reason("back_off", text, at=task.again_at, failures=task.failures))
    return reasons


def _target_held(state: PoolState, task: Task) -> Reasons:
    target = task.target
    if target is None:
        return []
    if target.holder is not None:
        return [_held_by(state, target, target.holder)]
    if task.id not in target.backing and task.terms.priority <= held_up_to(target):
        earlier = next(other.id for other in target.backing.values() if other.terms.passing == "higher")
        text = f"task {earlier} of target {target.name} backs off, and only a higher priority passes it"
        return [reason("target_backs_off", text, target=target.name, by=earlier)]
    return []


def _held_by(state: PoolState, target: Target, holder: Held) -> dict[str, Any]:
    """The task that holds the target, how, and with which robot."""
    hold, task = state.holds.get(holder), state.tasks.get(holder.task)
    data: dict[str, Any] = {"target": target.name, "by": holder.task, "attempt": holder.attempt}
    text = f"target {target.name} is held by task {holder.task}"
    if hold is not None:
        text += f", whose robot {hold.robot} may still work on attempt {hold.attempt}"
        return reason("target_held", text, **data, state="HELD", robot=hold.robot, until=hold.until)
    if task is not None and task.current is not None:
        robot = task.current.robot
        return reason("target_held", f"{text} ({task.state}, robot {robot})", **data, state=task.state, robot=robot)
    return reason("target_held", text, **data)


def _limits_reached(state: PoolState, task: Task, now: int) -> Reasons:
    """The limits that let nothing more of its kind or limit key begin: how many there are, or when the next may."""
    reasons, limits = [], state.limits
    for (scope, name), limit in limits.of(task.terms.kind, task.terms.limit_key):
        which: dict[str, Any] = {"scope": scope, "name": name}
        if limits.full((scope, name), limit):
            held = limits.held[scope, name]
            text = f"the limit of {scope} {name} is reached: {held} of {limit.running} run"
            reasons.append(reason("limit_reached", text, **which, held=held, running=limit.running))
        opens_at = limit.opens_at()
        if opens_at > now:
            each = f"{limit.rate_per_s:g} a second"
            text = f"the rate of {scope} {name} ({each}) lets the next begin in {span(opens_at - now)}"
            rate = {"rate_per_s": limit.rate_per_s, "burst": limit.burst}
            reasons.append(reason("rate_reached", text, **which, **rate, at=opens_at))
    return reasons


def _behind_limited(state: PoolState, task: Task, now: int) -> Reasons:
    """A target waits with its first task, whose kind or limit key is at a limit."""
    target = task.target
    if target is None or target.lane is None or state.queue.below_limits(target.lane, now):
        return []
    first = state.queue.first_of(target)
    if first is task:
        return []
    text = f"task {first.id} comes before it on target {target.name} and is at its limit"
    return [reason("target_limited", text, target=target.name, by=first.id)]


# ---- robots ----


def _nobody_able(state: PoolState, task: Task) -> Reasons:
    """No registered robot could ever take it: what is missing, or by how much its slot cost is too high."""
    need = state.queue.need_of(task.terms)
    if need.able:
        return []
    robots = list(islice(state.robots.values(), ROBOTS_LOOKED_AT_MAX))
    if not robots:
        return [reason("no_robots", "no robot is registered in this pool")]
    lacking = nobody_has(state, need)
    data = {
        "requirement": [*need.requirement, f"slots>={need.slot_cost}"],
        "missing": lacking,
        "lacks": {robot.id: _lacks(need, robot) for robot in robots[:ROBOTS_NAMED_MAX]},
    }
    slots = max((robot.slots for robot in robots if not missing(need.requirement, robot.abilities)), default=None)
    text = f"no registered robot {_in_words(lacking)}"
    if slots is not None:
        text = f"its slot cost {need.slot_cost} is above every robot's slots (of those with what it needs: {slots})"
    return [reason("unsatisfiable", text, **data, slots_max=slots)]


def nobody_has(state: PoolState, need: Need) -> list[str]:
    """The conditions that no registered robot meets; all of them where only their combination is missing."""
    robots = state.robots.values()
    lacking = [text for text in need.requirement if all(missing((text,), robot.abilities) for robot in robots)]
    if not any(robot.slots >= need.slot_cost for robot in robots):
        lacking.append(f"slots>={need.slot_cost}")
    return lacking or [*need.requirement, f"slots>={need.slot_cost}"]


def _in_words(conditions: list[str]) -> str:
    """What a robot would have to do and have: `does weld and has gpu, arm`."""
    kinds = [text.removeprefix("kind:") for text in conditions if text.startswith("kind:")]
    wanted = [text for text in conditions if not text.startswith(("kind:", "slots>="))]
    does = [f"does {', '.join(kinds)}"] if kinds else []
    return " and ".join([*does, f"has {', '.join(wanted)}"] if wanted else does)


def _lacks(need: Need, robot: Robot) -> list[str]:
    lacks = missing(need.requirement, robot.abilities)
    return lacks if robot.slots >= need.slot_cost else [*lacks, f"slots>={need.slot_cost}"]


def _in_line(state: PoolState, task: Task, now: int) -> dict[str, Any]:
    """Nothing holds it but others: how many stand before it, and why none of the able robots takes it now."""
    need, words = state.queue.need_of(task.terms), dict[str, list[str]]()
    ahead = tasks_before(state.queue, task, now)
    place = {0: "", 1: ", 1 task stands before it"}.get(ahead or 0, f", {ahead} tasks stand before it")
    if ahead == COUNT_MAX:
        place = f", {COUNT_MAX} tasks or more stand before it"
    for robot in need.able.values():
        words.setdefault(why_not(need, task, robot, now) or "", []).append(robot.id)
    ready = words.pop("", [])
    if not ready:
        said = ", ".join(f"{len(names)} {word}" for word, names in words.items())
        data = {"robots": {word: names[:ROBOTS_NAMED_MAX] for word, names in words.items()}}
        text = f"of the able robots none is free ({said}){place}"
        counts = {f"{word}_robots": len(names) for word, names in words.items()}
        return reason("no_robot_free", text, **data, **counts, ahead=ahead)
    kept = reserved_for(state, task, now)
    if kept is not None and ready == [kept[1].id]:
        text = f"robot {kept[1].id} is kept for task {kept[0].id}, which needs {kept[0].terms.slot_cost} slots{place}"
        return reason("robot_kept", text, robot=kept[1].id, by=kept[0].id, ahead=ahead)
    return reason("in_queue", f"it waits for its turn{place}", ahead=ahead)
