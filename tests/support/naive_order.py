"""The order inside a pool by looking at everything: slow, and without any structure to get wrong."""

from math import ceil
from typing import Any, NamedTuple

from commands.requirements import meets
from commands.state import PoolState, Robot, Task

NEVER = 1 << 62


def bucket(state: PoolState, instant: int, priority: int) -> int:
    """The ageing interval less the priority."""
    return instant // state.settings.ageing_ms - priority


def deadline(task: Task) -> int:
    """The earliest deadline at an instant, or never."""
    deadlines = task.deadlines
    instants = [] if deadlines is None else [d.at for d in (deadlines.start, deadlines.end) if d is not None]
    return min(instants, default=NEVER)


def able(state: PoolState, task: Task) -> list[Robot]:
    """Registered robots that meet the requirement and the cost."""
    terms = task.terms
    needed = (*terms.requirement, f"kind:{terms.kind}")
    return [r for r in state.robots.values() if r.slots >= terms.slot_cost and meets(needed, r.abilities)]


def first_of(state: PoolState, tasks: list[Task], now: int) -> Task | None:
    """The first task of a target, or None."""
    backing = [task.terms for task in tasks if task.again_at > now]
    barrier = max((terms.priority for terms in backing if terms.passing == "higher"), default=-1)

    def counts(task: Task) -> bool:
        paused = {("task", task.id), ("kind", task.terms.kind)} & state.paused.keys()
        ready = task.eligible_at <= now and task.again_at <= now and task.terms.priority > barrier
        return ready and not paused and bool(able(state, task))

    return min(
        filter(counts, tasks),
        key=lambda t: (bucket(state, t.eligible_at, t.terms.priority), deadline(t), t.sequence),
        default=None,
    )


def key(state: PoolState, task: Task) -> tuple[int, int, int, int]:
    """By what targets compete, through their first tasks."""
    own, target = bucket(state, task.eligible_at, task.terms.priority), task.target
    served = None if target is None else target.last_served
    ageing_ms = state.settings.ageing_ms
    if target is None or served is None or task.eligible_at // ageing_ms > served // ageing_ms:
        return own, -1, deadline(task), task.sequence
    level = max(own, min(target.level, bucket(state, served, task.terms.priority)))
    return level, served, deadline(task), task.sequence


def firsts(state: PoolState, now: int) -> list[Task]:
    """The first task of each free target, in order."""
    groups: dict[Any, list[Task]] = {}
    for task in state.tasks.values():
        if task.state == "WAITING":
            groups.setdefault(task.id if task.target is None else (task.target.name,), []).append(task)
    found = []
    for tasks in groups.values():
        target = tasks[0].target
        held = target is not None and (target.holder is not None or ("target", target.name) in state.paused)
        first = None if held else first_of(state, tasks, now)
        if first is not None:
            found.append(first)
    return sorted(found, key=lambda task: key(state, task))


def limited(state: PoolState, task: Task, now: int) -> bool:
    """Whether a limit of its kind or key lets no more be assigned."""
    for (scope, name), limit in state.limits.rows.items():
        same = [t for t in state.tasks.values() if name == (t.terms.kind if scope == "kind" else t.terms.limit_key)]
        if task not in same:
            continue
        if limit.running is not None and sum(t.current is not None for t in same) >= limit.running:
            return True
        if limit.rate_per_s is not None:
            together_us = (limit.burst - 1) * ceil(1_000_000 / limit.rate_per_s)
            if limit.paid_until_us - together_us > now * 1_000:
                return True
    return False


def room(robot: Robot) -> int:
    """Slots that may still be filled, none where the robot gets nothing new."""
    works = robot.online and not (robot.draining or robot.silent or robot.offline or robot.fault)
    return min(robot.slots, robot.ready) - robot.used if works else 0


def reserved(state: PoolState, tasks: list[Task]) -> tuple[Task, Robot] | None:
    """For the best task that no able robot has room for: the able robot with most free slots that could hold it."""
    for task in tasks:
        cost, robots = task.terms.slot_cost, able(state, task)
        if any(room(robot) >= cost for robot in robots):
            continue
        works = [r for r in robots if r.online and not (r.draining or r.silent or r.offline or r.fault)]
        fitting = [r for r in works if min(r.slots, r.ready) >= cost]
        if fitting:
            return task, min(fitting, key=lambda r: (-r.room, r.id))
    return None


def takers(state: PoolState, task: Task, reservation: tuple[Task, Robot] | None, now: int) -> list[Robot]:
    """The robots that the task could be given to now."""
    kept = None
    if reservation is not None and key(state, task) >= key(state, reservation[0]):
        kept = reservation[1]
    excluded = {} if task.story is None else task.story.excluded
    return [
        robot
        for robot in able(state, task)
        if room(robot) >= task.terms.slot_cost and robot is not kept and excluded.get(robot.id, 0) <= now
    ]


class Choice(NamedTuple):
    """An assignment, and the level that it gives to the target."""

    task: str
    robot: str
    level: int


def next_choice(state: PoolState, now: int) -> Choice | None:
    """The next assignment, or None."""
    if state.frozen or ("pool", "") in state.paused:
        return None
    tasks = [task for task in firsts(state, now) if not limited(state, task, now)]
    reservation = reserved(state, tasks)
    candidates = [(task, robots) for task in tasks if (robots := takers(state, task, reservation, now))]
    if not candidates:
        return None
    task, robots = candidates[0]
    levels = [key(state, other)[0] for other, _ in candidates[:2]]
    level = max(levels) if len(levels) == 2 else bucket(state, now, task.terms.priority)
    return Choice(task.id, min(robots, key=lambda robot: _preference(task, robot)).id, level)


def _preference(task: Task, robot: Robot) -> tuple[Any, ...]:
    preferred = sum(meets((text,), robot.abilities) for text in task.terms.prefer)
    before = task.story is not None and task.story.last_robot == robot.id
    beyond = len(robot.capabilities) - len(task.terms.requirement)
    return -preferred, not before, beyond, robot.used / robot.slots, robot.served, robot.id
