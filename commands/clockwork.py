"""What time does beside closing windows: accept-by, lost-robot wait, holds, deadlines, pauses, not-before, rates,
schedules.

A timer only asks to look; each look checks the rows again, so it may come late, early or twice.
"""

from collections.abc import Callable, Iterator
from typing import Final

from commands import events as e
from commands.decide import answers as a
from commands.decide.losing import after_wait
from commands.firing import Firings
from commands.heartbeats import Step
from commands.state import Held, PoolState, Task


def act_on_time(state: PoolState, now: int, settled: int) -> Iterator[Step]:
    """Every step that is due at or before `settled`, the instant up to which all input is applied."""
    firings = Firings(state, now, settled)
    yield from firings.begin()
    while (entry := state.timers.pop(settled)) is not None:
        at, what, key = entry
        if what == "schedule":
            yield from firings.timer(key, at)
        else:
            yield from _ACTS[what](state, key, at, now)
    firings.end()


def _due(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """Not-before or back-off is over: no event, the task joins its lane."""
    task = state.tasks.get(key)
    if task is not None:
        state.queue.due(task, now)
    yield from ()


def _accept(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """Not accepted by accept-by: withdrawn; three lapses in a row put the robot into ERROR."""
    task = state.tasks.get(key)
    if task is None or task.state != "ASSIGNED" or task.current is None or task.current.accept_by > at:
        return
    robot = state.robots[task.current.robot]
    yield (
        e.AssignmentWithdrawn(
            task=task.id, origin="ASSIGNED", attempt=task.attempt, robot=robot.id, reason="accept_timeout"
        ),
        [],
    )
    if robot.lapses >= state.settings.lapses_max and robot.fault is None:
        yield e.RobotFaulted(robot=robot.id, epoch=robot.epoch, reason="does_not_accept"), []


def _lost_wait(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """The same robot did not come back in time."""
    task = state.tasks.get(key)
    if task is None or task.state != "LOST" or task.current is None or task.current.wait_until != at:
        return
    end = after_wait(task)
    yield (
        e.LostWaitEnded(
            task=task.id,
            origin="LOST",
            to=end.to,
            dead_reason=end.dead_reason,
            attempt=task.attempt,
            robot=task.current.robot,
            lost=task.lost,
        ),
        [],
    )


def _hold(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """The robot has surely stopped: slot and target are free."""
    task_id, _, attempt = key.rpartition("/")
    hold = state.holds.get(Held(task_id, int(attempt)))
    if hold is None or hold.until is None or hold.until > at:
        return
    target = None if hold.target is None else hold.target.name
    yield e.HoldEnded(task=task_id, attempt=hold.attempt, robot=hold.robot, target=target, why="time"), []


def _deadline(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """A deadline acts in WAITING and RUNNING; in ASSIGNED and LOST it waits for the next transition."""
    task = state.tasks.get(key)
    if task is None or task.state not in ("WAITING", "RUNNING"):
        return
    for which, deadline, then in passed_deadlines(task, at):
        yield _passed(state, task, which, deadline, then)
        if state.tasks.get(key) is not task or task.state not in ("WAITING", "RUNNING"):
            return


def passed_deadlines(task: Task, at: int) -> list[tuple[str, int, str]]:
    """(which, instant, then) of deadlines that have passed at `at` and were not told yet."""
    deadlines, told = task.deadlines, {} if task.story is None else task.story.passed
    if deadlines is None:
        return []
    found = []
    if deadlines.start is not None and task.state == "WAITING":
        found.append(("start", deadlines.start.at, deadlines.start.then))
    if deadlines.run is not None and task.state == "RUNNING" and task.current is not None:
        found.append(("run", task.current.started_at + deadlines.run.ms, deadlines.run.then))
    if deadlines.end is not None:
        found.append(("end", deadlines.end.at, deadlines.end.then))
    return [row for row in found if row[1] <= at and row[0] not in told]


def _passed(state: PoolState, task: Task, which: str, deadline: int, then: str) -> Step:
    running = task.state == "RUNNING"
    to = "RUNNING" if running else {"alarm": "WAITING", "dead": "DEAD", "cancel": "CANCELLED"}[then]
    event = e.DeadlinePassed(
        task=task.id,
        origin=task.state,
        to=to,
        dead_reason="deadline" if to == "DEAD" else None,
        which=which,  # type: ignore[arg-type]
        deadline=deadline,
        then=then,  # type: ignore[arg-type]
        attempt=task.attempt if running else None,
    )
    robot = state.robots.get(task.current.robot) if task.current is not None else None
    told = running and then != "alarm" and robot is not None
    return event, [a.cancel(robot, task.id, task.attempt, "deadline")] if told and robot is not None else []


def _pause(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """A pause with an end is over."""
    scope, _, name = key.partition("/")
    paused = state.paused.get((scope, name))
    if paused is None or paused.until is None or paused.until > at:
        return
    yield e.DispatchResumed(scope=scope, name_=name or None, reason="until reached"), []  # type: ignore[arg-type]


def _look_again(state: PoolState, key: str, at: int, now: int) -> Iterator[Step]:
    """An exclusion is over, or a rate lets one more begin: nothing to write, dispatch looks again."""
    yield from ()


_ACTS: Final[dict[str, Callable[[PoolState, str, int, int], Iterator[Step]]]] = {
    "due": _due,
    "accept": _accept,
    "lost_wait": _lost_wait,
    "hold": _hold,
    "deadline": _deadline,
    "pause": _pause,
    "excluded": _look_again,
    "limit": _look_again,
}
