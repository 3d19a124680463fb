"""What robots say about attempts: accept, reject, checkpoint, complete, fail, stopped; current, repeated or late.

(task, attempt) is the fencing token. The first report about the current attempt wins; a repeat gets the same ack; a
report about an attempt that is no longer current is late: kept, never obeyed, except a completion that nobody
else can contradict.
"""

from dataclasses import dataclass
from typing import Any, Final

from commands import events as e
from commands import messages as m
from commands.decide import answers as a
from commands.decide.answers import Context, Decision
from commands.decide.losing import End, after_own_deadline, after_stopped_lost, back_off_until, unwanted
from commands.inputs import Report
from commands.reasons import Refusal
from commands.state import Attempt, Ended, Held, PoolState, Reported, Robot, Task

NEVER_RAN: Final = frozenset({"withdrawn", "reject"})
CHECKPOINT_EVERY_MS: Final = 1_000


@dataclass(slots=True, frozen=True)
class About:
    """A report with what it is about: the sender, the open task or what is remembered of an ended one."""

    state: PoolState
    report: Report
    message: Any
    robot: Robot
    task: Task | None
    ended: Ended | None
    now: int

    @property
    def current(self) -> Attempt | None:
        """The task's attempt, where the report is about it and from its robot."""
        task = self.task
        if task is None or task.current is None or task.attempt != self.message.attempt:
            return None
        return task.current if task.current.robot == self.robot.id else None

    @property
    def is_last_of_robot(self) -> bool:
        """Whether no newer attempt was assigned, and this robot had the last one."""
        task = self.task
        return (
            task is not None
            and task.current is None
            and task.attempt == self.message.attempt
            and task.story is not None
            and task.story.last_robot == self.robot.id
        )

    @property
    def reported(self) -> Reported:
        """The reports about this task that were taken before."""
        if self.task is not None:
            return {} if self.task.story is None else self.task.story.reported
        return {} if self.ended is None else self.ended.reported or {}

    def no(self, reason: str, text: str, field: str | None = None, retry_after_ms: int | None = None) -> Decision:
        """The refusal of this report."""
        refusal = Refusal(reason, text, field, retry_after_ms)
        return a.no(self.report.gateway, self.report.robot, self.message, refusal)

    def yes(self, *events: e.Event, **more: Any) -> Decision:
        """The ack of this report, with its events; a hold that the report ends, ends."""
        ended_hold = self._hold_ended() if isinstance(self.message, m.Complete | m.Fail | m.Stopped) else []
        return Decision([*events, *ended_hold], [a.ack(self.robot, self.message, **more)])

    def _hold_ended(self) -> list[e.Event]:
        hold = self.state.holds.get(Held(self.message.task, self.message.attempt))
        if hold is None or hold.robot != self.robot.id:
            return []
        target = None if hold.target is None else hold.target.name
        return [e.HoldEnded(task=hold.task, attempt=hold.attempt, robot=hold.robot, target=target, why="stopped")]


def about(state: PoolState, report: Report, robot: Robot, context: Context) -> About:
    """What a report is about."""
    task_id = report.message.task  # type: ignore[union-attr]
    task = state.tasks.get(task_id)
    ended = state.ended.get(task_id) if task is None else None
    return About(state, report, report.message, robot, task, ended, context.now)


def _not_mine(r: About) -> Decision:
    """Why an accept, reject or checkpoint about an attempt that is not the sender's current one is refused."""
    task, attempt = r.task, r.message.attempt
    if task is None and r.ended is None:
        return r.no("unknown_task", f"no task {r.message.task} is known")
    if task is not None and task.attempt == attempt and task.current is not None:
        return r.no("not_yours", f"attempt {attempt} belongs to another robot")
    last_end = None if task is None or task.story is None else task.story.last_end
    if r.is_last_of_robot and last_end == "withdrawn" and not isinstance(r.message, m.Checkpoint):
        return r.no("withdrawn", f"the assignment of attempt {attempt} was withdrawn")
    return r.no("not_current", f"attempt {attempt} of task {r.message.task} is over")


def accept(r: About) -> Decision:
    """The lease starts, whatever the time is: only AssignmentWithdrawn ends that chance."""
    task, current = r.task, r.current
    if task is None or current is None:
        return _not_mine(r)
    if has_stopped(task):
        return r.no("not_current", f"the robot said that it stopped attempt {task.attempt}")
    terms = {"lease_ms": current.lease_ms, "stop_after_ms": current.stop_after_ms}
    if task.state == "ASSIGNED":
        started = e.LeaseStarted(
            task=task.id,
            origin="ASSIGNED",
            attempt=task.attempt,
            robot=r.robot.id,
            epoch=r.robot.epoch,
            counts_from=r.state.window_after(r.now),
        )
        return r.yes(started, **terms)
    return r.yes(*([resumed(r.state, task, r.robot, r.now)] if task.state == "LOST" else []), **terms)


