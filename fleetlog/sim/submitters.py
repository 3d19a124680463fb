"""Those who ask: submitters, who ask again until they have an answer, and an operator who sees to what is stuck."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

from commands import inputs as i
from commands.reasons import REASONS
from fleetlog.sim.gateways import SimGateway
from fleetlog.sim.scheduler import Process
from robot_gateway.pending import Answer

AGAIN_S: Final = 1.0
UNHEARD_S: Final = 35.0
ATTEMPTS_MAX: Final = 5

Make = Callable[[str], i.CommandBase]
Told = Callable[[Answer], None]


@dataclass(eq=False)
class Client:
    """Sends commands by a gateway drawn by chance, with the same id until an answer came that stands."""

    process: Process
    random: Random
    gateways: Callable[[], list[SimGateway]]
    unanswered: int = 0

    def ask(self, make: Make, told: Told) -> None:
        """`make(reply_to)` gives the command, always with the same id."""
        self.unanswered += 1
        self._try(make, told)

    def new_id(self) -> str:
        """A command id."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def stands(self, answer: Answer) -> bool:
        """Whether an answer is not to be asked for again."""
        return answer.refusal is None or not (answer.refusal.reason == "no_answer" or _again(answer.refusal.reason))

    def _try(self, make: Make, told: Told) -> None:
        found = [gateway for gateway in self.gateways() if gateway.process.is_well]
        if not found:
            self.process.later(AGAIN_S, lambda: self._try(make, told))
            return
        gateway = self.random.choice(found)
        call = _Call(self, make, told)
        gateway.process.later(0.002, lambda: gateway.send([make(gateway.name)], call))
        self.process.later(UNHEARD_S, call.unheard)


@dataclass(eq=False)
class _Call:
    """One try; `answered` or `unheard`, whichever comes first."""

    client: Client
    make: Make
    told: Told
    over: bool = False

    def answered(self, index: int, answer: Answer) -> None:
        """As in `pending.Asker`."""
        client = self.client
        client.process.later(0.002, lambda: self._settle(answer))

    def _settle(self, answer: Answer) -> None:
        if self.over:
            return
        self.over = True
        if not self.client.stands(answer):
            self.client.process.later(AGAIN_S, lambda: self.client._try(self.make, self.told))
            return
        self.client.unanswered -= 1
        self.told(answer)

    def unheard(self) -> None:
        """The connection is gone, or nobody answers: ask again."""
        if not self.over:
            self.over = True
            self.client._try(self.make, self.told)


def _again(reason: str) -> bool:
    return reason in REASONS and REASONS[reason].retryable


@dataclass
class Demand:
    """What is submitted: tasks a second, and what they are like. Shares are chances."""

    per_s: float = 2.0
    targets: int = 25
    with_target: float = 0.4
    kinds: tuple[str, ...] = ("weld", "paint")
    poison: float = 0.004
    policies: tuple[str, ...] = ("requeue", "requeue", "requeue", "wait", "ask", "never")


@dataclass(eq=False)
class Submitter:
    """Submits to the pools until it is told to stop; some tasks it cancels or changes again."""

    client: Client
    pools: tuple[str, ...]
    demand: Demand
    submitted: int = 0
    acknowledged: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        self._next()

    def _next(self) -> None:
        if not self.stopped:
            random = self.client.random
            self.client.process.later(random.expovariate(self.demand.per_s), self._next)
            self._submit(random.choice(self.pools))

    def _submit(self, pool: str) -> None:
        self.submitted += 1
        task, command = f"t{self.submitted}", self.client.new_id()
        body = self._task(task)

        def make(reply_to: str) -> i.CommandBase:
            return i.Submit(id=command, pool=pool, actor="local", reply_to=reply_to, create=True, body=body)

        def told(answer: Answer) -> None:
            if answer.refusal is None:
                self.acknowledged[pool, task] = str((answer.accepted or {}).get("state"))
            else:
                self.refused.append(answer.refusal.reason)

        self.client.ask(make, told)
        if self.client.random.random() < 0.03:
            self.client.process.later(self.client.random.uniform(0.1, 10.0), lambda: self._cancel(pool, task))

    def _task(self, task: str) -> i.Submission:
        random, demand = self.client.random, self.demand
        poison = random.random() < demand.poison
        target = f"dock-{random.randrange(demand.targets)}" if random.random() < demand.with_target else None
        return i.Submission(
            task=task,
            kind="poison" if poison else random.choice(demand.kinds),
            payload={"json": {"n": random.randrange(1000)}},
            requirement=["big"] if random.random() < 0.1 else [],
            target=target,
            priority=random.choice((0, 0, 0, 3, 9)),
            slot_cost=2 if random.random() < 0.05 else 1,
            on_lost=i.OnLostAsked(policy=random.choice(demand.policies), wait_ms=20_000),  # type: ignore[arg-type]
            limit_key="licence" if random.random() < 0.1 else None,
        )

    def _cancel(self, pool: str, task: str) -> None:
        command = self.client.new_id()

        def make(reply_to: str) -> i.CommandBase:
            body = i.TaskVerb(task=task, reason="not wanted any more")
            return i.CancelTask(id=command, pool=pool, actor="local", reply_to=reply_to, body=body)

        self.client.ask(make, lambda answer: None)


@dataclass(eq=False)
class Operator:
    """Sees to what waits for a hand. `stuck()` gives (pool, task, state, attempt) of tasks in LOST and DEAD,
    `held()` (pool, task) of attempts that hold a target without an end, `in_error()` (pool, robot).
    `works_on(pool, task)`: whether some robot does, as somebody who goes there sees.
    """

    client: Client
    stuck: Callable[[], list[tuple[str, str, str, int]]]
    held: Callable[[], list[tuple[str, str]]]
    in_error: Callable[[], list[tuple[str, str]]]
    works_on: Callable[[str, str], bool]

    def look(self) -> None:
        """Releases what is lost, gives up what is lost again and again, redrives or discards dead letters."""
        for pool, task, state, attempt in self.stuck():
            if state == "LOST" and attempt > ATTEMPTS_MAX:
                self._do(i.CancelTask, pool, i.TaskVerb(task=task, reason="it is lost each time"))
            elif state == "LOST":
                force = not self.works_on(pool, task)
                self._do(i.ReleaseTask, pool, i.ReleaseBody(task=task, reason="its robot is gone", force=force))
            elif self.client.random.random() < 0.3:
                self._do(i.RedriveTask, pool, i.RedriveBody(task=task, reason="once more"))
            else:
                self._do(i.DiscardTask, pool, i.TaskVerb(task=task, reason="not worth it"))
        for pool, task in self.held():
            if not self.works_on(pool, task):
                self._do(i.ReleaseTask, pool, i.ReleaseBody(task=task, reason="nobody is there", force=True))
        for pool, robot in self.in_error():
            self._do(i.ClearRobot, pool, i.RobotVerb(robot=robot, reason="looked at"))

    def _do(self, shape: Any, pool: str, body: Any) -> None:
        command = self.client.new_id()
        make = lambda reply_to: shape(id=command, pool=pool, actor="operator", reply_to=reply_to, body=body)  # noqa: E731
        self.client.ask(make, lambda answer: None)
