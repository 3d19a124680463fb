"""One pool at work: decide an input, record its events, let time act, dispatch; and collect what is to be written.

Writing an event and applying it are one act (`_record`). Everything that one batch of a partition produced stands in
`Written` lists, in order, until the owner has committed it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from commands import events as e
from commands.clockwork import act_on_time
from commands.decide import Context, Decision, Draft, decide
from commands.decide.answers import no, refused
from commands.decide.pools import pool_created
from commands.dispatch import assignment_message, next_assignment, requirement_notices
from commands.events import Event, encode_event
from commands.evolve import evolve, new_pool
from commands.heartbeats import Pulse, Step, beats, hear, out_of_order
from commands.ids import chain_hash, name_id
from commands.inputs import CreatePool, Heartbeats, Report
from commands.messages import BODY_BYTES_MAX
from commands.reasons import Refusal
from commands.state import Held, PoolState
from commands.windows import close_windows, next_close_at

EVENT_BYTES_MAX: Final = 900_000
CHECKPOINT_BYTES_MAX: Final = BODY_BYTES_MAX + 4_096
"""Of the event: an `assign` holds the payload and the last checkpoint, and is one record."""
SYSTEM_ACTOR: Final = "fleetlog"


class PoolFault(Exception):
    """Applying an event failed: a fault of ours that stops the partition."""


class EventTooLarge(ValueError):
    """An event would be larger than a record may be."""


@dataclass(slots=True, frozen=True)
class Cause:
    """Who or what caused events: `names` begin their ids (an index is added); None for clock and owner."""

    caused_by: str
    actor: str
    names: tuple[str | int, ...] | None = None
    traceparent: str | None = None


CLOCK: Final = Cause("clock", SYSTEM_ACTOR)
DISPATCH: Final = Cause("dispatch", SYSTEM_ACTOR)


@dataclass(slots=True, frozen=True)
class WrittenEvent:
    """An event with its stored bytes and the pool's hash after it."""

    event: Event
    value: bytes
    hash: bytes


@dataclass(slots=True, frozen=True)
class WrittenOutcome:
    """An outcome draft, true up to `position` (sequence of the pool)."""

    pool: str
    draft: Draft
    position: int


@dataclass(slots=True)
class Written:
    """What a batch has produced so far."""

    events: list[WrittenEvent] = field(default_factory=list)
    outcomes: list[WrittenOutcome] = field(default_factory=list)


