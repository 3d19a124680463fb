"""The dispatcher: which waiting task goes to which robot next, as a function of pool state and instant.

The next task is the best top among the lanes that are below their limits and have an able robot with room (the keys
stand in `commands/queue.py`, the order in docs/understand/order.md); the robot is chosen by most preferred conditions
met, the one that ran the task before, fewest capabilities beyond the requirement, least loaded share of slots, longest
without an assignment, id.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from commands import events as e
from commands.decide import answers as a
from commands.decide.losing import stop_after_ms
from commands.decide.robots import assignment_id
from commands.heartbeats import Step
from commands.queue import NEVER_SERVED, Entry, Lane, Need, Queue, bucket
from commands.requirements import meets
from commands.state import PoolState, Robot, Target, Task

ASIDE_MAX: Final = 64
"""How many tasks whose able robots are all excluded are looked past at one dispatch."""
PASSED_OVER_MAX: Final = 3
_RULES: Final = ("level", "turn", "deadline", "first come")


def next_assignment(state: PoolState, now: int) -> Step | None:
    """The one next TaskAssigned with its message to the robot, or None when nothing can be given to anybody."""
    queue = state.queue
    if not queue.free or state.frozen or ("pool", "") in state.paused:
        return None
    aside: list[Top] = []
    try:
        chosen = _next_candidate(queue, now, aside)
        return None if chosen is None else _assigned(state, chosen, _next_candidate(queue, now, aside), now)
    finally:
        for entry, lane in aside:
            heappush(lane.heap, entry)


Top = tuple[Entry, Lane]
Reservation = tuple[Entry, Robot]
Candidate = tuple[Entry, Lane, Task, Robot]


def _next_candidate(queue: Queue, now: int, aside: list[Top]) -> Candidate | None:
    """The best task that a robot can take now, with that robot; what was looked at is out of its lane, in `aside`."""
    while len(aside) <= ASIDE_MAX:
        tops = _tops(queue, now)
        reserved = _reserved(queue, tops)
        best = min((top for top in tops if _anybody(queue, top, reserved)), key=_order, default=None)
        if best is None:
            return None
        entry, lane = best
        aside.append((heappop(lane.heap), lane))
        task = _task_of(queue, entry)
        robot = _robot_for(queue, lane.need, task, now, None if _before(entry, reserved) else reserved)
        if robot is not None:
            return entry, lane, task, robot
    return None


def _order(top: Top) -> Entry:
    return top[0]


def _tops(queue: Queue, now: int) -> list[Top]:
    """The first of each lane that is below its limits: what may be assigned if a robot has room."""
    tops = []
    for lane in queue.lanes.values():
        if not lane.blocked and queue.below_limits(lane, now) and (entry := queue.top(lane)) is not None:
            tops.append((entry, lane))
    return tops


def _task_of(queue: Queue, entry: Entry) -> Task:
    holder = entry[5]
    return queue.first_of(holder) if isinstance(holder, Target) else holder


def _reserved(queue: Queue, tops: list[Top]) -> Reservation | None:
    """For the best task that no able robot has room for: the able robot with most free slots is kept for it.

    Without this, a task of cost 4 on robots of 4 slots would starve behind a stream of cost 1.
    """
    blocked = [top for top in tops if next(queue.with_room(top[1].need), None) is None]
    for entry, lane in sorted(blocked, key=_order):
        cost = lane.need.slot_cost
        fitting = [r for r in lane.need.able.values() if r.may_work and min(r.ready, r.slots) >= cost]
        if fitting:
            return entry, min(fitting, key=lambda robot: (-robot.room, robot.id))
    return None


def _before(entry: Entry, reserved: Reservation | None) -> bool:
    return reserved is None or entry < reserved[0]


def _anybody(queue: Queue, top: Top, reserved: Reservation | None) -> bool:
    entry, lane = top
    kept = None if _before(entry, reserved) or reserved is None else reserved[1]
    return any(robot is not kept for robot in queue.with_room(lane.need))


def _robot_for(queue: Queue, need: Need, task: Task, now: int, reserved: Reservation | None) -> Robot | None:
    excluded = {} if task.story is None else task.story.excluded
    kept = None if reserved is None else reserved[1]
    able = (r for r in queue.with_room(need) if r is not kept and excluded.get(r.id, 0) <= now)
    return min(able, key=lambda robot: _robot_key(task, robot), default=None)


def _robot_key(task: Task, robot: Robot) -> tuple[int, bool, int, float, int, str]:
    preferred = sum(meets((text,), robot.abilities) for text in task.terms.prefer)
    before = task.story is not None and task.story.last_robot == robot.id
    beyond = len(robot.capabilities) - len(task.terms.requirement)
    return -preferred, not before, beyond, robot.used / robot.slots, robot.served, robot.id


def _assigned(state: PoolState, chosen: Candidate, other: Candidate | None, now: int) -> Step:
    entry, lane, task, robot = chosen
    terms = task.terms
    level = bucket(now, terms.priority, state.settings.ageing_ms) if other is None else max(entry[0], other[0][0])
    attempt = task.attempt + 1
    saved = None if task.story is None else task.story.checkpoint
    event = e.TaskAssigned(
        task=task.id,
        origin="WAITING",
        attempt=attempt,
        robot=robot.id,
        epoch=robot.epoch,
        accept_by=now + terms.accept_ms,
        lease_ms=terms.lease_ms,
        windows=state.windows_of(terms.lease_ms, now),
        stop_after_ms=stop_after_ms(terms.policy, terms.lease_ms, terms.wait_ms),
        slot_cost=terms.slot_cost,
        checkpoint_number=None if saved is None else saved.number,
        level=level,
        waited_ms=now - task.eligible_at,
        because=e.Because(rule=_decided_by(entry, other), passed_over=_passed_over(lane.need, task, robot, now)),
    )
    return event, []


def assignment_message(state: PoolState, event: e.TaskAssigned) -> a.Draft:
    """The message for an assignment that was just recorded."""
    task = state.tasks[event.task]
    if task.current is None:
        raise AssertionError(f"{task.id} was assigned without an attempt")
    robot = state.robots[event.robot]
    return a.assign(state, robot, task, task.current, assignment_id(state, task), event.occurred_at)


def _decided_by(entry: Entry, other: Candidate | None) -> str:
    """The rule that put this task before the best other candidate."""
    if other is None:
        return "only candidate"
    differs = next(k for k in range(len(_RULES)) if entry[k] != other[0][k])
    if _RULES[differs] == "turn" and entry[differs] == NEVER_SERVED:
        return "turn (never served)"
    return _RULES[differs]


def _passed_over(need: Need, task: Task, chosen: Robot, now: int) -> list[e.PassedOver]:
    """At most three able robots that were not chosen, each with a word why."""
    found: list[e.PassedOver] = []
    for robot in need.able.values():
        if len(found) == PASSED_OVER_MAX:
            break
        if robot is not chosen:
            found.append(e.PassedOver(robot=robot.id, reason=why_not(need, task, robot, now) or "turn"))
    return found


def why_not(need: Need, task: Task, robot: Robot, now: int) -> str | None:
    """Why an able robot cannot take the task now, or None where it could."""
    if robot.offline or not robot.online:
        return "offline"
    if robot.fault is not None:
        return "error"
    if robot.draining:
        return "draining"
    if robot.silent:
        return "silent"
    if task.story is not None and task.story.excluded.get(robot.id, 0) > now:
        return "excluded"
    return "busy" if robot.room < need.slot_cost else None


def requirement_notices(state: PoolState) -> Iterator[Step]:
    """One event for each requirement that no registered robot meets any more, or that one meets again."""
    queue = state.queue
    while queue.changed_needs:
        key, _ = queue.changed_needs.popitem()
        need = queue.needs.get(key)
        if need is None:
            continue
        requirement, slot_cost = key
        if not need.able and need.waiting and key not in state.unsatisfiable:
            tasks = state.tasks.values()
            newest_first = reversed(tasks) if need.waiting == 1 else tasks
            first = next(t.id for t in newest_first if t.state == "WAITING" and _wants(t, key))
            yield (
                e.RequirementUnsatisfiable(
                    requirement=list(requirement),
                    slot_cost=slot_cost,
                    waiting=need.waiting,
                    first_task=first,
                    missing=_missing(state, need),
                ),
                [],
            )
        elif need.able and key in state.unsatisfiable:
            robot = next(iter(need.able))
            yield (
                e.RequirementSatisfiable(
                    requirement=list(requirement), slot_cost=slot_cost, waiting=need.waiting, robot=robot
                ),
                [],
            )


def _missing(state: PoolState, need: Need) -> list[str]:
    """The conditions that no registered robot meets; all of them where only their combination is missing."""
    robots = state.robots.values()
    conditions = {text: (text,) for text in need.requirement}
    lacking = [text for text, alone in conditions.items() if not any(meets(alone, r.abilities) for r in robots)]
    if not any(robot.slots >= need.slot_cost for robot in robots):
        lacking.append(f"slots>={need.slot_cost}")
    return lacking or [*need.requirement, f"slots>={need.slot_cost}"]


def _wants(task: Task, key: tuple[tuple[str, ...], int]) -> bool:
    return (task.terms.needed, task.terms.slot_cost) == key
