"""The attempts that a robot holds, and the duties of the robot protocol about them.

A state machine without clock, socket or threads: what the gateway says, how handlers end and the time (seconds of a
clock that counts sleep) come in as calls; messages go into the outbox, and orders about handlers come out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from commands.messages import (
    Accept,
    Ack,
    Assign,
    AttemptNotice,
    Checkpoint,
    Heartbeat,
    HeartbeatAck,
    HeldAttempt,
    HeldProgress,
    Refused,
    Reject,
    Welcome,
    encode_robot_message,
)
from robot_gateway.sdk.endings import Ending, Why, completed_with, failed, final_report
from robot_gateway.sdk.outbox import FINAL_TYPES, Message, Outbox
from robot_gateway.sdk.wire import with_field

DEADLINE_SHARE: Final = 0.95
"""The share of stop_after_ms after which a robot ends the work by its own clock."""
OUTER_SHARE: Final = 0.975
"""The share after which processes are ended although the robot does nothing (it is stopped)."""
BEATS_REMEMBERED: Final = 64
RETRY_REFUSED_S: Final = 1.0
_ABOUT_THE_BODY: Final = frozenset({"too_large", "invalid_field", "unknown_field", "malformed_json"})

Key = tuple[str, int]


class Phase(Enum):
    """Where an attempt is at this robot."""

    ACCEPTING = "accepting"
    RUNNING = "running"
    ENDED = "ended"


class Run(Protocol):
    """A handler at work."""

    def cancel(self, why: Why) -> None:
        """Ask it to end."""

    def kill(self, why: Why) -> None:
        """End it, by force where that is possible."""

    def until(self, deadline: float) -> None:
        """A deadline (or a later one) at which it ends even if this process does nothing, where that is possible."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt, from its assignment until its final report is acknowledged. Instants are seconds."""

    task: str
    number: int
    phase: Phase
    assign: Assign | None = None
    accept: Message | None = None
    renewed_at: float = 0.0
    stop_after_s: float | None = None
    why: Why | None = None
    kill_at: float | None = None
    progress: int | None = None
    note: str | None = None
    checkpoint_number: int = 0
    ending: Ending | None = None
    known_ending: Ending | None = None
    run: Run | None = None

    @property
    def key(self) -> Key:
        """(task, attempt): the fencing token."""
        return self.task, self.number

    def note_progress(self, percent: int | None, note: str | None) -> None:
        """What the next heartbeat says of it; None leaves what was said."""
        self.progress = self.progress if percent is None else percent
        self.note = self.note if note is None else note

    @property
    def deadline(self) -> float | None:
        """When the robot must have ended the work by its own clock."""
        return None if self.stop_after_s is None else self.renewed_at + DEADLINE_SHARE * self.stop_after_s

    def is_over(self, now: float) -> bool:
        """Whether its own deadline has passed."""
        return self.deadline is not None and self.deadline <= now

    @property
    def outer_deadline(self) -> float | None:
        """When the work is ended from outside, if the robot has not done it by then."""
        return None if self.stop_after_s is None else self.renewed_at + OUTER_SHARE * self.stop_after_s


@dataclass(slots=True)
class Start:
    """Start the handler of `attempt`."""

    attempt: Attempt
    assign: Assign


@dataclass(slots=True)
class End:
    """Ask the handler `run` to end, or end it by `force`."""

    run: Run
    why: Why
    force: bool


@dataclass(slots=True)
class Tell:
    """Report `ending` about an attempt that has no handler at work."""

    attempt: Attempt
    ending: Ending


@dataclass(slots=True)
class Until:
    """The lease of the handler `run` lasts: it may go on until `deadline`."""

    run: Run
    deadline: float


Order = Start | End | Tell | Until


@dataclass(slots=True)
class _Parked:
    assign: Assign
    until: float


