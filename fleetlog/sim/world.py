"""One world: the product's parts, robots, submitters, an operator and a referee, from a seed."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from commands.decide import Context
from commands.decide.explain import explain
from commands.inputs import Explain, TaskVerb
from fleetlog.sim.coverage import Coverage
from fleetlog.sim.faults import FAULTS, STEPS
from fleetlog.sim.gateways import GatewayProcess, SimGateway
from fleetlog.sim.owners import Group, Killed, OwnerProcess, SteppedOwner
from fleetlog.sim.referee import Finding, Referee
from fleetlog.sim.robots import SimRobot, Temper
from fleetlog.sim.scheduler import HostClock, Process, Scheduler
from fleetlog.sim.submitters import Client, Demand, Operator, Submitter
from projections.fold import ProjectionFault
from projections.projector import Projector
from projections.queries import Tables
from robot_gateway.settings import GatewaySettings
from streams.memory_log import MemoryLog, MemoryStore
from streams.owner import OwnerSettings

START_MS: Final = 1_790_000_040_000
PARTITIONS: Final = 2
PROJECT_S: Final = 2.0
OPERATOR_S: Final = 12.0
AT_A_STEP: Final = 0.85
"""The share of faults that wait for an owner to have done a step."""
SETTLE_LOOK_S: Final = 20.0
FOLDS_MAX: Final = 1_000
RATE_OFF: Final = 0.01
POOLS: Final = ("hall", "gate")
KINDS: Final = ("weld", "paint", "poison")
DEFAULTS: Final = {"window_ms": 1_000, "lease_ms": 3_000, "accept_ms": 2_000, "excluded_ms": 60_000, "queue_max": 5_000}

One = TypeVar("One", bound=Process)


@dataclass(slots=True)
class Plan:
    """What is simulated: `seconds` of work with faults (`fault_every_s` apart on average, 0: none), then peace for at
    most `settle_s`, in which every task has to end."""

    seconds: float = 300.0
    robots: int = 20
    per_s: float = 2.0
    fault_every_s: float = 4.0
    settle_s: float = 1_200.0


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


class World:
    """Made from a seed; `play` lets it happen."""

    def __init__(self, seed: int, plan: Plan, folder: Path, coverage: Coverage | None = None) -> None:
        self.seed, self.plan, self.folder = seed, plan, folder
        self.random = Random(seed)  # noqa: S311 - chance that can be played again
        self.scheduler = Scheduler()
        true = HostClock(self.scheduler, START_MS)
        self.store = MemoryStore(PARTITIONS, f"{seed:08x}-0000-4000-8000-000000000000", true.wall_ms)
        self.referee = Referee(self.store)
        self.pools = POOLS
        self.coverage = Coverage() if coverage is None else coverage
        self.faults = 0
        self.disk_full = False
        self.quiet = False
        self._due: int | None = None
        self._inside = False
        self._names = 0
        self.owners: list[OwnerProcess] = []
        self.gateways: list[GatewayProcess] = []
        self.projector: Projector | None = None
        self._projector_stopped = False
        self.restart_projector()
        self.group = Group(self.scheduler, PARTITIONS)
        for _ in range(2):
            self.start_owner()
            self.start_gateway()
        # Robots come one after the other, when the pools are there.
        self.robots: list[SimRobot] = []
        for number in range(plan.robots):
            self.robots.append(self._robot(number))
        outside = Process(self.scheduler, "outside", true)
        client = Client(outside, self._chance(), self.well_gateways)
        self.submitter = Submitter(client, POOLS, Demand(per_s=plan.per_s))
        self.operator = Operator(client, self._stuck, self._held, self._in_error, self._works_on)
        outside.every(OPERATOR_S, self.operator.look)
        outside.every(PROJECT_S, self._project)
        if plan.fault_every_s > 0:
            self._next_fault()

    # ---- parts ----

    def some(self, processes: Sequence[One]) -> One | None:
        """One that is alive and runs, or None."""
        well = [process for process in processes if process.is_well]
        return self.random.choice(well) if well else None

    def well_gateways(self) -> list[SimGateway]:
        """Those that can be reached."""
        return [process.gateway for process in self.gateways if process.alive]

    def start_owner(self) -> None:
        """One more process that owns partitions."""
        settings = OwnerSettings(name=self._name("owner"), software="sim", snapshot_events=400, defaults=dict(DEFAULTS))
        owner = OwnerProcess(self.scheduler, settings.name, self._clock(), self.store, settings, self._at_step)
        self.owners = [one for one in self.owners if one.alive] + [owner]
        self.group.join(owner)

    def start_gateway(self) -> None:
        """One more life of a gateway."""
        name = self._name("gateway")
        settings = GatewaySettings(heartbeat_gather_ms=250, sessions_max=1_000)
        process = GatewayProcess(self.scheduler, name, self._clock(), self.store, self.folder / "tables", settings)
        process.gateway.submissions_stopped = lambda: "the disk is full" if self.disk_full else None
        self.gateways = [one for one in self.gateways if one.alive] + [process]

    def restart_projector(self) -> None:
        """The projector dies and comes back from what it has written."""
        if self.projector is not None:
            self.projector.close()
            self.projector = None
        if not self.store.away:
            self.projector = Projector(MemoryLog(self.store), self.folder / "tables", gather_s=0.0)
            self.projector.open()

    def _robot(self, number: int) -> SimRobot:
        random = self.random
        rate, able = random.uniform(-RATE_OFF, RATE_OFF), number % 3 == 0
        temper = Temper(
            slots=2 if able else random.choice((1, 1, 2, 4)),
            capabilities=("big",) if able else (),
            kinds=KINDS,
            liar=self.plan.fault_every_s > 0 and random.random() < 0.05,
            deaf=self.plan.fault_every_s > 0 and random.random() < 0.05,
        )
        name, pool = f"r{number}", POOLS[number % len(POOLS)]
        clock = HostClock(self.scheduler, START_MS, rate, random.uniform(-5_000, 5_000))
        return SimRobot(self.scheduler, self._chance(), name, pool, clock, self.well_gateways, temper)

    def _clock(self) -> HostClock:
        rate, offset_ms = (self.random.uniform(-RATE_OFF / 10, RATE_OFF / 10), self.random.uniform(-500, 500))
        return HostClock(self.scheduler, START_MS, rate, offset_ms)

    def _chance(self) -> Random:
        """A source of chance of its own, so that one part more or less does not move the others."""
        return Random(self.random.random())  # noqa: S311

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._names}"

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

    def _at_step(self, owner: OwnerProcess, partition: int, step: int) -> None:
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

    def go_on_around(self, owner: OwnerProcess, seconds: float) -> None:
        """The world goes on while `owner` stands still in the middle of its batch."""
        owner.pause(seconds + 0.001)  # beyond the last of them: its own next turn must not come inside this one
        self.scheduler.run(seconds)

    def cut_all(self, gateway: SimGateway) -> None:
        """The connections to a gateway are gone."""
        for robot in self.robots:
            if robot.link is not None and robot.link.gateway is gateway:
                robot.link.cut()

    def log_is_back(self) -> None:
        """The log answers again."""
        self.store.away = False

    def disk_is_free(self) -> None:
        """There is room again."""
        self.disk_full = False

    # ---- what the operator sees ----

    def live(self) -> dict[str, Any]:
        """The states of all pools at those who own them."""
        found: dict[str, Any] = {}
        for partition, process in self.group.owners.items():
            owner = process.owners.get(partition) if process is not None and process.alive else None
            if isinstance(owner, SteppedOwner):
                found |= owner.pool_states()
        return found

    def _stuck(self) -> list[tuple[str, str, str, int]]:
        self.referee.read_if_here()
        found, attempts = self.referee.open_tasks(), self.referee.attempts
        return [(*at, state, attempts.get(at, 0)) for at, state in found.items() if state in ("LOST", "DEAD")]

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
            found += [(pool, name) for name, robot in state.robots.items() if robot.state == "ERROR"]
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
        self._make_peace()
        for _ in range(int(self.plan.settle_s / SETTLE_LOOK_S)):
            self.scheduler.run(SETTLE_LOOK_S)
            self.referee.read()
            if not self.referee.open_tasks() and not self.submitter.client.unanswered:
                break
        return self._judged()

    def _make_peace(self) -> None:
        """No more faults, no more submissions; what was broken is whole again, and robots do not lie."""
        self.quiet = self.submitter.stopped = True
        self._due = None
        self.store.away = self.disk_full = False
        self.store.release()
        self.store.next_commits.clear()
        for log in (*(owner.log for owner in self.owners), *(one.gateway.sim_log for one in self.gateways)):
            log.cut = False
            log.let_go()
        for robot in self.robots:
            robot.temper.liar = False

    def _judged(self) -> Result:
        referee, now_ms = self.referee, self.scheduler.now_ms
        referee.read()
        referee.acknowledged(self.submitter.acknowledged)
        referee.ended(self._why)
        referee.exclusion((work for robot in self.robots for work in robot.done), now_ms)
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

    def _why(self, pool: str, task: str) -> str:
        """What the owner says when asked why a task stands where it does."""
        state = self.live().get(pool)
        if state is None:
            return "nobody owns the pool"
        command = Explain(id="why", pool=pool, actor="local", reply_to="referee", body=TaskVerb(task=task))
        [answer] = explain(
            state, command, Context(now=state.last_at, log_id=self.store.log_id, format=self.store.format)
        ).drafts
        return str(answer.message)

    def _judge_tables(self) -> None:
        if self.projector is None:
            self.restart_projector()
        projector = self.projector
        for _ in range(FOLDS_MAX):
            if projector is None or not projector.step(0.0):
                break
        tables = Tables(self.folder / "tables")

        def state_of(pool: str, task: str) -> str | None:
            card = tables.task(pool, task).value
            return None if card is None else str(card["state"])

        self.referee.tables(state_of)
        tables.close()
        if projector is not None:
            projector.close()


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
