"""Verbs on limits: set one for a kind or limit key, remove it. What a limit does is in `commands/limits.py`."""

from collections.abc import Callable
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands.decide.answers import Context, Decision, accepted, refused
from commands.limits import BURST_MAX, LIMITS_MAX, RATE_MAX, RATE_MIN, RUNNING_MAX
from commands.reasons import Refusal
from commands.state import PoolState
from commands.vocabulary import KIND_CHARS_MAX, NAME_CHARS_MAX, is_name


def set_limit(state: PoolState, command: i.SetLimit, context: Context) -> Decision:
    """Set a limit, or replace the one that is there: its rate then begins anew, with its whole burst."""
    body = command.body
    problem = limit_problem(body) or _too_many(state, body)
    if problem is not None:
        return refused(command, problem)
    now_set = state.limits.rows.get((body.scope, body.name))
    burst = _burst(body)
    asked = (body.running, body.rate_per_s, burst or 1)
    if now_set is not None and (now_set.running, now_set.rate_per_s, now_set.burst) == asked:
        return _noted(state, command, context)
    event = e.LimitSet(scope=body.scope, name_=body.name, running=body.running, rate_per_s=body.rate_per_s, burst=burst)
    return accepted(command, limit_answer(body, True, state.sequence + 1, context.now), event)


def remove_limit(state: PoolState, command: i.RemoveLimit, context: Context) -> Decision:
    """Remove a limit."""
    body = command.body
    if (body.scope, body.name) not in state.limits.rows:
        return refused(command, Refusal("no_such_limit", f"there is no limit of {body.scope} {body.name} in this pool"))
    event = e.LimitRemoved(scope=body.scope, name_=body.name)
    return accepted(command, limit_answer(body, True, state.sequence + 1, context.now), event)


def limit_problem(body: i.LimitBody) -> Refusal | None:
    """What is wrong with a limit whatever the pool, or None."""
    chars = KIND_CHARS_MAX if body.scope == "kind" else NAME_CHARS_MAX
    checks: list[tuple[bool, str, str]] = [
        (is_name(body.name, chars), "/name", f"a {body.scope} is letters, digits and . _ : - (at most {chars})"),
        (
            body.running is not None or body.rate_per_s is not None,
            "/running",
            "a limit has running, rate_per_s or both",
        ),
        (_within(body.running, 1, RUNNING_MAX), "/running", "1 to 1,000,000; to assign nothing, pause the kind"),
        (_within(body.rate_per_s, RATE_MIN, RATE_MAX), "/rate_per_s", "a rate is 0.00001 to 1,000 a second"),
        (body.burst is None or body.rate_per_s is not None, "/burst", "a burst belongs to a rate"),
        (_within(body.burst, 1, BURST_MAX), "/burst", "a burst is 1 to 1,000,000"),
    ]
    return next((Refusal("invalid_field", text, field) for fine, field, text in checks if not fine), None)


def _within(value: float | None, low: float, high: float) -> bool:
    return value is None or low <= value <= high


def _too_many(state: PoolState, body: i.LimitBody) -> Refusal | None:
    if len(state.limits.rows) < LIMITS_MAX or (body.scope, body.name) in state.limits.rows:
        return None
    return Refusal("invalid_field", f"a pool has at most {LIMITS_MAX:,} limits; remove one first", "/name")


def _burst(body: i.LimitBody) -> int | None:
    """As it is stored: a rate without a burst lets one begin at a time."""
    return (body.burst or 1) if body.rate_per_s is not None else None


def _noted(state: PoolState, command: i.SetLimit, context: Context) -> Decision:
    answer = limit_answer(command.body, False, state.sequence + 1, context.now)
    return accepted(command, answer, e.CommandNoted(command=command.id, answer={"changed": False}))


def limit_answer(body: i.LimitBody | i.LimitVerb, changed: bool, sequence: int, at: int) -> dict[str, Any]:
    """The limit as it was set, or what was removed."""
    values: dict[str, Any] = {}
    if isinstance(body, i.LimitBody):
        values = {"running": body.running, "rate_per_s": body.rate_per_s, "burst": _burst(body)}
    kept = {name: value for name, value in values.items() if value is not None}
    return {"scope": body.scope, "name": body.name, **kept, "changed": changed, "sequence": sequence, "at": at}


VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "limit_set": set_limit,
    "limit_rm": remove_limit,
}
