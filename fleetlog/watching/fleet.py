"""What the live view knows of a pool: lists read twice a second, events as they happen. Nothing is drawn here."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fleetlog.asking import Asking, part
from fleetlog.output import Item
from fleetlog.problems import Problem

LISTS_EVERY_S: Final = 0.5
AGAIN_S: Final = 0.5
SHOWN_MAX: Final = 200
"""Robots and held tasks that are read at most; a view has no room for more."""
EVENTS_KEPT: Final = 200
RATE_OVER_S: Final = 5.0
MANY_PER_S: Final = 3.0
"""Completions a second from which on they are no lines of their own."""
QUIET: Final = frozenset(
    {
        "ProgressNoted",
        "CheckpointSaved",
        "RobotReadyChanged",
        "TaskSubmitted",
        "TaskAssigned",
        "LeaseStarted",
        "CommandNoted",
    }
)
"""Types that happen all the time; the view shows them by robots, figures and bars instead of lines."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A pool at one moment. `held`: tasks by robot. `rate`: completed tasks a second over the last seconds."""

    pool: str
    robots: tuple[Item, ...] = ()
    held: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    oldest_waiting_at: str | None = None
    events: tuple[Item, ...] = ()
    rate: float = 0.0
    trouble: str | None = None


class FleetWatcher:
    """Follows one pool from start to stop. `on_event` is called for every event, in a thread of the watcher."""

    def __init__(
        self,
        connect: Callable[[], Asking],
        pool: str,
        where: str = "",
        on_event: Callable[[Item], None] | None = None,
    ) -> None:
        self._connect = connect
        self._pool = pool
        self._where = f"pool={pool} {where}".strip()
        self._on_event = on_event
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._picture = Picture(pool)
        self._events: deque[Item] = deque(maxlen=EVENTS_KEPT)
        self._completions: deque[Item] = deque(maxlen=EVENTS_KEPT)
        self._completed: deque[float] = deque(maxlen=10_000)
        self._trouble: dict[str, str] = {}
        self.follows = threading.Event()
        """Set while the stream of events stands."""

    def start(self) -> "FleetWatcher":
        """Begins to follow, in the background."""
        for work in (self._read_lists, self._follow_events):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends; its threads end by themselves."""
        self._stopping.set()

    def picture(self) -> Picture:
        """The pool now."""
        now = time.monotonic()
        with self._lock:
            recent = sum(1 for at in self._completed if now - at <= RATE_OVER_S)
            trouble = next(iter(self._trouble.values()), None)
            events = self._worth_a_line(recent / RATE_OVER_S)
            return replace(self._picture, events=events, rate=recent / RATE_OVER_S, trouble=trouble)

    def _worth_a_line(self, rate: float) -> tuple[Item, ...]:
        """Where much is completed, that is a figure and not a line each: what else happens must stay to be seen."""
        if rate >= MANY_PER_S:
            return tuple(self._events)
        both = [*self._events, *self._completions]
        return tuple(sorted(both, key=lambda event: (event["occurred_at"], event["sequence"])))

    # ---- lists ----

    def _read_lists(self) -> None:
        asking = self._connect()
        asking.timeout_s = 2.0
        while not self._stopping.is_set():
            try:
                picture = self._read(asking)
            except Problem as problem:
                self._troubled("lists", str(problem))
            else:
                self._troubled("lists", None)
                with self._lock:
                    self._picture = picture
            self._stopping.wait(LISTS_EVERY_S)
        asking.close()

    def _read(self, asking: Asking) -> Picture:
        pool = asking.get(f"/v1/pools/{part(self._pool)}")
        robots = tuple(asking.pages("/v1/robots", SHOWN_MAX, where=f"pool={self._pool}"))
        held: dict[str, list[Item]] = {}
        for state in ("RUNNING", "ASSIGNED", "LOST"):
            if pool.get("tasks", {}).get(state):
                for task in asking.pages("/v1/tasks", SHOWN_MAX, where=f"{self._where} state={state}"):
                    held.setdefault(str(task.get("robot")), []).append(task)
        return Picture(
            self._pool,
            robots,
            {robot: tuple(tasks) for robot, tasks in held.items()},
            pool.get("tasks", {}),
            pool.get("oldest_waiting_at"),
        )

    # ---- events ----

    def _follow_events(self) -> None:
        asking = self._connect()
        position: str | None = None
        while not self._stopping.is_set():
            try:
                for told in asking.stream(position, where=self._where):
                    self.follows.set()
                    self._troubled("events", None)
                    if self._stopping.is_set():
                        return
                    if told is not None:
                        position = told.position
                        self._take(told.data)
            except Problem as problem:
                self._troubled("events", str(problem))
            self.follows.clear()
            self._stopping.wait(AGAIN_S)

    def _take(self, event: dict[str, Any]) -> None:
        name = str(event["type"]).partition(".")[0]
        with self._lock:
            if name == "TaskCompleted":
                self._completed.append(time.monotonic())
                self._completions.append(event)
            elif name not in QUIET:
                self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    def _troubled(self, part_of: str, text: str | None) -> None:
        with self._lock:
            if text is None:
                self._trouble.pop(part_of, None)
            else:
                self._trouble[part_of] = text
