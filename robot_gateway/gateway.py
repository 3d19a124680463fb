"""The gateway: between the wire and the log. It decides nothing; it sends on, and passes back what owners say.

All state here belongs to one asyncio loop. The log's threads and the thread that follows `outcomes` hand things over
by `call_soon_threadsafe`, outcomes in batches.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from commands.inputs import CommandBase, encode_command
from commands.messages import CLOSE_CODES
from commands.reasons import Refusal
from projections.queries import Tables
from robot_gateway.access import Access
from robot_gateway.bulk import Bulk
from robot_gateway.bulk_folder import BulkFolder
from robot_gateway.following import OutcomeFollower
from robot_gateway.health import PARTS, Health, Owners, degraded
from robot_gateway.heartbeats import HeartbeatGather
from robot_gateway.load import Load
from robot_gateway.metrics import GatewayMetrics, Registry
from robot_gateway.metrics_of_fleet import FleetMetrics
from robot_gateway.pending import BUSY_RETRY_MS, Answer, Asker, Collected, Pending, Waiting, into_future
from robot_gateway.polling import Polling
from robot_gateway.reads import Reads
from robot_gateway.sessions import LOG_AWAY_RETRY_MS, Channel, Session
from robot_gateway.settings import GatewaySettings, settings_problems
from robot_gateway.stream import EventHub
from robot_gateway.submit import SubmitStream
from robot_gateway.tokens import Principal
from streams.port import (
    RECORD_BYTES_MAX,
    VALUE_BYTES_MAX,
    Log,
    LogBusy,
    LogFault,
    NoSuchPartition,
    RecordTooLarge,
    Topic,
)

logger = logging.getLogger("fleetlog.gateway")

SWEEP_EVERY_S: Final = 0.5
TOKENS_EVERY_SWEEPS: Final = 4
MOVED_AFTER_MS: Final = 500
FULL_RETRY_MS: Final = 5_000
BEHIND_S: Final = 10.0
LAST_ANSWERS_S: Final = 2.0
LOOK_EVERY_S: Final = 0.02

Part = Callable[[], str | None]
"""A part of readiness: None while it is ready, else why not, as a sentence."""


@dataclass(slots=True, frozen=True)
class Readiness:
    """One line of `/readyz`: the part, whether it is ready, and what is wrong with it (degraded, where it is ready)."""

    part: str
    ready: bool = True
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.part}: ready"
        return f"{self.part}: degraded: {self.problem}" if self.ready else f"{self.part}: {self.problem}"


class CannotServe(Exception):
    """The gateway cannot start with these settings; the message is one or more sentences that say what to change."""


class Gateway:
    """What HTTP, WebSocket and polling share. Make it, `start` it on the loop that serves, `stop` it there.

    `name` must be new for every life of a process: outcomes addressed to a former life are for nobody.
    `bulk_folder`: where selections of dry runs and bulk works are kept; gateways of one host and log may share it.
    `submissions_stopped` says why no submissions are taken now (a full disk), or None. `clock` gives seconds.
    """

    def __init__(
        self,
        log: Log,
        tables: Tables,
        settings: GatewaySettings,
        name: str,
        bulk_folder: Path,
        *,
        after_wait_s: float = 5.0,
        registry: Registry | None = None,
        submissions_stopped: Part = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises CannotServe, TokenFileUnusable."""
        problems = settings_problems(settings, RECORD_BYTES_MAX)
        if problems:
            raise CannotServe(" ".join(problems))
        self.log, self.settings, self.name, self.clock = log, settings, name, clock
        self.access = Access(settings)
        self.metrics = GatewayMetrics(registry or Registry())
        self.reads = Reads(tables, log, after_wait_s)
        self.hub = EventHub(log)
        self.polling = Polling(self)
        self.bulk = Bulk(self, BulkFolder(bulk_folder))
        self.pending = Pending(settings.unanswered_max, settings.answer_timeout_s, clock)
        self.load = Load(settings, lambda: len(self.sessions), self.pending)
        self.health = Health(log, tables, submissions_stopped, self.load.in_words)
        self.payload_max_bytes = settings.payload_max_bytes
        self.submissions_stopped = submissions_stopped
        gather_s = settings.heartbeat_gather_ms / 1000
        self.follower = OutcomeFollower(log, name, gather_s, self._deliver, self._moved, clock)
        self.gather = HeartbeatGather(log, name, gather_s, lambda: self.follower.followed_at, self._on_loop, clock)
        self.sessions: dict[Session, None] = {}  # in the order in which they came, whatever their addresses
        self.submitters: set[SubmitStream] = set()
        self.stopping = False
        self._by_hello: dict[tuple[str, str, str], Session] = {}
        self._by_epoch: dict[tuple[str, str, int], Session] = {}
        self._parts: dict[str, Part] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._log_id = log.log_id[:8]
        self.metrics.watch(
            lambda: len(self.sessions), lambda: len(self.pending), self._is_ready, lambda: self.load.overloaded
        )
        self.add_part("log", lambda: log.state().problem)
        self.add_part("outcomes", self._outcomes_problem)
        self.add_part("tables", self.reads.problem)
        if self.access.tokens is not None:
            self.add_part("tokens", lambda: self.access.tokens.problem if self.access.tokens else None)

    # ---- life ----

    async def start(self) -> None:
        """Begins to follow outcomes; requests are answered from the moment `/readyz` says so."""
        self._loop = asyncio.get_running_loop()
        self.follower.start(self._loop)
        self.health.start()
        self._sweeper = self._loop.create_task(self._sweep_until_stopped())
        await self.bulk.start()

    async def stop(self) -> None:
        """Takes nothing new, tells robots and submitters to come back, waits a little for answers, ends the threads."""
        self.stopping = True
        self.reads.end_waiting()
        self.gather.flush()
        for session in list(self.sessions):
            session.channel.send(to_json({"type": "moved", "after_ms": MOVED_AFTER_MS}))
            session.close(1012, CLOSE_CODES[1012][0])
        for submitter in list(self.submitters):
            submitter.close(1012, CLOSE_CODES[1012][0])
        give_up = time.monotonic() + LAST_ANSWERS_S
        while len(self.pending) and time.monotonic() < give_up:
            await asyncio.sleep(LOOK_EVERY_S)
        self.pending.end("the gateway stopped before the answer came; asking again with the same command id is safe")
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.bulk.stop()
        await self.hub.stop()
        await asyncio.to_thread(self.follower.stop)
        await asyncio.to_thread(self.health.stop)
        await asyncio.to_thread(self.reads.close)

    def add_part(self, name: str, part: Part) -> None:
        """One more part that must be ready, with a line of its own in `/readyz`."""
        self._parts[name] = part

    def watch_owners(self, statuses: Owners, part: Part) -> None:
        """The owners of this process: a part of readiness, and figures."""
        self.health.owners = statuses
        self.add_part("owners", part)

    def readiness(self, *, with_names: bool = True) -> list[Readiness]:
        """Every part. Degraded parts do not make the gateway unready. `with_names`: whether pools may be named."""
        worse = dict(degraded(self.health.seen, with_names=with_names))
        problems = [(name, part()) for name, part in self._parts.items()]
        lines = [Readiness(name, problem is None, problem or worse.get(name)) for name, problem in problems]
        return [*lines, *(Readiness(part, problem=worse.get(part)) for part in PARTS)]

    def _is_ready(self) -> bool:
        return all(line.ready for line in self.readiness(with_names=False))

    def figures(self, principal: Principal) -> bytes:
        """All figures in Prometheus' text format, of pools those that the token is for."""
        fleet = FleetMetrics(self.health.seen, self.log.bad_snapshots(), principal.covers_pool)
        return self.metrics.exposition() + fleet.exposition()

    def degraded_parts(self) -> list[str]:
        """The parts that are not as they should be, without asking anybody."""
        return [part for part, _ in degraded(self.health.seen, with_names=False)]

    def _outcomes_problem(self) -> str | None:
        if self.stopping:
            return "the gateway is stopping"
        followed_at = self.follower.followed_at
        if self.follower.problem is None and followed_at is not None:
            behind_s = self.clock() - followed_at
            return None if behind_s < BEHIND_S else f"the end was reached {behind_s:.0f} s ago, not since"
        return self.follower.problem

    # ---- commands ----

    def send(self, commands: Sequence[CommandBase], asker: Asker) -> None:
        """Sends commands to their owners; `asker` gets one answer for each, now or later.

        Whatever goes wrong is an answer too: gateway_busy, log_unavailable, too_large, not_ready, no_answer.
        """
        refusal = self._not_now() or self.pending.full_for(len(commands))
        for index, command in enumerate(commands):
            waiting = self.pending.add(command.pool, command.id, asker, index)
            problem = refusal or self._append_command(command, waiting)
            if problem:
                self.pending.refuse(waiting, problem)

    async def ask_all(self, commands: Sequence[CommandBase]) -> list[Answer]:
        """Sends commands and waits for all their answers, in the same order."""
        if not commands:
            return []
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self.send(commands, Collected(len(commands), into_future(future)))
        return await future

    async def ask(self, command: CommandBase) -> Answer:
        """Sends one command and waits for its answer."""
        return (await self.ask_all([command]))[0]

    def _not_now(self) -> Refusal | None:
        """Without following outcomes no answer could be seen; a log that is not the one we know gives none."""
        problem = self.log.state().problem or self._outcomes_problem()
        return None if problem is None else Refusal("not_ready", problem, retry_after_ms=BUSY_RETRY_MS)

    def _append_command(self, command: CommandBase, waiting: Waiting) -> Refusal | None:
        value = encode_command(command)
        self.metrics.commands.inc()
        if len(value) > VALUE_BYTES_MAX:
            return Refusal("too_large", f"a command has at most {VALUE_BYTES_MAX} bytes, this one has {len(value)}")
        try:
            self.log.append(Topic.COMMANDS, command.pool, value, (), partial(self._command_appended, waiting))
        except LogFault as fault:
            return refusal_for(fault)
        return None

    def _command_appended(self, waiting: Waiting, fault: LogFault | None, offset: int) -> None:
        """Called by the log's thread. A written command is answered by its owner, so only a fault wakes the loop."""
        if fault is not None:
            self._on_loop(self.pending.refuse, waiting, refusal_for(fault))

    # ---- reports ----

    def open_session(self, channel: Channel, pool: str, robot: str, principal: Principal) -> Session:
        """A session that waits for its hello."""
        session = Session(self, self.gather, channel, pool, robot, principal, self.clock)
        head: dict[str, Any] = {
            "v": 1,
            "what": "report",
            "pool": pool,
            "robot": robot,
            "gateway": self.name,
            "actor": principal.name,
        }
        if self.access.pools_are_made_on_first_use:
            head["create"] = True
        session.prefix = to_json(head)[:-1] + b',"message":'
        self.sessions[session] = None
        return session

    def sessions_full(self) -> Refusal | None:
        """Why no further session may begin, or None."""
        most, problem = self.settings.sessions_max, self.log.state().problem
        if problem is not None:
            return Refusal("not_ready", problem, retry_after_ms=FULL_RETRY_MS)
        if self.stopping:
            return Refusal("not_ready", "the gateway is stopping", retry_after_ms=FULL_RETRY_MS)
        if len(self.sessions) >= most:
            return Refusal("not_ready", f"{most} robots are connected here already", retry_after_ms=FULL_RETRY_MS)
        return self.load.no_new_work()

    def report(self, session: Session, message_id: str, raw: bytes) -> None:
        """Sends a robot's message to the log as it was sent. Raises LogFault."""
        self.metrics.reports.inc()
        done = partial(self._report_appended, session, message_id)
        self.log.append(Topic.REPORTS, session.pool, session.prefix + raw + b"}", (), done)

    def _report_appended(self, session: Session, message_id: str, fault: LogFault | None, offset: int) -> None:
        """Called by the log's thread."""
        if fault is not None:
            self._on_loop(session.log_is_away, message_id)

    def register(self, session: Session) -> None:
        """From now on messages for this session's hello or epoch reach it."""
        if session.hello is not None:
            self._by_hello[session.pool, session.robot, session.hello] = session
        if session.epoch is not None:
            self._by_epoch[session.pool, session.robot, session.epoch] = session

    def unregister(self, session: Session) -> None:
        """Messages for this session reach it no more; where it has ended, it is forgotten."""
        for table, key in ((self._by_hello, session.hello), (self._by_epoch, session.epoch)):
            place: Any = (session.pool, session.robot, key)
            if table.get(place) is session:
                del table[place]
        if session.ended:
            self.sessions.pop(session, None)

    # ---- what owners say ----

    def _deliver(self, batch: list[dict[str, Any]]) -> None:
        """One batch of outcomes, in their order."""
        delivered = 0
        for outcome in batch:
            try:
                delivered += self._deliver_one(outcome)
            except Exception:
                # One message that we cannot place must not take the others with it.
                logger.exception("an outcome of pool %s could not be delivered", outcome.get("pool"))
        self.metrics.outcomes_delivered.inc(delivered)
        self.metrics.outcomes_for_nobody.inc(len(batch) - delivered)

    def _deliver_one(self, outcome: dict[str, Any]) -> bool:
        """Whether somebody was there for it."""
        pool, robot, message = outcome["pool"], outcome.get("robot"), outcome["message"]
        sequence = outcome.get("position")
        position = f"{self._log_id}~{pool}@{sequence}" if sequence is not None else None
        if robot is None:
            return self.pending.answer(pool, outcome["of"], message, position)
        session = self._session_for(pool, robot, outcome.get("epoch"), message)
        if session is None:
            return False
        session.deliver(message, position or "")
        return True

    def _session_for(self, pool: str, robot: str, epoch: int | None, message: dict[str, Any]) -> Session | None:
        """Answers to a hello by its id, all else by epoch."""
        if message.get("type") in ("welcome", "refused"):
            session = self._by_hello.get((pool, robot, message.get("of") or ""))
            if session is not None:
                return session
        return self._by_epoch.get((pool, robot, epoch)) if epoch is not None else None

    def _moved(self) -> None:
        self.gather.moved()

    def _on_loop(self, step: Callable[..., None], *arguments: Any) -> None:
        """Does `step` on the loop, from another thread; nothing once the loop has ended."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(step, *arguments)
            except RuntimeError:
                logger.debug("the loop has ended, nobody is told")

    # ---- time ----

    async def _sweep_until_stopped(self) -> None:
        sweeps = 0
        while True:
            due = time.monotonic() + SWEEP_EVERY_S
            await asyncio.sleep(SWEEP_EVERY_S)
            self.load.turned(time.monotonic() - due)
            sweeps += 1
            try:
                self._sweep(sweeps % TOKENS_EVERY_SWEEPS == 0)
            except Exception:
                logger.exception("the sweep over sessions failed; the next one comes in %s s", SWEEP_EVERY_S)

    def _sweep(self, tokens_too: bool) -> None:
        """Ends what has waited too long; closes sessions whose token was withdrawn."""
        self.pending.expire()
        if tokens_too and self.access.tokens is not None:
            self.access.tokens.reload_if_changed()
        now = self.clock()
        connected: list[Session | SubmitStream] = [*self.sessions, *self.submitters]
        for one in connected:
            overdue = one.overdue(now)
            if overdue is not None:
                one.close(*overdue)
            elif tokens_too and not self.access.still_valid(one.principal):
                one.close(4003, CLOSE_CODES[4003][0])


def refusal_for(fault: LogFault) -> Refusal:
    """What an asker is told when the log did not take a record."""
    if isinstance(fault, LogBusy):
        return Refusal("gateway_busy", "too much waits to be written to the log", retry_after_ms=BUSY_RETRY_MS)
    if isinstance(fault, RecordTooLarge):
        return Refusal("too_large", "the record is larger than the log takes")
    if isinstance(fault, NoSuchPartition):
        return Refusal("no_such_pool", str(fault))
    return Refusal("log_unavailable", "the log does not answer", retry_after_ms=LOG_AWAY_RETRY_MS)