def has_stopped(task: Task) -> bool:
    """Whether the robot itself said that it stopped the current attempt, which then never runs again (LOST)."""
    return task.story is not None and (task.attempt, "stopped") in task.story.reported


def resumed(state: PoolState, task: Task, robot: Robot, now: int) -> e.LeaseResumed:
    """A LOST attempt that its robot names again runs again."""
    return e.LeaseResumed(
        task=task.id,
        origin="LOST",
        attempt=task.attempt,
        robot=robot.id,
        epoch=robot.epoch,
        counts_from=state.window_after(now),
    )


def reject(r: About) -> Decision:
    """The task goes elsewhere; when all able robots said no, the exclusions end after a back-off."""
    task, current = r.task, r.current
    if task is not None and current is not None and task.state != "ASSIGNED":
        return r.no("already_accepted", f"attempt {task.attempt} was accepted")
    if task is None or current is None:
        return r.yes() if (r.message.attempt, "reject") in r.reported else _not_mine(r)
    settings, story = r.state.settings, task.story
    excluded = {} if story is None else {k for k, until in story.excluded.items() if until > r.now}
    need = r.state.queue.need_of(task.terms)
    clears = all(name in excluded or name == r.robot.id for name in need.able)
    clearings = (0 if story is None else story.clearings) + 1
    event = e.AssignmentRejected(
        task=task.id,
        origin="ASSIGNED",
        attempt=task.attempt,
        robot=r.robot.id,
        reason=r.message.reason,
        text=None if r.message.text is None else {"json": r.message.text},
        excluded_until=r.now + settings.excluded_ms,
        clears_exclusions=clears,
        not_again_before=back_off_until(task, clearings, task.attempt, r.now, None) if clears else None,
    )
    events: list[e.Event] = [event]
    if r.robot.rejects + 1 >= settings.rejects_max and r.robot.fault is None:
        events.append(e.RobotFaulted(robot=r.robot.id, epoch=r.robot.epoch, reason="does_not_accept"))
    return r.yes(*events)


def checkpoint(r: About) -> Decision:
    """A value with a number above the last is saved; any other number is a repeat."""
    task, current = r.task, r.current
    if task is None or current is None:
        return _not_mine(r)
    if task.state == "ASSIGNED":
        return r.no("not_accepted", "accept the assignment first")
    if has_stopped(task):
        return r.no("not_current", f"the robot said that it stopped attempt {task.attempt}")
    saved = None if task.story is None else task.story.checkpoint
    events: list[e.Event] = [resumed(r.state, task, r.robot, r.now)] if task.state == "LOST" else []
    if saved is not None and r.message.number <= saved.number:
        return r.yes(*events)
    if saved is not None and saved.saved_at >= current.started_at and r.now - saved.saved_at < CHECKPOINT_EVERY_MS:
        wait_ms = CHECKPOINT_EVERY_MS - (r.now - saved.saved_at)
        return r.no("too_fast", "at most one checkpoint a second", retry_after_ms=wait_ms)
    return r.yes(*events, _saved(r, task, r.message.number, r.message.value))


def _saved(r: About, task: Task, number: int, value: Any) -> e.CheckpointSaved:
    return e.CheckpointSaved(
        task=task.id, attempt=task.attempt, robot=r.robot.id, number=number, checkpoint={"json": value}
    )


def complete(r: About) -> Decision:
    """Done. Counts if the attempt is current, or late if no newer one was assigned and the task has not ended."""
    task, current = r.task, r.current
    if task is not None and current is not None:
        if task.state == "ASSIGNED":
            return r.no("not_accepted", "accept the assignment first")
        return r.yes(_completed(r, task, current))
    early = _refused_final(r) or _repeated(r, "complete")
    if early is not None:
        return early
    if (
        task is not None
        and r.is_last_of_robot
        and task.state == "WAITING"
        and task.terms.late == "accept"
        and task.story is not None
        and task.story.last_end not in ("fail", "stopped")
    ):
        return r.yes(_completed(r, task, None), late=True)
    return _late(r, "complete")


def _completed(r: About, task: Task, current: Attempt | None) -> e.TaskCompleted:
    return e.TaskCompleted(
        task=task.id,
        origin=task.state,
        by="robot",
        attempt=r.message.attempt,
        robot=r.robot.id,
        result=None if r.message.result is None else {"json": r.message.result},
        late=current is None,
        cancel_requested=current is not None and current.cancel_requested,
        ran_ms=None if current is None else r.now - current.started_at,
    )


