"""The robots that may work, by what makes them equal: the next one for a task is found without looking at all.

A crew holds robots with the same capabilities, slots, slots offered and slots in use. Between robots of one crew only
the time of their last assignment and their id decide, so a crew is a heap by these. How many crews there are depends
on how many sorts of robots there are, not on how many robots.
"""

from collections.abc import Container
from heapq import heapify, heappop, heappush
from typing import Final

from commands.state import Robot

STALE_MAX: Final = 64

Key = tuple[tuple[str, ...], int, int, int]
"""Capabilities, slots, slots offered, slots in use."""


class Crew:
    """Equal robots. `offered`: slots that they are ready for; `room`: those of them that are free."""

    __slots__ = ("_first_id", "_heap", "key", "members", "offered", "room")

    def __init__(self, key: Key) -> None:
        self.key = key
        _, _, self.offered, used = key
        self.room = self.offered - used
        self.members: dict[str, Robot] = {}
        self._heap: list[tuple[int, str]] = []
        self._first_id: str | None = None

    def add(self, robot: Robot) -> None:
        """The robot is one of them now."""
        self.members[robot.id] = robot
        heappush(self._heap, (robot.served, robot.id))
        if len(self._heap) > 2 * len(self.members) + STALE_MAX:
            self._heap = [(member.served, member.id) for member in self.members.values()]
            heapify(self._heap)
        if self._first_id is not None:
            self._first_id = min(self._first_id, robot.id)

    def remove(self, robot: Robot) -> None:
        """The robot is one of them no longer."""
        del self.members[robot.id]
        if robot.id == self._first_id:
            self._first_id = None

    @property
    def first_id(self) -> str:
        """The smallest id."""
        if self._first_id is None:
            self._first_id = min(self.members)
        return self._first_id

    def next(self, without: Container[str] = ()) -> Robot | None:
        """The one that waited longest for an assignment, by id among equals, or None where all are `without`."""
        heap, aside = self._heap, list[tuple[int, str]]()
        found = None
        while heap and found is None:
            served, name = heap[0]
            robot = self.members.get(name)
            if robot is None or robot.served != served:
                heappop(heap)
            elif name in without:
                aside.append(heappop(heap))
            else:
                found = robot
        for waiting in aside:
            heappush(heap, waiting)
        return found


class Crews:
    """All crews of a pool; `free` are those with room. `version` grows whenever one with room comes or goes."""

    __slots__ = ("_of", "all", "free", "version")

    def __init__(self) -> None:
        self.all: dict[Key, Crew] = {}
        self.free: dict[Key, Crew] = {}
        self.version = 0
        self._of: dict[str, Crew] = {}

    def of(self, robot: str) -> Crew | None:
        """The crew of a robot that may work."""
        return self._of.get(robot)

    def place(self, robot: Robot) -> None:
        """Puts the robot into the crew that it belongs to now, or into none where it may not work.

        The time of its last assignment changes only together with the slots in use, so it changes the crew.
        """
        key = (robot.capabilities, robot.slots, min(robot.ready, robot.slots), robot.used) if robot.may_work else None
        before = self._of.get(robot.id)
        if before is not None:
            if before.key == key and before.members[robot.id] is robot:
                return
            self.remove(robot)
        if key is None:
            return
        crew = self.all.get(key)
        if crew is None:
            crew = self.all[key] = Crew(key)
            if crew.room > 0:
                self.free[key] = crew
                self.version += 1
        crew.add(robot)
        self._of[robot.id] = crew

    def remove(self, robot: Robot) -> None:
        """Takes the robot out."""
        crew = self._of.pop(robot.id, None)
        if crew is None:
            return
        crew.remove(robot)
        if not crew.members:
            del self.all[crew.key]
            if self.free.pop(crew.key, None) is not None:
                self.version += 1
