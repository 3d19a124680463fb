"""Robots of the simulation: the SDK's own bookkeeping (outbox, holdings) with handlers that only take time."""

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from pydantic import ValidationError

from commands.messages import (
    Ack,
    Assign,
    AttemptNotice,
    Bye,
    Complete,
    Hello,
    Ready,
    decode_gateway_message,
    encode_robot_message,
)
from commands.requirements import kind_condition
from fleetlog.sim.gateways import Link
from fleetlog.sim.scheduler import HostClock, Process, Scheduler, Timer
from robot_gateway.sdk.context import Answered
from robot_gateway.sdk.endings import Ending, Why, completed_with, failed
from robot_gateway.sdk.holdings import Attempt, End, Holdings, Run, Start, Tell
from robot_gateway.sdk.outbox import Message, Outbox

FRAMES_BYTES: Final = 1 << 20
WELCOME_WITHIN_S: Final = 5.0
BACK_S: Final = 2.0
POISON: Final = "poison"
FOR_GOOD: Final = frozenset({4001, 4003, 4004})


@dataclass(slots=True)
class Temper:
    """How a robot behaves. `liar`: says what is not true now and then. `deaf`: its handlers do not stop when told."""

    slots: int = 1
    capabilities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("weld", "paint")
    work_s: float = 4.0
    liar: bool = False
    deaf: bool = False
    cancel_grace_s: float | None = None


@dataclass(slots=True)
class Work:
    """One piece of work as it really was, in true time (ms); `ended_ms` is None while it goes on."""

    robot: str
    pool: str
    task: str
    attempt: int
    target: str | None
    began_ms: float
    deaf: bool
    ended_ms: float | None = None


class RunAtWork(Run, Protocol):
    """A handler at work, and what it really does."""

    attempt: Attempt
    assign: Assign
    work: Work


class SimRun:
    """A handler that only takes time, and ends one way or another by chance."""

    def __init__(self, robot: "SimRobot", attempt: Attempt, assign: Assign) -> None:
        self.robot, self.attempt, self.assign = robot, attempt, assign
        self.work = robot.begin(attempt, assign)
        self._over = False
        self._next: Timer | None = None
        self._left = robot.random.choice((0, 0, 0, 1, 2))
        self._go_on()

    def cancel(self, why: Why) -> None:
        """Ends a little later, as somebody who was asked."""
        if not self.robot.temper.deaf:
            self._then(0.2, partial(self._end, Ending("stopped")))

    def kill(self, why: Why) -> None:
        """Ends now; one that is deaf goes on all the same."""
        if not self.robot.temper.deaf:
            self._end(Ending("stopped"))

    def until(self, deadline: float) -> None:
        """Nothing ends it from outside."""

    def _go_on(self) -> None:
        robot = self.robot
        if self.assign.kind == POISON:
            self._then(robot.random.uniform(0.0, 1.0), robot.dies)
        else:
            share = robot.random.expovariate(1.0) * robot.temper.work_s / (self._left + 1)
            self._then(min(share, 8 * robot.temper.work_s), self._comes_on)

    def _comes_on(self) -> None:
        if self._left:
            self._left -= 1
            at = self.attempt.checkpoint_number + 1
            self.robot.save_checkpoint(self.attempt, b'{"of":"%b","at":%d}' % (self.attempt.task.encode(), at))
            self._go_on()
            return
        chance = self.robot.random.random()
        if chance < 0.93:
            self._end(completed_with(b'{"by":"%b"}' % self.robot.name.encode()))
        else:
            self._end(failed("Broken", "it did not work", fatal=chance > 0.97))

    def _then(self, seconds: float, step: Any) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self.robot.process.later(seconds, step)

    def _end(self, ending: Ending) -> None:
        if not self._over:
            self._over = True
            if self._next is not None:
                self._next.cancel()
            self.robot.has_ended(self, ending)


