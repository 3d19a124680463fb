"""Given what happened, when something is asked or said, then this follows: the rules alone, without fleet and time.

    given(event("TaskSubmitted", task="t1", kind="weld")).when(command("cancel", task="t1")).then(
        event("TaskCancelled", task="t1")
    )

Inputs go through `commands.decide`; what follows is recorded as an owner records it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from commands.decide import Context
from commands.events import EVENT_TYPES, Event, decode_event, encode_event
from commands.inputs import CommandBase, Report
from commands.messages import decode_robot_message
from commands.pool import SYSTEM_ACTOR, Cause, Pool, PoolFault, Written
from commands.settings import FORMAT, PoolSettings
from commands.state import PoolState
from fleetlog.testing.asking import command_of
from robot_gateway.sdk.errors import FleetlogError, error_of
from robot_gateway.wire import settings_in

POOL: Final = "default"
START_MS: Final = 1_790_000_040_000
LOG_ID: Final = "00000000-0000-4000-8000-000000000000"
DISPATCHED_MAX: Final = 10_000
_ENVELOPE: Final = {"id": "", "pool": POOL, "sequence": 0, "occurred_at": 0, "caused_by": "", "actor": ""}
_NOT_OWN: Final = {*_ENVELOPE, "type", "traceparent", "command_digest", "transition"}
_STORED: Final = {"origin": "from", "failure_class": "class", "passing": "pass"}
"""Fields that are stored under another name."""
_CLASSES: Final = {name.partition(".")[0]: cls for name, cls in EVENT_TYPES.items()}


@dataclass(frozen=True)
class Pattern:
    """An event of a type with some of its fields, as stored (`docs/reference/events.md`)."""

    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"

    def fits(self, event: Event) -> bool:
        """Whether `event` is of this type and has these fields; of a field that is an object, those that are named."""
        return event.name == self.name and _within(self.fields, from_json(encode_event(event)))


@dataclass(frozen=True)
class Asked:
    """A command, before it has an id."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Said:
    """A robot's message, before it has epoch and number."""

    robot: str
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class After:
    """So many seconds in which nobody says anything."""

    seconds: float


class Dispatch:
    """Waiting tasks are given to robots that can take them."""


Step = Event | Pattern | Asked | Said | After | Dispatch


def event(name: str, **fields: Any) -> Pattern:
    """An event by its type (without version) and fields. Raises ValueError where there is no such type or field.

    Given, it gets what is left out of it from the pool, the task and the robot, where that follows from them.
    """
    if name not in _CLASSES:
        raise ValueError(f"there is no event {name}: see docs/reference/events.md")
    known = {_STORED.get(field, field) for field in _CLASSES[name].__dataclass_fields__} - _NOT_OWN
    unknown = sorted(set(fields) - known - {"actor"})
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]}: it has {', '.join(sorted(known))}")
    return Pattern(name, fields)


def command(type: str, **body: Any) -> Asked:
    """A command by its name and body in docs/formats/inputs.md. Raises ValueError where it has another shape."""
    command_of(type, "some-id", POOL, "nobody", body)
    return Asked(type, body)


def says(robot: str, type: str, **fields: Any) -> Said:
    """A robot's message by its type and fields in docs/reference/protocol.md, in its current session."""
    return Said(robot, type, fields)


def after(seconds: float) -> After:
    """Time passes, and no robot beats."""
    return After(seconds)


def dispatch() -> Dispatch:
    """Tasks are assigned while anybody can take one."""
    return Dispatch()


def given(*history: Step, **settings: Any) -> "Given":
    """A pool of which this has happened: events, events of a fleet (`fleet.events()`), and what else `when` takes.

    `settings` by their names in `fleetlog pool set`. Raises ValueError where an event lacks something or cannot follow.
    """
    pool = Given(settings_in(settings))
    begins = bool(history) and isinstance(history[0], Pattern | Event) and history[0].name == "PoolCreated"
    return (pool if begins else pool.create()).has(*history, after(0))


