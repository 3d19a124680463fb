"""A pool on a clock of the test's own, for the worked examples of the pages: what is said here was decided so."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from commands import inputs as i
from commands import messages as m
from commands.decide import Context
from commands.events import Event
from commands.pool import Pool, Written

DAY = int(datetime(2026, 11, 30, tzinfo=UTC).timestamp()) * 1_000


def at(text: str) -> int:
    """The instant `HH:MM:SS.mmm` (or less of it) of the day that the examples play on."""
    clock, _, ms = text.partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    return DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000 + int(ms.ljust(3, "0") or 0)


def clock(instant: int) -> str:
    """The instant as `HH:MM:SS.mmm`."""
    ms = instant - DAY
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1_000 % 60:02}.{ms % 1_000:03}"


class Played:
    """One pool. Every step names its instant as `HH:MM:SS.mmm`; time acts before it, dispatch after it."""

    def __init__(self, begins: str, **settings: Any) -> None:
        self.written = Written()
        self.pool = Pool.new("hall-a", self.written, at(begins))
        self._settings = settings
        self._seq: dict[str, int] = {}
        self._count = 0

    @property
    def events(self) -> list[Event]:
        """What has happened."""
        return [row.event for row in self.written.events]

    def of(self, name: str) -> list[Any]:
        """The events of one type."""
        return [event for event in self.events if event.name == name]

    def submit(self, when: str, task: str, **more: Any) -> None:
        """A task of kind `weld`."""
        self._take(when, self._command(i.Submit, i.Submission(task=task, kind="weld", **more)))

    def ask(self, when: str, shape: Any, body: Any) -> None:
        """Any other command."""
        self._take(when, self._command(shape, body))

    def hello(self, when: str, robot: str, slots: int = 1, capabilities: Sequence[str] = ()) -> None:
        """A session, ready for all slots."""
        self._say(when, robot, m.Hello(id=self._id(), slots=slots, capabilities=list(capabilities), holding=[]))
        self.say(when, robot, m.Ready, n=slots)

    def say(self, when: str, robot: str, shape: Any, **fields: Any) -> None:
        """A message of the robot's current session."""
        self._seq[robot] = self._seq.get(robot, 0) + 1
        epoch = self.pool.state.robots[robot].epoch
        self._say(when, robot, shape(id=self._id(), epoch=epoch, seq=self._seq[robot], **fields))

    def beat(self, when: str, robot: str, *held: tuple[str, int]) -> None:
        """A heartbeat that names these attempts."""
        self.wait(when)
        holding = [i.HeldByRobot(task=task, attempt=attempt) for task, attempt in held]
        beat = i.Beat(robot=robot, epoch=self.pool.state.robots[robot].epoch, seq=0, holding=holding)
        self.pool.take_heartbeats(i.Heartbeats(pool="hall-a", gateway="g", beats=[beat]), self._context(at(when)))
        self.pool.dispatch(at(when), 100)

    def wait(self, until: str) -> None:
        """Time acts, at each instant at which it has something to do."""
        end = at(until)
        while (due := self.pool.next_at()) is not None and due <= end:
            self.pool.advance(due, due)
            self.pool.dispatch(due, 100)

    def _say(self, when: str, robot: str, message: Any) -> None:
        self._take(when, i.Report(pool="hall-a", robot=robot, gateway="g", actor="local", create=True, message=message))

    def _command(self, shape: Any, body: Any) -> Any:
        return shape(id=self._id(), pool="hall-a", actor="local", reply_to="g", create=True, body=body)

    def _id(self) -> str:
        self._count += 1
        return f"m.{self._count}"

    def _take(self, when: str, asked: Any) -> None:
        self.wait(when)
        now = self.pool.instant(at(when))
        self.pool.take(asked, self._context(now))
        self.pool.dispatch(now, 100)

    def _context(self, now: int) -> Context:
        return Context(now=now, log_id="0" * 32, format=1, defaults=self._settings)
