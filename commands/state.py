"""What is true now in one pool: mutable rows, private to the owner of its partition.

Rows are small (slots, shared terms, few containers), because a pool may hold a million waiting tasks. Only `evolve`
changes them. The `queue` (lanes and heaps) and `timers` are derived: they can be rebuilt from the rows.
Instants and durations are milliseconds.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from commands.ids import ZERO_HASH
from commands.limits import Limits
from commands.remembered import RememberedCommands
from commands.requirements import Abilities, kind_condition
from commands.schedules import Schedules
from commands.settings import PoolSettings
from commands.task import Attempt as Attempt
from commands.task import Reported as Reported
from commands.task import Saved as Saved
from commands.task import Story as Story
from commands.task import Task as Task

if TYPE_CHECKING:
    from commands.cut import Cut
    from commands.queue import Queue
    from commands.timers import Timers


class Held(NamedTuple):
    """The attempt that holds a target."""

    task: str
    attempt: int


class Paused(NamedTuple):
    """A pause: its end if it has one, and who asked for it, when and why (unknown in older snapshots)."""

    until: int | None
    by: str | None = None
    at: int | None = None
    reason: str | None = None


@dataclass(slots=True, weakref_slot=True)
class Terms:
    """How a task is to be run; one object shared by all tasks with the same terms."""

    kind: str
    requirement: tuple[str, ...]
    prefer: tuple[str, ...]
    slot_cost: int
    priority: int
    lease_ms: int
    accept_ms: int
    failures_max: int
    first_ms: int
    factor: float
    max_ms: int
    lost_max: int
    policy: str
    wait_ms: int
    passing: str
    late: str
    limit_key: str | None

    @property
    def needed(self) -> tuple[str, ...]:
        """What a robot must have: the requirement, and that it takes this kind."""
        return (*self.requirement, kind_condition(self.kind))

    def key(self) -> tuple[Any, ...]:
        """All values, for sharing."""
        return tuple(getattr(self, name) for name in self.__slots__ if name != "__weakref__")


@dataclass(slots=True)
class Ended:
    """What is remembered of an ended task, so that ids and reports are known again."""

    state: str
    attempt: int
    sequence: int
    digest: bytes
    ended_at: int
    late: bool = False
    robot: str | None = None
    reported: Reported | None = None


@dataclass(slots=True, eq=False)
class Robot:
    """A registered robot. `online`: it has a session. `silent`: it missed a window and was not heard since.

    `used` counts slots in ASSIGNED, RUNNING, LOST and holds; `served` is the sequence of its last assignment;
    `lapsed_at` is when a lapse was counted last, or all counts began anew. `former` are the newest hellos of the
    programs that it superseded, the last one last.
    """

    id: str
    epoch: int = 0
    hello: str = ""
    former: tuple[str, ...] = ()
    gateway: str = ""
    slots: int = 0
    capabilities: tuple[str, ...] = ()
    abilities: Abilities = field(default_factory=dict)
    agent: str | None = None
    inline_max_bytes: int | None = None
    online: bool = False
    ready: int = 0
    draining: bool = False
    fault: str | None = None
    silent: bool = False
    offline: bool = True
    missed: int = 0
    missed_at: int = 0
    counts_from: int = 0
    lapses: int = 0
    lapsed_at: int = 0
    rejects: int = 0
    used: int = 0
    served: int = 0
    supersessions: tuple[int, ...] = ()
    tasks: dict[str, None] = field(default_factory=dict)
    excluding: set[str] = field(default_factory=set)

    @property
    def may_work(self) -> bool:
        """Whether it may get anything new at all."""
        return self.online and not (self.draining or self.silent or self.offline) and self.fault is None

    @property
    def room(self) -> int:
        """Slots that may still be filled."""
        return min(self.ready, self.slots) - self.used

    @property
    def state(self) -> str:
        """OFFLINE before ERROR before BUSY before IDLE."""
        if self.offline or not self.online:
            return "OFFLINE"
        if self.fault is not None:
            return "ERROR"
        return "BUSY" if self.tasks else "IDLE"


@dataclass(slots=True, eq=False)
class Target:
    """The thing that work is done to: at most one task of it is held at a time.

    `last_served` is None before the first service. `first`, `heaps` and `backing` belong to the queue.
    """

    name: str
    holder: Held | None = None
    last_served: int | None = None
    level: int = 0
    tasks: int = 0
    paused: bool = False
    generation: int = 0
    first: Task | None = None
    entry: Any = None
    lane: Any = None
    heaps: dict[Any, list[Any]] = field(default_factory=dict)
    backing: dict[str, Task] = field(default_factory=dict)


@dataclass(slots=True)
class Hold:
    """Slot and target that stay held after an attempt's lease."""

    task: str
    attempt: int
    sequence: int
    robot: str
    slot_cost: int
    target: Target | None
    until: int | None


@dataclass(slots=True, eq=False)
class PoolState:
    """Everything that one pool's decisions need. `retired`: robot -> its last hello, so that it is not taken again.

    `ended_order` names the ended tasks, oldest first: to look for the first key of a dict from which many went takes
    as long as all of these.
    """

    pool: str
    queue: "Queue"
    timers: "Timers"
    log_id: str = ""
    format: int = 0
    settings: PoolSettings = field(default_factory=PoolSettings)
    window_before_ms: int = 5_000
    window_from: int = 0
    sequence: int = 0
    chain: bytes = ZERO_HASH
    last_at: int = 0
    counting_from: int = 0
    due_window: int = -1
    held_window: int = -1
    frozen: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    ended_order: deque[str] = field(default_factory=deque)
    commands: RememberedCommands = field(default_factory=RememberedCommands)
    robots: dict[str, Robot] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    idle_targets: OrderedDict[str, None] = field(default_factory=OrderedDict)
    holds: dict[Held, Hold] = field(default_factory=dict)
    running: dict[str, Task] = field(default_factory=dict)
    paused: dict[tuple[str, str], Paused] = field(default_factory=dict)
    unsatisfiable: set[tuple[tuple[str, ...], int]] = field(default_factory=set)
    limits: Limits = field(default_factory=Limits)
    schedules: Schedules = field(default_factory=Schedules)
    cut: "Cut | None" = None
    shared_terms: "WeakValueDictionary[tuple[Any, ...], Terms]" = field(default_factory=WeakValueDictionary)

    @property
    def exists(self) -> bool:
        """Whether the pool was created."""
        return self.sequence > 0

    def share(self, terms: Terms) -> Terms:
        """The one object with these terms."""
        return self.shared_terms.setdefault(terms.key(), terms)

    def window_ms_at(self, instant: int) -> int:
        """The window length that holds at `instant`."""
        return self.window_before_ms if instant < self.window_from else self.settings.window_ms

    def window_start(self, instant: int) -> int:
        """The start of the window that contains `instant`."""
        return instant - instant % self.window_ms_at(instant)

    def window_after(self, instant: int) -> int:
        """The start of the first window that begins after `instant`."""
        length = self.window_ms_at(instant)
        start = instant - instant % length + length
        return min(start, self.window_from) if instant < self.window_from else start

    def windows_of(self, lease_ms: int, instant: int) -> int:
        """How many whole windows a lease has: at least three, rounded up."""
        return max(3, -(-lease_ms // self.window_ms_at(instant)))

    def intern_target(self, name: str) -> Target:
        """The row of a target, made if there is none (for `evolve` alone)."""
        target = self.targets.get(name)
        if target is None:
            target = self.targets[name] = Target(name, paused=("target", name) in self.paused)
        return target