class Given:
    """A pool with a history."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._written = Written()
        self._now = START_MS
        self._pool = Pool.new(POOL, self._written, self._now)
        self._defaults = dict(defaults)
        self._count = 0
        self._numbers: dict[str, int] = {}

    @property
    def state(self) -> PoolState:
        """The state of the pool."""
        return self._pool.state

    def has(self, *history: Step) -> Self:
        """More has happened."""
        for step in history:
            self._do(step)
        return self

    def when(self, *steps: Step) -> "Then":
        """What follows from the steps, one after the other."""
        events, outcomes = len(self._written.events), len(self._written.outcomes)
        self.has(*steps)
        answers = [row.draft.message for row in self._written.outcomes[outcomes:]]
        return Then([row.event for row in self._written.events[events:]], answers)

    def _do(self, step: Step) -> None:
        match step:
            case Event():
                self._record(decode_event(encode_event(step)))
            case Pattern():
                self._record(_complete(step, self.state, self._now))
            case Asked():
                self._pool.take(self._command(step), self._context())
            case Said():
                self._pool.take(self._report(step), self._context())
            case After():
                self._wait(round(step.seconds * 1_000))
            case Dispatch():
                self._pool.dispatch(self._pool.instant(self._now), DISPATCHED_MAX)

    def create(self) -> Self:
        """The pool begins. Raises ValueError where it cannot have these settings."""
        self._pool.create(self._context())
        if not self.state.exists:
            raise ValueError(f"a pool cannot have these settings: {self._defaults}")
        return self

    def _record(self, happened: Event) -> None:
        self._now = max(self._now, happened.occurred_at)
        try:
            cause = Cause("given", SYSTEM_ACTOR, (POOL, "given", self.state.sequence))
            self._pool.note(happened, cause, self._now)
        except PoolFault as fault:
            raise ValueError(
                f"{happened.name} cannot follow from what was given before it: {fault.__cause__!r}"
            ) from None

    def _wait(self, ms: int) -> None:
        end = self._now + ms
        self._pool.advance(self._now, self._now)
        while self._now < end:
            due = self._pool.next_at()
            self._now = min(end, max(self._now + 1, end if due is None else due))
            self._pool.advance(self._now, self._now)

    def _command(self, asked: Asked) -> CommandBase:
        self._count += 1
        return command_of(asked.kind, f"00000000-0000-4000-8000-{self._count:012d}", POOL, "test", asked.body)

    def _report(self, said: Said) -> Report:
        self._count += 1
        head: dict[str, Any] = {"type": said.kind, "id": f"{said.robot}.{self._count}"}
        robot = self.state.robots.get(said.robot)
        if said.kind == "hello":
            self._numbers[said.robot] = 0
            head |= {"slots": 1, "capabilities": [], "holding": []}
        else:
            self._numbers[said.robot] = number = self._numbers.get(said.robot, 0) + 1
            head |= {"epoch": 0 if robot is None else robot.epoch, "seq": number}
        message: Any = decode_robot_message(to_json(head | dict(said.fields)))
        return Report(pool=POOL, robot=said.robot, gateway="test", actor="local", create=True, message=message)

    def _context(self) -> Context:
        now = self._pool.instant(self._now)
        return Context(now=now, log_id=LOG_ID, format=FORMAT, defaults=self._defaults)


@dataclass(frozen=True)
class Then:
    """What followed: `events`, and `answers` (messages to whoever asked, and to robots)."""

    events: list[Event]
    answers: list[dict[str, Any]]

    def then(self, *expected: Pattern) -> Self:
        """Exactly these events followed, in this order. Raises AssertionError."""
        same = len(expected) == len(self.events)
        if not (same and all(one.fits(found) for one, found in zip(expected, self.events, strict=True))):
            wanted = "\n  ".join(map(str, expected)) or "nothing"
            raise AssertionError(f"expected:\n  {wanted}\nbut there followed:\n  {self._followed()}")
        return self

    def then_nothing(self) -> Self:
        """No event followed."""
        return self.then()

    def then_refused(self, reason: str) -> Self:
        """No event followed, and the answer is a refusal with this reason. Raises AssertionError."""
        reasons = [answer.get("reason") for answer in self.answers if _is_refusal(answer)]
        if self.events or reasons != [reason]:
            raise AssertionError(f"expected a refusal {reason}, but there followed:\n  {self._followed()}")
        return self

    @property
    def answer(self) -> Any:
        """What the one who asked last was told; raises the error of a refusal, AssertionError where nobody was told."""
        if not self.answers:
            raise AssertionError(f"nobody was told anything; there followed:\n  {self._followed()}")
        last = self.answers[-1]
        if _is_refusal(last):
            error: FleetlogError = error_of(str(last["reason"]), str(last.get("text", "")))
            raise error
        return last.get("answer", last)

    def _followed(self) -> str:
        events = [f"{e.name} {_own(e)}" for e in self.events]
        refusals = [f"refused: {a['reason']}: {a.get('text')}" for a in self.answers if _is_refusal(a)]
        return "\n  ".join(events + refusals) or "nothing"


def _is_refusal(answer: Mapping[str, Any]) -> bool:
    return answer.get("status") == "refused" or answer.get("type") == "refused"


def _own(found: Event) -> dict[str, Any]:
    return {name: value for name, value in from_json(encode_event(found)).items() if name not in _NOT_OWN}


def _within(wanted: Any, there: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        return all(_within(value, there.get(name)) for name, value in wanted.items())
    return bool(wanted == there)


# ---- what a given event leaves out ----


def _complete(pattern: Pattern, state: PoolState, now: int) -> Event:
    """The event, with what follows from the state; raises ValueError where something is missing."""
    fill = _FILL.get(pattern.name)
    fields = (fill(state, pattern.fields, now) if fill else {}) | dict(pattern.fields)
    task = state.tasks.get(str(fields.get("task")))
    if task is not None and _CLASSES[pattern.name].transition:
        fields.setdefault("from", task.state)
    [tag] = [tag for tag, cls in EVENT_TYPES.items() if cls is _CLASSES[pattern.name]]
    try:
        return decode_event(to_json(_ENVELOPE | {"type": tag} | fields))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{pattern}: {first['loc'][-1]}: {first['msg']}") from None


def _submitted(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    pool: PoolSettings = state.settings
    lease_ms = fields.get("lease_ms", pool.lease_ms)
    retry = {
        "failures_max": pool.failures_max,
        "first_ms": pool.backoff_first_ms,
        "factor": pool.backoff_factor,
        "max_ms": pool.backoff_max_ms,
    }
    return {
        "lease_ms": lease_ms,
        "windows": state.windows_of(lease_ms, now),
        "accept_ms": pool.accept_ms,
        "retry": retry,
        "lost_max": pool.lost_max,
        "on_lost": {"policy": pool.on_lost},
        "digest": "00" * 32,
    }


def _session(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    hello = f"{fields.get('robot')}.hello"
    return {"epoch": state.sequence + 1, "gateway": "test", "slots": 1, "capabilities": [], "hello": hello}


def _assigned(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    task, robot = state.tasks.get(str(fields.get("task"))), state.robots.get(str(fields.get("robot")))
    if task is None or robot is None:
        raise ValueError("TaskAssigned follows from a TaskSubmitted and a RobotSessionStarted; one of them is missing")
    terms = task.terms
    return {
        "attempt": task.attempt + 1,
        "epoch": robot.epoch,
        "accept_by": now + terms.accept_ms,
        "lease_ms": terms.lease_ms,
        "windows": state.windows_of(terms.lease_ms, now),
        "stop_after_ms": terms.lease_ms if terms.policy == "requeue" else None,
        "slot_cost": terms.slot_cost,
        "level": 0,
        "waited_ms": 0,
        "because": {"rule": "given"},
    }


def _current(state: PoolState, fields: Mapping[str, Any]) -> dict[str, Any]:
    task = state.tasks.get(str(fields.get("task")))
    if task is None or task.current is None:
        raise ValueError("this follows from a TaskAssigned, which is missing")
    return {"attempt": task.attempt, "robot": task.current.robot}


def _lease_started(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    current = _current(state, fields)
    return current | {"epoch": state.robots[current["robot"]].epoch, "counts_from": now}


def _expired(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    current, task = _current(state, fields), state.tasks[str(fields["task"])]
    policy = task.terms.policy
    return current | {
        "to": "WAITING" if policy == "requeue" else "LOST",
        "wait_until": now + task.terms.wait_ms if policy == "wait" else None,
        "epoch": state.robots[current["robot"]].epoch,
        "reason": "missed_windows",
        "lost": task.lost + 1,
        "policy": policy,
    }


def _completed(state: PoolState, fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    return _current(state, fields) | {"by": "robot"}


_FILL: Final[dict[str, Callable[[PoolState, Mapping[str, Any], int], dict[str, Any]]]] = {
    "TaskSubmitted": _submitted,
    "RobotSessionStarted": _session,
    "TaskAssigned": _assigned,
    "LeaseStarted": _lease_started,
    "LeaseExpired": _expired,
    "TaskCompleted": _completed,
}
