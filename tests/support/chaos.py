"""A pool under changing load, small and wild; every next choice is compared with a naive look at everything."""

import random
from collections.abc import Callable
from typing import Any

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.dispatch import next_assignment
from commands.state import Task
from tests.support.naive_order import Choice, next_choice
from tests.support.world import Robot, World

KINDS = ["weld", "cut"]
REQUIREMENTS: list[list[str]] = [[], [], ["a"], ["mem>=5"], ["mem<3"], ["zone=1"], ["a", "b"]]


class Chaos:
    """`step` does something, lets time pass, and compares every assignment that is due with the naive one."""

    def __init__(self, seed: int, tasks: int = 0) -> None:
        self.dice = random.Random(seed)
        self.world = World(settings={"ageing_ms": self.dice.choice([1_000, 5_000, 60_000]), "excluded_ms": 4_000})
        self.world.dispatching = False
        self.tasks = 0
        self.compared = 0
        self.mute: set[str] = set()
        for number in range(self.dice.randint(1, 4)):
            self.say_hello(f"r{number}")
        for _ in range(tasks):
            self.submit()

    # ---- what happens ----

    def step(self) -> None:
        """One act, some time, and the dispatch that follows."""
        acts = [self.submit, self.report, self.change, self.verb, self.robot_act, self.operate]
        self.dice.choices(acts, [6, 11, 3, 1, 3, 2])[0]()
        self.world.now += self.dice.choice([0, 0, 1, 400, 3_000])
        self.world.tick()
        for name, robot in self.world.robots.items():
            if name not in self.mute:
                robot.beat()
        self.dispatch()

    def dispatch(self) -> None:
        """Every assignment that is due, each compared: task, robot and level."""
        world = self.world
        while True:
            step = next_assignment(world.state, world.now)
            event: Any = None if step is None else step[0]
            found = None if event is None else Choice(event.task, event.robot, event.level)
            assert found == next_choice(world.state, world.now)
            self.compared += 1
            if not world.pool.dispatch(world.now, 1):
                world.settle()
                return

    # ---- submitters ----

    def submit(self) -> None:
        """A task of any sort."""
        dice, now = self.dice, self.world.now
        self.tasks += 1
        passing: Any = dice.choice(["higher", "higher", "all"])
        policy: Any = dice.choice(["requeue", "wait", "ask"])
        self.world.submit(
            f"t{self.tasks}",
            kind=dice.choice(KINDS),
            target=dice.choice([None, None, *(f"s{number}" for number in range(8))]),
            priority=dice.choice([0, 0, 1, 5, 9]),
            slot_cost=dice.choice([1, 1, 1, 2, 4]),
            requirement=dice.choice(REQUIREMENTS),
            prefer=dice.choice([[], ["zone=1"], ["b", "mem>4"]]),
            not_before=now + dice.randint(1, 9_000) if dice.random() < 0.1 else None,
            deadlines=self.deadlines() if dice.random() < 0.3 else None,
            retry=i.RetryAsked(first_ms=dice.choice([0, 3_000])),
            on_lost=i.OnLostAsked(policy=policy),
            passing=passing,
            limit_key=dice.choice([None, None, "ann", "bob"]),
        )

    def deadlines(self) -> e.Deadlines:
        """Some that act soon, some that only put the task first."""
        dice, now = self.dice, self.world.now
        then: Any = dice.choice(["alarm", "dead", "cancel"])
        at = now + dice.choice([2_000, 10_000, 900_000])
        start = e.InstantDeadline(at=at, then=then) if dice.random() < 0.5 else None
        end = e.InstantDeadline(at=at + dice.randint(0, 9_000), then=then) if dice.random() < 0.7 else None
        return e.Deadlines(start=start, run=e.RunDeadline(ms=3_000, then=then), end=end)

    def change(self) -> None:
        """A waiting task is wanted otherwise."""
        dice, task = self.dice, self.any_task("WAITING")
        if task is None:
            return
        changed = e.TaskChanges()
        match dice.randint(0, 5):
            case 0:
                changed.priority = dice.randint(0, 9)
            case 1:
                changed.requirement = dice.choice(REQUIREMENTS)
            case 2:
                changed.not_before = self.world.now + dice.choice([0, 1_500, 20_000])
            case 3:
                changed.deadlines = self.deadlines()
            case 4:
                changed.slot_cost = dice.choice([1, 2, 5])
            case _:
                changed.prefer = dice.choice([[], ["a"], ["zone=1", "b"]])
        self.world.verb(i.ChangeTask, task.id, changed=changed)

    def verb(self) -> None:
        """Somebody cancels, releases, redrives, resolves or discards; not always what is allowed."""
        task = self.any_task()
        if task is not None:
            shape = self.dice.choice([i.CancelTask, i.ReleaseTask, i.RedriveTask, i.ResolveTask, i.DiscardTask])
            self.world.verb(shape, task.id)

    def any_task(self, *states: str) -> Task | None:
        """An open task, in one of these states if any are given."""
        tasks = [task for task in self.world.state.tasks.values() if not states or task.state in states]
        return self.dice.choice(tasks) if tasks else None

    # ---- robots ----

    def report(self) -> None:
        """A robot says something about an attempt of its own."""
        dice, task = self.dice, self.any_task("ASSIGNED", "RUNNING", "LOST")
        if task is None or task.current is None:
            return
        robot = self.world.robots[task.current.robot]
        if task.state != "ASSIGNED":
            ends: list[Callable[..., Any]] = [robot.complete, robot.complete, robot.fail]
            dice.choice(ends)(task.id, task.attempt)
        elif dice.random() < 0.3:
            robot.reject(task.id, attempt=task.attempt)
        else:
            robot.accept(task.id, task.attempt)

    def robot_act(self) -> None:
        """A robot changes while it works: capabilities, slots, readiness, faults, silence, bye, a new session."""
        dice, robot = self.dice, self.any_robot()
        match dice.randint(0, 8):
            case 0 | 1:
                robot.send(m.Update, capabilities=self.capabilities())
            case 2:
                robot.send(m.Update, slots=dice.randint(1, 5))
            case 3:
                robot.ready(dice.randint(0, robot.slots))
            case 4:
                robot.send(m.Fault, text="jammed")
            case 5:
                robot.send(m.Recovered)
            case 6:
                self.mute ^= {robot.name}
            case 7:
                robot.send(m.Bye)
            case _:
                self.say_hello(f"r{dice.randint(0, 4)}")

    def any_robot(self) -> Robot:
        """One that has said hello before."""
        return self.dice.choice(list(self.world.robots.values()))

    def say_hello(self, name: str) -> None:
        """A session, as good as ever; at times the robot is ready for less than it has."""
        robot = self.world.robot(name, slots=self.dice.randint(1, 4), capabilities=self.capabilities())
        robot.ready(self.dice.randint(0, robot.slots) if self.dice.random() < 0.2 else None)

    def capabilities(self) -> list[str]:
        """Some of all."""
        dice = self.dice
        found = [c for c in ("a", "b", "zone=1", f"mem={dice.randint(1, 9)}") if dice.random() < 0.6]
        return found + ([f"kind:{dice.choice(KINDS)}"] if dice.random() < 0.2 else [])

    # ---- operators ----

    def operate(self) -> None:
        """Pauses, drains, clears, retires, settings, limits."""
        dice, world = self.dice, self.world
        robot = i.RobotVerb(robot=self.any_robot().name, reason="because")
        match dice.randint(0, 7):
            case 0 | 1:
                self.pause()
            case 2:
                world.do(i.DrainRobot, robot)
            case 3:
                world.do(i.UndrainRobot, robot)
            case 4:
                world.do(dice.choice([i.ClearRobot, i.RetireRobot]), robot)
            case 5:
                world.do(i.ConfigurePool, i.SettingsBody(settings={"ageing_ms": dice.choice([1_000, 7_000])}))
            case _:
                self.limit()

    def pause(self) -> None:
        """A pool, kind, target or task is paused or resumed."""
        dice, world, task = self.dice, self.world, self.any_task("WAITING")
        scopes: list[tuple[Any, str | None]] = [("pool", None), ("kind", "cut"), ("target", "s1"), ("target", "s2")]
        if task is not None:
            scopes += [("task", task.id)] * 2
        scope, name = dice.choice(scopes)
        shape = i.Pause if dice.random() < 0.5 and scope != "pool" else i.Resume
        until = world.now + 2_500 if dice.random() < 0.5 else None
        world.do(shape, i.ScopeBody(scope=scope, name=name, until=until if shape is i.Pause else None))

    def limit(self) -> None:
        """A limit is set, replaced or removed."""
        dice, world = self.dice, self.world
        which: Any = dice.choice([("kind", "weld"), ("kind", "cut"), ("key", "ann"), ("key", "bob")])
        if dice.random() < 0.4:
            world.do(i.RemoveLimit, i.LimitVerb(scope=which[0], name=which[1]))
            return
        rate = dice.choice([None, 0.2, 2.5, 1_000.0])
        body = i.LimitBody(scope=which[0], name=which[1], running=dice.choice([None, 1, 3]), rate_per_s=rate)
        body.burst = None if rate is None else dice.choice([None, 1, 4])
        world.do(i.SetLimit, body)
