"""A log in a list, a projector and a reader of its tables, together in one process."""

from pathlib import Path
from typing import Any

from commands.events import Event
from projections.answers import Page
from projections.cards import RobotCard, TaskCard
from projections.filters import Filter, parse_filter
from projections.projector import Projector
from projections.queries import Tables
from tests.support.stored_events import ListLog, hello, pool_created, registered

POOL = "hall-a"


class World:
    """Writes events of one pool, folds them at once, and reads the tables as a secondary."""

    def __init__(self, folder: Path, log: ListLog | None = None, begun: bool = True, **projector: Any) -> None:
        self.folder = folder
        self.log = log or ListLog()
        self.projector = Projector(self.log, folder, **projector)
        self.projector.open()
        self.now = 0
        self.tables = Tables(folder, self.log, lambda: self.now or self.log.now)
        if begun:
            self.write(pool_created(), registered(), hello())

    def write(self, *events: Event, pool: str = POOL, after_ms: int = 1) -> None:
        """Appends these events, each `after_ms` after the one before, and folds them."""
        for event in events:
            self.log.write(pool, event, after_ms)
        self.catch_up()

    def catch_up(self) -> None:
        """Folds all that the log has."""
        while any(here < end for here, end in self.projector.lag().values()):
            self.projector.step(0)

    def task(self, task: str, pool: str = POOL) -> TaskCard:
        """The card of a task that must be there."""
        card = self.tables.task(pool, task).value
        assert card is not None, f"no card of {task}"
        return card

    def robot(self, robot: str = "r1", pool: str = POOL) -> RobotCard:
        """The card of a robot that must be there."""
        card = self.tables.robot(pool, robot).value
        assert card is not None, f"no card of {robot}"
        return card

    def ids(self, where: str = "", **own: Any) -> list[str]:
        """The ids of the tasks that match, oldest first."""
        return [card["id"] for card in self.page(where, **{"sort": "submitted", **own}).items]

    def page(self, where: str = "", **own: Any) -> Page[TaskCard]:
        """A page of tasks that must not be refused."""
        page = self.tables.tasks(filter_of(where), **own)
        assert isinstance(page, Page), page
        return page

    def close(self) -> None:
        """Closes reader and projector."""
        self.tables.close()
        self.projector.close()


def filter_of(where: str, subject: Any = "task") -> Filter:
    """A filter that must be one."""
    filtered = parse_filter(where, subject)
    assert isinstance(filtered, Filter), filtered
    return filtered


def replayed(log: ListLog, folder: Path, **projector: Any) -> str:
    """The digest of tables made from this log from the start, in one go."""
    world = World(folder, log, begun=False, **projector)
    try:
        world.catch_up()
        return world.tables.digest()
    finally:
        world.close()
