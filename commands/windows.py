"""Lease expiry as windowed aggregation of missing heartbeats (docs/understand/leases.md).

A window is closed once its end has passed and all input before that end is applied, total silence or not. Missed in
n windows in a row means the lease is over. Each step is an event with the outcomes that follow it; the caller records
one before it asks for the next, so each is decided on the state after the one before.
"""

from collections.abc import Iterator

from commands import events as e
from commands.decide import answers as a
from commands.decide.losing import after_loss
from commands.heartbeats import ITEMS_PER_EVENT, Pulse, Step
from commands.state import Attempt, PoolState, Task


def close_windows(state: PoolState, pulse: Pulse, settled: int) -> Iterator[Step]:
    """Closes every window that ended at or before `settled`, oldest first."""
    start = max(pulse.open_from, state.counting_from)
    while start + state.window_ms_at(start) <= settled:
        length_ms = state.window_ms_at(start)
        if not state.running and not any(robot.online for robot in state.robots.values()):
            start = state.window_start(settled)
            break
        yield from _close(state, pulse, start, length_ms)
        pulse.forget(state)
        start += length_ms
    pulse.open_from = max(start, pulse.open_from)


def next_close_at(state: PoolState, pulse: Pulse) -> int | None:
    """When the oldest open window ends, or None while nothing is watched."""
    if not state.running and not any(robot.online for robot in state.robots.values()):
        return None
    start = max(pulse.open_from, state.counting_from)
    return start + state.window_ms_at(start)


def _close(state: PoolState, pulse: Pulse, start: int, length_ms: int) -> Iterator[Step]:
    for event in _missed(state, pulse, start, length_ms):
        yield event, []
    due = sorted(_due(state, start), key=lambda task: task.id)
    if _is_mass_expiry(state, due):
        robots = {_current(task).robot for task in due}
        until = start + 2 * length_ms
        yield e.ExpiryHeld(window=start, leases=len(due), robots=len(robots), until=until), []
        return
    for task in due:
        yield _expired(state, task, start, length_ms)


def _missed(state: PoolState, pulse: Pulse, start: int, length_ms: int) -> list[e.WindowMissed]:
    attempts = [
        e.MissedAttempt(
            task=task.id, attempt=task.attempt, missed=_in_a_row(state, current.missed, current.missed_at, start)
        )
        for task in state.running.values()
        if (current := _current(task)).counts_from <= start and pulse.tasks.get(task.id, -1) < start
    ]
    robots, returned = [], []
    for robot in state.robots.values():
        if not robot.online:
            continue
        heard = pulse.robots.get(robot.id, -1) >= start
        if heard and (robot.silent or robot.offline):
            returned.append(robot.id)
        elif not heard and not robot.offline and robot.counts_from <= start:
            missed = _in_a_row(state, robot.missed, robot.missed_at, start)
            robots.append(e.MissedRobot(robot=robot.id, missed=missed))
    return _in_parts(start, length_ms, attempts, robots, returned)


def _in_a_row(state: PoolState, missed: int, missed_at: int, start: int) -> int:
    """Counts go on from the window just before, of the same length: a new length begins at 0."""
    before = start - state.window_ms_at(start)
    return missed + 1 if missed and missed_at == before and start != state.window_from else 1


def _in_parts(
    start: int,
    length_ms: int,
    attempts: list[e.MissedAttempt],
    robots: list[e.MissedRobot],
    returned: list[str],
) -> list[e.WindowMissed]:
    most = max(len(attempts), len(robots), len(returned))
    parts = -(-most // ITEMS_PER_EVENT)
    return [
        e.WindowMissed(
            start=start,
            length_ms=length_ms,
            attempts=attempts[k : k + ITEMS_PER_EVENT],
            robots=robots[k : k + ITEMS_PER_EVENT],
            returned=returned[k : k + ITEMS_PER_EVENT],
            part=k // ITEMS_PER_EVENT + 1,
            parts=parts,
        )
        for k in range(0, most, ITEMS_PER_EVENT)
    ]


def _due(state: PoolState, start: int) -> Iterator[Task]:
    for task in state.running.values():
        current = _current(task)
        if current.missed_at == start and current.missed >= state.windows_of(current.lease_ms, start):
            yield task


def _is_mass_expiry(state: PoolState, due: list[Task]) -> bool:
    """So many at once that the fault is probably on our side; held once per episode."""
    least, share = state.settings.expiry_held_min, state.settings.expiry_held_share
    return 0 < least <= len(due) and len(due) > share * len(state.running) and state.held_window == -1


def _expired(state: PoolState, task: Task, start: int, length_ms: int) -> Step:
    current = _current(task)
    end = after_loss(state, task, current, state.last_at, forgotten=False)
    robot = state.robots[current.robot]
    event = e.LeaseExpired(
        task=task.id,
        origin="RUNNING",
        to=end.to,
        dead_reason=end.dead_reason,
        wait_until=end.wait_until,
        attempt=task.attempt,
        robot=robot.id,
        epoch=robot.epoch,
        reason="missed_windows",
        first_window=start - (current.missed - 1) * length_ms,
        last_window=start,
        held=end.held,
        held_until=end.held_until,
        lost=task.lost + 1,
        policy=task.terms.policy,  # type: ignore[arg-type]
    )
    told = end.to != "LOST" and robot.online
    return event, [a.stop(robot, task.id, task.attempt, "expired")] if told else []


def _current(task: Task) -> Attempt:
    if task.current is None:
        raise AssertionError(f"{task.id} runs without an attempt")
    return task.current
