"""The guarantee of docs/understand/order.md, held against the log alone: who may be overtaken by whom."""

import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import events as e
from commands import inputs as i
from tests.support.world import Robot, World

AGEING_MS = 10_000
EXAMPLES = int(os.environ.get("FLEETLOG_EXAMPLES", "150"))

Act = tuple[Any, ...]
"""("submit", priority, target, not before so many ms from now), ("wait", ms) or ("end",)."""

submits = st.tuples(
    st.just("submit"),
    st.integers(0, 9),
    st.sampled_from([None, None, "a", "b", "c"]),
    st.sampled_from([0, 0, 0, 4_000, 25_000]),
)
acts = st.lists(
    st.one_of(submits, submits, st.tuples(st.just("wait"), st.integers(1, 40_000)), st.tuples(st.just("end"))),
    min_size=5,
    max_size=70,
)


@dataclass
class Waits:
    """A waiting task as the log tells it."""

    priority: int
    target: str | None
    eligible_at: int
    sequence: int


@dataclass
class Reader:
    """Follows submissions, assignments and ends, and knows each waiting task's key time."""

    waiting: dict[str, Waits] = field(default_factory=dict)
    served: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, str | None] = field(default_factory=dict)
    overtaken: int = 0

    def event(self, event: Any) -> None:
        """One event of the log, in order."""
        if event.name == "TaskSubmitted":
            eligible_at = max(event.occurred_at, event.not_before or 0)
            self.waiting[event.task] = Waits(event.priority, event.target, eligible_at, event.sequence)
        elif event.name == "TaskAssigned":
            self.assigned(event)
        elif event.name == "TaskCompleted":
            del self.held[event.task]

    def assigned(self, event: Any) -> None:
        """The guarantee, against every other task that could have had this robot."""
        chosen = self.waiting.pop(event.task)
        for other in self.firsts(event.occurred_at):
            if chosen.target is None or other.target != chosen.target:
                allowed_ms = (chosen.priority - other.priority + 1) * AGEING_MS
                assert self.key_time(chosen) < self.key_time(other) + allowed_ms
                self.overtaken += chosen.sequence > other.sequence
        self.held[event.task] = chosen.target
        if chosen.target is not None:
            self.served[chosen.target] = (event.occurred_at, event.level)

    def firsts(self, now: int) -> list[Waits]:
        """The first task of each free target."""
        found: dict[str | int, Waits] = {}
        for task in self.waiting.values():
            if task.eligible_at > now or (task.target is not None and task.target in self.held.values()):
                continue
            name = task.sequence if task.target is None else task.target
            if name not in found or self.inside(task) < self.inside(found[name]):
                found[name] = task
        return list(found.values())

    def inside(self, task: Waits) -> tuple[int, int]:
        """The order inside a target."""
        return task.eligible_at // AGEING_MS - task.priority, task.sequence

    def key_time(self, task: Waits) -> int:
        """When it became eligible; where its target was served since, up to that service, as far as its level says."""
        if task.target is None or task.target not in self.served:
            return task.eligible_at
        served_at, level = self.served[task.target]
        if task.eligible_at // AGEING_MS > served_at // AGEING_MS:
            return task.eligible_at
        interval = min(level + task.priority, served_at // AGEING_MS)
        key_time = max(task.eligible_at, interval * AGEING_MS)
        assert task.eligible_at <= key_time <= max(task.eligible_at, served_at)
        return key_time


def play(acts: list[Act], slots: int) -> World:
    """One robot that can take everything, and what the acts say."""
    world = World(settings={"ageing_ms": AGEING_MS, "accept_ms": 600_000})
    robot = world.robot("r1", slots=slots)
    world.keep(robot)
    for number, (act, *how) in enumerate(acts):
        if act == "submit":
            priority, target, later_ms = how
            not_before = world.now + later_ms if later_ms else None
            world.submit(f"t{number}", priority=priority, target=target, not_before=not_before)
        elif act == "wait":
            world.wait(how[0] / 1_000)
        accept_all(world, robot)
        if act == "end" and robot.holds:
            robot.complete(next(iter(robot.holds)))
            accept_all(world, robot)
    while robot.holds:
        robot.complete(next(iter(robot.holds)))
        accept_all(world, robot)
    return world


def accept_all(world: World, robot: Robot) -> None:
    """Whatever it was assigned."""
    for task in robot.assigned():
        if world.at(task) == "ASSIGNED":
            robot.accept(task)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(acts=acts, slots=st.sampled_from([1, 1, 2, 3]))
def test_nobody_is_overtaken_by_much_later_ones(acts: list[Act], slots: int) -> None:
    """A task is never overtaken by one of another target whose key time lies more than (difference of priorities + 1)
    ageing intervals after its own; the difference counts as it is, so a lower priority has to be that much older."""
    world = play(acts, slots)
    reader = Reader()
    for event in world.events:
        reader.event(event)
    assert world.findings == []


def test_the_bound_is_reached() -> None:
    """Ten intervals less a moment after a priority 0, a priority 9 may still go before it (here by its deadline, within
    the same level); from ten intervals on, none does."""
    world = World(settings={"ageing_ms": AGEING_MS})
    soon = e.Deadlines(end=e.InstantDeadline(at=world.now + 600_000))
    world.submit("low", priority=0)
    world.wait(99.999)
    world.submit("high", priority=9, deadlines=soon)
    world.wait(0.001)
    world.submit("late", priority=9, deadlines=soon)
    robot = world.robot("r1")
    for _ in range(2):
        accept_all(world, robot)
        robot.complete(next(iter(robot.holds)))
    assert robot.assigned() == ["high", "low", "late"]


@pytest.mark.parametrize("priority", [0, 9])
@pytest.mark.parametrize("seed", range(5))
def test_a_large_task_is_not_starved_by_a_stream_of_small_ones(seed: int, priority: int) -> None:
    """Cost 4 on robots of 4 slots that a stream of cost 1 keeps full: once nothing stands before it any more, it waits
    for the longest of the small tasks that run, and no longer."""
    dice, longest_s = random.Random(seed), 5
    world = World(settings={"ageing_ms": AGEING_MS, "accept_ms": 60_000})
    robots = [world.robot(f"r{k}", slots=4) for k in range(3)]
    world.keep(*robots)
    ends: dict[str, tuple[Robot, int]] = {}
    number = 0
    large_at = first_at = None
    for second in range(200):
        while world.state.queue.waiting < 12:
            number += 1
            world.submit(f"s{number}", priority=priority)
        if second == 10:
            world.submit("large", slot_cost=4)
            large_at = world.now
        for robot in robots:
            for task in robot.assigned():
                if world.at(task) == "ASSIGNED" and task not in ends:
                    robot.accept(task)
                    ends[task] = (robot, world.now + dice.randint(1, longest_s) * 1_000)
        if first_at is None and large_at is not None and nothing_stands_before("large", world):
            first_at = world.now
        if world.at("large") != "WAITING" and large_at is not None:
            break
        world.wait(1)
        for task, (robot, at) in list(ends.items()):
            if at <= world.now and world.at(task) == "RUNNING":
                robot.complete(task)
    assigned = next(event for event in world.named("TaskAssigned") if event.task == "large")
    assert first_at is not None
    assert assigned.occurred_at <= first_at + longest_s * 1_000
    world.verify()


def nothing_stands_before(task: str, world: World) -> bool:
    """By its own owner's word."""
    return int(world.verb(i.Explain, task)["holds"][0].get("ahead", 0)) == 0