class Pool:
    """The state of one pool and what changes it. Used by one thread, the owner's."""

    def __init__(self, state: PoolState, written: Written, now: int) -> None:
        self.state = state
        self.written = written
        self.pulse = Pulse(state.window_start(self.instant(now)), self.instant(now))

    @classmethod
    def new(cls, name: str, written: Written, now: int) -> "Pool":
        """A pool of which nothing has happened yet."""
        return cls(new_pool(name), written, now)

    def instant(self, now: int) -> int:
        """`now` for this pool: never before its last event."""
        return max(now, self.state.last_at)

    # ---- input ----

    def create(self, context: Context) -> None:
        """The pool begins because something was sent to it that may create it; a bad name stays unknown."""
        event = pool_created(self.state, context, {})
        if not isinstance(event, Refusal):
            self._record(event, Cause(f"owner:{context.owner}", SYSTEM_ACTOR), context.now)

    def take(self, asked: Any, context: Context) -> None:
        """One command or report: decided as a whole, then recorded. What `decide` raises leaves the state as it was."""
        if asked.create and not self.state.exists and not isinstance(asked, CreatePool):
            self.create(context)
        decision = out_of_order(self.pulse, self.state, asked) or decide(self.state, asked, context)
        try:
            self._record_all(decision, _cause(self.state.pool, asked), context.now)
        except EventTooLarge as fault:
            self._record_all(_too_large(asked, fault), CLOCK, context.now)
        if isinstance(asked, Report):
            hear(self.pulse, self.state, asked, context.now)
        self._notices(context.now)

    def take_heartbeats(self, heartbeats: Heartbeats, context: Context) -> None:
        """A gateway's heartbeats of one gathering."""
        for step in beats(self.state, self.pulse, heartbeats, context.now):
            if isinstance(step, Draft):
                self._send(step)
            else:
                robot = getattr(step[0], "robot", heartbeats.gateway)
                self._record(step[0], Cause(f"report:{robot}:heartbeat", SYSTEM_ACTOR), context.now)

    # ---- time and dispatch ----

    def advance(self, now: int, settled: int) -> None:
        """Time acts, up to the instant `settled` before which all input is applied; a fault freezes the pool."""
        if not self.state.exists:
            return
        if self.pulse.progress_due(now):
            for noted in self.pulse.take_progress(self.state, now):
                self._record(noted, CLOCK, now)
        if self.state.frozen:
            return
        self._steps("tick", act_on_time(self.state, now, settled), CLOCK, now)
        if not self.state.frozen:
            self._steps("tick", close_windows(self.state, self.pulse, settled), CLOCK, now)
        self._notices(now)

    def dispatch(self, now: int, at_most: int) -> int:
        """Assigns waiting tasks while anybody can take one; returns how many."""
        for count in range(at_most):
            try:
                step = next_assignment(self.state, now)
            except Exception as fault:
                self._freeze("dispatch", fault, now)
                return count
            if step is None:
                return count
            event = step[0]
            if not self._stored("dispatch", event, DISPATCH, now):
                return count
            if isinstance(event, e.TaskAssigned):
                self._send(assignment_message(self.state, event))
        return at_most

    def next_at(self) -> int | None:
        """The next instant at which time may act, or None."""
        if not self.state.exists:
            return None
        instants = (self.pulse.progress_at(), *(() if self.state.frozen else self._due_at()))
        return min((at for at in instants if at is not None), default=None)

    def _due_at(self) -> tuple[int | None, int | None]:
        return self.state.timers.next_at(), next_close_at(self.state, self.pulse)

    def note(self, event: Event, cause: Cause, now: int) -> None:
        """Records an event that the owner itself states (ownership, quarantine, clock)."""
        self._record(event, cause, now)

    def _steps(self, where: str, steps: Iterator[Step], cause: Cause, now: int) -> None:
        while True:
            try:
                step = next(steps, None)
            except Exception as fault:
                self._freeze(where, fault, now)
                return
            if step is None:
                return
            if not self._stored(where, step[0], cause, now):
                return
            for draft in step[1]:
                self._send(draft)

    def _stored(self, where: str, event: Event, cause: Cause, now: int) -> bool:
        """Records what nobody asked for; whether that could be. An event that no record holds freezes the pool."""
        try:
            self._record(event, cause, now)
        except EventTooLarge as fault:
            self._freeze(where, fault, now)
            return False
        return True

    def _notices(self, now: int) -> None:
        if self.state.queue.changed_needs:
            self._steps("dispatch", requirement_notices(self.state), DISPATCH, now)

    def _freeze(self, where: Any, fault: Exception, now: int) -> None:
        if isinstance(fault, MemoryError | OSError):
            raise fault
        text = f"{type(fault).__name__}: {fault}"[:500]
        digest = name_id(where, text)
        self._record(e.PoolFrozen(where=where, error=text, digest=digest), CLOCK, now)

    # ---- recording ----

    def _record_all(self, decision: Decision, cause: Cause, now: int) -> None:
        """All of a decision or, where one event cannot be stored, nothing of it."""
        values = [self._sealed(event, cause, now, index) for index, event in enumerate(decision.events)]
        for event, value in zip(decision.events, values, strict=True):
            self._apply(event, value)
        for draft in decision.drafts:
            self._send(draft)

    def _send(self, draft: Draft) -> None:
        self.written.outcomes.append(WrittenOutcome(self.state.pool, draft, self.state.sequence))

    def _record(self, event: Event, cause: Cause, now: int) -> None:
        """Fills the envelope, encodes, chains and applies: one act."""
        self._apply(event, self._sealed(event, cause, now, 0))

    def _sealed(self, event: Event, cause: Cause, now: int, index: int) -> bytes:
        """The stored bytes of the event that comes `index` events after the next one; raises EventTooLarge."""
        state = self.state
        event.occurred_at = now
        event.id = _event_id(state, event, cause, index)
        event.pool = state.pool
        event.sequence = state.sequence + 1 + index
        event.caused_by = cause.caused_by
        event.actor = cause.actor
        event.traceparent = cause.traceparent
        value = encode_event(event)
        most = CHECKPOINT_BYTES_MAX if isinstance(event, e.CheckpointSaved) else EVENT_BYTES_MAX
        if len(value) > most:
            raise EventTooLarge(f"{event.name} would have {len(value)} bytes, it may have at most {most}")
        return value

    def _apply(self, event: Event, value: bytes) -> None:
        state = self.state
        state.chain = chain_hash(state.chain, value)
        try:
            evolve(state, event)
        except Exception as fault:
            raise PoolFault(f"applying {event.name} {event.sequence} of pool {state.pool} failed: {fault!r}") from fault
        self.written.events.append(WrittenEvent(event, value, state.chain))