@dataclass(slots=True)
class Holdings:
    """All attempts of one robot. `objection`: why it does not take an assignment (reason, text), None if it does."""

    outbox: Outbox
    slots: int
    objection: Callable[[Assign], tuple[str, str] | None]
    cancel_grace_s: float | None = None
    leaving: bool = False
    attempts: dict[Key, Attempt] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    slots_used: int = 0
    _by_idempotency: dict[str, Attempt] = field(default_factory=dict)
    _rejects: dict[Key, Message] = field(default_factory=dict)
    _parked: dict[str, _Parked] = field(default_factory=dict)
    _beats: dict[str, tuple[float, list[Attempt]]] = field(default_factory=dict)

    def take_orders(self) -> list[Order]:
        """What is to be done now, once."""
        orders, self.orders = self.orders, []
        return orders

    # ---- the gateway speaks ----

    def assigned(self, assign: Assign, now: float) -> None:
        """Accept or reject; a repeat gets the same answer."""
        key = (assign.task, assign.attempt)
        known = self.attempts.get(key)
        if known is not None:
            if known.accept is not None:
                self.outbox.again(known.accept)
        elif key in self._rejects:
            self.outbox.again(self._rejects[key])
        elif self.leaving:
            self._reject(key, "busy", "this robot is shutting down")
        elif (objection := self.objection(assign)) is not None:
            self._reject(key, *objection)
        elif (older := self._by_idempotency.get(assign.idempotency_key)) is not None:
            self._park(assign, older, now)
        elif self.slots_used + assign.slot_cost > self.slots:
            self._reject(key, "busy", "all slots of this robot are in use")
        else:
            self._accept(assign, None)

    def acknowledged(self, ack: Ack, now: float) -> Message | None:
        """An `ack`: an accept starts the work, a final report is done with. Returns the message that it answers."""
        message = self.outbox.answered(ack.of)
        if message is None or message.key is None:
            return message
        if message.type == "accept":
            self._lease_began(message, ack, now)
        elif message.type in FINAL_TYPES:
            self._forget(message.key, now)
        elif message.type == "reject":
            self._rejects.pop(message.key, None)
        return message

    def refused(self, refused: Refused, now: float) -> Message | None:
        """A `refused`: send again later, or give the message up. Returns it if it was given up."""
        message = self.outbox.unanswered(refused.of) if refused.of is not None else None
        if message is None:
            return None
        if refused.retry:
            after_s = RETRY_REFUSED_S if refused.retry_after_ms is None else refused.retry_after_ms / 1000
            self.outbox.hold_back(message, now + after_s)
            return None
        self.outbox.drop(message)
        if message.key is None:
            return message
        attempt = self.attempts.get(message.key)
        if message.type == "reject":
            self._rejects.pop(message.key, None)
        elif message.type == "accept" and attempt is not None and attempt.phase is Phase.ACCEPTING:
            self._free(attempt)
            self._forget(message.key, now)
        elif message.type in FINAL_TYPES and attempt is not None:
            self._final_refused(attempt, refused, now)
        return message

    def beat_acknowledged(self, ack: HeartbeatAck, now: float) -> None:
        """Own deadlines run anew from the sending of that heartbeat; stops and cancels that came with it count."""
        beat = self._beats.pop(ack.of, None)
        if beat is not None:
            sent_at, named = beat
            for attempt in named:
                attempt.renewed_at = max(attempt.renewed_at, sent_at)
                if attempt.run is not None and attempt.outer_deadline is not None:
                    self.orders.append(Until(attempt.run, attempt.outer_deadline))
        for notice in ack.stop:
            self.stop(notice)
        for notice in ack.cancel:
            self.cancel(notice, now)

    def stop(self, notice: AttemptNotice) -> None:
        """The lease is over: the work ends at once. Final reports made before are still sent."""
        attempt = self.attempts.get((notice.task, notice.attempt))
        if attempt is None or attempt.why == "stop" or attempt.phase is Phase.ENDED:
            return
        attempt.why = "stop"
        self._end(attempt, "stop", force=True)

    def cancel(self, notice: AttemptNotice, now: float) -> None:
        """Somebody no longer wants the task: the handler is asked to end, and may still complete."""
        attempt = self.attempts.get((notice.task, notice.attempt))
        if attempt is not None and attempt.phase is not Phase.ENDED:
            self._ask_to_end(attempt, "cancel", now)

    # ---- sessions ----

    def held(self) -> list[HeldAttempt]:
        """What hello says: every attempt whose final report has no ack yet."""
        return [
            HeldAttempt(task=a.task, attempt=a.number, started=a.phase is not Phase.ACCEPTING)
            for a in self.attempts.values()
        ]

    def welcomed(self, welcome: Welcome) -> None:
        """A new epoch: everything unanswered goes again, and attempts that are no longer ours stop."""
        self._beats.clear()
        self.outbox.begin(welcome.epoch)
        for held in welcome.held:
            if held.verdict == "stop":
                self.stop(AttemptNotice(task=held.task, attempt=held.attempt, reason=held.reason))

    def heartbeat(self, now: float) -> None:
        """Put a heartbeat that names every attempt held before all other messages."""
        named = [a for a in self.attempts.values() if a.phase is not Phase.ACCEPTING]
        beat = Heartbeat(
            id=self.outbox.new_id(),
            holding=[HeldProgress(task=a.task, attempt=a.number, progress=a.progress, note=a.note) for a in named],
        )
        self._beats[beat.id] = (now, named)
        if len(self._beats) > BEATS_REMEMBERED:
            del self._beats[next(iter(self._beats))]
        self.outbox.add_once(self.outbox.message(beat))

    # ---- time ----

    def tick(self, now: float) -> float | None:
        """End what must be ended by our own clock. Returns when to come again."""
        due: list[float] = []
        for attempt in self.attempts.values():
            if attempt.phase is not Phase.RUNNING or attempt.why in ("stop", "own_deadline"):
                continue
            if attempt.deadline is not None and attempt.deadline <= now:
                attempt.why = "own_deadline"
                self._end(attempt, "own_deadline", force=True)
                continue
            if attempt.kill_at is not None and attempt.kill_at <= now:
                attempt.kill_at = None
                self._end(attempt, attempt.why or "stop", force=True)
            due += [at for at in (attempt.deadline, attempt.kill_at) if at is not None]
        for key, parked in list(self._parked.items()):
            if parked.until <= now:
                del self._parked[key]
                self._reject((parked.assign.task, parked.assign.attempt), "busy", "an older attempt has not ended yet")
            else:
                due.append(parked.until)
        return min(due, default=None)

    def next_own_deadline(self, now: float) -> float | None:
        """The first own deadline still ahead of an attempt that may go on, or whose report is not acknowledged yet."""
        ahead = (a.deadline for a in self.attempts.values() if a.why not in ("stop", "own_deadline"))
        return min((deadline for deadline in ahead if deadline is not None and deadline > now), default=None)

    # ---- handlers speak ----

    def checkpoint(self, attempt: Attempt, value: bytes, on_answer: Callable[[Any], None]) -> None:
        """Send the next checkpoint; `value` is encoded JSON. Its number counts once it has been acknowledged."""
        number = attempt.checkpoint_number + 1
        head = Checkpoint(id=self.outbox.new_id(), task=attempt.task, attempt=attempt.number, number=number, value=None)

        def answered(answer: Any) -> None:
            if isinstance(answer, Ack):
                attempt.checkpoint_number = number
            on_answer(answer)

        # The value is encoded already; the codec leaves a None out.
        body = with_field(encode_robot_message(head), "value", value)
        self.outbox.add(Message(head.id, head.type, body, attempt.key, answered))

    def ended(self, attempt: Attempt, ending: Ending, report: Message, now: float) -> None:
        """The handler of `attempt` is over; `report` is sent until it is acknowledged."""
        self._free(attempt)
        attempt.phase, attempt.ending, attempt.run, attempt.kill_at = Phase.ENDED, ending, None, None
        self.outbox.add(report)
        if attempt.assign is not None:
            self._unpark(attempt.assign.idempotency_key, ending, now)

    def report_of(self, attempt: Attempt, ending: Ending) -> Message:
        """The final report about `attempt`, not yet sent."""
        message_id = self.outbox.new_id()
        checkpoint = attempt.checkpoint_number + 1
        kind, body = final_report(ending, message_id, attempt.task, attempt.number, attempt.why, checkpoint)
        return Message(message_id, kind, body, attempt.key)

    def adopt(self, task: str, number: int, report: Message) -> None:
        """A final report of an earlier process of this robot, which nobody has acknowledged yet."""
        self.attempts[task, number] = Attempt(task, number, Phase.ENDED)
        self.outbox.add(report)

    def leave(self) -> None:
        """Take nothing new."""
        self.leaving = True

    def end_all(self, now: float) -> None:
        """The grace is over: every handler is asked to end."""
        for attempt in self.attempts.values():
            if attempt.phase is not Phase.ENDED:
                self._ask_to_end(attempt, "shutdown", now)

    # ---- rules ----

    def _accept(self, assign: Assign, known_ending: Ending | None) -> None:
        key = (assign.task, assign.attempt)
        accept = self.outbox.message(Accept(id=self.outbox.new_id(), task=key[0], attempt=key[1]), key)
        number = assign.checkpoint.number if assign.checkpoint is not None else 0
        attempt = Attempt(*key, Phase.ACCEPTING, assign, accept, checkpoint_number=number, known_ending=known_ending)
        self.attempts[key] = self._by_idempotency[assign.idempotency_key] = attempt
        self.slots_used += assign.slot_cost
        self.outbox.add(accept)

    def _reject(self, key: Key, reason: Any, text: str) -> None:
        reject = Reject(id=self.outbox.new_id(), task=key[0], attempt=key[1], reason=reason, text=text)
        self._rejects[key] = self.outbox.message(reject, key)
        self.outbox.add(self._rejects[key])

    def _lease_began(self, message: Message, ack: Ack, now: float) -> None:
        """The answer to an accept. What came too late, or was told to end meanwhile, starts nothing."""
        attempt = self.attempts.get(message.key) if message.key is not None else None
        if attempt is None or attempt.assign is None or attempt.phase is not Phase.ACCEPTING:
            return
        attempt.stop_after_s = None if ack.stop_after_ms is None else ack.stop_after_ms / 1000
        attempt.renewed_at = now if message.first_sent_at is None else message.first_sent_at
        attempt.phase = Phase.RUNNING
        if attempt.why is None and self.leaving:
            attempt.why = "shutdown"
        if attempt.why is None and attempt.deadline is not None and attempt.deadline <= now:
            attempt.why = "own_deadline"
        if attempt.why is not None:
            self.orders.append(Tell(attempt, Ending("stopped")))
        elif attempt.known_ending is not None:
            self.orders.append(Tell(attempt, attempt.known_ending))
        else:
            self.orders.append(Start(attempt, attempt.assign))

    def _final_refused(self, attempt: Attempt, refused: Refused, now: float) -> None:
        """A report whose body is refused is told as a fatal failure; one about somebody else's attempt is forgotten."""
        told_already = attempt.ending is None or attempt.ending.error_type == refused.reason
        if refused.reason not in _ABOUT_THE_BODY or told_already:
            self._forget(attempt.key, now)
            return
        self.orders.append(Tell(attempt, failed(refused.reason, refused.text, fatal=True)))

    def _ask_to_end(self, attempt: Attempt, why: Why, now: float) -> None:
        if attempt.why is not None:
            return
        attempt.why = why
        if attempt.phase is Phase.RUNNING:
            if self.cancel_grace_s is not None:
                attempt.kill_at = now + self.cancel_grace_s
            self._end(attempt, why, force=False)

    def _end(self, attempt: Attempt, why: Why, *, force: bool) -> None:
        if attempt.run is not None:
            self.orders.append(End(attempt.run, why, force))

    def _park(self, assign: Assign, older: Attempt, now: float) -> None:
        """The same task again while an older attempt is here: that one's lease is over, and both never run at once."""
        if older.number > assign.attempt:
            self._reject((assign.task, assign.attempt), "other", "a newer attempt is held")
        elif older.phase is Phase.ENDED:
            self._accept(assign, _done(older.ending))
        else:
            self._parked[assign.idempotency_key] = _Parked(assign, now + 0.8 * assign.accept_within_ms / 1000)
            self.stop(AttemptNotice(task=older.task, attempt=older.number, reason="newer_attempt"))

    def _unpark(self, idempotency_key: str, ending: Ending | None, now: float) -> None:
        parked = self._parked.pop(idempotency_key, None)
        if parked is not None and now < parked.until:
            self._accept(parked.assign, _done(ending))

    def _free(self, attempt: Attempt) -> None:
        if attempt.assign is not None and attempt.phase is not Phase.ENDED:
            self.slots_used -= attempt.assign.slot_cost

    def _forget(self, key: Key, now: float) -> None:
        attempt = self.attempts.pop(key, None)
        if attempt is None or attempt.assign is None:
            return
        if self._by_idempotency.get(attempt.assign.idempotency_key) is attempt:
            del self._by_idempotency[attempt.assign.idempotency_key]
            self._unpark(attempt.assign.idempotency_key, attempt.ending, now)


def _done(ending: Ending | None) -> Ending | None:
    """What is known already about a task that is assigned again: only its completion."""
    return completed_with(ending.value) if ending is not None and ending.kind == "complete" else None
