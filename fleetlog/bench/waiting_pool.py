"""A pool full of waiting tasks, driven as the owner of its partition drives it: what `bench dispatch` measures.

Time is the pool's own: `BATCH_MS` pass from one batch to the next. All that chooses is drawn from one seed, so two runs
do the same.
"""

import random
import time
import uuid
from collections import deque
from dataclasses import replace
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import Context
from commands.events import Deadlines, InstantDeadline
from commands.evolve import locate
from commands.pool import Pool, Written
from streams.body_store import BodyStore
from streams.memory_log import MemoryLog, MemoryStore
from streams.outputs import event_output, outcome_output

POOL: Final = "hall"
GATEWAY: Final = "gateway-1"
ACTOR: Final = "bench"
START_AT: Final = 1_790_000_040_000
BATCH_MS: Final = 250
BATCH: Final = 250
"""Lives in one batch: as many submissions as acceptances and completions."""
BEATEN_EVERY: Final = 8
"""Every robot is heard once in so many batches, twice a window."""
DISPATCH_MAX: Final = 2_000
BATCHES_MAX: Final = 1_000
"""With one target, a batch is one life."""
KINDS: Final = ("move", "scan")
NEEDED: Final = ("lift", None)
SLOTS_OF_FEW: Final = 16


class WaitingPool:
    """One pool with `targets` targets and `robots` robots.

    `events` and `lives` count what was written, `busy_s` is the processor time that the batches took.
    """

    def __init__(self, targets: int, robots: int) -> None:
        self.random = random.Random(0)  # noqa: S311
        self.targets, self.robots = targets, robots
        self.slots = SLOTS_OF_FEW if robots <= 100 else 1
        self.written = Written()
        self.now = START_AT
        self.pool = Pool.new(POOL, self.written, self.now)
        self._bodies = BodyStore(MemoryLog(MemoryStore(1)), 0, None, 1 << 20)
        self._messages = 0
        self._offset = 0
        self._batches = 0
        self._assigned: deque[tuple[str, str, int]] = deque()
        self._running: deque[tuple[str, str, int]] = deque()
        self.events = self.lives = 0
        self.busy_s = 0.0
        self._seqs = [0] * robots
        self._take(i.CreatePool(**self._asking(), body=i.SettingsBody(settings={"queue_max": 10_000_000})))
        self.write()

    # ---- as the owner does ----

    def write(self) -> None:
        """Encodes what the batch produced and says where the events lie, as the owner does around its commit."""
        for row in self.written.events:
            event_output(row)
            self._offset += 1
            if isinstance(row.event, e.TaskSubmitted | e.CheckpointSaved):
                locate(self.pool.state, row.event, self._offset)
        for outcome in self.written.outcomes:
            if outcome.draft.message.get("type") == "assign":
                self._note_assigned(outcome.draft.robot or "", outcome.draft.message)
            # Without payload and checkpoint, which are read from the log, not from the state.
            outcome_output(replace(outcome, draft=replace(outcome.draft, body=None)), self._bodies)
        self.events += len(self.written.events)
        self.written.events.clear()
        self.written.outcomes.clear()

    def _note_assigned(self, robot: str, message: dict[str, Any]) -> None:
        self._assigned.append((robot, message["task"], message["attempt"]))

    def _take(self, asked: Any) -> None:
        self.pool.take(asked, self._context())

    def _context(self) -> Context:
        return Context(now=self.now, log_id="bench", format=1)

    # ---- filling ----

    def register(self) -> None:
        """Every robot says hello; half of them can lift."""
        for number in range(self.robots):
            able = ["lift"] if number % 2 else []
            self._take(self._said(number, m.Hello, slots=self.slots, capabilities=able, holding=[]))
            self._take(self._said(number, m.Ready, n=self.slots))
        self.write()

    def fill(self, tasks: int) -> None:
        """So many tasks arrive, in batches, in random order of priority, target and deadline."""
        left = tasks
        while left:
            for _ in range(min(2 * BATCH, left)):
                self._take(self._submission())
                left -= 1
            self.write()
            self.now += BATCH_MS

    def begin(self, tasks: int) -> None:
        """Every slot gets a task, every robot accepts, and so many tasks wait again."""
        while self.pool.dispatch(self.now, DISPATCH_MAX):
            self.write()
            while self._assigned:
                self._take(self._accepted())
            self.write()
        self.fill(tasks - self.pool.state.queue.waiting)

    # ---- at a constant number of waiting tasks ----

    def live(self, lives: int) -> None:
        """So many tasks are submitted, assigned, accepted and completed, or as many as `BATCHES_MAX` batches take."""
        end = self.lives + lives
        for _ in range(BATCHES_MAX):
            if self.lives >= end:
                break
            self.batch()

    def batch(self, lives: int = BATCH) -> None:
        """One batch: reports, commands, time, dispatch, encoding; heartbeats and making the inputs are not counted."""
        self._batches += 1
        self.now += BATCH_MS
        self.pool.take_heartbeats(self._heartbeats(), self._context())
        accepted = [self._accepted() for _ in range(min(lives, len(self._assigned)))]
        completed = [self._completed() for _ in range(min(lives, len(self._running)))]
        submissions = [self._submission() for _ in completed]
        began = time.process_time()
        for asked in (*accepted, *completed, *submissions):
            self._take(asked)
        self.pool.advance(self.now, self.now)
        self.pool.dispatch(self.now, DISPATCH_MAX)
        self.write()
        self.busy_s += time.process_time() - began
        self.lives += len(completed)

    def _heartbeats(self) -> i.Heartbeats:
        beats = []
        held: dict[str, list[i.HeldByRobot]] = {}
        for robot, task, attempt in self._running:
            held.setdefault(robot, []).append(i.HeldByRobot(task=task, attempt=attempt))
        for number in range(self._batches % BEATEN_EVERY, self.robots, BEATEN_EVERY):
            robot = _name(number)
            beats.append(i.Beat(robot=robot, epoch=self._epoch(robot), seq=1, holding=held.get(robot, [])))
        return i.Heartbeats(pool=POOL, gateway=GATEWAY, beats=beats)

    def _accepted(self) -> i.Report:
        robot, task, attempt = self._assigned.popleft()
        self._running.append((robot, task, attempt))
        return self._said(_number(robot), m.Accept, task=task, attempt=attempt)

    def _completed(self) -> i.Report:
        robot, task, attempt = self._running.popleft()
        return self._said(_number(robot), m.Complete, task=task, attempt=attempt, result={"fine": True})

    def _epoch(self, robot: str) -> int:
        return self.pool.state.robots[robot].epoch

    def _said(self, number: int, shape: Any, **fields: Any) -> i.Report:
        name = _name(number)
        self._messages += 1
        if shape is not m.Hello:
            self._seqs[number] += 1
            fields |= {"epoch": self._epoch(name), "seq": self._seqs[number]}
        message = shape(id=f"boot.{self._messages}", **fields)
        return i.Report(pool=POOL, robot=name, gateway=GATEWAY, actor=ACTOR, message=message)

    def _asking(self) -> dict[str, Any]:
        return {"id": self._uuid(), "pool": POOL, "actor": ACTOR, "reply_to": GATEWAY}

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _submission(self) -> i.Submit:
        """A task as clients send it: an id of 36 characters, a payload, one third with a deadline."""
        chance = self.random
        needed = chance.choice(NEEDED)
        hours = chance.randrange(1, 24)
        at = self.now + hours * 3_600_000 + chance.randrange(3_600_000)
        return i.Submit(
            **self._asking(),
            body=i.Submission(
                task=self._uuid(),
                kind=chance.choice(KINDS),
                payload={"json": {"from": "A1", "to": "B2", "weight": 12.5}},
                requirement=[needed] if needed else [],
                target=f"target-{chance.randrange(self.targets)}",
                priority=chance.randrange(10),
                deadlines=Deadlines(start=InstantDeadline(at=at)) if chance.randrange(3) == 0 else None,
            ),
        )


def _name(number: int) -> str:
    return f"robot-{number}"


def _number(robot: str) -> int:
    return int(robot.rpartition("-")[2])