@dataclass(eq=False)
class SimRobot:
    """One robot; `process` is its present life. It connects to a gateway of `gateways()` drawn by chance."""

    scheduler: Scheduler
    random: Random
    name: str
    pool: str
    clock: HostClock
    gateways: Any
    temper: Temper
    done: list[Work] = field(default_factory=list)
    given: list[Assign] = field(default_factory=list)
    lives: int = 0
    retired: bool = False

    def __post_init__(self) -> None:
        self.start()

    def _objection(self, assign: Assign) -> tuple[str, str] | None:
        return None if assign.kind in self.temper.kinds else ("cannot", "no handler")

    # ---- life ----

    def start(self) -> None:
        """A new process of it, which knows nothing."""
        self.lives += 1
        self.process = Process(self.scheduler, f"{self.name}.{self.lives}", self.clock)
        self.outbox = Outbox(f"{self.name}{self.lives:06d}")
        grace_s = self.temper.cancel_grace_s
        self.holdings = Holdings(self.outbox, self.temper.slots, self._objection, grace_s)
        self.runs: dict[tuple[str, int], RunAtWork] = {}
        self.link: Link | None = None
        self._epoch: int | None = None
        self._beat_s = 2.5
        self._next_beat = 0.0
        self._pumping = False
        self._tick: Timer | None = None
        self._tick_ms = 0.0
        self.connect()

    def dies(self) -> None:
        """SIGKILL, or a fault of its own; somebody starts it again a while later."""
        if self.process.alive:
            self.kill()
            self.scheduler.later(self.random.uniform(1.0, 20.0), self.start)

    def kill(self) -> None:
        """SIGKILL: it does nothing any more, and its connection breaks."""
        self.process.kill()
        for run in list(self.runs.values()):
            self._note_end(run)
        if self.link is not None:
            self.link.cut()

    def pause(self, seconds: float) -> None:
        """SIGSTOP for so long: meanwhile nothing is done, and its first act afterwards is to look at its deadlines."""
        self.process.pause(seconds)
        for run in self.runs.values():  # a machine that sleeps does not work
            self._note_end(run)
        self.process.later(seconds, self._after_pause)

    def _after_pause(self) -> None:
        self._keep()
        self.go_on()

    def go_on(self) -> None:
        """What was not ended after a pause works again; what began since then does already."""
        for run in self.runs.values():
            if run.work.ended_ms is not None:
                run.work = self.begin(run.attempt, run.assign)

    # ---- connection ----

    def connect(self) -> None:
        """Says hello at some gateway, or comes again."""
        found = [gateway for gateway in self.gateways() if gateway.process.is_well]
        if self.retired or self.link is not None:
            return
        if not found:
            self.process.later(self.random.uniform(0.1, BACK_S), self.connect)
            return
        self._epoch = None
        self.outbox.disconnected()
        link = self.link = Link(self.scheduler, self.random, self, self.random.choice(found))
        hello = Hello(
            id=self.outbox.new_id(),
            slots=self.temper.slots,
            capabilities=[*self.temper.capabilities, *map(kind_condition, self.temper.kinds)],
            holding=self.holdings.held(),
        )
        raw = encode_robot_message(hello)
        self._greet(link, raw, 4)

    def _greet(self, link: Link, raw: bytes, tries: int) -> None:
        """hello, again and again, until welcome."""
        if self.link is not link or self._epoch is not None:
            return
        if tries == 0:
            self._leave(link)
            return
        link.say(raw)
        self.process.later(WELCOME_WITHIN_S, lambda: self._greet(link, raw, tries - 1))

    def _leave(self, link: Link) -> None:
        link.leave()
        self.closed(link, 1001)

    def closed(self, link: Link, code: int) -> None:
        """The connection is over."""
        if self.link is link:
            self.link, self._epoch = None, None
            self.outbox.disconnected()
            if code in FOR_GOOD:
                # A newer session of ours, or nobody wants us: the program ends and is started again.
                self.dies()
            else:
                self.process.later(self.random.uniform(0.1, BACK_S), self.connect)

    # ---- messages ----

    def hear(self, link: Link, raw: bytes) -> None:
        """The gateway says something."""
        if self.link is not link:
            return
        try:
            message: Any = decode_gateway_message(raw)
        except ValidationError:
            return
        now = self.clock.seconds()
        kind = message.type
        if kind == "welcome":
            self._welcomed(message, now)
        elif kind == "ack":
            self._acknowledged(message, now)
        elif kind == "assign":
            self.given.append(message)
            self.holdings.assigned(message, now)
        elif kind == "refused":
            self._refused(link, message, now)
        elif kind == "heartbeat_ack":
            self._beat_s = message.heartbeat_every_ms / 1_000
            self.holdings.beat_acknowledged(message, now)
            if not (message.stop or message.cancel):
                return  # own deadlines are later than they were, and nothing is due earlier
        elif kind in ("stop", "cancel"):
            notice = AttemptNotice(task=message.task, attempt=message.attempt, reason=message.reason)
            if kind == "stop":
                self.holdings.stop(notice)
            else:
                self.holdings.cancel(notice, now)
        self._keep()

    def _welcomed(self, welcome: Any, now: float) -> None:
        self._epoch = welcome.epoch
        self._beat_s = welcome.heartbeat_every_ms / 1_000
        self.holdings.welcomed(welcome)
        self.say_ready()
        self._next_beat = now

    def say_ready(self) -> None:
        """All its slots, or none once it leaves."""
        n = 0 if self.holdings.leaving else self.temper.slots
        self.outbox.add(self.outbox.message(Ready(id=self.outbox.new_id(), n=n)))

    def _acknowledged(self, ack: Ack, now: float) -> None:
        self._answered(self.holdings.acknowledged(ack, now), ack)

    def _refused(self, link: Link, refused: Any, now: float) -> None:
        if refused.reason in ("no_session", "hello_first") or (refused.of and self._epoch is None):
            self._leave(link)
            return
        self._answered(self.holdings.refused(refused, now), refused)

    def _answered(self, message: Message | None, answer: Any) -> None:
        if message is not None and message.on_answer is not None:
            message.on_answer(answer)

    def save_checkpoint(self, attempt: Attempt, value: bytes, on_answer: Answered = lambda answer: None) -> None:
        """The next checkpoint; `value` is encoded JSON."""
        self.holdings.checkpoint(attempt, value, on_answer)
        self._pump()

    def lie(self) -> None:
        """Says what is not true: an end of somebody's attempt, or of one that never was."""
        if self._epoch is None:
            return
        task = f"t{self.random.randrange(1, 400)}" if self.random.random() < 0.7 else "nowhere"
        attempt = self.random.randrange(1, 4)
        if (task, attempt) not in self.holdings.attempts:
            said = Complete(id=self.outbox.new_id(), task=task, attempt=attempt, result={"lie": True})
            self.outbox.add(self.outbox.message(said))
            self._pump()

    def bye(self) -> None:
        """Leaves in order."""
        if self._epoch is not None and not self.holdings.attempts:
            self.outbox.add(self.outbox.message(Bye(id=self.outbox.new_id())))
            self._pump()

    def _pump(self) -> None:
        """What is to be sent now goes out; comes again when something is due."""
        if not self._pumping and self._epoch is not None and self.outbox.has_due(self.clock.seconds()):
            self._pumping = True
            self.process.later(0.0005, self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        if self.link is None or self._epoch is None:
            return
        for frame in self.outbox.take(self.clock.seconds(), FRAMES_BYTES):
            self.link.say(frame)

    # ---- time ----

    def _keep(self) -> None:
        """Heartbeats, own deadlines, what is due to be sent again; comes again in time."""
        now = self.clock.seconds()
        if self._epoch is not None and self._next_beat <= now:
            self.holdings.heartbeat(now)
            self._next_beat = max(self._next_beat + self._beat_s, now)
            if self.temper.liar and self.random.random() < 0.3:
                self.lie()
        due = self.holdings.tick(now)
        self._perform()
        self._pump()
        self._come_again(now, due)

    def _come_again(self, now: float, due: float | None) -> None:
        """At `due`, or earlier where something else is; not anew where that is when we come anyway."""
        if self._epoch is None:
            at, again = now + 5.0, None
        else:
            at, again = self._next_beat, self.outbox.next_due()
        for other in (due, again):
            if other is not None and other < at:
                at = other
        in_s = self.clock.true_s(max(0.01, at - now))
        tick_ms = self.scheduler.now_ms + in_s * 1_000
        if self._tick is None or abs(tick_ms - self._tick_ms) > 0.001:
            if self._tick is not None:
                self._tick.cancel()
            self._tick, self._tick_ms = self.process.later(in_s, self._keep), tick_ms

    # ---- handlers ----

    def _perform(self) -> None:
        for order in self.holdings.take_orders():
            match order:
                case Start():
                    run = self.make_run(order.attempt, order.assign)
                    self.runs[order.attempt.key], order.attempt.run = run, run
                case End(force=True):
                    order.run.kill(order.why)
                case End():
                    order.run.cancel(order.why)
                case Tell():
                    self._report(order.attempt, order.ending)

    def make_run(self, attempt: Attempt, assign: Assign) -> RunAtWork:
        """The handler of an attempt begins."""
        return SimRun(self, attempt, assign)

    def begin(self, attempt: Attempt, assign: Assign) -> Work:
        """A handler starts, or goes on after a pause."""
        work = Work(
            self.name,
            self.pool,
            attempt.task,
            attempt.number,
            assign.target,
            self.scheduler.now_ms,
            self.temper.deaf,
        )
        self.done.append(work)
        return work

    def has_ended(self, run: RunAtWork, ending: Ending) -> None:
        """A handler is over."""
        self._note_end(run)
        self.runs.pop(run.attempt.key, None)
        self._report(run.attempt, ending)
        self._keep()

    def _note_end(self, run: RunAtWork) -> None:
        if run.work.ended_ms is None:
            run.work.ended_ms = self.scheduler.now_ms

    def _report(self, attempt: Attempt, ending: Ending) -> None:
        report = self.holdings.report_of(attempt, ending)
        self.holdings.ended(attempt, ending, report, self.clock.seconds())
        self._pump()
