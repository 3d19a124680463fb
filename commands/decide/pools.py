"""Verbs on a pool: create, configure, unfreeze, accept a clock step, raise the format."""

from collections.abc import Callable
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands.decide.answers import Context, Decision, Draft, accepted, refused, to_robot
from commands.reasons import Refusal
from commands.settings import FORMAT, PoolSettings, settings_problem
from commands.state import PoolState
from commands.vocabulary import is_name

MINUTE_MS: Final = 60_000


def pool_created(state: PoolState, context: Context, settings: dict[str, Any]) -> e.PoolCreated | Refusal:
    """Sequence 1 of a pool: the defaults of this log with `settings` laid over, or why not."""
    if not is_name(state.pool) and not state.pool.startswith("_log-"):
        return Refusal("invalid_field", "a pool is named with letters, digits and . _ : - (at most 128)", "/pool")
    base = PoolSettings(**context.defaults)
    problem = settings_problem(settings, base)
    if problem is not None:
        return problem
    return e.PoolCreated(log_id=context.log_id, format=context.format, settings=base.as_json() | settings)


def create(state: PoolState, command: i.CreatePool, context: Context) -> Decision:
    """Create the pool; one that exists stays as it is."""
    if state.exists:
        noted = e.CommandNoted(command=command.id, answer={"changed": False})
        return accepted(command, _answer(state, context, False), noted)
    event = pool_created(state, context, command.body.settings)
    if isinstance(event, Refusal):
        return refused(command, event)
    return accepted(command, _answer(state, context, True), event)


def configure(state: PoolState, command: i.ConfigurePool, context: Context) -> Decision:
    """Change settings; a new window length holds from the next whole minute."""
    changed = {
        name: value for name, value in command.body.settings.items() if getattr(state.settings, name, None) != value
    }
    problem = settings_problem(command.body.settings, state.settings)
    if problem is not None:
        return refused(command, problem)
    if not changed:
        noted = e.CommandNoted(command=command.id, answer={"changed": False})
        return accepted(command, _answer(state, context, False), noted)
    effective_at = context.now
    if "window_ms" in changed:
        effective_at = context.now - context.now % MINUTE_MS + MINUTE_MS
    event = e.PoolConfigured(changed=changed, effective_at=effective_at, reason=command.body.reason)
    decision = accepted(command, _answer(state, context, True), event)
    if "window_ms" in changed:
        decision.drafts += _new_pace(state, changed["window_ms"])
    return decision


def _new_pace(state: PoolState, window_ms: int) -> list[Draft]:
    """Robots beat twice in the shorter of both windows, so that none is missed at the change."""
    shorter = min(window_ms, state.settings.window_ms)
    note = {"type": "session_note", "window_ms": shorter, "heartbeat_every_ms": shorter // 2}
    return [to_robot(robot, dict(note)) for robot in state.robots.values() if robot.online]


def unfreeze(state: PoolState, command: i.UnfreezePool, context: Context) -> Decision:
    """Let a frozen pool go on."""
    if not command.body.reason:
        return refused(command, Refusal("reason_required", "say why; it is recorded", "/reason"))
    if not state.frozen:
        return refused(command, Refusal("not_frozen", f"pool {state.pool} is not frozen"))
    return accepted(command, _answer(state, context, True), e.PoolUnfrozen(reason=command.body.reason))


def accept_clock(state: PoolState, command: i.AcceptClock, context: Context) -> Decision:
    """Follow a step of the wall clock; the owner does so in every pool of the partition."""
    if not command.body.reason:
        return refused(command, Refusal("reason_required", "say why; it is recorded", "/reason"))
    if context.wall_at is None:
        return refused(command, Refusal("clock_trusted", "the wall clock is trusted and followed"))
    event = e.ClockAccepted(from_at=context.now, to_at=context.wall_at, reason=command.body.reason)
    return accepted(command, _answer(state, context, True), event)


def raise_format(state: PoolState, command: i.RaiseFormat, context: Context) -> Decision:
    """Write the pool in a newer format from here on."""
    to = command.body.to_format
    if not 1 <= to <= FORMAT:
        text = f"this software writes formats up to {FORMAT}; upgrade every process first"
        return refused(command, Refusal("invalid_field", text, "/to_format"))
    if to <= state.format:
        noted = e.CommandNoted(command=command.id, answer={"changed": False})
        return accepted(command, _answer(state, context, False), noted)
    return accepted(command, _answer(state, context, True), e.FormatRaised(from_format=state.format, to_format=to))


def _answer(state: PoolState, context: Context, changed: bool) -> dict[str, Any]:
    return {"pool": state.pool, "changed": changed, "sequence": state.sequence + 1, "at": context.now}


VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "pool_create": create,
    "pool_set": configure,
    "unfreeze": unfreeze,
    "clock_accept": accept_clock,
    "raise_format": raise_format,
}
