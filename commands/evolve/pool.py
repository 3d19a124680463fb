"""How events of the pool itself change it: settings, pauses, limits, faults."""

from typing import Any, Final

from commands import events as e
from commands.evolve.robots import reset_counts
from commands.evolve.tasks import Appliers
from commands.limits import Limit
from commands.settings import SETTING_NAMES, PoolSettings
from commands.state import Paused, PoolState


def _pool_created(state: PoolState, event: e.PoolCreated, offset: int) -> None:
    state.log_id, state.format = event.log_id, event.format
    state.settings = PoolSettings(**_known(event.settings))
    state.window_before_ms = state.settings.window_ms
    state.counting_from = state.window_after(event.occurred_at)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that this software knows."""
    return {name: value for name, value in settings.items() if name in SETTING_NAMES}


def _pool_configured(state: PoolState, event: e.PoolConfigured, offset: int) -> None:
    if "window_ms" in event.changed:
        state.window_before_ms = state.window_ms_at(event.occurred_at)
        state.window_from = event.effective_at
    for name, value in _known(event.changed).items():
        setattr(state.settings, name, value)
    if "ageing_ms" in event.changed:
        state.queue.rekey_all(event.occurred_at)


def _format_raised(state: PoolState, event: e.FormatRaised, offset: int) -> None:
    state.format = event.to_format


def _paused(state: PoolState, event: e.DispatchPaused, offset: int) -> None:
    name = event.name_ or ""
    state.paused[event.scope, name] = Paused(event.until, event.actor, event.occurred_at, event.reason)
    if event.until is not None:
        state.timers.push(event.until, "pause", f"{event.scope}/{name}")
    _pause_changed(state, event.scope, name, True, event.occurred_at)


def _resumed(state: PoolState, event: e.DispatchResumed, offset: int) -> None:
    name = event.name_ or ""
    state.paused.pop((event.scope, name), None)
    _pause_changed(state, event.scope, name, False, event.occurred_at)


def _pause_changed(state: PoolState, scope: str, name: str, paused: bool, now: int) -> None:
    if scope == "kind":
        state.queue.pause_kind(name, paused)
    elif scope == "target" and name in state.targets:
        state.targets[name].paused = paused
        state.queue.rekey(state.targets[name])
    elif scope == "task" and name in state.tasks:
        state.queue.set_paused(state.tasks[name], now)


def _limit_set(state: PoolState, event: e.LimitSet, offset: int) -> None:
    state.limits.rows[event.scope, event.name_] = Limit(event.running, event.rate_per_s, event.burst or 1)


def _limit_removed(state: PoolState, event: e.LimitRemoved, offset: int) -> None:
    state.limits.rows.pop((event.scope, event.name_), None)


def _unsatisfiable(state: PoolState, event: e.RequirementUnsatisfiable, offset: int) -> None:
    state.unsatisfiable.add((tuple(event.requirement), event.slot_cost))


def _satisfiable(state: PoolState, event: e.RequirementSatisfiable, offset: int) -> None:
    state.unsatisfiable.discard((tuple(event.requirement), event.slot_cost))


def _frozen(state: PoolState, event: e.PoolFrozen, offset: int) -> None:
    state.frozen = True


def _unfrozen(state: PoolState, event: e.PoolUnfrozen, offset: int) -> None:
    state.frozen = False
    state.schedules.ask_all(event.occurred_at, state.timers)
    reset_counts(state, event, offset)


def _nothing(state: PoolState, event: e.Event, offset: int) -> None:
    """Told for the tables and the audit; decides nothing."""


POOL_EVENTS: Final[Appliers] = {
    e.ProgressNoted: _nothing,
    e.PoolCreated: _pool_created,
    e.PoolConfigured: _pool_configured,
    e.FormatRaised: _format_raised,
    e.DispatchPaused: _paused,
    e.DispatchResumed: _resumed,
    e.LimitSet: _limit_set,
    e.LimitRemoved: _limit_removed,
    e.RequirementUnsatisfiable: _unsatisfiable,
    e.RequirementSatisfiable: _satisfiable,
    e.CommandNoted: _nothing,
    e.PoolFrozen: _frozen,
    e.PoolUnfrozen: _unfrozen,
    e.RecordQuarantined: _nothing,
}
