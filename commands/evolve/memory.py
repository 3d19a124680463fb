"""What a pool remembers of accepted commands and ended tasks, and how it forgets."""

from hashlib import sha256
from typing import Final

from commands import events as e
from commands.remembered import Remembered
from commands.state import PoolState

DAY_MS: Final = 86_400_000
FORGOTTEN_PER_EVENT: Final = 8


def command_key(actor: str, command_id: str) -> bytes:
    """Under what an accepted command is remembered."""
    return sha256(f"{actor}\n{command_id}".encode()).digest()[:16]


def remember_command(state: PoolState, event: e.Event, digest: str) -> None:
    """An accepted command is remembered with the changing part of its answer, so that a repeat gets the same."""
    named = getattr(event, "task", None)
    task_id = named if isinstance(named, str) else None  # a schedule names the task that it submits as a whole
    row = None if task_id is None else state.tasks.get(task_id) or state.ended.get(task_id)
    noted = event.answer if isinstance(event, e.CommandNoted) else {}
    memory = Remembered(
        bytes.fromhex(digest)[:16],
        event.sequence,
        event.occurred_at,
        noted.get("state") if row is None else row.state,
        noted.get("attempt", 0) if row is None else row.attempt,
        not noted,
        isinstance(event, e.TaskSubmitted) and not state.queue.need_of(state.tasks[event.task].terms).able,
    )
    state.commands.add(command_key(event.actor, event.caused_by.removeprefix("command:")), memory)


def forget_old(state: PoolState, now: int) -> None:
    """Forgets ids older than `remember_days` or beyond `remember_max`, and idle targets of an earlier interval.

    Bounded per event; all three are in the order of time.
    """
    horizon = now - int(state.settings.remember_days * DAY_MS)
    if state.ended_order:
        _forget_ended(state, horizon)
    if len(state.commands):
        _forget_commands(state, horizon)
    if state.idle_targets:
        _forget_targets(state, now // state.settings.ageing_ms)


def _forget_ended(state: PoolState, horizon: int) -> None:
    """An ended task is known at least as long as it holds something."""
    ended, order, most = state.ended, state.ended_order, state.settings.remember_max
    for _ in range(min(FORGOTTEN_PER_EVENT, len(order))):
        task_id = order[0]
        if ended[task_id].ended_at >= horizon and len(ended) <= most:
            break
        row = ended.pop(order.popleft())
        if any(held.task == task_id for held in state.holds):
            ended[task_id] = row
            order.append(task_id)


def _forget_commands(state: PoolState, horizon: int) -> None:
    commands, most = state.commands, state.settings.remember_max
    for _ in range(FORGOTTEN_PER_EVENT):
        oldest_at = commands.oldest_at()
        if oldest_at is None or (oldest_at >= horizon and len(commands) <= most):
            break
        commands.drop_oldest()


def _forget_targets(state: PoolState, interval: int) -> None:
    for _ in range(min(FORGOTTEN_PER_EVENT, len(state.idle_targets))):
        target = state.targets[next(iter(state.idle_targets))]
        if target.last_served is not None and target.last_served // state.settings.ageing_ms >= interval:
            break
        del state.idle_targets[target.name]
        del state.targets[target.name]
