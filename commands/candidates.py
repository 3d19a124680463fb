"""Who could take what now: the best tops of the lanes, the robot for each, and the robot that is kept for a large task.

Used by the dispatcher, which assigns the first candidate, and by `why`, which says why a task is none.
"""

from heapq import heappop
from typing import Final

from commands.queue import Entry, Lane, Need, Queue
from commands.requirements import meets
from commands.state import PoolState, Robot, Target, Task

ASIDE_MAX: Final = 64
"""How many tasks whose able robots are all excluded are looked past at one dispatch."""

Top = tuple[Entry, Lane]
Reservation = tuple[Entry, Robot]
Candidate = tuple[Entry, Lane, Task, Robot]


def next_candidate(queue: Queue, now: int, aside: list[Top]) -> Candidate | None:
    """The best task that a robot can take now, with that robot; what was looked at is out of its lane, in `aside`."""
    while len(aside) <= ASIDE_MAX:
        tops = tops_of(queue, now)
        free = [top for top in tops if queue.with_room(top[1].need)]
        reserved = reservation(queue, tops) if free and len(free) < len(tops) else None
        if reserved is not None:
            free = [top for top in free if _anybody(queue, top, reserved)]
        best = min(free, key=_order, default=None)
        if best is None:
            return None
        entry, lane = best
        aside.append((heappop(lane.heap), lane))
        task = task_of(queue, entry)
        robot = _robot_for(queue, lane.need, task, now, None if stands_before(entry, reserved) else reserved)
        if robot is not None:
            return entry, lane, task, robot
    return None


def _order(top: Top) -> Entry:
    return top[0]


def tops_of(queue: Queue, now: int) -> list[Top]:
    """The first of each lane that is below its limits: what may be assigned if a robot has room."""
    tops = []
    for lane in queue.lanes.values():
        if not lane.blocked and queue.below_limits(lane, now) and (entry := queue.top(lane)) is not None:
            tops.append((entry, lane))
    return tops


def task_of(queue: Queue, entry: Entry) -> Task:
    """The task that an entry stands for."""
    holder = entry[5]
    return queue.first_of(holder) if isinstance(holder, Target) else holder


def reservation(queue: Queue, tops: list[Top]) -> Reservation | None:
    """For the best task that no able robot has room for: the able robot with most free slots is kept for it.

    Without this, a task of cost 4 on robots of 4 slots would starve behind a stream of cost 1.
    """
    blocked = [top for top in tops if not queue.with_room(top[1].need)]
    for entry, lane in sorted(blocked, key=_order):
        fitting = list(queue.crews_offering(lane.need))
        if fitting:
            most = max(crew.room for crew in fitting)
            crew = min((crew for crew in fitting if crew.room == most), key=lambda crew: crew.first_id)
            return entry, crew.members[crew.first_id]
    return None


def stands_before(entry: Entry, reserved: Reservation | None) -> bool:
    """Whether an entry may have the robot that is kept."""
    return reserved is None or entry < reserved[0]


def _anybody(queue: Queue, top: Top, reserved: Reservation) -> bool:
    entry, lane = top
    if stands_before(entry, reserved):
        return True
    kept = reserved[1].id
    return any(len(crew.members) > 1 or kept not in crew.members for crew in queue.with_room(lane.need))


def _robot_for(queue: Queue, need: Need, task: Task, now: int, reserved: Reservation | None) -> Robot | None:
    """The first of each crew by the order of robots, and the one that ran the task before, which goes before them."""
    story = task.story
    without = set() if story is None else {name for name, until in story.excluded.items() if until > now}
    if reserved is not None:
        without.add(reserved[1].id)
    crews = queue.with_room(need)
    able = [robot for crew in crews if (robot := crew.next(without)) is not None]
    before = None if story is None or story.last_robot is None else story.last_robot
    if before is not None and before not in without and (crew := queue.crews.of(before)) in crews and crew is not None:
        able.append(crew.members[before])
    return able[0] if len(able) == 1 else min(able, key=lambda robot: _robot_key(task, robot), default=None)


def _robot_key(task: Task, robot: Robot) -> tuple[int, bool, int, float, int, str]:
    preferred = sum(meets((text,), robot.abilities) for text in task.terms.prefer)
    before = task.story is not None and task.story.last_robot == robot.id
    beyond = len(robot.capabilities) - len(task.terms.requirement)
    return -preferred, not before, beyond, robot.used / robot.slots, robot.served, robot.id


def why_not(need: Need, task: Task, robot: Robot, now: int) -> str | None:
    """Why an able robot cannot take the task now, or None where it could."""
    if robot.fault == "two_programs":
        return "error"  # also where it is not heard of: its hellos are refused until an operator's word
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
    if min(robot.ready, robot.slots) < need.slot_cost:
        return "not_ready"
    return "busy" if robot.room < need.slot_cost else None


def reserved_for(state: PoolState, task: Task, now: int) -> tuple[Task, Robot] | None:
    """The task before this one for which a robot is kept, and that robot; None where nothing is kept from this one."""
    queue = state.queue
    place, reserved = queue.place_of(task), reservation(queue, tops_of(queue, now))
    if reserved is None or place is None or place < reserved[0][:4]:
        return None
    return task_of(queue, reserved[0]), reserved[1]
