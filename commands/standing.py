"""Where a waiting task stands: how many tasks are before it now, counted in the heaps without looking at all."""

from itertools import islice
from typing import Any, Final

from commands.queue import Lane, Need, Queue
from commands.state import Task

COUNT_MAX: Final = 10_000
"""A position is counted up to this."""
ROBOTS_COMPARED_MAX: Final = 256


def tasks_before(queue: Queue, task: Task, now: int) -> int | None:
    """How many tasks stand before it, of those that its robots could take; None where it stands in no lane.

    These are the first tasks of other targets (a task without target is a target of its own) with a smaller key, and
    the tasks of its own target before it; those that are at a limit stand aside. At most COUNT_MAX.
    """
    key = queue.place_of(task)
    if key is None:
        return None
    need, count = queue.need_of(task.terms), 0
    if task.target is not None:
        own = queue.place_in_target(task)
        for heap in task.target.heaps.values():
            count += _smaller(heap, own, COUNT_MAX - count)
    for lane in queue.lanes.values():
        if queue.below_limits(lane, now) and _competes(lane, need):
            count += _smaller(lane.heap, key, COUNT_MAX - count)
    return count


def _smaller(heap: list[Any], key: tuple[int, ...], most: int) -> int:
    """How many valid entries of a heap are smaller than `key`: nothing below an entry that is not has to be seen."""
    count, places, size = 0, [0], len(key)
    while places and count < most:
        place = places.pop()
        if place < len(heap) and heap[place][:size] < key:
            generation, holder = heap[place][-2:]
            count += generation == holder.generation
            places += (2 * place + 1, 2 * place + 2)
    return count


def _competes(lane: Lane, need: Need) -> bool:
    """Whether a robot that meets the need could take the lane's tasks instead; so many robots are compared."""
    if lane.blocked or lane.need is need:
        return not lane.blocked
    fewer, other = sorted((lane.need.able, need.able), key=len)
    return any(robot in other for robot in islice(fewer, ROBOTS_COMPARED_MAX))
