"""How events of schedules change their rows. What was decided stands in the events: no instant is computed here."""

from typing import Final

from commands import events as e
from commands.evolve.tasks import Appliers
from commands.schedules import Schedule, Skipped
from commands.state import PoolState
from commands.vocabulary import ENDED_STATES


def _set(state: PoolState, event: e.ScheduleSet, offset: int) -> None:
    """New, or in place of the one before: a pause goes on, and what was handled stays handled."""
    schedules, before = state.schedules, state.schedules.rows.get(event.schedule)
    row = schedules.rows[event.schedule] = Schedule(
        name=event.schedule,
        every_ms=event.every_ms,
        cron=event.cron,
        zone=event.zone,
        overlap=event.overlap,
        catch_up=event.catch_up,
        jitter_ms=event.jitter_ms,
        task=event.task,
        sequence=event.sequence,
        handled_at=event.occurred_at if event.since_at is None else event.since_at,
    )
    if before is not None:
        row.paused, row.resumed_at, row.free_at = before.paused, before.resumed_at, before.free_at
        row.skipped, row.asked = before.skipped, before.asked
    schedules.ask(row, event.occurred_at, state.timers)


def _paused(state: PoolState, event: e.SchedulePaused, offset: int) -> None:
    row = state.schedules.rows.get(event.schedule)
    if row is not None:
        row.paused = True


def _resumed(state: PoolState, event: e.ScheduleResumed, offset: int) -> None:
    row = state.schedules.rows.get(event.schedule)
    if row is not None:
        row.paused, row.resumed_at = False, event.occurred_at
        state.schedules.ask(row, event.occurred_at, state.timers)


def _deleted(state: PoolState, event: e.ScheduleDeleted, offset: int) -> None:
    state.schedules.rows.pop(event.schedule, None)


def _skipped(state: PoolState, event: e.FiringsSkipped, offset: int) -> None:
    row = state.schedules.rows.get(event.schedule)
    if row is not None:
        row.handled_at = max(row.handled_at, event.last)
        row.skipped = Skipped(event.first, event.last, event.reason, event.occurred_at)


def follow_firing(state: PoolState, event: e.TaskTransition) -> None:
    """Which firings of a schedule are open: those that wait, are with a robot, or lost."""
    if isinstance(event, e.TaskSubmitted):
        state.schedules.opened(event.task)
        _fired(state, event)
    elif isinstance(event, e.TaskRedriven):
        state.schedules.opened(event.task)
    elif event.to in ENDED_STATES:
        state.schedules.ended(event.task, event.occurred_at, state.timers)


def _fired(state: PoolState, event: e.TaskSubmitted) -> None:
    """The instant is handled; one that somebody fires by hand handles none."""
    row = None if event.schedule is None else state.schedules.rows.get(event.schedule.id)
    if row is not None and event.schedule is not None and event.caused_by == "clock":
        row.handled_at = max(row.handled_at, event.schedule.instant)


SCHEDULE_EVENTS: Final[Appliers] = {
    e.ScheduleSet: _set,
    e.SchedulePaused: _paused,
    e.ScheduleResumed: _resumed,
    e.ScheduleDeleted: _deleted,
    e.FiringsSkipped: _skipped,
}
