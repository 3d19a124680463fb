"""Apply what happened: total, without rules. An event that was written is true, whatever one may think of it now.

`evolve(state, event, offset)` changes the rows of a pool; `offset` locates the event in the log (-1 while it is not
yet known).
"""

from typing import Final

from commands import events as e
from commands.evolve.memory import forget_old, remember_command
from commands.evolve.pool import POOL_EVENTS
from commands.evolve.robots import ROBOT_EVENTS
from commands.evolve.schedules import SCHEDULE_EVENTS, follow_firing
from commands.evolve.tasks import TASK_EVENTS, Appliers
from commands.ids import chain_hash
from commands.queue import Queue
from commands.schedules import FIRING_MARK
from commands.state import PoolState
from commands.timers import Timers

_APPLY: Final[Appliers] = {**TASK_EVENTS, **ROBOT_EVENTS, **POOL_EVENTS, **SCHEDULE_EVENTS}


def new_pool(pool: str) -> PoolState:
    """A pool of which nothing has happened yet."""
    state = PoolState(pool, Queue(), Timers())
    state.queue.bind(state)
    return state


def evolve(state: PoolState, event: e.Event, offset: int = -1) -> None:
    """Apply one event. Total: no rule lives here, so replay cannot fail."""
    if state.cut is not None:
        state.cut.before(event)
    state.sequence = event.sequence
    state.last_at = event.occurred_at
    _APPLY[type(event)](state, event, offset)
    if isinstance(event, e.TaskTransition) and FIRING_MARK in event.task:
        follow_firing(state, event)
    if event.command_digest is not None:
        remember_command(state, event, event.command_digest)
    forget_old(state, event.occurred_at)


def apply_stored(state: PoolState, value: bytes, offset: int) -> e.Event:
    """Apply an event as it was stored at `offset`, and go on with the pool's chain; returns it decoded."""
    event = e.decode_event(value)
    state.chain = chain_hash(state.chain, value)
    evolve(state, event, offset)
    return event


def locate(state: PoolState, event: e.Event, offset: int) -> None:
    """The log says where an event that holds a body came to lie."""
    if isinstance(event, e.TaskSubmitted):
        task = state.tasks.get(event.task)
        if task is not None and task.sequence == event.sequence:
            task.offset = offset
    elif isinstance(event, e.CheckpointSaved):
        task = state.tasks.get(event.task)
        if task is not None and task.story is not None and task.story.checkpoint is not None:
            saved = task.story.checkpoint
            saved.offset = offset if saved.sequence == event.sequence else saved.offset
