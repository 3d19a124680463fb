"""One world: the product's parts, robots, submitters, an operator and a referee, from a seed."""

import gc
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from commands.reasons import Refusal
from fleetlog.sim.coverage import Coverage
from fleetlog.sim.faults import FAULTS, STEPS
from fleetlog.sim.owners import Killed, OwnerProcess
from fleetlog.sim.product import START_MS, Product, Setup
from fleetlog.sim.referee import Finding
from fleetlog.sim.robots import SimRobot, Temper
from fleetlog.sim.scheduler import HostClock, Process
from fleetlog.sim.stewards import Steward
from fleetlog.sim.submitters import Client, Demand, Operator, Submitter
from projections.filters import Filter
from projections.fold import ProjectionFault
from projections.queries import LIMIT_MAX, Tables

PARTITIONS: Final = 2
PROJECT_S: Final = 6.0
OPERATOR_S: Final = 12.0
AT_A_STEP: Final = 0.85
"""The share of faults that wait for an owner to have done a step."""
SETTLE_LOOK_S: Final = 4.0
FOLDS_MAX: Final = 1_000
SNAPSHOT_EVENTS: Final = 80
LONGER: Final = 10
ALL_TASKS: Final = Filter("task")
RATE_OFF: Final = 0.01
POOLS: Final = ("hall", "gate")
KINDS: Final = ("weld", "paint", "poison")
DEFAULTS: Final = {"window_ms": 1_000, "lease_ms": 3_000, "accept_ms": 2_000, "excluded_ms": 60_000, "queue_max": 5_000}


@dataclass(slots=True)
class Plan:
    """What is simulated: `seconds` of work with faults (`fault_every_s` apart on average, 0: none), then peace for at
    most `settle_s`, in which every task has to end. `work_s`: what a task takes on average. `events_min`: work and
    faults go on until there are so many events, for LONGER times as long at most. `verbs_every_s`: how far apart
    verbs of those who run the place are (0: none)."""

    seconds: float = 300.0
    robots: int = 20
    per_s: float = 2.0
    fault_every_s: float = 4.0
    settle_s: float = 1_200.0
    work_s: float = 4.0
    events_min: int = 0
    verbs_every_s: float = 3.0


@dataclass(slots=True)
class Result:
    """What became of a seed."""

    seed: int
    tasks: int
    acknowledged: int
    events: int
    faults: int
    said_twice: int
    virtual_s: float
    findings: list[Finding] = field(default_factory=list)
    stories: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)


