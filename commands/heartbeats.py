"""Signs of life, gathered outside pool state: what was heard in which window, and the newest progress.

A message counts in every window from the oldest unclosed one to the one that contains `now`, so one number per
attempt and robot is enough: the start of the latest window in which it was heard. All this survives an aborted batch
and is lost at hand-over, where `OwnershipTaken` gives a grace instead.
"""

from collections.abc import Iterator
from typing import Any, Final

from commands import events as e
from commands.decide import answers as a
from commands.decide.answers import Decision, Draft
from commands.decide.attempts import has_stopped, resumed
from commands.decide.robots import why_stop
from commands.inputs import Beat, Heartbeats, Report
from commands.messages import Hello
from commands.reasons import Refusal
from commands.state import PoolState, Reported, Robot, Task

Step = tuple[e.Event, list[Draft]]
ITEMS_PER_EVENT: Final = 1_500
"""So that three lists of the longest names stay below the size of a record."""
PROGRESS_PER_EVENT: Final = 500
"""A note has up to 200 characters of up to six bytes."""


class Pulse:
    """The open windows of one pool. `open_from` is the start of the oldest window that is not closed.

    `newest`: epoch and number of the last report of each robot.
    """

    __slots__ = ("_noted_second", "_progress", "_told", "newest", "open_from", "robots", "tasks")

    def __init__(self, open_from: int, now: int) -> None:
        self.open_from = open_from
        self.tasks: dict[str, int] = {}
        self.robots: dict[str, int] = {}
        self.newest: dict[str, tuple[int, int]] = {}
        self._progress: dict[str, tuple[int, int | None, str | None]] = {}
        self._told: dict[str, tuple[int, int | None, str | None]] = {}
        self._noted_second = now // 1_000

    def hear_robot(self, robot: str, window: int) -> None:
        """The robot sent something."""
        self.robots[robot] = window

    def hear_task(self, task: str, window: int) -> None:
        """A message of the current epoch named the task's current attempt."""
        self.tasks[task] = window

    def note_progress(self, task: str, attempt: int, progress: int | None, note: str | None) -> None:
        """Keeps the newest progress of an attempt until it is written."""
        news = (attempt, progress, note)
        if (progress is not None or note is not None) and self._told.get(task) != news:
            self._progress[task] = news

    def forget(self, state: PoolState) -> None:
        """Drops what is about attempts and robots that are gone."""
        self.tasks = {k: v for k, v in self.tasks.items() if k in state.running}
        self.robots = {k: v for k, v in self.robots.items() if k in state.robots}
        self.newest = {k: v for k, v in self.newest.items() if k in state.robots}
        self._told = {k: v for k, v in self._told.items() if k in state.running}

    def progress_due(self, now: int) -> bool:
        """Whether progress is to be written in this second of the pool."""
        return bool(self._progress) and now // 1_000 > self._noted_second

    def progress_at(self) -> int | None:
        """The first instant at which waiting progress may be written, or None."""
        return (self._noted_second + 1) * 1_000 if self._progress else None

    def take_progress(self, state: PoolState, now: int) -> list[e.ProgressNoted]:
        """What changed since the last second, as events; of attempts that still run."""
        self._noted_second = now // 1_000
        items = []
        for task_id, (attempt, progress, note) in self._progress.items():
            task = state.running.get(task_id)
            if task is not None and task.attempt == attempt:
                self._told[task_id] = (attempt, progress, note)
                text = None if note is None else {"json": note}
                items.append(e.ProgressItem(task=task_id, attempt=attempt, progress=progress, note=text))
        self._progress.clear()
        pieces = [items[k : k + PROGRESS_PER_EVENT] for k in range(0, len(items), PROGRESS_PER_EVENT)]
        return [e.ProgressNoted(items=p, part=k, parts=len(pieces)) for k, p in enumerate(pieces, 1)]


def out_of_order(pulse: Pulse, state: PoolState, asked: Any) -> Decision | None:
    """The refusal of a report whose number is not above the last of its session, or None: order is by number."""
    if not isinstance(asked, Report) or asked.message.type == "hello":
        return None
    epoch, seq = asked.message.epoch or 0, asked.message.seq or 0
    robot = state.robots.get(asked.robot)
    if robot is None or not robot.online or robot.epoch != epoch:
        return None
    known, last = pulse.newest.get(robot.id, (0, 0))
    if seq > (last if known == epoch else 0):
        return None
    return a.no(asked.gateway, asked.robot, asked.message, Refusal("invalid_field", "an old number", "/seq"))


def hear(pulse: Pulse, state: PoolState, report: Report, now: int) -> None:
    """A message of the current session is a sign of life; the attempts of its robot that it names are counted."""
    robot, message = state.robots.get(report.robot), report.message
    if robot is None or not robot.online:
        return
    named: list[Any] = [message]
    if isinstance(message, Hello):
        named = list(message.holding)
    if robot.hello != message.id if isinstance(message, Hello) else robot.epoch != message.epoch:
        return
    window = state.window_start(now)
    pulse.hear_robot(robot.id, window)
    known, last = pulse.newest.get(robot.id, (0, 0))
    pulse.newest[robot.id] = (robot.epoch, max(message.seq or 0, last if known == robot.epoch else 0))
    for held in named:
        task = state.running.get(getattr(held, "task", ""))
        if task is not None and _is_current(task, robot, held.attempt):
            pulse.hear_task(task.id, window)


def beats(state: PoolState, pulse: Pulse, heartbeats: Heartbeats, now: int) -> Iterator[Step | Draft]:
    """Counts every beat of a current session; resumes LOST attempts that are named, stops what is not the robot's."""
    window = state.window_start(now)
    for beat in heartbeats.beats:
        robot = state.robots.get(beat.robot)
        if robot is None or not robot.online or robot.epoch != beat.epoch:
            continue
        pulse.hear_robot(robot.id, window)
        yield from _beat(state, pulse, robot, beat, window, now)


def _beat(state: PoolState, pulse: Pulse, robot: Robot, beat: Beat, window: int, now: int) -> Iterator[Step | Draft]:
    for held in beat.holding:
        task = state.tasks.get(held.task)
        if not _is_current(task, robot, held.attempt) or task is None:
            if not _is_reported(state, task, robot, held.task, held.attempt):
                yield a.stop(robot, held.task, held.attempt, why_stop(task, state.ended.get(held.task), held.attempt))
            continue
        if task.state == "LOST" and not has_stopped(task):
            yield resumed(state, task, robot, now), []
        if task.state == "RUNNING":
            pulse.hear_task(task.id, window)
            pulse.note_progress(task.id, held.attempt, held.progress, held.note)


def _is_current(task: Task | None, robot: Robot, attempt: int) -> bool:
    return task is not None and task.current is not None and task.attempt == attempt and task.current.robot == robot.id


def _is_reported(state: PoolState, task: Task | None, robot: Robot, task_id: str, attempt: int) -> bool:
    """Whether the robot's own final report ended this attempt and only its ack is still on the way."""
    ended = state.ended.get(task_id)
    if task is not None:
        story = task.story
        mine = story is not None and task.attempt == attempt and story.last_robot == robot.id
        return mine and story is not None and _final_report(story.reported, attempt)
    if ended is None or (ended.attempt, ended.robot) != (attempt, robot.id):
        return False
    return ended.state == "COMPLETED" or _final_report(ended.reported or {}, attempt)


def _final_report(reported: Reported, attempt: int) -> bool:
    return any((attempt, kind) in reported for kind in ("complete", "fail", "stopped"))