def fail(r: About) -> Decision:
    """The attempt failed: again after a back-off, or a dead letter at the limit or at once where it is fatal."""
    task, current = r.task, r.current
    if task is None or current is None:
        return _refused_final(r) or _repeated(r, "fail") or _late(r, "fail")
    if task.state == "ASSIGNED":
        return r.no("not_accepted", "accept the assignment first")
    failures = task.failures + 1
    end = unwanted(task, current)
    to, dead_reason, again_at = ("WAITING", None, None) if end is None else (end.to, end.dead_reason, None)
    if end is None and r.message.failure_class == "fatal":
        to, dead_reason = "DEAD", "fatal"
    elif end is None and failures >= task.terms.failures_max:
        to, dead_reason = "DEAD", "failed"
    elif end is None:
        again_at = back_off_until(task, failures, task.attempt, r.now, r.message.retry_after_ms)
    event = e.AttemptFailed(
        task=task.id,
        origin=task.state,
        to=to,
        dead_reason=dead_reason,
        attempt=task.attempt,
        robot=r.robot.id,
        failure_class=r.message.failure_class,
        error=_failure(r.message.error),
        failures=failures,
        not_again_before=again_at,
    )
    return r.yes(event)


def _failure(error: m.ErrorReport) -> e.Failure:
    return e.Failure(
        type=error.type,
        message={"json": error.message},
        detail=None if error.detail is None else {"json": error.detail},
    )


def stopped(r: About) -> Decision:
    """The robot stopped the attempt; only its own deadline counts as lost."""
    task, current = r.task, r.current
    if task is None or current is None:
        return _refused_final(r) or _repeated(r, "stopped") or _late(r, "stopped")
    if task.state == "ASSIGNED":
        return r.no("not_accepted", "accept the assignment first")
    events: list[e.Event] = []
    value = r.message.checkpoint
    saved = None if task.story is None else task.story.checkpoint
    if value is not None and (saved is None or value.number > saved.number):
        events.append(_saved(r, task, value.number, value.value))
    event = attempt_stopped(task, current, r.message.why, r.now)
    if event.to == "LOST" and has_stopped(task):
        return r.yes()
    return r.yes(*events, event)


def attempt_stopped(task: Task, current: Attempt, why: str, now: int) -> e.AttemptStopped:
    """The event for an attempt that its robot stopped, RUNNING or LOST."""
    own = why == "own_deadline" and task.state == "RUNNING"
    if task.state == "LOST":
        end = after_stopped_lost(task, current, why)
    elif own:
        end = after_own_deadline(task, current, now)
    else:
        end = unwanted(task, current) or End("WAITING")
    return e.AttemptStopped(
        task=task.id,
        origin=task.state,
        to=end.to,
        dead_reason=end.dead_reason,
        wait_until=end.wait_until,
        attempt=task.attempt,
        robot=current.robot,
        why=why,  # type: ignore[arg-type]
        lost=task.lost + own,
    )


# ---- reports that are not about the current attempt ----


def _refused_final(r: About) -> Decision | None:
    """A final report that cannot be anybody's truth: unknown task, another robot's attempt, one that never ran."""
    task, attempt = r.task, r.message.attempt
    if task is None and r.ended is None:
        return r.no("unknown_task", f"no task {r.message.task} is known")
    last = r.ended.attempt if task is None and r.ended is not None else (task.attempt if task is not None else 0)
    if attempt > last:
        return r.no("not_accepted", f"attempt {attempt} was never assigned")
    if task is not None and attempt == last:
        story = task.story
        mine = task.current is None and story is not None and story.last_robot == r.robot.id
        if not mine:
            return r.no("not_yours", f"attempt {attempt} belongs to another robot")
        if story is not None and story.last_end in NEVER_RAN:
            return r.no("not_accepted", f"attempt {attempt} was not accepted")
    if r.ended is not None and attempt == last and r.ended.robot not in (None, r.robot.id):
        return r.no("not_yours", f"attempt {attempt} belongs to another robot")
    return None


def _repeated(r: About, kind: str) -> Decision | None:
    """A report that was taken before gets the same ack."""
    late = r.reported.get((r.message.attempt, kind))
    if late is not None:
        return r.yes(late=late or None)
    ended = r.ended
    if ended is None or kind != "complete" or ended.state != "COMPLETED":
        return None
    by_this = (ended.attempt, ended.robot) == (r.message.attempt, r.robot.id)
    return r.yes(late=ended.late or None) if by_this else None


def _late(r: About, kind: Any) -> Decision:
    """Kept as it is; where a newer attempt exists and this one completed, the work was probably done twice."""
    task, ended, message = r.task, r.ended, r.message
    row = task if task is not None else ended
    if row is None:
        raise AssertionError(f"a late report about {message.task}, which is unknown")
    newer = row.attempt if row.attempt > message.attempt else None
    result = getattr(message, "result", None)
    event = e.ReportedLate(
        task=message.task,
        attempt=message.attempt,
        robot=r.robot.id,
        kind=kind,
        state=row.state,
        newer_attempt=newer,
        done_twice=kind == "complete" and (newer is not None or row.state == "COMPLETED"),
        result=None if result is None else {"json": result},
        error=_failure(message.error) if kind == "fail" else None,
    )
    return r.yes(event, late=True)