def _too_large(asked: Any, fault: EventTooLarge) -> Decision:
    refusal = Refusal("too_large", str(fault))
    if isinstance(asked, Report):
        return no(asked.gateway, asked.robot, asked.message, refusal)
    return refused(asked, refusal)


def _cause(pool: str, asked: Any) -> Cause:
    if isinstance(asked, Report):
        message = asked.message
        where = ("hello", message.id) if message.type == "hello" else (message.epoch or 0, message.seq or 0)
        names = (pool, "report", asked.robot, *where)
        return Cause(f"report:{asked.robot}:{message.id}", asked.actor, names)
    names = (pool, "command", asked.actor, asked.id)
    return Cause(f"command:{asked.id}", asked.actor, names, asked.traceparent)


def _attempt_parts(state: PoolState, event: Any) -> tuple[str | int, ...]:
    return state.tasks[event.task].sequence, event.attempt


def _lease_parts(state: PoolState, event: Any) -> tuple[str | int, ...]:
    current = state.tasks[event.task].current
    return (*_attempt_parts(state, event), 0 if current is None else current.lease_sequence)


def _deadline_parts(state: PoolState, event: e.DeadlinePassed) -> tuple[str | int, ...]:
    task = state.tasks[event.task]
    redrives = 0 if task.story is None else task.story.redrives
    return task.sequence, event.which, event.deadline, redrives


def _hold_parts(state: PoolState, event: e.HoldEnded) -> tuple[str | int, ...]:
    return state.holds[Held(event.task, event.attempt)].sequence, event.attempt


def _firing_parts(state: PoolState, event: e.TaskSubmitted) -> tuple[str | int, ...]:
    """Time submits a task only for a schedule."""
    fired = event.schedule or e.Firing(id="", instant=0)
    return state.schedules.rows[fired.id].sequence, fired.instant


_ID_PARTS: Final[dict[type[Event], Callable[[PoolState, Any], tuple[str | int, ...]]]] = {
    e.TaskAssigned: _attempt_parts,
    e.AssignmentWithdrawn: _attempt_parts,
    e.LeaseExpired: _lease_parts,
    e.LostWaitEnded: _lease_parts,
    e.DeadlinePassed: _deadline_parts,
    e.HoldEnded: _hold_parts,
    e.TaskSubmitted: _firing_parts,
    e.WindowMissed: lambda state, event: (event.start, event.part),
    e.ExpiryHeld: lambda state, event: (event.window, 1),
    e.ProgressNoted: lambda state, event: (event.occurred_at // 1_000, event.part),
}
"""What names an event that time or dispatch caused; all others are named by the sequence before them."""


def _event_id(state: PoolState, event: Event, cause: Cause, index: int) -> str:
    """The UUIDv5 of the event's cause (docs/formats/events.md).

    A hello that was refused may come again and be taken, so the fault that refused it is not named by it.
    """
    refuses = isinstance(event, e.RobotFaulted) and event.reason == "two_programs"
    if cause.names is not None and not refuses:
        return name_id(*cause.names, index)
    parts = _ID_PARTS.get(type(event))
    own = (state.sequence,) if parts is None else parts(state, event)
    return name_id(state.pool, event.name, *own)
