"""The parts of the product in one process on virtual time: log, owners, gateways, projector. Robots join them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from commands.decide import Context
from commands.decide.explain import explain
from commands.inputs import Explain, TaskVerb
from fleetlog.sim.gateways import GatewayProcess, SimGateway
from fleetlog.sim.owners import Group, OwnerProcess, SteppedOwner
from fleetlog.sim.referee import Referee
from fleetlog.sim.robots import SimRobot
from fleetlog.sim.scheduler import HostClock, Process, Scheduler
from projections.projector import Projector
from robot_gateway.settings import GatewaySettings
from streams.memory_log import MemoryLog, MemoryStore
from streams.owner import OwnerSettings

START_MS: Final = 1_790_000_040_000
OWNERS: Final = 2
GATEWAYS: Final = 2

One = TypeVar("One", bound=Process)


@dataclass(slots=True)
class Setup:
    """What the parts are made with: `defaults` are settings of new pools, in the log's units."""

    pools: tuple[str, ...]
    partitions: int
    defaults: dict[str, Any] = field(default_factory=dict)
    snapshot_events: int = 400


class Product:
    """The parts, from a seed; nothing happens until the scheduler runs."""

    def __init__(self, seed: int, setup: Setup, folder: Path) -> None:
        self.seed, self.setup, self.folder = seed, setup, folder
        self.random = Random(seed)  # noqa: S311 - chance that can be played again
        self.scheduler = Scheduler()
        self.true_clock = HostClock(self.scheduler, START_MS)
        log_id = f"{seed:08x}-0000-4000-8000-000000000000"
        self.store = MemoryStore(setup.partitions, log_id, self.true_clock.wall_ms)
        self.referee = Referee(self.store)
        self.pools = setup.pools
        self.disk_full = False
        self.robots: list[SimRobot] = []
        self.owners: list[OwnerProcess] = []
        self.gateways: list[GatewayProcess] = []
        self.projector: Projector | None = None
        self._names = 0
        self.group = Group(self.scheduler, setup.partitions)

    def start(self) -> None:
        """Owners and gateways begin."""
        for _ in range(max(OWNERS, GATEWAYS)):
            self.start_owner()
            self.start_gateway()

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
        setup = self.setup
        settings = OwnerSettings(
            name=self._name("owner"),
            software="sim",
            snapshot_events=setup.snapshot_events,
            defaults=dict(setup.defaults),
        )
        owner = OwnerProcess(self.scheduler, settings.name, self.host_clock(), self.store, settings, self.at_step)
        self.owners = [one for one in self.owners if one.alive] + [owner]
        self.group.join(owner)

    def start_gateway(self) -> None:
        """One more life of a gateway."""
        name = self._name("gateway")
        settings = GatewaySettings(heartbeat_gather_ms=250, sessions_max=1_000)
        process = GatewayProcess(self.scheduler, name, self.host_clock(), self.store, self.folder / "tables", settings)
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

    def host_clock(self) -> HostClock:
        """The clock of one more machine."""
        return HostClock(self.scheduler, START_MS)

    def at_step(self, owner: OwnerProcess, partition: int, step: int) -> None:
        """An owner has done a numbered step of its batch."""

    def chance(self) -> Random:
        """A source of chance of its own, so that one part more or less does not move the others."""
        return Random(self.random.random())  # noqa: S311

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._names}"

    # ---- faults ----

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

    def end_faults(self) -> None:
        """What was broken is whole again."""
        self.store.away = self.disk_full = False
        self.store.release()
        self.store.next_commits.clear()
        for log in (*(owner.log for owner in self.owners), *(one.gateway.sim_log for one in self.gateways)):
            log.cut = False
            log.let_go()

    # ---- what owners know ----

    def live(self) -> dict[str, Any]:
        """The states of all pools at those who own them."""
        found: dict[str, Any] = {}
        for partition, process in self.group.owners.items():
            owner = process.owners.get(partition) if process is not None and process.alive else None
            if isinstance(owner, SteppedOwner):
                found |= owner.pool_states()
        return found

    def explained(self, pool: str, task: str) -> dict[str, Any] | None:
        """What the owner answers when asked why a task stands where it does; None while nobody owns the pool."""
        state = self.live().get(pool)
        if state is None:
            return None
        command = Explain(id="why", pool=pool, actor="local", reply_to="referee", body=TaskVerb(task=task))
        now = max(state.last_at, self.true_clock.wall_ms())
        [answer] = explain(state, command, Context(now=now, log_id=self.store.log_id, format=self.store.format)).drafts
        return answer.message

    def why(self, pool: str, task: str) -> str:
        """The same as a sentence."""
        message = self.explained(pool, task)
        if message is None:
            return "nobody owns the pool now"
        return str(message.get("answer", message).get("text"))
