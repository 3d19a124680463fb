"""A pool as it stood at one moment, written line by line while events go on.

At the cut only lists of rows are taken. A row that is not written yet is kept as it was when the first event is about
to change it (`before`, which `evolve` calls), so all lines are true of the moment of the cut.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic_core import to_json

from commands import events as e
from commands import rows
from commands.state import Ended, Held, Hold, PoolState, Robot, Target, Task, Terms


class Cut:
    """The lines of one pool as of now; `end` when they are written, or no longer wanted. One at a time for a pool."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._sequence = state.sequence
        self._written_to = 0
        self._header = rows.header_line(state)
        self._schedules = [to_json(["schedule", *row.as_row()]) for row in state.schedules.rows.values()]
        self._robots = _reversed(state.robots.values())
        self._targets = _reversed(state.targets.values())
        self._tasks = _reversed(state.tasks.values())
        self._holds = _reversed(state.holds.values())
        self._ended = _reversed(state.ended.values())
        self._ended_ids = _reversed(state.ended_order)
        self._commands = state.commands.items()
        self._kept: dict[int, bytes] = {}
        self._kept_tasks: dict[int, tuple[Terms, bytes]] = {}
        state.cut = self

    def end(self) -> None:
        """Nothing more is kept."""
        self._state.cut = None

    # ---- writing ----

    def lines(self) -> Iterator[bytes]:
        """Every line, without line ends, in the order of the format; once."""
        yield self._header
        yield from self._lines(self._robots, _robot_line)
        yield from self._lines(self._targets, _target_line)
        yield from self._task_lines()
        yield from self._lines(self._holds, _hold_line)
        yield from self._schedules
        while self._ended:
            ended, task_id = self._ended.pop(), self._ended_ids.pop()
            yield self._kept.pop(id(ended), b"") or _ended_line(task_id, ended)
        for key, memory in self._commands:
            yield to_json(["command", *rows.memory_row(key, memory)])

    def _lines(self, left: list[Any], line_of: Callable[[Any], bytes]) -> Iterator[bytes]:
        while left:
            row = left.pop()
            yield self._kept.pop(id(row), b"") or line_of(row)

    def _task_lines(self) -> Iterator[bytes]:
        """Before the first task with certain terms, a line with these and their number."""
        numbers: dict[int, tuple[int, Terms]] = {}  # holds the terms, because their ids could come again
        while self._tasks:
            task = self._tasks.pop()
            self._written_to = task.sequence
            terms, row = self._kept_tasks.pop(id(task), None) or (task.terms, _task_row(task))
            if id(terms) not in numbers:
                numbers[id(terms)] = (len(numbers), terms)
                yield to_json(["terms", numbers[id(terms)][0], rows.terms_row(terms)])
            yield b'["task",%d,%b' % (numbers[id(terms)][0], row[1:])

    # ---- keeping what events change ----

    def before(self, event: e.Event) -> None:
        """Keeps every row that the event may change and that is not written yet."""
        state = self._state
        if isinstance(event, e.WindowMissed):
            self._keep_tasks(state.tasks[missed.task] for missed in event.attempts)
            self._keep_robots(state.robots[missed.robot] for missed in event.robots)
            self._keep_robots(state.robots[name] for name in event.returned)
        elif isinstance(event, e.OwnershipTaken | e.PoolUnfrozen | e.ClockAccepted):
            self._keep_tasks(task for task in state.tasks.values() if task.current is not None)
            self._keep_robots(state.robots.values())
            for hold in state.holds.values():
                self._keep(hold, _hold_line)
        task_id, robot = getattr(event, "task", None), state.robots.get(getattr(event, "robot", None) or "")
        if isinstance(task_id, str):
            self._keep_about(task_id)
        if robot is not None:
            self._keep(robot, _robot_line)
            if isinstance(event, e.RobotSessionStarted | e.RobotRetired):
                self._keep_tasks(state.tasks[name] for name in robot.excluding)
        if isinstance(event, e.HoldEnded):
            ended = state.holds.get(Held(event.task, event.attempt))
            if ended is not None and ended.target is not None:
                self._keep(ended.target, _target_line)

    def _keep_about(self, task_id: str) -> None:
        task, ended = self._state.tasks.get(task_id), self._state.ended.get(task_id)
        if task is not None:
            self._keep_tasks([task])
            if task.target is not None:
                self._keep(task.target, _target_line)
        if ended is not None:
            self._keep(ended, lambda row: _ended_line(task_id, row))

    def _keep_tasks(self, tasks: Iterable[Task]) -> None:
        """Tasks are written in the order of their sequences, which is that of `PoolState.tasks`."""
        for task in tasks:
            if self._written_to < task.sequence <= self._sequence and id(task) not in self._kept_tasks:
                self._kept_tasks[id(task)] = (task.terms, _task_row(task))

    def _keep_robots(self, robots: Iterable[Robot]) -> None:
        for robot in robots:
            self._keep(robot, _robot_line)

    def _keep(self, row: Any, line_of: Callable[[Any], bytes]) -> None:
        """What came after the cut may be kept too: it is not in the lists, which hold theirs, so nobody asks for it."""
        if id(row) not in self._kept:
            self._kept[id(row)] = line_of(row)


def snapshot_lines(state: PoolState) -> Iterator[bytes]:
    """The pool as lines of JSON, without line ends, all as of now."""
    cut = Cut(state)
    try:
        yield from cut.lines()
    finally:
        cut.end()


def _reversed(values: Iterable[Any]) -> list[Any]:
    """To be taken from the end, so that what is written is let go."""
    found = list(values)
    found.reverse()
    return found


def _task_row(task: Task) -> bytes:
    return to_json(rows.task_row(task, task.offset))


def _robot_line(robot: Robot) -> bytes:
    return to_json(["robot", rows.robot_row(robot)])


def _target_line(target: Target) -> bytes:
    return to_json(["target", *rows.target_row(target)])


def _hold_line(hold: Hold) -> bytes:
    return to_json(["hold", *rows.hold_row(hold)])


def _ended_line(task_id: str, ended: Ended) -> bytes:
    return to_json(["ended", *rows.ended_row(task_id, ended)])
