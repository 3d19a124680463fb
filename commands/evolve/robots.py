"""How events of robots, windows and ownership change the rows."""

from typing import Final

from commands import events as e
from commands.evolve.tasks import Appliers
from commands.ids import boot_of
from commands.requirements import abilities_of
from commands.state import Attempt, PoolState, Robot, Task

OFFLINE_AFTER_MISSED: Final = 3
RETIRED_MAX: Final = 10_000
"""How many retired robots are remembered."""
FORMER_MAX: Final = 8
"""How many programs of a robot are remembered beside the newest: a late hello of theirs begins nothing."""


def _registered(state: PoolState, event: e.RobotRegistered, offset: int) -> None:
    state.robots[event.robot] = Robot(event.robot)
    state.retired.pop(event.robot, None)


def _session_started(state: PoolState, event: e.RobotSessionStarted, offset: int) -> None:
    robot = state.robots[event.robot]
    if robot.online and event.superseded_epoch is not None and boot_of(robot.hello) != boot_of(event.hello):
        recent = (at for at in robot.supersessions if at > event.occurred_at - 60_000)
        robot.supersessions = (*recent, event.occurred_at)
    robot.epoch = event.epoch
    robot.former = _former_programs(robot, event.hello)
    robot.hello = event.hello
    robot.gateway = event.gateway
    robot.slots = event.slots
    robot.capabilities = tuple(event.capabilities)
    robot.abilities = abilities_of(event.capabilities)
    robot.agent = event.agent
    robot.inline_max_bytes = event.inline_max_bytes
    robot.online, robot.silent, robot.offline = True, False, False
    robot.ready = robot.missed = robot.lapses = robot.rejects = 0
    robot.counts_from = state.window_after(event.occurred_at)
    if robot.fault != "two_programs":
        robot.fault = None
    for task_id in robot.excluding:
        story = state.tasks[task_id].story
        if story is not None:
            story.excluded.pop(robot.id, None)
    robot.excluding.clear()
    state.queue.robot_changed(robot)


def _former_programs(robot: Robot, hello: str) -> tuple[str, ...]:
    boot = boot_of(hello)
    others = [one for one in (*robot.former, robot.hello) if one and boot_of(one) != boot]
    return tuple(others[-FORMER_MAX:])


def _session_ended(state: PoolState, event: e.RobotSessionEnded, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.online, robot.offline, robot.silent, robot.ready = False, True, False, 0
    state.queue.room_changed(robot)


def _ready_changed(state: PoolState, event: e.RobotReadyChanged, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.ready = event.n
    state.queue.room_changed(robot)


def _robot_changed(state: PoolState, event: e.RobotChanged, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.slots = event.slots
    robot.capabilities = tuple(event.capabilities)
    robot.abilities = abilities_of(event.capabilities)
    state.queue.robot_changed(robot)


def _faulted(state: PoolState, event: e.RobotFaulted, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.fault = event.reason
    state.queue.room_changed(robot)


def _recovered(state: PoolState, event: e.RobotRecovered, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.fault = None
    robot.lapses = robot.rejects = 0
    robot.supersessions = ()
    state.queue.room_changed(robot)


def _drained(state: PoolState, event: e.RobotDrained | e.RobotUndrained, offset: int) -> None:
    robot = state.robots[event.robot]
    robot.draining = isinstance(event, e.RobotDrained)
    state.queue.room_changed(robot)


def _retired(state: PoolState, event: e.RobotRetired, offset: int) -> None:
    robot = state.robots.pop(event.robot)
    state.retired[robot.id] = robot.hello
    if len(state.retired) > RETIRED_MAX:
        del state.retired[next(iter(state.retired))]
    for task_id in robot.excluding:
        story = state.tasks[task_id].story
        if story is not None:
            story.excluded.pop(robot.id, None)
    state.queue.robot_gone(robot)


def _window_missed(state: PoolState, event: e.WindowMissed, offset: int) -> None:
    """Counts in a row; a count whose last missed window is not the one just before begins at 1, as the event says."""
    due = False
    for missed in event.attempts:
        current = _current(state.tasks[missed.task])
        current.missed, current.missed_at = missed.missed, event.start
        due |= missed.missed >= state.windows_of(current.lease_ms, event.start)
    if due:
        if state.due_window not in (event.start, event.start - event.length_ms):
            state.held_window = -1
        state.due_window = event.start
    for silent in event.robots:
        robot = state.robots[silent.robot]
        robot.missed, robot.missed_at, robot.silent = silent.missed, event.start, True
        robot.offline |= silent.missed >= OFFLINE_AFTER_MISSED
        state.queue.room_changed(robot)
    for name in event.returned:
        robot = state.robots[name]
        robot.missed, robot.silent, robot.offline = 0, False, False
        state.queue.room_changed(robot)


def _expiry_held(state: PoolState, event: e.ExpiryHeld, offset: int) -> None:
    state.held_window = event.window


def reset_counts(state: PoolState, event: e.Event, offset: int) -> None:
    """Nothing counts before the first window that begins after this event."""
    state.counting_from = state.window_after(event.occurred_at)
    state.due_window = state.held_window = -1
    for task in state.running.values():
        _current(task).missed = 0
    for robot in state.robots.values():
        robot.missed = robot.lapses = 0
        robot.lapsed_at = event.occurred_at


def _clock_accepted(state: PoolState, event: e.ClockAccepted, offset: int) -> None:
    reset_counts(state, event, offset)
    state.counting_from = max(state.counting_from, state.window_after(event.to_at))
    shift = event.to_at - event.from_at
    if shift <= 0:
        return
    for task in state.tasks.values():
        if task.state == "ASSIGNED" and task.current is not None:
            task.current.accept_by += shift
            state.timers.push(task.current.accept_by, "accept", task.id)
    _move_waits(state, shift)


def _ownership_taken(state: PoolState, event: e.OwnershipTaken, offset: int) -> None:
    """Nobody knows how much of the gap has really passed: another machine's clock says so, and robots do not see it."""
    reset_counts(state, event, offset)
    if event.gap_ms > 0:
        _move_waits(state, event.gap_ms)


def _move_waits(state: PoolState, shift: int) -> None:
    """Open lost-robot waits and holds end later by `shift` ms."""
    for task in state.tasks.values():
        current = task.current
        if current is not None and current.wait_until is not None:
            current.wait_until += shift
            state.timers.push(current.wait_until, "lost_wait", task.id)
    for hold in state.holds.values():
        if hold.until is not None:
            hold.until += shift
            state.timers.push(hold.until, "hold", f"{hold.task}/{hold.attempt}")


def _current(task: Task) -> Attempt:
    if task.current is None:
        raise AssertionError(f"task {task.id} has no attempt in {task.state}")
    return task.current


ROBOT_EVENTS: Final[Appliers] = {
    e.RobotRegistered: _registered,
    e.RobotSessionStarted: _session_started,
    e.RobotSessionEnded: _session_ended,
    e.RobotReadyChanged: _ready_changed,
    e.RobotChanged: _robot_changed,
    e.RobotFaulted: _faulted,
    e.RobotRecovered: _recovered,
    e.RobotDrained: _drained,
    e.RobotUndrained: _drained,
    e.RobotRetired: _retired,
    e.WindowMissed: _window_missed,
    e.ExpiryHeld: _expiry_held,
    e.OwnershipTaken: _ownership_taken,
    e.ClockAccepted: _clock_accepted,
}