class World(Product):
    """Made from a seed; `play` lets it happen."""

    def __init__(self, seed: int, plan: Plan, folder: Path, coverage: Coverage | None = None) -> None:
        super().__init__(seed, Setup(POOLS, PARTITIONS, DEFAULTS, SNAPSHOT_EVENTS), folder)
        self.plan = plan
        self.coverage = Coverage() if coverage is None else coverage
        self.faults = 0
        self.quiet = False
        self._due: int | None = None
        self._inside = False
        self._projector_stopped = False
        self.restart_projector()
        self.start()
        # Robots come one after the other, when the pools are there.
        for number in range(plan.robots):
            self.robots.append(self._robot(number))
        outside = Process(self.scheduler, "outside", self.true_clock)
        client = Client(outside, self.chance(), self.well_gateways)
        self.submitter = Submitter(client, POOLS, Demand(per_s=plan.per_s))
        self.operator = Operator(client, self._stuck, self._held, self._in_error, self._works_on)
        self.steward: Steward | None = None
        if plan.verbs_every_s > 0:
            robots = [(robot.pool, robot.name) for robot in self.robots]
            steward = Client(outside, self.chance(), self.well_gateways)
            self.steward = Steward(steward, self._open, robots, Demand.targets, plan.verbs_every_s)
        outside.every(OPERATOR_S, self.operator.look)
        outside.every(PROJECT_S, self._project)
        if plan.fault_every_s > 0:
            self._next_fault()

    # ---- parts ----

    def _robot(self, number: int) -> SimRobot:
        random = self.random
        rate, able = random.uniform(-RATE_OFF, RATE_OFF), number % 3 == 0
        temper = Temper(
            slots=2 if able else random.choice((1, 1, 2, 4)),
            capabilities=("big",) if able else (),
            kinds=KINDS,
            work_s=self.plan.work_s,
            liar=self.plan.fault_every_s > 0 and random.random() < 0.05,
            deaf=self.plan.fault_every_s > 0 and random.random() < 0.05,
        )
        name, pool = f"r{number}", POOLS[number % len(POOLS)]
        clock = HostClock(self.scheduler, START_MS, rate, random.uniform(-5_000, 5_000))
        return SimRobot(self.scheduler, self.chance(), name, pool, clock, self.well_gateways, temper)

    def host_clock(self) -> HostClock:
        """Of a machine whose clocks are a little off."""
        rate, offset_ms = (self.random.uniform(-RATE_OFF / 10, RATE_OFF / 10), self.random.uniform(-500, 500))
        return HostClock(self.scheduler, START_MS, rate, offset_ms)

    # ---- faults ----

    def _next_fault(self) -> None:
        if self.quiet:
            return
        self.scheduler.later(self.random.expovariate(1 / self.plan.fault_every_s), self._next_fault)
        if self.random.random() < AT_A_STEP:
            self._due = self.random.randint(1, STEPS)
        else:
            self.faults += 1
            FAULTS[self.random.choice(list(FAULTS))](self, None)

    def at_step(self, owner: OwnerProcess, partition: int, step: int) -> None:
        """An owner has done a step; a fault that is due comes now: the one that was rarest here until now."""
        if self._due != step or self._inside:
            return
        self._due = None
        self.faults += 1
        self.referee.read_if_here()
        name = self.coverage.rarest(step, set(self.referee.open_tasks().values()), self.random)
        self._inside = True
        try:
            FAULTS[name](self, owner)
        finally:
            self._inside = False
        if not owner.alive:
            raise Killed

    # ---- what the operator sees ----

    def _stuck(self) -> list[tuple[str, str, str, int]]:
        self.referee.read_if_here()
        found, attempts = self.referee.open_tasks(), self.referee.attempts
        return [(*at, state, attempts.get(at, 0)) for at, state in found.items() if state in ("LOST", "DEAD")]

    def _open(self) -> dict[tuple[str, str], str]:
        self.referee.read_if_here()
        return self.referee.open_tasks()

    def _works_on(self, pool: str, task: str) -> bool:
        return any(key[0] == task for robot in self.robots if robot.pool == pool for key in robot.runs)

    def _held(self) -> list[tuple[str, str]]:
        found = []
        for pool, state in self.live().items():
            found += [(pool, key.task) for key, hold in state.holds.items() if hold.until is None]
        return found

    def _in_error(self) -> list[tuple[str, str]]:
        found = []
        for pool, state in self.live().items():
            found += [(pool, name) for name, robot in state.robots.items() if robot.fault is not None]
        return found

    def _project(self) -> None:
        if self.store.away or self._projector_stopped:
            return
        try:
            if self.projector is None:
                self.restart_projector()
            else:
                self.projector.step(0.0)
        except ProjectionFault as fault:
            self._projector_stopped = True
            self.referee.fault(f"the projector: {fault}")

    # ---- the whole ----

    def play(self, progress: Callable[[float], None] = lambda share: None) -> Result:
        """Work with faults, then peace; then the referee looks at everything."""
        parts = 20
        for part in range(parts):
            self.scheduler.run(self.plan.seconds / parts)
            progress((part + 1) / parts)
        for _ in range((LONGER - 1) * parts):
            self.referee.read_if_here()
            if self.referee.events >= self.plan.events_min:
                break
            self.scheduler.run(self.plan.seconds / parts)
        self._make_peace()
        for _ in range(int(self.plan.settle_s / SETTLE_LOOK_S)):
            self.scheduler.run(SETTLE_LOOK_S)
            self.referee.read()
            if not self.referee.open_tasks() and not self._asking():
                break
        return self._judged()

    def _asking(self) -> bool:
        steward = self.steward is not None and (self.steward.client.unanswered or self.steward.undone)
        return bool(self.submitter.client.unanswered or steward)

    def _make_peace(self) -> None:
        """No more faults, no more submissions; what was broken is whole again, and robots do not lie."""
        self.quiet = self.submitter.stopped = True
        self._due = None
        if self.steward is not None:
            self.steward.stopped = True
        self.end_faults()
        for robot in self.robots:
            robot.temper.liar = False

    def _judged(self) -> Result:
        referee, now_ms = self.referee, self.scheduler.now_ms
        referee.read()
        referee.acknowledged(self.submitter.acknowledged)
        referee.ended(self.why)
        referee.exclusion((work for robot in self.robots for work in robot.done), now_ms)
        for robot in self.robots:
            referee.given(robot.pool, robot.name, robot.given)
        referee.results()
        referee.states(self.live(), int(START_MS + now_ms))
        for process in self.owners:
            for fault in process.faults:
                referee.fault(fault)
        if not self._projector_stopped:
            self._judge_tables()
        stories = [line for finding in referee.findings[:3] for line in ("", finding.text, *referee.story(finding))]
        return Result(
            self.seed, self.submitter.submitted, len(self.submitter.acknowledged), referee.events, self.faults,
            referee.said_twice, now_ms / 1_000, referee.findings, stories, self.coverage,
        )  # fmt: skip

    def _judge_tables(self) -> None:
        if self.projector is None:
            self.restart_projector()
        projector = self.projector
        for _ in range(FOLDS_MAX):
            if projector is None or not projector.step(0.0):
                break
        self.referee.tables(_states_in(self.folder / "tables"))
        if projector is not None:
            projector.close()


def _states_in(folder: Path) -> dict[tuple[str, str], str]:
    """The state of every task, as the tables list them."""
    tables, states = Tables(folder), dict[tuple[str, str], str]()
    cursor: str | None = None
    while True:
        page = tables.tasks(ALL_TASKS, limit=LIMIT_MAX, cursor=cursor)
        if isinstance(page, Refusal):
            raise AssertionError(page.text)
        states |= {(card["pool"], card["id"]): card["state"] for card in page.items}
        cursor = page.next
        if cursor is None:
            break
    tables.close()
    return states


def simulate(
    seed: int,
    plan: Plan,
    progress: Callable[[float], None] = lambda share: None,
    coverage: Coverage | None = None,
) -> Result:
    """Plays one seed. With the `coverage` of worlds before, faults come where they were rarest in all of them."""
    folder = Path(tempfile.mkdtemp(prefix="fleetlog-sim-"))
    try:
        return World(seed, plan, folder, coverage).play(progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        gc.unfreeze()  # the owners of this world set apart what they held; it is gone now
