"""The dispatcher: which waiting task goes to which robot next, as a function of pool state and instant.

The next task is the best top among the lanes that are below their limits and have an able robot with room (the keys
stand in `commands/queue.py`, the order in docs/understand/order.md); the robot is chosen by most preferred conditions
met, the one that ran the task before, fewest capabilities beyond the requirement, least loaded share of slots, longest
without an assignment, id.
"""

from collections.abc import Iterator
from heapq import heappush
from typing import Final

from commands import events as e
from commands.candidates import Candidate, Top, next_candidate, why_not
from commands.decide import answers as a
from commands.decide.losing import stop_after_ms
from commands.decide.robots import assignment_id
from commands.decide.waiting import nobody_has
from commands.heartbeats import Step
from commands.queue import NEVER_SERVED, Entry, Need, bucket
from commands.state import PoolState, Robot, Task

PASSED_OVER_MAX: Final = 3
NeedKey = tuple[tuple[str, ...], int]
"""A requirement with its slot cost."""
_RULES: Final = ("level", "turn", "deadline", "first come")


def next_assignment(state: PoolState, now: int) -> Step | None:
    """The one next TaskAssigned with its message to the robot, or None when nothing can be given to anybody."""
    queue = state.queue
    if not queue.crews.free or state.frozen or ("pool", "") in state.paused:
        return None
    aside: list[Top] = []
    try:
        chosen = next_candidate(queue, now, aside)
        return None if chosen is None else _assigned(state, chosen, next_candidate(queue, now, aside), now)
    finally:
        for entry, lane in aside:
            heappush(lane.heap, entry)


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


def requirement_notices(state: PoolState) -> Iterator[Step]:
    """One event for each requirement that no registered robot meets any more, or that one meets again."""
    queue = state.queue
    changed = [(key, need) for key in reversed(queue.changed_needs) if (need := queue.needs.get(key)) is not None]
    queue.changed_needs.clear()
    lacking = {key: need for key, need in changed if _is_news(state, key, need)}
    first = _first_waiting(state, lacking)
    for key, need in changed:
        requirement, slot_cost = list(key[0]), key[1]
        if key in lacking:
            yield (
                e.RequirementUnsatisfiable(
                    requirement=requirement,
                    slot_cost=slot_cost,
                    waiting=need.waiting,
                    first_task=first[key],
                    missing=nobody_has(state, need),
                ),
                [],
            )
        elif need.able and key in state.unsatisfiable:
            robot = next(iter(need.able))
            yield (
                e.RequirementSatisfiable(
                    requirement=requirement, slot_cost=slot_cost, waiting=need.waiting, robot=robot
                ),
                [],
            )


def _is_news(state: PoolState, key: NeedKey, need: Need) -> bool:
    """Whether tasks wait for what nobody has, and that was not said yet."""
    return not need.able and need.waiting > 0 and key not in state.unsatisfiable


def _first_waiting(state: PoolState, lacking: dict[NeedKey, Need]) -> dict[NeedKey, str]:
    """The first waiting task of each need: one look at the tasks, whatever the number of needs, from the end where it
    can only be the newest."""
    tasks = state.tasks.values()
    newest_first = reversed(tasks) if all(need.waiting == 1 for need in lacking.values()) else tasks
    found: dict[NeedKey, str] = {}
    for task in newest_first if lacking else ():
        if task.state == "WAITING":
            key = (task.terms.needed, task.terms.slot_cost)
            if key in lacking and key not in found:
                found[key] = task.id
                if len(found) == len(lacking):
                    break
    return found
