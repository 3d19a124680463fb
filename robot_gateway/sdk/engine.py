"""What runs inside a robot: one lock, the attempts held, and the threads around them.

- The *session* thread owns the connection (session.py); it never runs a handler and never waits for one.
- The *keeper* thread sends heartbeats and ends work whose lease this robot can no longer be sure of.
- Handlers run in the pool's threads, in worker processes or in an event loop.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from commands.messages import (
    CAPABILITIES_MAX,
    Ack,
    Assign,
    AttemptNotice,
    Bye,
    Cancel,
    Fault,
    FaultText,
    HeartbeatAck,
    Hello,
    Ready,
    Recovered,
    Refused,
    Stop,
    Update,
    Welcome,
    decode_gateway_message,
    encode_robot_message,
)
from commands.requirements import kind_condition
from robot_gateway.sdk.context import Answered
from robot_gateway.sdk.endings import Ending
from robot_gateway.sdk.errors import FleetlogError
from robot_gateway.sdk.holdings import Attempt, End, Holdings, Phase, Start, Tell, Until
from robot_gateway.sdk.outbox import FINAL_TYPES, Message, Outbox
from robot_gateway.sdk.runner import Runner
from robot_gateway.sdk.runs import Handler, objection_of
from robot_gateway.sdk.spool import Spool
from robot_gateway.sdk.websocket import Waker
from robot_gateway.sdk.wire import boot_seconds

logger = logging.getLogger("fleetlog")

KEEPER_IDLE_S: Final = 5.0
FAREWELL_S: Final = 5.0


@dataclass(slots=True)
class Config:
    """What a robot is told by its program. `cancel_grace_s`: how long a cancelled handler may go on before it is
    ended by force, where that is possible."""

    robot: str
    pool: str
    gateway: str
    token: str | None
    capabilities: list[str]
    slots: int
    spool: str | os.PathLike[str] | None
    cancel_grace_s: float | None
    agent: str
    handlers: dict[str, Handler] = field(default_factory=dict)

    @property
    def told(self) -> list[str]:
        """The capabilities as told: with the kinds that have handlers, so that no other kind is assigned.

        Where both do not fit together the kinds are left out, and what has no handler is rejected one by one.
        """
        told = list(dict.fromkeys([*self.capabilities, *map(kind_condition, self.handlers)]))
        return told if len(told) <= CAPABILITIES_MAX else self.capabilities


class Engine:
    """A robot at work. Everything that several threads touch is behind `lock`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lock = threading.RLock()  # a handler's check is asked with it held, and may use the robot
        self._changed = threading.Condition(self.lock)
        self.outbox = Outbox(uuid.uuid4().hex[:16])
        objection = partial(objection_of, config.handlers)
        self.holdings = Holdings(self.outbox, config.slots, objection, config.cancel_grace_s)
        self.ended = threading.Event()
        self.error: FleetlogError | None = None
        self.waker = Waker()
        self.heartbeat_every_s = 2.5
        self.draining = False
        self.epoch: int | None = None
        self.said_bye = False
        self._ready = config.slots
        self._fault: FaultText | None = None
        self._next_beat = 0.0
        self._keeper_due = 0.0
        self._keeper_woken = threading.Event()
        # The runner may fork, and what is forked must have neither threads nor files of ours.
        self._runner = Runner(config.handlers, config.slots, config.gateway, config.token)
        self._spool = Spool(config.spool) if config.spool is not None else None
        self._on: Mapping[str, Callable[[Any, float], Message | None]] = {
            "ack": self._on_ack,
            "assign": self._on_assign,
            "refused": self.holdings.refused,
            "heartbeat_ack": self._on_heartbeat_ack,
            "cancel": self._on_cancel,
            "stop": self._on_stop,
        }
        for left in self._spool.left_behind() if self._spool else ():
            self.holdings.adopt(left.task, left.attempt, left.message)

    def start_keeper(self) -> threading.Thread:
        """Begin heartbeats and own deadlines."""
        keeper = threading.Thread(target=self._keep, name="fleetlog-keeper", daemon=True)
        keeper.start()
        return keeper

    # ---- for the session thread ----

    def hello(self) -> bytes:
        """A hello with everything held; nothing else is sent until it is answered."""
        with self.lock:
            self.epoch = None
            self.outbox.disconnected()
            hello = Hello(
                id=self.outbox.new_id(),
                slots=self.config.slots,
                capabilities=self.config.told,
                holding=self.holdings.held(),
                fault=self._fault,
                agent=self.config.agent,
            )
            return encode_robot_message(hello)

    def welcomed(self, welcome: Welcome) -> None:
        """The session began: final reports go first, then what else has no answer, then ready."""
        with self.lock:
            self.epoch = welcome.epoch
            self.draining = welcome.draining
            self.heartbeat_every_s = welcome.heartbeat_every_ms / 1000
            self.holdings.welcomed(welcome)
            self._say_ready()
            self._next_beat = boot_seconds()
            self._perform()
            self._changed.notify_all()
        self._keeper_woken.set()

    def disconnected(self) -> None:
        """The connection is gone; handlers go on until their own deadlines."""
        with self.lock:
            self.epoch = None
            self.outbox.disconnected()

    def lease_left_s(self) -> float | None:
        """Time until the first own deadline that a connection could still move; None if there is none."""
        now = boot_seconds()
        with self.lock:
            deadline = self.holdings.next_own_deadline(now)
        return None if deadline is None else deadline - now

    def receive(self, messages: list[bytes]) -> str | None:
        """What the gateway said. Returns the reason of a refusal that calls for a new hello, if there was one."""
        decoded = [message for message in map(_decoded, messages) if message is not None]
        done: list[tuple[Message, Any]] = []
        hello_again = None
        now = boot_seconds()
        with self.lock:
            for message in decoded:
                if message.type == "refused" and message.reason in ("no_session", "hello_first"):
                    hello_again = message.reason
                    continue
                handle = self._on.get(message.type)
                answered = handle(message, now) if handle is not None else None
                if answered is not None:
                    done.append((answered, message))
            self._perform()
            if self.holdings.leaving or (done and not self.holdings.attempts):
                self._changed.notify_all()
        for answered, answer in done:
            self._tell(answered, answer)
        return hello_again

    def finish(self, error: FleetlogError | None) -> None:
        """The robot is over: nothing more is sent, all work is ended."""
        with self.lock:
            if self.ended.is_set():
                return
            self.error = error
            self.holdings.leave()
            for attempt in self.holdings.attempts.values():
                self.holdings.stop(AttemptNotice(task=attempt.task, attempt=attempt.number))
            self._perform()
            self.ended.set()
            self._changed.notify_all()
        self._keeper_woken.set()
        self.waker.wake()

    # ---- for the program ----

    def say_ready(self, slots: int) -> None:
        """At most that many slots may be in use."""
        with self.lock:
            self._ready = slots
            self._say_ready()
        self.waker.wake()

    def say_update(self, slots: int | None, capabilities: list[str] | None) -> None:
        """Other slots or capabilities from here on."""
        with self.lock:
            if slots is not None:
                self.config.slots = self.holdings.slots = self._ready = slots
                self._runner.resize(slots)
            if capabilities is not None:
                self.config.capabilities = capabilities
            if self.epoch is not None:
                told = None if capabilities is None else self.config.told
                update = Update(id=self.outbox.new_id(), slots=slots, capabilities=told)
                self.outbox.add(self.outbox.message(update))
                self._say_ready()
        self.waker.wake()

    def say_fault(self, text: str, code: str | None) -> None:
        """The robot cannot work; it keeps what it holds."""
        with self.lock:
            self._fault = FaultText(text=text, code=code)
            if self.epoch is not None:
                self.outbox.add(self.outbox.message(Fault(id=self.outbox.new_id(), text=text, code=code)))
        self.waker.wake()

    def say_recovered(self) -> None:
        """The fault is gone."""
        with self.lock:
            self._fault = None
            if self.epoch is not None:
                self.outbox.add(self.outbox.message(Recovered(id=self.outbox.new_id())))
        self.waker.wake()

    def what_goes_on(self) -> str:
        """What a robot that leaves has to wait for, in words; nothing: ''."""
        with self.lock:
            run = sum(attempt.phase is not Phase.ENDED for attempt in self.holdings.attempts.values())
            ended = len(self.holdings.attempts) - run
        said = [(run, "task runs", "tasks run"), (ended, "report has no answer", "reports have no answer")]
        return " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in said if n)

    def leave(self, grace_s: float) -> None:
        """Take nothing new, let what runs end within `grace_s`, stop the rest, say bye.

        A thread that does not obey is left to its lease: `stopped` and `bye` would not be true.
        """
        with self.lock:
            self.holdings.leave()
            self._ready = 0
            self._say_ready()
            self.waker.wake()
            self._wait_until(self._idle, grace_s)
            if self._idle():
                self._say_bye()
                return
            self.holdings.end_all(boot_seconds())
            self._perform()
            self._keeper_woken.set()
            self._wait_until(self._idle, (self.config.cancel_grace_s or 0) + FAREWELL_S)
            if self._idle():
                self._say_bye()
            else:
                logger.warning("%d attempts had not ended and are left to their leases", len(self.holdings.attempts))

    def close(self) -> None:
        """Give everything back; handlers in threads that still run are abandoned."""
        self._runner.close()
        if self._spool is not None:
            self._spool.close()

    def wait_for_epoch(self, timeout_s: float | None) -> bool:
        """Whether the robot is welcome (or over) within `timeout_s`."""
        with self.lock:
            self._changed.wait_for(lambda: self.epoch is not None or self.ended.is_set(), timeout_s)
            return self.epoch is not None

    # ---- rules ----

    def _idle(self) -> bool:
        return not self.holdings.attempts

    def _say_ready(self) -> None:
        if self.epoch is not None:
            n = min(self._ready, self.config.slots)
            self.outbox.add(self.outbox.message(Ready(id=self.outbox.new_id(), n=n)))

    def _say_bye(self) -> None:
        if self.epoch is None or self.ended.is_set():
            return
        bye = self.outbox.message(Bye(id=self.outbox.new_id()))
        self.outbox.add(bye)
        self.said_bye = True
        self.waker.wake()
        self._wait_until(lambda: self.outbox.unanswered(bye.id) is None, FAREWELL_S)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        self._changed.wait_for(lambda: condition() or self.ended.is_set(), timeout_s)

    def _on_ack(self, ack: Ack, now: float) -> Message | None:
        return self.holdings.acknowledged(ack, now)

    def _on_assign(self, assign: Assign, now: float) -> None:
        self.holdings.assigned(assign, now)

    def _on_heartbeat_ack(self, ack: HeartbeatAck, now: float) -> None:
        self.draining = ack.draining
        self.heartbeat_every_s = ack.heartbeat_every_ms / 1000
        self.holdings.beat_acknowledged(ack, now)

    def _on_cancel(self, cancel: Cancel, now: float) -> None:
        self.holdings.cancel(AttemptNotice(task=cancel.task, attempt=cancel.attempt, reason=cancel.reason), now)

    def _on_stop(self, stop: Stop, now: float) -> None:
        self.holdings.stop(AttemptNotice(task=stop.task, attempt=stop.attempt, reason=stop.reason))

    def _tell(self, message: Message, answer: Any) -> None:
        """A message is done with: whoever waits for that, and the disk, are told."""
        if isinstance(answer, Refused):
            logger.warning("%s was refused: %s (%s)", message.type, answer.reason, answer.text)
        if message.on_answer is not None:
            message.on_answer(answer)
        if self._spool is not None and message.type in FINAL_TYPES:
            self._spool.done(message.id)

    def _perform(self) -> None:
        """Carry out the orders about handlers; none of this waits, so it may be done under the lock."""
        for order in self.holdings.take_orders():
            match order:
                case Start() if order.attempt.why is not None:
                    # Told to end between its ack and now.
                    self._runner.soon(partial(self.finish_attempt, order.attempt, Ending("stopped")))
                case Start():
                    attempt = order.attempt
                    attempt.run = self._runner.start(order.assign, _AttemptLink(self, attempt))
                    if attempt.outer_deadline is not None:
                        attempt.run.until(attempt.outer_deadline)
                    if attempt.deadline is not None and attempt.deadline < self._keeper_due:
                        self._keeper_woken.set()
                case End(force=True):
                    order.run.kill(order.why)
                case End():
                    order.run.cancel(order.why)
                    self._keeper_woken.set()
                case Until():
                    order.run.until(order.deadline)
                case Tell():
                    self._runner.soon(partial(self.finish_attempt, order.attempt, order.ending))

    def finish_attempt(self, attempt: Attempt, ending: Ending) -> None:
        """The handler of `attempt` is over: keep the report on disk if asked to, and send it."""
        if ending.kind == "stopped" and attempt.why is None and attempt.is_over(boot_seconds()):
            attempt.why = "own_deadline"  # its process was ended from outside before the keeper came to it
        report = self.holdings.report_of(attempt, ending)
        if self._spool is not None:
            try:
                self._spool.put(attempt.task, attempt.number, report)
            except (OSError, ValueError) as problem:
                logger.error("a report could not be kept on disk, it is sent all the same: %s", problem)
        with self.lock:
            self.holdings.ended(attempt, ending, report, boot_seconds())
            self._perform()
        self.waker.wake()

    def save_checkpoint(self, attempt: Attempt, value: bytes, on_answer: Answered) -> None:
        """Send the next checkpoint of `attempt`."""
        with self.lock:
            self.holdings.checkpoint(attempt, value, on_answer)
        self.waker.wake()

    # ---- the keeper ----

    def _keep(self) -> None:
        while not self.ended.is_set():
            self._keeper_woken.clear()
            now = boot_seconds()
            with self.lock:
                if self.epoch is not None and self._next_beat <= now:
                    self.holdings.heartbeat(now)
                    self._next_beat = max(self._next_beat + self.heartbeat_every_s, now)
                    self.waker.wake()
                due = self.holdings.tick(now)
                self._perform()
                beat = self._next_beat if self.epoch is not None else now + KEEPER_IDLE_S
                self._keeper_due = beat if due is None else min(due, beat)
            self._keeper_woken.wait(max(0.0, self._keeper_due - boot_seconds()))


@dataclass(frozen=True, slots=True)
class _AttemptLink:
    """Where a handler's progress and checkpoints go."""

    engine: Engine
    attempt: Attempt

    def progress(self, percent: int | None, note: str | None) -> None:
        self.attempt.note_progress(percent, note)

    def checkpoint(self, value: bytes, on_answer: Answered) -> None:
        self.engine.save_checkpoint(self.attempt, value, on_answer)

    def ended(self, ending: Ending) -> None:
        self.engine.finish_attempt(self.attempt, ending)


def _decoded(value: bytes) -> Any:
    """A message of the gateway; one that this version does not know is passed over."""
    try:
        return decode_gateway_message(value)
    except ValidationError:
        logger.debug("passed over a message of the gateway: %.200r", value)
        return None
