"""A pool on a virtual clock that serves a list of jobs as fast as it can decide, and first in first out beside it.

The pool is the product's own core, with every event recorded and encoded; only the robots are made up: each accepts
at once, works for the job's time, and says that it is done. First in first out keeps the same rules of exclusion (one
job of a target at a time, able robots only) and knows nothing else.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import Context
from commands.pool import Pool, Written
from commands.requirements import abilities_of, meets

POOL: Final = "replay"
START_AT: Final = 1_790_000_040_000
LOG_ID: Final = "11111111-2222-4333-8444-555555555555"
WINDOW_MS: Final = 60_000
AT_ONCE: Final = 1_000


@dataclass(slots=True, frozen=True)
class Job:
    """One piece of real work. `at_ms` counts from the beginning; `run_ms` is how long a robot works on it."""

    id: str
    at_ms: int
    run_ms: int
    kind: str
    user: str
    target: str | None = None
    priority: int = 0
    requirement: tuple[str, ...] = ()
    fails: bool = False


@dataclass(slots=True, frozen=True)
class Helper:
    """A robot of the replay, with one slot."""

    name: str
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Served:
    """When each job was submitted and given to a robot (ms from the beginning), to which, and in how many events."""

    shown_ms: dict[str, int] = field(default_factory=dict)
    at_ms: dict[str, int] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    events: int = 0


RunMs = Callable[[Job, str], int]
"""How long this robot works on this job (ms)."""
Next = Callable[[], Job | None]
"""One more job, when one has ended; its `at_ms` counts for nothing."""


def _by_job(job: Job, robot: str) -> int:
    return job.run_ms


def _no_more() -> Job | None:
    return None


class Replay:
    """The pool with its robots, and a heap of what happens when."""

    def __init__(self, helpers: list[Helper], run_ms: RunMs = _by_job, after_each: Next = _no_more) -> None:
        self._written = Written()
        self._now = START_AT
        self._pool = Pool.new(POOL, self._written, self._now)
        self._run_ms, self._after_each = run_ms, after_each
        self._numbers = count(1)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._jobs: dict[str, Job] = {}
        self._holding: dict[str, dict[str, int]] = {helper.name: {} for helper in helpers}
        self._seq: dict[str, int] = dict.fromkeys(self._holding, 0)
        self.served = Served()
        for helper in helpers:
            self._say(helper.name, m.Hello, slots=1, capabilities=list(helper.capabilities), holding=[])
            self._say(helper.name, m.Ready, n=1)
        self._open = 0

    def run(self, jobs: list[Job]) -> Served:
        """Serves all jobs, and those that follow them."""
        for job in jobs:
            self._open += 1
            self._at(START_AT + job.at_ms, partial(self._submit, job))
        self._at(START_AT + WINDOW_MS // 2, self._beat)
        while self._open:
            self._now, _, act = heappop(self._due)
            act()
            while self._due[0][0] <= self._now:
                heappop(self._due)[2]()
            self._pool.advance(self._now, self._now)
            while self._pool.dispatch(self._now, AT_ONCE) or self._written.events:
                self._follow()
        return self.served

    def _at(self, instant: int, act: Callable[[], None]) -> None:
        heappush(self._due, (instant, next(self._numbers), act))

    def _follow(self) -> None:
        """What was written is counted; whoever was assigned something begins at once."""
        events = [row.event for row in self._written.events]
        self.served.events += len(events)
        self._written.events.clear()
        self._written.outcomes.clear()
        for event in events:
            if isinstance(event, e.TaskAssigned):
                self._begin(event)

    def _begin(self, event: e.TaskAssigned) -> None:
        job = self._jobs[event.task]
        self.served.at_ms[job.id], self.served.by[job.id] = self._now - START_AT, event.robot
        self._say(event.robot, m.Accept, task=job.id, attempt=event.attempt)
        self._holding[event.robot][job.id] = event.attempt
        run_ms = self._run_ms(job, event.robot)
        self._at(self._now + run_ms, partial(self._end, job, event.robot, event.attempt))

    def _end(self, job: Job, robot: str, attempt: int) -> None:
        del self._holding[robot][job.id]
        if job.fails:
            error = m.ErrorReport(type="failed", message="as it did then")
            self._say(robot, m.Fail, task=job.id, attempt=attempt, failure_class="fatal", error=error)
        else:
            self._say(robot, m.Complete, task=job.id, attempt=attempt)
        self._open -= 1
        following = self._after_each()
        if following is not None:
            self._open += 1
            self._submit(following)

    def _submit(self, job: Job) -> None:
        self._jobs[job.id] = job
        self.served.shown_ms[job.id] = self._now - START_AT
        body = i.Submission(
            task=job.id,
            kind=job.kind,
            target=job.target,
            priority=job.priority,
            requirement=list(job.requirement),
        )
        self._take(i.Submit(id=job.id, pool=POOL, actor=job.user, reply_to="g", create=True, body=body))

    def _say(self, robot: str, shape: Any, **fields: Any) -> None:
        if shape is not m.Hello:
            self._seq[robot] += 1
            fields |= {"epoch": self._pool.state.robots[robot].epoch, "seq": self._seq[robot]}
        message = shape(id=f"{robot}.{next(self._numbers)}", **fields)
        self._take(i.Report(pool=POOL, robot=robot, gateway="g", actor=robot, create=True, message=message))

    def _beat(self) -> None:
        """Once a window, everybody names what it holds."""
        beats = []
        for robot, held in self._holding.items():
            self._seq[robot] += 1
            holding = [i.HeldByRobot(task=task, attempt=attempt) for task, attempt in held.items()]
            epoch = self._pool.state.robots[robot].epoch
            beats.append(i.Beat(robot=robot, epoch=epoch, seq=self._seq[robot], holding=holding))
        self._pool.take_heartbeats(i.Heartbeats(pool=POOL, gateway="g", beats=beats), self._context())
        self._at(self._now + WINDOW_MS, self._beat)

    def _take(self, asked: Any) -> None:
        self._pool.take(asked, self._context())

    def _context(self) -> Context:
        defaults = {"window_ms": WINDOW_MS, "lease_ms": 3 * WINDOW_MS}
        return Context(now=self._pool.instant(self._now), log_id=LOG_ID, format=1, defaults=defaults)


def first_in_first_out(
    jobs: list[Job], helpers: list[Helper], run_ms: RunMs = _by_job, after_each: Next = _no_more
) -> Served:
    """The oldest job that may run, to the robot that has been idle longest."""
    served, numbers, idle = Served(), count(), list(helpers)
    waiting: dict[tuple[Any, ...], deque[tuple[int, Job]]] = defaultdict(deque)
    busy: set[str] = set()
    able = {h.name: abilities_of(h.capabilities) for h in helpers}
    due: list[tuple[int, int, Job, Helper | None]] = []
    for job in jobs:
        heappush(due, (job.at_ms, next(numbers), job, None))

    def pairs() -> Iterator[tuple[int, Helper, tuple[Any, ...]]]:
        for key, queue in waiting.items():
            requirement, target = key
            if target not in busy:
                helper = next((h for h in idle if meets(requirement, able[h.name])), None)
                if helper is not None:
                    yield queue[0][0], helper, key

    while due:
        now = due[0][0]
        while due and due[0][0] == now:
            _, number, job, helper = heappop(due)
            if helper is not None:
                idle.append(helper)
                busy.discard(job.target or "")
                following = after_each()
                if following is None:
                    continue
                number, job = next(numbers), following
            served.shown_ms[job.id] = now
            waiting[job.requirement, job.target].append((number, job))
        while idle and (best := min(pairs(), key=lambda row: row[0], default=None)) is not None:
            _, helper, key = best
            _, job = waiting[key].popleft()
            if not waiting[key]:
                del waiting[key]
            idle.remove(helper)
            if job.target is not None:
                busy.add(job.target)
            served.at_ms[job.id], served.by[job.id] = now, helper.name
            heappush(due, (now + run_ms(job, helper.name), next(numbers), job, helper))
    return served
