"""Signs of life, gathered outside pool state: what was heard in which window, and the newest progress.

A message counts in every window from the oldest unclosed one to the one that contains `now`, so one number per
attempt and robot is enough: the start of the latest window in which it was heard. All this survives an aborted batch
and is lost at hand-over, where `OwnershipTaken` gives a grace instead.
"""

from collections.abc import Iterator

from commands import events as e
from commands.decide import answers as a
from commands.decide.answers import Draft
from commands.decide.attempts import resumed
from commands.decide.robots import why_stop
from commands.inputs import Beat, Heartbeats
from commands.state import PoolState, Robot, Task

Step = tuple[e.Event, list[Draft]]
ITEMS_PER_EVENT = 2_000


class Pulse:
    """The open windows of one pool. `open_from` is the start of the oldest window that is not closed."""

    __slots__ = ("_noted_second", "_progress", "_told", "open_from", "robots", "tasks")

    def __init__(self, open_from: int, now: int) -> None:
        self.open_from = open_from
        self.tasks: dict[str, int] = {}
        self.robots: dict[str, int] = {}
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
        pieces = [items[k : k + ITEMS_PER_EVENT] for k in range(0, len(items), ITEMS_PER_EVENT)]
        return [e.ProgressNoted(items=p, part=k, parts=len(pieces)) for k, p in enumerate(pieces, 1)]


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
        if task.state == "LOST":
            yield resumed(state, task, robot, now), []
        if task.state == "RUNNING":
            pulse.hear_task(task.id, window)
            pulse.note_progress(task.id, held.attempt, held.progress, held.note)


def _is_current(task: Task | None, robot: Robot, attempt: int) -> bool:
    return task is not None and task.current is not None and task.attempt == attempt and task.current.robot == robot.id


def _is_reported(state: PoolState, task: Task | None, robot: Robot, task_id: str, attempt: int) -> bool:
    """Whether the robot's own final report ended this attempt and only its ack is still on the way."""
    ended = state.ended.get(task_id)
    if task is None:
        return ended is not None and ended.attempt == attempt and ended.robot == robot.id
    story = task.story
    return (
        story is not None
        and task.attempt == attempt
        and story.last_robot == robot.id
        and story.last_end in ("complete", "fail", "stopped")
    )
