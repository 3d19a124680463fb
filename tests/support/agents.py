"""Robots that keep the protocol, over a network that loses, repeats and delays, in a world where everything fails.

`Agent` is a robot as the protocol wants it: it sends again what was not answered, names what it holds, starts only
after the ack of its accept, and stops by its own deadline. `Turmoil` runs some of them against one pool under faults
drawn from a seed, and checks after every step; `calm` ends the faults and waits until every task has ended.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import Draft
from commands.evolve import apply_stored, new_pool
from commands.rows import canonical
from commands.vocabulary import HELD_STATES, TERMINAL_STATES
from tests.support.ledger import check_firings
from tests.support.world import POOL, World, choices

RESEND_MS = 5_000
OWN_SHARE = 0.95
JOB_MS_MAX = 60_000
FINAL = (m.Complete, m.Fail, m.Stopped)


@dataclass
class Job:
    """An assignment as its robot sees it. `sure_at`: first sending of the last answered message that named it."""

    task: str
    attempt: int
    target: str | None
    stop_after_ms: int | None
    accept_sent_at: int = -1
    sure_at: int = 0
    works: bool = False
    accepted: bool = False
    cancelled: bool = False
    reported: bool = False
    ends_at: int = 0
    checkpoint: int = 0

    def must_stop(self, now: int) -> bool:
        """Whether the robot's own deadline has passed."""
        return self.stop_after_ms is not None and now > self.sure_at + OWN_SHARE * self.stop_after_ms


@dataclass
class Pending:
    """A report without an answer: it is sent again every five seconds with the next number."""

    shape: Any
    fields: dict[str, Any]
    id: str
    sent_at: int = -RESEND_MS


@dataclass
class Letter:
    """Something on its way, in one direction, in one session."""

    arrives_at: int
    body: Any
    sent_at: int


