"""A fleet in the test's own process: the whole product on a virtual clock."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from commands.inputs import CommandBase, Submit
from commands.settings import PoolSettings, settings_problem
from commands.vocabulary import is_name
from fleetlog.sim.faults import FAULTS
from fleetlog.sim.product import Product, Setup
from fleetlog.sim.scheduler import Process
from fleetlog.testing.asking import ACTOR, Asker, command_of, error_from, submission
from fleetlog.testing.handlers import HERE, HandlerRun
from fleetlog.testing.robots import Call, Robot, as_real, handlers_of, temper_of
from fleetlog.testing.story import Story
from fleetlog.testing.tasks import Task
from robot_gateway.pending import Answer
from robot_gateway.sdk.resources import SubmitOptions
from robot_gateway.sdk.runs import Handler
from robot_gateway.wire import settings_in

if TYPE_CHECKING:
    from robot_gateway.sdk.robot import Robot as RealRobot

ANSWER_WITHIN_S: Final = 120.0
WHOLE_WITHIN_S: Final = 120.0
TURN_S: Final = 0.01


class DidNotHappen(AssertionError):
    """What a test waited for is not so after that much virtual time; the story is in the text."""


class InvariantBroken(AssertionError):
    """Something happened that must never be; the text says what, and the events that led there."""


class Fleet:
    """Owners, gateways and a log, with one pool. Nothing happens but while a method lets virtual time pass.

    `seed`: the same seed plays the same. `fault_every_s`: faults by chance, so far apart on average (0: none).
    `settings` of the pool by their names in `fleetlog pool set` (`window_s=1, lease_s=3`); raises ValueError.
    """

    def __init__(self, *, seed: int = 1, pool: str = "default", fault_every_s: float = 0.0, **settings: Any) -> None:
        defaults = settings_in(settings)
        problem = settings_problem(defaults, PoolSettings())
        if problem is not None:
            raise ValueError(problem.text)
        if not is_name(pool):
            raise ValueError(f"{pool!r} cannot be the id of a pool: use letters, digits and . _ : - (up to 128)")
        self.pool, self.seed = pool, seed
        self._folder = Path(tempfile.mkdtemp(prefix="fleetlog-testing-"))
        self._product = Product(seed, Setup((pool,), 1, defaults, snapshot_events=100_000), self._folder)
        self._product.start()
        self._story = Story(self._product)
        outside = Process(self._product.scheduler, "outside", self._product.true_clock)
        self._asker = Asker(outside, self._product.chance(), self._product.well_gateways)
        self._robots: dict[str, Robot] = {}
        self._acknowledged: list[tuple[str, str]] = []
        self._fault_every_s = fault_every_s
        self._tasks = 0
        if fault_every_s > 0:
            self._later_a_fault()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(check=kind is None)

    # ---- who takes part ----

    def robot(
        self,
        name: str,
        kinds: Mapping[str, Call | Handler],
        *,
        slots: int = 1,
        capabilities: Iterable[str] = (),
        takes_s: float | Mapping[str, float] = 0.0,
        cancel_grace_s: float | None = 10.0,
    ) -> Robot:
        """A robot with a handler for each kind, as it would be given to the SDK: `handler(ctx, payload) -> result`.

        A handler returns at once in virtual time, unless it waits by its context, or `takes_s` (for all kinds, or by
        kind) says how long it works before its code runs. Raises ValueError.
        """
        handlers = handlers_of(kinds)
        return self._join(name, handlers, temper_of(handlers, slots, capabilities, cancel_grace_s), takes_s)

    def robot_like(
        self, robot: "RealRobot", name: str | None = None, *, takes_s: float | Mapping[str, float] = 0.0
    ) -> Robot:
        """The robot of a program, with its handlers, slots and capabilities; it does not connect anywhere else."""
        handlers, temper = as_real(robot)
        return self._join(name or robot.id, handlers, temper, takes_s)

    def _join(self, name: str, handlers: Any, temper: Any, takes_s: Any) -> Robot:
        if not is_name(name):
            raise ValueError(f"{name!r} cannot be the id of a robot: use letters, digits and . _ : - (up to 128)")
        if name in self._robots:
            raise ValueError(f"there is a robot {name} already")
        robot = self._robots[name] = Robot(self._product, self.pool, name, handlers, temper, takes_s)
        self._product.robots.append(robot.inner)
        return robot

    # ---- asking ----

    def submit(self, kind: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> Task:
        """As `Client.submit` of the SDK: returns when the submission is in the log. Raises the error of a refusal."""
        self._tasks += 1
        given: dict[str, Any] = {"kind": kind, "payload": payload, **options}
        task = str(given.get("id") or f"task-{self._tasks}")
        body = submission(task, given)
        command = self._asker.new_id()

        def make(reply_to: str) -> CommandBase:
            return Submit(id=command, pool=self.pool, actor=ACTOR, reply_to=reply_to, create=True, body=body)

        self._ask(make)
        self._acknowledged.append((self.pool, task))
        return Task(self, task)

    def command(self, type: str, **body: Any) -> dict[str, Any]:
        """Any command, by its name and body in docs/formats/inputs.md: `command("pause", scope="pool", reason="...")`.

        The answer of the owner. Raises the error of a refusal; ValueError where the body has another shape.
        """
        command = self._asker.new_id()
        command_of(type, command, self.pool, "nobody", body)
        return self._ask(lambda reply_to: command_of(type, command, self.pool, reply_to, body))

    def _ask(self, make: Callable[[str], CommandBase]) -> dict[str, Any]:
        told: list[Answer] = []
        self._asker.ask(make, told.append)
        if not self._pass(ANSWER_WITHIN_S, lambda: bool(told)):
            raise DidNotHappen(self._with_story(f"nobody answered within {ANSWER_WITHIN_S:g} s"))
        refusal = told[0].refusal
        if refusal is not None:
            raise error_from(refusal)
        return told[0].accepted or {}

    # ---- time ----

    @property
    def now(self) -> datetime:
        """The true time of the fleet, in UTC."""
        return datetime.fromtimestamp(self._product.true_clock.wall_ms() / 1_000, UTC)

    def advance(self, seconds: float) -> None:
        """Lets so many virtual seconds pass, with all that happens in them."""
        self._pass(seconds, lambda: False)

    def until(self, is_so: Callable[[], object], within_s: float = 600.0, otherwise: str = "it is not so") -> None:
        """Lets time pass until something is so. Raises DidNotHappen, with the story, where it is not within that."""
        if not self._pass(within_s, lambda: bool(is_so())):
            raise DidNotHappen(self._with_story(f"{otherwise} after {within_s:g} s"))

    def _pass(self, seconds: float, is_so: Callable[[], bool]) -> bool:
        """Time passes; where a handler calls, the world goes on around it."""
        run: HandlerRun | None = getattr(HERE, "run", None)
        if run is None:
            return self._product.scheduler.run_until(is_so, seconds)
        end_s = run.seconds() + seconds
        while not is_so():
            if run.seconds() >= end_s:
                return False
            run.rest(lambda: False, min(TURN_S, end_s - run.seconds()))
        return True

    # ---- what happened ----

    def task(self, task: str) -> Task:
        """A task by its id."""
        return Task(self, task)

    def events(self, type: str | None = None, task: Task | str | None = None, robot: str | None = None) -> list[Any]:
        """What happened, in order: all of it, or of one type (`TaskCompleted`), about one task, or of one robot."""
        wanted = task.id if isinstance(task, Task) else task
        return [
            event
            for event in self._story.events(wanted)
            if (type is None or event.name == type) and (robot is None or getattr(event, "robot", None) == robot)
        ]

    def why(self, task: Task | str) -> str:
        """Why a task is where it is, in the words of its owner (`fleetlog why`)."""
        return self._product.why(self.pool, task.id if isinstance(task, Task) else task)

    def story(self, task: Task | str | None = None) -> str:
        """The last events, a line each."""
        return self._story.told(task.id if isinstance(task, Task) else task)

    def _with_story(self, text: str) -> str:
        return f"{text} (seed {self.seed})\n{self.story()}"

    # ---- faults ----

    def kill_owner(self, back_after_s: float = 1.0) -> None:
        """As kill -9 of the process that decides for the pool. Another takes over after some seconds."""
        owner = self._product.group.owners[0]
        if owner is not None and owner.alive:
            owner.kill()
            self._product.scheduler.later(back_after_s, self._product.start_owner)

    def kill_gateway(self, back_after_s: float = 1.0) -> None:
        """As kill -9 of a gateway; robots that were connected to it go to another."""
        victim = self._product.some(self._product.gateways)
        if victim is not None:
            victim.kill()
            self._product.cut_all(victim.gateway)
            self._product.scheduler.later(back_after_s, self._product.start_gateway)

    def cut_log(self, seconds: float) -> None:
        """The log answers nobody for so many seconds, as when all brokers are away."""
        self._product.store.away = True
        self._product.scheduler.later(seconds, self._product.log_is_back)

    def inject(self, fault: str) -> None:
        """One fault of `fleetlog.testing.FAULTS` by name; what it leaves open is up to chance. Raises ValueError."""
        if fault not in FAULTS:
            raise ValueError(f"there is no fault {fault}: choose one of {', '.join(FAULTS)}")
        if fault.startswith("robot_") and not self._product.robots:
            raise ValueError(f"{fault} needs a robot")
        FAULTS[fault](self._product, None)

    def end_faults(self) -> None:
        """No faults by chance from here on; cuts are mended, and what was away is back."""
        self._fault_every_s = 0.0
        self._product.end_faults()
        for robot in self._robots.values():
            robot.join()

    def _later_a_fault(self) -> None:
        def now() -> None:
            if self._fault_every_s > 0:
                names = [name for name in FAULTS if self._product.robots or not name.startswith("robot_")]
                self.inject(self._product.random.choice(names))
                self._later_a_fault()

        self._product.scheduler.later(self._product.random.expovariate(1 / self._fault_every_s), now)

    # ---- what must hold ----

    def settle(self, within_s: float = 1_200.0) -> None:
        """Ends all faults, lets time pass until every task has ended. Raises DidNotHappen, with the reason of each."""
        self.end_faults()
        if not self._pass(within_s, lambda: not self._story.open_tasks()):
            reasons = "; ".join(self.why(task) for task in self._story.open_tasks())
            raise DidNotHappen(self._with_story(f"not every task has ended after {within_s:g} s: {reasons}"))

    def check(self) -> None:
        """Ends all faults, lets owners come back, and judges all invariants. Raises InvariantBroken, with the story."""
        self.end_faults()
        product, referee = self._product, self._product.referee
        if not self._pass(WHOLE_WITHIN_S, self._whole):
            raise InvariantBroken(self._with_story("nobody decides for the pool although nothing is broken any more"))
        referee.read()
        referee.acknowledged(self._acknowledged)
        referee.exclusion((work for robot in product.robots for work in robot.done), product.scheduler.now_ms)
        referee.states(product.live(), product.true_clock.wall_ms())
        findings = list(dict.fromkeys(referee.findings))
        if findings:
            said = "\n".join(finding.text for finding in findings[:5])
            raise InvariantBroken(self._with_story(said))

    def close(self, check: bool = True) -> None:
        """Checks, ends all handlers, and removes what was written. Nothing may be asked afterwards."""
        try:
            if check:
                self.check()
        finally:
            for robot in self._robots.values():
                robot.kill()
            if self._product.projector is not None:
                self._product.projector.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _whole(self) -> bool:
        """Whether somebody decides for the pool, and all that was decided is in the log."""
        owner = self._product.group.owners[0]
        seat = None if owner is None or not owner.is_well else owner.owners.get(0)
        return seat is not None and seat.is_whole
