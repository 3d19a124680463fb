"""A pool on a virtual clock, with small robots and a submitter: what the tests of the core are driven by.

`World` holds one `Pool` as an owner would: it takes inputs, lets time act, dispatches, and delivers outcomes. Every
event goes through the checker of invariants, and `verify` holds the log against the live state: folded from its
stored bytes, and restored from a snapshot. Seconds are of the virtual clock; nothing here waits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.checker import Checker, Finding
from commands.cut import snapshot_lines
from commands.decide import Context, Draft
from commands.events import Event
from commands.evolve import apply_stored, new_pool
from commands.pool import SYSTEM_ACTOR, Cause, Pool, Written, WrittenEvent
from commands.rows import canonical, restore
from commands.state import PoolState

START_AT = 1_790_000_040_000
"""The first instant of a world: a whole minute."""
POOL = "hall"
LOG_ID = "11111111-2222-4333-8444-555555555555"

Message = dict[str, Any]


class Robot:
    """A robot's side of the protocol: numbers its messages and keeps what it was told."""

    def __init__(self, world: "World", name: str, gateway: str = "g1") -> None:
        self.world, self.name, self.gateway = world, name, gateway
        self.boot, self.counter = f"{name}-boot1", 0
        self.epoch, self.seq = 0, 0
        self.slots, self.capabilities = 1, list[str]()
        self.told: list[Message] = []
        self.holds: dict[str, int] = {}
        self.alive = False

    # ---- what it says ----

    def send(self, shape: Any, **fields: Any) -> Message:
        """A message of the current session, and its answer."""
        self.counter += 1
        self.seq += 1
        return self.deliver(shape(id=f"{self.boot}.{self.counter}", epoch=self.epoch, seq=self.seq, **fields))

    def deliver(self, message: Any) -> Message:
        """A message exactly as it is, and its answer (empty where there is none)."""
        self.world.sent = (self, message)
        report = i.Report(
            pool=self.world.name, robot=self.name, gateway=self.gateway, actor="local", create=True, message=message
        )
        self.world.take(i.decode_report(i.encode_report(report)))
        return self.world.answers.get(message.id, {})

    def hello(self, *held: tuple[str, int], fresh: bool = False, **fields: Any) -> Message:
        """A new session that names the attempts `held`; `fresh`: a new start of the program."""
        if fresh:
            self.boot, self.counter = f"{self.name}-boot{int(self.boot.rpartition('boot')[2]) + 1}", 0
        self.counter += 1
        self.slots = fields.pop("slots", self.slots)
        self.capabilities = list(fields.pop("capabilities", self.capabilities))
        holding = [m.HeldAttempt(task=task, attempt=attempt, started=True) for task, attempt in held]
        message = m.Hello(
            id=f"{self.boot}.{self.counter}",
            slots=self.slots,
            capabilities=self.capabilities,
            holding=holding,
            **fields,
        )
        self.holds = dict(held)
        return self.deliver(message)

    def ready(self, n: int | None = None) -> Message:
        """At most `n` slots in use (all)."""
        return self.send(m.Ready, n=self.slots if n is None else n)

    def accept(self, task: str, attempt: int | None = None) -> Message:
        """Takes an assignment (the newest one); holds it once that is answered."""
        offers = [message["attempt"] for message in self.news("assign") if message["task"] == task]
        number = attempt or (offers[-1] if offers else self._attempt(task, None))
        answer = self.send(m.Accept, task=task, attempt=number)
        if answer.get("type") == "ack":
            self.holds[task] = number
        return answer

    def reject(self, task: str, reason: str = "busy", attempt: int | None = None) -> Message:
        """Does not take an assignment."""
        return self.send(m.Reject, task=task, attempt=self._attempt(task, attempt), reason=reason)

    def checkpoint(self, task: str, number: int, value: Any = None, attempt: int | None = None) -> Message:
        """Saves a value."""
        return self.send(m.Checkpoint, task=task, attempt=self._attempt(task, attempt), number=number, value=value)

    def complete(self, task: str, attempt: int | None = None, result: Any = None) -> Message:
        """Done."""
        return self._final(m.Complete, task, attempt, result=result)

    def fail(self, task: str, attempt: int | None = None, fatal: bool = False, **fields: Any) -> Message:
        """Failed, retryably or fatally."""
        error = m.ErrorReport(type="Broken", message="it did not work")
        failure_class = "fatal" if fatal else "retryable"
        return self._final(m.Fail, task, attempt, failure_class=failure_class, error=error, **fields)

    def stopped(self, task: str, why: str, attempt: int | None = None, **fields: Any) -> Message:
        """Stopped without an end of its own."""
        return self._final(m.Stopped, task, attempt, why=why, **fields)

    def beat(self, *held: tuple[str, int] | i.HeldByRobot) -> None:
        """A heartbeat that names `held`, or else everything the robot holds."""
        named = [h if isinstance(h, i.HeldByRobot) else i.HeldByRobot(task=h[0], attempt=h[1]) for h in held]
        named = named or [i.HeldByRobot(task=task, attempt=attempt) for task, attempt in self.holds.items()]
        self.seq += 1
        beat = i.Beat(robot=self.name, epoch=self.epoch, seq=self.seq, holding=named)
        self.world.take(i.Heartbeats(pool=self.world.name, gateway=self.gateway, beats=[beat]))

    def _final(self, shape: Any, task: str, attempt: int | None, **fields: Any) -> Message:
        number = self._attempt(task, attempt)
        if self.holds.get(task) == number:
            del self.holds[task]
        return self.send(shape, task=task, attempt=number, **fields)

    def _attempt(self, task: str, attempt: int | None) -> int:
        """The attempt meant: the one named, the one held, or the newest one."""
        if attempt is not None:
            return attempt
        row = self.world.row(task)
        return self.holds.get(task) or max(1, row.attempt if row is not None else 1)

    # ---- what it is told ----

    def hear(self, message: Message, epoch: int | None) -> None:
        """One message for the session `epoch`."""
        if message["type"] == "welcome":
            self.epoch, self.seq = message["epoch"], 0
        elif epoch != self.epoch:
            return
        elif message["type"] == "stop" and self.holds.get(message["task"]) == message["attempt"]:
            del self.holds[message["task"]]
        self.told.append(message)

    def assigned(self) -> list[str]:
        """Tasks that it was told to take, in order."""
        return [message["task"] for message in self.told if message["type"] == "assign"]

    def news(self, kind: str) -> list[Message]:
        """What it was told of one type."""
        return [message for message in self.told if message["type"] == kind]

    @property
    def state(self) -> str:
        """How the pool sees it."""
        return self.world.state.robots[self.name].state