@dataclass
class Agent:
    """One robot program. `now` is true time, which no clock step changes."""

    name: str
    dice: random.Random
    slots: int
    capabilities: list[str]
    boots: int = 1
    counter: int = 0
    epoch: int | None = None
    greeting: m.Hello | None = None
    greeted_at: int = -RESEND_MS
    seq: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    up: list[Letter] = field(default_factory=list)
    down: list[Letter] = field(default_factory=list)
    next_beat_at: int = 0
    mute_until: int = 0
    calm: bool = False

    # ---- what goes wrong ----

    def disconnect(self) -> None:
        """The connection breaks: what is on its way is lost; a new hello follows."""
        self.up.clear()
        self.down.clear()
        self.epoch = self.greeting = None

    def crash(self) -> None:
        """The program dies and starts anew: its work has stopped, and it knows nothing."""
        self.disconnect()
        self.jobs.clear()
        self.pending.clear()
        self.boots, self.counter = self.boots + 1, 0

    def say_bye(self, now: int) -> None:
        """I work on nothing; then it is gone until it says hello again."""
        if self.epoch is not None:
            self.jobs.clear()
            self.pending.clear()
            self._send(m.Bye(id=self._id(), epoch=self.epoch, seq=self._number()), now)
            self.epoch = self.greeting = None
            self.mute_until = now + 4_000

    # ---- what it does ----

    def act(self, now: int) -> None:
        """Whatever is due for the robot."""
        for job in list(self.jobs.values()):
            if job.works and job.must_stop(now):
                self._end(job, m.Stopped, now, why="own_deadline")
        if self.epoch is None:
            self._greet(now)
            return
        if now >= self.next_beat_at:
            self._beat(now)
        for job in list(self.jobs.values()):
            self._go_on(job, now)
        for pending in self.pending:
            if now - pending.sent_at >= RESEND_MS:
                self._deliver(pending, now)

    def _go_on(self, job: Job, now: int) -> None:
        if job.accept_sent_at < 0:
            self._answer_offer(job, now)
        elif job.works and job.cancelled and (self.calm or self.dice.random() < 0.5):
            self._end(job, m.Stopped, now, why="cancel")
        elif job.works and now >= job.ends_at:
            self._finish(job, now)
        elif job.works and not self.calm and self.dice.random() < 0.05:
            job.checkpoint += 1
            self._report(m.Checkpoint, now, task=job.task, attempt=job.attempt, number=job.checkpoint, value=now)

    def _answer_offer(self, job: Job, now: int) -> None:
        chance = 1.0 if self.calm else self.dice.random()
        if chance < 0.06:
            del self.jobs[job.task]
        elif chance < 0.15:
            del self.jobs[job.task]
            self._report(m.Reject, now, task=job.task, attempt=job.attempt, reason="busy")
        else:
            job.accept_sent_at = now
            self._report(m.Accept, now, task=job.task, attempt=job.attempt)

    def _finish(self, job: Job, now: int) -> None:
        chance = 1.0 if self.calm else self.dice.random()
        error = m.ErrorReport(type="Broken", message="by chance")
        if chance < 0.05:
            self._end(job, m.Fail, now, failure_class="fatal", error=error)
        elif chance < 0.25:
            self._end(job, m.Fail, now, failure_class="retryable", error=error)
        elif chance < 0.35:
            self._end(job, m.Stopped, now, why="shutdown")
        else:
            self._end(job, m.Complete, now, result={"by": self.name})

    def _end(self, job: Job, shape: Any, now: int, **fields: Any) -> None:
        job.works, job.reported = False, True
        self._report(shape, now, task=job.task, attempt=job.attempt, **fields)

    def _greet(self, now: int) -> None:
        if self.greeting is None:
            held = [job for job in self.jobs.values() if job.works or job.reported or job.accept_sent_at >= 0]
            holding = [m.HeldAttempt(task=job.task, attempt=job.attempt, started=job.works) for job in held]
            self.greeting = m.Hello(id=self._id(), slots=self.slots, capabilities=self.capabilities, holding=holding)
            self.greeted_at = now - RESEND_MS
        if now - self.greeted_at >= RESEND_MS:
            self.greeted_at = now
            self._send(self.greeting, now)

    def _beat(self, now: int) -> None:
        self.next_beat_at = now + 2_500
        held = [job for job in self.jobs.values() if job.accepted]
        holding = [i.HeldByRobot(task=job.task, attempt=job.attempt, progress=now // 1000 % 100) for job in held]
        beat = i.Beat(robot=self.name, epoch=self.epoch or 0, seq=self._number(), holding=holding)
        self._send(i.Heartbeats(pool=POOL, gateway="g1", beats=[beat]), now)

    # ---- sending ----

    def _id(self) -> str:
        self.counter += 1
        return f"{self.name}b{self.boots}.{self.counter}"

    def _number(self) -> int:
        self.seq += 1
        return self.seq

    def _report(self, shape: Any, now: int, **fields: Any) -> None:
        pending = Pending(shape, fields, self._id())
        self.pending.append(pending)
        self._deliver(pending, now)

    def _deliver(self, pending: Pending, now: int) -> None:
        pending.sent_at = now
        self._send(pending.shape(id=pending.id, epoch=self.epoch, seq=self._number(), **pending.fields), now)

    def _send(self, body: Any, now: int) -> None:
        if now < self.mute_until or (not self.calm and self.dice.random() < 0.05):
            return
        self._post(self.up, body, now)

    def _post(self, way: list[Letter], body: Any, now: int) -> None:
        delay = 5 if self.calm else self.dice.choices([5, 50, 400, 2_500], [20, 8, 3, 1])[0]
        after = way[-1].arrives_at if way else 0
        way.append(Letter(max(after, now + delay), body, now))

    # ---- hearing ----

    def tell(self, message: dict[str, Any], epoch: int | None, now: int) -> None:
        """The pool says something to this robot; it is lost, or comes some time later."""
        if now >= self.mute_until and (self.calm or self.dice.random() > 0.05):
            self._post(self.down, (message, epoch), now)

    def hear(self, message: dict[str, Any], epoch: int | None, now: int) -> None:
        """A message has arrived."""
        kind = message["type"]
        if kind == "welcome":
            self._welcomed(message, now)
        elif kind == "superseded" or (epoch is not None and epoch != self.epoch):
            return
        elif kind in ("ack", "refused"):
            self._answered(message, now)
        elif kind == "assign" and self._is_news(message):
            stop_after = message.get("stop_after_ms")
            job = Job(message["task"], message["attempt"], message.get("target"), stop_after)
            job.checkpoint = message.get("checkpoint", {"number": 0})["number"]
            self.jobs[job.task] = job
        elif kind in ("stop", "cancel"):
            job_ = self.jobs.get(message["task"])
            if job_ is not None and job_.attempt == message["attempt"]:
                self._stop_or_cancel(job_, kind, now)

    def _is_news(self, offer: dict[str, Any]) -> bool:
        """Whether an offer is of an attempt that the robot does not know; an older one of the task is over."""
        job = self.jobs.get(offer["task"])
        return job is None or job.attempt < offer["attempt"]

    def beat_answered(self, beat: i.Beat, sent_at: int) -> None:
        """A heartbeat is in the log: own deadlines count from when it was sent."""
        for held in beat.holding:
            job = self.jobs.get(held.task)
            if job is not None and job.attempt == held.attempt:
                job.sure_at = max(job.sure_at, sent_at)

    def _welcomed(self, message: dict[str, Any], now: int) -> None:
        if self.greeting is None or message["of"] != self.greeting.id:
            return
        if message["epoch"] == self.epoch:
            return
        self.epoch, self.seq = message["epoch"], 0
        for verdict in message["held"]:
            job = self.jobs.get(verdict["task"])
            if verdict["verdict"] == "stop" and job is not None and job.attempt == verdict["attempt"]:
                self._forget(job)
        for pending in self.pending:
            self._deliver(pending, now)
        self.next_beat_at = now
        self._report(m.Ready, now, n=self.slots)

    def _answered(self, message: dict[str, Any], now: int) -> None:
        pending = next((row for row in self.pending if row.id == message["of"]), None)
        greeted = self.greeting is not None and self.greeting.id == message["of"]
        if message["type"] == "refused" and (greeted or message["reason"] == "no_session"):
            self.disconnect()
            return
        if pending is None or message.get("retry"):
            return
        self.pending.remove(pending)
        job = self.jobs.get(pending.fields.get("task", ""))
        if job is None or job.attempt != pending.fields["attempt"]:
            return
        if pending.shape in FINAL:
            del self.jobs[job.task]
        elif pending.shape is m.Accept:
            self._accept_answered(job, message, now)

    def _accept_answered(self, job: Job, message: dict[str, Any], now: int) -> None:
        if message["type"] == "refused":
            del self.jobs[job.task]
            return
        if job.accepted:
            return
        job.accepted = True
        job.sure_at = job.accept_sent_at
        if job.must_stop(now):
            self._end(job, m.Stopped, now, why="own_deadline")
        else:
            job.works = True
            job.ends_at = now + (100 if self.calm else self.dice.choice([0, 2_000, 20_000, JOB_MS_MAX]))

    def _stop_or_cancel(self, job: Job, kind: str, now: int) -> None:
        if kind == "cancel":
            job.cancelled = True
        elif job.works:
            self._end(job, m.Stopped, now, why="stop")
        else:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        """The job is over for this robot; a final report that was made before is still sent."""
        job.works = False
        if not any(row.shape in FINAL and row.fields["task"] == job.task for row in self.pending):
            self.jobs.pop(job.task, None)


class Turmoil:
    """A pool, its agents and operators, and everything that may go wrong, drawn from `seed`."""

    def __init__(self, seed: int, force: bool = False) -> None:
        self.dice = random.Random(seed)
        self.force = force
        self.world = World(
            settings={
                "ageing_ms": self.dice.choice([2_000, 60_000]),
                "backoff_first_ms": 200,
                "backoff_max_ms": 3_000,
                "excluded_ms": 8_000,
                "lost_max": self.dice.choice([2, 5]),
                "expiry_held_min": self.dice.choice([0, 2, 20]),
                "remember_max": self.dice.choice([30, 5_000_000]),
            }
        )
        self.world.listener = self._outcome
        self.now, self.offset = self.world.now, 0
        self.agents = {"r0": Agent("r0", self.dice, 3, ["a", "b"])}
        for k in range(1, self.dice.randint(3, 6)):
            capabilities = self.dice.choice([[], ["a"], ["b"], ["a", "b"]])
            self.agents[f"r{k}"] = Agent(f"r{k}", self.dice, self.dice.randint(1, 3), capabilities)
        self.mirror = new_pool(POOL)
        self.mirrored = 0
        self.states: dict[str, str] = {}
        self.unguarded: dict[str, int] = {}
        self.tasks = 0
        self.stalled_until = 0
        self.faults = True

    # ---- one step ----

    def step(self) -> None:
        """Time goes on a little, and something happens."""
        dice, world = self.dice, self.world
        self.now += dice.choice([1, 50, 600, 2_000] if self.faults else [50, 200])
        world.now = self.now + self.offset
        if self.faults:
            acts: list[Callable[[], Any]] = [self._submit, self._operate, self._break_robot, self._break_owner, int]
            dice.choices(acts, [5, 3, 2, 1, 9])[0]()
        for agent in self.agents.values():
            agent.act(self.now)
        if self.now >= self.stalled_until:
            self._own()
        for agent in self.agents.values():
            arrived = [letter for letter in agent.down if letter.arrives_at <= self.now]
            agent.down = agent.down[len(arrived) :]
            for letter in arrived:
                message, epoch = letter.body
                agent.hear(message, epoch, self.now)
        self.check()

    def _own(self) -> None:
        """The owner takes what has arrived, in order, then time acts."""
        letters = []
        for agent in self.agents.values():
            arrived = [letter for letter in agent.up if letter.arrives_at <= self.now]
            agent.up = agent.up[len(arrived) :]
            letters += [(letter.arrives_at, agent, letter) for letter in arrived]
        for _, agent, letter in sorted(letters, key=lambda row: row[0]):
            self._take(agent, letter)
            if self.faults and self.dice.random() < 0.03:
                self._take(agent, letter)
        self.world.tick()

    def _take(self, agent: Agent, letter: Letter) -> None:
        world = self.world
        if isinstance(letter.body, i.Heartbeats):
            world.take(letter.body)
            beat = letter.body.beats[0]
            if beat.epoch == agent.epoch:
                agent.beat_answered(beat, letter.sent_at)
            return
        report = i.Report(pool=POOL, robot=agent.name, gateway="g1", actor="local", create=True, message=letter.body)
        world.take(i.decode_report(i.encode_report(report)))

    def _outcome(self, draft: Draft) -> None:
        agent = self.agents.get(draft.robot or "")
        if agent is None:
            return
        if draft.message["type"] != "session_note":
            agent.tell(draft.message, draft.epoch, self.now)
        elif "closed" in draft.message and draft.epoch == agent.epoch:
            agent.disconnect()

    def _submit(self) -> None:
        dice = self.dice
        self.tasks += 1
        policy: Any = dice.choice(["requeue", "requeue", "wait", "ask", "never"])
        then: Any = dice.choice(["alarm", "dead", "cancel"])
        passing: Any = dice.choice(["higher", "all"])
        late: Any = dice.choice(["accept", "record"])
        soon = e.InstantDeadline(at=self.world.now + dice.randint(1, 60_000), then=then)
        deadlines = dice.choice(
            [e.Deadlines(start=soon), e.Deadlines(end=soon), e.Deadlines(run=e.RunDeadline(ms=2_000, then=then))]
        )
        again = dice.random() < 0.05 and self.tasks > 1
        self.world.submit(
            f"t{dice.randint(1, self.tasks)}" if again else f"t{self.tasks}",
            target=dice.choice([None, "s1", "s2", "s3", "s4"]),
            priority=dice.choice([0, 0, 3, 9]),
            slot_cost=dice.choice([1, 1, 1, 2]),
            requirement=dice.choice([[], ["a"], ["b"]]),
            on_lost=i.OnLostAsked(policy=policy, wait_ms=dice.choice([0, 10_000])),
            accept_ms=dice.choice([5_000, 20_000]),
            not_before=self.world.now + 3_000 if dice.random() < 0.1 else None,
            deadlines=deadlines if dice.random() < 0.15 else None,
            passing=passing,
            late=late,
            limit_key=dice.choice([None, None, "ann", "bob"]),
        )

    # ---- faults ----

    def _break_robot(self) -> None:
        agent = self.dice.choice(list(self.agents.values()))
        match self.dice.randint(0, 9):
            case 0 | 1:
                agent.disconnect()
            case 2 | 3:
                agent.crash()
            case 4:
                agent.say_bye(self.now)
            case 5 | 6 | 7:
                agent.mute_until = self.now + self.dice.choice([3_000, 15_000, 25_000, 60_000])
            case _:
                if agent.epoch is not None:
                    self._say_fault(agent)

    def _say_fault(self, agent: Agent) -> None:
        if self.dice.random() < 0.5:
            agent._report(m.Fault, self.now, text="jammed")
        else:
            agent._report(m.Recovered, self.now)

    def _break_owner(self) -> None:
        dice, world = self.dice, self.world
        match dice.randint(0, 4):
            case 0:
                world.take_over()
            case 1:
                self.stalled_until = self.now + dice.choice([2_000, 9_000])
            case 2:
                world.settled_lag_ms = dice.choice([0, 0, 1_000, 7_000])
            case 3:
                jump = dice.choice([3_600_000, -3_600_000])
                world.wall_at = world.now + jump
                world.do(i.AcceptClock, i.ReasonBody(reason="because"))
                world.wall_at = None
                self.offset += max(0, jump)
                world.now = self.now + self.offset
            case _:
                self._set_window()

    def _set_window(self) -> None:
        window_ms = self.dice.choice([5_000, 6_000])
        self.world.do(i.ConfigurePool, i.SettingsBody(settings={"window_ms": window_ms, "lease_ms": 18_000}))

    def _operate(self) -> None:
        """An operator does something, wisely or not."""
        dice, world = self.dice, self.world
        held = [task.id for task in self._open() if task.state != "WAITING"]
        task = dice.choice(held) if held and dice.random() < 0.8 else f"t{dice.randint(1, max(1, self.tasks))}"
        robot = i.RobotVerb(robot=dice.choice(list(self.agents)), reason="because")
        changed = e.TaskChanges(priority=dice.randint(0, 9), requirement=dice.choice([None, [], ["a"]]))
        scopes: list[dict[str, Any]] = [
            {"scope": "pool", "until": world.now + 4_000},
            {"scope": "target", "name": "s1"},
            {"scope": "kind", "name": "weld", "until": world.now + 2_000},
            {"scope": "task", "name": task},
        ]
        scope = i.ScopeBody(**dice.choice(scopes))
        acts: list[Callable[[], Any]] = [
            lambda: world.verb(i.CancelTask, task),
            lambda: world.verb(i.ReleaseTask, task),
            lambda: world.verb(i.ReleaseTask, task, force=self._forced(task)),
            lambda: self._resolve(task),
            lambda: world.verb(i.RedriveTask, task),
            lambda: world.verb(i.DiscardTask, task),
            lambda: world.verb(i.ChangeTask, task, changed=changed),
            lambda: world.do(i.Pause, scope),
            lambda: world.do(i.Resume, scope),
            lambda: world.do(i.DrainRobot, robot),
            lambda: world.do(i.UndrainRobot, robot),
            lambda: world.do(i.ClearRobot, robot),
            self._clear_all,
            self._clear_all,
            self._clear_all,
            lambda: world.do(i.RetireRobot, robot),
            self._limit,
            self._limit,
            self._schedule,
            self._schedule,
            lambda: world.verb(i.Explain, task),
        ]
        dice.choice(acts)()

    def _limit(self) -> None:
        """A limit that lets everything end some time is set, replaced or removed."""
        dice = self.dice
        which: Any = dice.choice([("kind", "weld"), ("key", "ann"), ("key", "bob")])
        if dice.random() < 0.3:
            self.world.do(i.RemoveLimit, i.LimitVerb(scope=which[0], name=which[1]))
            return
        rate, running = dice.choice([(None, 1), (None, 2), (1.0, None), (5.0, 3)])
        body = i.LimitBody(scope=which[0], name=which[1], running=running, rate_per_s=rate)
        body.burst = None if rate is None else dice.choice([None, 3])
        self.world.do(i.SetLimit, body)

    def _schedule(self) -> None:
        """A schedule is set, replaced, paused, removed, or fired by hand."""
        dice = self.dice
        name = dice.choice(["p", "q"])
        if dice.random() < 0.5:
            shape = dice.choice([i.PauseSchedule, i.ResumeSchedule, i.ResumeSchedule, i.DeleteSchedule, i.FireSchedule])
            self.world.do(shape, i.ScheduleVerb(schedule=name))
            return
        overlap: Any = dice.choice(["skip", "queue_one", "allow"])
        often: dict[str, Any] = {"every_ms": dice.choice([7_000, 20_000]), "jitter_ms": dice.choice([0, 6_000])}
        body = i.ScheduleBody(
            schedule=name,
            task=i.Submission(task=name, kind="weld", target=dice.choice([None, "s1"])),
            overlap=overlap,
            catch_up=dice.choice([0, 1, 3]),
            **dice.choice([often, {"cron": "* * * * *"}]),
        )
        self.world.do(i.SetSchedule, body)

    def _clear_all(self) -> None:
        """The operators' daily round: every robot works again, every pause is over."""
        world = self.world
        for scope, name in list(world.state.paused):
            body: dict[str, Any] = {"scope": scope, "name": name or None}
            world.do(i.Resume, i.ScopeBody(**body))
        for name, robot in list(world.state.robots.items()):
            if robot.draining:
                world.do(i.UndrainRobot, i.RobotVerb(robot=name))
            if robot.fault is not None:
                world.do(i.ClearRobot, i.RobotVerb(robot=name))

    def _forced(self, task: str) -> bool:
        force = self.force and self.dice.random() < 0.5
        if force:
            self._unguard(task)
        return force

    def _resolve(self, task: str) -> None:
        if self.world.at(task) in ("LOST", "DEAD"):
            self._unguard(task)
        self.world.verb(i.ResolveTask, task)

    def _unguard(self, task: str) -> None:
        """Until its robot has surely ended, nobody promises that only one robot works on the target of this task."""
        row, holds = self.world.state.tasks.get(task), self.world.state.holds
        targets = [hold.target for key, hold in holds.items() if key.task == task]
        if row is not None and row.current is not None:
            targets.append(row.target)
        self.unguarded.update({target.name: self.now + JOB_MS_MAX for target in targets if target is not None})

    # ---- checks ----

    def check(self) -> None:
        """What must be true after every step."""
        world = self.world
        for row in world.log[self.mirrored :]:
            event: Any = apply_stored(self.mirror, row.value, self.mirrored)
            if event.transition:
                self.states[event.task] = event.to
            self.mirrored += 1
        assert world.findings == []
        assert canonical(self.mirror) == canonical(world.state)
        self._check_exclusion()

    def check_all(self) -> None:
        """What is checked now and then, because it takes longer."""
        world = self.world
        world.verify()
        check_firings(world.events)
        for task in world.state.tasks.values():
            assert self.states[task.id] == task.state
        for name, ended in world.state.ended.items():
            assert self.states[name] == ended.state
        if not world.state.frozen:
            now = world.pool.instant(world.now)
            assert choices(world.restored(), now) == choices(world.folded(), now)

    def _check_exclusion(self) -> None:
        """At most one robot works on a target, as long as no operator forced anything."""
        working: dict[str, str] = {}
        for agent in self.agents.values():
            for job in agent.jobs.values():
                if job.works and job.target is not None and self.unguarded.get(job.target, 0) < self.now:
                    other = working.setdefault(job.target, agent.name)
                    assert other == agent.name, f"{other} and {agent.name} both work on {job.target}"

    # ---- the end ----

    def calm(self, steps: int = 2_000) -> None:
        """Faults end, robots and operators do their part: every task must end."""
        self.faults = False
        self.stalled_until = self.world.settled_lag_ms = 0
        for name in list(self.world.state.schedules.rows):
            self.world.do(i.DeleteSchedule, i.ScheduleVerb(schedule=name))
        for agent in self.agents.values():
            agent.calm, agent.mute_until = True, 0
        for step in range(steps):
            if step % 10 == 0:
                self._mend()
            self.step()
            if not self.world.state.tasks and not self.world.state.holds:
                break
        self.check_all()
        left = {task.id: (task.state, self.world.verb(i.Explain, task.id)["text"]) for task in self._open()}
        assert not left, left
        assert all(state in TERMINAL_STATES for state in self.states.values())
        assert all(robot.used == 0 for robot in self.world.state.robots.values())

    def _open(self) -> list[Any]:
        return list(self.world.state.tasks.values())

    def _mend(self) -> None:
        world = self.world
        self._clear_all()
        for task in self._open():
            if task.state == "LOST" and task.terms.policy in ("ask", "never"):
                self._resolve(task.id)
            elif task.state == "DEAD":
                answer = world.verb(i.RedriveTask, task.id)
                if answer.get("reason") is not None:
                    world.verb(i.DiscardTask, task.id)
        for key, hold in list(world.state.holds.items()):
            if hold.until is None:
                self._unguard(key.task)
                world.verb(i.ReleaseTask, key.task, force=True)


def held_tasks(world: World) -> int:
    """How many attempts hold something now."""
    return sum(task.state in HELD_STATES for task in world.state.tasks.values())
