"""Those who run the place: they pause, drain, limit, reschedule, and take it back a while later; they change, resolve
and retire."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from commands import inputs as i
from commands.events import TaskChanges
from fleetlog.sim.submitters import Client
from robot_gateway.pending import Answer

BACK_S: Final = (0.5, 15.0)
"""After how long, at most, what was done is taken back."""
WINDOWS: Final = ((1_000, 3_000), (1_500, 4_500), (2_000, 6_000))
"""Window and lease of a pool, ms."""

Verb = tuple[Any, Any]
"""A shape of command and its body."""


@dataclass(eq=False)
class Steward:
    """`tasks()` gives (pool, task) -> state of those that have not ended; `robots` are (pool, robot); there are so many
    `targets`. `every_s`: from one verb to the next on average. `undone`: how much is still to be taken back."""

    client: Client
    tasks: Callable[[], dict[tuple[str, str], str]]
    robots: list[tuple[str, str]]
    targets: int
    every_s: float
    stopped: bool = False
    undone: int = 0

    def __post_init__(self) -> None:
        self._later()

    def _later(self) -> None:
        if not self.stopped:
            self.client.process.later(self.client.random.expovariate(1 / self.every_s), self._act)

    def _act(self) -> None:
        if self.stopped:
            return
        self._later()
        random = self.client.random
        act = random.choice(ACTS)
        planned = act(self)
        if planned is not None:
            pool, do, undo = planned
            self.undone += undo is not None
            self._do(pool, do, undo)

    def _do(self, pool: str, verb: Verb, undo: Verb | None) -> None:
        """What is to be taken back is so once it is known to be done: what is asked for again later would stay."""
        shape, body = verb
        command = self.client.new_id()

        def make(reply_to: str) -> i.CommandBase:
            made: i.CommandBase = shape(id=command, pool=pool, actor="steward", reply_to=reply_to, body=body)
            return made

        def told(answer: Answer) -> None:
            if undo is not None:
                after_s = 0.0 if self.stopped else self.client.random.uniform(*BACK_S)
                self.client.process.later(after_s, partial(self._undo, pool, undo))

        self.client.ask(make, told)

    def _undo(self, pool: str, verb: Verb) -> None:
        self.undone -= 1
        self._do(pool, verb, None)

    # ---- what there is to be drawn ----

    def robot(self) -> tuple[str, str]:
        """Any."""
        return self.client.random.choice(self.robots)

    def task(self, *states: str) -> tuple[str, str] | None:
        """One in such a state, if there is one."""
        found = [at for at, state in self.tasks().items() if state in states]
        return self.client.random.choice(found) if found else None


Planned = tuple[str, Verb, Verb | None]
"""The pool, what is done, and how it is taken back."""


def _pause(steward: Steward) -> Planned | None:
    pool, _ = steward.robot()
    dock = f"dock-{steward.client.random.randrange(steward.targets)}"
    scope: Any
    scope, name = steward.client.random.choice((("pool", None), ("kind", "weld"), ("target", dock)))
    body = i.ScopeBody(scope=scope, name=name, reason="not now")
    return pool, (i.Pause, body), (i.Resume, i.ScopeBody(scope=scope, name=name))


def _pause_task(steward: Steward) -> Planned | None:
    at = steward.task("WAITING", "ASSIGNED", "RUNNING")
    if at is None:
        return None
    pool, task = at
    return pool, (i.Pause, i.ScopeBody(scope="task", name=task)), (i.Resume, i.ScopeBody(scope="task", name=task))


def _drain(steward: Steward) -> Planned | None:
    pool, robot = steward.robot()
    return pool, (i.DrainRobot, i.RobotVerb(robot=robot)), (i.UndrainRobot, i.RobotVerb(robot=robot))


def _limit(steward: Steward) -> Planned | None:
    pool, _ = steward.robot()
    scope: Any
    scope, name = steward.client.random.choice((("kind", "paint"), ("key", "licence")))
    rate = steward.client.random.choice((None, 2.0))
    body = i.LimitBody(scope=scope, name=name, running=1 if rate is None else None, rate_per_s=rate)
    return pool, (i.SetLimit, body), (i.RemoveLimit, i.LimitVerb(scope=scope, name=name))


def _schedule(steward: Steward) -> Planned | None:
    pool, _ = steward.robot()
    overlap: Any = steward.client.random.choice(("skip", "queue_one", "allow"))
    task = i.Submission(task="any", kind="weld", payload={"json": {"of": "round"}})
    body = i.ScheduleBody(schedule="round", every_ms=1_000, overlap=overlap, task=task)
    return pool, (i.SetSchedule, body), (i.DeleteSchedule, i.ScheduleVerb(schedule="round"))


def _windows(steward: Steward) -> Planned | None:
    """Leases and windows of a pool change under way, and stay so."""
    pool, _ = steward.robot()
    window_ms, lease_ms = steward.client.random.choice(WINDOWS)
    settings = {"window_ms": window_ms, "lease_ms": lease_ms}
    return pool, (i.ConfigurePool, i.SettingsBody(settings=settings, reason="to try")), None


def _change(steward: Steward) -> Planned | None:
    at = steward.task("WAITING")
    if at is None:
        return None
    changed = TaskChanges(priority=steward.client.random.randrange(10))
    return at[0], (i.ChangeTask, i.ChangeBody(task=at[1], changed=changed)), None


def _resolve(steward: Steward) -> Planned | None:
    at = steward.task("LOST", "DEAD")
    if at is None:
        return None
    return at[0], (i.ResolveTask, i.ResolveBody(task=at[1], reason="seen to", result={"json": "by hand"})), None


def _retire(steward: Steward) -> Planned | None:
    pool, robot = steward.robot()
    return pool, (i.RetireRobot, i.RobotVerb(robot=robot, reason="sold")), None


ACTS: Final = (_pause, _pause_task, _drain, _limit, _schedule, _windows, _change, _resolve, _retire)