@dataclass
class World:
    """One pool, its robots, and the clock. `settled_lag_ms`: how far input is known to be applied behind `now`."""

    settings: dict[str, Any] = field(default_factory=dict)
    name: str = POOL
    now: int = START_AT
    settled_lag_ms: int = 0
    dispatching: bool = True
    listener: Callable[[Draft], None] | None = None

    def __post_init__(self) -> None:
        self.written = Written()
        self.pool = Pool.new(self.name, self.written, self.now)
        self.checker = Checker(self.name)
        self.findings: list[Finding] = []
        self.log: list[WrittenEvent] = []
        self.answers: dict[str, Message] = {}
        self.robots: dict[str, Robot] = {}
        self.sent: Any = None
        self.wall_at: int | None = None
        self._commands = 0
        self._next_beat_at = self.now

    # ---- parts ----

    @property
    def state(self) -> PoolState:
        """The live state."""
        return self.pool.state

    @property
    def events(self) -> list[Event]:
        """Everything that happened."""
        return [row.event for row in self.log]

    def named(self, name: str) -> list[Any]:
        """The events of one type."""
        return [event for event in self.events if event.name == name]

    def row(self, task: str) -> Any:
        """What the pool knows of a task, open or ended, or None."""
        return self.state.tasks.get(task) or self.state.ended.get(task)

    def at(self, task: str) -> str:
        """The state of a task."""
        row = self.row(task)
        return "unknown" if row is None else str(row.state)

    def robot(self, name: str, **fields: Any) -> Robot:
        """A robot that has said hello and is ready for all its slots."""
        robot = self.stranger(name)
        robot.hello(**fields)
        robot.ready()
        return robot

    def stranger(self, name: str, gateway: str = "g1") -> Robot:
        """A robot that has not said hello."""
        return self.robots.setdefault(name, Robot(self, name, gateway))

    def keep(self, *robots: Robot) -> None:
        """These robots beat from now on, as time goes, until they are `alive` no more."""
        for robot in robots:
            robot.alive = True

    # ---- input ----

    def context(self) -> Context:
        """What a decision may use now."""
        return Context(
            now=self.pool.instant(self.now), log_id=LOG_ID, format=1, defaults=self.settings, wall_at=self.wall_at
        )

    def do(self, shape: Any, body: Any, command_id: str | None = None, actor: str = "local") -> Message:
        """A command, through the wire, and its answer: what was accepted, or the refusal."""
        self._commands += 1
        command = shape(
            id=command_id or f"c{self._commands}", pool=self.name, actor=actor, reply_to="g1", create=True, body=body
        )
        return self.redo(command)

    def redo(self, command: Any) -> Message:
        """A command exactly as it is."""
        self.sent = (None, command)
        self.answers.pop(command.id, None)
        self.take(i.decode_command(i.encode_command(command)))
        answer = self.answers.get(command.id, {})
        accepted: Message | None = answer.get("answer")
        return answer if accepted is None else accepted

    def submit(self, task: str, command_id: str | None = None, **fields: Any) -> Message:
        """A task of kind `weld`."""
        body = i.Submission(task=task, kind=fields.pop("kind", "weld"), **fields)
        return self.do(i.Submit, body, command_id)

    def verb(self, shape: Any, task: str, reason: str | None = "because", **fields: Any) -> Message:
        """A verb on a task."""
        body = shape.__dataclass_fields__["body"].type
        return self.do(shape, body(task=task, reason=reason, **fields))

    def take(self, asked: Any) -> None:
        """One input as the owner takes it; then time acts, then dispatch."""
        if isinstance(asked, i.Heartbeats):
            self.pool.take_heartbeats(asked, self.context())
        else:
            self.pool.take(asked, self.context())
        self.tick()

    # ---- time ----

    def tick(self) -> None:
        """Time acts as of now, up to what is settled."""
        now = self.pool.instant(self.now)
        self.pool.advance(now, now - self.settled_lag_ms)
        self.settle()

    def wait(self, seconds: float) -> None:
        """The clock goes on; robots that are alive beat, and time acts at every instant at which it may."""
        end = self.now + round(seconds * 1000)
        while self.now < end:
            self.now = min(end, max(self.now + 1, self._next_instant(end)))
            if self.now >= self._next_beat_at:
                self._beat_all()
            self.tick()

    def _next_instant(self, end: int) -> int:
        at = self.pool.next_at()
        beat = self._next_beat_at if any(robot.alive for robot in self.robots.values()) else end
        return min(end, beat, end if at is None else at + self.settled_lag_ms)

    def _beat_all(self) -> None:
        for robot in self.robots.values():
            if robot.alive:
                robot.beat()
        half = self.state.window_ms_at(self.now) // 2
        self._next_beat_at = self.now - self.now % half + half

    def settle(self) -> None:
        """Dispatch, then commit: the checker sees every event, outcomes reach whom they are for."""
        if self.dispatching:
            self.pool.dispatch(self.pool.instant(self.now), 1_000)
        for row in self.written.events:
            self.log.append(row)
            self.findings += self.checker.event(row.value, row.hash)
        outcomes = list(self.written.outcomes)
        self.written.events.clear()
        self.written.outcomes.clear()
        for outcome in outcomes:
            self._deliver(outcome.draft)

    def _deliver(self, draft: Draft) -> None:
        of = draft.of or draft.message.get("of")
        if of is not None:
            self.answers[of] = draft.message
        if self.listener is not None:
            self.listener(draft)
        robot = self.robots.get(draft.robot or "")
        if robot is not None and draft.to == robot.gateway:
            robot.hear(draft.message, draft.epoch)

    # ---- what an owner does ----

    def note(self, event: Event) -> None:
        """An event that the owner states."""
        self.pool.note(event, Cause("owner:test", SYSTEM_ACTOR), self.pool.instant(self.now))
        self.settle()

    def take_over(self, gap_s: float = 0.0) -> None:
        """Another process decides: it knows the log alone, and says so."""
        self.wait_without_owner(gap_s)
        self.pool = Pool(self.folded(), self.written, self.now)
        gap_ms = round(gap_s * 1000)
        if self.state.exists:
            self.note(e.OwnershipTaken(reason="hand_over", owner="test", partition=0, software="1", gap_ms=gap_ms))

    def wait_without_owner(self, seconds: float) -> None:
        """The clock goes on and nobody decides."""
        self.now += round(seconds * 1000)

    # ---- proof ----

    def folded(self) -> PoolState:
        """The state that the stored bytes of the log give."""
        state = new_pool(self.name)
        for offset, row in enumerate(self.log):
            apply_stored(state, row.value, offset)
        return state

    def restored(self) -> PoolState:
        """The state that a snapshot of the live one gives."""
        [state] = restore(list(snapshot_lines(self.state)), self.now)
        return state

    def verify(self) -> None:
        """The log keeps every invariant, and says as much as the live state."""
        assert self.findings + self.checker.finish() == []
        if not self.log:
            return
        live, folded = canonical(self.state), self.folded()
        assert canonical(folded) == live
        assert folded.chain == self.state.chain == self.checker.chain
        assert canonical(self.restored()) == live


def choices(state: PoolState, now: int, most: int = 100) -> list[tuple[str, str]]:
    """The next assignments that this state makes, as (task, robot); the state goes on from them.

    What time has made eligible by `now` is looked at first, as an owner does after it has folded the log.
    """
    written = Written()
    pool = Pool(state, written, now)
    pool.advance(now, now)
    pool.dispatch(now, most)
    return [(row.event.task, row.event.robot) for row in _assignments(written)]


def _assignments(written: Written) -> Iterator[Any]:
    return (row for row in written.events if isinstance(row.event, e.TaskAssigned))
