"""Gateways of the simulation: the product's own, on virtual time, and the connections of robots to them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from fleetlog.sim.scheduler import HostClock, Process, Scheduler
from fleetlog.sim.site import Bell, SimLog
from projections.queries import Tables
from robot_gateway.following import OutcomeFollower
from robot_gateway.gateway import SWEEP_EVERY_S, Gateway
from robot_gateway.heartbeats import HeartbeatGather
from robot_gateway.sessions import Session
from robot_gateway.settings import GatewaySettings
from robot_gateway.tokens import Principal
from streams.memory_log import MemoryStore
from streams.port import Topic

ROBOTS: Final = Principal("local", "operator")
ONE_WAY_S: Final = (0.0005, 0.02)
NOTICED_S: Final = 5.0
"""How long, at most, either side of a cut connection takes to find out."""


class SimFollower(OutcomeFollower):
    """Follows outcomes when the log's bell rings, instead of in a thread."""

    def begin(self, process: Process, log: SimLog) -> None:
        """From the present end on."""
        self._process = process
        loop: Any = process
        self._loop = loop
        self._pending = False
        bell: Any = Bell(self._soon)
        self._bell = bell
        self._bells = log.bells
        for partition in range(log.partitions):
            log.bells.hang(Topic.OUTCOMES, partition, self._bell)
        process.every(self._ask_every_s, self._look)
        self._look()

    def kill(self) -> None:
        """Hears nothing any more."""
        self.skip()
        for partition in range(self._log.partitions):
            self._bells.take_down(Topic.OUTCOMES, partition, self._bell)

    def skip(self) -> None:
        """What came and was not read yet is lost, as where the log keeps it no more."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _soon(self) -> None:
        if not self._pending:
            self._pending = True
            self._process.later(0.001, self._read)

    def _read(self) -> None:
        self._pending = False
        self._guarded(self.read_once)

    def _look(self) -> None:
        self._guarded(self.ask_once)
        self._soon()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as fault:
            self.problem = str(fault) or type(fault).__name__


class SimGateway(Gateway):
    """One life of a gateway process."""

    def __init__(self, process: Process, store: MemoryStore, tables: Path, settings: GatewaySettings) -> None:
        self.process = process
        self.sim_log = SimLog(store)
        clock = process.clock.seconds
        name = process.name
        super().__init__(self.sim_log, Tables(tables), settings, name, tables / "bulk", clock=clock)
        gather_s = settings.heartbeat_gather_ms / 1_000
        self._sim_follower = SimFollower(self.sim_log, name, gather_s, self._deliver, self._moved, clock)
        self.follower = self._sim_follower
        followed_at: Callable[[], float | None] = lambda: self.follower.followed_at  # noqa: E731
        self.gather = HeartbeatGather(
            self.sim_log, name, gather_s, followed_at, self._on_loop, clock, later=process.later
        )
        loop: Any = process
        self._loop = loop
        self._sim_follower.begin(process, self.sim_log)
        process.every(SWEEP_EVERY_S, partial(self._sweep, False))

    def die(self) -> None:
        """Its process was killed."""
        self._sim_follower.kill()

    def skip_outcomes(self) -> None:
        """Answers that are on their way are lost."""
        self._sim_follower.skip()


class Link:
    """One connection of a robot: what is said arrives in order, each way in its own time, until it is cut.

    `late`: what was under way when it was cut still arrives at the gateway.
    """

    def __init__(self, scheduler: Scheduler, random: Random, robot: Any, gateway: SimGateway) -> None:
        self._random, self._robot, self._gateway = random, robot, gateway
        self._scheduler = scheduler
        self._up_ms = self._down_ms = 0.0
        self._cut = self._late = False
        self.session: Session = gateway.open_session(self, robot.pool, robot.name, ROBOTS)

    @property
    def gateway(self) -> SimGateway:
        """Where it leads."""
        return self._gateway

    # ---- the robot's side ----

    def say(self, raw: bytes) -> None:
        """The robot sends."""
        self._up_ms = self._arrival(self._up_ms)
        self._gateway.process.later((self._up_ms - self._scheduler.now_ms) / 1_000, partial(self._heard, raw))

    def _heard(self, raw: bytes) -> None:
        if not self._cut or self._late:
            self.session.receive(raw)

    def leave(self) -> None:
        """The robot closes it."""
        self._gateway.process.later(self._random.uniform(*ONE_WAY_S), self._end)

    # ---- the gateway's side: `sessions.Channel` ----

    def send(self, message: bytes) -> None:
        """The gateway sends."""
        self._down_ms = self._arrival(self._down_ms)
        self._robot.process.later((self._down_ms - self._scheduler.now_ms) / 1_000, partial(self._told, message))

    def _told(self, message: bytes) -> None:
        if not self._cut:
            self._robot.hear(self, message)

    def close(self, code: int, reason: str) -> None:
        """The gateway ends it."""
        self._down_ms = self._arrival(self._down_ms)
        closed = partial(self._robot.closed, self, code)
        self._robot.process.later((self._down_ms - self._scheduler.now_ms) / 1_000, closed)

    def waits_too_long(self, now: float) -> bool:
        """Robots here read what comes."""
        return False

    # ---- the network ----

    def cut(self, late: bool = False) -> None:
        """Nothing passes any more; both sides find out in their own time."""
        self._cut, self._late = True, late
        self._gateway.process.later(self._random.uniform(0.0, NOTICED_S), self._end)
        self._robot.process.later(self._random.uniform(0.0, NOTICED_S), partial(self._robot.closed, self, 1006))

    def _end(self) -> None:
        if not self.session.ended:
            self.session.end()

    def _arrival(self, before_ms: float) -> float:
        return max(before_ms, self._scheduler.now_ms + 1_000 * self._random.uniform(*ONE_WAY_S))


class GatewayProcess(Process):
    """A gateway's process, with its one life."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        clock: HostClock,
        store: MemoryStore,
        tables: Path,
        given: GatewaySettings,
    ) -> None:
        super().__init__(scheduler, name, clock)
        self.gateway = SimGateway(self, store, tables, given)

    def kill(self) -> None:
        """As in `Process`."""
        super().kill()
        self.gateway.die()
