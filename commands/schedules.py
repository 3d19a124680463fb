"""Schedules as rows: what was set, how far its instants are handled, which of its firings are open. No calendar here.

`evolve` changes the rows by what events say and never computes an instant; `commands/firing.py` looks at a schedule
when its timer comes, and decides. A timer only asks to look, so it may come late, early or twice.
"""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from commands.ids import jitter_share
from commands.vocabulary import Overlap, SkipReason

if TYPE_CHECKING:
    from commands.timers import Timers

SCHEDULES_MAX: Final = 10_000
"""Schedules of one pool."""
SCHEDULE_CHARS_MAX: Final = 100
FIRING_MARK: Final = "@"
"""Stands between schedule and instant in the id of a firing's task; in no other id."""


@dataclass(slots=True)
class Skipped:
    """The newest firings that did not become tasks: first and last instant, why, and when that was written."""

    first: int
    last: int
    reason: SkipReason
    at: int


@dataclass(slots=True, kw_only=True)
class Schedule:
    """One schedule. `task` is its submission without an id, `sequence` that of its ScheduleSet.

    `handled_at`: instants up to it are fired, skipped, or before its time. `free_at`: when its last open firing ended,
    `resumed_at`: when its last pause ended. `asked` are the instants of its timers (derived).
    """

    name: str
    every_ms: int | None
    cron: str | None
    zone: str | None
    overlap: Overlap
    catch_up: int
    jitter_ms: int
    task: dict[str, Any]
    sequence: int
    handled_at: int
    paused: bool = False
    free_at: int = 0
    resumed_at: int = 0
    skipped: Skipped | None = None
    asked: set[int] = field(default_factory=set)

    def due_at(self, instant: int) -> int:
        """When the firing of `instant` is due: its jitter later, always the same."""
        return firing_due_at(self.name, instant, self.jitter_ms)

    def as_row(self) -> list[Any]:
        """For snapshots."""
        return [_skipped_row(self.skipped) if name == "skipped" else getattr(self, name) for name in _FIELDS]

    @classmethod
    def from_row(cls, row: list[Any]) -> "Schedule":
        """Back from a snapshot."""
        values = dict(zip(_FIELDS, row, strict=True))
        values["skipped"] = None if values["skipped"] is None else Skipped(*values["skipped"])
        return cls(**values)


_FIELDS: Final = tuple(f.name for f in fields(Schedule) if f.name != "asked")


def _skipped_row(skipped: Skipped | None) -> list[Any] | None:
    return None if skipped is None else [skipped.first, skipped.last, skipped.reason, skipped.at]


def firing_id(schedule: str, instant: int) -> str:
    """The id of the task that a schedule submits for an instant (ms, a whole second): nightly@20261130T020000Z."""
    return f"{schedule}{FIRING_MARK}{datetime.fromtimestamp(instant // 1_000, UTC):%Y%m%dT%H%M%SZ}"


def firing_due_at(schedule: str, instant: int, jitter_ms: int) -> int:
    """When a firing is due: its instant, and a share of the jitter that follows from its id."""
    return instant + int(jitter_share(firing_id(schedule, instant), 0) * jitter_ms) if jitter_ms else instant


def firing_of(task: str) -> tuple[str, int] | None:
    """Schedule and instant that a task's id names, or None where it is no firing's."""
    name, mark, text = task.rpartition(FIRING_MARK)
    if not mark:
        return None
    try:
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return name, round(at.timestamp()) * 1_000


class Schedules:
    """The schedules of a pool, by name in the order in which they were first set, and their open firings."""

    __slots__ = ("later", "open", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Schedule] = {}
        self.open: dict[str, dict[str, None]] = {}
        """Schedule -> tasks of its firings in WAITING, ASSIGNED, RUNNING or LOST; also of schedules that are gone."""

        self.later: dict[str, None] = {}
        """Schedules that are to be looked at, for which the last tick had no room (derived)."""

    # ---- for `evolve` and `restore` alone ----

    def opened(self, task: str) -> None:
        """A task came into being, or came back from DEAD; those of no schedule are nothing to us."""
        name, mark, _ = task.rpartition(FIRING_MARK)
        if mark:
            self.open.setdefault(name, {})[task] = None

    def ended(self, task: str, at: int, timers: "Timers") -> None:
        """A task ended or is dead: where none is open any more, the schedule is looked at."""
        name, mark, _ = task.rpartition(FIRING_MARK)
        tasks = self.open.get(name) if mark else None
        if tasks is None or task not in tasks:
            return
        del tasks[task]
        if tasks:
            return
        del self.open[name]
        row = self.rows.get(name)
        if row is not None and row.overlap != "allow":
            row.free_at = at
            self.ask(row, at, timers)

    def ask(self, row: Schedule, at: int, timers: "Timers") -> None:
        """Asks for a look at `at`, where none is asked for before that already (also for what decides)."""
        if not row.asked or at < min(row.asked):
            row.asked.add(at)
            timers.push(at, "schedule", row.name)

    def ask_all(self, at: int, timers: "Timers") -> None:
        """Asks for a look at each."""
        for row in self.rows.values():
            self.ask(row, at, timers)
